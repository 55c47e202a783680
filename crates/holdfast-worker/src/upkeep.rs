//! What happens beside runs: expired rows, removed backups, catalogues, counted days, and looking at the installation.

pub(crate) mod catalogue;
pub(crate) mod daily_stats;
pub(crate) mod doctor;
pub(crate) mod expiry;
pub(crate) mod removal;
