//! All of Holdfast's SQL, with one text for both SQLite and PostgreSQL, and the sealing of secrets.
//!
//! A query is a function that takes `&mut Tx`; the caller decides whether that is a read or a transaction.

#[macro_use]
mod tx;
mod condition;
mod damage;
mod database_file;
mod db_time;
mod error;
#[macro_use]
mod suspended;
#[macro_use]
mod row;
#[macro_use]
mod listing;
#[macro_use]
mod key_rotation;
mod hosts;
mod migrate;
mod options;
mod pool;
mod sealer;
#[macro_use]
mod sealing;
mod snapshot;
mod spec;
mod sqlite;
mod statement;
mod store;

#[macro_use]
pub mod task_health;

pub mod audit;
pub mod audit_export;
pub mod backups;
pub mod catalogue;
pub mod copies;
pub mod corrections;
pub mod daily_stats;
pub mod destinations;
pub mod due;
pub mod events;
pub mod figures;
pub mod idempotency;
pub mod identities;
pub mod incidents;
pub mod labels;
pub mod live;
pub mod master_key;
pub mod notices;
pub mod ownership;
pub mod probes;
pub mod queue;
pub mod repositories;
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
pub mod totals;
pub mod transfer;
pub mod upcoming;
pub mod uploads;
pub mod users;
pub mod workers;

pub use condition::{DamageSigns, shrink};
pub use db_time::DbTime;
pub use error::{ConnectRefusal, StartError, StoreError};
pub use key_rotation::{Rotated, SEALED_COLUMNS, rotate};
pub use listing::Listing;
pub use options::{Migrations, Options, sqlite_path};
pub use sealing::{SealContext, open_file};
pub use sqlite::exposed_files;
pub use store::{Store, is_new};
pub use tx::Tx;

/// The result of a query.
pub type Result<T> = std::result::Result<T, StoreError>;
