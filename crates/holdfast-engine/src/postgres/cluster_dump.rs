//! Checks dumps of whole servers in SQL, as `pg_dumpall --clean --if-exists` of PostgreSQL 9.6 to 18 writes them and as
//! the first release of Holdfast stored them.
//!
//! Such a dump can only be restored by `psql`, which has commands of its own, up to running programs. So the whole dump
//! is read before anything runs ([`check`]), and only text about which `psql` and this module cannot disagree passes:
//!
//! - Outside quoted text there are printable ASCII characters, blanks, tabs and line breaks, no backslash and no `/*`.
//! - Quotes start where `pg_dump` starts them, dollar quotes after a blank, `--` only at the beginning of a line.
//! - Statements start at the beginning of a line with a word that `pg_dump` uses, and end a line. Those about roles,
//!   databases and rights have its exact forms.
//! - Commands of `psql` fill a whole line between statements and are one of four, each in its exact forms.
//! - Table data follows one exact form of `COPY` and has only the escapes that the server writes.
//!
//! What is left depends on two settings of the session, `standard_conforming_strings` and `client_encoding`, which code
//! in the dump could change at any time: a constraint may call a function of the dump. [`Filter`] passes the dump on to
//! `psql` while it checks it again, and sets both before every statement that depends on them.
//!
//! `psql` must run with `-v ON_ERROR_STOP=1`: then no row is ever read as SQL because its `COPY` failed.

mod command;
mod found;
mod grant;
mod scanner;
mod statement;
mod words;

use std::io::{self, Read};

pub use self::found::{ClusterDump, FilterOptions, Refused};
use self::scanner::Scanner;
use super::globals::Guarded;

/// How much is read, checked and passed on at a time.
const CHUNK_BYTES: usize = 256 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Read(#[from] io::Error),
}

/// Reads a whole dump in bounded memory. A dump that was cut short between two statements passes, with `is_complete`
/// false.
pub fn check(reader: &mut dyn Read) -> Result<ClusterDump, CheckError> {
    check_for(reader, Guarded::default())
}

/// As [`check`], for a server that has reported which settings it guards.
pub fn check_for(reader: &mut dyn Read, guarded: Guarded) -> Result<ClusterDump, CheckError> {
    let mut scanner = Scanner::new(FilterOptions { guarded, ..FilterOptions::default() });
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut passed = Vec::new();
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(scanner.finish()?),
            Ok(read) => scanner.feed(&chunk[..read], &mut passed)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        passed.clear();
    }
}

/// Passes a dump on to `psql`: checked once more, without comments, without what the options leave out, and with the
/// settings that the meaning of quotes depends on. An error is a [`Refused`] or comes from the reader.
pub struct Filter<R> {
    reader: R,
    scanner: Scanner,
    chunk: Vec<u8>,
    ready: Vec<u8>,
    given: usize,
    is_done: bool,
    refused: Option<Refused>,
}

impl<R: Read> Filter<R> {
    pub fn new(reader: R, options: FilterOptions) -> Self {
        let scanner = Scanner::new(options);
        let chunk = vec![0; CHUNK_BYTES];
        Self { reader, scanner, chunk, ready: Vec::new(), given: 0, is_done: false, refused: None }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.ready.clear();
        self.given = 0;
        while self.ready.is_empty() && !self.is_done && self.refused.is_none() {
            let read = self.reader.read(&mut self.chunk)?;
            let checked = if read == 0 {
                self.is_done = true;
                self.scanner.finish().map(|_| ())
            } else {
                self.scanner.feed(&self.chunk[..read], &mut self.ready)
            };
            if let Err(refused) = checked {
                // What precedes it in the same chunk is not passed on either.
                self.ready.clear();
                self.refused = Some(refused);
                break;
            }
        }
        self.refused.clone().map_or(Ok(()), |refused| Err(io::Error::other(refused)))
    }
}

impl<R: Read> Read for Filter<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.ready.len() {
            self.fill()?;
        }
        let length = buffer.len().min(self.ready.len() - self.given);
        buffer[..length].copy_from_slice(&self.ready[self.given..self.given + length]);
        self.given += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests;
