//! The use cases of Holdfast: who may do what, one transaction each. JSON API and web pages call the same functions.

mod access;
mod app;
mod authentication;
mod backup_reader;
mod caller;
mod cancellation;
mod checks;
mod dry_run;
mod error;
mod identity_providers;
mod limiter;
mod mailer;
mod passwords;
mod places;
mod token_cache;
mod worker_checks;

pub mod accounts;
pub mod audit_log;
pub mod backups;
pub mod destinations;
pub mod draining;
pub mod events;
pub mod health;
pub mod idempotency;
pub mod identities;
pub mod incidents;
pub mod logs;
pub mod maintenance;
pub mod notices;
pub mod overview;
pub mod ownership;
pub mod people;
pub mod probes;
pub mod profile;
pub mod refusal;
pub mod repositories;
mod run_output;
pub mod runs;
pub mod servers;
pub mod sessions;
pub mod ssh_key;
pub mod streams;
pub mod supervision;
pub mod suspension;
pub mod tags;
pub mod tasks;
pub mod tokens;
pub mod transfer;
pub mod two_factor;

pub use access::{Owned, version};
pub use app::{App, Limits, Ports};
pub use authentication::{authenticate, is_accepted, require_scope};
pub use backup_reader::{BackupReader, Download, EntryItem, Part};
pub use caller::{Caller, Context, Credential, DryRun, DryRunReport, Expected, LimitKey, Origin};
pub use checks::Check;
pub use dry_run::record_guessing;
pub use error::{AppError, Outage, OutageCause, Resource};
pub use mailer::{Mail, Mailer};
pub use places::{Place, Places, Sharing};

/// The result of every use case.
pub type Result<T, E = AppError> = std::result::Result<T, E>;
