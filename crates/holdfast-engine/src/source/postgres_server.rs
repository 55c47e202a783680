//! Whole PostgreSQL servers: roles and databases as data, and one dump after the other.

use bytes::Bytes;
use holdfast_core::failure::FailureCode;

use super::PlainSink;
use super::database::{DatabasePlan, Login, excluded_here};
use super::parts::{Dump, Parts};
use super::postgres::{list_tables, login_lines, pg_dump, query, role_instead, tool};
use super::tool::answered;
use crate::archive::server::{DOCUMENT, ROLES, folder, is_bounded};
use crate::error::{EngineError, Result};
use crate::postgres::Own;
use crate::postgres::globals::{self, CAN_READ_PASSWORDS, Globals, Name, globals_query, sql};
use crate::remote::Remote;

/// Asks a PostgreSQL server what it has besides the contents of its databases.
async fn ask_globals(at: Remote<'_>, login: &Login) -> Result<Globals> {
    let ask = async |sql: &str| answered(query(at, login, "postgres", sql).await?, tool("psql"), at.context);
    let may_read = ask(CAN_READ_PASSWORDS).await?;
    let document = ask(&globals_query(may_read.stdout.trim_ascii() == b"t")).await?;
    globals::parse(&document.stdout).map_err(refused)
}

/// What a database has besides its contents; `None` if there is no such database.
pub(crate) async fn ask_database(at: Remote<'_>, login: &Login, name: &str) -> Result<Option<globals::DatabaseFacts>> {
    let name = Name::try_from(name.to_owned()).map_err(|text| EngineError::new(FailureCode::DatabaseMissing, text))?;
    let answer = query(at, login, "postgres", &globals::database_query(&name)).await?;
    globals::parse_database(&answered(answer, tool("psql"), at.context)?.stdout).map_err(refused)
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it by value")]
fn refused(refused: globals::Refused) -> EngineError {
    EngineError::new(FailureCode::RemoteFailed, refused.to_string())
}

/// Sends the archive of the server to `sink`.
pub(crate) async fn send(at: Remote<'_>, source: &DatabasePlan, sink: &mut PlainSink) -> Result<()> {
    let (login, context) = (&source.login, at.context);
    let globals = ask_globals(at, login).await?;
    for warning in globals.warnings() {
        context.log.warn(warning);
    }
    let mut parts = Parts { at, sink };
    let document = serde_json::to_vec(&globals).map_err(EngineError::internal)?;
    if !is_bounded(&document) {
        let message = "This server has too many roles and databases to be backed up.";
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
        let excluded = match source.database.excluded_tables[..] {
            [] => Vec::new(),
            _ => excluded_here(source, list_tables(at, login, name).await?),
        };
        context.log.line(format!("Dumping {name}."));
        let role = role_instead(at, login, name).await?;
        let script = pg_dump(name, &excluded, role.as_deref());
        let input = login_lines(login);
        parts
            .dump(Dump { tool: tool("pg_dump"), script, input, folder: &folder(index, name), before: "", after: None })
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
    parts.sink.send(Bytes::from_static(&[0; 1024])).await
}

/// Roles and memberships as statements, for people who restore manually.
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
