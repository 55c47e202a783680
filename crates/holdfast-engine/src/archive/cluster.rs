//! A whole PostgreSQL server in one tar archive: what it has beside its databases as a document, and each database as a
//! dump in the custom format, cut into members of a bounded size since its own size is not known before its end.
//!
//! By hand: `tar -xOf server.tar 'databases/0001-app/*' | pg_restore …` gives one of the dumps.

use std::io::{self, Read};

use super::inspect::Inspected;
use super::tar::{Kind, Member, Reader};
use crate::postgres::globals::{self, Globals};
use crate::postgres::{DumpFacts, describe_dump};

pub(crate) const DOCUMENT: &[u8] = b"server.json";
/// The same statements that a restore runs, for people.
pub(crate) const STATEMENTS: &[u8] = b"roles.sql";
/// What one member of a dump holds; a dump of a terabyte has 250,000 of them.
pub(crate) const PART_BYTES: usize = 4 * 1024 * 1024;
/// The document of a server with very many roles and databases.
const DOCUMENT_BYTES: u64 = 64 * 1024 * 1024;

/// The folder of a database's dump: its number, and what of its name every tool can write.
pub(crate) fn folder(index: usize, name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    format!("databases/{:04}-{plain}", index + 1)
}

/// Reads such an archive in order.
pub(crate) struct ClusterReader<R> {
    reader: Reader<R>,
    /// The first part of the next dump, or of something else.
    next: Option<Member>,
    folder: Vec<u8>,
    part: u64,
}

impl<R: Read> ClusterReader<R> {
    /// Reads the document at the beginning.
    pub(crate) fn open(input: R) -> io::Result<(Self, Globals)> {
        let mut reader = Reader::new(input);
        let wrong = || io::Error::other("the archive of a server does not begin with its document");
        let (first, _) = reader.next()?.ok_or_else(wrong)?;
        if first.path != DOCUMENT || first.kind != Kind::File || first.size > DOCUMENT_BYTES || first.parts.is_some() {
            return Err(wrong());
        }
        let mut document = Vec::new();
        reader.read_to_end(&mut document)?;
        let globals = globals::parse(&document).map_err(io::Error::other)?;
        let (second, _) = reader.next()?.ok_or_else(wrong)?;
        if second.path != STATEMENTS {
            return Err(wrong());
        }
        let next = reader.next()?.map(|(member, _)| member);
        Ok((Self { reader, next, folder: Vec::new(), part: 0 }, globals))
    }

    /// Goes to the dump of a database; afterwards this reads it. False when the archive has no dump of it.
    pub(crate) fn enter(&mut self, index: usize, name: &str) -> io::Result<bool> {
        self.folder = format!("{}/", folder(index, name)).into_bytes();
        self.part = 0;
        Ok(self.next.as_ref().is_some_and(|next| next.path.starts_with(&self.folder)))
    }

    /// Whether everything was read.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self.next {
            Some(_) => Err(io::Error::other("the archive of a server holds something that nobody asked for")),
            None => Ok(()),
        }
    }
}

impl<R: Read> Read for ClusterReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(next) = self.next.as_ref().filter(|next| next.path.starts_with(&self.folder)) else {
                return Ok(0);
            };
            if self.part == 0 {
                self.part = 1;
            }
            let expected = format!("{:08}", self.part);
            if next.path[self.folder.len()..] != *expected.as_bytes() || next.kind != Kind::File || next.parts.is_some()
            {
                return Err(io::Error::other("a part of a dump is missing"));
            }
            let read = self.reader.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.next = self.reader.next()?.map(|(member, _)| member);
            self.part += 1;
        }
    }
}

/// What each database of a server's archive holds, with its number; read to the end.
pub(crate) fn describe(reader: &mut dyn Read) -> io::Result<(Globals, Vec<(usize, DumpFacts)>)> {
    let (mut cluster, globals) = ClusterReader::open(reader)?;
    let mut dumps = Vec::new();
    for (index, database) in globals.databases.iter().enumerate() {
        let is_there = cluster.enter(index, database.name.as_str())?;
        if is_there {
            dumps.push((index, describe_dump(&mut cluster)?));
        } else if database.allows_connections {
            return Err(io::Error::other(format!("the dump of the database {} is missing", database.name)));
        }
    }
    cluster.finish()?;
    Ok((globals, dumps))
}

pub(super) fn inspect(reader: &mut dyn Read) -> io::Result<Inspected> {
    let (_, dumps) = describe(reader)?;
    let entries = dumps.iter().map(|(_, facts)| facts.tables_with_data).sum();
    Ok(Inspected { entries, ..Inspected::default() })
}
