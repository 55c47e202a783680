//! The use cases of Holdfast: who may do what, one transaction each. JSON API and web pages call the same functions.

mod app;
mod archives;
mod caller;
mod error;
mod limiter;
mod passwords;

pub mod accounts;
pub mod backups;
pub mod destinations;
pub mod logs;
pub mod notices;
pub mod profile;
pub mod servers;
pub mod ssh_key;
pub mod streams;
pub mod tags;
pub mod tasks;
pub mod tokens;

pub use app::{App, Limits};
pub use archives::{Archives, Download, EntryItem};
pub use caller::{Caller, Context, Origin, authenticate, require_scope};
pub use error::{AppError, Resource};

/// What every use case gives back.
pub type Result<T, E = AppError> = std::result::Result<T, E>;
