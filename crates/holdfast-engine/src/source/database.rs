//! Databases of a server, dumped by their own tools over one channel. User and password are sent on standard input; a
//! name is one quoted word, so it cannot act as an option, a connection string or a pattern. This file holds what all
//! engines share; each engine has its own file beside it.

use holdfast_core::Secret;
use holdfast_core::database::DatabaseEngine;
use holdfast_core::run::FailureCode;

use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::remote::{Answer, ended};
use crate::ssh::Exit;

/// The database user to connect as.
#[derive(Debug, Clone, Default)]
pub struct Login {
    pub username: Option<String>,
    pub password: Option<Secret>,
}

/// What to dump.
#[derive(Debug, Clone)]
pub struct DatabasePlan {
    /// `None` to use whichever the server has.
    pub engine: Option<DatabaseEngine>,
    /// `None` for all databases.
    pub name: Option<String>,
    /// The path of a database that is a file.
    pub path: Option<String>,
    pub excluded_tables: Vec<String>,
    pub login: Login,
}

pub(crate) const EXIT_NO_TOOL: u32 = 98;

/// A table as a database lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub schema: String,
    pub name: String,
}

impl Table {
    /// Whether `text` means this table, with or without its schema. A name may contain dots itself.
    pub(super) fn is(&self, text: &str) -> bool {
        self.name == text
            || text.strip_prefix(&self.schema).and_then(|rest| rest.strip_prefix('.')) == Some(self.name.as_str())
    }
}

/// Whether a dump is complete. MySQL's dump tools continue after a table that they could not look up, and exit with 0.
pub(super) fn judge(tool: &str, exit: &Exit, lines: &[String], context: &Context) -> Result<()> {
    if !exit.success() || lines.iter().any(|line| line.contains("Couldn't ")) {
        return Err(explain(tool, exit, lines, context));
    }
    lines.iter().for_each(|line| context.log.warn(line));
    Ok(())
}

pub(crate) fn unhex(text: &str) -> Option<String> {
    String::from_utf8(holdfast_core::random::from_hex(text.trim())?).ok()
}

/// The tables to exclude; logs a warning about names that do not exist.
pub(super) fn known_excluded(source: &DatabasePlan, tables: Vec<Table>, context: &Context) -> Vec<Table> {
    for text in &source.excluded_tables {
        if !tables.iter().any(|table| table.is(text)) {
            context.log.warn(format!("The excluded table {text} does not exist."));
        }
    }
    excluded_here(source, tables)
}

/// The tables to exclude from one database among several, which need not have all of them.
pub(super) fn excluded_here(source: &DatabasePlan, tables: Vec<Table>) -> Vec<Table> {
    tables.into_iter().filter(|table| source.excluded_tables.iter().any(|text| table.is(text))).collect()
}

/// Parses an answer with schema and table name on each line, both in hexadecimal.
pub(super) fn listed_tables(answer: &Answer) -> Vec<Table> {
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter_map(|(schema, name)| Some(Table { schema: unhex(schema)?, name: unhex(name)? })).collect()
}

/// The answer, or an error if the tool failed.
pub(crate) fn answered(answer: Answer, tool: &str, context: &Context) -> Result<Answer> {
    if answer.exit.success() { Ok(answer) } else { Err(explain(tool, &answer.exit, &answer.stderr, context)) }
}

/// The error number in a line with which a MySQL client reports an error.
pub(crate) fn mysql_error(line: &str) -> Option<u16> {
    line.strip_prefix("ERROR ")?.split_once(" (")?.0.parse().ok()
}

/// Why a database tool failed, derived from its output.
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
    // MariaDB's dump tool escapes these characters in the name with which it selects the database.
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
    // Some clients print the statement before the error.
    let telling = lines.iter().find(|line| line.contains("ERROR") || line.contains("error:")).or(lines.first());
    let said = telling.map(|line| format!(": {line}")).unwrap_or_default();
    let hint = match telling {
        Some(line) if line.contains("due to statement timeout") => {
            ". A setting of the database or of the user cancels statements before the tool can turn it off. \
             ALTER ROLE … SET statement_timeout = 0 for the user of this backup overrides a setting of the database."
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
    // The first number reported: a later line may be the rest of a name that contains a line break.
    EngineError { mysql_error: lines.iter().find_map(|line| mysql_error(line)), ..error }
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
        let error = EngineError { mysql_error: mysql_error(denied), ..EngineError::internal(denied) };
        let error = error.reworded("The view could not be read: ERROR 1146 (42S02)");
        assert!(error.is_mysql_error(&[1142]) && !error.is_mysql_error(&[1146]));
    }

    #[test]
    fn a_table_is_recognised_with_and_without_its_schema() {
        let table = |schema: &str, name: &str| Table { schema: schema.to_owned(), name: name.to_owned() };
        assert!(table("public", "a.b").is("a.b") && table("a", "b").is("a.b") && !table("a", "b").is("a.bc"));
        assert_eq!(unhex("c3bc2e"), Some("ü.".to_owned()));
        assert_eq!((unhex("zz"), unhex("c")), (None, None));
    }

    #[test]
    fn errors_of_a_tool_say_what_people_can_do() {
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
