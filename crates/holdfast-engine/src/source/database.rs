//! Databases of a server, dumped by their own tools over one channel. User and password are sent on standard input; a
//! name is one quoted word, so it cannot act as an option, a connection string or a pattern. This file holds what all
//! engines share; each engine has its own file beside it.

use holdfast_core::Secret;
use holdfast_core::database::DatabaseEngine;
use holdfast_core::source::DatabaseSource;

use crate::context::Context;
use crate::remote::Answer;

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
    pub database: DatabaseSource,
    pub login: Login,
}

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

pub(crate) fn unhex(text: &str) -> Option<String> {
    String::from_utf8(holdfast_core::random::from_hex(text.trim())?).ok()
}

/// The tables to exclude; logs a warning about names that do not exist.
pub(super) fn known_excluded(source: &DatabasePlan, tables: Vec<Table>, context: &Context) -> Vec<Table> {
    for text in &source.database.excluded_tables {
        if !tables.iter().any(|table| table.is(text)) {
            context.log.warn(format!("The excluded table {text} does not exist."));
        }
    }
    excluded_here(source, tables)
}

/// The tables to exclude from one database among several, which need not have all of them.
pub(super) fn excluded_here(source: &DatabasePlan, tables: Vec<Table>) -> Vec<Table> {
    tables.into_iter().filter(|table| source.database.excluded_tables.iter().any(|text| table.is(text))).collect()
}

/// Parses an answer with schema and table name on each line, both in hexadecimal.
pub(super) fn listed_tables(answer: &Answer) -> Vec<Table> {
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter_map(|(schema, name)| Some(Table { schema: unhex(schema)?, name: unhex(name)? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_recognised_with_and_without_its_schema() {
        let table = |schema: &str, name: &str| Table { schema: schema.to_owned(), name: name.to_owned() };
        assert!(table("public", "a.b").is("a.b") && table("a", "b").is("a.b") && !table("a", "b").is("a.bc"));
        assert_eq!(unhex("c3bc2e"), Some("ü.".to_owned()));
        assert_eq!((unhex("zz"), unhex("c")), (None, None));
    }
}
