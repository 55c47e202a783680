//! PostgreSQL as data: dumps of whole servers in the form of the first release, and the roles, settings and databases of
//! a server. Nothing here talks to a server; callers ask and run what these modules give them.

pub mod cluster_dump;
pub mod contents;
pub mod globals;
pub(crate) mod quoting;

pub use crate::archive::pgdump::{DumpFacts, describe as describe_dump};
