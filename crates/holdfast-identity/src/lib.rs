//! Sign-in with external accounts: GitHub, and any OpenID Connect issuer that supports discovery. Both use the
//! authorisation code flow with PKCE, and only the user's identity is requested.

mod github;
mod oidc;
mod providers;
mod settings;
mod web;

pub use providers::{GITHUB, OIDC, Providers};
pub use settings::{Client, GitHubSettings, OidcSettings, Settings};
