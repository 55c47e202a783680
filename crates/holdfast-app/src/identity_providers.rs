//! The port to identity providers: GitHub and OpenID Connect issuers.

use async_trait::async_trait;
use holdfast_core::{Secret, Timestamp};

use crate::Result;

/// An identity provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// Its name in our URLs.
    pub id: String,
    pub name: String,
    /// The key under which its accounts are stored. It includes the provider's URL, because subjects are unique only
    /// there.
    pub key: String,
}

/// The parameters with which a user is sent to a provider.
#[derive(Debug)]
pub struct AuthorizationRequest {
    pub redirect_uri: String,
    pub state: String,
    pub nonce: String,
    pub challenge: String,
}

/// What is needed to identify a user who comes back from a provider.
pub struct AuthorizationResponse {
    pub redirect_uri: String,
    pub code: String,
    pub nonce: String,
    pub verifier: Secret,
    pub now: Timestamp,
}

/// The identity of a user according to a provider.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Identifies the account: it never changes and is never reassigned.
    pub subject: String,
    /// For display.
    pub name: String,
}

#[async_trait]
pub trait IdentityProviders: Send + Sync {
    fn list(&self) -> Vec<Provider>;

    /// The URL to send the user to.
    async fn authorization_url(&self, provider: &str, request: &AuthorizationRequest) -> Result<String>;

    /// Identifies the user who came back.
    async fn identify(&self, provider: &str, back: &AuthorizationResponse) -> Result<Identity>;
}
