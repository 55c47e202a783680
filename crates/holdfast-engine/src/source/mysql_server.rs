//! Whole MySQL and MariaDB servers: one dump after the other, views as statements, and users and privileges as rows.

use bytes::Bytes;
use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;

use super::PlainSink;
use super::after_rows::AfterRows;
use super::database::{DatabasePlan, Table, unhex};
use super::mysql::{
    ignored_lines, list_tables, login_lines, mysql_dump, mysql_dump_with, mysql_tables_dump, table_words, tool,
};
use super::mysql_definitions::{Asking, Listed, unclear};
use super::parts::{Dump, Parts};
use crate::archive::MysqlFacts;
use crate::archive::server::{DOCUMENT, VIEWS, folder, is_bounded};
use crate::error::{EngineError, Result};
use crate::mysql::definitions::DefinitionKind;
use crate::mysql::tables;
use crate::mysql::{ACCOUNTS, DumpedDatabase, NOT_THE_SERVERS, ServerFacts, View, is_copy, is_public};
use crate::remote::Remote;

/// Folders in the server's data directory that it takes for databases.
const FOLDERS: &str = "SELECT HEX(schema_name) FROM information_schema.schemata WHERE schema_name LIKE '#mysql50#%'";
/// Where versions of MySQL and MariaDB keep users, roles and privileges. A server has some of these.
const ACCOUNT_TABLES: &str = "('user', 'global_priv', 'db', 'tables_priv', 'columns_priv', 'procs_priv', \
    'proxies_priv', 'roles_mapping', 'default_roles', 'role_edges', 'global_grants', 'password_history', 'servers')";
/// The other tables that versions of MySQL and MariaDB have in the database `mysql`.
const SERVER_TABLES: &str = "('audit_log_filter', 'audit_log_user', 'column_stats', 'component', 'engine_cost', 'event', \
    'firewall_group_allowlist', 'firewall_groups', 'firewall_membership', 'firewall_users', 'firewall_whitelist', 'func', \
    'general_log', 'gtid_executed', 'gtid_slave_pos', 'help_category', 'help_keyword', 'help_relation', 'help_topic', 'host', \
    'index_stats', 'innodb_index_stats', 'innodb_table_stats', 'ndb_apply_status', 'ndb_binlog_index', 'plugin', 'proc', \
    'replication_asynchronous_connection_failover', 'replication_asynchronous_connection_failover_managed', \
    'replication_group_configuration_version', 'replication_group_member_actions', 'server_cost', 'slave_master_info', \
    'slave_relay_log_info', 'slave_worker_info', 'slow_log', 'table_stats', 'time_zone', 'time_zone_leap_second', \
    'time_zone_name', 'time_zone_transition', 'time_zone_transition_type', 'transaction_registry', 'wsrep_allowlist', \
    'wsrep_cluster', 'wsrep_cluster_members', 'wsrep_streaming_log')";
/// The definers of what comes with the server.
const SERVER_USERS: &str =
    "('mariadb.sys@localhost', 'mysql.infoschema@localhost', 'mysql.session@localhost', 'mysql.sys@localhost')";
/// How many of the objects that people created in the server's databases are named in the log.
const NAMED_STRAYS: usize = 20;
/// Rows only, with the names of their columns: in other versions, the tables have further columns.
const ACCOUNT_OPTIONS: &str =
    "--no-create-info --complete-insert --replace --skip-triggers --skip-add-locks --skip-disable-keys";
/// Sends the archive of the server to `sink`.
pub(crate) async fn send(at: Remote<'_>, source: &DatabasePlan, sink: &mut PlainSink) -> Result<()> {
    let context = at.context;
    let asking = Asking { at, source };
    let mut databases = asking.databases().await?;
    let has_definitions = asking.gives_definitions().await?;
    databases.iter_mut().for_each(|database| database.set_up.has_definitions = has_definitions);
    let tables = list_tables(at, source).await?;
    for text in source.database.excluded_tables.iter().filter(|text| !tables.iter().any(|table| table.is(text))) {
        context.log.warn(format!("The excluded table {text} does not exist."));
    }
    let is_excluded = |table: &Table| source.database.excluded_tables.iter().any(|text| table.is(text));
    let names: Vec<&str> = databases.iter().map(|database| database.name.as_str()).collect();
    // Definitions that the server gives as data are read with each database.
    let is_asked = !has_definitions && !names.is_empty();
    let listed = if is_asked { asking.list(&names, &[DefinitionKind::View]).await? } else { Vec::new() };
    let account_tables = asking.account_tables().await?;
    let has_accounts = account_tables.iter().any(|table| table == "global_priv" || table == "user");
    if !has_accounts {
        context.log.warn("This user may not read the users and privileges of the server; they are not in this backup.");
    }
    let strays = asking.strays().await?;
    if !strays.is_empty() {
        let names: Vec<String> = strays.iter().take(NAMED_STRAYS).map(|name| name_text(name.as_bytes())).collect();
        context.log.warn(format!(
            "{} objects that somebody made in the server's own databases are not in this backup; keep them in a \
             database of your own: {}.",
            strays.len(),
            names.join(", ")
        ));
    }
    let roles = if has_accounts { asking.roles().await? } else { Vec::new() };
    for left in databases.iter().filter(|database| is_copy(&database.name)) {
        context.log.warn(format!("The database {} looks like a copy that an earlier restore left behind.", left.name));
    }
    let mut excluded: Vec<Table> = tables.into_iter().filter(|table| is_excluded(table)).collect();
    // Views are in the document.
    excluded.extend(listed.iter().filter(|listed| listed.kind == DefinitionKind::View).map(Listed::table));
    let kept: Vec<Listed> = listed.into_iter().filter(|listed| !is_excluded(&listed.table())).collect();
    let views = asking.definitions(&kept).await?;
    let views = views.into_iter().flat_map(|(name, all)| all.into_iter().map(move |found| found.view(name.clone())));
    let views = views.collect();
    let facts = ServerFacts { databases, views, roles, has_accounts };

    let mut parts = Parts { at, sink };
    let document = serde_json::to_vec(&facts).map_err(EngineError::internal)?;
    if !is_bounded(&document) {
        return Err(EngineError::new(FailureCode::RemoteFailed, "This server has too many views to be backed up."));
    }
    parts.send(DOCUMENT, &document).await?;
    parts.send(VIEWS, facts.views.iter().map(View::sql_with_database).collect::<String>().as_bytes()).await?;
    let login = login_lines(&source.login);
    for (index, name) in facts.dumps() {
        context.log.line(format!("Dumping {name}."));
        let (mut before, mut asked) = (String::new(), None);
        let (script, input) = if name == ACCOUNTS {
            let words: Vec<&str> = [name].into_iter().chain(account_tables.iter().map(String::as_str)).collect();
            (mysql_dump_with(ACCOUNT_OPTIONS, &words), login.clone())
        } else if has_definitions {
            let found = asked.insert(asking.read(name).await?);
            before = tables::section(found.before.clone())?;
            (
                mysql_tables_dump(name, &found.tables, found.set_of_rows),
                format!("{login}{}", table_words(&found.tables)),
            )
        } else {
            let here: Vec<Table> = excluded.iter().filter(|table| table.schema == name).cloned().collect();
            (mysql_dump(name), format!("{login}{}", ignored_lines(&here)))
        };
        let folder = folder(index, name);
        let after = asked.as_ref().map(|found| AfterRows { asking, name, found });
        parts.dump(Dump { tool: tool("mysqldump"), script, input, folder: &folder, before: &before, after }).await?;
        if !is_copy(name) {
            context.note_database(name);
        }
    }
    parts.sink.send(Bytes::from_static(&[0; 1024])).await
}

impl Asking<'_> {
    async fn databases(&self) -> Result<Vec<DumpedDatabase>> {
        let sql = format!(
            "SELECT CONCAT(HEX(schema_name), ' ', {}) FROM information_schema.schemata WHERE {NOT_THE_SERVERS} ORDER BY schema_name",
            MysqlFacts::COLUMNS
        );
        for folder in self.lines(FOLDERS).await? {
            let name = unhex(&folder).ok_or_else(unclear)?;
            let name = name_text(name.trim_start_matches("#mysql50#").as_bytes());
            self.at
                .context
                .log
                .line(format!("{name} is a folder in the server's data directory, not a database; it is left out."));
        }
        let parse = |line: &String| {
            let (name, set_up) = line.split_once(' ')?;
            Some(DumpedDatabase { name: unhex(name)?, set_up: MysqlFacts::parse(set_up)? })
        };
        self.lines(&sql).await?.iter().map(|line| parse(line).ok_or_else(unclear)).collect()
    }

    /// Only MariaDB has roles that are not users.
    async fn roles(&self) -> Result<Vec<String>> {
        let has_roles = "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = 'mysql' AND table_name = \
            'user' AND column_name = 'is_role'";
        if self.lines(has_roles).await? != ["1"] {
            return Ok(Vec::new());
        }
        let names = self.lines("SELECT HEX(user) FROM mysql.user WHERE is_role = 'Y'").await?;
        let names = names.iter().map(|name| unhex(name).ok_or_else(unclear)).collect::<Result<Vec<_>>>()?;
        Ok(names.into_iter().filter(|name| !is_public(name)).collect())
    }

    /// The tables with users and privileges; empty if this user may not read them.
    async fn account_tables(&self) -> Result<Vec<String>> {
        let sql = format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = '{ACCOUNTS}' AND table_type = \
             'BASE TABLE' AND table_name IN {ACCOUNT_TABLES} ORDER BY table_name"
        );
        self.lines(&sql).await
    }

    /// Objects that people created in the server's own databases, which are not dumped.
    async fn strays(&self) -> Result<Vec<String>> {
        const TABLES: &str = "information_schema.tables";
        let listed = |table: &str, schema: &str, name: &str, which: &str| {
            format!(
                "SELECT CONCAT(HEX({schema}), ' ', HEX({name})) FROM {table} WHERE {schema} IN ('{ACCOUNTS}', 'sys') AND \
                 (BINARY {schema} = '{ACCOUNTS}' OR BINARY {schema} = 'sys' AND EXISTS (SELECT 1 FROM {TABLES} x WHERE \
                 x.table_schema = 'sys' AND x.table_name = 'sys_config')) AND {which}"
            )
        };
        let is_own = format!(
            "table_type = 'BASE TABLE' AND table_name NOT IN {ACCOUNT_TABLES} AND table_name NOT IN {SERVER_TABLES} AND \
             table_name NOT LIKE 'spider\\_%' AND table_name <> 'sys_config'"
        );
        let of_others = format!("definer NOT IN {SERVER_USERS}");
        let sql = [
            listed(TABLES, "table_schema", "table_name", &is_own),
            listed("information_schema.views", "table_schema", "table_name", &of_others),
            listed("information_schema.routines", "routine_schema", "routine_name", &of_others),
            listed("information_schema.events", "event_schema", "event_name", &of_others),
        ]
        .join(" UNION ALL ");
        let lines = self.lines(&sql).await?;
        let name = |line: &String| {
            let (schema, name) = line.split_once(' ')?;
            Some(format!("{}.{}", unhex(schema)?, unhex(name)?))
        };
        lines.iter().map(|line| name(line).ok_or_else(unclear)).collect()
    }
}
