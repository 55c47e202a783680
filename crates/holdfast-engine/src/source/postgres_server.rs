//! Whole PostgreSQL servers: roles and databases as data, and one dump after the other.

use bytes::Bytes;
use holdfast_core::database::DatabaseEngine;
use holdfast_core::run::FailureCode;

use super::Outlet;
use super::database::{self, DatabaseSource, Login, Table, pg_dump, role_instead};
use super::parts::{Dump, Parts};
use crate::archive::server::{DOCUMENT, ROLES, folder, is_bounded};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::postgres::Own;
use crate::postgres::globals::{self, CAN_READ_PASSWORDS, Globals, Name, globals_query, sql};
use crate::remote::RemoteSettings;
use crate::ssh::Connection;

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
    let mut parts = Parts { connection, settings, context, outlet };
    let document = serde_json::to_vec(&globals).map_err(EngineError::internal)?;
    if !is_bounded(&document) {
        let message = "The roles and databases of this server are too many to be backed up.";
        return Err(EngineError::new(FailureCode::RemoteFailed, message));
    }
    parts.send(DOCUMENT, &document).await?;
    parts.send(ROLES, statements(&globals).as_bytes()).await?;
    for (index, facts) in globals.databases.iter().enumerate() {
        let name = facts.name.as_str();
        if !facts.allows_connections {
            context.log.warn(format!("The database {name} allows no connections; it is not in this backup."));
            continue;
        }
        let own = DatabaseSource { name: Some(name.to_owned()), ..source.clone() };
        let excluded = excluded_here(connection, &own, settings, context).await?;
        context.log.line(format!("Dumping {name}."));
        let role = role_instead(connection, source, name, settings, context).await?;
        let script = pg_dump(name, &excluded, role.as_deref());
        let input = source.login.lines(DatabaseEngine::Postgresql);
        parts
            .dump(Dump { tool: "pg_dump", script, input, folder: &folder(index, name), before: "", after: None })
            .await?;
        match Own::of(name) {
            None => context.note_database(name),
            Some(Own::Old) => context.log.warn(format!(
                "The database {name} is what a restore replaced and could not drop; drop it when nobody needs it."
            )),
            Some(Own::Fresh | Own::Swap) => {
                context.log.warn(format!("The database {name} was left behind by a restore; drop it."));
            }
        }
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

/// Roles and memberships as statements, for people who restore by hand.
fn statements(globals: &Globals) -> String {
    let mut text =
        "-- Roles of a PostgreSQL server, written by Holdfast. Databases are in their own dumps.\n".to_owned();
    let statements = globals.roles.iter().map(sql::create_role_sql);
    let statements = statements.chain(globals.roles.iter().map(sql::alter_role_sql));
    let memberships = globals.memberships.iter().map(|one| sql::membership_sql(one, globals.server_version));
    let parameters = sql::parameter_grants_sql(globals, globals.server_version);
    for statement in
        statements.chain(memberships).chain(globals.settings.iter().map(sql::setting_sql)).chain(parameters)
    {
        text.push_str(&statement);
        text.push('\n');
    }
    text
}
