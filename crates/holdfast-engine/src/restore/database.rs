//! Dumps back into a database: which kind goes which way.

use holdfast_core::backup::Content;

use crate::Engine;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::plan::{RestorePlan, RestoreReport};
use crate::source::database::Login;
use crate::ssh::Connection;

impl Engine {
    pub(super) async fn restore_database(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        name: Option<&str>,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        if let Some(password) = &login.password {
            context.log.hide(password);
        }
        match (plan.backup.content, name) {
            (Content::PostgresDatabase, Some(name)) => {
                self.restore_postgres(connection, plan, name, login, context).await
            }
            (Content::PostgresServer, only) => {
                self.restore_postgres_server(connection, plan, only, login, context).await
            }
            (Content::PostgresCluster, None) => self.restore_cluster_dump(connection, plan, login, context).await,
            (Content::MysqlDatabase, Some(name)) => self.restore_mysql(connection, plan, name, login, context).await,
            (Content::MysqlServerDump, None) => self.restore_mysql_server_dump(connection, plan, login, context).await,
            (Content::MysqlServer, only) => {
                Box::pin(self.restore_mysql_server(connection, plan, only, login, context)).await
            }
            _ => Err(EngineError::internal("the target does not fit what is in the backup")),
        }
    }
}
