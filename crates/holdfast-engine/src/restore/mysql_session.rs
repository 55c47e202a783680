//! One restore into a MySQL or MariaDB server: how to reach it, which user to connect as, and what every step of it asks
//! or runs there.

use std::time::Duration;

use holdfast_core::failure::FailureCode;
use holdfast_core::random;

use crate::Engine;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::mysql::{COPY, NAME_CHARS};
use crate::plan::RestorePlan;
use crate::remote::{self, Remote, RemoteSettings};
use crate::source::database::{Login, unhex};
use crate::source::mysql::{self, MYSQL_CLIENT, mysql};
use crate::source::tool::{answered, explain};
use crate::ssh::{Connection, Exit};

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

pub(super) struct MysqlSession<'a> {
    pub engine: &'a Engine,
    pub connection: &'a Connection,
    pub plan: &'a RestorePlan,
    pub login: &'a Login,
    pub context: &'a Context,
}

impl MysqlSession<'_> {
    pub(super) async fn query(&self, sql: &str) -> Result<String> {
        self.query_within(sql, &self.engine.settings.remote).await
    }

    pub(super) async fn query_within(&self, sql: &str, settings: &RemoteSettings) -> Result<String> {
        let at = Remote { connection: self.connection, settings, context: self.context };
        let answer = answered(mysql::query(at, self.login, sql).await?, mysql::tool("mysql"), self.context)?;
        Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
    }

    /// Runs a query that selects names, which come in hexadecimal digits, one on each line.
    pub(super) async fn names(&self, sql: &str) -> Result<Vec<String>> {
        let unclear = || EngineError::new(FailureCode::RemoteFailed, "The server returned a name that cannot be read.");
        self.query(sql).await?.lines().map(|line| unhex(line).ok_or_else(unclear)).collect()
    }

    /// Judges how the client that loaded a dump ended. The failed statement, which the client repeats, is kept out of
    /// the log.
    pub(super) fn judge(&self, exit: &Exit, lines: &[String]) -> Result<()> {
        let is_told =
            |line: &&String| ["ERROR", "mysql:", "mariadb:", "Warning"].iter().any(|word| line.starts_with(word));
        let lines: Vec<String> = lines.iter().filter(is_told).cloned().collect();
        if exit.success() {
            lines.iter().for_each(|line| self.context.log.warn(line));
            return Ok(());
        }
        let mut error = explain(mysql::tool("mysql"), exit, &lines, self.context);
        if error.has_number(&[1227, 1449]) {
            error.message.push_str(
                " Something in the backup runs as a user that does not exist here, or that this user may not act for: \
                 restore without owners, or as a user with the privilege SET USER (SUPER, SET_USER_ID).",
            );
        }
        if error.has_number(&LACKS_RIGHTS) {
            error.message.push_str(
                " A view reads from another one, or calls a function, as a user who may not do so in the database that is \
                 loaded; a database that is replaced is loaded beside it first. Restore without owners, or give that user the rights to it.",
            );
        }
        if lines.iter().any(|line| line.contains("gone away") || line.contains("max_allowed_packet")) {
            error.message.push_str(" A row may be larger than the max_allowed_packet of this server: raise it.");
        }
        Err(error)
    }

    /// Runs statements in a database, up to the first that fails, or all of them with `goes_on`.
    pub(super) async fn run(&self, database: Option<&str>, sql: &[u8], goes_on: bool) -> Result<remote::Answer> {
        self.run_within(database, sql, goes_on, self.engine.settings.remote.finish).await
    }

    pub(super) async fn run_within(
        &self,
        database: Option<&str>,
        sql: &[u8],
        goes_on: bool,
        limit: Duration,
    ) -> Result<remote::Answer> {
        let force = if goes_on { " --force" } else { "" };
        let script = match database {
            Some(name) => mysql(MYSQL_CLIENT, &format!("{CLIENT}{force} --database=\"$1\""), "3", &[name]),
            None => mysql(MYSQL_CLIENT, &format!("{CLIENT}{force}"), "3", &[]),
        };
        let input = [mysql::login_lines(self.login).as_bytes(), sql].concat();
        let settings = RemoteSettings { answer: limit, ..self.engine.settings.remote.clone() };
        remote::ask_bytes(self.connection, &settings, self.context, &script, &input).await
    }
}

/// A name for a temporary copy of a database. Rights to all databases whose names begin like the original do not apply
/// to the copy.
pub(super) fn name_beside(name: &str) -> String {
    let prefix = format!("{COPY}{}_", random::hex(&random::bytes::<4>()));
    let kept: String = name.chars().take(NAME_CHARS - prefix.len()).collect();
    format!("{prefix}{kept}")
}
