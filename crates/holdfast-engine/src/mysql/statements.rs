//! Where a statement of a MySQL or MariaDB dump ends, by the rules of the server that wrote it.
//!
//! The text of routines, triggers, events and views is what their authors wrote. The client that loads a dump takes
//! some bytes for comments or quotes that the server does not, and vice versa, so a body can contain something that
//! only the client takes for its end; the rest would run as the user of the restore. We look for the end as the server
//! does, give the client a delimiter that nobody can have written, and refuse what the two would read differently.

use holdfast_core::failure::FailureCode;

use crate::error::{EngineError, Result};

/// All supported servers run the content of comments for this version or an earlier one.
const RUN_EVERYWHERE: u32 = 50_500;

/// How a server reads text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    characters: Characters,
    /// A backslash is an ordinary character.
    is_backslash_plain: bool,
    /// Text in double quotes is a name.
    are_quotes_names: bool,
}

/// Character sets in which the second byte of a character may be a backslash or a quote; in all others it cannot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Characters {
    #[default]
    Plain,
    Big5,
    Gbk,
    Gb18030,
    ShiftJis,
}

impl Characters {
    fn of(name: &[u8]) -> Self {
        match name {
            b"big5" => Self::Big5,
            b"gbk" => Self::Gbk,
            b"gb18030" => Self::Gb18030,
            b"sjis" | b"cp932" => Self::ShiftJis,
            _ => Self::Plain,
        }
    }

    /// How many bytes the first character of the text has.
    fn length(self, text: &[u8]) -> usize {
        let (Some(first), Some(second)) = (text.first(), text.get(1)) else { return 1 };
        let is_pair = match self {
            Self::Plain => false,
            Self::Big5 => matches!((first, second), (0xa1..=0xf9, 0x40..=0x7e | 0xa1..=0xfe)),
            Self::Gbk | Self::Gb18030 => matches!((first, second), (0x81..=0xfe, 0x40..=0x7e | 0x80..=0xfe)),
            Self::ShiftJis => matches!((first, second), (0x81..=0x9f | 0xe0..=0xfc, 0x40..=0x7e | 0x80..=0xfc)),
        };
        let is_four = self == Self::Gb18030 && matches!(text, [0x81..=0xfe, b'0'..=b'9', 0x81..=0xfe, b'0'..=b'9', ..]);
        if is_four { 4 } else { 1 + usize::from(is_pair) }
    }
}

impl Rules {
    /// The rules for a character set and an SQL mode.
    pub(crate) fn of(character_set: &str, sql_mode: &str) -> Self {
        let has = |word: &str| sql_mode.split(',').any(|found| found == word);
        Self {
            characters: Characters::of(character_set.as_bytes()),
            is_backslash_plain: has("NO_BACKSLASH_ESCAPES"),
            are_quotes_names: has("ANSI_QUOTES"),
        }
    }

    /// Applies what a statement of the dump tool sets; any other statement changes nothing.
    pub(crate) fn follow(&mut self, statement: &[u8]) {
        if let Some(value) = set_value(statement, b"SET character_set_client") {
            self.characters = Characters::of(value);
        }
        if let Some(value) = set_value(statement, b"SET sql_mode") {
            let has = |word: &[u8]| value.windows(word.len()).any(|part| part == word);
            self.is_backslash_plain = has(b"NO_BACKSLASH_ESCAPES");
            self.are_quotes_names = has(b"ANSI_QUOTES");
        }
    }
}

/// The value that the tool gives to a variable: `/*!50003 SET sql_mode              = 'STRICT_ALL_TABLES' */ ;`.
fn set_value<'a>(statement: &'a [u8], variable: &[u8]) -> Option<&'a [u8]> {
    let start = statement.strip_prefix(b"/*!").unwrap_or(statement);
    let digits = start.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let assignment = start[digits..].trim_ascii_start().strip_prefix(variable)?;
    let value = assignment.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let end = value.windows(2).position(|two| two == b"*/" || two == b" ;").unwrap_or(value.len());
    Some(value[..end].trim_ascii_end().trim_ascii_start())
}

/// A statement that is being read, line by line, until its end is found.
pub(crate) struct Statement {
    pub text: Vec<u8>,
    delimiter: &'static [u8],
    /// How much of it was checked for commands of the client.
    checked: usize,
    scanner: Scanner,
}

/// The longest accepted statement, far above any real routine. The server's own limit is its packet size, at most
/// 1 GiB.
const LONGEST: usize = 64 * 1024 * 1024;

impl Statement {
    pub(crate) fn begin(delimiter: &'static [u8], rules: Rules) -> Self {
        Self { text: Vec::new(), delimiter, checked: 0, scanner: Scanner { at: 0, state: State::Code, rules } }
    }

    /// Continues to read if the text ends with a complete line. True if the statement is complete; its delimiter is cut
    /// off.
    pub(crate) fn is_whole(&mut self) -> Result<bool> {
        if self.text.len() > LONGEST {
            return Err(unclear());
        }
        if !self.text.ends_with(b"\n") {
            return Ok(false);
        }
        if has_command(&self.text[self.checked..]) {
            return Err(unclear());
        }
        self.checked = self.text.len();
        let Some(end) = self.scanner.find(&self.text, self.delimiter)? else { return Ok(false) };
        if !self.text[end + self.delimiter.len()..].trim_ascii().is_empty() {
            return Err(unclear());
        }
        self.text.truncate(end);
        Ok(true)
    }
}

/// Refuses a whole statement that the server and its client could read differently.
pub(crate) fn is_clear(text: &[u8], rules: Rules) -> Result<()> {
    if has_command(text) {
        return Err(unclear());
    }
    let mut scanner = Scanner { at: 0, state: State::Code, rules };
    while scanner.at < text.len() {
        scanner.pass(text)?;
    }
    if matches!(scanner.state, State::Code | State::Comment) { Ok(()) } else { Err(unclear()) }
}

/// The only command that the client recognises anywhere, even within a literal: it swallows the line break after such a
/// line.
pub(super) const COMMAND: &[u8] = b"delimiter";

/// Whether a line begins with this command.
pub(crate) fn has_command(text: &[u8]) -> bool {
    let begins = |line: &[u8]| line.get(..COMMAND.len()).is_some_and(|start| start.eq_ignore_ascii_case(COMMAND));
    text.split(|byte| *byte == b'\n').any(begins)
}

pub(super) fn unclear() -> EngineError {
    EngineError::new(
        FailureCode::HostileArchive,
        "The dump has a table, routine, trigger, event or view that the server and its client could read differently, so that \
         parts of it could run by themselves. Download the backup, look at what it holds, and load it manually.",
    )
}

struct Scanner {
    at: usize,
    state: State,
    rules: Rules,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    Quoted(u8),
    /// A comment to the end of the line.
    Comment,
    Block,
}

impl Scanner {
    /// The position of the delimiter, if it has been read yet.
    fn find(&mut self, text: &[u8], delimiter: &[u8]) -> Result<Option<usize>> {
        while self.at < text.len() {
            if self.state == State::Code && text[self.at..].starts_with(delimiter) {
                return Ok(Some(self.at));
            }
            self.pass(text)?;
        }
        Ok(None)
    }

    /// Moves past what is at the current position, which is within the text.
    fn pass(&mut self, text: &[u8]) -> Result<()> {
        let rest = &text[self.at..];
        self.at += match self.state {
            State::Code => self.step(rest)?,
            State::Quoted(quote) => self.step_quoted(rest, quote)?,
            State::Comment => {
                if rest[0] == b'\n' {
                    self.state = State::Code;
                }
                1
            }
            State::Block if rest.starts_with(b"*/") => {
                self.state = State::Code;
                2
            }
            State::Block => 1,
        };
        Ok(())
    }

    /// Handles what begins here, outside quotes and comments; returns how many bytes were passed.
    fn step(&mut self, rest: &[u8]) -> Result<usize> {
        match rest {
            [quote @ (b'\'' | b'"' | b'`'), ..] => {
                self.state = State::Quoted(*quote);
                Ok(1)
            }
            [b'#', ..] => {
                self.state = State::Comment;
                Ok(1)
            }
            [b'-', b'-', b'\t'..=b'\r' | b' ', ..] => {
                self.state = State::Comment;
                Ok(2)
            }
            // A comment to the server, in some character sets, but not to the client.
            [b'-', b'-', 0..=0x1f | 0x7f.., ..] => Err(unclear()),
            // Either a command of the client, or nothing.
            [b'\\', ..] => Err(unclear()),
            [b'/', b'*', b'!', ..] | [b'/', b'*', b'M', b'!', ..] => version_mark(rest),
            [b'/', b'*', ..] => {
                self.state = State::Block;
                Ok(2)
            }
            _ => self.character(rest),
        }
    }

    fn step_quoted(&mut self, rest: &[u8], quote: u8) -> Result<usize> {
        let length = self.character(rest)?;
        if length > 1 {
            return Ok(length);
        }
        let is_name = quote == b'`' || quote == b'"' && self.rules.are_quotes_names;
        match rest[0] {
            // The client takes it for an escape.
            b'\\' if is_name && quote == b'"' => Err(unclear()),
            b'\\' if !is_name && !self.rules.is_backslash_plain => Ok(2),
            byte if byte == quote => {
                self.state = State::Code;
                Ok(1)
            }
            _ => Ok(1),
        }
    }

    /// The length of the character here. The client only knows characters of UTF-8.
    fn character(&self, rest: &[u8]) -> Result<usize> {
        let length = self.rules.characters.length(rest);
        let is_special = |byte: &u8| b"\\'\"`".contains(byte);
        if length > 1 && rest[1..length].iter().any(is_special) { Err(unclear()) } else { Ok(length) }
    }
}

/// The beginning of a versioned comment. Content that only some servers run must not affect how the rest is read.
fn version_mark(rest: &[u8]) -> Result<usize> {
    let is_everybodys = rest[2] == b'!';
    let mark = if is_everybodys { 3 } else { 4 };
    let digits = rest[mark..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let version = std::str::from_utf8(&rest[mark..mark + digits]).ok().and_then(|text| text.parse().ok());
    let version: u32 = version.unwrap_or(if digits == 0 { 0 } else { u32::MAX });
    if is_everybodys && version <= RUN_EVERYWHERE {
        return Ok(mark + digits);
    }
    let body = &rest[mark + digits..];
    let end = body.windows(2).position(|two| two == b"*/").ok_or_else(unclear)?;
    let is_special = |byte: &u8| b"\\'\"`;#/-".contains(byte);
    if body[..end].iter().any(is_special) { Err(unclear()) } else { Ok(mark + digits + end + 2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(rules: Rules, text: &[u8]) -> std::result::Result<Option<usize>, FailureCode> {
        let mut statement = Statement::begin(b";;", rules);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            statement.text.extend_from_slice(line);
            if statement.is_whole().map_err(|error| error.code)? {
                return Ok(Some(statement.text.len()));
            }
        }
        Ok(None)
    }

    #[test]
    fn a_statement_ends_where_the_server_says() {
        let rules = Rules::default();
        for body in [
            "SELECT ';;\n', \"a\\\";;\n\", `\\`, 1 # ;;\n",
            "SELECT 1 -- it's ;;\n, /* ' ;;\n */ '''' ",
            "SELECT 1 --2, '--', /*!40100 ';;\n', */ 3 /*!90000 ,4 */ /*M!100100 ,5 */",
        ] {
            let text = format!("CREATE PROCEDURE p() {body};;\nDELIMITER ;\n");
            assert_eq!(ends(rules, text.as_bytes()), Ok(Some(text.len() - ";;\nDELIMITER ;\n".len())), "{body}");
        }
        assert_eq!(ends(rules, b"SELECT 1"), Ok(None));
    }

    #[test]
    fn what_could_be_read_differently_is_refused() {
        let rules = Rules::default();
        for text in [
            "SELECT 1 --\u{1} ;; GRANT ALL ON *.* TO x ;;\n;;\n",
            "SELECT 1 /*!90000 ' */ ;;\nGRANT ALL ON *.* TO x ;;\n/*' */ ;;\n",
            "SELECT 1 /*M!100100 ;;\n*/ ;;\n",
            "SELECT 1 /*!90000 /* */ ;;\n*/ ;;\n",
            "SELECT 1 ;; SELECT 2 ;;\n",
            "SELECT \\! ;;\n",
            "SELECT 1 AS\ndelimiter, 1 -\n- 2, '\n; GRANT ALL ON *.* TO x; -- ' ;;\n",
            "SELECT `a\nDelimiterx`, 1 ;;\n",
            "SELECT '\\\ndelimiter' ;;\n",
        ] {
            assert_eq!(ends(rules, text.as_bytes()), Err(FailureCode::HostileArchive), "{text}");
        }
        assert_eq!(ends(rules, b"SELECT 1 --\xa0 ;;\nSELECT 2 ;;\n"), Err(FailureCode::HostileArchive));
    }

    #[test]
    fn statements_of_the_tool_determine_how_text_is_read() {
        let mut rules = Rules::default();
        let gbk = b"SELECT '\xbf\\' ;;\n";
        assert_eq!(ends(rules, gbk), Ok(None), "the quote is escaped");
        rules.follow(b"/*!50003 SET character_set_client  = gbk */ ;");
        assert_eq!(ends(rules, gbk), Err(FailureCode::HostileArchive), "for the client it is not");
        assert_eq!(ends(rules, b"SELECT '\xbf\x5b' ;;\n"), Ok(Some(12)));
        rules.follow(b"/*!50003 SET character_set_client  = @saved_cs_client */ ;");
        assert_eq!(rules, Rules::default());
        rules.follow(b"/*!50003 SET sql_mode              = 'NO_BACKSLASH_ESCAPES' */ ;");
        assert_eq!(ends(rules, b"SELECT '\\' ;;\n"), Ok(Some(11)));
        rules.follow(b"/*!50003 SET sql_mode              = 'ANSI_QUOTES' */ ;");
        assert_eq!(ends(rules, b"SELECT \"\\\" ;;\n"), Err(FailureCode::HostileArchive));
        rules.follow(b"/*!50003 SET sql_mode              = @saved_sql_mode */ ;");
        assert_eq!(rules, Rules::default());
        for (name, pair) in [("big5", [0xa4, b'\\']), ("sjis", [0x83, b'\\']), ("gb18030", [0x81, b'\\'])] {
            rules.follow(format!("SET character_set_client = {name}").as_bytes());
            let text = [b"SELECT '", &pair[..], b"' ;;\n"].concat();
            assert_eq!(ends(rules, &text), Err(FailureCode::HostileArchive), "{name}");
        }
    }
}
