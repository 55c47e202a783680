//! The JSON API: routes with their scopes, wire types, error bodies, pagination, and the document that describes them.

mod access;
mod answer;
mod audit;
mod backups;
mod body;
mod byte_range;
mod call;
mod context;
mod cursor;
mod destinations;
mod device;
mod docs;
mod dry_run;
mod error;
mod events;
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod idempotency;
mod json;
mod list;
mod logs;
mod notices;
mod openapi;
mod operations;
mod preferences;
mod router;
mod routes;
mod runs;
mod servers;
mod ssh_key;
mod state;
mod streams;
mod table;
mod tags;
mod tasks;
mod triggers;
mod user;

pub use access::Access;
pub use context::{ContextSettings, with_context};
pub use openapi::document;
pub use operations::operations_router;
pub use router::router;
pub use routes::routes;
pub use state::{Api, MetricsRenderer};
pub use table::Route;
