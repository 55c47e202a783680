//! What is found in a dump, why it is refused, and what is left out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::postgres::globals::Guarded;

/// What a dump holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterDump {
    /// Whether it ends with the line that `pg_dumpall` writes last.
    pub is_complete: bool,
    /// Databases that are created or written to.
    pub databases: BTreeSet<String>,
    /// Databases that are dropped: they must have no sessions, and must not be templates, before the restore starts.
    pub dropped_databases: BTreeSet<String>,
    /// Roles that are created.
    pub roles: BTreeSet<String>,
    /// What roles may do, in keywords of `ALTER ROLE`.
    pub attributes: BTreeMap<String, BTreeSet<&'static str>>,
    /// A role, its new member, and whether that may make others members.
    pub memberships: BTreeSet<(String, String, bool)>,
    /// Roles that get a password.
    pub with_password: BTreeSet<String>,
    /// Tablespaces that are created; their folders must exist on the server.
    pub tablespaces: BTreeSet<String>,
    /// Messages about what [`Filter`] leaves out of every dump because it is never restored.
    pub withheld: BTreeSet<String>,
    pub statements: u64,
    /// Tables with data.
    pub tables: u64,
    pub rows: u64,
}

/// Why a dump was refused, for messages. The caller adds how to restore it manually.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Line {line} of the dump (byte {byte}) is not as pg_dumpall writes it: {what}")]
pub struct Refused {
    pub what: String,
    /// Counted from 1.
    pub line: u64,
    /// Counted from 0.
    pub byte: u64,
}

impl Refused {
    /// The refusal inside an error of [`Filter`].
    pub fn within(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }
}

/// What [`Filter`] leaves out.
#[derive(Debug, Clone, Default)]
pub struct FilterOptions {
    /// Roles that the server has: they are neither dropped nor created, only altered.
    pub existing_roles: BTreeSet<String>,
    /// Roles that the restore is connected as: they are not altered.
    pub own_roles: BTreeSet<String>,
    /// Settings that are turned off in every session, so that values set for databases and roles do not end it.
    pub turned_off: BTreeSet<String>,
    /// The server's `psql` is older than `\restrict` and would take it for an error.
    pub without_restrict: bool,
    /// Settings of extensions that the server guards: they are never restored.
    pub guarded: Guarded,
}
