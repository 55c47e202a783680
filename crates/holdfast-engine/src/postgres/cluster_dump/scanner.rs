//! Reads a dump byte by byte, decides where statements, quoted text, table data and commands begin and end, and writes
//! what `psql` is to read.

use super::command::{self, Command};
use super::found::{ClusterDump, FilterOptions, Refused};
use super::statement;
use super::words::StatementKind;

/// How much of a statement is held back until its end has been checked. What must be understood as a whole, such as a
/// `COPY` with 1,600 long column names, fits; longer statements are passed on while they are read.
const HELD_BYTES: usize = 512 * 1024;
/// A command contains at most one database name, of 63 bytes, each of which may be escaped.
const COMMAND_BYTES: usize = 512;
/// `pg_dump` starts with `$$` and lengthens the tag by a few letters until it is not in the text.
const TAG_BYTES: usize = 64;
/// The most names of databases, of roles or of tablespaces.
const NAMES: usize = 100_000;

const HEADER: [&[u8]; 2] = [b"--", b"-- PostgreSQL database cluster dump"];
const FOOTER: &[u8] = b"-- PostgreSQL database cluster dump complete";

type Step<T = ()> = Result<T, String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between statements, at the beginning of a line.
    Between,
    /// After one `-` at the beginning of a line.
    Dash,
    Comment,
    Command,
    /// In a statement, outside quoted text.
    Sql,
    Text(Text),
    /// After `'` in a literal: its end, unless another follows.
    TextEnd(Text),
    /// After a backslash in `E''`.
    Escape,
    Identifier,
    IdentifierEnd,
    /// After `$`.
    Tag,
    /// After `$` and a digit: a parameter of a function.
    Parameter,
    /// In a dollar-quoted text; how many bytes of the closing tag have been seen.
    Dollar(usize),
    /// After the `;` that ends a statement.
    Ended(Next),
    /// In table data, at the beginning of a row.
    RowStart,
    Row,
    /// After a backslash in a row.
    RowEscape,
    /// After a backslash at the beginning of a row.
    RowStartEscape,
    /// After `\.` at the beginning of a row.
    RowsEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    /// `'…'`, in which a backslash is an ordinary character.
    Plain,
    /// `E'…'`
    Escapes,
    /// `B'…'` or `X'…'`
    Bits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Statement,
    Rows,
}

/// What is known about the session of `psql` at this point of the dump.
#[derive(Default)]
struct Session {
    /// Set by the dump since the last `\connect`.
    encoding: Option<&'static str>,
    has_standard_strings: bool,
    /// The token of `\restrict`.
    restricted: Option<Vec<u8>>,
    /// `\encoding SQL_ASCII` was the line before.
    is_raw: bool,
}

/// The statement being read.
struct Statement {
    /// As `psql` will read it; empty once it has been passed on before its end.
    held: Vec<u8>,
    is_passed_on: bool,
    /// Whether what it means depends on the session's settings.
    is_sensitive: bool,
    /// The last two bytes outside quoted text; a closing quote represents its quoted text.
    previous: [u8; 2],
    word: Vec<u8>,
    /// The first words, by which `psql` decides whether a `BEGIN` may follow.
    first_words: Vec<Vec<u8>>,
    parentheses: u32,
    brackets: u32,
    /// How many `BEGIN` and `CASE` wait for their `END`.
    blocks: u32,
    expects_atomic: bool,
    /// After the `END` of a function's body, which only a `;` may follow.
    expects_end: bool,
    /// Where a statement within this one begins.
    is_inner_start: bool,
    /// Only blanks have followed the last literal.
    is_after_text: bool,
}

impl Statement {
    fn new() -> Self {
        Self {
            held: Vec::new(),
            is_passed_on: false,
            is_sensitive: false,
            previous: *b"\n\n",
            word: Vec::new(),
            first_words: Vec::new(),
            parentheses: 0,
            brackets: 0,
            blocks: 0,
            expects_atomic: false,
            expects_end: false,
            is_inner_start: false,
            is_after_text: false,
        }
    }

    /// In these statements, `psql` 14 and later waits for the `END` of a `BEGIN` anywhere outside parentheses.
    fn is_routine(&self) -> bool {
        let words: Vec<&[u8]> = self.first_words.iter().map(Vec::as_slice).collect();
        matches!(
            words[..],
            [b"CREATE", b"FUNCTION" | b"PROCEDURE", ..]
                | [b"CREATE", b"OR", b"REPLACE", b"FUNCTION" | b"PROCEDURE", ..]
        )
    }

    fn end_word(&mut self) -> Step {
        if self.word.is_empty() {
            return Ok(());
        }
        let word = std::mem::take(&mut self.word);
        let is_inner_start = std::mem::take(&mut self.is_inner_start);
        if word[0].is_ascii_digit() {
            return if is_inner_start { Err(NO_STATEMENT.to_owned()) } else { check_number(&word) };
        }
        const FIRST_WORDS: usize = 4;
        if self.first_words.len() < FIRST_WORDS {
            self.first_words.push(word.clone());
        }
        if is_inner_start && word == b"COPY" {
            return Err("a COPY inside another statement".to_owned());
        }
        if std::mem::take(&mut self.expects_atomic) {
            self.is_inner_start = true;
            let unclear = "a function with BEGIN outside its quoted body, which psql does not find the end of";
            return if word == b"ATOMIC" { Ok(()) } else { Err(unclear.to_owned()) };
        }
        match word.as_slice() {
            _ if self.parentheses > 0 || !self.is_routine() => {}
            _ if self.blocks > 0 => return self.step_body(&word, is_inner_start),
            b"BEGIN" => (self.blocks, self.expects_atomic) = (1, true),
            _ => {}
        }
        Ok(())
    }

    /// A word in the body of a function, outside parentheses. `psql` waits for one `END` for each `CASE`; to the
    /// server, each of these words may also be the name of a column. They agree on where the body ends if an `END` that
    /// begins a statement is the last one expected, and all others close a `CASE`.
    fn step_body(&mut self, word: &[u8], is_inner_start: bool) -> Step {
        const STATEMENTS: &[&[u8]] =
            &[b"DELETE", b"INSERT", b"MERGE", b"RETURN", b"SELECT", b"UPDATE", b"VALUES", b"WITH"];
        match word {
            b"END" if is_inner_start && self.blocks == 1 => (self.blocks, self.expects_end) = (0, true),
            b"END" if !is_inner_start && self.blocks > 1 => self.blocks -= 1,
            b"END" => {
                return Err("an END in the body of a function that psql and the server read differently".to_owned());
            }
            _ if is_inner_start && !STATEMENTS.contains(&word) => return Err(NO_STATEMENT.to_owned()),
            b"BEGIN" => return Err("a BEGIN in the body of a function".to_owned()),
            b"CASE" => self.blocks += 1,
            _ => {}
        }
        Ok(())
    }

    /// Checks what is outside words in a function's body and right after it.
    fn check_body(&mut self, byte: u8) -> Step {
        let (is_blank, is_word) = (matches!(byte, b' ' | b'\n' | b'\t'), !self.word.is_empty());
        if !is_blank && (self.expects_end && byte != b';' || self.expects_atomic && !is_word) {
            return Err("a function with BEGIN outside its quoted body".to_owned());
        }
        if is_blank || is_word {
            return Ok(());
        }
        if self.blocks > 0 && byte == b';' && self.parentheses > 0 {
            return Err("a ; in parentheses in the body of a function".to_owned());
        }
        if self.blocks > 0 && self.is_inner_start {
            // Queries combined by UNION and the like may be in parentheses.
            self.is_inner_start = false;
            return if byte == b'(' { Ok(()) } else { Err(NO_STATEMENT.to_owned()) };
        }
        Ok(())
    }
}

const NO_STATEMENT: &str = "something in the body of a function that is not a query";

/// Only digits, with an optional exponent: lexers differ on where a number with letters after it ends.
fn check_number(word: &[u8]) -> Step {
    let mut parts = word.splitn(2, |byte| *byte == b'E');
    let are_digits = parts.all(|part| part.iter().all(u8::is_ascii_digit));
    if are_digits { Ok(()) } else { Err("a number with letters after it".to_owned()) }
}

/// Whether a literal may start after this byte: only what `pg_dump` writes there is allowed.
fn is_before_text(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\t' | b'(' | b',' | b'=' | b'[')
}

pub(super) struct Scanner {
    options: FilterOptions,
    state: State,
    session: Session,
    statement: Statement,
    /// The comment or the command being read.
    line_text: Vec<u8>,
    /// The tag of the dollar quote being read, including both `$`.
    tag: Vec<u8>,
    /// Lines of the header that were seen.
    header_lines: usize,
    line: u64,
    byte: u64,
    found: ClusterDump,
}

impl Scanner {
    pub(super) fn new(options: FilterOptions) -> Self {
        Self {
            options,
            state: State::Between,
            session: Session::default(),
            statement: Statement::new(),
            line_text: Vec::new(),
            tag: Vec::new(),
            header_lines: 0,
            line: 1,
            byte: 0,
            found: ClusterDump::default(),
        }
    }

    /// Checks the next bytes and appends what `psql` is to read to `out`.
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Refused> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.state == State::Row {
                let is_plain = |byte: &u8| !matches!(byte, b'\\' | b'\n' | b'\r' | 0);
                let length = rest.iter().position(|byte| !is_plain(byte)).unwrap_or(rest.len());
                out.extend_from_slice(&rest[..length]);
                self.byte += length as u64;
                rest = &rest[length..];
            }
            let Some((byte, after)) = rest.split_first() else { break };
            self.step(*byte, out).map_err(|what| self.refused(what))?;
            self.byte += 1;
            self.line += u64::from(*byte == b'\n');
            rest = after;
        }
        Ok(())
    }

    /// Ends the dump and returns what was found in it.
    pub(super) fn finish(&mut self) -> Result<ClusterDump, Refused> {
        let problem = match self.state {
            _ if self.header_lines < HEADER.len() => "its first lines are missing",
            State::Between if self.session.restricted.is_some() => "it ends before \\unrestrict",
            State::Between => return Ok(self.found.clone()),
            _ => "it ends in the middle of a statement or of a table's data",
        };
        Err(self.refused(problem.to_owned()))
    }

    fn refused(&self, what: String) -> Refused {
        Refused { what, line: self.line, byte: self.byte }
    }

    fn step(&mut self, byte: u8, out: &mut Vec<u8>) -> Step {
        if byte == 0 {
            return Err("a zero byte".to_owned());
        }
        match self.state {
            State::Between => self.step_between(byte),
            State::Dash if byte == b'-' => {
                self.line_text = b"--".to_vec();
                self.state = State::Comment;
                Ok(())
            }
            State::Dash => Err("a line that starts with -".to_owned()),
            State::Comment => self.step_comment(byte),
            State::Command => self.step_command(byte, out),
            State::Ended(next) => self.step_ended(byte, next),
            State::RowStart | State::Row | State::RowEscape | State::RowStartEscape | State::RowsEnd => {
                self.step_rows(byte, out)
            }
            _ => self.step_statement(byte, out),
        }
    }

    fn step_between(&mut self, byte: u8) -> Step {
        if self.header_lines < HEADER.len() && byte != b'-' {
            return Err("it does not begin with the lines of a cluster dump".to_owned());
        }
        match byte {
            b'\n' => {}
            b'-' => self.state = State::Dash,
            b'\\' => {
                self.line_text = vec![byte];
                self.state = State::Command;
            }
            b'A'..=b'Z' => {
                self.session.is_raw = false;
                self.statement = Statement::new();
                self.statement.held.push(byte);
                self.statement.word.push(byte);
                self.statement.previous = [b'\n', byte];
                self.state = State::Sql;
            }
            _ => return Err(format!("a line that starts with {}", shown(byte))),
        }
        Ok(())
    }

    /// Comments contain names of objects, which may hold anything but line breaks; comments are not passed on.
    fn step_comment(&mut self, byte: u8) -> Step {
        match byte {
            b'\n' => {
                if let Some(expected) = HEADER.get(self.header_lines) {
                    if self.line_text != *expected {
                        return Err("it does not begin with the lines of a cluster dump".to_owned());
                    }
                    self.header_lines += 1;
                }
                self.found.is_complete |= self.line_text == FOOTER;
                self.state = State::Between;
            }
            b'\r' => return Err("a carriage return in a comment".to_owned()),
            _ if self.line_text.len() <= FOOTER.len() => self.line_text.push(byte),
            _ => {}
        }
        Ok(())
    }

    fn step_command(&mut self, byte: u8, out: &mut Vec<u8>) -> Step {
        if byte != b'\n' {
            if self.line_text.len() >= COMMAND_BYTES {
                return Err("a command that is too long".to_owned());
            }
            self.line_text.push(byte);
            return Ok(());
        }
        self.state = State::Between;
        self.found.is_complete = false;
        let line = std::mem::take(&mut self.line_text);
        let is_raw = std::mem::take(&mut self.session.is_raw);
        let command = command::parse(&line)?;
        if self.session.restricted.is_some() && !matches!(command, Command::Unrestrict(_)) {
            return Err("a command between \\restrict and \\unrestrict".to_owned());
        }
        let mut is_left_out = false;
        match command {
            Command::Connect(name) => {
                if !name.is_ascii() && !is_raw {
                    return Err("a \\connect with letters beyond ASCII and without \\encoding before it".to_owned());
                }
                note(&mut self.found.databases, name)?;
                self.session = Session::default();
            }
            Command::Encoding(name) => (self.session.encoding, self.session.is_raw) = (Some(name), name == "SQL_ASCII"),
            Command::Restrict(token) => {
                self.session.restricted = Some(token.to_vec());
                is_left_out = self.options.without_restrict;
            }
            Command::Unrestrict(token) => {
                if self.session.restricted.take().as_deref() != Some(token) {
                    return Err("an \\unrestrict with another token than its \\restrict".to_owned());
                }
                is_left_out = self.options.without_restrict;
            }
        }
        if !is_left_out {
            out.extend_from_slice(&line);
            out.push(b'\n');
            if line.starts_with(b"\\connect ") {
                let turned_off = self.options.turned_off.iter().map(|name| format!("SET {name} = 0;\n"));
                out.extend(turned_off.flat_map(String::into_bytes));
            }
        }
        Ok(())
    }

    fn step_ended(&mut self, byte: u8, next: Next) -> Step {
        if byte != b'\n' {
            return Err("something after the end of a statement on the same line".to_owned());
        }
        self.state = match next {
            Next::Statement => State::Between,
            Next::Rows => State::RowStart,
        };
        Ok(())
    }

    /// The server escapes special characters in rows, so every backslash is followed by a known letter.
    fn step_rows(&mut self, byte: u8, out: &mut Vec<u8>) -> Step {
        self.state = match (self.state, byte) {
            (State::RowStartEscape, b'.') => State::RowsEnd,
            (State::RowStartEscape | State::RowEscape, b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'N' | b'\\') => {
                State::Row
            }
            (State::RowStartEscape | State::RowEscape, _) => return Err("an unknown escape in a row".to_owned()),
            (State::RowsEnd, b'\n') => State::Between,
            (State::RowsEnd, _) => return Err("something after \\. on the same line".to_owned()),
            (State::RowStart, b'\\') => State::RowStartEscape,
            (_, b'\\') => State::RowEscape,
            (_, b'\r') => return Err("a carriage return in a row".to_owned()),
            (_, b'\n') => {
                self.found.rows += 1;
                State::RowStart
            }
            _ => State::Row,
        };
        out.push(byte);
        Ok(())
    }

    fn step_statement(&mut self, byte: u8, out: &mut Vec<u8>) -> Step {
        match self.state {
            State::Text(text) => self.step_text(byte, text)?,
            State::TextEnd(text) if byte == b'\'' => self.state = State::Text(text),
            State::Escape if byte == b'\\' || byte.is_ascii_alphanumeric() => self.state = State::Text(Text::Escapes),
            State::Escape => return Err("an unknown escape in a text".to_owned()),
            State::Identifier => {
                if byte == b'"' {
                    self.state = State::IdentifierEnd;
                }
                self.check_letter(byte)?;
            }
            State::IdentifierEnd if byte == b'"' => self.state = State::Identifier,
            State::Tag => self.step_tag(byte)?,
            State::Parameter if byte.is_ascii_digit() => {}
            State::Dollar(matched) => {
                self.step_dollar(byte, matched);
                self.check_letter(byte)?;
            }
            _ => return self.step_outside(byte, out),
        }
        self.push(byte, out)
    }

    /// Handles a byte outside quoted text.
    fn step_outside(&mut self, byte: u8, out: &mut Vec<u8>) -> Step {
        match self.state {
            State::TextEnd(_) => self.statement.is_after_text = true,
            State::Parameter if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'"') => {
                return Err("something right after the number of a parameter".to_owned());
            }
            State::Parameter => self.statement.previous = *b"$0",
            _ => {}
        }
        self.state = State::Sql;
        self.check_outside(byte)?;
        let is_end = self.step_sql(byte)?;
        let before = self.statement.previous[1];
        // In a slice of an array, a blank is inserted: then it cannot be a variable, and means the same.
        if before == b':' && is_variable(byte) {
            self.push(b' ', out)?;
        }
        self.push(byte, out)?;
        // Two colons are a cast, whatever follows.
        let is_cast = before == b':' && byte == b':';
        self.statement.previous = [before, if is_cast { b' ' } else { byte }];
        if is_end { self.end_statement(out) } else { Ok(()) }
    }

    /// Bytes beyond ASCII mean something else in another encoding.
    fn check_letter(&mut self, byte: u8) -> Step {
        if byte.is_ascii() {
            return Ok(());
        }
        self.statement.is_sensitive = true;
        match self.session.encoding {
            Some(_) => Ok(()),
            None => Err("letters beyond ASCII before client_encoding is set".to_owned()),
        }
    }

    fn step_text(&mut self, byte: u8, text: Text) -> Step {
        match (byte, text) {
            (b'\'', _) => self.state = State::TextEnd(text),
            (b'\\', Text::Escapes) => self.state = State::Escape,
            (b'\\', Text::Bits) => return Err("a backslash in a row of bits".to_owned()),
            (b'\\', Text::Plain) => {
                self.statement.is_sensitive = true;
                if !self.session.has_standard_strings {
                    return Err("a backslash in a text before standard_conforming_strings is set".to_owned());
                }
            }
            _ => {}
        }
        self.check_letter(byte)
    }

    fn step_tag(&mut self, byte: u8) -> Step {
        self.tag.push(byte);
        match (byte, self.tag.len()) {
            (b'$', _) => self.state = State::Dollar(0),
            (b'0'..=b'9', 2) => {
                self.tag.clear();
                self.state = State::Parameter;
                return Ok(());
            }
            (b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9', ..=TAG_BYTES) => return Ok(()),
            _ => return Err("a $ that starts no quoted text".to_owned()),
        }
        if matches!(self.statement.previous[0], b' ' | b'\n' | b'\t') {
            return Ok(());
        }
        Err("a dollar quote without a blank before it".to_owned())
    }

    /// A tag has `$` at both ends and none in between, so a mismatch can only be the beginning of another attempt.
    fn step_dollar(&mut self, byte: u8, matched: usize) {
        let matched = match (self.tag[matched] == byte, byte) {
            (true, _) => matched + 1,
            (false, b'$') => 1,
            _ => 0,
        };
        self.state = if matched == self.tag.len() { State::Sql } else { State::Dollar(matched) };
    }

    /// Handles words, brackets and the beginnings of quoted text. Returns whether the statement ends with this byte.
    fn step_sql(&mut self, byte: u8) -> Step<bool> {
        let statement = &mut self.statement;
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            statement.is_after_text = false;
            if statement.word.len() < TAG_BYTES {
                statement.word.push(byte.to_ascii_uppercase());
            }
        } else {
            statement.end_word()?;
        }
        statement.check_body(byte)?;
        let is_blank = matches!(byte, b' ' | b'\n' | b'\t');
        let is_after_text = statement.is_after_text;
        statement.is_after_text &= is_blank;
        match byte {
            b'\'' if is_after_text => return Err("two texts in a row".to_owned()),
            b'\'' => self.state = State::Text(self.starting_text()?),
            b'"' => self.state = State::Identifier,
            b'$' => {
                self.tag = b"$".to_vec();
                self.state = State::Tag;
            }
            b'(' => statement.parentheses += 1,
            b')' => statement.parentheses = statement.parentheses.checked_sub(1).ok_or("a ) without its (")?,
            b'[' => statement.brackets += 1,
            b']' => statement.brackets = statement.brackets.checked_sub(1).ok_or("a ] without its [")?,
            b';' if statement.parentheses == 0 && statement.blocks == 0 => return Ok(true),
            b';' => statement.is_inner_start = true,
            _ => {}
        }
        Ok(false)
    }

    /// Which kind of literal a quote starts. Lexers differ on what belongs to a number or word before it, so only a few
    /// characters may precede it.
    fn starting_text(&self) -> Step<Text> {
        match self.statement.previous {
            [_, before] if is_before_text(before) => Ok(Text::Plain),
            [before, b'E'] if is_before_text(before) => Ok(Text::Escapes),
            [before, b'B' | b'X'] if is_before_text(before) => Ok(Text::Bits),
            [_, before] => Err(format!("a quote right after {}", shown(before))),
        }
    }

    /// Checks what may occur outside quoted text, also in combination with the byte before.
    fn check_outside(&self, byte: u8) -> Step {
        let problem = match (self.statement.previous[1], byte) {
            (_, b'\\') => "a backslash outside quoted text",
            (_, b'\r') => "a carriage return outside quoted text",
            (_, b'{' | b'}') => "a brace outside quoted text",
            (b'-', b'-') => "a comment that does not start its line",
            (b'/', b'*') => "a comment with /*",
            (b'&', b'"') => "an identifier after &",
            (b'$', b' ' | b'\n' | b';' | b',' | b')') => return Ok(()),
            (b'$', _) => "something right after a dollar quote",
            (before, b'$') if !is_before_text(before) => "a $ right after something else",
            (b':', _) if is_variable(byte) && self.statement.brackets == 0 => "a variable of psql",
            (_, b' '..=b'~' | b'\n' | b'\t') => return Ok(()),
            _ => return Err(format!("{} outside quoted text", shown(byte))),
        };
        Err(problem.to_owned())
    }

    /// Adds one byte to the statement.
    fn push(&mut self, byte: u8, out: &mut Vec<u8>) -> Step {
        let statement = &mut self.statement;
        if statement.is_passed_on {
            out.push(byte);
            return Ok(());
        }
        statement.held.push(byte);
        if statement.held.len() >= HELD_BYTES {
            statement::classify(&statement.held, false, &self.options.guarded)?;
            statement.is_passed_on = true;
            let held = std::mem::take(&mut statement.held);
            self.pin(out);
            out.extend_from_slice(&held);
        }
        Ok(())
    }

    /// Sets the settings that the meaning of quotes depends on to what the dump itself set.
    fn pin(&self, out: &mut Vec<u8>) {
        if self.session.has_standard_strings {
            out.extend_from_slice(b"SET standard_conforming_strings = on;\n");
        }
        if let Some(encoding) = self.session.encoding {
            out.extend_from_slice(format!("SET client_encoding = '{encoding}';\n").as_bytes());
        }
    }

    fn end_statement(&mut self, out: &mut Vec<u8>) -> Step {
        self.found.statements += 1;
        self.found.is_complete = false;
        self.state = State::Ended(Next::Statement);
        if self.statement.is_passed_on {
            out.push(b'\n');
            return Ok(());
        }
        let held = std::mem::take(&mut self.statement.held);
        let mut is_left_out = false;
        match statement::classify(&held, true, &self.options.guarded)? {
            StatementKind::Encoding(name) => self.session.encoding = Some(name),
            StatementKind::StandardStrings => self.session.has_standard_strings = true,
            StatementKind::Rows => {
                if self.session.encoding.is_none() || !self.session.has_standard_strings {
                    return Err("table data before client_encoding and standard_conforming_strings are set".to_owned());
                }
                self.found.tables += 1;
                self.statement.is_sensitive = true;
                self.state = State::Ended(Next::Rows);
            }
            StatementKind::CreateDatabase(name) => note(&mut self.found.databases, name)?,
            StatementKind::DropDatabase(name) => note(&mut self.found.dropped_databases, name)?,
            StatementKind::CreateTablespace(name) => note(&mut self.found.tablespaces, name)?,
            StatementKind::DropRole(name) => is_left_out = self.options.existing_roles.contains(&name),
            StatementKind::CreateRole(name) => {
                is_left_out = self.options.existing_roles.contains(&name);
                note(&mut self.found.roles, name)?;
            }
            StatementKind::RoleOptions(name, attributes, has_password) => {
                is_left_out = self.options.own_roles.contains(&name);
                if has_password {
                    note(&mut self.found.with_password, name.clone())?;
                }
                self.found.attributes.entry(name).or_default().extend(attributes);
                if self.found.attributes.len() > NAMES {
                    return Err("too many names".to_owned());
                }
            }
            StatementKind::Membership(role, member, is_admin) => {
                self.found.memberships.insert((role, member, is_admin));
                if self.found.memberships.len() > NAMES {
                    return Err("too many memberships".to_owned());
                }
            }
            StatementKind::AlterRole(name) => is_left_out = self.options.own_roles.contains(&name),
            StatementKind::Withheld(text) => {
                is_left_out = true;
                note(&mut self.found.withheld, text)?;
            }
            StatementKind::Other => {}
        }
        if !is_left_out {
            if self.statement.is_sensitive {
                self.pin(out);
            }
            out.extend_from_slice(&held);
            out.push(b'\n');
        }
        Ok(())
    }
}

/// Whether `psql` takes this byte after a colon for the beginning of a variable.
fn is_variable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'\'' | b'"' | b'{') || !byte.is_ascii()
}

fn note(names: &mut std::collections::BTreeSet<String>, name: String) -> Step {
    names.insert(name);
    if names.len() > NAMES { Err("too many names".to_owned()) } else { Ok(()) }
}

fn shown(byte: u8) -> String {
    format!("\"{}\"", byte.escape_ascii())
}
