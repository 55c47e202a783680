//! Keeps `psql` from running programs: a dump of a whole cluster is SQL that psql reads, and psql has commands of its
//! own that reach the shell. Those that dumps need pass; any other backslash outside of quoted text is refused.

use std::io::{self, BufRead, BufReader, Read};

use holdfast_core::run::FailureCode;

use crate::error::EngineError;

/// What `pg_dumpall` writes.
const ALLOWED: &[&str] = &["\\connect", "\\restrict", "\\unrestrict", "\\encoding"];
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
    Quoted { escapes: bool },
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
            }
            return Ok(());
        }
        let line = std::mem::take(&mut self.ready);
        let looked = self.look(&line, starts, ends);
        self.ready = line;
        looked
    }

    /// Follows quotes and comments through one line of SQL.
    fn look(&mut self, line: &[u8], starts: bool, ends: bool) -> io::Result<()> {
        // Outside of quoted text no line of a dump is this long; inside, pieces are read on as they come.
        if self.state == State::Plain && !ends && line.len() >= PIECE_BYTES {
            return refuse(b"a line that is too long");
        }
        if self.state == State::Plain && starts && line.starts_with(b"\\") {
            let word = line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
            let is_allowed = ALLOWED.iter().any(|allowed| allowed.as_bytes() == word);
            // One command a line: a second could hide behind its arguments.
            let rest = line.get(word.len()..).unwrap_or_default();
            if !is_allowed || rest.contains(&b'`') || rest.windows(2).any(|pair| pair == b" \\") {
                return refuse(word);
            }
            return Ok(());
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
                    b'\'' => {
                        let before = &line[..at - 1];
                        let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
                        let escapes = matches!(before.last(), Some(b'e' | b'E'))
                            && !is_word(before.len().checked_sub(2).and_then(|place| before.get(place)));
                        self.state = State::Quoted { escapes };
                    }
                    b'"' => self.state = State::Identifier,
                    b'$' => {
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
                State::Quoted { escapes } => match byte {
                    b'\\' if *escapes => at += 1,
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
    fn what_a_dump_holds_passes_unchanged() {
        let dump = "-- it's a comment \\! id\n\\connect \"my db\"\nSET x = 'a\\b';\nSELECT E'it\\'s \\\\';\n\
            CREATE FUNCTION f() RETURNS text AS $_$ select '\\! id' $_$ LANGUAGE sql;\n\
            COPY public.t (a, b) FROM stdin;\n1\t\\N\n\\\\!\tid'\n\\.\n/* \\! /* id */ \\! */\nSELECT 1;\n";
        assert_eq!(pass(dump).unwrap(), dump);
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
        ];
        for text in hostile {
            assert!(pass(text).is_err(), "{text}");
        }
    }
}
