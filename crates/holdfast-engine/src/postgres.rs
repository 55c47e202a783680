//! PostgreSQL as data: dumps of whole servers in the form of the first release, and the roles, settings and databases of
//! a server. Nothing here talks to a server; callers ask and run what these modules give them.

pub mod cluster_dump;
pub mod contents;
pub mod globals;
mod name;
pub(crate) mod quoting;

use holdfast_core::random;

pub use crate::archive::pgdump::{DumpFacts, describe as describe_dump};

/// What a restore makes a database of its own for. Their names tell them from those of people.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Own {
    /// It is filled, and then takes the place of another.
    Fresh,
    /// To be connected to while others change places.
    Swap,
    /// What was there before.
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

    /// What a database with this name is, when a restore made it.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let is_number = |rest: &str| rest.len() == 16 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
        Self::ALL.into_iter().find(|own| name.strip_prefix(own.prefix()).is_some_and(is_number))
    }
}

#[cfg(test)]
mod tests {
    use super::Own;

    #[test]
    fn what_a_restore_made_is_known_by_its_name() {
        assert!(Own::ALL.into_iter().all(|own| Own::of(&own.new_name()).is_some()));
        assert!(["holdfast_old_", "holdfast_old_clients", "holdfast"].into_iter().all(|name| Own::of(name).is_none()));
    }
}
