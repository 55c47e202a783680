//! SQL dumps: whether they are complete, and what they contain.

use std::io::{self, Read};

use holdfast_core::failure::FailureCode;

use super::inspected::Inspected;
use crate::error::{EngineError, carried};
use crate::mysql::definitions::DefinitionKind;
use crate::mysql::rewriting::{FOOTER, Rewriting};

/// The line that ends a complete dump.
struct Footer {
    text: &'static [u8],
    /// The number of lines that the tool may write after it: an empty comment, and the end of the client's restricted
    /// mode.
    lines_after: usize,
}

const PG_FOOTER: Footer = Footer { text: b"-- PostgreSQL database cluster dump complete", lines_after: 6 };
const MYSQL_FOOTER: Footer = Footer { text: FOOTER, lines_after: 0 };
const PG_STARTS: &[&[u8]] = &[b"--\n-- PostgreSQL database cluster dump\n"];
/// The beginning of a dump in which the tool wrote only rows.
const OF_ROWS: &[u8] = b"/* Tables and sequences */";
/// Newer MariaDB tools begin with a comment that only their own client interprets.
const MYSQL_STARTS: &[&[u8]] = &[b"-- MySQL dump ", b"-- MariaDB dump ", b"/*M!999999\\- ", b"/*!999999\\- ", OF_ROWS];

/// Inspects an SQL dump of a whole PostgreSQL server.
pub(super) fn postgres_cluster(reader: &mut dyn Read) -> io::Result<Inspected> {
    sql(reader, PG_STARTS, &PG_FOOTER, |dump| io::copy(dump, &mut io::sink()).map(|_| None))
}

/// Inspects a dump of MySQL or MariaDB. Warns if our restore could not load it, while another backup can still be made.
pub(super) fn mysql_dump(reader: &mut dyn Read) -> io::Result<Inspected> {
    let rewriting = Rewriting::default();
    let inspected = sql(reader, MYSQL_STARTS, &MYSQL_FOOTER, |dump| {
        let Err(error) = rewriting.copy(dump, &mut io::sink()) else { return Ok(None) };
        if dump.has_failed {
            return Err(error);
        }
        // Ambiguous text may be valid; every other error means damage.
        if let Some(found) = carried(&error).filter(|found| found.code != FailureCode::HostileArchive) {
            return Err(io::Error::other(found.message));
        }
        // Rows are never ambiguous.
        if dump.is_of_rows {
            return Err(io::Error::other(EngineError::incomplete(format!("The dump was altered in transit. {error}"))));
        }
        io::copy(dump, &mut io::sink())?;
        Ok(Some(format!("This backup cannot be restored by itself. {error}")))
    })?;
    let found = rewriting.found.take();
    let found = found.iter().filter(|definition| definition.kind != DefinitionKind::SequenceValue).count();
    let definitions = (found + rewriting.tables.take().names.len()) as u64;
    Ok(Inspected { entries: inspected.entries + definitions, ..inspected })
}

/// An SQL dump is complete if it begins and ends with the lines that its tool writes in every dump. `read` reads it to
/// its end and may return a warning.
fn sql(
    reader: &mut dyn Read,
    starts: &[&[u8]],
    footer: &Footer,
    read: impl FnOnce(&mut Watched<'_>) -> io::Result<Option<String>>,
) -> io::Result<Inspected> {
    let longest = starts.iter().map(|start| start.len()).max().unwrap_or_default();
    let mut head = Vec::new();
    (&mut *reader).take(longest as u64).read_to_end(&mut head)?;
    if !starts.iter().any(|start| head.starts_with(start)) {
        return Err(io::Error::other(EngineError::incomplete(
            "The output is not a dump: it does not begin the way the tool begins every dump.",
        )));
    }
    let mut dump = Watched {
        reader: &mut head.as_slice().chain(reader),
        tables: TableCount::default(),
        tail: Vec::new(),
        has_failed: false,
        is_of_rows: head.starts_with(OF_ROWS),
    };
    let warning = read(&mut dump)?;
    let text = dump.tail.trim_ascii_end();
    let mut last_lines = text.rsplit(|byte| *byte == b'\n').take(footer.lines_after + 1);
    if !last_lines.any(|line| line.starts_with(footer.text)) {
        return Err(io::Error::other(EngineError::incomplete(
            "The dump does not end with the line that ends every complete dump: the tool stopped early, or \
             something else was printed after it.",
        )));
    }
    Ok(Inspected { entries: dump.tables.count, warnings: warning.into_iter().collect(), ..Inspected::default() })
}

/// Counts the tables of an SQL dump and keeps its last bytes while it is read.
struct Watched<'a> {
    reader: &'a mut dyn Read,
    is_of_rows: bool,
    tables: TableCount,
    tail: Vec<u8>,
    has_failed: bool,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        const TAIL: usize = 4096;
        let read = self.reader.read(buffer).inspect_err(|_| self.has_failed = true)?;
        self.tables.feed(&buffer[..read]);
        self.tail.extend_from_slice(&buffer[read.saturating_sub(TAIL)..read]);
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
        Ok(read)
    }
}

/// Counts the lines that create tables, even if they are split across chunks.
#[derive(Default)]
struct TableCount {
    count: u64,
    /// How many bytes of `WORDS` the current line has matched; `None` once it differs.
    matched: Option<usize>,
    is_started: bool,
}

impl TableCount {
    const WORDS: &[u8] = b"CREATE TABLE ";

    fn feed(&mut self, bytes: &[u8]) {
        if !self.is_started {
            (self.is_started, self.matched) = (true, Some(0));
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.matched {
                Some(matched) => {
                    let (first, after) = (rest[0], &rest[1..]);
                    rest = after;
                    self.matched = match (first == Self::WORDS[matched], first == b'\n') {
                        (true, _) if matched + 1 == Self::WORDS.len() => {
                            self.count += 1;
                            None
                        }
                        (true, _) => Some(matched + 1),
                        (false, true) => Some(0),
                        (false, false) => None,
                    };
                }
                None => match rest.iter().position(|byte| *byte == b'\n') {
                    Some(line_break) => {
                        rest = &rest[line_break + 1..];
                        self.matched = Some(0);
                    }
                    None => return,
                },
            }
        }
    }
}
