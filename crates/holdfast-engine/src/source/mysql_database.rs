//! One MySQL or MariaDB database: its dump, and what is recorded with it.

use super::PlainSink;
use super::database::{DatabasePlan, known_excluded, listed_tables};
use super::database_dump::{self, Dumping};
use super::mysql::{
    ignored_lines, list_tables, login_lines, mysql_dump, mysql_tables_dump, mysql_text, query, set_up_sql, table_words,
    tool, warn_of_floats, warn_of_privileges,
};
use super::mysql_definitions::Asking;
use crate::archive::MysqlFacts;
use crate::error::Result;
use crate::mysql::definitions::section;
use crate::mysql::tables;
use crate::remote::{Answer, Remote};

/// Sends the dump of the database to `sink`.
pub(crate) async fn send(at: Remote<'_>, source: &DatabasePlan, name: &str, sink: &mut PlainSink) -> Result<()> {
    let excluded = match source.database.excluded_tables[..] {
        [] => Vec::new(),
        _ => known_excluded(source, list_tables(at, source).await?, at.context),
    };
    let asking = Asking { at, source };
    let login = login_lines(&source.login);
    if !asking.gives_definitions().await? {
        let input = format!("{login}{}", ignored_lines(&excluded));
        return database_dump::send(
            at,
            Dumping { tool: tool("mysqldump"), script: mysql_dump(name), input, first_wait: None },
            sink,
        )
        .await;
    }
    let spelled = asking.spelling(name).await?;
    let found = asking.read(&spelled).await?;
    sink.send(tables::section(found.before.clone())?.into()).await?;
    let input = format!("{login}{}", table_words(&found.tables));
    let script = mysql_tables_dump(name, &found.tables, found.set_of_rows);
    database_dump::send(at, Dumping { tool: tool("mysqldump"), script, input, first_wait: None }, sink).await?;
    let after = asking.after_rows(&spelled, &found).await?;
    sink.send(section(after)?.into()).await
}

/// The settings that a restore needs to create the database again. Also warns about tables that may change while they
/// are dumped.
pub(crate) async fn facts(at: Remote<'_>, source: &DatabasePlan) -> Result<Option<MysqlFacts>> {
    let own = match &source.database.name {
        Some(name) => format!("table_schema = {}", mysql_text(name)),
        None => "table_schema NOT IN ('information_schema', 'performance_schema', 'mysql', 'sys')".to_owned(),
    };
    let unsafe_tables = format!(
        "SELECT CONCAT(HEX(table_schema), ' ', HEX(table_name)) FROM information_schema.tables WHERE {own} AND \
         table_type = 'BASE TABLE' AND engine NOT IN ('InnoDB', 'RocksDB', 'TokuDB', 'ndbcluster') LIMIT 20"
    );
    let names = named_tables(&query(at, &source.login, &unsafe_tables).await?);
    if !names.is_empty() {
        at.context.log.warn(format!(
            "These tables are not transactional; changes during the backup may be only partly included: {}",
            names.join(", ")
        ));
    }
    warn_of_privileges(at, source).await?;
    let has_definitions = Asking { at, source }.gives_definitions().await?;
    // Where definitions are read, they show the columns. Listing columns makes a server run functions of views.
    if !has_definitions {
        let floats = format!(
            "SELECT CONCAT(HEX(table_schema), ' ', HEX(table_name)) FROM information_schema.columns WHERE {own} AND \
             data_type = 'float' GROUP BY table_schema, table_name LIMIT 20"
        );
        warn_of_floats(&named_tables(&query(at, &source.login, &floats).await?), at.context);
    }
    let Some(name) = &source.database.name else { return Ok(None) };
    let answer = query(at, &source.login, &set_up_sql(name)).await?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let facts = MysqlFacts::parse(&text).filter(|_| answer.exit.success());
    Ok(facts.map(|facts| MysqlFacts { has_definitions, ..facts }))
}

/// The tables of an answer; none if the query failed.
fn named_tables(answer: &Answer) -> Vec<String> {
    let tables = if answer.exit.success() { listed_tables(answer) } else { Vec::new() };
    tables.iter().map(|table| format!("{}.{}", table.schema, table.name)).collect()
}
