//! A dump in SQL, as `pg_dump` and `mysqldump` write it: rows of the tables that are wanted, and nothing else of it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use crate::failure::Failure;

const WANTED: &[&str] = &[
    "users",
    "remote_servers",
    "backup_destinations",
    "backup_tasks",
    "notification_streams",
    "backup_task_notification_streams",
    "tags",
    "taggables",
];
/// A single statement that is longer was not written by a person or their tools.
const STATEMENT_BYTES: usize = 256 << 20;

/// A row: what is NULL or missing is not there.
#[derive(Debug, Clone, Default)]
pub struct Row(HashMap<String, String>);

impl Row {
    pub fn text(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or_default()
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|text| !text.is_empty())
    }

    pub fn is_true(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|text| ["t", "true", "1"].contains(&text.as_str()))
    }
}

#[derive(Debug, Default)]
pub struct Dump {
    tables: HashMap<String, Vec<Row>>,
    /// Of statements that name none.
    columns: HashMap<String, Vec<String>>,
}

impl Dump {
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|error| Failure::io(&error, path))?;
        let mut reader = BufReader::new(file);
        let start = reader.fill_buf().map_err(|error| Failure::io(&error, path))?;
        if start.starts_with(b"PGDMP") {
            return Err(Failure::settings(format!(
                "{0} is in pg_dump's own format; run `pg_restore --file=dump.sql {0}` first",
                path.display()
            )));
        }
        let mut dump = Self::default();
        dump.take(&mut reader).map_err(|error| Failure::io(&error, path))?;
        if dump.tables.get("users").is_none_or(Vec::is_empty) {
            return Err(Failure::settings(format!(
                "{} is no dump of Vanguard's database: it has no users",
                path.display()
            )));
        }
        Ok(dump)
    }

    pub fn rows(&self, table: &str) -> impl Iterator<Item = &Row> {
        self.tables.get(table).into_iter().flatten()
    }

    fn take(&mut self, reader: &mut impl std::io::BufRead) -> std::io::Result<()> {
        let mut line = Vec::new();
        let mut statement = String::new();
        let mut copying: Option<(String, Vec<String>)> = None;
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                // A dump that broke off would be taken for all there is.
                let is_whole = copying.is_none() && statement.is_empty();
                let broken = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the dump breaks off");
                return if is_whole { Ok(()) } else { Err(broken()) };
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            if let Some((table, columns)) = &copying {
                if text == "\\." {
                    copying = None;
                } else if WANTED.contains(&table.as_str()) {
                    let row = copied(columns, text);
                    self.tables.entry(table.clone()).or_default().push(row);
                }
                continue;
            }
            if statement.is_empty() {
                if let Some(header) = text.strip_prefix("COPY ").and_then(|rest| rest.strip_suffix(" FROM stdin;")) {
                    copying = header.split_once('(').map(|(name, columns)| {
                        (bare(name), columns.trim_end_matches(')').split(',').map(bare).collect())
                    });
                    continue;
                }
                if !text.starts_with("INSERT INTO ") && !text.starts_with("CREATE TABLE ") {
                    continue;
                }
            }
            statement.push_str(text);
            statement.push('\n');
            if is_whole(&statement) || statement.len() > STATEMENT_BYTES {
                self.understand(&statement);
                statement.clear();
            }
        }
    }

    fn understand(&mut self, statement: &str) {
        if let Some(rest) = statement.strip_prefix("CREATE TABLE ") {
            let Some((name, body)) = rest.split_once('(') else { return };
            let name = bare(name.trim_start_matches("IF NOT EXISTS "));
            let no_column = ["CONSTRAINT", "PRIMARY", "UNIQUE", "KEY", "FOREIGN", "CHECK", "INDEX", ")"];
            let names = body.lines().filter_map(|line| line.split_whitespace().next());
            let columns = names.filter(|word| !no_column.contains(word) && !word.starts_with(')')).map(bare);
            self.columns.insert(name, columns.collect());
        } else if let Some(rest) = statement.strip_prefix("INSERT INTO ") {
            self.insert(rest);
        }
    }

    fn insert(&mut self, rest: &str) {
        let Some(at) = rest.find("VALUES") else { return };
        let (head, values) = rest.split_at(at);
        let (name, columns) = match head.split_once('(') {
            Some((name, columns)) => (bare(name), columns.trim().trim_end_matches(')').split(',').map(bare).collect()),
            None => (bare(head), self.columns.get(&bare(head)).cloned().unwrap_or_default()),
        };
        if !WANTED.contains(&name.as_str()) {
            return;
        }
        for values in tuples(&values["VALUES".len()..], head.contains('`')) {
            let pairs = columns.iter().cloned().zip(values).filter_map(|(name, value)| Some((name, value?)));
            self.tables.entry(name.clone()).or_default().push(Row(pairs.collect()));
        }
    }
}

/// A name without its schema and quotes.
fn bare(name: &str) -> String {
    let name = name.trim();
    let last = name.rsplit('.').next().unwrap_or(name);
    last.trim_matches(['"', '`', ' ']).to_owned()
}

/// A line of COPY: tabs between values, backslashes before what would be mistaken.
fn copied(columns: &[String], line: &str) -> Row {
    let pairs = columns.iter().zip(line.split('\t')).filter(|(_, value)| *value != "\\N");
    Row(pairs.map(|(name, value)| (name.clone(), unescape(value))).collect())
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some('t')) => out.push('\t'),
            ('\\', Some('r')) => out.push('\r'),
            ('\\', Some(other)) => out.push(other),
            _ => out.push(c),
        }
    }
    out
}

/// Whether a statement ends here, and not inside of a text.
fn is_whole(statement: &str) -> bool {
    if !statement.trim_end().ends_with(';') {
        return false;
    }
    let mut is_inside = false;
    let mut chars = statement.chars();
    let has_backslashes = statement.contains('`');
    while let Some(c) = chars.next() {
        match c {
            '\\' if is_inside && has_backslashes => drop(chars.next()),
            '\'' => is_inside = !is_inside,
            _ => {}
        }
    }
    !is_inside
}

/// `(1, 'a', NULL), (2, …)`: each tuple's values.
fn tuples(text: &str, has_backslashes: bool) -> Vec<Vec<Option<String>>> {
    let (mut all, mut tuple) = (Vec::new(), Vec::new());
    let (mut word, mut quoted) = (String::new(), None::<String>);
    let mut is_open = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' if is_open => {
                let mut value = String::new();
                while let Some(c) = chars.next() {
                    match c {
                        '\'' if chars.peek() == Some(&'\'') => {
                            chars.next();
                            value.push('\'');
                        }
                        '\'' => break,
                        '\\' if has_backslashes => match chars.next() {
                            Some('n') => value.push('\n'),
                            Some('r') => value.push('\r'),
                            Some('t') => value.push('\t'),
                            Some('0') => value.push('\0'),
                            Some(other) => value.push(other),
                            None => {}
                        },
                        c => value.push(c),
                    }
                }
                quoted = Some(value);
            }
            '(' if !is_open => is_open = true,
            ',' | ')' if is_open => {
                let plain = word.trim();
                let value = quoted.take().or_else(|| (plain != "NULL").then(|| plain.to_owned()));
                tuple.push(value);
                word.clear();
                if c == ')' {
                    all.push(std::mem::take(&mut tuple));
                    is_open = false;
                }
            }
            c if is_open => word.push(c),
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Dump {
        let mut dump = Dump::default();
        dump.take(&mut text.as_bytes()).unwrap();
        dump
    }

    fn labels(dump: &Dump) -> Vec<String> {
        dump.rows("tags").map(|row| row.text("label")).collect()
    }

    #[test]
    fn rows_of_copy_come_apart() {
        let dump = read(
            "--\nCREATE TABLE public.tags (\n    id bigint NOT NULL\n);\nCOPY public.tags (id, label, \"description\") FROM stdin;\n\
             1\ta\\tb\\\\c\\nd\t\\N\n2\tINSERT INTO\t\n\\.\n\nCOPY public.jobs (id) FROM stdin;\n1\n\\.\n",
        );
        assert_eq!(labels(&dump), ["a\tb\\c\nd", "INSERT INTO"]);
        assert!(!dump.rows("tags").next().unwrap().has("description"));
        assert_eq!(dump.rows("jobs").count(), 0);
    }

    #[test]
    fn rows_of_inserts_come_apart() {
        let dump = read(
            "INSERT INTO public.tags (id, label, colour) VALUES (1, 'it''s; a \\', NULL);\n\
             INSERT INTO public.tags (id, label) VALUES (2, 'two\nlines'), (3, E'three'::text);\n",
        );
        assert_eq!(labels(&dump), ["it's; a \\", "two\nlines", "three"]);
        let dump = read(
            "CREATE TABLE `tags` (\n  `id` bigint unsigned NOT NULL,\n  `label` varchar(255) NOT NULL,\n  PRIMARY KEY (`id`)\n) ENGINE=InnoDB;\n\
             INSERT INTO `tags` VALUES (1,'a\\'b;\\n'),(2,'c');\n",
        );
        assert_eq!(labels(&dump), ["a'b;\n", "c"]);
    }

    #[test]
    fn other_files_are_told_apart() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, expected) in [("PGDMP\u{1}", "pg_restore"), ("hello", "no dump of Vanguard's")] {
            std::fs::write(file.path(), text).unwrap();
            let failure = Dump::read(file.path()).unwrap_err();
            assert!(failure.message.contains(expected), "{}", failure.message);
        }
    }
}
