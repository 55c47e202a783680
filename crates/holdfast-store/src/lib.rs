//! All SQL of Holdfast, one text for SQLite and PostgreSQL, and the sealing of secrets.
//!
//! A query is a function that takes `&mut Tx`; the caller decides whether that is a read or a transaction.

#[macro_use]
mod engine;
mod db_time;
mod error;
#[macro_use]
mod packed;
#[macro_use]
mod listing;
mod migrate;
mod pool;
#[macro_use]
mod sealing;
mod sqlite;

#[macro_use]
pub mod task_health;

pub mod audit;
pub mod backups;
pub mod catalogue;
pub mod corrections;
pub mod daily_stats;
pub mod destinations;
pub mod due;
pub mod figures;
pub mod identities;
pub mod live;
pub mod master_key;
pub mod notices;
pub mod probes;
pub mod queue;
pub mod restores;
pub mod runs;
pub mod servers;
pub mod sessions;
pub mod settings;
pub mod ssh_keys;
pub mod streams;
pub mod summaries;
pub mod tags;
pub mod tasks;
pub mod tokens;
pub mod transfer;
pub mod upcoming;
pub mod uploads;
pub mod users;
pub mod workers;

pub use db_time::DbTime;
pub use engine::{Migrations, Options, Store, Tx, sqlite_path};
pub use error::{StartError, StoreError};
pub use listing::Listing;
pub use sealing::{Place, SEALED_COLUMNS, open_file, rotate};
pub use sqlite::exposed_files;

/// What every query gives back.
pub type Result<T> = std::result::Result<T, StoreError>;
