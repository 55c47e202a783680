//! Tables and sequences of a MariaDB database as data, before their rows. Servers print some literals in a table's
//! definition without escapes, so that neither a client nor we could tell where its statement ends: each is one
//! prepared statement.

use std::collections::BTreeSet;

use holdfast_core::failure::FailureCode;

use super::definitions::{Definition, DefinitionKind, LONGEST, Reading, TABLES_END};
use super::quotes::{outside_quotes, quoted_length};
use super::renaming::renamed_default;
use super::{name_length, quoted};
use crate::error::{EngineError, Result};

/// The line before them. Tables may refer to tables that come later, and are created under the rules that applied when
/// they were new.
pub(crate) const BEGIN: &str =
    "/* Tables and sequences */ SET SESSION foreign_key_checks = 0, innodb_strict_mode = 0, sql_quote_show_create = 1;";

/// The session settings with which the server prints and reads tables.
pub(crate) fn reading() -> Reading {
    Reading {
        character_set: "utf8mb4".to_owned(),
        collation: "utf8mb4_general_ci".to_owned(),
        sql_mode: String::new(),
        // The time zone of times in defaults.
        time_zone: Some("+00:00".to_owned()),
        collations: None,
    }
}

/// The text that precedes the rows of a database.
pub(crate) fn section(mut definitions: Vec<Definition>) -> Result<String> {
    // A merge table comes after its tables.
    let is_merge =
        |one: &Definition| one.statement.windows(13).any(|part| part == b"ENGINE=MRG_My" || part == b"ENGINE=MERGE ");
    definitions.sort_by_key(|definition| (definition.kind, is_merge(definition)));
    let mut text = format!("{BEGIN}\n");
    for definition in &definitions {
        text.push_str(&definition.line());
        if text.len() > LONGEST {
            return Err(EngineError::new(
                FailureCode::RemoteFailed,
                "The definitions of the tables of a database are too long to be backed up.",
            ));
        }
    }
    text.push_str(&format!("{TABLES_END}\n"));
    Ok(text)
}

/// What a table gets once it and all others are in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Later {
    table: String,
    /// Defaults that use a sequence.
    columns: Vec<SequenceDefault>,
    /// Foreign keys to tables that do not exist. A move would leave them in the copy.
    keys: Vec<Vec<u8>>,
}

/// A quoted column and its default.
type SequenceDefault = (Vec<u8>, Vec<u8>);

impl Later {
    /// The statements that add it to the table. `names` are those of the database that was backed up and of the one
    /// that it is in now.
    pub(crate) fn definitions(&self, names: Option<(&str, &str)>) -> Vec<Definition> {
        let default = |(column, default): &SequenceDefault| {
            let default = match names {
                Some((old, new)) => renamed_default(default, old, new),
                None => default.clone(),
            };
            [b" ALTER COLUMN ", column.as_slice(), b" SET DEFAULT (", &default, b")"].concat()
        };
        let defaults = self.columns.iter().map(default);
        let keys = self.keys.iter().map(|key| [b" ADD ", key.as_slice()].concat());
        let statement =
            |change: Vec<u8>| [format!("ALTER TABLE {}", quoted(&self.table)).into_bytes(), change].concat();
        let definition = |change: Vec<u8>| Definition {
            kind: DefinitionKind::Table,
            name: self.table.clone(),
            statement: statement(change),
            reading: reading(),
        };
        defaults.chain(keys).map(definition).collect()
    }
}

/// A table as it is created in a copy of its database, to be moved from there.
pub(crate) struct Movable {
    pub definition: Definition,
    /// Defaults contain the database of a sequence, which may not exist yet, and which a move does not change.
    pub later: Option<Later>,
    /// Whether its files were in a separate folder, where a move would leave them.
    pub had_directory: bool,
}

impl Movable {
    /// `names` are those of all tables.
    pub(crate) fn new(mut definition: Definition, names: &BTreeSet<String>) -> Self {
        if definition.kind != DefinitionKind::Table {
            return Self { definition, later: None, had_directory: false };
        }
        let (statement, had_directory) = without_directories(&definition.statement);
        let (statement, columns) = without_sequences(&statement);
        let (statement, keys) = without_lost_keys(&statement, names);
        definition.statement = statement;
        let table = definition.name.clone();
        let is_later = !columns.is_empty() || !keys.is_empty();
        Self { definition, later: is_later.then_some(Later { table, columns, keys }), had_directory }
    }
}

/// Removes foreign keys to tables of the same database that are not in `names`, and returns them.
fn without_lost_keys(statement: &[u8], names: &BTreeSet<String>) -> (Vec<u8>, Vec<Vec<u8>>) {
    const KEY: &[u8] = b",\n  CONSTRAINT `";
    let (mut written, mut keys, mut rest) = (Vec::with_capacity(statement.len()), Vec::new(), statement);
    while let Some(at) = outside_quotes(rest, |rest| rest.starts_with(KEY)) {
        written.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let clause = &rest[KEY.len() - b"CONSTRAINT `".len()..];
        let taken = match lost_key_length(clause, names) {
            Some(length) => {
                keys.push(clause[..length].to_vec());
                rest.len() - clause.len() + length
            }
            None => {
                written.extend_from_slice(&rest[..KEY.len() - 1]);
                KEY.len() - 1
            }
        };
        rest = &rest[taken..];
    }
    written.extend_from_slice(rest);
    (written, keys)
}

/// The length of the clause if it creates a foreign key to a table of the same database that is not in `names`.
fn lost_key_length(clause: &[u8], names: &BTreeSet<String>) -> Option<usize> {
    let after = |text: &[u8], word: &[u8]| text.strip_prefix(word).map(|rest| rest.len());
    let rest_of = |length: usize| &clause[clause.len() - length..];
    let rest = rest_of(after(clause, b"CONSTRAINT ")?);
    let rest = &rest[name_length(rest)?..];
    let rest = rest_of(after(rest, b" FOREIGN KEY ")?);
    let rest = &rest[expression_length(rest)?..];
    let rest = rest_of(after(rest, b" REFERENCES ")?);
    let length = name_length(rest)?;
    let (parent, rest) = rest.split_at(length);
    // A dot would mean a table of another database.
    let rest = rest_of(after(rest, b" ")?);
    let rest = &rest[expression_length(rest)?..];
    let words = rest.iter().position(|byte| !byte.is_ascii_uppercase() && *byte != b' ')?;
    let is_end = rest[words..].starts_with(b",\n") || rest[words..].starts_with(b"\n)");
    let parent = std::str::from_utf8(&parent[1..length - 1]).ok()?.replace("``", "`");
    // A name that differs by case may be another table. If it is the same, its key is merely added later than
    // necessary.
    (is_end && !names.contains(&parent)).then(|| clause.len() - rest.len() + words)
}

/// Removes the locations of files.
fn without_directories(statement: &[u8]) -> (Vec<u8>, bool) {
    let directory = |rest: &[u8]| {
        let words = [b" DATA DIRECTORY".as_slice(), b" INDEX DIRECTORY"];
        let words = words.iter().find(|words| rest.starts_with(words))?.len();
        let sign = rest[words..].iter().position(|byte| !b" =".contains(byte))?;
        let value = &rest[words + sign..];
        (value.first() == Some(&b'\'')).then(|| words + sign + quoted_length(value).unwrap_or(value.len()))
    };
    let (mut written, mut rest, mut is_found) = (Vec::with_capacity(statement.len()), statement, false);
    while let Some(at) = outside_quotes(rest, |rest| directory(rest).is_some()) {
        written.extend_from_slice(&rest[..at]);
        rest = &rest[at + directory(&rest[at..]).unwrap_or(1)..];
        is_found = true;
    }
    written.extend_from_slice(rest);
    (written, is_found)
}

/// Removes defaults that use a sequence, and returns them with their columns.
fn without_sequences(statement: &[u8]) -> (Vec<u8>, Vec<SequenceDefault>) {
    const COLUMN: &[u8] = b"\n  `";
    const DEFAULT: &[u8] = b" DEFAULT ";
    let (mut written, mut found) = (Vec::with_capacity(statement.len()), Vec::new());
    let (mut column, mut rest): (&[u8], &[u8]) = (b"", statement);
    while let Some(at) = outside_quotes(rest, |rest| rest.starts_with(COLUMN) || rest.starts_with(DEFAULT)) {
        written.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let taken = if rest.starts_with(COLUMN) {
            let name = &rest[COLUMN.len() - 1..];
            column = &name[..name_length(name).unwrap_or(name.len())];
            COLUMN.len() - 1 + column.len()
        } else {
            let default = &rest[DEFAULT.len()..];
            let length = expression_length(default).filter(|length| asks_sequence(&default[..*length]));
            let Some(length) = length.filter(|_| !column.is_empty()) else {
                written.extend_from_slice(DEFAULT);
                rest = default;
                continue;
            };
            found.push((column.to_vec(), default[..length].to_vec()));
            // An invisible column needs a default.
            let line = written.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
            if outside_quotes(&written[line..], |rest| rest.starts_with(b" INVISIBLE")).is_some() {
                written.extend_from_slice(b" DEFAULT 0");
            }
            rest = &default[length..];
            continue;
        };
        written.extend_from_slice(&rest[..taken]);
        rest = &rest[taken..];
    }
    written.extend_from_slice(rest);
    (written, found)
}

/// The length of an expression that is a call or in brackets, up to the closing bracket.
fn expression_length(text: &[u8]) -> Option<usize> {
    let word = text.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')?;
    if text[word] != b'(' {
        return None;
    }
    let (mut at, mut depth) = (word, 0_usize);
    while at < text.len() {
        match text[at] {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
        at += quoted_length(&text[at..]).unwrap_or(1);
    }
    None
}

fn asks_sequence(expression: &[u8]) -> bool {
    let calls = [b"nextval(".as_slice(), b"lastval(", b"setval("];
    outside_quotes(expression, |rest| calls.iter().any(|call| rest.starts_with(call))).is_some()
}

/// The definition without the number of the next row, which changes all the time.
pub(crate) fn without_counter(statement: &[u8]) -> Vec<u8> {
    const COUNTER: &[u8] = b" AUTO_INCREMENT=";
    let Some(at) = outside_quotes(statement, |rest| rest.starts_with(COUNTER)) else { return statement.to_vec() };
    let after = &statement[at + COUNTER.len()..];
    let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
    [&statement[..at], &after[digits..]].concat()
}

/// Whether a definition can be trusted. The server prints literals with their own character set without escapes, so
/// that the author of the table may have written what follows. If there is such a literal, it must be plain, and
/// everything around it must be as servers write it: no comment, no surplus bracket, and only options after the
/// columns.
pub(crate) fn is_clear(statement: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let introducer = |rest: &[u8]| {
        let length = rest.iter().position(|byte| !is_word(byte)).unwrap_or(0);
        (rest.starts_with(b"_") && length > 1 && rest[length] == b'\'').then_some(length)
    };
    if outside_quotes(statement, |rest| introducer(rest).is_some()).is_none() {
        return true;
    }
    let (mut at, mut depth, mut end) = (0, 0_usize, None);
    while at < statement.len() {
        let rest = &statement[at..];
        if let Some(length) = introducer(rest) {
            let text = &rest[length..];
            let Some(quoted) = quoted_length(text) else { return false };
            // A literal without an end may consist of a single quote.
            let Some(inner) = text.get(1..quoted - 1) else { return false };
            let after = text.get(quoted);
            let is_utf8 = rest.starts_with(b"_utf8");
            let is_plain = |byte: &u8| {
                byte.is_ascii_alphanumeric() || b" _.,:/+-@%=".contains(byte) || is_utf8 && !byte.is_ascii()
            };
            if !inner.iter().all(is_plain) || !after.is_some_and(|byte| b",) ".contains(byte)) {
                return false;
            }
            at += length + quoted;
            continue;
        }
        match rest[0] {
            b'(' => depth += 1,
            b')' if depth == 0 => return false,
            b')' => depth -= 1,
            b';' | b'#' => return false,
            _ if rest.starts_with(b"--") || rest.starts_with(b"/*") => return false,
            b'\'' | b'`' | b'"' if quoted_length(rest).is_none() || !is_closed(rest) => return false,
            _ => {}
        }
        // The list of columns ends with a bracket at the beginning of a line.
        if rest[0] == b')' && depth == 0 && end.is_none() {
            if statement[..at].last() != Some(&b'\n') {
                return false;
            }
            end = Some(at + 1);
        }
        at += quoted_length(rest).unwrap_or(1);
    }
    let Some(options) = end.filter(|_| depth == 0).map(|end| &statement[end..]) else { return false };
    const NO_OPTIONS: [&[u8]; 6] = [b" AS ", b" SELECT ", b" UNION", b" IGNORE ", b" REPLACE ", b" INSERT_METHOD"];
    outside_quotes(options, |rest| NO_OPTIONS.iter().any(|word| starts_like(rest, word))).is_none()
}

fn starts_like(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|found| found.eq_ignore_ascii_case(word))
}

/// Whether the quoted text that begins here is closed.
fn is_closed(text: &[u8]) -> bool {
    let length = quoted_length(text).unwrap_or(0);
    length > 1 && text[..length].last() == text.first()
}

/// The character sets that a table specifies for itself and its columns.
pub(crate) fn sets_of(statement: &[u8]) -> BTreeSet<String> {
    const WORDS: [&[u8]; 2] = [b" CHARACTER SET ", b" CHARSET="];
    let after = |rest: &[u8]| WORDS.iter().find(|word| rest.starts_with(word)).map(|word| word.len());
    let (mut rest, mut sets) = (statement, BTreeSet::new());
    while let Some(at) = outside_quotes(rest, |rest| after(rest).is_some()) {
        rest = &rest[at + after(&rest[at..]).unwrap_or(1)..];
        let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        sets.insert(String::from_utf8_lossy(&rest[..length]).into_owned());
    }
    sets
}

/// Whether a column of a table has this type.
pub(crate) fn has_type(statement: &[u8], name: &str) -> bool {
    let sign = format!(" {name}");
    let is_type = |line: &[u8]| {
        let line = line.strip_prefix(b"  ").filter(|line| line.starts_with(b"`"));
        let rest = line.and_then(|line| line.get(name_length(line)?..));
        let rest = rest.and_then(|rest| rest.strip_prefix(sign.as_bytes()));
        rest.is_some_and(|rest| rest.first().is_none_or(|byte| !byte.is_ascii_alphanumeric()))
    };
    statement.split(|byte| *byte == b'\n').any(is_type)
}

/// Whether a table keeps its history by transaction ids instead of time.
pub(crate) fn is_versioned_by_transactions(statement: &[u8]) -> bool {
    const NUMBERED: &[u8] = b" bigint(20) unsigned GENERATED ALWAYS AS ROW START";
    outside_quotes(statement, |rest| rest.starts_with(NUMBERED)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(statement: &str) -> Definition {
        Definition { kind: DefinitionKind::Table, name: "t".into(), statement: statement.into(), reading: reading() }
    }

    #[test]
    fn what_a_move_would_leave_behind_is_taken_out() {
        let statement = "CREATE TABLE `t` (\n  `a``b` bigint(20) NOT NULL DEFAULT nextval(`shop`.`s)`) COMMENT ' DEFAULT nextval(x)',\n  \
            `b` bigint(20) DEFAULT (nextval(`x`.`s`) + 1),\n  `c` text DEFAULT concat('nextval(',')'),\n  `d` int(11) DEFAULT 3\n) \
            ENGINE=InnoDB AUTO_INCREMENT=7 DATA DIRECTORY='/a '' b/' INDEX DIRECTORY='/c/' COMMENT=' DATA DIRECTORY=''x'''";
        let Movable { definition, later, had_directory } = Movable::new(table(statement), &BTreeSet::new());
        let left = "CREATE TABLE `t` (\n  `a``b` bigint(20) NOT NULL COMMENT ' DEFAULT nextval(x)',\n  \
            `b` bigint(20),\n  `c` text DEFAULT concat('nextval(',')'),\n  `d` int(11) DEFAULT 3\n) \
            ENGINE=InnoDB AUTO_INCREMENT=7 COMMENT=' DATA DIRECTORY=''x'''";
        assert_eq!(String::from_utf8(definition.statement.clone()).unwrap(), left);
        assert!(had_directory);
        let texts = |all: Vec<Definition>| -> Vec<String> {
            all.into_iter().map(|one| String::from_utf8(one.statement).unwrap()).collect()
        };
        assert_eq!(
            texts(later.unwrap().definitions(Some(("shop", "copy")))),
            [
                "ALTER TABLE `t` ALTER COLUMN `a``b` SET DEFAULT (nextval(`copy`.`s)`))",
                "ALTER TABLE `t` ALTER COLUMN `b` SET DEFAULT ((nextval(`x`.`s`) + 1))"
            ]
        );
        let sets = sets_of(
            b"CREATE TABLE `t` (\n  `a CHARACTER SET x` char(1) CHARACTER SET cp1251 COLLATE cp1251_bin COMMENT ' CHARSET=y'\n) \
              ENGINE=InnoDB DEFAULT CHARSET=latin1",
        );
        assert_eq!(sets.into_iter().collect::<Vec<_>>(), ["cp1251", "latin1"]);
        assert!(!String::from_utf8(without_counter(&definition.statement)).unwrap().contains("AUTO"));
        assert!(has_type(b"CREATE TABLE `t` (\n  `a b` float(3,1) DEFAULT 1\n)", "float"));
        assert!(!has_type(b"CREATE TABLE `t` (\n  `a float` int COMMENT ' float'\n)", "float"));
    }

    #[test]
    fn keys_to_tables_that_are_not_there_follow_later() {
        let statement = "CREATE TABLE `t` (\n  `a` int(11) NOT NULL INVISIBLE DEFAULT nextval(`x`.`s`),\n  KEY `a` (`a`),\n  \
            CONSTRAINT `here` FOREIGN KEY (`a`) REFERENCES `Par` (`id`),\n  CONSTRAINT `lost,` FOREIGN KEY (`a`,`b)`) REFERENCES \
            `g``one` (`id`,`x`) ON DELETE CASCADE,\n  CONSTRAINT `far` FOREIGN KEY (`a`) REFERENCES `y`.`z` (`id`),\n  CONSTRAINT \
            `c` CHECK (`a` > 0)\n) ENGINE=InnoDB";
        let names = BTreeSet::from(["t".to_owned(), "Par".to_owned()]);
        let Movable { definition, later, .. } = Movable::new(table(statement), &names);
        // A name that differs by case may be another table's.
        let other = Movable::new(table(statement), &BTreeSet::from(["t".to_owned(), "par".to_owned()])).definition;
        assert!(!String::from_utf8(other.statement).unwrap().contains("`here`"));
        let made = String::from_utf8(definition.statement).unwrap();
        assert!(
            !made.contains("lost") && made.contains("`far`") && made.contains("`here`") && made.contains("CHECK"),
            "{made}"
        );
        assert!(made.contains("NOT NULL INVISIBLE DEFAULT 0,"), "{made}");
        let later = later.unwrap().definitions(None).into_iter().map(|one| String::from_utf8(one.statement).unwrap());
        assert_eq!(
            later.collect::<Vec<_>>(),
            [
                "ALTER TABLE `t` ALTER COLUMN `a` SET DEFAULT (nextval(`x`.`s`))",
                "ALTER TABLE `t` ADD CONSTRAINT `lost,` FOREIGN KEY (`a`,`b)`) REFERENCES `g``one` (`id`,`x`) ON DELETE CASCADE"
            ]
        );
    }

    #[test]
    fn texts_without_escapes_are_plain_or_refused() {
        let of = |column: &str, rest: &str| {
            format!("CREATE TABLE `t` (\n  `a` text DEFAULT {column}\n) ENGINE=InnoDB{rest}")
        };
        for clear in [
            of("concat('it''s -- ; /*')", " COMMENT='; -- '"),
            of("concat(_utf8mb4'x ü',`a`)", " DEFAULT CHARSET=latin1"),
            of("concat(_latin1'',_binary'q')", " COMMENT='*/ -- '"),
            of("'x'", " UNION=(`b`) INSERT_METHOD=LAST"),
        ] {
            assert!(is_clear(clear.as_bytes()), "{clear}");
        }
        for unclear in [
            of("concat(_latin1'')) AS SELECT shop.f() AS a /*')", " COMMENT='*/ -- '"),
            of("concat(_latin1'')\n) ENGINE=x AS SELECT shop.f() AS a /*')", " COMMENT='*/ -- '"),
            of("concat(_latin1'a')); GRANT ALL ON *.* TO x; CREATE TABLE p2(x text default concat('','c')", ""),
            of("concat(_latin1'a'b','c')", ""),
            of("concat(_utf8mb4'C:\\x0Aew')", ""),
            of("concat(_latin1'a')\n) ENGINE=MRG_MyISAM UNION=(victim.m) COMMENT=('b')", ""),
            of("concat(_latin1'a') -- '", ""),
        ] {
            assert!(!is_clear(unclear.as_bytes()), "{unclear}");
        }
    }

    #[test]
    fn an_expression_ends_with_its_bracket_whatever_is_in_it() {
        for text in ["nextval(')')", "1 + nextval(`s`)"] {
            let statement = format!("CREATE TABLE `t` (\n  `a` int DEFAULT {text},\n  `b` int\n)");
            let movable = Movable::new(table(&statement), &BTreeSet::new());
            assert_eq!(movable.definition.statement.len() < statement.len(), text == "nextval(')')", "{text}");
        }
    }
}
