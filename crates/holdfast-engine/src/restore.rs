//! Restores a stored backup to a server, as files or into a database. A backup that overwrites something, or that goes
//! into a database, is read completely before anything on the server is changed. All data is hashed, and if it turns
//! out to be damaged, the remote process is ended before it can mistake partial data for a complete restore.

mod dumps;
pub(crate) mod feed;
mod files;
mod mysql;
mod mysql_databases;
mod mysql_definitions;
mod mysql_move;
mod mysql_older;
mod mysql_server;
mod mysql_session;
mod mysql_views;
mod mysql_warnings;
mod postgres;
mod postgres_derived;
mod postgres_server;
mod postgres_swap;
mod postgres_target;
mod room;

use std::io::{self, Read};
use std::sync::Arc;

use holdfast_core::backup::name_text;
use holdfast_core::run::FailureCode;

use crate::Engine;
use crate::context::Context;
use crate::dialect::{DatabaseRestore, RestoreInto};
use crate::dialects;
use crate::error::{EngineError, Result, classify};
use crate::plan::{RestorePlan, RestoreReport, RestoreTarget, StoredBackup};
use crate::remote::{self, Remote, connect};
use crate::thread::on_thread;

impl Engine {
    pub async fn restore(&self, plan: &RestorePlan, context: &Context) -> Result<RestoreReport> {
        let mismatch = || EngineError::internal("the restore target does not match the content of the backup");
        let engine = plan.backup.content.database_engine();
        if matches!(plan.target, RestoreTarget::Path { .. }) != plan.backup.content.goes_to_path() {
            return Err(mismatch());
        }
        let connection = connect(&plan.server, &self.settings.remote, context).await?;
        let at = Remote { connection: &connection, settings: &self.settings.remote, context };
        let report = match (&plan.target, engine.map(dialects::of)) {
            (RestoreTarget::Path { path, entries }, None) => {
                self.restore_files(&connection, plan, path, entries, context).await
            }
            (RestoreTarget::Database { name, login }, Some(dialect)) => {
                if let Some(password) = &login.password {
                    context.log.hide(password);
                }
                let into = RestoreInto::Server { name: name.as_deref(), login };
                dialect.restore(self, at, &DatabaseRestore { plan, into }).await
            }
            (RestoreTarget::Path { path, .. }, Some(dialect)) => {
                dialect.restore(self, at, &DatabaseRestore { plan, into: RestoreInto::File(path) }).await
            }
            (RestoreTarget::Database { .. }, None) => Err(mismatch()),
        };
        let report = match report {
            Ok(report) => report,
            Err(error) => return Err(self.confirm_missing(&plan.backup, error, context).await),
        };
        remote::leave(connection, context).await;
        Ok(report)
    }

    /// Reads the whole backup before anything is changed: a backup that cannot be restored must not destroy existing
    /// data.
    pub(crate) async fn read_first(&self, backup: &StoredBackup, context: &Context) -> Result<()> {
        context.log.line("Reading the whole backup before anything is changed.");
        let reading = Context { progress: Arc::default(), ..context.clone() };
        self.verify(backup, &reading).await
    }

    /// Applies `read` to the whole plain stream, and checks the hashes as well.
    async fn read_as<T: Send + 'static>(
        &self,
        backup: &StoredBackup,
        context: &Context,
        read: impl FnOnce(&mut dyn Read) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let quiet = Context { progress: Arc::default(), ..context.clone() };
        let mut reader = self.open_plain(backup, &quiet).await?;
        let backup = backup.clone();
        on_thread(move || {
            let found = read(&mut reader.plain)
                .map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))?;
            reader.finish(&backup)?;
            Ok(found)
        })
        .await
    }
}

/// The message about tables that are lost when a database is replaced.
fn tables_lost(tables: &[String], verb: &str) -> String {
    const NAMED: usize = 20;
    let names: Vec<String> = tables.iter().take(NAMED).map(|name| name_text(name.as_bytes())).collect();
    let more = match tables.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("These tables are not in the backup and {verb} gone: {}{more}.", names.join(", "))
}

/// The error for a database that is not in a backup of a whole server.
fn not_held(name: &str) -> EngineError {
    let message = format!("There is no database {} in this backup; nothing was restored.", name_text(name.as_bytes()));
    EngineError::new(FailureCode::EntryMissing, message)
}

fn not_empty(name: &str) -> EngineError {
    EngineError::new(FailureCode::TargetNotEmpty, format!("The database {name} is not empty; nothing was changed."))
}
