//! MySQL and MariaDB servers as data: what a backup of a whole server contains in addition to the dumps of its
//! databases. Nothing here connects to a server.

pub(crate) mod definitions;
pub(crate) mod grants;
mod heads;
pub(crate) mod quotes;
pub(crate) mod renaming;
pub(crate) mod rewriting;
pub(crate) mod statements;
pub(crate) mod tables;

use std::io;

use holdfast_core::random;
use serde::{Deserialize, Serialize};

use crate::archive::MysqlFacts;

/// The database with users and privileges. Its dump holds only their rows, not the tables, which depend on the version
/// of the server.
pub(crate) const ACCOUNTS: &str = "mysql";
/// A condition that excludes the databases that belong to the server itself. Names are case-sensitive on most servers,
/// and somebody may have created a `sys` of their own where the server has none.
pub(crate) const NOT_THE_SERVERS: &str = "BINARY schema_name NOT IN ('information_schema', 'performance_schema', \
    'mysql') AND NOT (BINARY schema_name = 'sys' AND EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = \
    'sys' AND table_name = 'sys_config')) AND schema_name NOT LIKE '#mysql50#%'";
/// The longest name of a database, a table or a view.
pub(crate) const NAME_CHARS: usize = 64;
/// The prefix of copies that a restore creates next to a database; a number and the database's own name follow.
pub(crate) const COPY: &str = "holdfast_";
/// The longest comment on a database.
const COMMENT_CHARS: usize = 1024;
/// The longest name of any kind; names of roles may be longer than others.
const LONGEST_NAME: usize = 128;

/// What a server has in addition to the contents of its databases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerFacts {
    pub databases: Vec<DumpedDatabase>,
    /// Views may read from any database, so they are created after all of them.
    pub views: Vec<View>,
    /// Routines may run as a role, which must exist when they are created.
    pub roles: Vec<String>,
    /// Whether users and privileges follow the databases.
    pub has_accounts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DumpedDatabase {
    pub name: String,
    #[serde(flatten)]
    pub set_up: MysqlFacts,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct View {
    pub database: String,
    pub name: String,
    /// The output of `SHOW CREATE VIEW` in the view's character set, in hexadecimal digits because it may contain any
    /// bytes.
    pub statement: String,
    pub character_set: String,
    pub collation: String,
}

impl ServerFacts {
    /// Parses the document in a backup and refuses values that no server can have.
    pub(crate) fn parse(document: &[u8]) -> io::Result<Self> {
        let mut facts: Self = serde_json::from_slice(document)?;
        // Earlier backups list PUBLIC among the roles.
        facts.roles.retain(|role| !is_public(role));
        let names = facts.databases.iter().map(|database| &database.name).chain(&facts.roles);
        let names = names.chain(facts.views.iter().flat_map(|view| [&view.database, &view.name]));
        let is_name = |name: &&String| !name.is_empty() && name.chars().count() <= LONGEST_NAME && !name.contains('\0');
        let is_view = |view: &View| is_word(&view.character_set) && is_word(&view.collation) && view.parts().is_some();
        // Either all databases of a server have their definitions as data, or none.
        let have_definitions = facts.databases.iter().filter(|database| database.set_up.has_definitions).count();
        let is_whole = names.into_iter().all(|name| is_name(&name))
            && [0, facts.databases.len()].contains(&have_definitions)
            && facts.databases.iter().all(|database| database.set_up.is_plausible() && database.name != ACCOUNTS)
            && facts.views.iter().all(is_view);
        if is_whole { Ok(facts) } else { Err(io::Error::other("the server document contains impossible values")) }
    }

    /// The dumps in the archive, in order.
    pub(crate) fn dumps(&self) -> impl Iterator<Item = (usize, &str)> {
        let names = self.databases.iter().map(|database| database.name.as_str());
        names.chain(self.has_accounts.then_some(ACCOUNTS)).enumerate()
    }
}

/// The parts of a statement that creates a view.
pub(crate) struct ViewParts {
    algorithm: Vec<u8>,
    /// A user or a role, quoted.
    pub definer: Vec<u8>,
    pub security: Vec<u8>,
    /// The name and everything after it.
    pub rest: Vec<u8>,
}

impl View {
    /// The parts of the statement; `None` if it does not create a view.
    pub(crate) fn parts(&self) -> Option<ViewParts> {
        fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
            let end = text.iter().position(|byte| !byte.is_ascii_uppercase())?;
            (end > 0).then(|| text.split_at(end))
        }
        let statement = random::from_hex(&self.statement)?;
        let (algorithm, rest) = word(statement.strip_prefix(b"CREATE ALGORITHM=")?)?;
        let rest = rest.strip_prefix(b" DEFINER=")?;
        let (definer, rest) = rest.split_at(account_length(rest)?);
        let (security, rest) = word(rest.strip_prefix(b" SQL SECURITY ")?)?;
        let rest = rest.strip_prefix(b" VIEW ")?;
        let owned = |part: &[u8]| part.to_vec();
        Some(ViewParts {
            algorithm: owned(algorithm),
            definer: owned(definer),
            security: owned(security),
            rest: owned(rest),
        })
    }

    /// Statements that create or replace the view in the current database. The view is prepared from a hexadecimal
    /// value, so that it remains a single statement whatever it contains, and is read in the character set it was
    /// written in.
    pub(crate) fn sql(&self, definer: Option<&[u8]>) -> String {
        let Some(ViewParts { algorithm, security, rest, .. }) = &self.parts() else { return String::new() };
        let definer = definer.map(|definer| [b"DEFINER=", definer, b" "].concat()).unwrap_or_default();
        let parts = [
            b"CREATE OR REPLACE ALGORITHM=",
            &algorithm[..],
            b" ",
            &definer,
            b"SQL SECURITY ",
            security,
            b" VIEW ",
            rest,
        ];
        let (statement, character_set) = (random::hex(&parts.concat()), &self.character_set);
        format!(
            "SET NAMES utf8mb4;\nSET SESSION sql_mode = '', @holdfast_view = NULL;\n\
             SET SESSION character_set_client = {character_set}, collation_connection = {}, @holdfast_view = \
             X'{statement}';\n\
             PREPARE holdfast_view FROM @holdfast_view;\nEXECUTE holdfast_view;\nDEALLOCATE PREPARE holdfast_view;\n",
            self.collation
        )
    }

    /// The same in the view's own database, with its definer.
    pub(crate) fn sql_with_database(&self) -> String {
        let definer = self.parts().map(|parts| parts.definer);
        format!("USE {};\n{}", quoted(&self.database), self.sql(definer.as_deref()))
    }
}

/// The length of the user or role name that `text` begins with, including its quotes.
pub(crate) fn account_length(text: &[u8]) -> Option<usize> {
    let user = name_length(text)?;
    match text[user..].strip_prefix(b"@") {
        Some(host) => Some(user + 1 + name_length(host)?),
        None => Some(user),
    }
}

/// The length of the quoted name that `text` begins with. With ANSI quotes these are double quotes; a quote within the
/// name is doubled.
pub(crate) fn name_length(text: &[u8]) -> Option<usize> {
    let quote = text.first().filter(|first| b"`\"".contains(first))?;
    let mut at = 1;
    loop {
        at += text[at..].iter().position(|byte| byte == quote)? + 1;
        if text.get(at) != Some(quote) {
            return Some(at);
        }
        at += 1;
    }
}

/// A name without its quotes.
pub(crate) fn unquoted_name(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let Some(quote) = text.chars().next().filter(|first| "`\"".contains(*first)) else { return text.into_owned() };
    let inner = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)).unwrap_or_default();
    inner.replace(&format!("{quote}{quote}"), &quote.to_string())
}

/// Whether this can be the name of a character set or collation; nothing else is put into SQL.
pub(crate) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl MysqlFacts {
    /// The columns to query, as read by [`MysqlFacts::parse`]. The second part is only for MariaDB 10.5 and later.
    pub(crate) const COLUMNS: &str = "default_character_set_name, ' ', default_collation_name /*M!100500 , ' ', \
                                      HEX(schema_comment) */";

    pub(crate) fn parse(answer: &str) -> Option<Self> {
        let mut words = answer.trim().split(' ');
        let (character_set, collation) = (words.next()?.to_owned(), words.next()?.to_owned());
        let comment = match words.next().filter(|digits| !digits.is_empty()) {
            Some(digits) => Some(String::from_utf8(random::from_hex(digits)?).ok()?),
            None => None,
        };
        words.next().is_none().then_some(Self { character_set, collation, comment, has_definitions: false })
    }

    pub(crate) fn is_plausible(&self) -> bool {
        let is_comment = |comment: &String| comment.chars().count() <= COMMENT_CHARS;
        is_word(&self.character_set) && is_word(&self.collation) && self.comment.iter().all(is_comment)
    }
}

/// Whether this database is a copy that a restore created next to the one it replaces. Earlier versions put the number
/// last.
pub(crate) fn is_copy(name: &str) -> bool {
    let is_number = |text: &str| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let first = name.strip_prefix(COPY).and_then(|rest| rest.split_once('_'));
    first.is_some_and(|(number, _)| is_number(number))
        || name.rsplit_once("_holdfast_").is_some_and(|(_, number)| is_number(number))
}

/// Whether this is MariaDB's PUBLIC, which stands for all users. It is listed like a role, but cannot be created: it
/// exists through the rows of its privileges.
pub(crate) fn is_public(role: &str) -> bool {
    role.trim_end().eq_ignore_ascii_case("PUBLIC")
}

/// Quotes a name for use in a statement.
pub(crate) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Undoes the client's escaping in batch mode of line breaks, tabs, NUL bytes and backslashes.
pub(crate) fn unescaped(value: &[u8]) -> Vec<u8> {
    let mut bytes = value.iter();
    let mut text = Vec::with_capacity(value.len());
    while let Some(byte) = bytes.next() {
        let escaped = if *byte == b'\\' { bytes.next() } else { None };
        text.push(match escaped {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(other) => *other,
            None => *byte,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(statement: &str) -> View {
        View {
            database: "a`b".into(),
            name: "v".into(),
            statement: random::hex(statement.as_bytes()),
            character_set: "latin1".into(),
            collation: "latin1_bin".into(),
        }
    }

    #[test]
    fn a_document_with_impossible_values_is_refused() {
        let document = |name: &str, collation: &str, statement: &str| {
            let set_up = MysqlFacts {
                character_set: "utf8mb4".into(),
                collation: collation.into(),
                comment: None,
                has_definitions: false,
            };
            let databases = vec![DumpedDatabase { name: name.into(), set_up }];
            let facts =
                ServerFacts { databases, views: vec![view(statement)], has_accounts: true, ..Default::default() };
            serde_json::to_vec(&facts).unwrap()
        };
        const VIEW: &str = "CREATE ALGORITHM=UNDEFINED DEFINER=`a``b`@`%` SQL SECURITY DEFINER VIEW `v` AS select 1";
        let whole = ServerFacts::parse(&document("shöp", "utf8mb4_bin", VIEW)).unwrap();
        assert_eq!(whole.dumps().collect::<Vec<_>>(), [(0, "shöp"), (1, "mysql")]);
        assert_eq!(whole.views[0].parts().unwrap().definer, b"`a``b`@`%`");
        let role = VIEW.replace("@`%`", "");
        assert_eq!(view(&role).parts().unwrap().definer, b"`a``b`");
        for (name, collation, statement) in [
            ("", "utf8mb4_bin", VIEW),
            ("mysql", "utf8mb4_bin", VIEW),
            ("a", "utf8mb4_bin; DROP", VIEW),
            ("a", "utf8mb4_bin", "DROP VIEW"),
            ("a", "utf8mb4_bin", "CREATE USER x"),
            ("a", "utf8mb4_bin", "CREATE ALGORITHM=X DEFINER=`a`@`%`; DROP USER b SQL SECURITY DEFINER VIEW "),
        ] {
            assert!(ServerFacts::parse(&document(name, collation, statement)).is_err(), "{name} {statement}");
        }
    }

    #[test]
    fn a_server_has_its_definitions_as_data_in_all_databases_or_in_none() {
        let database = |name: &str, has_definitions| DumpedDatabase {
            name: name.into(),
            set_up: MysqlFacts {
                character_set: "utf8mb4".into(),
                collation: "utf8mb4_bin".into(),
                comment: None,
                has_definitions,
            },
        };
        for (first, second) in [(true, true), (false, false), (true, false), (false, true)] {
            let databases = vec![database("a", first), database("b", second)];
            let document = serde_json::to_vec(&ServerFacts { databases, ..Default::default() }).unwrap();
            assert_eq!(ServerFacts::parse(&document).is_ok(), first == second, "{first} {second}");
        }
    }

    #[test]
    fn public_is_not_a_role() {
        let roles = ["runs", "PUBLIC", "public ", "publicans"].map(str::to_owned).to_vec();
        let document = serde_json::to_vec(&ServerFacts { roles, ..Default::default() }).unwrap();
        assert_eq!(ServerFacts::parse(&document).unwrap().roles, ["runs", "publicans"]);
    }

    #[test]
    fn a_view_is_one_statement_whatever_is_in_it() {
        let evil =
            view("CREATE ALGORITHM=MERGE DEFINER=`r` SQL SECURITY INVOKER VIEW `v` AS select 1;\nDROP DATABASE x");
        assert!(evil.sql_with_database().starts_with("USE `a``b`;\n"));
        let sql = evil.sql(None);
        assert!(!sql.contains("DROP") && !sql.contains("USE"), "{sql}");
        let hex = sql.split("X'").nth(1).unwrap().split('\'').next().unwrap();
        let made = String::from_utf8(random::from_hex(hex).unwrap()).unwrap();
        assert!(made.starts_with("CREATE OR REPLACE ALGORITHM=MERGE SQL SECURITY INVOKER VIEW `v` AS"), "{made}");
    }

    #[test]
    fn values_printed_by_the_client_are_unescaped() {
        assert_eq!(unescaped(br"a\nb\tc\\n\0'\'"), b"a\nb\tc\\n\0''");
    }
}
