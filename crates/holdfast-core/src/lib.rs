//! The pure domain model of Holdfast: its types and their rules. No I/O, no async, no wire format.

#[macro_use]
mod string_enum;

pub mod anomaly;
pub mod audit;
pub mod backup;
pub mod changes;
pub mod characters;
mod checks;
pub mod clock;
pub mod content;
pub mod database;
pub mod destination;
pub mod extent;
pub mod failure;
pub mod fields;
pub mod figures;
pub mod ids;
pub mod incident;
pub mod input;
pub mod lease;
pub mod limits;
pub mod network;
pub mod notice;
pub mod page;
pub mod probe;
pub mod queue;
pub mod random;
pub mod rate;
pub mod refusal;
pub mod retention;
pub mod rules;
pub mod run;
pub mod schedule;
pub mod schedule_fields;
pub mod scope;
pub mod secret;
pub mod server;
pub mod slots;
pub mod source;
pub mod storage;
pub mod stream;
pub mod tag;
pub mod task;
pub mod task_health;
mod time_of_day;
pub mod user;
mod window;

pub use jiff::Timestamp;
pub use secret::Secret;
