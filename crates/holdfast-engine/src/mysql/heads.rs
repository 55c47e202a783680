//! The heads of statements that create something: the definer, and the name and table of a trigger.

use std::ops::Range;

use super::{account_length, name_length};

/// The length of a quoted text, with its quotes.
pub(super) fn text_length(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            quote if quote == text[0] => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// A statement without the `DEFINER=`user`@`host`` at its beginning, where the tools write it; a role has no host.
pub(super) fn without_definer(line: &[u8]) -> Vec<u8> {
    match definer_at(line) {
        Some(at) => [&line[..at.start - DEFINER.len()], &line[at.end..]].concat(),
        None => line.to_vec(),
    }
}

const DEFINER: &[u8] = b"DEFINER=";

/// Where the account is after `CREATE DEFINER=`, `/*!50013 DEFINER=` and `/*!50003 CREATE*/ /*!50017 DEFINER=`.
pub(super) fn definer_at(line: &[u8]) -> Option<Range<usize>> {
    fn after_mark(text: &[u8]) -> Option<&[u8]> {
        let rest = text.strip_prefix(b"/*!")?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        rest[digits..].strip_prefix(b" ")
    }
    let plain = line.strip_prefix(b"CREATE ");
    let marked = || after_mark(line).map(|rest| rest.strip_prefix(b"CREATE*/ ").and_then(after_mark).unwrap_or(rest));
    let rest = plain.or_else(marked)?;
    let account = rest.strip_prefix(DEFINER)?;
    let at = line.len() - account.len();
    Some(at..at + account_length(account)?)
}

/// Where the names of a trigger and of its table are, each with the database that may precede it.
struct TriggerHead {
    name: Qualified,
    table: Qualified,
}

/// Where a name begins, and where the database before it begins, if there is one.
struct Qualified {
    database: Option<usize>,
    name: usize,
}

/// The length of the head of a trigger, up to the name of its table.
pub(super) fn head_length(statement: &[u8]) -> Option<usize> {
    head_of(statement).map(|head| head.table.name)
}

/// Removes database names from the head of a CREATE TRIGGER line. They always name the database that is being loaded.
pub(super) fn without_qualifiers(line: &[u8]) -> Option<Vec<u8>> {
    let TriggerHead { name, table } = head_of(line)?;
    let (mut written, mut from) = (Vec::with_capacity(line.len()), 0);
    for Qualified { database, name } in [name, table] {
        written.extend_from_slice(&line[from..database.unwrap_or(name)]);
        from = name;
    }
    written.extend_from_slice(&line[from..]);
    Some(written)
}

/// `TRIGGER [IF NOT EXISTS] [database.]name time event ON [database.]table`; `None` if it is not complete yet.
fn head_of(line: &[u8]) -> Option<TriggerHead> {
    let mut words = Words { text: line, at: 0 };
    words.pass(b"TRIGGER")?;
    let mut name = words.qualified()?;
    if line[name.name..].get(..2).is_some_and(|word| word.eq_ignore_ascii_case(b"IF")) && name.database.is_none() {
        let begin = words.at;
        if words.accept(b"NOT") && words.accept(b"EXISTS") {
            name = words.qualified()?;
        } else {
            // The trigger is called `IF`.
            words.at = begin;
        }
    }
    words.pass(b"ON")?;
    let table = words.qualified()?;
    // A name at the end of the text may continue, or a dot may follow.
    words.skip_blank();
    (words.at < line.len()).then_some(TriggerHead { name, table })
}

/// The words of a statement, one after the other; comments and blanks are skipped.
struct Words<'a> {
    text: &'a [u8],
    at: usize,
}

impl Words<'_> {
    fn rest(&self) -> &[u8] {
        &self.text[self.at..]
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let length = match rest {
                [b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c, ..] => 1,
                [b'#', ..] | [b'-', b'-', b' ' | b'\t'..=b'\r', ..] => {
                    rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1)
                }
                // The content of versioned comments is part of the statement, and their ends are not words.
                [b'/', b'*', b'!', ..] | [b'/', b'*', b'M', b'!', ..] => {
                    let mark = rest.iter().position(|byte| *byte == b'!').unwrap_or(0) + 1;
                    mark + rest[mark..].iter().take_while(|byte| byte.is_ascii_digit()).count()
                }
                [b'*', b'/', ..] => 2,
                [b'/', b'*', ..] => {
                    rest.windows(2).skip(2).position(|window| window == b"*/").map_or(rest.len(), |end| end + 4)
                }
                _ => return,
            };
            self.at += length;
        }
    }

    /// The length of the name here, with its quotes.
    fn name_length(&self) -> Option<usize> {
        let rest = self.rest();
        let length = match rest.first()? {
            b'`' => name_length(rest)?,
            b'"' => text_length(rest),
            _ => rest
                .iter()
                .take_while(|byte| byte.is_ascii_alphanumeric() || b"_$".contains(byte) || **byte >= 0x80)
                .count(),
        };
        Some(length).filter(|length| *length > 0)
    }

    /// Skips this word, if it is the next.
    fn accept(&mut self, word: &[u8]) -> bool {
        self.skip_blank();
        let length = self.name_length().unwrap_or(0);
        let is_it = self.rest()[..length.min(self.rest().len())].eq_ignore_ascii_case(word);
        if is_it {
            self.at += length;
        }
        is_it
    }

    /// Skips everything up to and including this word.
    fn pass(&mut self, word: &[u8]) -> Option<()> {
        loop {
            self.skip_blank();
            let length = if self.at < self.text.len() { self.name_length().unwrap_or(1) } else { return None };
            let found = &self.rest()[..length.min(self.rest().len())];
            let is_it = found.eq_ignore_ascii_case(word);
            self.at = (self.at + length).min(self.text.len());
            if is_it {
                return Some(());
            }
        }
    }

    /// The name here, with the database before it.
    fn qualified(&mut self) -> Option<Qualified> {
        self.skip_blank();
        let first = self.at;
        self.at += self.name_length()?;
        let end = self.at;
        self.skip_blank();
        if !self.rest().starts_with(b".") {
            self.at = end;
            return Some(Qualified { database: None, name: first });
        }
        self.at += 1;
        self.skip_blank();
        let name = self.at;
        self.at += self.name_length()?;
        Some(Qualified { database: Some(first), name })
    }
}
