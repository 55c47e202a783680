//! Questions to PostgreSQL, and dumps of its databases.

use holdfast_core::Secret;

use super::Outlet;
use super::database::{DatabasePlan, Login, Table, answered, known_excluded, listed_tables, unhex};
use super::database_dump::{self, Dumping};
use crate::error::Result;
use crate::remote::{Answer, Remote, Script};

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

/// The login as the scripts read it.
pub(crate) fn login_lines(login: &Login) -> String {
    let password = login.password.as_ref().map(Secret::reveal).unwrap_or_default();
    format!("{}\n{password}\n", login.username.as_deref().unwrap_or_default())
}

/// A script with the login before it.
pub(crate) fn postgres(script: &str, words: &[&str]) -> Script {
    Script::new(&format!("{PG_LOGIN}{script}"), words)
}

/// A name as libpq reads it: whatever is in it, it names a database and nothing else.
pub(crate) fn pg_name(name: &str) -> String {
    format!("dbname='{}'", name.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A table as `pg_dump`'s patterns read it: quoted, so that no sign in it is a pattern.
fn pattern(table: &Table) -> String {
    let quoted = |part: &str| format!("\"{}\"", part.replace('"', "\"\""));
    format!("{}.{}", quoted(&table.schema), quoted(&table.name))
}

/// One statement, its answer as lines of tab-separated values.
pub(crate) async fn query(at: Remote<'_>, login: &Login, database: &str, sql: &str) -> Result<Answer> {
    let script = format!(
        "PGCLIENTENCODING=UTF8; export PGCLIENTENCODING\n{PSQL} --tuples-only --no-align --command='\\o' \
         --command=\"$2\""
    );
    at.ask(&postgres(&script, &[&pg_name(database), sql]), &login_lines(login)).await
}

/// Whom a dump has to act as, when the database itself says otherwise: its owner can have everybody act as somebody who
/// may read less. What a role says about itself counts.
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
    Ok(listed_tables(&answered(answer, "The database client", at.context)?))
}

/// Sends the dump of one database to `outlet`.
pub(crate) async fn pump(at: Remote<'_>, source: &DatabasePlan, name: &str, outlet: &mut Outlet) -> Result<()> {
    let excluded = match source.excluded_tables[..] {
        [] => Vec::new(),
        _ => known_excluded(source, list_tables(at, &source.login, name).await?, at.context),
    };
    let role = role_instead(at, &source.login, name).await?;
    let script = pg_dump(name, &excluded, role.as_deref());
    let dumping = Dumping { tool: "pg_dump", script, input: login_lines(&source.login), first_wait: None };
    database_dump::pump(at, dumping, outlet).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_names_whatever_is_in_them() {
        assert_eq!(pg_name("host=evil port=1"), "dbname='host=evil port=1'");
        assert_eq!(pg_name(r"a'b\c"), r"dbname='a\'b\\c'");
        let table = Table { schema: "public".to_owned(), name: "t*".to_owned() };
        assert_eq!(pattern(&table), "\"public\".\"t*\"");
    }
}
