//! Whole MySQL and MariaDB servers: one dump after the other, views as statements, and users and privileges as rows.

use bytes::Bytes;
use holdfast_core::run::FailureCode;
use holdfast_core::task::DatabaseEngine;

use super::Outlet;
use super::database::{self, DatabaseSource, Table, ignored_lines, mysql_dump, mysql_dump_with, unhex};
use super::parts::{Dump, Parts};
use crate::archive::MysqlFacts;
use crate::archive::server::{DOCUMENT, DOCUMENT_BYTES, VIEWS, folder};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::mysql::{ACCOUNTS, DatabaseFacts, ServerFacts, View, quoted, unescaped};
use crate::remote::RemoteSettings;
use crate::ssh::Connection;

/// Databases that belong to the server itself.
const OWN: &str = "('information_schema', 'performance_schema', 'mysql', 'sys')";
/// Where versions of MySQL and MariaDB keep users, roles and privileges. A server has some of these.
const ACCOUNT_TABLES: &str = "('user', 'global_priv', 'db', 'tables_priv', 'columns_priv', 'procs_priv', \
    'proxies_priv', 'roles_mapping', 'default_roles', 'role_edges', 'global_grants', 'password_history')";
/// Rows alone, with the names of their columns: the tables of another version have others beside them.
const ACCOUNT_OPTIONS: &str =
    "--no-create-info --complete-insert --replace --skip-triggers --skip-add-locks --skip-disable-keys";
/// Statements that one command line holds, with names of any length.
const VIEWS_AT_ONCE: usize = 100;

struct Asking<'a> {
    connection: &'a Connection,
    source: &'a DatabaseSource,
    settings: &'a RemoteSettings,
    context: &'a Context,
}

/// Sends the archive of the server to `outlet`.
pub(crate) async fn pump(
    connection: &Connection,
    source: &DatabaseSource,
    settings: &RemoteSettings,
    context: &Context,
    outlet: &mut Outlet,
) -> Result<()> {
    let asking = Asking { connection, source, settings, context };
    let databases = asking.databases().await?;
    let tables = database::list_tables(connection, source, DatabaseEngine::Mysql, settings, context).await?;
    for text in source.excluded_tables.iter().filter(|text| !tables.iter().any(|table| table.is(text))) {
        context.log.warn(format!("The excluded table {text} does not exist."));
    }
    let is_excluded = |table: &Table| source.excluded_tables.iter().any(|text| table.is(text));
    let views = asking.views().await?;
    let account_tables = asking.account_tables().await?;
    if account_tables.is_empty() {
        context.log.warn("This user may not read the users and privileges of the server; they are not in this backup.");
    }
    let mut excluded: Vec<Table> = tables.into_iter().filter(|table| is_excluded(table)).collect();
    // Views are in the document.
    excluded.extend(views.iter().cloned());
    let views = asking.definitions(views.into_iter().filter(|view| !is_excluded(view)).collect()).await?;
    let facts = ServerFacts { databases, views, has_accounts: !account_tables.is_empty() };

    let mut parts = Parts { connection, settings, context, outlet };
    let document = serde_json::to_vec(&facts).map_err(EngineError::internal)?;
    if document.len() as u64 > DOCUMENT_BYTES {
        return Err(EngineError::new(
            FailureCode::RemoteFailed,
            "The views of this server are too many to be backed up.",
        ));
    }
    parts.send(DOCUMENT, &document).await?;
    parts.send(VIEWS, facts.views.iter().map(View::sql).collect::<String>().as_bytes()).await?;
    let login = source.login.lines(DatabaseEngine::Mysql);
    for (index, name) in facts.dumps() {
        context.log.line(format!("Dumping {name}."));
        let (script, input) = if name == ACCOUNTS {
            let words: Vec<&str> = [name].into_iter().chain(account_tables.iter().map(String::as_str)).collect();
            (mysql_dump_with(ACCOUNT_OPTIONS, &words), login.clone())
        } else {
            let here: Vec<Table> = excluded.iter().filter(|table| table.schema == name).cloned().collect();
            (mysql_dump(name), format!("{login}{}", ignored_lines(&here)))
        };
        parts.dump(Dump { tool: "mysqldump", script, input, folder: &folder(index, name) }).await?;
    }
    parts.outlet.send(Bytes::from_static(&[0; 1024])).await
}

impl Asking<'_> {
    /// The lines that the client prints.
    async fn lines(&self, sql: &str) -> Result<Vec<String>> {
        let Self { connection, source, settings, context } = *self;
        const ENGINE: DatabaseEngine = DatabaseEngine::Mysql;
        let answer = database::query(connection, ENGINE, "", sql, &source.login, settings, context).await?;
        if !answer.exit.success() {
            return Err(database::explain("The database client", &answer.exit, &answer.stderr, context));
        }
        let text = String::from_utf8(answer.stdout).map_err(|_| unclear())?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    async fn databases(&self) -> Result<Vec<DatabaseFacts>> {
        let sql = format!(
            "SELECT CONCAT(HEX(schema_name), ' ', default_character_set_name, ' ', default_collation_name) FROM \
             information_schema.schemata WHERE LOWER(schema_name) NOT IN {OWN} ORDER BY schema_name"
        );
        let parse = |line: &String| {
            let [name, character_set, collation] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
            let set_up = MysqlFacts { character_set: character_set.to_owned(), collation: collation.to_owned() };
            Some(DatabaseFacts { name: unhex(name)?, set_up })
        };
        self.lines(&sql).await?.iter().map(|line| parse(line).ok_or_else(unclear)).collect()
    }

    async fn views(&self) -> Result<Vec<Table>> {
        let sql = format!(
            "SELECT CONCAT(HEX(table_schema), ' ', HEX(table_name)) FROM information_schema.views WHERE \
             LOWER(table_schema) NOT IN {OWN} ORDER BY table_schema, table_name"
        );
        let parse = |line: &String| {
            let (schema, name) = line.split_once(' ')?;
            Some(Table { schema: unhex(schema)?, name: unhex(name)? })
        };
        self.lines(&sql).await?.iter().map(|line| parse(line).ok_or_else(unclear)).collect()
    }

    async fn definitions(&self, views: Vec<Table>) -> Result<Vec<View>> {
        let mut defined = Vec::with_capacity(views.len());
        for some in views.chunks(VIEWS_AT_ONCE) {
            let sql: String = some
                .iter()
                .map(|view| format!("SHOW CREATE VIEW {}.{};", quoted(&view.schema), quoted(&view.name)))
                .collect();
            let lines = self.lines(&sql).await?;
            if lines.len() != some.len() {
                return Err(unclear());
            }
            for (view, line) in some.iter().zip(lines) {
                let [_, statement, _, collation] =
                    line.split('\t').collect::<Vec<_>>().try_into().map_err(|_| unclear())?;
                defined.push(View {
                    database: view.schema.clone(),
                    name: view.name.clone(),
                    statement: unescaped(statement),
                    collation: collation.to_owned(),
                });
            }
        }
        Ok(defined)
    }

    /// Empty when this user may not read them.
    async fn account_tables(&self) -> Result<Vec<String>> {
        let sql = format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = '{ACCOUNTS}' AND table_type = \
             'BASE TABLE' AND table_name IN {ACCOUNT_TABLES} ORDER BY table_name"
        );
        self.lines(&sql).await
    }
}

fn unclear() -> EngineError {
    EngineError::new(FailureCode::RemoteFailed, "The server did not say what it holds in a way that we understand.")
}
