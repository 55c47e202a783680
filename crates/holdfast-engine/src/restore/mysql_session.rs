//! One restore into a MySQL or MariaDB server: how to reach it, and which user to connect as.

use crate::Engine;
use crate::context::Context;
use crate::plan::RestorePlan;
use crate::source::database::Login;
use crate::ssh::Connection;

/// Binary mode disables all of the client's own commands except `delimiter`, and without local files a dump cannot read
/// any: its contents can neither run a program nor read a file of the SSH user.
pub(super) const CLIENT: &str = "--defaults-file=/dev/fd/3 --binary-mode --comments --local-infile=0 --default-character-set=utf8mb4 \
    --max-allowed-packet=1G --init-command='SET SESSION foreign_key_checks=0, sql_quote_show_create=1 /*M!100200 , \
    check_constraint_checks=0, max_statement_time=0, innodb_strict_mode=0 */'";

/// A view reads from another one that its definer may not read, or that is broken, or it calls a function that its definer
/// may not run.
pub(super) const LACKS_RIGHTS: [u16; 2] = [1356, 1370];
/// The user may not read a table, a column or a database.
pub(super) const MAY_NOT_READ: [u16; 3] = [1142, 1143, 1044];

pub(super) struct Session<'a> {
    pub engine: &'a Engine,
    pub connection: &'a Connection,
    pub plan: &'a RestorePlan,
    pub login: &'a Login,
    pub context: &'a Context,
}
