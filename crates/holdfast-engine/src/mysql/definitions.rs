//! Routines, triggers, views and events of a MariaDB database as data. A backup asks the server for each of them and
//! writes them after the dump of the tables, one line each, as statements that anybody can load. What people wrote is
//! in hexadecimal digits and becomes one prepared statement, so neither a client nor we have to find out where it ends.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use holdfast_core::failure::FailureCode;
use holdfast_core::random;

use super::heads::{definer_at, head_length, without_definer, without_qualifiers};
use super::quotes::{literal_length, outside_quotes};
use super::renaming::renamed_view;
use super::statements::{Rules, is_clear};
use super::{View, is_word, name_length};
use crate::error::{EngineError, Result};

/// The line before them. In comments of the tools, each line of a name follows two dashes, so none can look like this.
pub(crate) const BEGIN: &str = "/* Routines, triggers, views and events */";
/// The line after them. It begins like the one that ends dumps of the tools.
pub(crate) const END: &str = "-- Dump completed, with routines, triggers, views and events";
/// The line after tables and sequences, before their rows.
pub(crate) const TABLES_END: &str = "/* Rows */";
/// The most bytes of all definitions of one database. They are held in memory.
pub(crate) const LONGEST: usize = 64 * 1024 * 1024;

/// In the order in which they are made: views may call functions, and events begin to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DefinitionKind {
    Sequence,
    Table,
    /// The current value of a sequence, once all rows are known.
    SequenceValue,
    Function,
    Procedure,
    Package,
    PackageBody,
    Trigger,
    View,
    Event,
}

impl DefinitionKind {
    pub(crate) const ALL: [Self; 10] = [
        Self::Sequence,
        Self::Table,
        Self::SequenceValue,
        Self::Function,
        Self::Procedure,
        Self::Package,
        Self::PackageBody,
        Self::Trigger,
        Self::View,
        Self::Event,
    ];

    /// Whether it comes before the rows of a database.
    pub(crate) fn is_before_rows(self) -> bool {
        matches!(self, Self::Sequence | Self::Table)
    }

    /// The keyword in statements and in the server's lists.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Sequence => "SEQUENCE",
            Self::SequenceValue => "SEQUENCE VALUE",
            Self::Table => "TABLE",
            Self::Function => "FUNCTION",
            Self::Procedure => "PROCEDURE",
            Self::Package => "PACKAGE",
            Self::PackageBody => "PACKAGE BODY",
            Self::Trigger => "TRIGGER",
            Self::View => "VIEW",
            Self::Event => "EVENT",
        }
    }

    pub(crate) fn parse(words: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.words() == words)
    }
}

/// The session settings with which the server read a statement when it was created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub character_set: String,
    pub collation: String,
    pub sql_mode: String,
    /// Only events have one.
    pub time_zone: Option<String>,
    /// The collations that the database had then and has now, if they differ: parameters without their own use that of
    /// the database.
    pub collations: Option<(String, String)>,
}

impl Reading {
    fn is_plausible(&self) -> bool {
        let is_mode = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"_,".contains(&byte);
        let is_zone = |zone: &String| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_+:/-".contains(&byte);
            !zone.is_empty() && zone.len() <= 64 && zone.bytes().all(is_part)
        };
        is_word(&self.character_set)
            && is_word(&self.collation)
            && self.sql_mode.len() <= 1024
            && self.sql_mode.bytes().all(is_mode)
            && self.time_zone.iter().all(is_zone)
            && self.collations.iter().all(|(then, now)| is_word(then) && is_word(now))
    }

    /// The statements that come before and after a statement.
    fn around(&self) -> (String, String) {
        let Self { character_set, collation, sql_mode, .. } = self;
        let zone = self.time_zone.as_ref().map(|zone| format!("time_zone = '{zone}', ")).unwrap_or_default();
        let set = format!(
            "SET SESSION character_set_client = {character_set}, collation_connection = {collation}, {zone}sql_mode = \
             '{sql_mode}'; "
        );
        match &self.collations {
            Some((then, now)) => {
                (format!("ALTER DATABASE COLLATE {then}; {set}"), format!(" ALTER DATABASE COLLATE {now};"))
            }
            None => (set, String::new()),
        }
    }
}

/// A table, sequence, routine, trigger, view or event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition {
    pub kind: DefinitionKind,
    pub name: String,
    /// As the server prints it, in the character set that it was created in.
    pub statement: Vec<u8>,
    pub reading: Reading,
}

/// How much of a text one statement holds, which every server accepts; it has twice as many digits.
const PIECE: usize = 256 * 1024;
const MORE: &str = "SET @holdfast = CONCAT(@holdfast, X'";
const PREPARED: &str = "PREPARE holdfast FROM @holdfast; EXECUTE holdfast; DEALLOCATE PREPARE holdfast;";

impl Definition {
    /// Whether this is a definition as a server prints it, and nothing else.
    pub(crate) fn is_plausible(&self) -> bool {
        let is_statement = match self.kind {
            DefinitionKind::View => self.view(String::new()).parts().is_some(),
            DefinitionKind::Sequence => {
                self.begins(&format!("CREATE SEQUENCE {} ", super::quoted(&self.name))).is_some()
            }
            DefinitionKind::Table => self.begins(&format!("CREATE TABLE {} (", super::quoted(&self.name))).is_some(),
            DefinitionKind::SequenceValue => {
                let set = self.begins(&format!("DO SETVAL({}, ", super::quoted(&self.name)));
                let set = set.and_then(|rest| rest.strip_suffix(b")"));
                let reset = self.begins(&format!("ALTER SEQUENCE {} RESTART ", super::quoted(&self.name)));
                let is_number = |byte: &u8| byte.is_ascii_digit() || b", -".contains(byte);
                set.or(reset).is_some_and(|rest| rest.iter().all(is_number))
            }
            DefinitionKind::Function
            | DefinitionKind::Procedure
            | DefinitionKind::Package
            | DefinitionKind::PackageBody
            | DefinitionKind::Trigger
            | DefinitionKind::Event => self.is_making(self.kind.words()),
        };
        is_statement && self.reading.is_plausible() && !self.name.is_empty() && self.name.len() <= super::NAME_CHARS * 4
    }

    fn begins(&self, with: &str) -> Option<&[u8]> {
        self.statement.strip_prefix(with.as_bytes())
    }

    /// Whether the statement begins like one that makes something of this kind.
    fn is_making(&self, words: &str) -> bool {
        let without = without_definer(&self.statement);
        let Some(rest) = without.strip_prefix(b"CREATE ").map(<[u8]>::trim_ascii_start) else { return false };
        let begins = |words: &str| {
            let found = rest.get(..words.len()).is_some_and(|found| found.eq_ignore_ascii_case(words.as_bytes()));
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_$".contains(byte);
            found && rest.get(words.len()).is_some_and(|byte| !is_part(byte))
        };
        begins(words) || self.kind == DefinitionKind::Function && begins("AGGREGATE FUNCTION")
    }

    /// One line of statements that create it in the current database.
    pub(crate) fn line(&self) -> String {
        let (before, after) = self.reading.around();
        let mut pieces = self.statement.chunks(PIECE).map(random::hex);
        let first = pieces.next().unwrap_or_default();
        let more: String = pieces.map(|piece| format!("{MORE}{piece}'); ")).collect();
        format!(
            "/* {} {} */ SET @holdfast = X'{first}'; {more}{before}{PREPARED}{after}\n",
            self.kind.words(),
            random::hex(self.name.as_bytes()),
        )
    }

    /// Parses such a line; `None` for any other line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (kind, rest) = line.strip_prefix("/* ")?.split_once(" */ SET @holdfast = X'")?;
        let (kind, name) = kind.rsplit_once(' ')?;
        let (statement, mut rest) = rest.split_once("'; ")?;
        let mut statement = random::from_hex(statement)?;
        while let Some((piece, later)) = rest.strip_prefix(MORE).and_then(|rest| rest.split_once("'); ")) {
            statement.extend(random::from_hex(piece)?);
            rest = later;
        }
        let (then, rest) = match rest.strip_prefix("ALTER DATABASE COLLATE ") {
            Some(rest) => rest.split_once("; ").map(|(then, rest)| (Some(then), rest))?,
            None => (None, rest),
        };
        let (character_set, rest) = rest.strip_prefix("SET SESSION character_set_client = ")?.split_once(", ")?;
        let (collation, rest) = rest.strip_prefix("collation_connection = ")?.split_once(", ")?;
        let (time_zone, rest) = match rest.strip_prefix("time_zone = '") {
            Some(rest) => rest.split_once("', ").map(|(zone, rest)| (Some(zone.to_owned()), rest))?,
            None => (None, rest),
        };
        let (sql_mode, rest) = rest.strip_prefix("sql_mode = '")?.split_once("'; ")?;
        let now = rest.strip_prefix(PREPARED)?.trim_end_matches(['\n', ';']).strip_prefix(" ALTER DATABASE COLLATE ");
        let reading = Reading {
            character_set: character_set.to_owned(),
            collation: collation.to_owned(),
            sql_mode: sql_mode.to_owned(),
            time_zone,
            collations: then.zip(now).map(|(then, now)| (then.to_owned(), now.to_owned())),
        };
        let name = String::from_utf8(random::from_hex(name)?).ok()?;
        let found = Self { kind: DefinitionKind::parse(kind)?, name, statement, reading };
        (found.is_plausible() && found.line() == line).then_some(found)
    }

    /// As a view of this database.
    pub(crate) fn view(&self, database: String) -> View {
        View {
            database,
            name: self.name.clone(),
            statement: random::hex(&self.statement),
            character_set: self.reading.character_set.clone(),
            collation: self.reading.collation.clone(),
        }
    }

    fn is_in_utf8(&self) -> bool {
        self.reading.character_set.starts_with("utf8")
    }

    /// The part that servers print in UTF-8, while the rest is in the character set that it was created in: the comment
    /// of a routine, the definer of a trigger, and everything of an event except its body.
    pub(crate) fn part_in_utf8(&self, comment: &str) -> Option<Range<usize>> {
        let part = match self.kind {
            _ if self.is_in_utf8() => None,
            DefinitionKind::View | DefinitionKind::Sequence | DefinitionKind::SequenceValue | DefinitionKind::Table => {
                None
            }
            DefinitionKind::Trigger => definer_at(&self.statement),
            DefinitionKind::Event => event_head(&self.statement).map(|end| 0..end),
            DefinitionKind::Function
            | DefinitionKind::Procedure
            | DefinitionKind::Package
            | DefinitionKind::PackageBody => comment_at(&self.statement, comment.as_bytes()),
        };
        part.filter(|part| !self.statement[part.clone()].is_ascii())
    }

    /// As `part_in_utf8`, for definitions from the server's lists, which are completely in UTF-8.
    pub(crate) fn whole_in_utf8(&self) -> Option<Range<usize>> {
        (!self.is_in_utf8() && !self.statement.is_ascii()).then_some(0..self.statement.len())
    }

    /// Rewrites the comment of a routine or event for its own SQL mode: servers print comments with escapes in any
    /// mode.
    pub(crate) fn with_readable_comment(mut self, comment: &str) -> Self {
        // Everything of an event except its body is in UTF-8.
        let is_event = self.kind == DefinitionKind::Event;
        let is_readable = is_event || self.is_in_utf8() || comment.is_ascii();
        if !is_readable || !self.reading.sql_mode.contains("NO_BACKSLASH_ESCAPES") {
            return self;
        }
        let text = format!("'{}'", comment.replace('\'', "''")).into_bytes();
        let found = if is_event {
            // The search for the body of an event skips literals with and without escapes.
            let is_clear = literal_length(&text) == text.len();
            event_comment_at(&self.statement, comment.as_bytes()).filter(|_| is_clear)
        } else {
            comment_at(&self.statement, comment.as_bytes())
        };
        if let Some(at) = found {
            self.statement.splice(at, text);
        }
        self
    }

    /// The same event, disabled.
    pub(crate) fn disabled(self) -> Self {
        const ENABLE: &[u8] = b" ENABLE";
        let head = event_head(&self.statement).unwrap_or(0);
        let found = outside_quotes(&self.statement[..head], |rest| rest.starts_with(ENABLE));
        let Some(at) = found else { return self };
        let statement = [&self.statement[..at], b" DISABLE", &self.statement[at + ENABLE.len()..]].concat();
        Self { statement, ..self }
    }

    /// The user that it runs as, quoted.
    pub(crate) fn definer(&self) -> Option<&[u8]> {
        definer_at(&self.statement).map(|at| &self.statement[at])
    }

    /// The statement of a view with this name; `None` if it has that name already.
    pub(crate) fn with_name(&self, name: &str) -> Option<Vec<u8>> {
        let rest = self.view(String::new()).parts()?.rest;
        let (head, found) = self.statement.split_at(self.statement.len() - rest.len());
        let length = name_length(found)?;
        let own = super::quoted(name).into_bytes();
        (found[..length] != own).then(|| [head, &own, &found[length..]].concat())
    }

    /// The same without its definer, so that it belongs to the user who creates it.
    pub(crate) fn without_definer(self) -> Self {
        Self { statement: without_definer(&self.statement), ..self }
    }

    /// The same for a database with another name. The head of a trigger may contain the name of its original database;
    /// `None` if it is unclear where, since the trigger could then be created there.
    pub(crate) fn moved(self, old: &str, new: &str) -> Option<Self> {
        let rules = Rules::of(&self.reading.character_set, &self.reading.sql_mode);
        let statement = match self.kind {
            DefinitionKind::Trigger => {
                let head = &self.statement[..head_length(&self.statement)?];
                // Comments that not everybody reads alike, and characters that are blanks in some character sets and
                // letters in others.
                let is_odd = outside_quotes(head, |rest| {
                    let is_comment =
                        [b"/*!".as_slice(), b"/*M!", b"--", b"#"].iter().any(|mark| rest.starts_with(mark));
                    is_comment || !self.is_in_utf8() && !rest[0].is_ascii()
                });
                let is_odd = is_odd.is_some();
                if is_odd || is_clear(head, rules).is_err() {
                    return None;
                }
                without_qualifiers(&self.statement)?
            }
            DefinitionKind::View if is_clear(&self.statement, rules).is_ok() => {
                renamed_view(&self.statement, old, Some(new))
            }
            DefinitionKind::View
            | DefinitionKind::Sequence
            | DefinitionKind::Table
            | DefinitionKind::SequenceValue
            | DefinitionKind::Function
            | DefinitionKind::Procedure
            | DefinitionKind::Package
            | DefinitionKind::PackageBody
            | DefinitionKind::Event => self.statement,
        };
        Some(Self { statement, ..self })
    }

    /// Adapts it to a server of this version. MariaDB sets `NO_AUTO_CREATE_USER` by default; MySQL from 8.0 on does not
    /// know this mode and refuses it, since `GRANT` never creates users there.
    pub(crate) fn for_version(mut self, version: &str) -> Self {
        let major = version.split('.').next().and_then(|number| number.parse::<u32>().ok());
        if !version.contains("MariaDB") && major >= Some(8) {
            let modes = self.reading.sql_mode.split(',').filter(|mode| *mode != "NO_AUTO_CREATE_USER");
            self.reading.sql_mode = modes.collect::<Vec<_>>().join(",");
        }
        self
    }

    /// For servers that cannot prepare such statements: the client has to find the end, by a delimiter that nobody
    /// knows.
    pub(crate) fn delimited(&self, delimiter: &str) -> Result<Vec<u8>> {
        let Reading { character_set, sql_mode, .. } = &self.reading;
        is_clear(&self.statement, Rules::of(character_set, sql_mode))?;
        let (before, after) = self.reading.around();
        let before = format!("{before}\nDELIMITER {delimiter}\n");
        let after = format!("\n{delimiter}\nDELIMITER ;\n{after}\n");
        Ok([before.as_bytes(), &self.statement, after.as_bytes()].concat())
    }
}

/// Where the body of an event begins. Before it, all text is quoted.
fn event_head(statement: &[u8]) -> Option<usize> {
    const DO: &[u8] = b" DO ";
    outside_quotes(statement, |rest| rest.starts_with(DO)).map(|at| at + DO.len())
}

/// Where the comment of a routine is, including its quotes.
fn comment_at(statement: &[u8], comment: &[u8]) -> Option<Range<usize>> {
    const COMMENT: &[u8] = b"\n    COMMENT ";
    if comment.is_empty() {
        return None;
    }
    let starts = statement.windows(COMMENT.len()).enumerate().filter(|(_, part)| *part == COMMENT);
    let mut texts = starts.map(|(at, _)| at + COMMENT.len()).map(|at| at..at + literal_length(&statement[at..]));
    texts.find(|text| unquoted(&statement[text.clone()]).as_deref() == Some(comment))
}

/// Where the comment of an event is, including its quotes.
fn event_comment_at(statement: &[u8], comment: &[u8]) -> Option<Range<usize>> {
    const COMMENT: &[u8] = b" COMMENT ";
    let head = &statement[..event_head(statement)?];
    let at = outside_quotes(head, |rest| rest.starts_with(COMMENT))? + COMMENT.len();
    let text = at..at + literal_length(&head[at..]);
    (unquoted(&head[text.clone()]).as_deref() == Some(comment)).then_some(text)
}

/// The value of a literal in single quotes, as servers write comments.
fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    let inner = text.strip_prefix(b"'")?.strip_suffix(b"'")?;
    let (mut value, mut bytes) = (Vec::with_capacity(inner.len()), inner.iter());
    while let Some(byte) = bytes.next() {
        value.push(match byte {
            b'\'' => *bytes.next()?,
            b'\\' => match bytes.next()? {
                b'0' => 0,
                b'n' => b'\n',
                b'r' => b'\r',
                other => *other,
            },
            other => *other,
        });
    }
    Some(value)
}

/// Whether a server prepares statements that make routines, triggers and events.
pub(crate) fn takes_prepared(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version_of = [numbers.next(), numbers.next(), numbers.next()].map(Option::unwrap_or_default);
    version.contains("MariaDB") && version_of >= [10, 6, 2]
}

/// The text that follows a dump. Views come after those that they read from, as far as their texts show.
pub(crate) fn section(mut definitions: Vec<Definition>) -> Result<String> {
    definitions.sort_by_key(|definition| definition.kind);
    let is_view = |definition: &Definition| definition.kind == DefinitionKind::View;
    let begin = definitions.iter().position(is_view).unwrap_or(definitions.len());
    let count = definitions[begin..].iter().filter(|definition| is_view(definition)).count();
    let events = definitions.split_off(begin + count);
    let views = definitions.split_off(begin);
    definitions.extend(ordered(views));
    definitions.extend(events);
    // A truncated dump may end in the middle of a line.
    let mut text = format!("\n{BEGIN}\n");
    for definition in &definitions {
        text.push_str(&definition.line());
        if text.len() > LONGEST {
            return Err(EngineError::new(
                FailureCode::RemoteFailed,
                "A database has too many routines, triggers, views and events to be backed up.",
            ));
        }
    }
    text.push_str(&format!("{END}\n"));
    Ok(text)
}

/// Sorts views so that each comes after those whose names are in its text. Some texts only look as if they read from
/// each other; those come last, in any order.
fn ordered(views: Vec<Definition>) -> Vec<Definition> {
    let text = |view: &Definition| view.view(String::new()).parts().map(|parts| parts.rest).unwrap_or_default();
    let named = |view: Definition| (names_in(&text(&view)), view);
    let mut waiting: Vec<(BTreeSet<Vec<u8>>, Definition)> = views.into_iter().map(named).collect();
    let mut sorted = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let own_name = |view: &Definition| super::quoted(&view.name).into_bytes();
        let missing: BTreeSet<Vec<u8>> = waiting.iter().map(|(_, view)| own_name(view)).collect();
        let waits = |(names, view): &(BTreeSet<Vec<u8>>, Definition)| {
            names.iter().any(|name| *name != own_name(view) && missing.contains(name))
        };
        let (later, now): (Vec<_>, Vec<_>) = waiting.into_iter().partition(waits);
        let is_stuck = now.is_empty();
        sorted.extend(now);
        waiting = later;
        if is_stuck {
            sorted.append(&mut waiting);
        }
    }
    sorted.into_iter().map(|(_, view)| view).collect()
}

/// The names in backticks, including the backticks.
fn names_in(mut text: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut names = BTreeSet::new();
    while let Some(at) = text.iter().position(|byte| *byte == b'`') {
        text = &text[at..];
        let Some(length) = name_length(text) else { break };
        names.insert(text[..length].to_vec());
        text = &text[length..];
    }
    names
}

/// Reads what [`section`] wrote, or [`tables::section`], line by line.
#[derive(Debug, Default)]
pub(crate) struct Section {
    /// Whether it comes before the rows.
    is_before_rows: bool,
    bytes: usize,
    has_ended: bool,
}

impl Section {
    pub(crate) fn before_rows() -> Self {
        Self { is_before_rows: true, ..Self::default() }
    }

    /// Takes a line; `None` for the last one. The first line of a section is not passed to this function.
    pub(crate) fn take(&mut self, line: &[u8]) -> io::Result<Option<Definition>> {
        let damaged =
            || io::Error::from(EngineError::corrupt("What comes before or after the rows in the dump is damaged."));
        self.bytes += line.len();
        if self.has_ended || self.bytes > LONGEST + END.len() + 1 {
            return Err(damaged());
        }
        let line = std::str::from_utf8(line).map_err(|_| damaged())?;
        if line.trim_end() == if self.is_before_rows { TABLES_END } else { END } {
            self.has_ended = true;
            return Ok(None);
        }
        let definition = Definition::parse(line).filter(|found| found.kind.is_before_rows() == self.is_before_rows);
        definition.map(Some).ok_or_else(damaged)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(kind: DefinitionKind, name: &str, statement: &[u8]) -> Definition {
        let reading = Reading { character_set: "gbk".into(), collation: "gbk_chinese_ci".into(), ..Reading::default() };
        Definition { kind, name: name.into(), statement: statement.to_vec(), reading }
    }

    fn view(name: &str, body: &str) -> Definition {
        let statement =
            format!("CREATE ALGORITHM=UNDEFINED DEFINER=`a`@`%` SQL SECURITY DEFINER VIEW `{name}` AS {body}");
        definition(DefinitionKind::View, name, statement.as_bytes())
    }

    #[test]
    fn what_was_written_is_read_again() {
        let trigger =
            definition(DefinitionKind::Trigger, "ü'\n", b"CREATE DEFINER=`a`@`%` trigger x --\x01 \xd5\\';;\n*/ \0");
        let event = Definition {
            reading: Reading {
                time_zone: Some("Europe/Berlin".into()),
                sql_mode: "ANSI_QUOTES,ORACLE".into(),
                collations: Some(("latin1_bin".into(), "utf8mb4_bin".into())),
                ..trigger.reading.clone()
            },
            ..definition(
                DefinitionKind::Event,
                "e",
                b"CREATE DEFINER=\"r\" EVENT \"e\" ON SCHEDULE EVERY 1 DAY DO SELECT 1",
            )
        };
        let long = definition(
            DefinitionKind::Procedure,
            "long",
            &[b"CREATE DEFINER=`a`@`b` PROCEDURE`p`() SELECT '", &vec![b'x'; 3 * PIECE][..], b"'"].concat(),
        );
        let aggregate =
            definition(DefinitionKind::Function, "f", b"CREATE DEFINER=`a`@`b` AGGREGATE FUNCTION `f`() RETURN 1");
        let all = [event, view("v", "select 1"), trigger, long, aggregate];
        let text = section(all.to_vec()).unwrap();
        assert!(text.is_ascii());
        let (mut reader, mut found) = (Section::default(), Vec::new());
        for line in text.split_inclusive('\n').skip(2) {
            found.extend(reader.take(line.as_bytes()).unwrap());
        }
        assert!(reader.has_ended());
        assert!(found.iter().eq(all.iter().rev()), "{found:?}");
        assert!(reader.take(b"-- late\n").is_err());
    }

    #[test]
    fn any_other_line_is_refused() {
        let line =
            definition(DefinitionKind::Procedure, "p", b"CREATE DEFINER=`a`@`b` PROCEDURE `p`() SELECT 1").line();
        assert!(Definition::parse(&line).is_some());
        let other = |statement: &[u8]| definition(DefinitionKind::Procedure, "p", statement).line();
        for line in [
            line.replace("EXECUTE", "EXECUTE "),
            line.replace("gbk,", "gbk; DROP DATABASE x,"),
            line.replace("PROCEDURE 70", "TRIGGER 70"),
            line.replace("sql_mode = ''", "sql_mode = 'a\\'"),
            line.replace("; SET SESSION", "; ALTER DATABASE COLLATE a; SET SESSION"),
            format!("{line}DROP DATABASE x;\n"),
            other(b"DROP DATABASE x"),
            other(b"CREATE USER x"),
            other(b"CREATE DEFINER=`a`@`b` VIEW `p` AS SELECT 1"),
        ] {
            assert!(Definition::parse(&line).is_none(), "{line}");
        }
    }

    #[test]
    fn views_follow_what_they_read_from() {
        let views = vec![view("a", "select `b`.`x` from `b`"), view("b", "select 1 from `c`"), view("c", "select 1")];
        let names: Vec<String> = ordered(views).into_iter().map(|view| view.name).collect();
        assert_eq!(names, ["c", "b", "a"]);
        let both = vec![view("a", "select 1 AS `b`"), view("b", "select 1 AS `a`"), view("c", "select 1")];
        assert_eq!(ordered(both).len(), 3);
    }

    #[test]
    fn the_part_in_utf8_is_found() {
        let part = |kind: DefinitionKind, statement: &str, comment: &str| {
            let found = definition(kind, "n", statement.as_bytes()).part_in_utf8(comment);
            found.map(|part| statement[part].to_owned())
        };
        let event = "CREATE DEFINER=`ü DO `@`%` EVENT `e` ON SCHEDULE EVERY '1 DO ' DAY COMMENT 'a'' DO \\' DO ' DO ";
        assert_eq!(part(DefinitionKind::Event, &format!("{event}SELECT 'ü DO '"), "").as_deref(), Some(event));
        let enabled = definition(
            DefinitionKind::Event,
            "e",
            b"CREATE DEFINER=`a ENABLE` EVENT `e` ON SCHEDULE EVERY 1 DAY ENABLE DO DO 1",
        );
        let disabled = b"CREATE DEFINER=`a ENABLE` EVENT `e` ON SCHEDULE EVERY 1 DAY DISABLE DO DO 1";
        assert_eq!(enabled.disabled().statement, disabled);
        assert_eq!(
            part(DefinitionKind::Event, "CREATE DEFINER=`a` EVENT `e` ON SCHEDULE EVERY 1 DAY DO SELECT 'ü'", ""),
            None
        );
        let routine =
            "CREATE DEFINER=`ü`@`%` PROCEDURE `p`()\n    DETERMINISTIC\n    COMMENT 'it''s \\\\ ü\\n'\nSELECT 1";
        assert_eq!(part(DefinitionKind::Procedure, routine, "it's \\ ü\n").as_deref(), Some("'it''s \\\\ ü\\n'"));
        assert_eq!(part(DefinitionKind::Procedure, routine, "another ü"), None);
        let mut without_escapes = definition(DefinitionKind::Procedure, "p", routine.as_bytes());
        without_escapes.reading.sql_mode = "ANSI_QUOTES,NO_BACKSLASH_ESCAPES".to_owned();
        without_escapes.reading.character_set = "utf8mb4".to_owned();
        let read = without_escapes.with_readable_comment("it's \\ ü\n").statement;
        assert_eq!(String::from_utf8(read).unwrap(), routine.replace("'it''s \\\\ ü\\n'", "'it''s \\ ü\n'"));
        assert_eq!(part(DefinitionKind::Procedure, routine, ""), None);
        let trigger = "CREATE DEFINER=`ü`@`%` TRIGGER t BEFORE INSERT ON ü FOR EACH ROW SET @x = 1";
        assert_eq!(part(DefinitionKind::Trigger, trigger, "").as_deref(), Some("`ü`@`%`"));
        assert_eq!(part(DefinitionKind::View, trigger, ""), None);
    }

    #[test]
    fn only_some_servers_prepare_what_makes_routines() {
        for (version, is_able) in [
            ("10.11.19-MariaDB-0+deb12u1", true),
            ("10.6.2-MariaDB", true),
            ("11.0-MariaDB", true),
            ("10.6.1-MariaDB", false),
            ("10.5.29-MariaDB", false),
            ("8.0.36", false),
            ("", false),
        ] {
            assert_eq!(takes_prepared(version), is_able, "{version}");
        }
    }

    #[test]
    fn servers_without_prepared_statements_only_get_unambiguous_ones() {
        let plain = definition(DefinitionKind::Procedure, "p", b"CREATE DEFINER=`a`@`b` PROCEDURE `p`() SELECT '~'");
        let text = String::from_utf8(plain.delimited("~1").unwrap()).unwrap();
        assert!(text.contains("\nDELIMITER ~1\nCREATE DEFINER=`a`@`b` PROCEDURE `p`() SELECT '~'\n~1\nDELIMITER ;\n"));
        for statement in [b"CREATE PROCEDURE p() SELECT '\xd5\\'".as_slice(), b"CREATE PROCEDURE p() SELECT 'x"] {
            assert!(definition(DefinitionKind::Procedure, "p", statement).delimited("~1").is_err());
        }
    }
}
