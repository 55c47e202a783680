//! Queries to PostgreSQL, and dumps of its databases.

use holdfast_core::Secret;
use holdfast_core::failure::FailureCode;

use super::PlainSink;
use super::database::{DatabasePlan, Login, Table, known_excluded, listed_tables, unhex};
use super::database_dump::{self, Dumping};
use super::tool::{Messages, Sign, Tool, answered};
use crate::error::Result;
use crate::remote::{Answer, Remote, Script};

/// Reads user and password from the first two lines of standard input. With a password, the connection is made over
/// TCP, since the socket mostly accepts only the system user; the account's own `PGHOST` takes precedence.
const PG_LOGIN: &str = r#"
IFS= read -r u; IFS= read -r w
[ -z "$u" ] || { PGUSER=$u; export PGUSER; }
[ -z "$w" ] || { PGPASSWORD=$w; export PGPASSWORD; PGHOST=${PGHOST:-localhost}; export PGHOST; }
PGCONNECT_TIMEOUT=15; PGAPPNAME=holdfast; export PGCONNECT_TIMEOUT PGAPPNAME
unset u w
"#;

/// Starts a session of `psql` that is safe from settings of roles and databases. The first of these is the search path:
/// the owner of a database could make names in our statements refer to their own functions and operators, which would
/// run as the user we are connected as. With an empty path, only the system's own are found. Settings that end
/// statements or idle sessions, or that refuse writes, are turned off. They are set in the session, and only those that
/// the server knows; with `PGOPTIONS`, servers that do not know one of them would refuse the connection, and so would
/// connection poolers. `pg_dump` and `pg_restore` set timeouts themselves. The output of the session goes to /dev/null
/// until `\o`.
pub(crate) const PSQL: &str = r#"command -v psql >/dev/null 2>&1 || exit 98
exec psql --dbname="$1" --no-psqlrc --no-password --quiet --command='\o /dev/null' \
    --command="SET search_path = ''" --command='SET statement_timeout = 0' --command="SELECT pg_catalog.set_config(name, '0', false) FROM \
    pg_catalog.pg_settings WHERE name IN ('default_transaction_read_only', 'idle_in_transaction_session_timeout', \
    'idle_session_timeout', 'lock_timeout', 'transaction_timeout')" "#;

static MESSAGES: Messages = Messages {
    signs: &[
        Sign::new(FailureCode::DatabaseMissing, &["database \"", "does not exist"]),
        Sign::new(FailureCode::DatabaseAuth, &["authentication failed"]),
        Sign::new(FailureCode::DatabaseAuth, &["no password supplied"]),
        Sign::new(FailureCode::DatabaseAuth, &["FATAL:  role \""]),
        Sign::new(FailureCode::DatabaseAuth, &["no pg_hba.conf entry"]),
        Sign::new(FailureCode::DatabaseUnreachable, &["Connection refused"]),
        Sign::new(FailureCode::DatabaseUnreachable, &["could not connect"]),
        Sign::new(FailureCode::DatabaseUnreachable, &["connection to server on socket"]),
        Sign::new(FailureCode::TargetFull, &["No space left on device"]),
        Sign::with_hint(
            &["due to statement timeout"],
            ". A setting of the database or of the user cancels statements before the tool can turn it off. ALTER ROLE \
             … SET statement_timeout = 0 for the user of this backup overrides a setting of the database.",
        ),
    ],
    incomplete: &[],
    number: |_| None,
};

/// A program of PostgreSQL.
pub(crate) const fn tool(name: &'static str) -> Tool {
    Tool { name, messages: &MESSAGES }
}

/// The login as the scripts read it.
pub(crate) fn login_lines(login: &Login) -> String {
    let password = login.password.as_ref().map(Secret::reveal).unwrap_or_default();
    format!("{}\n{password}\n", login.username.as_deref().unwrap_or_default())
}

/// A script with the login before it.
pub(crate) fn postgres(script: &str, words: &[&str]) -> Script {
    Script::new(&format!("{PG_LOGIN}{script}"), words)
}

/// A name as libpq reads it: whatever it contains, it is the name of a database and nothing else.
pub(crate) fn pg_name(name: &str) -> String {
    format!("dbname='{}'", name.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A table as a pattern of `pg_dump`, quoted so that no character in it is a wildcard.
fn pattern(table: &Table) -> String {
    let quoted = |part: &str| format!("\"{}\"", part.replace('"', "\"\""));
    format!("{}.{}", quoted(&table.schema), quoted(&table.name))
}

/// Runs one statement; its answer has one row on each line, without headings and padding.
pub(crate) async fn query(at: Remote<'_>, login: &Login, database: &str, sql: &str) -> Result<Answer> {
    let script = format!(
        "PGCLIENTENCODING=UTF8; export PGCLIENTENCODING\n{PSQL} --tuples-only --no-align --command='\\o' \
         --command=\"$2\""
    );
    at.ask(&postgres(&script, &[&pg_name(database), sql]), &login_lines(login)).await
}

/// The role that a dump has to act as if the settings of the database specify another: the owner of a database can make
/// everybody act as a role that may read less. A setting of the connected role itself is respected.
pub(super) async fn role_instead(at: Remote<'_>, login: &Login, name: &str) -> Result<Option<String>> {
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
    let answer = query(at, login, name, &sql).await?;
    // The dump tool connects to the same server and reports why that fails.
    if !answer.exit.success() {
        return Ok(None);
    }
    Ok(unhex(&String::from_utf8_lossy(&answer.stdout)).filter(|role| !role.is_empty()))
}

/// One database in the custom format of `pg_dump`.
pub(crate) fn pg_dump(name: &str, excluded: &[Table], role: Option<&str>) -> Script {
    let script = "command -v pg_dump >/dev/null 2>&1 || exit 98\n\
        exec pg_dump --format=custom --compress=0 --no-password \"$@\"";
    let mut words = vec![format!("--dbname={}", pg_name(name))];
    words.extend(role.map(|role| format!("--role={role}")));
    words.extend(excluded.iter().map(|table| format!("--exclude-table={}", pattern(table))));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    postgres(script, &words)
}

/// All tables of a database.
pub(super) async fn list_tables(at: Remote<'_>, login: &Login, database: &str) -> Result<Vec<Table>> {
    // Names may hold anything, so they come as hexadecimal digits.
    const SQL: &str = "SELECT encode(convert_to(schemaname, 'UTF8'), 'hex') || ' ' || encode(convert_to(tablename, \
        'UTF8'), 'hex') FROM pg_tables";
    let answer = query(at, login, database, SQL).await?;
    Ok(listed_tables(&answered(answer, tool("psql"), at.context)?))
}

/// Sends the dump of one database to `sink`.
pub(crate) async fn send(at: Remote<'_>, source: &DatabasePlan, name: &str, sink: &mut PlainSink) -> Result<()> {
    let excluded = match source.database.excluded_tables[..] {
        [] => Vec::new(),
        _ => known_excluded(source, list_tables(at, &source.login, name).await?, at.context),
    };
    let role = role_instead(at, &source.login, name).await?;
    let script = pg_dump(name, &excluded, role.as_deref());
    let dumping = Dumping { tool: tool("pg_dump"), script, input: login_lines(&source.login), first_wait: None };
    database_dump::send(at, dumping, sink).await
}

#[cfg(test)]
mod tests {
    use super::super::tool::explain;
    use super::*;
    use crate::context::Context;
    use crate::ssh::Exit;

    #[test]
    fn an_error_tells_what_people_can_do() {
        let (context, _lines) = Context::new(tokio_util::sync::CancellationToken::new());
        let exit = Exit { status: Some(1), signal: None };
        let told = |line: &str| explain(tool("pg_dump"), &exit, &[line.to_owned()], &context);
        let error = told("pg_dump: error: query failed: ERROR:  canceling statement due to statement timeout");
        assert!(error.message.contains("SET statement_timeout = 0"), "{}", error.message);
        let error = told("pg_dump: error: connection failed: FATAL:  database \"a\" does not exist");
        assert_eq!(error.code, FailureCode::DatabaseMissing);
    }

    #[test]
    fn names_are_names_whatever_is_in_them() {
        assert_eq!(pg_name("host=evil port=1"), "dbname='host=evil port=1'");
        assert_eq!(pg_name(r"a'b\c"), r"dbname='a\'b\\c'");
        let table = Table { schema: "public".to_owned(), name: "t*".to_owned() };
        assert_eq!(pattern(&table), "\"public\".\"t*\"");
    }
}
