//! The operator's settings for identity providers.

use holdfast_core::Secret;
use holdfast_core::network::Network;

/// Our registration as a client of the provider.
#[derive(Debug, Clone)]
pub struct Client {
    pub id: String,
    pub secret: Secret,
}

#[derive(Debug, Clone)]
pub struct GitHubSettings {
    pub client: Client,
    /// Where users sign in, and the URL of the API; the latter differs for self-hosted installations.
    pub url: String,
    pub api_url: String,
}

#[derive(Debug, Clone)]
pub struct OidcSettings {
    pub client: Client,
    pub issuer: String,
    /// The name on the sign-in button.
    pub name: String,
}

/// The operator's settings for identity providers.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub github: Option<GitHubSettings>,
    pub oidc: Option<OidcSettings>,
    pub egress_allow: Vec<Network>,
    pub ca_pem: Option<Vec<u8>>,
}
