//! The dump of one database, and what is recorded with it.

use holdfast_core::database::DatabaseEngine;

use super::Outlet;
use super::database::{
    DatabaseSource, ignored_lines, judge, known_excluded, mysql_dump, mysql_tables_dump, mysql_text, named_tables,
    pg_dump, query, role_instead, set_up_sql, table_words, warn_of_floats, warn_of_privileges,
};
use super::mysql_definitions::Asking;
use crate::archive::MysqlFacts;
use crate::context::Context;
use crate::error::Result;
use crate::mysql::definitions::section;
use crate::mysql::tables;
use crate::remote::{self, Pace, RemoteSettings, end_of};
use crate::ssh::{Connection, Process};

/// Sends the dump to `outlet`. Its end is proven by whoever reads it; its exit status here.
pub(crate) async fn pump(
    connection: &Connection,
    source: &DatabaseSource,
    engine: DatabaseEngine,
    settings: &RemoteSettings,
    context: &Context,
    outlet: &mut Outlet,
) -> Result<()> {
    let excluded = known_excluded(connection, source, engine, settings, context).await?;
    let name = source.name.as_deref().unwrap_or_default();
    let mut input = source.login.lines(engine);
    let asking = Asking { connection, source, settings, context };
    let mut asked = None;
    let (tool, command) = match engine {
        DatabaseEngine::Postgresql => {
            let role = role_instead(connection, source, name, settings, context).await?;
            ("pg_dump", pg_dump(name, &excluded, role.as_deref()))
        }
        DatabaseEngine::Mysql => {
            if asking.gives_definitions().await? {
                let spelled = asking.spelling(name).await?;
                let found = asking.read(&spelled).await?;
                outlet.send(tables::section(found.before.clone())?.into()).await?;
                input.push_str(&table_words(&found.tables));
                let dump = mysql_tables_dump(name, &found.tables, found.set_of_rows);
                asked = Some((spelled, found));
                ("mysqldump", dump)
            } else {
                input.push_str(&ignored_lines(&excluded));
                ("mysqldump", mysql_dump(name))
            }
        }
    };
    let Process { mut stdin, mut stdout, control } = command.start(connection).await?;
    let _unwanted = stdin.write_all(input.into_bytes()).await;
    let _unwanted = stdin.close().await;
    let reading = async {
        let mut pace = Pace::new(settings.stall);
        while let Some(chunk) = pace.next(&mut stdout, &context.cancel).await? {
            outlet.send(chunk).await?;
        }
        end_of(&mut stdout, settings.stall, &context.cancel).await
    };
    let exit = match reading.await {
        Ok(exit) => exit,
        Err(error) => {
            remote::stop(connection, &control, stdout.process_id(), context).await;
            return Err(error);
        }
    };
    if !stdout.has_started() {
        return Err(remote::no_commands());
    }
    let lines = remote::lines(stdout.stderr());
    judge(tool, &exit, &lines, context)?;
    let Some((spelled, found)) = asked else { return Ok(()) };
    let after = asking.after_rows(&spelled, &found).await?;
    outlet.send(section(after)?.into()).await
}

/// How a MySQL or MariaDB database is set up, for whoever makes it again; and a word about tables that change while
/// they are dumped.
pub(crate) async fn mysql_facts(
    connection: &Connection,
    source: &DatabaseSource,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Option<MysqlFacts>> {
    const ENGINE: DatabaseEngine = DatabaseEngine::Mysql;
    let own = match &source.name {
        Some(name) => format!("table_schema = {}", mysql_text(name)),
        None => "table_schema NOT IN ('information_schema', 'performance_schema', 'mysql', 'sys')".to_owned(),
    };
    let unsafe_tables = format!(
        "SELECT CONCAT(HEX(table_schema), ' ', HEX(table_name)) FROM information_schema.tables WHERE {own} AND \
         table_type = 'BASE TABLE' AND engine NOT IN ('InnoDB', 'RocksDB', 'TokuDB', 'ndbcluster') LIMIT 20"
    );
    let answer = query(connection, ENGINE, "", &unsafe_tables, &source.login, settings, context).await?;
    {
        let names = named_tables(&answer);
        if !names.is_empty() {
            context.log.warn(format!(
                "These tables have no transactions; if they changed during the backup, it may hold them half changed: {}",
                names.join(", ")
            ));
        }
    }
    warn_of_privileges(connection, source, settings, context).await?;
    let has_definitions = Asking { connection, source, settings, context }.gives_definitions().await?;
    // Those are asked for themselves. To list columns, a server runs functions of views.
    if !has_definitions {
        let floats = format!(
            "SELECT CONCAT(HEX(table_schema), ' ', HEX(table_name)) FROM information_schema.columns WHERE {own} AND data_type \
         = 'float' GROUP BY table_schema, table_name LIMIT 20"
        );
        let floats = query(connection, ENGINE, "", &floats, &source.login, settings, context).await?;
        warn_of_floats(&named_tables(&floats), context);
    }
    let Some(name) = &source.name else { return Ok(None) };
    let answer = query(connection, ENGINE, "", &set_up_sql(name), &source.login, settings, context).await?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let facts = MysqlFacts::parse(&text).filter(|_| answer.exit.success());
    Ok(facts.map(|facts| MysqlFacts { has_definitions, ..facts }))
}
