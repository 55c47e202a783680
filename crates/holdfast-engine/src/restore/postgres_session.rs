//! One restore into a PostgreSQL server: how to reach it, which user to connect as, and what every step of it asks or runs
//! there.

use std::collections::BTreeSet;

use holdfast_core::failure::FailureCode;

use crate::Engine;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::plan::RestorePlan;
use crate::postgres::globals::{CAN_READ_PASSWORDS, Guarded, Name, RoleThere, roles_query};
use crate::postgres::quoting::{identifier, text};
use crate::remote::{self, Remote};
use crate::source::database::Login;
use crate::source::postgres::{self, PSQL, pg_name, postgres};
use crate::source::tool::{answered, explain};
use crate::ssh::Connection;

/// One restore into a server: how to reach it, and which user to connect as.
pub(super) struct PostgresSession<'a> {
    pub engine: &'a Engine,
    pub connection: &'a Connection,
    pub plan: &'a RestorePlan,
    pub login: &'a Login,
    pub context: &'a Context,
}

/// For errors that come before any database has changed.
pub(super) const UNCHANGED: &str = "No database was changed.";

impl PostgresSession<'_> {
    pub(super) fn at(&self) -> Remote<'_> {
        Remote { connection: self.connection, settings: &self.engine.settings.remote, context: self.context }
    }

    /// Runs one query and returns its answer as text. It must not contain secrets: it is an argument of a process.
    pub(super) async fn query(&self, database: &str, sql: &str) -> Result<String> {
        let answer = postgres::query(self.at(), self.login, database, sql).await?;
        let answer = answered(answer, postgres::tool("psql"), self.context)?;
        Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
    }

    /// Runs our own statements one after the other, up to the first that fails. They are sent on standard input.
    pub(super) async fn run(&self, database: &str, statements: &[String]) -> Result<()> {
        if statements.is_empty() {
            return Ok(());
        }
        // Statements that have arrived are run to the end, even if nobody is left to receive an error.
        let script = "PGCLIENTENCODING=UTF8; export PGCLIENTENCODING; trap '' HUP PIPE";
        let script = format!("{script}\n{PSQL} --set=ON_ERROR_STOP=1 --file=-");
        let script = postgres(&script, &[&pg_name(database)]);
        let input = format!("{}{}\n", postgres::login_lines(self.login), statements.join("\n"));
        let settings = remote::RemoteSettings {
            answer: self.engine.settings.remote.finish,
            ..self.engine.settings.remote.clone()
        };
        let answer = remote::ask(self.connection, &settings, self.context, &script, &input).await?;
        if !answer.exit.success() {
            return Err(explain(postgres::tool("psql"), &answer.exit, &answer.stderr, self.context));
        }
        // A setting that this server refuses is a warning; its notices are ignored.
        let warnings = answer.stderr.iter().filter_map(|line| line.split_once("WARNING:  "));
        warnings.for_each(|(_, text)| self.context.log.warn(text));
        Ok(())
    }

    pub(super) async fn names(&self, sql: &str) -> Result<BTreeSet<String>> {
        let told = self.query("postgres", sql).await?;
        serde_json::from_str(&told).map_err(EngineError::internal)
    }

    /// The roles that this restore is connected as, and acts as.
    pub(super) async fn own_roles(&self) -> Result<BTreeSet<String>> {
        self.names("SELECT json_build_array(session_user, current_user)").await
    }

    /// Settings of extensions that not everybody may change on this server.
    pub(super) async fn guarded(&self) -> Result<Guarded> {
        self.names(Guarded::QUERY).await.map(Guarded::new)
    }

    pub(super) async fn version(&self) -> Result<u32> {
        let told = self.query("postgres", "SHOW server_version_num").await?;
        let unclear = || EngineError::new(FailureCode::RemoteFailed, "The server did not say which version it is.");
        told.parse().map_err(|_| unclear())
    }

    pub(super) async fn roles_there(&self) -> Result<Vec<RoleThere>> {
        let may_read = self.query("postgres", CAN_READ_PASSWORDS).await?;
        let told = self.query("postgres", &roles_query(may_read == "t")).await?;
        serde_json::from_str(&told).map_err(EngineError::internal)
    }

    /// Fails before anything starts if owners are missing, and names them.
    pub(super) async fn check_roles(&self, needed: BTreeSet<String>) -> Result<()> {
        let sql = "SELECT coalesce(json_agg(rolname), '[]') FROM pg_roles";
        let told = self.query("postgres", sql).await?;
        let there: BTreeSet<String> = serde_json::from_str(&told).map_err(EngineError::internal)?;
        let missing: Vec<&str> = needed.difference(&there).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let message = format!("This server has no roles named {}; nothing was changed.", missing.join(", "));
        Err(EngineError::new(FailureCode::RolesMissing, message))
    }

    pub(super) async fn is_superuser(&self) -> Result<bool> {
        let sql = "SELECT count(*) FROM pg_catalog.pg_roles WHERE rolname = session_user AND rolsuper";
        Ok(self.query("postgres", sql).await? == "1")
    }
}

pub(super) fn name_of(name: &str) -> Result<Name> {
    Name::try_from(name.to_owned()).map_err(|text| EngineError::new(FailureCode::DatabaseMissing, text))
}

/// Adds to an error what the user must know about how far the restore got.
pub(super) fn with_note(error: &EngineError, note: &str) -> EngineError {
    let message = error.message.trim_end();
    let stop = if message.ends_with(['.', '!', '?']) { "" } else { "." };
    EngineError::new(error.code, format!("{message}{stop} {note}"))
}

pub(super) fn template_sql(name: &Name) -> String {
    format!("ALTER DATABASE {} IS_TEMPLATE false;", identifier(name))
}

pub(super) fn drop_sql(name: &Name) -> String {
    format!("DROP DATABASE IF EXISTS {};", identifier(name))
}

/// Ends the sessions of a database, and waits until they have ended.
pub(super) fn end_sessions_sql(name: &Name) -> [String; 2] {
    let name = text(name.as_str());
    let waiting = format!(
        "BEGIN FOR i IN 1..100 LOOP PERFORM pg_stat_clear_snapshot(); \
         EXIT WHEN NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = {name}); PERFORM pg_sleep(0.1); \
         END LOOP; END"
    );
    [
        format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {name} AND pid <> pg_backend_pid();"
        ),
        format!("DO {};", text(&waiting)),
    ]
}
