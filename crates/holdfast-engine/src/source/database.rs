//! Databases of a server: dumped by their own tools over one channel. User and password travel on standard input; a
//! name is one quoted word and can be neither an option, a connection string nor a pattern.

use holdfast_core::Secret;
use holdfast_core::backup::name_text;
use holdfast_core::database::DatabaseEngine;
use holdfast_core::run::FailureCode;

use crate::archive::MysqlFacts;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::mysql::grants::Grants;
use crate::remote::{self, Answer, RemoteSettings, Script, ended};
use crate::ssh::{Connection, Exit};

/// Who to be in the database.
#[derive(Debug, Clone, Default)]
pub struct Login {
    pub username: Option<String>,
    pub password: Option<Secret>,
}

/// What to dump.
#[derive(Debug, Clone)]
pub struct DatabaseSource {
    /// `None` looks at what the server has.
    pub engine: Option<DatabaseEngine>,
    /// `None` is all of them.
    pub name: Option<String>,
    pub excluded_tables: Vec<String>,
    pub login: Login,
}

const EXIT_NO_TOOL: u32 = 98;

/// Reads user and password from the first two lines of standard input. With a password the server is asked over TCP,
/// since its socket mostly believes the system user alone; `PGHOST` of the account wins.
const PG_LOGIN: &str = r#"
IFS= read -r u; IFS= read -r w
[ -z "$u" ] || { PGUSER=$u; export PGUSER; }
[ -z "$w" ] || { PGPASSWORD=$w; export PGPASSWORD; PGHOST=${PGHOST:-localhost}; export PGHOST; }
PGCONNECT_TIMEOUT=15; PGAPPNAME=holdfast; export PGCONNECT_TIMEOUT PGAPPNAME
unset u w
"#;

/// Starts a session of `psql` that settings of roles and databases do not hurt. The first is where names are looked for:
/// whoever owns a database could have ours mean functions and operators of theirs, which would run as whoever we are
/// connected as. Only the system's own are found from then on. One that ends statements, idle sessions or writes would
/// end us. They are set in the session, and only those that the server knows; `PGOPTIONS` would keep us
/// from servers that do not know one of them, and from connection poolers. `pg_dump` and `pg_restore` set timeouts
/// themselves. Whatever the session says afterwards goes to /dev/null, until `\o`.
pub(crate) const PSQL: &str = r#"command -v psql >/dev/null 2>&1 || exit 98
exec psql --dbname="$1" --no-psqlrc --no-password --quiet --command='\o /dev/null' \
    --command="SET search_path = ''" --command='SET statement_timeout = 0' --command="SELECT pg_catalog.set_config(name, '0', false) FROM \
    pg_catalog.pg_settings WHERE name IN ('default_transaction_read_only', 'idle_in_transaction_session_timeout', \
    'idle_session_timeout', 'lock_timeout', 'transaction_timeout')" "#;

/// The two lines are lines of an option file, which the client gets as a document of its own, and nothing else. Before
/// them stands what the account's own option files say about where the server is and who to be there: read by the client
/// itself, they would come last and win, and options such as `no-data` would change what a dump holds.
const MYSQL_LOGIN: &str = r#"
IFS= read -r u; IFS= read -r w; r=
[ -z "$u$w" ] || { MYSQL_TEST_LOGIN_FILE=/dev/null; export MYSQL_TEST_LOGIN_FILE; }
k=$(for f in /etc/my.cnf /etc/my.cnf.d/*.cnf /etc/mysql/my.cnf /etc/mysql/conf.d/*.cnf /etc/mysql/*.conf.d/*.cnf \
    /usr/local/etc/my.cnf /usr/local/etc/mysql/my.cnf "$HOME/.my.cnf"
do [ -r "$f" ] && cat "$f" && echo
done 2>/dev/null | awk '
/^[ \t]*\[/ {
    is_kept = /^[ \t]*\[[ \t]*(client[^]]*|mysql|mysqldump|mariadb|mariadb-client|mariadb-dump)[ \t]*\]/
    if (is_kept) print
    next
}
is_kept && tolower($0) ~ /^[ \t]*((loose|skip|enable|disable)[-_])?(user|password|host|port|socket|protocol|default[-_]auth|plugin[-_]dir|(ssl|tls)[-_a-z]*|get[-_]server[-_]public[-_]key|server[-_]public[-_]key[-_]path|(enable[-_])?cleartext[-_]plugin)[ \t]*(=|$)/
')
"#;
/// Takes the rest of standard input for further lines of the option file: there may be more tables to leave out than a
/// command line holds.
const MORE_OPTIONS: &str = "r=$(cat)\n";
/// Takes the rest of standard input for further words of the command: there may be more tables than a script holds. The
/// system allows a quarter of the stack for them.
const MORE_WORDS: &str = "ulimit -s unlimited 2>/dev/null || :\nl=$(cat)\neval \"set -- \\\"\\$@\\\" $l\"\n";
/// Follows the client's command. Standard input is done with by then.
const MYSQL_OPTIONS: &str = "<<END\n$k\n[client]\n$u\n$w\n$r\nEND\n";

impl Login {
    fn postgres_lines(&self) -> String {
        let password = self.password.as_ref().map(Secret::reveal).unwrap_or_default();
        format!("{}\n{password}\n", self.username.as_deref().unwrap_or_default())
    }

    fn mysql_lines(&self) -> String {
        let line = |name: &str, value: Option<&str>| match value {
            Some(value) => option_line(name, value),
            None => "\n".to_owned(),
        };
        let password = self.password.as_ref().map(Secret::reveal);
        format!("{}{}", line("user", self.username.as_deref()), line("password", password))
    }

    pub(crate) fn lines(&self, engine: DatabaseEngine) -> String {
        match engine {
            DatabaseEngine::Postgresql => self.postgres_lines(),
            DatabaseEngine::Mysql => self.mysql_lines(),
        }
    }
}

/// A line of an option file of MySQL.
fn option_line(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r");
    format!("{name}=\"{value}\"\n")
}

/// The lines that make the tool leave out tables.
pub(super) fn ignored_lines(tables: &[Table]) -> String {
    let lines = tables.iter().map(|table| option_line("ignore-table", &format!("{}.{}", table.schema, table.name)));
    format!("[mysqldump]\n{}", lines.collect::<String>())
}

/// A PostgreSQL script with the login before it.
pub(crate) fn postgres(script: &str, words: &[&str]) -> Script {
    Script::new(&format!("{PG_LOGIN}{script}"), words)
}

/// A script that runs the first of these clients with its options from a document.
pub(crate) fn mysql(clients: [&str; 2], line: &str, redirect: &str, words: &[&str]) -> Script {
    mysql_prepared(clients, "", line, redirect, words)
}

/// The same after lines of its own, to which `$t` is the client.
fn mysql_prepared(clients: [&str; 2], prepare: &str, line: &str, redirect: &str, words: &[&str]) -> Script {
    let [first, second] = clients;
    let find = format!("t=$(command -v {first} || command -v {second}) || exit {EXIT_NO_TOOL}\n{prepare}");
    Script::new(&format!("{MYSQL_LOGIN}{find}exec \"$t\" {line} {redirect}{MYSQL_OPTIONS}"), words)
}

const MYSQL_DUMP: [&str; 2] = ["mariadb-dump", "mysqldump"];
pub(crate) const MYSQL_CLIENT: [&str; 2] = ["mariadb", "mysql"];

/// A name as libpq reads it: whatever is in it, it names a database and nothing else.
pub(crate) fn pg_name(name: &str) -> String {
    format!("dbname='{}'", name.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A table as a database lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub schema: String,
    pub name: String,
}

impl Table {
    /// Whether somebody meant this one. A name may hold a dot itself.
    pub(super) fn is(&self, text: &str) -> bool {
        self.name == text
            || text.strip_prefix(&self.schema).and_then(|rest| rest.strip_prefix('.')) == Some(self.name.as_str())
    }

    /// As `pg_dump`'s patterns read it: quoted, so that no sign in it is a pattern.
    fn pg_pattern(&self) -> String {
        let quoted = |part: &str| format!("\"{}\"", part.replace('"', "\"\""));
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }
}

/// Text as an SQL literal of MySQL, without any quoting to get wrong.
pub(crate) fn mysql_text(text: &str) -> String {
    format!("CONVERT(X'{}' USING utf8mb4)", holdfast_core::random::hex(text.as_bytes()))
}

/// Which engine it is, and so what the backup will hold.
pub(crate) async fn find_engine(
    connection: &Connection,
    source: &DatabaseSource,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<DatabaseEngine> {
    if let Some(password) = &source.login.password {
        context.log.hide(password);
    }
    if let Some(engine) = source.engine {
        return Ok(engine);
    }
    const LOOK: &str = r#"
command -v pg_dump >/dev/null 2>&1 && echo postgresql
{ command -v mariadb-dump || command -v mysqldump; } >/dev/null 2>&1 && echo mysql
exit 0
"#;
    let answer = remote::ask(connection, settings, context, &Script::new(LOOK, &[]), "").await?;
    let found: Vec<DatabaseEngine> =
        String::from_utf8_lossy(&answer.stdout).lines().filter_map(DatabaseEngine::parse).collect();
    match found[..] {
        [] => Err(EngineError::new(
            FailureCode::ToolMissing,
            "The server has neither pg_dump nor mysqldump nor mariadb-dump.",
        )),
        [engine] => Ok(engine),
        _ => find_answering(connection, source, settings, context).await,
    }
}

/// Both are installed: the one that lets us in and has the database.
async fn find_answering(
    connection: &Connection,
    source: &DatabaseSource,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<DatabaseEngine> {
    let mut fitting = Vec::new();
    for engine in [DatabaseEngine::Postgresql, DatabaseEngine::Mysql] {
        let answer = list_databases(connection, engine, &source.login, settings, context).await?;
        let names = String::from_utf8_lossy(&answer.stdout).into_owned();
        let has_it = source.name.as_ref().is_none_or(|name| names.lines().any(|found| found == name));
        if answer.exit.success() && has_it {
            fitting.push(engine);
        }
    }
    match fitting[..] {
        [engine] => Ok(engine),
        _ => Err(EngineError::new(
            FailureCode::EngineUnclear,
            "The server has tools for PostgreSQL and for MySQL, and it is not clear which is meant.",
        )),
    }
}

async fn list_databases(
    connection: &Connection,
    engine: DatabaseEngine,
    login: &Login,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Answer> {
    let sql = match engine {
        DatabaseEngine::Postgresql => "SELECT datname FROM pg_database",
        DatabaseEngine::Mysql => "SHOW DATABASES",
    };
    query(connection, engine, "postgres", sql, login, settings, context).await
}

/// One statement, its answer as lines of tab-separated values.
pub(crate) async fn query(
    connection: &Connection,
    engine: DatabaseEngine,
    database: &str,
    sql: &str,
    login: &Login,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Answer> {
    let command = match engine {
        DatabaseEngine::Postgresql => postgres(
            &format!(
                "PGCLIENTENCODING=UTF8; export PGCLIENTENCODING\n{PSQL} --tuples-only --no-align --command='\\o' \
                 --command=\"$2\""
            ),
            &[&pg_name(database), sql],
        ),
        // Nobody waits for an answer that comes later.
        DatabaseEngine::Mysql => mysql(
            MYSQL_CLIENT,
            &format!(
                "--defaults-file=/dev/stdin --binary-mode --default-character-set=utf8mb4 --batch --skip-column-names \
                 --init-command='SET SESSION sql_quote_show_create=1 /*M!100101 , max_statement_time={} */' \
                 --execute=\"$1\"",
                settings.answer.as_secs().max(1)
            ),
            "",
            &[sql],
        ),
    };
    remote::ask(connection, settings, context, &command, &login.lines(engine)).await
}

/// Whether a dump has everything. Dump tools of MySQL go on after a table that they could not look up, and end well.
pub(super) fn judge(tool: &str, exit: &Exit, lines: &[String], context: &Context) -> Result<()> {
    if !exit.success() || lines.iter().any(|line| line.contains("Couldn't ")) {
        return Err(explain(tool, exit, lines, context));
    }
    lines.iter().for_each(|line| context.log.warn(line));
    Ok(())
}

/// What all dumps of MySQL have in common, and options that only some of the tools know: the history of versioned tables,
/// and no word about which transactions a server has seen, which would keep the dump out of the server it came from.
/// No locks when it is loaded: a default that asks a sequence could not. Binary values are text with escapes: as
/// hexadecimal digits they would take twice the room, and rows of more than half a packet would not go back.
const MYSQL_DUMP_OPTIONS: &str = "--defaults-file=/dev/stdin $g $c --single-transaction --quick \
    --no-tablespaces --skip-add-locks --max-allowed-packet=1G";
const MYSQL_DUMP_KNOWN: &str = "o=$(\"$t\" --no-defaults --help 2>/dev/null)\n\
    case $o in *--dump-history*) h=--dump-history ;; *) h= ;; esac\n\
    case $o in *--set-gtid-purged*) g=--set-gtid-purged=OFF ;; *) g= ;; esac\n\
    case $o in *--column-statistics*) c=--column-statistics=0 ;; *) c= ;; esac\n";

/// A dump with options of its own; the words are the database and its tables.
pub(super) fn mysql_dump_with(options: &str, words: &[&str]) -> Script {
    let prepare = format!("{MORE_OPTIONS}{MYSQL_DUMP_KNOWN}");
    let line = format!("{MYSQL_DUMP_OPTIONS} --default-character-set=utf8mb4 {options} -- \"$@\"");
    mysql_prepared(MYSQL_DUMP, &prepare, &line, "", words)
}

/// One database as SQL, with all that it has.
pub(super) fn mysql_dump(name: &str) -> Script {
    mysql_dump_with("$h --routines --triggers --events", &[name])
}

/// Tables of one database as SQL. Their names follow on standard input, as [`table_words`] writes them.
pub(super) fn mysql_tables_dump(name: &str, tables: &[Table], set_of_rows: &str) -> Script {
    // Without names, the tool would look at whatever it finds, and to look at a view may run functions.
    let (options, words) =
        if tables.is_empty() { ("--no-data", &["information_schema", "COLLATIONS"][..]) } else { ("$h", &[name][..]) };
    let options = format!("{options} --skip-triggers --no-create-info");
    let line = format!("{MYSQL_DUMP_OPTIONS} --default-character-set={set_of_rows} {options} -- \"$@\"");
    mysql_prepared(MYSQL_DUMP, &format!("{MORE_WORDS}{MYSQL_DUMP_KNOWN}"), &line, "", words)
}

/// Names of tables as words of a shell.
pub(super) fn table_words(tables: &[Table]) -> String {
    tables.iter().map(|table| format!(" {}", remote::quote(&table.name))).collect()
}

/// Whom a dump has to act as, when the database itself says otherwise: its owner can have everybody act as somebody who
/// may read less. What a role says about itself counts.
pub(super) async fn role_instead(
    connection: &Connection,
    source: &DatabaseSource,
    name: &str,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Option<String>> {
    const ENGINE: DatabaseEngine = DatabaseEngine::Postgresql;
    let said = |whose: &str| {
        format!(
            "EXISTS (SELECT 1 FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) c WHERE {whose} AND c \
             LIKE 'role=%' AND s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = \
             pg_catalog.current_database())))"
        )
    };
    let own = "s.setrole = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = session_user)";
    let sql = format!(
        "SELECT pg_catalog.encode(pg_catalog.convert_to(session_user, 'UTF8'), 'hex') WHERE {} AND NOT {}",
        said("s.setrole = 0"),
        said(own)
    );
    let answer = query(connection, ENGINE, name, &sql, &source.login, settings, context).await?;
    // The dump tool asks the same server, and says why it cannot.
    if !answer.exit.success() {
        return Ok(None);
    }
    Ok(unhex(&String::from_utf8_lossy(&answer.stdout)).filter(|role| !role.is_empty()))
}

/// One database in the custom format.
pub(crate) fn pg_dump(name: &str, excluded: &[Table], role: Option<&str>) -> Script {
    let script = "command -v pg_dump >/dev/null 2>&1 || exit 98\n\
        exec pg_dump --format=custom --compress=0 --no-password \"$@\"";
    let mut words = vec![format!("--dbname={}", pg_name(name))];
    words.extend(role.map(|role| format!("--role={role}")));
    words.extend(excluded.iter().map(|table| format!("--exclude-table={}", table.pg_pattern())));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    postgres(script, &words)
}

/// All tables of a database, or of all databases of a MySQL server.
pub(crate) async fn list_tables(
    connection: &Connection,
    source: &DatabaseSource,
    engine: DatabaseEngine,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Vec<Table>> {
    // Names may hold anything, so they come as hexadecimal digits.
    let (database, sql) = match (&source.name, engine) {
        (name, DatabaseEngine::Postgresql) => (
            name.as_deref().unwrap_or("postgres"),
            "SELECT encode(convert_to(schemaname, 'UTF8'), 'hex') || ' ' || encode(convert_to(tablename, 'UTF8'), \
             'hex') FROM pg_tables"
                .to_owned(),
        ),
        (name, DatabaseEngine::Mysql) => {
            let only = name.as_ref().map(|name| format!(" WHERE table_schema = {}", mysql_text(name)));
            let select = "SELECT CONCAT(HEX(table_schema), ' ', HEX(table_name)) FROM information_schema.tables";
            ("", format!("{select}{}", only.unwrap_or_default()))
        }
    };
    let answer = query(connection, engine, database, &sql, &source.login, settings, context).await?;
    if !answer.exit.success() {
        return Err(explain("The database client", &answer.exit, &answer.stderr, context));
    }
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let tables = text.lines().filter_map(|line| line.split_once(' '));
    Ok(tables.filter_map(|(schema, name)| Some(Table { schema: unhex(schema)?, name: unhex(name)? })).collect())
}

pub(crate) fn unhex(text: &str) -> Option<String> {
    String::from_utf8(holdfast_core::random::from_hex(text.trim())?).ok()
}

/// The excluded tables that exist; a misspelt one is told, not silently ignored.
pub(super) async fn known_excluded(
    connection: &Connection,
    source: &DatabaseSource,
    engine: DatabaseEngine,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Vec<Table>> {
    if source.excluded_tables.is_empty() {
        return Ok(Vec::new());
    }
    let tables = list_tables(connection, source, engine, settings, context).await?;
    for text in &source.excluded_tables {
        if !tables.iter().any(|table| table.is(text)) {
            context.log.warn(format!("The excluded table {text} does not exist."));
        }
    }
    Ok(tables.into_iter().filter(|table| source.excluded_tables.iter().any(|text| table.is(text))).collect())
}

/// The tables of an answer with two hexadecimal words on each line; none when it failed.
pub(super) fn named_tables(answer: &Answer) -> Vec<String> {
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let lines = text.lines().filter(|_| answer.exit.success()).filter_map(|line| line.split_once(' '));
    lines.filter_map(|(schema, name)| Some(format!("{}.{}", unhex(schema)?, unhex(name)?))).collect()
}

/// What the database user may do, itself and by roles.
pub(super) async fn mysql_grants(
    connection: &Connection,
    source: &DatabaseSource,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Grants> {
    // Some modes have other quotes around names.
    const SQL: &str = "SET SESSION sql_mode = '';SHOW GRANTS";
    let answer = query(connection, DatabaseEngine::Mysql, "", SQL, &source.login, settings, context).await?;
    if !answer.exit.success() {
        return Err(explain("The database client", &answer.exit, &answer.stderr, context));
    }
    Ok(Grants::parse(answer.stdout.split(|byte| *byte == b'\n')))
}

/// The server does not say that there are databases, triggers and routines that somebody may not see.
pub(super) async fn warn_of_privileges(
    connection: &Connection,
    source: &DatabaseSource,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<()> {
    let grants = mysql_grants(connection, source, settings, context).await?;
    if source.name.is_none() && !grants.are_everywhere(&["SELECT", "SHOW DATABASES"]) {
        context.log.warn(
            "The database user sees only the databases that it has rights to; others, if there are any, are not in this \
             backup. Grant it SHOW DATABASES and SELECT on everything.",
        );
    }
    let may_change = ["INSERT", "UPDATE", "SUPER", "FILE", "CREATE USER"];
    if grants.are_everywhere(&["EXECUTE"]) && grants.are_everywhere(&may_change) {
        context.log.line(
            "The database user may change data and run functions of everybody. Where people who do not trust each other \
             have databases, back up as a user who may only read.",
        );
    }
    let sees_triggers = |name: &str| grants.are_within(name, &["TRIGGER"]);
    // In MariaDB, who may read the table of routines sees all of them. The others see that there are some, and the
    // backup fails when it cannot read them.
    let sees_all_routines =
        grants.are_everywhere(&["SELECT", "SHOW_ROUTINE"]) || grants.are_of_table("mysql", "proc", &["SELECT"]);
    let sees_routines = |name: &str| {
        sees_all_routines || grants.are_within(name, &["EXECUTE", "ALTER ROUTINE", "CREATE ROUTINE", "SHOW_ROUTINE"])
    };
    let names = match &source.name {
        Some(name) => vec![name.clone()],
        None => user_databases(connection, source, settings, context).await?,
    };
    let lacking = |sees: &dyn Fn(&str) -> bool| -> Vec<String> {
        let unseen = names.iter().filter(|name| !sees(name));
        unseen.map(|name| name_text(name.as_bytes())).collect()
    };
    for (what, lacking, right) in [
        ("triggers", lacking(&sees_triggers), "TRIGGER"),
        ("routines", lacking(&sees_routines), "SELECT on mysql.proc (MariaDB) or SHOW_ROUTINE (MySQL)"),
    ] {
        if !lacking.is_empty() {
            context.log.warn(format!(
                "The database user may not see {what} of {}; if there are any, they are not in this backup. Grant it \
                 {right}.",
                lacking.join(", ")
            ));
        }
    }
    Ok(())
}

/// So many databases are asked about; no server has as many.
const MOST_DATABASES: usize = 10_000;

async fn user_databases(
    connection: &Connection,
    source: &DatabaseSource,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Vec<String>> {
    let sql = "SELECT HEX(schema_name) FROM information_schema.schemata WHERE BINARY schema_name NOT IN \
        ('information_schema', 'performance_schema', 'mysql', 'sys')";
    let answer = query(connection, DatabaseEngine::Mysql, "", sql, &source.login, settings, context).await?;
    if !answer.exit.success() {
        return Err(explain("The database client", &answer.exit, &answer.stderr, context));
    }
    Ok(String::from_utf8_lossy(&answer.stdout).lines().filter_map(unhex).take(MOST_DATABASES).collect())
}

pub(super) fn warn_of_floats(tables: &[String], context: &Context) {
    if !tables.is_empty() {
        let names: Vec<String> = tables.iter().map(|name| name_text(name.as_bytes())).collect();
        context.log.warn(format!(
            "Columns of type FLOAT are dumped with six digits; values with more come back rounded: {}",
            names.join(", ")
        ));
    }
}

/// Asks how a database is set up, for [`MysqlFacts::parse`].
pub(crate) fn set_up_sql(name: &str) -> String {
    format!(
        "SELECT CONCAT({}) FROM information_schema.schemata WHERE schema_name = {}",
        MysqlFacts::COLUMNS,
        mysql_text(name)
    )
}

/// The number with which a MySQL client begins to report an error.
pub(crate) fn mysql_error(line: &str) -> Option<u16> {
    line.strip_prefix("ERROR ")?.split_once(" (")?.0.parse().ok()
}

/// Why a database tool failed, from what it says.
pub(crate) fn explain(tool: &str, exit: &Exit, lines: &[String], context: &Context) -> EngineError {
    const SIGNS: &[(FailureCode, &[&str])] = &[
        (
            FailureCode::DatabaseAuth,
            &[
                "authentication failed",
                "no password supplied",
                "Access denied for user",
                "FATAL:  role \"",
                "no pg_hba.conf entry",
            ],
        ),
        (FailureCode::DatabaseMissing, &["Unknown database"]),
        (
            FailureCode::DatabaseUnreachable,
            &["Connection refused", "could not connect", "Can't connect", "connection to server on socket"],
        ),
        (FailureCode::TargetFull, &["No space left on device", "is full", "Disk full"]),
    ];
    for line in lines {
        context.log.line(line);
    }
    if exit.status == Some(EXIT_NO_TOOL) || exit.status == Some(127) {
        return EngineError::new(FailureCode::ToolMissing, format!("The server has no {tool}."));
    }
    // It selects the database by its name as text in a statement, where these characters are escaped.
    let is_misnamed = |line: &String| line.contains("Unknown database '") && line.contains('\\');
    let is_missing = |line: &String| line.contains("database \"") && line.contains("does not exist");
    let code = if lines.iter().any(is_misnamed) {
        FailureCode::RemoteFailed
    } else if lines.iter().any(is_missing) {
        FailureCode::DatabaseMissing
    } else {
        let fits = |signs: &&[&str]| lines.iter().any(|line| signs.iter().any(|sign| line.contains(sign)));
        SIGNS.iter().find(|(_, signs)| fits(signs)).map_or(FailureCode::RemoteFailed, |(code, _)| *code)
    };
    // Some clients show the statement before they say what is wrong with it.
    let telling = lines.iter().find(|line| line.contains("ERROR") || line.contains("error:")).or(lines.first());
    let said = telling.map(|line| format!(": {line}")).unwrap_or_default();
    let hint = match telling {
        Some(line) if line.contains("due to statement timeout") => {
            ". A setting of the database or of the user ends statements before the tool can switch that off: \
             ALTER ROLE … SET statement_timeout = 0 for the user of this backup comes before a setting of the database."
        }
        Some(line) if is_misnamed(line) => {
            ". The dump tool of MariaDB cannot dump events of a database with a quote or a backslash in its name: drop \
             the events, or move them to another database."
        }
        Some(line) if line.contains("Cannot use --dump-history") => {
            ". The dump tool of MariaDB cannot dump the history of this table, which is kept by transactions: exclude it."
        }
        _ => "",
    };
    let error = EngineError::new(code, context.log.redacted(&format!("{tool} {}{said}{hint}", ended(exit))));
    // The first that is reported: what follows may be the rest of a name with a line break in it.
    EngineError { database_error: lines.iter().find_map(|line| mysql_error(line)), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_known_by_their_number_and_not_by_names() {
        assert_eq!(mysql_error("ERROR 1146 (42S02) at line 3: Table 'a.b' doesn't exist"), Some(1146));
        let denied = "ERROR 1142 (42000) at line 1: SHOW VIEW command denied to user for table 'ERROR 1146 (42S02)'";
        assert_eq!(mysql_error(denied), Some(1142));
        for other in ["", "mysql: ERROR 1146 (42S02)", "ERROR at line 1: Unknown command", "ERROR 99999 (HY000): x"] {
            assert_eq!(mysql_error(other), None, "{other}");
        }
        let error = EngineError { database_error: mysql_error(denied), ..EngineError::internal(denied) };
        let error = error.reworded("The view could not be read: ERROR 1146 (42S02)");
        assert!(error.is_database_error(&[1142]) && !error.is_database_error(&[1146]));
    }

    #[test]
    fn names_are_names_whatever_is_in_them() {
        assert_eq!(pg_name("host=evil port=1"), "dbname='host=evil port=1'");
        assert_eq!(pg_name(r"a'b\c"), r"dbname='a\'b\\c'");
        let table = |schema: &str, name: &str| Table { schema: schema.to_owned(), name: name.to_owned() };
        assert_eq!(table("public", "t*").pg_pattern(), "\"public\".\"t*\"");
        assert!(table("public", "a.b").is("a.b") && table("a", "b").is("a.b") && !table("a", "b").is("a.bc"));
        assert_eq!(unhex("c3bc2e"), Some("ü.".to_owned()));
        assert_eq!((unhex("zz"), unhex("c")), (None, None));
        let login = Login { username: Some("a\"b".into()), password: Some(Secret::new(r#"p\w"d#'"#)) };
        assert_eq!(login.mysql_lines(), "user=\"a\\\"b\"\npassword=\"p\\\\w\\\"d#'\"\n");
    }

    #[test]
    fn what_people_can_do_about_a_failed_tool_is_said() {
        let (context, _lines) = Context::new(tokio_util::sync::CancellationToken::new());
        let exit = Exit { status: Some(1), signal: None };
        let told = |line: &str| explain("pg_dump", &exit, &[line.to_owned()], &context);
        let error = told("pg_dump: error: query failed: ERROR:  canceling statement due to statement timeout");
        assert!(error.message.contains("SET statement_timeout = 0"), "{}", error.message);
        let error = told("mariadb-dump: Got error: 1049: \"Unknown database 'a\\'b'\" when selecting the database");
        assert_eq!(error.code, FailureCode::RemoteFailed);
        assert_eq!(told("Unknown database 'ab'").code, FailureCode::DatabaseMissing);
    }
}
