//! Signing in with accounts elsewhere: GitHub, and any OpenID Connect issuer that can be discovered. Both are asked with
//! the authorisation code flow and PKCE; nothing but who somebody is, is asked for.

mod github;
mod oidc;
mod web;

use std::sync::Arc;

use async_trait::async_trait;
use holdfast_app::identities::{Identity, IdentityProviders, Leave, Provider, Return};
use holdfast_app::{AppError, Result};
use holdfast_core::Secret;
use holdfast_core::network::Network;

use crate::github::GitHub;
use crate::oidc::Oidc;
use crate::web::Web;

/// The names under which providers stand in addresses and in the database.
pub const GITHUB: &str = "github";
pub const OIDC: &str = "oidc";

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

/// Everybody who may say who somebody is.
#[derive(Default)]
pub struct Providers {
    github: Option<GitHub>,
    oidc: Option<Oidc>,
}

impl Providers {
    pub fn new(settings: Settings) -> Self {
        let web = Arc::new(Web::new(settings.egress_allow, settings.ca_pem));
        Self {
            github: settings.github.map(|settings| GitHub { settings, web: web.clone() }),
            oidc: settings.oidc.map(|settings| Oidc::new(settings, web)),
        }
    }
}

fn unknown() -> AppError {
    AppError::Missing("There is no such page.")
}

#[async_trait]
impl IdentityProviders for Providers {
    fn list(&self) -> Vec<Provider> {
        let provider = |id: &str, name: &str, place: &str| Provider {
            id: id.to_owned(),
            name: name.to_owned(),
            key: format!("{id} {place}"),
        };
        let github = self.github.as_ref().map(|github| provider(GITHUB, "GitHub", &github.settings.url));
        let oidc = self.oidc.as_ref().map(|oidc| provider(OIDC, oidc.name(), oidc.issuer()));
        github.into_iter().chain(oidc).collect()
    }

    async fn leave(&self, provider: &str, leave: &Leave) -> Result<String> {
        match (provider, &self.github, &self.oidc) {
            (GITHUB, Some(github), _) => github.leave(leave),
            (OIDC, _, Some(oidc)) => oidc.leave(leave).await,
            _ => Err(unknown()),
        }
    }

    async fn return_(&self, provider: &str, back: &Return) -> Result<Identity> {
        match (provider, &self.github, &self.oidc) {
            (GITHUB, Some(github), _) => github.identify(back).await,
            (OIDC, _, Some(oidc)) => oidc.identify(back).await,
            _ => Err(unknown()),
        }
    }
}
