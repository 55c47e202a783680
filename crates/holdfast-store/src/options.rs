//! How the database is opened.

use std::path::PathBuf;
use std::time::Duration;

use crate::master_key::MasterKeySource;

#[derive(Debug, Clone)]
pub struct Options {
    /// `sqlite://path` or `postgres://…`.
    pub url: String,
    pub max_connections: u32,
    /// How long a request waits for a free connection before it fails as temporarily unavailable.
    pub acquire_timeout: Duration,
    pub master_key: MasterKeySource,
    pub migrations: Migrations,
}

/// Whether opening may change the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrations {
    /// Bring it up to date.
    Apply,
    /// Create it if there is none, but refuse to touch an older one: a service may be running on it.
    OnlyCreate,
    /// Change nothing; the schema must exist and be of this version.
    Never,
}

/// The file of a `sqlite:` URL.
pub fn sqlite_path(url: &str) -> Option<PathBuf> {
    let rest = url.strip_prefix("sqlite:")?;
    Some(PathBuf::from(rest.strip_prefix("//").unwrap_or(rest)))
}
