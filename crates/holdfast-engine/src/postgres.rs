//! PostgreSQL as data: dumps of whole servers in the format of the first release, and the roles, settings and databases
//! of a server. Nothing here connects to a server; callers run the queries and statements that these modules produce.

pub mod cluster_dump;
pub mod contents;
pub mod globals;
mod name;
pub(crate) mod quoting;

use holdfast_core::random;

pub use crate::archive::pgdump::{DumpFacts, describe as describe_dump};

/// The databases that a restore creates for its own use, recognised by their names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Own {
    /// Is filled with the restored data and then replaces another database.
    Fresh,
    /// Provides a connection while other databases are renamed.
    Swap,
    /// The database that was replaced.
    Old,
}

impl Own {
    const ALL: [Self; 3] = [Self::Fresh, Self::Swap, Self::Old];

    fn prefix(self) -> &'static str {
        match self {
            Self::Fresh => "holdfast_restore_",
            Self::Swap => "holdfast_swap_",
            Self::Old => "holdfast_old_",
        }
    }

    pub(crate) fn new_name(self) -> String {
        format!("{}{}", self.prefix(), random::hex(&random::bytes::<8>()))
    }

    /// The purpose of the database with this name; `None` if it was not created by a restore.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let is_number = |rest: &str| rest.len() == 16 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
        Self::ALL.into_iter().find(|own| name.strip_prefix(own.prefix()).is_some_and(is_number))
    }
}

#[cfg(test)]
mod tests {
    use super::Own;

    #[test]
    fn databases_made_by_a_restore_are_recognised_by_name() {
        assert!(Own::ALL.into_iter().all(|own| Own::of(&own.new_name()).is_some()));
        assert!(["holdfast_old_", "holdfast_old_clients", "holdfast"].into_iter().all(|name| Own::of(name).is_none()));
    }
}
