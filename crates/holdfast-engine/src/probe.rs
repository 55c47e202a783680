//! Looking around on a server for somebody who makes a task: folders, databases, and how much there is to copy.

use std::time::Duration;

use holdfast_core::database::DatabaseEngine;
use holdfast_core::probe::{Answer, DatabaseItem, FOLDER_ITEMS};
use holdfast_core::run::FailureCode;

use crate::Engine;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::plan::Source;
use crate::remote::{self, RemoteSettings, Server, connect};
use crate::source::database::{self, DatabaseSource, Login, mysql_text};
use crate::source::{files, sftp};
use crate::ssh::Connection;

/// Counting the files of a very large tree takes longer than anybody waits for it.
const COUNT_LIMIT: Duration = Duration::from_secs(60);

/// What to find out.
pub enum Probe {
    Folder(String),
    Databases(Login),
    Size(Source),
}

const PG_DATABASES: &str = "SELECT datname || chr(9) || CASE WHEN has_database_privilege(datname, 'CONNECT') \
    THEN pg_database_size(datname) ELSE 0 END FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY datname";
const MYSQL_DATABASES: &str = "SELECT s.schema_name, COALESCE(SUM(t.data_length + t.index_length), 0) \
    FROM information_schema.schemata s LEFT JOIN information_schema.tables t ON t.table_schema = s.schema_name \
    WHERE s.schema_name NOT IN ('information_schema', 'performance_schema', 'mysql', 'sys') \
    GROUP BY s.schema_name ORDER BY s.schema_name";
const PG_SIZE: &str = "SELECT COUNT(*) || chr(9) || pg_database_size(current_database()) FROM pg_tables \
    WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";

impl Engine {
    pub async fn probe(&self, server: &Server, probe: &Probe, context: &Context) -> Result<Answer> {
        let settings = &self.settings.remote;
        let connection = connect(server, settings, context).await?;
        let looking = async {
            match probe {
                Probe::Folder(path) => {
                    let mut client = sftp::open(&connection, settings, context).await?;
                    let (items, is_cut) = sftp::list(&mut client, path, FOLDER_ITEMS).await?;
                    Ok(Answer::Folder { items, is_cut })
                }
                Probe::Databases(login) => list_databases(&connection, login, settings, context).await,
                Probe::Size(Source::Files(source)) => {
                    let counted = files::estimate(&connection, source, settings, context).await?;
                    let uncounted = || {
                        let text = "The server cannot count its files: it has no GNU find for this user.";
                        EngineError::new(FailureCode::ToolMissing, text)
                    };
                    let (bytes, entries) = counted.ok_or_else(uncounted)?;
                    Ok(Answer::Size { entries, bytes })
                }
                Probe::Size(Source::Database(source)) => measure(&connection, source, settings, context).await,
            }
        };
        let found = tokio::select! {
            () = context.cancel.cancelled() => Err(EngineError::cancelled()),
            found = tokio::time::timeout(COUNT_LIMIT, looking) => found.unwrap_or_else(|_| {
                let text = format!("The server was not done looking after {} seconds.", COUNT_LIMIT.as_secs());
                Err(EngineError::new(FailureCode::Timeout, text))
            }),
        };
        remote::leave(connection, context).await;
        found
    }
}

/// Those of every engine that lets us in. Where none does, the first refusal says why.
async fn list_databases(
    connection: &Connection,
    login: &Login,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Answer> {
    if let Some(password) = &login.password {
        context.log.hide(password);
    }
    let (mut items, mut refusal, mut has_answer) = (Vec::new(), None, false);
    for (engine, sql) in [(DatabaseEngine::Postgresql, PG_DATABASES), (DatabaseEngine::Mysql, MYSQL_DATABASES)] {
        let answer = database::query(connection, engine, "postgres", sql, login, settings, context).await?;
        if !answer.exit.success() {
            let error = database::explain("database client", &answer.exit, &answer.stderr, context);
            // A tool that is not there says less than a door that is closed.
            if refusal.as_ref().is_none_or(|known: &EngineError| known.code == FailureCode::ToolMissing) {
                refusal = Some(error);
            }
            continue;
        }
        has_answer = true;
        for line in String::from_utf8_lossy(&answer.stdout).lines() {
            let (name, size) = line.rsplit_once('\t').unwrap_or((line, "0"));
            items.push(DatabaseItem { engine, name: name.to_owned(), size: size.trim().parse().unwrap_or(0) });
        }
    }
    match refusal {
        Some(error) if !has_answer => Err(error),
        _ => Ok(Answer::Databases(items)),
    }
}

/// Tables and bytes of one database, or databases and bytes of all.
async fn measure(
    connection: &Connection,
    source: &DatabaseSource,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Answer> {
    let engine = database::find_engine(connection, source, settings, context).await?;
    let (place, sql) = match (engine, &source.name) {
        (DatabaseEngine::Postgresql, Some(name)) => (name.as_str(), PG_SIZE.to_owned()),
        (DatabaseEngine::Postgresql, None) => ("postgres", PG_DATABASES.to_owned()),
        (DatabaseEngine::Mysql, Some(name)) => {
            let select = "SELECT COUNT(*), COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables";
            ("", format!("{select} WHERE table_schema = {}", mysql_text(name)))
        }
        (DatabaseEngine::Mysql, None) => ("", MYSQL_DATABASES.to_owned()),
    };
    let answer = database::query(connection, engine, place, &sql, &source.login, settings, context).await?;
    if !answer.exit.success() {
        return Err(database::explain("database client", &answer.exit, &answer.stderr, context));
    }
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let rows: Vec<(&str, u64)> = text
        .lines()
        .filter_map(|line| line.rsplit_once('\t'))
        .map(|(first, bytes)| (first, bytes.trim().parse().unwrap_or(0)))
        .collect();
    let bytes = rows.iter().map(|(_, bytes)| bytes).sum();
    let entries = match (&source.name, rows.first()) {
        (Some(_), Some((count, _))) => count.trim().parse().unwrap_or(0),
        _ => rows.len() as u64,
    };
    Ok(Answer::Size { entries, bytes })
}
