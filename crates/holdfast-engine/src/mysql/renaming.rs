//! Finds, removes and replaces names of databases in texts that a MySQL or MariaDB server wrote.

use std::collections::BTreeSet;

use super::heads::text_length;
use super::quotes::outside_quotes;
use super::{name_length, quoted};

/// A qualified name that may begin with a database, as the server writes it in a view or in a default.
pub(super) struct Name<'a> {
    /// How many names are joined by dots.
    pub parts: usize,
    before: &'a [u8],
    after: Option<u8>,
    /// Whether `from` belongs to a function here.
    is_in_function: bool,
}

impl Name<'_> {
    /// In a view, a name of two parts may be a table and a column, and the table may have the same name as the
    /// database.
    fn is_of_database(&self) -> bool {
        let is_function = self.after == Some(b'(');
        self.parts > 2 || self.parts == 2 && (is_function || self.is_sequence() || self.is_table())
    }

    pub(super) fn is_sequence(&self) -> bool {
        [b"nextval(".as_slice(), b"lastval(", b"setval("].iter().any(|call| self.before.ends_with(call))
    }

    /// A view that reads from several databases puts their names before its tables.
    fn is_table(&self) -> bool {
        let brackets = self.before.iter().rev().take_while(|byte| **byte == b'(').count();
        let before = &self.before[..self.before.len() - brackets];
        before.ends_with(b"join ") || before.ends_with(b" from ") && !self.is_in_function
    }
}

/// Whether the definition of a view, as the server stores it, refers to this database by name.
pub(crate) fn names_database(view: &[u8], database: &str) -> bool {
    let (mut is_named, mut may_be_named, mut is_alias) = (false, false, false);
    renamed(view, database, b"", |name| {
        match name.parts {
            1 => is_alias |= !name.before.ends_with(b"AS "),
            _ if name.is_of_database() => is_named = true,
            _ => may_be_named = true,
        }
        false
    });
    is_named || may_be_named && !is_alias
}

/// The definition of a view with the name of this database replaced by another, or removed.
pub(super) fn renamed_view(definition: &[u8], old: &str, new: Option<&str>) -> Vec<u8> {
    let instead = new.map(|name| format!("{}.", quoted(name))).unwrap_or_default();
    renamed(definition, old, instead.as_bytes(), |name| name.is_of_database())
}

/// The text of a view without the name of its database, unless the view also reads from others.
pub(crate) fn without_database(text: &[u8], database: &str) -> Vec<u8> {
    let own = quoted(database).into_bytes();
    let mut rest = text;
    while let Some(at) = outside_quotes(rest, |rest| rest.starts_with(b"`")) {
        rest = &rest[at..];
        let names = chained_names(rest);
        if names.len() > 2 && rest[..names[0]] != own[..] {
            return text.to_vec();
        }
        rest = &rest[(names.iter().sum::<usize>() + names.len() - 1).min(rest.len())..];
    }
    // A function may have the same name as a built-in one.
    renamed(text, database, b"", |name| name.is_of_database() && name.after != Some(b'('))
}

/// All names in the text of a view, whatever they are names of.
pub(crate) fn names_in(text: &[u8]) -> BTreeSet<String> {
    let (mut rest, mut names) = (text, BTreeSet::new());
    while let Some(at) = outside_quotes(rest, |rest| rest.starts_with(b"`")) {
        rest = &rest[at..];
        let length = name_length(rest).unwrap_or(rest.len());
        let inner = rest.get(1..length - 1).unwrap_or_default();
        names.insert(String::from_utf8_lossy(inner).replace("``", "`"));
        rest = &rest[length..];
    }
    names
}

/// Whether the text of a view calls functions that people wrote, or uses sequences.
pub(crate) fn calls_functions(text: &[u8]) -> bool {
    const OF_SEQUENCES: [&[u8]; 3] = [b"nextval(", b"setval(", b"lastval("];
    let is_of_sequence = |rest: &[u8]| OF_SEQUENCES.iter().any(|word| rest.starts_with(word));
    // This also matches a name that merely precedes a bracket, as in a list of columns.
    let is_called = |rest: &[u8]| {
        let length = name_length(rest).filter(|_| rest.starts_with(b"`"));
        length.is_some_and(|length| rest.get(length) == Some(&b'('))
    };
    outside_quotes(text, |rest| is_of_sequence(rest) || is_called(rest)).is_some()
}

/// A default that uses a sequence, with the name of this database replaced by another.
pub(crate) fn renamed_default(default: &[u8], old: &str, new: &str) -> Vec<u8> {
    renamed(default, old, format!("{}.", quoted(new)).as_bytes(), |name| name.parts == 2 && name.is_sequence())
}

/// Replaces this database at the beginning of names by `instead`, where `is_wanted` holds. Quoted text is never a name.
pub(super) fn renamed(
    line: &[u8],
    database: &str,
    instead: &[u8],
    mut is_wanted: impl FnMut(&Name<'_>) -> bool,
) -> Vec<u8> {
    let database = quoted(database).into_bytes();
    let mut written = Vec::with_capacity(line.len());
    let mut rest = line;
    // For each open bracket, whether it belongs to `extract(day from …)` or `trim('x' from …)`.
    let mut brackets: Vec<bool> = Vec::new();
    while let Some(first) = rest.first() {
        let is_in_function = brackets.last().copied().unwrap_or(false);
        let length = match first {
            b'\'' | b'"' => text_length(rest),
            b'`' => {
                let names = chained_names(rest);
                let length: usize = names.iter().sum::<usize>() + names.len().saturating_sub(1);
                let after = rest.get(length).copied();
                let name = Name { parts: names.len(), before: &written, after, is_in_function };
                let is_named = rest[..names[0]] == database[..] && is_wanted(&name) && names.len() > 1;
                let skipped = if is_named { names[0] + 1 } else { 0 };
                if is_named {
                    written.extend_from_slice(instead);
                }
                rest = &rest[skipped..];
                length - skipped
            }
            b'(' => {
                let is_query = [b"select ".as_slice(), b"with "].iter().any(|word| rest[1..].starts_with(word));
                let is_function = written.ends_with(b"extract") || written.ends_with(b"trim");
                brackets.push(is_function || is_in_function && !is_query);
                1
            }
            b')' => {
                brackets.pop();
                1
            }
            _ => 1,
        };
        let (now, later) = rest.split_at(length.clamp(1, rest.len()));
        written.extend_from_slice(now);
        rest = later;
    }
    written
}

/// The lengths of the names that are joined by dots here, with their quotes.
pub(super) fn chained_names(mut text: &[u8]) -> Vec<usize> {
    let mut names = Vec::new();
    while let Some(length) = name_length(text) {
        names.push(length);
        match text[length..].strip_prefix(b".") {
            Some(rest) if rest.starts_with(b"`") => text = rest,
            _ => break,
        }
    }
    if names.is_empty() { vec![text.len()] } else { names }
}
