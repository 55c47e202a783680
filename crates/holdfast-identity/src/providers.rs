//! The identity providers, behind the port of the app.

use std::sync::Arc;

use async_trait::async_trait;
use holdfast_app::identities::{AuthorizationRequest, AuthorizationResponse, Identity, IdentityProviders, Provider};
use holdfast_app::refusal::Missing;
use holdfast_app::{AppError, Result};

use crate::github::GitHub;
use crate::oidc::Oidc;
use crate::settings::Settings;
use crate::web::Web;

/// The names of the providers in URLs and in the database.
pub const GITHUB: &str = "github";
pub const OIDC: &str = "oidc";

/// The identity providers that are configured.
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
    AppError::Missing(Missing::Page)
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

    async fn authorization_url(&self, provider: &str, request: &AuthorizationRequest) -> Result<String> {
        match (provider, &self.github, &self.oidc) {
            (GITHUB, Some(github), _) => github.authorization_url(request),
            (OIDC, _, Some(oidc)) => oidc.authorization_url(request).await,
            _ => Err(unknown()),
        }
    }

    async fn identify(&self, provider: &str, back: &AuthorizationResponse) -> Result<Identity> {
        match (provider, &self.github, &self.oidc) {
            (GITHUB, Some(github), _) => github.identify(back).await,
            (OIDC, _, Some(oidc)) => oidc.identify(back).await,
            _ => Err(unknown()),
        }
    }
}
