//! Restores a stored backup to a server, as files or into a database. A backup that goes into a folder in use, or
//! into a database, is read completely before anything on the server is changed. All data is hashed, and if it turns
//! out to be damaged, the remote process is ended before it can mistake partial data for a complete restore.

pub(crate) mod database_messages;
mod dumps;
pub(crate) mod feed;
mod files;
mod free_space;
mod mysql;
mod mysql_databases;
mod mysql_definitions;
mod mysql_load;
mod mysql_move;
mod mysql_older;
mod mysql_server;
mod mysql_session;
mod mysql_views;
mod mysql_warnings;
mod postgres;
mod postgres_derived;
mod postgres_fresh;
mod postgres_load;
mod postgres_server;
mod postgres_session;
mod postgres_swap;
mod postgres_target;
mod questions;

use crate::Engine;
use crate::context::Context;
use crate::dialect::{DatabaseRestore, RestoreInto, mismatch};
use crate::dialects;
use crate::error::Result;
use crate::plan::{RestorePlan, RestoreReport, RestoreTarget};
use crate::remote::{self, Remote, connect};

impl Engine {
    pub async fn restore(&self, plan: &RestorePlan, context: &Context) -> Result<RestoreReport> {
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
}
