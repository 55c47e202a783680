//! A whole database server in one tar archive: a document with what it has in addition to its databases, the same as
//! SQL statements for people, and a dump of each database, split into members of limited size because the size of a
//! dump is not known in advance.
//!
//! To restore manually: `tar -xOf server.tar 'databases/0001-app/*' | pg_restore …` restores one of the dumps; those of
//! MySQL and MariaDB are piped into their client in the same way, followed by `views.sql`.

use std::io::{self, Read};

use holdfast_core::backup::name_text;

use super::inspected::Inspected;
use super::sql_dumps::mysql_dump;
use super::tar::{Member, MemberKind, Reader};
use crate::mysql::{ACCOUNTS, ServerFacts};
use crate::postgres::globals::{self, Globals};
use crate::postgres::{DumpFacts, describe_dump};

pub(crate) const DOCUMENT: &[u8] = b"server.json";
/// The statements that a restore derives from the document, for people.
pub(crate) const ROLES: &[u8] = b"roles.sql";
pub(crate) const VIEWS: &[u8] = b"views.sql";
/// The size of one member of a dump; a dump of a terabyte has 250,000 members.
pub(crate) const PART_BYTES: usize = 4 * 1024 * 1024;
/// The maximum size of the document, enough for a server with very many roles, databases and views.
const DOCUMENT_BYTES: u64 = 64 * 1024 * 1024;
/// The maximum number of values in the document, enough for more than a hundred thousand roles. Each takes about 50
/// bytes of memory, however short it is.
const DOCUMENT_VALUES: usize = 2_000_000;
/// The maximum memory for the facts about all dumps while a server is restored.
const FACTS_BYTES: usize = 256 * 1024 * 1024;

/// Whether a document can be parsed in bounded memory.
pub(crate) fn is_bounded(document: &[u8]) -> bool {
    let (mut values, mut is_text, mut is_escaped) = (0, false, false);
    for byte in document {
        match (is_text, byte) {
            _ if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => is_text = !is_text,
            (false, b',' | b'[' | b'{') => values += 1,
            _ => {}
        }
    }
    document.len() as u64 <= DOCUMENT_BYTES && values <= DOCUMENT_VALUES
}

/// The folder of a database's dump: its number, and its name with everything but ASCII letters and digits replaced.
pub(crate) fn folder(index: usize, name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    format!("databases/{:04}-{plain}", index + 1)
}

/// Reads the archive of a server in order.
pub(crate) struct ServerReader<R> {
    reader: Reader<R>,
    /// The next member of the archive.
    next: Option<Member>,
    folder: Vec<u8>,
    part: u64,
}

impl<R: Read> ServerReader<R> {
    /// Reads the document at the beginning, and skips the statements that must follow it.
    pub(crate) fn open(input: R, statements: &[u8]) -> io::Result<(Self, Vec<u8>)> {
        let mut reader = Reader::new(input);
        let wrong = || io::Error::other("the archive of a server does not begin with its document");
        let (first, _) = reader.next()?.ok_or_else(wrong)?;
        if first.path != DOCUMENT
            || first.kind != MemberKind::File
            || first.size > DOCUMENT_BYTES
            || first.parts.is_some()
        {
            return Err(wrong());
        }
        let mut document = Vec::new();
        reader.read_to_end(&mut document)?;
        if !is_bounded(&document) {
            return Err(io::Error::other("the document of the server has too many values"));
        }
        let (second, _) = reader.next()?.ok_or_else(wrong)?;
        if second.path != statements {
            return Err(wrong());
        }
        let next = reader.next()?.map(|(member, _)| member);
        Ok((Self { reader, next, folder: Vec::new(), part: 0 }, document))
    }

    /// Moves to the dump of a database, which can then be read. Returns false if the archive has no dump of it.
    pub(crate) fn enter(&mut self, index: usize, name: &str) -> bool {
        self.folder = format!("{}/", folder(index, name)).into_bytes();
        self.part = 0;
        self.next.as_ref().is_some_and(|next| next.path.starts_with(&self.folder))
    }

    /// Checks that everything was read.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self.next {
            Some(_) => Err(io::Error::other("the archive of a server has unexpected members")),
            None => Ok(()),
        }
    }
}

impl<R: Read> Read for ServerReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(next) = self.next.as_ref().filter(|next| next.path.starts_with(&self.folder)) else {
                return Ok(0);
            };
            if self.part == 0 {
                self.part = 1;
            }
            let expected = format!("{:08}", self.part);
            if next.path[self.folder.len()..] != *expected.as_bytes()
                || next.kind != MemberKind::File
                || next.parts.is_some()
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

fn missing(name: &str) -> io::Error {
    io::Error::other(format!("the dump of the database {name} is missing"))
}

/// Reads the archive of a PostgreSQL server to its end and describes the dump of each database, with its number.
pub(crate) fn describe_postgres(reader: &mut dyn Read) -> io::Result<(Globals, Vec<(usize, DumpFacts)>)> {
    let (mut dumps, mut weight) = (Vec::new(), 0);
    let globals = read_postgres(reader, |index, _, mut facts| {
        if weight + facts.weight() > FACTS_BYTES {
            // The names of tables are only used to report which tables would be lost.
            facts.tables = None;
        }
        weight += facts.weight();
        if weight > FACTS_BYTES {
            return Err(io::Error::other("the dumps of the server have too many names"));
        }
        dumps.push((index, facts));
        Ok(())
    })?;
    Ok((globals, dumps))
}

/// Calls `tell` for each dump in the archive of a PostgreSQL server.
fn read_postgres(
    reader: &mut dyn Read,
    mut tell: impl FnMut(usize, &str, DumpFacts) -> io::Result<()>,
) -> io::Result<Globals> {
    let (mut archive, document) = ServerReader::open(reader, ROLES)?;
    let globals = globals::parse(&document).map_err(io::Error::other)?;
    for (index, database) in globals.databases.iter().enumerate() {
        let name = database.name.as_str();
        if archive.enter(index, name) {
            tell(index, name, describe_dump(&mut archive)?)?;
        } else if database.allows_connections {
            return Err(missing(name));
        }
    }
    archive.finish()?;
    Ok(globals)
}

/// Reads the archive of a MySQL or MariaDB server to its end and describes it.
pub(crate) fn describe_mysql(reader: &mut dyn Read) -> io::Result<ServerFacts> {
    read_mysql(reader).map(|(facts, _)| facts)
}

fn read_mysql(reader: &mut dyn Read) -> io::Result<(ServerFacts, Inspected)> {
    let (mut archive, document) = ServerReader::open(reader, VIEWS)?;
    let facts = ServerFacts::parse(&document)?;
    let mut all = Inspected::default();
    for (index, name) in facts.dumps() {
        if !archive.enter(index, name) {
            return Err(missing(name));
        }
        let inspected = mysql_dump(&mut archive)?;
        all.entries += if name == ACCOUNTS { 0 } else { inspected.entries };
        all.warnings.extend(inspected.warnings.iter().map(|text| format!("{}: {text}", name_text(name.as_bytes()))));
    }
    archive.finish()?;
    Ok((facts, all))
}

pub(super) fn inspect_postgres(reader: &mut dyn Read) -> io::Result<Inspected> {
    let mut all = Inspected::default();
    read_postgres(reader, |_, name, facts| {
        all.entries += facts.tables_with_data;
        all.notes.extend(facts.unknown_version().map(|text| format!("{}: {text}", name_text(name.as_bytes()))));
        Ok(())
    })?;
    Ok(all)
}

pub(super) fn inspect_mysql(reader: &mut dyn Read) -> io::Result<Inspected> {
    read_mysql(reader).map(|(_, inspected)| inspected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_with_too_many_values_are_refused_before_they_are_parsed() {
        let document = |count: usize| format!(r#"{{"roles":["\",[{{"{}]}}"#, r#","a""#.repeat(count)).into_bytes();
        assert!(is_bounded(&document(DOCUMENT_VALUES - 2)));
        assert!(!is_bounded(&document(DOCUMENT_VALUES - 1)));
        assert!(is_bounded(format!("\"{}\"", ",[{".repeat(DOCUMENT_VALUES)).as_bytes()), "a text is one value");
    }
}
