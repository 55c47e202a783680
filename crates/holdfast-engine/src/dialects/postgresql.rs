//! PostgreSQL.

use async_trait::async_trait;
use holdfast_core::content::{Content, Coverage};
use holdfast_core::database::DatabaseEngine;

use crate::Engine;
use crate::archive::Manifest;
use crate::dialect::{
    DatabaseRestore, Dialect, HALF_REPLACED, Listed, RestoreInto, Size, Tools, counted_lines, mismatch, names, size_of,
    unless_cancelled,
};
use crate::error::Result;
use crate::plan::RestoreReport;
use crate::remote::Remote;
use crate::restore::database_messages::{is_of_the_server, name_too_long};
use crate::source::PlainSink;
use crate::source::database::{DatabasePlan, Login};
use crate::source::postgres::{self, query, tool};
use crate::source::postgres_server;
use crate::source::tool::answered;

pub(super) struct Postgresql;

static TOOLS: Tools =
    Tools { dump: &["pg_dump"], package: "postgresql-client", all: &["pg_dump", "pg_dumpall", "pg_restore", "psql"] };

/// New databases are copies of these.
const TEMPLATES: [&str; 2] = ["template0", "template1"];
/// The longest name of a database, in bytes. The server cuts longer ones, and would restore into another database.
const LONGEST_NAME: usize = 63;
const CLIENT: &str = "psql";
const DATABASES: &str = "SELECT datname || chr(9) || CASE WHEN has_database_privilege(datname, 'CONNECT') THEN \
    pg_database_size(datname) ELSE 0 END FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY datname";
const TABLES: &str = "SELECT COUNT(*) || chr(9) || pg_database_size(current_database()) FROM pg_tables WHERE \
    schemaname NOT IN ('pg_catalog', 'information_schema')";
/// A database that every server has and that every user may connect to by default.
const MAINTENANCE_DATABASE: &str = "postgres";

#[async_trait]
impl Dialect for Postgresql {
    fn engine(&self) -> DatabaseEngine {
        DatabaseEngine::Postgresql
    }

    fn tools(&self) -> &'static Tools {
        &TOOLS
    }

    async fn has(&self, at: Remote<'_>, login: &Login, name: Option<&str>) -> Result<bool> {
        let answer = query(at, login, MAINTENANCE_DATABASE, "SELECT datname FROM pg_database").await?;
        Ok(answer.exit.success() && names(&answer.stdout, name))
    }

    async fn list(&self, at: Remote<'_>, login: &Login) -> Result<Listed> {
        let answer = query(at, login, MAINTENANCE_DATABASE, DATABASES).await?;
        Ok(answered(answer, tool(CLIENT), at.context).map(|answer| counted_lines(&answer.stdout)))
    }

    async fn size(&self, at: Remote<'_>, source: &DatabasePlan) -> Result<Size> {
        let (database, sql) =
            source.database.name.as_deref().map_or((MAINTENANCE_DATABASE, DATABASES), |name| (name, TABLES));
        let answer = answered(query(at, &source.login, database, sql).await?, tool(CLIENT), at.context)?;
        Ok(size_of(&answer.stdout, source.database.name.is_some()))
    }

    async fn describe(&self, at: Remote<'_>, source: &DatabasePlan, manifest: &mut Manifest) -> Result<()> {
        const NOT_TOLD: &str = "Encoding, owner, privileges and settings of the database are not in this backup";
        // For a whole server, these facts are in its archive.
        if let Some(name) = &source.database.name {
            let asked = postgres_server::ask_database(at, &source.login, name).await;
            manifest.postgres = unless_cancelled(asked, at.context, NOT_TOLD)?.map(Box::new);
        }
        Ok(())
    }

    async fn dump(&self, at: Remote<'_>, source: &DatabasePlan, sink: &mut PlainSink) -> Result<()> {
        match &source.database.name {
            Some(name) => postgres::send(at, source, name, sink).await,
            None => postgres_server::send(at, source, sink).await,
        }
    }

    async fn restore(&self, engine: &Engine, at: Remote<'_>, restore: &DatabaseRestore<'_>) -> Result<RestoreReport> {
        let DatabaseRestore { plan, into: RestoreInto::Server { name, login } } = *restore else {
            return Err(mismatch());
        };
        let Remote { connection, context, .. } = at;
        match (plan.backup.content.coverage(), name) {
            (Coverage::Database(_), Some(name)) if TEMPLATES.contains(&name) => Err(is_of_the_server(name)),
            (Coverage::Database(_), Some(name)) if name.len() > LONGEST_NAME => {
                Err(name_too_long(name, &format!("{LONGEST_NAME} bytes")))
            }
            (Coverage::Database(_), Some(name)) => {
                engine.restore_postgres(connection, plan, name, login, context).await
            }
            (Coverage::Server(_), only) => engine.restore_postgres_server(connection, plan, only, login, context).await,
            (Coverage::ServerAsOne(_), None) => engine.restore_cluster_dump(connection, plan, login, context).await,
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
                "Databases named holdfast_restore_… on the server are incomplete and can be dropped."
            }
            // The databases are renamed at the end.
            (Coverage::Database(_) | Coverage::Server(_), true) => {
                "The databases may have been replaced already: check whether they are what was restored. Databases \
                 named holdfast_restore_… on the server can be dropped. If one has the name holdfast_old_…, it is what \
                 was there before: check that the restored one is in its place before you drop it. If nobody can \
                 connect to a database any more, run ALTER DATABASE … ALLOW_CONNECTIONS true for it."
            }
        }
    }
}
