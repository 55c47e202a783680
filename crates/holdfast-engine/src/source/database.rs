//! Databases of a server: dumped by their own tools over one channel. User and password travel on standard input; a
//! name is one quoted word and can be neither an option, a connection string nor a pattern.

use holdfast_core::Secret;
use holdfast_core::backup::Content;
use holdfast_core::run::FailureCode;
use holdfast_core::task::DatabaseEngine;

use super::Outlet;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::remote::{self, Answer, RemoteSettings, end_of, ended, next_chunk};
use crate::ssh::{Connection, Exit, Process};

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
LC_ALL=C; export LC_ALL
IFS= read -r u; IFS= read -r w
[ -z "$u" ] || { PGUSER=$u; export PGUSER; }
[ -z "$w" ] || { PGPASSWORD=$w; export PGPASSWORD; PGHOST=${PGHOST:-localhost}; export PGHOST; }
PGCONNECT_TIMEOUT=15; PGAPPNAME=holdfast; export PGCONNECT_TIMEOUT PGAPPNAME
unset u w
"#;

/// The two lines are lines of an option file, which the client gets as a document of its own.
const MYSQL_LOGIN: &str = r#"
LC_ALL=C; export LC_ALL
IFS= read -r u; IFS= read -r w
"#;
/// Follows the client's command. Standard input is done with by then.
const MYSQL_OPTIONS: &str = "<<END\n[client]\n$u\n$w\nEND\n";

impl Login {
    fn postgres_lines(&self) -> String {
        let password = self.password.as_ref().map(Secret::reveal).unwrap_or_default();
        format!("{}\n{password}\n", self.username.as_deref().unwrap_or_default())
    }

    fn mysql_lines(&self) -> String {
        let line = |name: &str, value: Option<&str>| match value {
            Some(value) => format!("{name}=\"{}\"\n", value.replace('\\', "\\\\").replace('"', "\\\"")),
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

/// A PostgreSQL script with the login before it.
pub(crate) fn postgres(script: &str, words: &[&str]) -> String {
    remote::command(&format!("{PG_LOGIN}{script}"), words)
}

/// A script that runs the first of these clients with its options from a document; `{}` in `line` is the client.
pub(crate) fn mysql(clients: [&str; 2], line: &str, redirect: &str, words: &[&str]) -> String {
    let [first, second] = clients;
    let find = format!("t=$(command -v {first} || command -v {second}) || exit {EXIT_NO_TOOL}\n");
    remote::command(&format!("{MYSQL_LOGIN}{find}exec \"$t\" {line} {redirect}{MYSQL_OPTIONS}"), words)
}

const MYSQL_DUMP: [&str; 2] = ["mariadb-dump", "mysqldump"];
pub(crate) const MYSQL_CLIENT: [&str; 2] = ["mariadb", "mysql"];

/// A name as libpq reads it: whatever is in it, it names a database and nothing else.
pub(crate) fn pg_name(name: &str) -> String {
    format!("dbname='{}'", name.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A table as `pg_dump`'s patterns read it: quoted, so that no sign in it is a pattern.
fn pg_table(name: &str) -> String {
    let quoted = |part: &str| format!("\"{}\"", part.replace('"', "\"\""));
    match name.split_once('.') {
        Some((schema, table)) => format!("{}.{}", quoted(schema), quoted(table)),
        None => format!("*.{}", quoted(name)),
    }
}

/// Text as an SQL literal of either engine, without any quoting to get wrong.
pub(crate) fn mysql_text(text: &str) -> String {
    format!("CONVERT(X'{}' USING utf8mb4)", holdfast_core::random::hex(text.as_bytes()))
}

pub(crate) fn pg_text(text: &str) -> String {
    format!("convert_from(decode('{}', 'hex'), 'UTF8')", holdfast_core::random::hex(text.as_bytes()))
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
    let answer = remote::ask(connection, settings, context, &remote::command(LOOK, &[]), "").await?;
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
            "command -v psql >/dev/null 2>&1 || exit 98\nexec psql --no-psqlrc --no-password --quiet --tuples-only \
             --no-align --dbname=\"$1\" --command=\"$2\"",
            &[&pg_name(database), sql],
        ),
        DatabaseEngine::Mysql => mysql(
            MYSQL_CLIENT,
            "--defaults-extra-file=/dev/stdin --batch --skip-column-names --execute=\"$1\"",
            "",
            &[sql],
        ),
    };
    remote::ask(connection, settings, context, &command, &login.lines(engine)).await
}

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
    let (tool, command) = dump_command(source, engine, &excluded);
    let Process { mut stdin, mut stdout, .. } = connection.exec(&command).await?;
    let login = source.login.lines(engine);
    let _unwanted = stdin.write_all(login.into_bytes()).await;
    let _unwanted = stdin.close().await;
    while let Some(chunk) = next_chunk(&mut stdout, settings.stall, &context.cancel).await? {
        outlet.send(chunk).await?;
    }
    let exit = end_of(&mut stdout, settings.stall, &context.cancel).await?;
    let lines = remote::lines(stdout.stderr());
    if exit.success() {
        for line in &lines {
            context.log.warn(line);
        }
        return Ok(());
    }
    Err(explain(tool, &exit, &lines, context))
}

fn dump_command(source: &DatabaseSource, engine: DatabaseEngine, excluded: &[String]) -> (&'static str, String) {
    match Content::of_database(engine, source.name.is_some()) {
        Content::PostgresDatabase => {
            let script = "command -v pg_dump >/dev/null 2>&1 || exit 98\n\
                exec pg_dump --format=custom --compress=0 --no-password \"$@\"";
            let mut words = vec![format!("--dbname={}", pg_name(source.name.as_deref().unwrap_or_default()))];
            words.extend(excluded.iter().map(|table| format!("--exclude-table={}", pg_table(table))));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            ("pg_dump", postgres(script, &words))
        }
        Content::PostgresCluster => {
            let script =
                "command -v pg_dumpall >/dev/null 2>&1 || exit 98\nexec pg_dumpall --clean --if-exists --no-password";
            ("pg_dumpall", postgres(script, &[]))
        }
        _ => {
            const OPTIONS: &str = "--defaults-extra-file=/dev/stdin --single-transaction --quick --routines --triggers \
                --events --hex-blob --no-tablespaces --default-character-set=utf8mb4 \"$@\"";
            let words: Vec<String> = match &source.name {
                Some(name) => {
                    let ignored = excluded.iter().map(|table| format!("--ignore-table={}", mysql_table(name, table)));
                    ignored.chain(["--".to_owned(), name.clone()]).collect()
                }
                None => {
                    let ignored = excluded.iter().map(|table| format!("--ignore-table={table}"));
                    ignored.chain(["--all-databases".to_owned()]).collect()
                }
            };
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            ("mysqldump", mysql(MYSQL_DUMP, OPTIONS, "", &words))
        }
    }
}

fn mysql_table(database: &str, table: &str) -> String {
    let prefix = format!("{database}.");
    if table.starts_with(&prefix) { table.to_owned() } else { format!("{prefix}{table}") }
}

/// The excluded tables that exist; a misspelt one is told, not silently ignored.
async fn known_excluded(
    connection: &Connection,
    source: &DatabaseSource,
    engine: DatabaseEngine,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Vec<String>> {
    if source.excluded_tables.is_empty() {
        return Ok(Vec::new());
    }
    let content = Content::of_database(engine, source.name.is_some());
    if content == Content::PostgresCluster {
        context.log.warn("Tables cannot be excluded from a dump of all databases; everything is in it.");
        return Ok(Vec::new());
    }
    let (database, sql) = match (&source.name, engine) {
        (Some(name), DatabaseEngine::Postgresql) => (
            name.as_str(),
            "SELECT schemaname || '.' || tablename FROM pg_tables UNION SELECT tablename FROM pg_tables".to_owned(),
        ),
        (Some(name), DatabaseEngine::Mysql) => (
            "",
            format!(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = {0} UNION \
                 SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables WHERE table_schema = {0}",
                mysql_text(name)
            ),
        ),
        (None, _) => ("", "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables".to_owned()),
    };
    let answer = query(connection, engine, database, &sql, &source.login, settings, context).await?;
    if !answer.exit.success() {
        return Err(explain("The database client", &answer.exit, &answer.stderr, context));
    }
    let names = String::from_utf8_lossy(&answer.stdout).into_owned();
    let (known, unknown): (Vec<String>, Vec<String>) =
        source.excluded_tables.iter().cloned().partition(|table| names.lines().any(|name| name == table));
    for table in unknown {
        context.log.warn(format!("The excluded table {table} does not exist."));
    }
    Ok(known)
}

/// Why a database tool failed, from what it says.
pub(crate) fn explain(tool: &str, exit: &Exit, lines: &[String], context: &Context) -> EngineError {
    const SIGNS: &[(FailureCode, &[&str])] = &[
        (
            FailureCode::DatabaseAuth,
            &[
                "authentication failed",
                "no password supplied",
                "Access denied",
                "FATAL:  role \"",
                "no pg_hba.conf entry",
            ],
        ),
        (FailureCode::DatabaseMissing, &["Unknown database"]),
        (
            FailureCode::DatabaseUnreachable,
            &["Connection refused", "could not connect", "Can't connect", "connection to server on socket"],
        ),
        (FailureCode::DestinationFull, &["No space left on device"]),
    ];
    for line in lines {
        context.log.line(line);
    }
    if exit.status == Some(EXIT_NO_TOOL) || exit.status == Some(127) {
        return EngineError::new(FailureCode::ToolMissing, format!("The server has no {tool}."));
    }
    let is_missing = |line: &String| line.contains("database \"") && line.contains("does not exist");
    let code = if lines.iter().any(is_missing) {
        FailureCode::DatabaseMissing
    } else {
        let fits = |signs: &&[&str]| lines.iter().any(|line| signs.iter().any(|sign| line.contains(sign)));
        SIGNS.iter().find(|(_, signs)| fits(signs)).map_or(FailureCode::RemoteFailed, |(code, _)| *code)
    };
    let said = lines.first().map(|line| format!(": {line}")).unwrap_or_default();
    EngineError::new(code, context.log.redacted(&format!("{tool} {}{said}", ended(exit))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_names_whatever_is_in_them() {
        assert_eq!(pg_name("host=evil port=1"), "dbname='host=evil port=1'");
        assert_eq!(pg_name(r"a'b\c"), r"dbname='a\'b\\c'");
        assert_eq!(pg_table("public.t*"), "\"public\".\"t*\"");
        assert_eq!(pg_table("a\"b"), "*.\"a\"\"b\"");
        assert_eq!(mysql_table("shop", "t"), "shop.t");
        assert_eq!(mysql_table("shop", "shop.t"), "shop.t");
        let login = Login { username: Some("a\"b".into()), password: Some(Secret::new(r#"p\w"d#'"#)) };
        assert_eq!(login.mysql_lines(), "user=\"a\\\"b\"\npassword=\"p\\\\w\\\"d#'\"\n");
    }
}
