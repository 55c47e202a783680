//! What the operator set up.

use holdfast_core::Secret;
use holdfast_core::network::Network;

/// A client that the provider knows.
#[derive(Debug, Clone)]
pub struct Client {
    pub id: String,
    pub secret: Secret,
}

#[derive(Debug, Clone)]
pub struct GitHubSettings {
    pub client: Client,
    /// Where people sign in, and where the service asks; the second differs for installations of one's own.
    pub url: String,
    pub api_url: String,
}

#[derive(Debug, Clone)]
pub struct OidcSettings {
    pub client: Client,
    pub issuer: String,
    /// What the button calls it.
    pub name: String,
}

/// What the operator set up.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub github: Option<GitHubSettings>,
    pub oidc: Option<OidcSettings>,
    pub egress_allow: Vec<Network>,
    pub ca_pem: Option<Vec<u8>>,
}
