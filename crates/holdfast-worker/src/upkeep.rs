//! Maintenance apart from runs: expired rows, due reads, removed backups, catalogues, daily statistics, and checking the
//! installation.

pub(crate) mod catalogue;
pub(crate) mod daily_stats;
pub(crate) mod doctor;
pub(crate) mod due_reads;
pub(crate) mod expiry;
pub(crate) mod removal;
