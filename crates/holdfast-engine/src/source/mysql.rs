//! Queries to MySQL and MariaDB, and dumps of their databases.

use holdfast_core::Secret;
use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;

use super::database::{DatabasePlan, Login, Table, listed_tables, unhex};
use super::tool::{EXIT_NO_TOOL, Messages, Sign, Tool, answered};
use crate::archive::MysqlFacts;
use crate::context::Context;
use crate::error::Result;
use crate::mysql::grants::Grants;
use crate::remote::{self, Answer, Remote, Script};

/// Reads the two lines of the login, which are lines of an option file. The client gets its options from a
/// here-document and from nowhere else. In it, the connection settings of the account's own option files come first:
/// read by the client itself, these files would come last and win, and options such as `no-data` would change what a
/// dump contains.
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
/// Reads the rest of standard input as further lines of the option file: there may be more tables to exclude than fit
/// on a command line.
const MORE_OPTIONS: &str = "r=$(cat)\n";
/// Reads the rest of standard input as further arguments of the command: there may be more tables than fit in a script.
/// The system allows a quarter of the stack for arguments.
const MORE_WORDS: &str = "ulimit -s unlimited 2>/dev/null || :\nl=$(cat)\neval \"set -- \\\"\\$@\\\" $l\"\n";
/// Follows the client's command. Standard input has been read completely by then.
const MYSQL_OPTIONS: &str = "<<END\n$k\n[client]\n$u\n$w\n$r\nEND\n";

static MESSAGES: Messages = Messages {
    signs: &[
        // MariaDB's dump tool escapes these characters in the name with which it selects the database.
        Sign::with_hint(
            &["Unknown database '", "\\"],
            ". The dump tool of MariaDB cannot dump events of a database with a quote or a backslash in its name: drop \
             the events, or move them to another database.",
        ),
        Sign::new(FailureCode::DatabaseAuth, &["Access denied for user"]),
        Sign::new(FailureCode::DatabaseMissing, &["Unknown database"]),
        Sign::new(FailureCode::DatabaseUnreachable, &["Can't connect"]),
        Sign::new(FailureCode::DatabaseUnreachable, &["Connection refused"]),
        Sign::new(FailureCode::TargetFull, &["No space left on device"]),
        Sign::new(FailureCode::TargetFull, &["is full"]),
        Sign::new(FailureCode::TargetFull, &["Disk full"]),
        Sign::with_hint(
            &["Cannot use --dump-history"],
            ". The dump tool of MariaDB cannot dump the history of this table, which is kept by transactions: exclude \
             it.",
        ),
    ],
    // The dump tools continue after a table that they could not look up.
    incomplete: &["Couldn't "],
    number: error_number,
};

/// A program of MySQL or MariaDB.
pub(crate) const fn tool(name: &'static str) -> Tool {
    Tool { name, messages: &MESSAGES }
}

/// The error number in a line with which the client reports an error.
pub(crate) fn error_number(line: &str) -> Option<u16> {
    line.strip_prefix("ERROR ")?.split_once(" (")?.0.parse().ok()
}

/// The login as the scripts read it.
pub(crate) fn login_lines(login: &Login) -> String {
    let line = |name: &str, value: Option<&str>| match value {
        Some(value) => option_line(name, value),
        None => "\n".to_owned(),
    };
    let password = login.password.as_ref().map(Secret::reveal);
    format!("{}{}", line("user", login.username.as_deref()), line("password", password))
}

/// A line of an option file of MySQL.
fn option_line(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r");
    format!("{name}=\"{value}\"\n")
}

/// The option lines that make the tool skip tables.
pub(super) fn ignored_lines(tables: &[Table]) -> String {
    let lines = tables.iter().map(|table| option_line("ignore-table", &format!("{}.{}", table.schema, table.name)));
    format!("[mysqldump]\n{}", lines.collect::<String>())
}

/// A script that runs whichever of these clients is found first, with its options from a here-document.
pub(crate) fn mysql(clients: [&str; 2], line: &str, redirect: &str, words: &[&str]) -> Script {
    mysql_prepared(clients, "", line, redirect, words)
}

/// As `mysql`, with lines that run before the client, which is `$t` to them.
fn mysql_prepared(clients: [&str; 2], prepare: &str, line: &str, redirect: &str, words: &[&str]) -> Script {
    let [first, second] = clients;
    let find = format!("t=$(command -v {first} || command -v {second}) || exit {EXIT_NO_TOOL}\n{prepare}");
    Script::new(&format!("{MYSQL_LOGIN}{find}exec \"$t\" {line} {redirect}{MYSQL_OPTIONS}"), words)
}

pub(crate) const MYSQL_DUMP: [&str; 2] = ["mariadb-dump", "mysqldump"];
pub(crate) const MYSQL_CLIENT: [&str; 2] = ["mariadb", "mysql"];

/// Text as an SQL literal of MySQL, without any quoting to get wrong.
pub(crate) fn mysql_text(text: &str) -> String {
    format!("CONVERT(X'{}' USING utf8mb4)", holdfast_core::random::hex(text.as_bytes()))
}

/// Runs one statement; its answer is lines of tab-separated values.
pub(crate) async fn query(at: Remote<'_>, login: &Login, sql: &str) -> Result<Answer> {
    // The server may stop when nobody waits for the answer any longer.
    let line = format!(
        "--defaults-file=/dev/stdin --binary-mode --default-character-set=utf8mb4 --batch --skip-column-names \
         --init-command='SET SESSION sql_quote_show_create=1 /*M!100101 , max_statement_time={} */' --execute=\"$1\"",
        at.settings.answer.as_secs().max(1)
    );
    at.ask(&mysql(MYSQL_CLIENT, &line, "", &[sql]), &login_lines(login)).await
}

/// As `query`, with an error if the client failed.
pub(super) async fn answer_to(at: Remote<'_>, login: &Login, sql: &str) -> Result<Answer> {
    answered(query(at, login, sql).await?, tool("mysql"), at.context)
}

/// Options of all MySQL dumps, and some that only some of the tools know: the history of versioned tables, and leaving
/// out which transactions the server has seen, which would keep the dump from being loaded into the server it came
/// from. The dump takes no locks when it is loaded: a default that uses a sequence would fail then. Binary values are
/// text with escapes: as hexadecimal digits they would take twice the space, and rows of more than half a packet could
/// not be restored.
const MYSQL_DUMP_OPTIONS: &str = "--defaults-file=/dev/stdin $g $c --single-transaction --quick \
    --no-tablespaces --skip-add-locks --max-allowed-packet=1G";
const MYSQL_DUMP_KNOWN: &str = "o=$(\"$t\" --no-defaults --help 2>/dev/null)\n\
    case $o in *--dump-history*) h=--dump-history ;; *) h= ;; esac\n\
    case $o in *--set-gtid-purged*) g=--set-gtid-purged=OFF ;; *) g= ;; esac\n\
    case $o in *--column-statistics*) c=--column-statistics=0 ;; *) c= ;; esac\n";

/// A dump with further options; `words` are the database and its tables.
pub(super) fn mysql_dump_with(options: &str, words: &[&str]) -> Script {
    let prepare = format!("{MORE_OPTIONS}{MYSQL_DUMP_KNOWN}");
    let line = format!("{MYSQL_DUMP_OPTIONS} --default-character-set=utf8mb4 {options} -- \"$@\"");
    mysql_prepared(MYSQL_DUMP, &prepare, &line, "", words)
}

/// One database as SQL, with everything in it.
pub(super) fn mysql_dump(name: &str) -> Script {
    mysql_dump_with("$h --routines --triggers --events", &[name])
}

/// The rows of tables of one database as SQL. The names of the tables follow on standard input, as [`table_words`]
/// writes them.
pub(super) fn mysql_tables_dump(name: &str, tables: &[Table], set_of_rows: &str) -> Script {
    // Without names, the tool would open everything it finds, and opening a view may run functions.
    let (options, words) =
        if tables.is_empty() { ("--no-data", &["information_schema", "COLLATIONS"][..]) } else { ("$h", &[name][..]) };
    let options = format!("{options} --skip-triggers --no-create-info");
    let line = format!("{MYSQL_DUMP_OPTIONS} --default-character-set={set_of_rows} {options} -- \"$@\"");
    mysql_prepared(MYSQL_DUMP, &format!("{MORE_WORDS}{MYSQL_DUMP_KNOWN}"), &line, "", words)
}

/// Names of tables as quoted shell words.
pub(super) fn table_words(tables: &[Table]) -> String {
    tables.iter().map(|table| format!(" {}", remote::quote(&table.name))).collect()
}

/// All tables of a database, or of all databases of the server.
pub(super) async fn list_tables(at: Remote<'_>, source: &DatabasePlan) -> Result<Vec<Table>> {
    let only = source.database.name.as_ref().map(|name| format!(" WHERE table_schema = {}", mysql_text(name)));
    // Names may hold anything, so they come as hexadecimal digits.
    let select = "SELECT CONCAT(HEX(table_schema), ' ', HEX(table_name)) FROM information_schema.tables";
    let sql = format!("{select}{}", only.unwrap_or_default());
    Ok(listed_tables(&answer_to(at, &source.login, &sql).await?))
}

/// The privileges of the database user, both its own and those of its roles.
pub(super) async fn mysql_grants(at: Remote<'_>, login: &Login) -> Result<Grants> {
    // Some SQL modes quote names differently.
    const SQL: &str = "SET SESSION sql_mode = '';SHOW GRANTS";
    let answer = answer_to(at, login, SQL).await?;
    Ok(Grants::parse(answer.stdout.split(|byte| *byte == b'\n')))
}

/// Warns about databases, triggers and routines that the user may not see: the server does not mention them.
pub(super) async fn warn_of_privileges(at: Remote<'_>, source: &DatabasePlan) -> Result<()> {
    let context = at.context;
    let grants = mysql_grants(at, &source.login).await?;
    if source.database.name.is_none() && !grants.are_everywhere(&["SELECT", "SHOW DATABASES"]) {
        context.log.warn(
            "The database user sees only the databases that it has rights to; others, if there are any, are not in this \
             backup. Grant it SHOW DATABASES and SELECT on everything.",
        );
    }
    let may_change = ["INSERT", "UPDATE", "SUPER", "FILE", "CREATE USER"];
    if grants.are_everywhere(&["EXECUTE"]) && grants.are_everywhere(&may_change) {
        context.log.line(
            "The database user may change data and run everybody's functions. On a server shared by people who do not \
             trust each other, back up as a user who may only read.",
        );
    }
    let sees_triggers = |name: &str| grants.are_within(name, &["TRIGGER"]);
    // In MariaDB, a user who may read the table of routines sees all of them. Users with one of the other privileges
    // see that there are routines, and the backup fails if it cannot read them.
    let sees_all_routines =
        grants.are_everywhere(&["SELECT", "SHOW_ROUTINE"]) || grants.are_of_table("mysql", "proc", &["SELECT"]);
    let sees_routines = |name: &str| {
        sees_all_routines || grants.are_within(name, &["EXECUTE", "ALTER ROUTINE", "CREATE ROUTINE", "SHOW_ROUTINE"])
    };
    let names = match &source.database.name {
        Some(name) => vec![name.clone()],
        None => user_databases(at, &source.login).await?,
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

/// The most databases that are checked; no server has as many.
const MOST_DATABASES: usize = 10_000;

async fn user_databases(at: Remote<'_>, login: &Login) -> Result<Vec<String>> {
    let sql = "SELECT HEX(schema_name) FROM information_schema.schemata WHERE BINARY schema_name NOT IN \
        ('information_schema', 'performance_schema', 'mysql', 'sys')";
    let answer = answer_to(at, login, sql).await?;
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

/// Selects the settings of a database, for [`MysqlFacts::parse`].
pub(crate) fn set_up_sql(name: &str) -> String {
    format!(
        "SELECT CONCAT({}) FROM information_schema.schemata WHERE schema_name = {}",
        MysqlFacts::COLUMNS,
        mysql_text(name)
    )
}

#[cfg(test)]
mod tests {
    use super::super::tool::explain;
    use super::*;
    use crate::ssh::Exit;

    #[test]
    fn errors_are_known_by_their_number_and_not_by_names() {
        assert_eq!(error_number("ERROR 1146 (42S02) at line 3: Table 'a.b' doesn't exist"), Some(1146));
        let denied = "ERROR 1142 (42000) at line 1: SHOW VIEW command denied to user for table 'ERROR 1146 (42S02)'";
        assert_eq!(error_number(denied), Some(1142));
        for other in ["", "mysql: ERROR 1146 (42S02)", "ERROR at line 1: Unknown command", "ERROR 99999 (HY000): x"] {
            assert_eq!(error_number(other), None, "{other}");
        }
        let (context, _lines) = Context::new(tokio_util::sync::CancellationToken::new());
        let exit = Exit { status: Some(1), signal: None };
        let told = |line: &str| explain(tool("mysqldump"), &exit, &[line.to_owned()], &context);
        let error = told(denied).reworded("The view could not be read: ERROR 1146 (42S02)");
        assert!(error.has_number(&[1142]) && !error.has_number(&[1146]));
        let error = told("mariadb-dump: Got error: 1049: \"Unknown database 'a\\'b'\" when selecting the database");
        assert_eq!(error.code, FailureCode::RemoteFailed);
        assert!(error.message.contains("drop the events"), "{}", error.message);
        assert_eq!(told("Unknown database 'ab'").code, FailureCode::DatabaseMissing);
    }

    #[test]
    fn a_login_is_two_lines_whatever_is_in_it() {
        let login = Login { username: Some("a\"b".into()), password: Some(Secret::new(r#"p\w"d#'"#)) };
        assert_eq!(login_lines(&login), "user=\"a\\\"b\"\npassword=\"p\\\\w\\\"d#'\"\n");
    }
}
