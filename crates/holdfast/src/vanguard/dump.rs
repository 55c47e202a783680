//! Parser for SQL dumps of `pg_dump` and `mysqldump`. It keeps only the rows of the tables to import.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead};

use holdfast_core::characters::stored_line;

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
/// Indexed columns, by which rows are looked up.
const LOOKED_UP: &[&str] = &["user_id", "backup_task_id", "taggable_id"];
/// The longest statement that is buffered. Dump tools do not write longer ones.
const STATEMENT_BYTES: usize = 256 << 20;

/// A row by column name. NULL values and missing columns are omitted.
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
    /// Index of rows by table, column and value, because joining tables by scanning would be too slow.
    found: HashMap<(String, &'static str, String), Vec<usize>>,
    /// Columns by table, for `INSERT` statements without a column list.
    columns: HashMap<String, Vec<String>>,
    /// Tables and row ids seen so far, and in `twice` the first duplicate. A real database has no duplicates, and many
    /// of them would make the joins very slow.
    ids: HashSet<(String, String)>,
    twice: Option<(String, String)>,
}

impl Dump {
    /// Reads a dump to its end. A truncated dump is an error.
    pub fn read(reader: &mut impl BufRead) -> io::Result<Self> {
        let mut dump = Self::default();
        dump.take(reader)?;
        if let Some((table, id)) = &dump.twice {
            let message = format!("two rows of {table} have the id {}", stored_line(id));
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(dump)
    }

    pub fn rows(&self, table: &str) -> impl Iterator<Item = &Row> {
        self.tables.get(table).into_iter().flatten()
    }

    /// Rows of a table with this value in one of the indexed columns.
    pub fn rows_with(&self, table: &str, column: &'static str, value: &str) -> impl Iterator<Item = &Row> {
        let found = self.found.get(&(table.to_owned(), column, value.to_owned()));
        let rows = self.tables.get(table);
        found.into_iter().flatten().filter_map(move |at| rows?.get(*at))
    }

    fn push(&mut self, table: &str, row: Row) {
        let id = row.0.get("id").map(|id| (table.to_owned(), id.clone()));
        if let Some(id) = id.filter(|id| !self.ids.insert(id.clone())) {
            self.twice.get_or_insert(id);
            return;
        }
        let rows = self.tables.entry(table.to_owned()).or_default();
        for column in LOOKED_UP {
            if let Some(value) = row.0.get(*column) {
                self.found.entry((table.to_owned(), column, value.clone())).or_default().push(rows.len());
            }
        }
        rows.push(row);
    }

    fn take(&mut self, reader: &mut impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        let mut statement = Statement::default();
        let mut copying: Option<(String, Vec<String>)> = None;
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                // A truncated dump must not be mistaken for a complete one.
                let is_whole = copying.is_none() && statement.text.is_empty();
                let broken = || io::Error::new(io::ErrorKind::UnexpectedEof, "the dump is truncated");
                return if is_whole { Ok(()) } else { Err(broken()) };
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            if let Some((table, columns)) = &copying {
                if text == "\\." {
                    copying = None;
                } else if WANTED.contains(&table.as_str()) {
                    let row = copied(columns, text);
                    self.push(table, row);
                }
                continue;
            }
            if statement.text.is_empty() {
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
            let is_whole = statement.add_line(text);
            if is_whole || statement.text.len() > STATEMENT_BYTES {
                self.understand(&statement.text);
                statement = Statement::default();
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
            self.push(&name, Row(pairs.collect()));
        }
    }
}

/// A name without its schema and quotes.
fn bare(name: &str) -> String {
    let name = name.trim();
    let last = name.rsplit('.').next().unwrap_or(name);
    last.trim_matches(['"', '`', ' ']).to_owned()
}

/// A line of COPY data: values separated by tabs, special characters escaped with backslashes.
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

/// A partially read statement with the state of its scanner, so that each character is scanned only once.
#[derive(Default)]
struct Statement {
    text: String,
    /// Whether names are quoted with backticks, which means MySQL, where strings have backslash escapes.
    has_backslashes: bool,
    is_inside_text: bool,
    is_escaped: bool,
}

impl Statement {
    /// Returns whether the statement ends with this line, outside of a string.
    fn add_line(&mut self, line: &str) -> bool {
        if self.text.is_empty() {
            let head = line.split('\'').next().unwrap_or_default();
            self.has_backslashes = head.contains('`');
        }
        for c in line.chars().chain(['\n']) {
            match c {
                _ if self.is_escaped => self.is_escaped = false,
                '\\' if self.is_inside_text && self.has_backslashes => self.is_escaped = true,
                '\'' => self.is_inside_text = !self.is_inside_text,
                _ => {}
            }
        }
        self.text.push_str(line);
        self.text.push('\n');
        !self.is_inside_text && line.trim_end().ends_with(';')
    }
}

/// The values of each tuple in `(1, 'a', NULL), (2, …)`.
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
        Dump::read(&mut text.as_bytes()).unwrap()
    }

    fn labels(dump: &Dump) -> Vec<String> {
        dump.rows("tags").map(|row| row.text("label")).collect()
    }

    #[test]
    fn duplicate_ids_are_refused() {
        let text =
            "INSERT INTO tags (id, label) VALUES (1, 'a'), (2, 'b');\nINSERT INTO tags (id, label) VALUES (2, 'c');\n";
        let refused = Dump::read(&mut text.as_bytes()).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some("two rows of tags have the id 2"));
    }

    #[test]
    fn rows_of_copy_are_parsed() {
        let dump = read(
            "--\nCREATE TABLE public.tags (\n    id bigint NOT NULL\n);\nCOPY public.tags (id, label, \"description\") FROM stdin;\n\
             1\ta\\tb\\\\c\\nd\t\\N\n2\tINSERT INTO\t\n\\.\n\nCOPY public.jobs (id) FROM stdin;\n1\n\\.\n",
        );
        assert_eq!(labels(&dump), ["a\tb\\c\nd", "INSERT INTO"]);
        assert!(!dump.rows("tags").next().unwrap().has("description"));
        assert_eq!(dump.rows("jobs").count(), 0);
    }

    #[test]
    fn rows_of_inserts_are_parsed() {
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

    /// If the whole statement were scanned again for each line, this would take minutes.
    #[test]
    fn a_statement_of_many_lines_is_scanned_once() {
        let rows: Vec<String> = (0..100_000).map(|number| format!("({number}, 'a''b;\n;', NULL)")).collect();
        let dump = read(&format!("INSERT INTO tags (id, label, colour) VALUES\n{};\n", rows.join(",\n")));
        assert_eq!(labels(&dump).len(), 100_000);
        assert_eq!(labels(&dump)[99_999], "a'b;\n;");
    }

    #[test]
    fn rows_are_found_by_indexed_columns() {
        let dump = read(
            "INSERT INTO tags (id, user_id, label) VALUES (1, 7, 'a'), (2, 8, 'b'), (3, 7, 'c');\n\
             INSERT INTO taggables (tag_id, taggable_id) VALUES (1, 5);\n",
        );
        let found: Vec<String> = dump.rows_with("tags", "user_id", "7").map(|row| row.text("label")).collect();
        assert_eq!(found, ["a", "c"]);
        assert_eq!(dump.rows_with("taggables", "taggable_id", "5").count(), 1);
        assert_eq!(dump.rows_with("tags", "user_id", "9").count(), 0);
    }
}
