//! Whole PostgreSQL servers: roles and databases as data, and one dump after the other.

use std::io;

use bytes::Bytes;
use holdfast_core::run::FailureCode;
use holdfast_core::task::DatabaseEngine;

use super::Outlet;
use super::database::{self, DatabaseSource, Login, Table, pg_dump};
use crate::archive::cluster::{DOCUMENT, PART_BYTES, STATEMENTS, folder};
use crate::archive::tar::{Kind, Member, Writer};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::postgres::globals::{self, CAN_READ_PASSWORDS, Globals, Name, globals_query, sql};
use crate::remote::{self, Pace, RemoteSettings, end_of};
use crate::ssh::{Connection, Process};

/// Asks a PostgreSQL server what it has beside the contents of its databases.
async fn ask_globals(
    connection: &Connection,
    login: &Login,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Globals> {
    let ask = async |sql: &str| {
        let asking = database::query(connection, DatabaseEngine::Postgresql, "postgres", sql, login, settings, context);
        let answer = asking.await?;
        match answer.exit.success() {
            true => Ok(answer.stdout),
            false => Err(database::explain("psql", &answer.exit, &answer.stderr, context)),
        }
    };
    let may_read = ask(CAN_READ_PASSWORDS).await?;
    let document = ask(&globals_query(may_read.trim_ascii() == b"t")).await?;
    globals::parse(&document).map_err(refused)
}

/// What a database has beside its contents; `None` when there is no such database.
pub(crate) async fn ask_database(
    connection: &Connection,
    name: &str,
    login: &Login,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Option<globals::DatabaseFacts>> {
    const ENGINE: DatabaseEngine = DatabaseEngine::Postgresql;
    let name = Name::try_from(name.to_owned()).map_err(|text| EngineError::new(FailureCode::DatabaseMissing, text))?;
    let sql = globals::database_query(&name);
    let answer = database::query(connection, ENGINE, "postgres", &sql, login, settings, context).await?;
    if !answer.exit.success() {
        return Err(database::explain("psql", &answer.exit, &answer.stderr, context));
    }
    globals::parse_database(&answer.stdout).map_err(refused)
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err hands it over")]
fn refused(refused: globals::Refused) -> EngineError {
    EngineError::new(FailureCode::RemoteFailed, refused.to_string())
}

/// Sends the archive of the server to `outlet`.
pub(crate) async fn pump(
    connection: &Connection,
    source: &DatabaseSource,
    settings: &RemoteSettings,
    context: &Context,
    outlet: &mut Outlet,
) -> Result<()> {
    let globals = ask_globals(connection, &source.login, settings, context).await?;
    for warning in globals.warnings() {
        context.log.warn(warning);
    }
    let mut parts = Parts { outlet };
    parts.send(DOCUMENT, &serde_json::to_vec(&globals).map_err(EngineError::internal)?).await?;
    parts.send(STATEMENTS, statements(&globals).as_bytes()).await?;
    for (index, facts) in globals.databases.iter().enumerate() {
        let name = facts.name.as_str();
        if !facts.allows_connections {
            context.log.warn(format!("The database {name} allows no connections; it is not in this backup."));
            continue;
        }
        let own = DatabaseSource { name: Some(name.to_owned()), ..source.clone() };
        let excluded = excluded_here(connection, &own, settings, context).await?;
        context.log.line(format!("Dumping {name}."));
        dump(connection, &own, &excluded, &folder(index, name), settings, context, &mut parts).await?;
    }
    parts.outlet.send(Bytes::from_static(&[0; 1024])).await
}

/// The excluded tables that this database has.
async fn excluded_here(
    connection: &Connection,
    source: &DatabaseSource,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Vec<Table>> {
    if source.excluded_tables.is_empty() {
        return Ok(Vec::new());
    }
    let tables = database::list_tables(connection, source, DatabaseEngine::Postgresql, settings, context).await?;
    Ok(tables.into_iter().filter(|table| source.excluded_tables.iter().any(|text| table.is(text))).collect())
}

async fn dump(
    connection: &Connection,
    source: &DatabaseSource,
    excluded: &[Table],
    folder: &str,
    settings: &RemoteSettings,
    context: &Context,
    parts: &mut Parts<'_>,
) -> Result<()> {
    let script = pg_dump(source.name.as_deref().unwrap_or_default(), excluded);
    let Process { mut stdin, mut stdout, control } = script.start(connection).await?;
    let _unwanted = stdin.write_all(source.login.lines(DatabaseEngine::Postgresql).into_bytes()).await;
    let _unwanted = stdin.close().await;
    let reading = async {
        let (mut pace, mut part, mut number) = (Pace::new(settings.stall), Vec::with_capacity(PART_BYTES), 0);
        loop {
            let chunk = pace.next(&mut stdout, &context.cancel).await?;
            let is_last = chunk.is_none();
            part.extend_from_slice(&chunk.unwrap_or_default());
            while part.len() >= PART_BYTES || (is_last && !part.is_empty()) {
                let rest = part.split_off(part.len().min(PART_BYTES));
                number += 1;
                parts.send(format!("{folder}/{number:08}").as_bytes(), &part).await?;
                part = rest;
            }
            if is_last {
                return end_of(&mut stdout, settings.stall, &context.cancel).await;
            }
        }
    };
    let exit = match reading.await {
        Ok(exit) => exit,
        Err(error) => {
            remote::stop(connection, &control, stdout.process_id(), context).await;
            return Err(error);
        }
    };
    let lines = remote::lines(stdout.stderr());
    if !exit.success() {
        return Err(database::explain("pg_dump", &exit, &lines, context));
    }
    for line in &lines {
        context.log.warn(line);
    }
    Ok(())
}

/// Members on their way into the archive.
struct Parts<'a> {
    outlet: &'a mut Outlet,
}

impl Parts<'_> {
    async fn send(&mut self, path: &[u8], content: &[u8]) -> Result<()> {
        let member = Member { size: content.len() as u64, mode: 0o600, ..Member::new(path, Kind::File) };
        let mut written = Vec::with_capacity(content.len() + 1024);
        let writing =
            |written: &mut Vec<u8>| -> io::Result<()> { Writer::new(written).append(&member, &mut &content[..]) };
        writing(&mut written).map_err(EngineError::internal)?;
        self.outlet.send(written.into()).await
    }
}

/// Roles and memberships as statements, for people who restore by hand.
fn statements(globals: &Globals) -> String {
    let mut text =
        "-- Roles of a PostgreSQL server, written by Holdfast. Databases are in their own dumps.\n".to_owned();
    let statements = globals.roles.iter().map(sql::create_role_sql);
    let statements = statements.chain(globals.roles.iter().map(sql::alter_role_sql));
    let memberships = globals.memberships.iter().map(|one| sql::membership_sql(one, globals.server_version));
    for statement in statements.chain(memberships).chain(globals.settings.iter().map(sql::setting_sql)) {
        text.push_str(&statement);
        text.push('\n');
    }
    text
}
