//! MySQL and MariaDB.

use async_trait::async_trait;
use holdfast_core::content::{Content, Coverage};
use holdfast_core::database::DatabaseEngine;

use crate::Engine;
use crate::archive::Manifest;
use crate::dialect::{
    DatabaseRestore, Dialect, HALF_REPLACED, Listed, RestoreInto, Size, Tools, counted_lines, mismatch, names, size_of,
};
use crate::error::Result;
use crate::mysql::NAME_CHARS;
use crate::plan::RestoreReport;
use crate::remote::Remote;
use crate::restore::database_messages::name_too_long;
use crate::source::PlainSink;
use crate::source::database::{DatabasePlan, Login};
use crate::source::mysql::{MYSQL_DUMP, mysql_text, query, tool};
use crate::source::tool::answered;
use crate::source::{mysql_database, mysql_server};

pub(super) struct Mysql;

static TOOLS: Tools =
    Tools { dump: &MYSQL_DUMP, package: "mariadb-client", all: &["mariadb-dump", "mysqldump", "mariadb", "mysql"] };

const CLIENT: &str = "mysql";
const DATABASES: &str = "SELECT s.schema_name, COALESCE(SUM(t.data_length + t.index_length), 0) \
    FROM information_schema.schemata s LEFT JOIN information_schema.tables t ON t.table_schema = s.schema_name \
    WHERE s.schema_name NOT IN ('information_schema', 'performance_schema', 'mysql', 'sys') \
    GROUP BY s.schema_name ORDER BY s.schema_name";

#[async_trait]
impl Dialect for Mysql {
    fn engine(&self) -> DatabaseEngine {
        DatabaseEngine::Mysql
    }

    fn tools(&self) -> &'static Tools {
        &TOOLS
    }

    async fn has(&self, at: Remote<'_>, login: &Login, name: Option<&str>) -> Result<bool> {
        let answer = query(at, login, "SHOW DATABASES").await?;
        Ok(answer.exit.success() && names(&answer.stdout, name))
    }

    async fn list(&self, at: Remote<'_>, login: &Login) -> Result<Listed> {
        let answer = query(at, login, DATABASES).await?;
        Ok(answered(answer, tool(CLIENT), at.context).map(|answer| counted_lines(&answer.stdout)))
    }

    async fn size(&self, at: Remote<'_>, source: &DatabasePlan) -> Result<Size> {
        const TABLES: &str =
            "SELECT COUNT(*), COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables";
        let of_one =
            source.database.name.as_ref().map(|name| format!("{TABLES} WHERE table_schema = {}", mysql_text(name)));
        let sql = of_one.as_deref().unwrap_or(DATABASES);
        let answer = answered(query(at, &source.login, sql).await?, tool(CLIENT), at.context)?;
        Ok(size_of(&answer.stdout, source.database.name.is_some()))
    }

    async fn describe(&self, at: Remote<'_>, source: &DatabasePlan, manifest: &mut Manifest) -> Result<()> {
        manifest.mysql = mysql_database::facts(at, source).await?;
        Ok(())
    }

    async fn dump(&self, at: Remote<'_>, source: &DatabasePlan, sink: &mut PlainSink) -> Result<()> {
        match &source.database.name {
            Some(name) => mysql_database::send(at, source, name, sink).await,
            None => mysql_server::send(at, source, sink).await,
        }
    }

    async fn restore(&self, engine: &Engine, at: Remote<'_>, restore: &DatabaseRestore<'_>) -> Result<RestoreReport> {
        let DatabaseRestore { plan, into: RestoreInto::Server { name, login } } = *restore else {
            return Err(mismatch());
        };
        let Remote { connection, context, .. } = at;
        match (plan.backup.content.coverage(), name) {
            (Coverage::Database(_), Some(name)) if name.chars().count() > NAME_CHARS => {
                Err(name_too_long(name, &format!("{NAME_CHARS} characters")))
            }
            (Coverage::Database(_), Some(name)) => engine.restore_mysql(connection, plan, name, login, context).await,
            (Coverage::Server(_), only) => {
                Box::pin(engine.restore_mysql_server(connection, plan, only, login, context)).await
            }
            (Coverage::ServerAsOne(_), None) => {
                engine.restore_mysql_server_dump(connection, plan, login, context).await
            }
            (Coverage::Database(_), None) | (Coverage::ServerAsOne(_), Some(_)) | (Coverage::Files, _) => {
                Err(mismatch())
            }
        }
    }

    fn left_behind(&self, content: Content, has_written: bool) -> &'static str {
        match (content.coverage(), has_written) {
            (Coverage::ServerAsOne(_) | Coverage::Files, true) => HALF_REPLACED,
            (Coverage::ServerAsOne(_) | Coverage::Files, false) => "",
            (Coverage::Database(_) | Coverage::Server(_), false) => {
                "The database named holdfast_… that this run made on the server is incomplete and can be dropped."
            }
            // Databases cannot be renamed, so the copies may be the only complete data.
            (Coverage::Database(_) | Coverage::Server(_), true) => {
                "What was there may be gone or half replaced. Databases named holdfast_… on the server are copies of \
                 what was being restored, whole ones if the log says that they were being replaced: look at them \
                 before you drop them, or restore again."
            }
        }
    }
}
