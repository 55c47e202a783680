//! Signing in with accounts elsewhere: GitHub, and any OpenID Connect issuer that can be discovered. Both are asked with
//! the authorisation code flow and PKCE; nothing but who somebody is, is asked for.

mod github;
mod oidc;
mod providers;
mod settings;
mod web;

pub use providers::{GITHUB, OIDC, Providers};
pub use settings::{Client, GitHubSettings, OidcSettings, Settings};
