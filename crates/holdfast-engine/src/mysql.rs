//! MySQL and MariaDB servers as data: what a backup of a whole server says beside the dumps of its databases. Nothing
//! here talks to a server.

use std::io;

use serde::{Deserialize, Serialize};

use crate::archive::MysqlFacts;

/// The database with users and privileges. Its dump holds their rows alone, not the tables, which belong to a version of
/// the server.
pub(crate) const ACCOUNTS: &str = "mysql";
/// The longest name of a database, a table or a view.
pub(crate) const NAME_CHARS: usize = 64;

/// What a server has beside the contents of its databases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerFacts {
    pub databases: Vec<DatabaseFacts>,
    /// Views may read from any database, so they are made after all of them.
    pub views: Vec<View>,
    /// Whether users and privileges follow the databases.
    pub has_accounts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DatabaseFacts {
    pub name: String,
    #[serde(flatten)]
    pub set_up: MysqlFacts,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct View {
    pub database: String,
    pub name: String,
    /// As `SHOW CREATE VIEW` gives it.
    pub statement: String,
    pub collation: String,
}

impl ServerFacts {
    /// Reads a document that came with a backup and refuses what no server has.
    pub(crate) fn parse(document: &[u8]) -> io::Result<Self> {
        let facts: Self = serde_json::from_slice(document)?;
        let names = facts.databases.iter().map(|database| &database.name);
        let names = names.chain(facts.views.iter().flat_map(|view| [&view.database, &view.name]));
        let is_name = |name: &&String| !name.is_empty() && name.chars().count() <= NAME_CHARS && !name.contains('\0');
        let is_whole = names.into_iter().all(|name| is_name(&name))
            && facts.databases.iter().all(|database| database.set_up.is_plausible() && database.name != ACCOUNTS)
            && facts.views.iter().all(|view| is_word(&view.collation) && view.statement.starts_with(CREATE));
        if is_whole { Ok(facts) } else { Err(io::Error::other("the document of the server holds what no server has")) }
    }

    /// The dumps in the archive, in their order.
    pub(crate) fn dumps(&self) -> impl Iterator<Item = (usize, &str)> {
        let names = self.databases.iter().map(|database| database.name.as_str());
        names.chain(self.has_accounts.then_some(ACCOUNTS)).enumerate()
    }
}

/// How every server begins the statement of a view.
const CREATE: &str = "CREATE ";

impl View {
    /// A statement that makes the view whether or not there is one.
    pub(crate) fn sql(&self) -> String {
        let rest = self.statement.strip_prefix(CREATE).unwrap_or(&self.statement);
        // The client ends a statement at a semicolon; a view has none outside of text.
        let collation = match self.collation.starts_with("utf8mb4") {
            true => format!("SET collation_connection = {};\n", self.collation),
            false => String::new(),
        };
        format!("USE {};\n{collation}CREATE OR REPLACE {rest};\n", quoted(&self.database))
    }
}

/// Only what can be a name of a character set ever becomes SQL.
pub(crate) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl MysqlFacts {
    pub(crate) fn is_plausible(&self) -> bool {
        is_word(&self.character_set) && is_word(&self.collation)
    }
}

/// A name as part of a statement.
pub(crate) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A value as the client prints it in batch mode: line breaks, tabs, zeros and backslashes are escaped.
pub(crate) fn unescaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('0') => text.push('\0'),
                Some(other) => text.push(other),
                None => text.push('\\'),
            },
            (c, false) => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_what_a_server_has_or_is_refused() {
        let document = |name: &str, collation: &str, statement: &str| {
            let set_up = MysqlFacts { character_set: "utf8mb4".into(), collation: collation.into() };
            let view = View {
                database: "a".into(),
                name: "v".into(),
                statement: statement.into(),
                collation: "utf8mb4_bin".into(),
            };
            let databases = vec![DatabaseFacts { name: name.into(), set_up }];
            serde_json::to_vec(&ServerFacts { databases, views: vec![view], has_accounts: true }).unwrap()
        };
        let whole = ServerFacts::parse(&document("shöp", "utf8mb4_bin", "CREATE VIEW `v` AS select 1")).unwrap();
        assert_eq!(whole.dumps().collect::<Vec<_>>(), [(0, "shöp"), (1, "mysql")]);
        let made = "USE `a`;\nSET collation_connection = utf8mb4_bin;\nCREATE OR REPLACE VIEW `v` AS select 1;\n";
        assert_eq!(whole.views[0].sql(), made);
        for (name, collation, statement) in [
            ("", "utf8mb4_bin", "CREATE VIEW"),
            ("mysql", "utf8mb4_bin", "CREATE VIEW"),
            ("a", "utf8mb4_bin; DROP", "CREATE VIEW"),
            ("a", "utf8mb4_bin", "DROP VIEW"),
        ] {
            assert!(ServerFacts::parse(&document(name, collation, statement)).is_err(), "{name} {collation}");
        }
    }

    #[test]
    fn values_of_the_client_are_read_as_they_were() {
        assert_eq!(unescaped(r"a\nb\tc\\n\0'\'"), "a\nb\tc\\n\0''");
    }
}
