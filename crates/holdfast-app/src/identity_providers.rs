//! Who says who somebody is: the port behind which GitHub and OpenID Connect issuers stand.

use async_trait::async_trait;
use holdfast_core::{Secret, Timestamp};

use crate::Result;

/// Somebody who may say who somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// In addresses of ours.
    pub id: String,
    pub name: String,
    /// What accounts are kept under. It names the place too: subjects are unique only there.
    pub key: String,
}

/// What goes along when somebody leaves for a provider.
#[derive(Debug)]
pub struct Leave {
    pub redirect_uri: String,
    pub state: String,
    pub nonce: String,
    pub challenge: String,
}

/// What is there when they come back.
pub struct Return {
    pub redirect_uri: String,
    pub code: String,
    pub nonce: String,
    pub verifier: Secret,
    pub now: Timestamp,
}

/// Who a provider says somebody is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Never changes, and never belongs to somebody else.
    pub subject: String,
    /// For people.
    pub name: String,
}

#[async_trait]
pub trait IdentityProviders: Send + Sync {
    fn list(&self) -> Vec<Provider>;

    /// Where to send somebody.
    async fn leave(&self, provider: &str, leave: &Leave) -> Result<String>;

    /// Who came back.
    async fn return_(&self, provider: &str, back: &Return) -> Result<Identity>;
}
