//! The caller of a use case: the user and what they may do.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};

use holdfast_core::ids::{ServerId, UserId};
use holdfast_core::scope::ScopeSet;
use holdfast_core::{clock, random};
pub use holdfast_store::audit::Origin;
use tokio_util::sync::CancellationToken;

/// The user on whose behalf a use case runs, and how they came in.
#[derive(Debug, Clone)]
pub struct Caller {
    pub user: UserId,
    pub is_admin: bool,
    pub scopes: ScopeSet,
    pub zone: clock::Zone,
    pub origin: Origin,
    /// Cancelled when nobody waits for the response any more.
    pub gone: CancellationToken,
    /// What is changed or deleted must be in this version.
    pub expected: Expected,
    /// Set if they only want to know what a use case would do.
    pub dry_run: Option<DryRun>,
    /// The key under which this caller's runs, checks, event streams and downloads are counted.
    pub limit_key: LimitKey,
}

/// Which version of a resource a request is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Expected {
    #[default]
    Any,
    /// One of these, as [`version`](crate::version) writes them.
    Versions(Vec<String>),
    /// What is created must be the only one of its kind with its label.
    NewLabel,
}

/// A request that is carried out without effect. It is handed from the front end to the use case and back, because what
/// it found belongs to no resource.
#[derive(Debug, Clone, Default)]
pub struct DryRun(Arc<Mutex<DryRunReport>>);

/// What a dry run found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DryRunReport {
    /// The version that would be changed or deleted.
    pub version: Option<String>,
    /// The fields that an update would change.
    pub changed: Option<Vec<String>>,
    /// The servers behind one that moves, whose database passwords would be removed.
    pub passwords_behind: Vec<ServerId>,
    /// As many secrets were compared with the stored ones, and differed, as somebody needs who guesses.
    pub may_be_guessing: bool,
}

impl DryRun {
    pub fn report(&self) -> DryRunReport {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(crate) fn write(&self, note: impl FnOnce(&mut DryRunReport)) {
        note(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
}

impl Expected {
    pub(crate) fn contains(&self, version: &str) -> bool {
        match self {
            // What is there already is changed by its own use cases, whatever else has its label.
            Self::Any | Self::NewLabel => true,
            Self::Versions(versions) => versions.iter().any(|known| known == version),
        }
    }
}

/// What a limit is counted for: a token cannot use up what others of its user need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitKey {
    Token(i64),
    Session(i64),
    /// The operator, acting for this user.
    Operator(i64),
    Trigger(i64),
}

impl Caller {
    /// The operator of the machine, acting for a user with every scope.
    pub fn operator(user: &holdfast_store::users::UserRow, origin: Origin) -> Self {
        Self {
            user: user.id,
            is_admin: user.is_admin,
            scopes: ScopeSet::all(),
            zone: clock::zone_or_utc(&user.timezone),
            origin,
            gone: CancellationToken::new(),
            expected: Expected::Any,
            dry_run: None,
            limit_key: LimitKey::Operator(user.id.0),
        }
    }
}

/// What every request carries, whichever front end receives it.
#[derive(Debug, Clone)]
pub struct Context {
    pub request_id: String,
    pub address: Option<IpAddr>,
    /// Scheme and host, without a trailing slash.
    pub base_url: String,
    /// Cancelled when the client disconnects.
    pub gone: CancellationToken,
    /// What the client was let in with, once it was.
    pub shown: Arc<OnceLock<Credential>>,
}

/// The digest of what a client is let in with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    Token([u8; 32]),
    Session([u8; 32]),
}

impl Credential {
    pub fn token(token: &str) -> Self {
        Self::Token(random::digest(token))
    }

    pub fn session(secret: &str) -> Self {
        Self::Session(random::digest(secret))
    }
}

impl Context {
    /// Remembers what the client was let in with, so that it can be checked again while a long response is sent.
    pub fn show(&self, credential: Credential) {
        self.shown.get_or_init(|| credential);
    }

    pub fn origin(&self, actor: &str) -> Origin {
        Origin {
            actor: actor.to_owned(),
            address: self.address.map(|address| address.to_string()),
            request_id: Some(self.request_id.clone()),
        }
    }
}
