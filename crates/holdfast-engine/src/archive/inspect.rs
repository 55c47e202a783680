//! Reads a plain stream to its end and proves that it is whole. A backup runs this while it copies, a verification
//! while it reads back: what counts as complete is written once.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use holdfast_core::backup::{Content, name_text};
use holdfast_core::run::FailureCode;

use super::index::{Entry, EntryKind};
use super::pgdump;
use crate::error::{EngineError, Result, classify};

/// What a whole stream held.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inspected {
    /// Files, folders, links; tables of a dump.
    pub entries: u64,
    /// What is worth telling a person.
    pub notes: Vec<String>,
}

/// Reads to the end. Whatever is missing or out of place is an error of class `code`.
pub(crate) fn inspect(
    content: Content,
    reader: &mut dyn Read,
    code: FailureCode,
    on_entry: &mut dyn FnMut(&Entry) -> io::Result<()>,
) -> Result<Inspected> {
    let inspected = match content {
        Content::Files => tar(reader, on_entry),
        Content::PostgresDatabase => pgdump::inspect(reader),
        Content::PostgresCluster => sql(reader, b"-- PostgreSQL database cluster dump complete"),
        Content::MysqlDatabase | Content::MysqlServer => sql(reader, b"-- Dump completed"),
    };
    inspected.map_err(|error| classify(&error, code, "The stream is not whole"))
}

const BLOCK: u64 = 512;
/// What ends every tar archive.
const END_BLOCKS: u64 = 2;

fn tar(reader: &mut dyn Read, on_entry: &mut dyn FnMut(&Entry) -> io::Result<()>) -> io::Result<Inspected> {
    let limit = HeaderLimit::default();
    let mut bounded = limit.bound(Counted { reader, bytes: 0 });
    let mut archive = tar::Archive::new(&mut bounded);
    let (mut inspected, mut start) = (Inspected::default(), 0);
    let mut entries = archive.entries()?;
    while let Some(entry) = limit.next(&mut entries) {
        let mut entry = entry?;
        let end = entry.raw_file_position() + archived_size(&entry)?.next_multiple_of(BLOCK);
        if let Some(entry) = describe(&mut entry, start, end)? {
            inspected.entries += 1;
            on_entry(&entry)?;
        }
        io::copy(&mut entry, &mut io::sink())?;
        start = end;
    }
    // The library takes a stream that stops between two members for a whole one; two blocks of zeros tell.
    let counted = bounded.into_inner();
    let read = counted.bytes;
    let zeros = drain_zeros(counted.reader)? + read.saturating_sub(start);
    if zeros < END_BLOCKS * BLOCK {
        return Err(io::Error::other("the tar archive stops before its end"));
    }
    Ok(inspected)
}

/// What stands before a member's content, long names and all; a stream that claims more wants our memory.
const HEADER_BYTES: u64 = 4 * 1024 * 1024;

/// Bounds what the library reads, and keeps, to find the next member. Contents must be read before that.
#[derive(Default)]
pub(super) struct HeaderLimit {
    left: Rc<Cell<Option<u64>>>,
}

impl HeaderLimit {
    pub(super) fn bound<R: Read>(&self, reader: R) -> Bounded<R> {
        Bounded { reader, left: self.left.clone() }
    }

    pub(super) fn next<'a, R: Read>(&self, entries: &mut tar::Entries<'a, R>) -> Option<io::Result<tar::Entry<'a, R>>> {
        self.left.set(Some(HEADER_BYTES));
        let entry = entries.next();
        self.left.set(None);
        entry
    }
}

pub(super) struct Bounded<R> {
    reader: R,
    left: Rc<Cell<Option<u64>>>,
}

impl<R> Bounded<R> {
    pub(super) fn into_inner(self) -> R {
        self.reader
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if let Some(left) = self.left.get() {
            let left = left.checked_sub(read as u64);
            self.left.set(Some(left.ok_or_else(|| io::Error::other("a header of the tar archive is too long"))?));
        }
        Ok(read)
    }
}

/// The name that tar gives a member: that of a file with holes is not where others have it.
pub(super) fn effective_path<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Vec<u8>> {
    let mut path = entry.path_bytes().into_owned();
    for extension in entry.pax_extensions()?.into_iter().flatten() {
        let extension = extension?;
        if extension.key_bytes() == SPARSE_NAME {
            path = extension.value_bytes().to_vec();
        }
    }
    Ok(path)
}

fn archived_size<R: Read>(entry: &tar::Entry<'_, R>) -> io::Result<u64> {
    if entry.header().entry_type().is_gnu_sparse() { entry.header().entry_size() } else { Ok(entry.size()) }
}

/// An entry of a tar archive as the index lists it; `None` for headers that describe no file.
pub(crate) fn describe<R: Read>(entry: &mut tar::Entry<'_, R>, start: u64, end: u64) -> io::Result<Option<Entry>> {
    let header = entry.header();
    let kind = match header.entry_type() {
        tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => EntryKind::File,
        tar::EntryType::Directory => EntryKind::Directory,
        tar::EntryType::Symlink => EntryKind::Symlink,
        tar::EntryType::Link => EntryKind::Hardlink,
        tar::EntryType::XGlobalHeader => return Ok(None),
        _ => EntryKind::Other,
    };
    let mut modified_micros = i64::try_from(header.mtime()?).unwrap_or(i64::MAX / 1_000_000).saturating_mul(1_000_000);
    let mut size = if kind == EntryKind::File { entry.size() } else { 0 };
    let mut path = entry.path_bytes().into_owned();
    let link = entry.link_name_bytes().map(|link| name_text(&link));
    for extension in entry.pax_extensions()?.into_iter().flatten() {
        let extension = extension?;
        match extension.key_bytes() {
            b"mtime" => modified_micros = parse_micros(extension.value_bytes()).unwrap_or(modified_micros),
            SPARSE_NAME => path = extension.value_bytes().to_vec(),
            SPARSE_SIZE => size = parse_number(extension.value_bytes()).unwrap_or(size),
            _ => {}
        }
    }
    let path = tidy_path(&path);
    Ok(Some(Entry { path: name_text(path), kind, size, modified_micros, link, start, end }))
}

/// How GNU tar tells real name and size of a file with holes.
const SPARSE_NAME: &[u8] = b"GNU.sparse.name";
const SPARSE_SIZE: &[u8] = b"GNU.sparse.realsize";

/// The real size of a file whose holes were left out; `None` for an ordinary one.
pub(crate) fn sparse_size<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Option<u64>> {
    for extension in entry.pax_extensions()?.into_iter().flatten() {
        let extension = extension?;
        if extension.key_bytes() == SPARSE_SIZE {
            return Ok(parse_number(extension.value_bytes()));
        }
    }
    Ok(None)
}

/// `./a/b/` → `a/b`; `.` and `./` are the source itself, the empty path.
fn tidy_path(path: &[u8]) -> &[u8] {
    let mut path = path;
    while let Some(rest) = path.strip_prefix(b"./") {
        path = rest;
    }
    while let Some(rest) = path.strip_suffix(b"/") {
        path = rest;
    }
    if path == b"." { b"" } else { path }
}

fn parse_number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Seconds with a fraction of any length, as pax headers have them.
fn parse_micros(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let micros: i64 = digits.parse().ok()?;
    let micros = if whole.starts_with('-') { -micros } else { micros };
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// Reads what is left, which must be zeros, and says how much it was.
fn drain_zeros(reader: &mut dyn Read) -> io::Result<u64> {
    let mut buffer = [0; 16 * 1024];
    let mut total = 0;
    loop {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            return Ok(total);
        }
        if buffer[..read].iter().any(|byte| *byte != 0) {
            return Err(io::Error::other("something follows the end of the tar archive"));
        }
        total += read as u64;
    }
}

struct Counted<'a> {
    reader: &'a mut dyn Read,
    bytes: u64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// A dump in SQL is whole when its tool wrote the line it ends with.
fn sql(reader: &mut dyn Read, footer: &[u8]) -> io::Result<Inspected> {
    const TAIL: usize = 4096;
    let mut buffer = vec![0; 256 * 1024];
    let mut tail: Vec<u8> = Vec::new();
    let mut tables = TableCount::default();
    loop {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        tables.feed(&buffer[..read]);
        tail.extend_from_slice(&buffer[read.saturating_sub(TAIL)..read]);
        let surplus = tail.len().saturating_sub(TAIL);
        tail.drain(..surplus);
    }
    let text = tail.trim_ascii_end();
    let last_lines = text.rsplitn(8, |byte| *byte == b'\n').take(7);
    if !last_lines.into_iter().any(|line| line.starts_with(footer)) {
        return Err(io::Error::other(EngineError::incomplete(
            "The dump lacks the line that ends every whole one, so the tool stopped before its end.",
        )));
    }
    Ok(Inspected { entries: tables.count, notes: Vec::new() })
}

/// Counts lines that create tables, wherever the chunks are cut.
#[derive(Default)]
struct TableCount {
    count: u64,
    /// How far into the words the current line has matched; `None` once it differs.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn look(content: Content, mut bytes: &[u8]) -> Result<(Inspected, Vec<Entry>)> {
        let mut entries = Vec::new();
        let inspected = inspect(content, &mut bytes, FailureCode::Incomplete, &mut |entry| {
            entries.push(entry.clone());
            Ok(())
        })?;
        Ok((inspected, entries))
    }

    fn sample() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, text) in [("./a", "one"), ("./b c", "two two")] {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            header.set_mtime(1_000_000_000);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn a_tar_archive_is_listed_with_its_places() {
        let archive = sample();
        let (inspected, entries) = look(Content::Files, &archive).unwrap();
        assert_eq!(inspected.entries, 2);
        let second = &entries[1];
        assert_eq!((second.path.as_str(), second.size, second.start, second.end), ("b c", 7, 1024, 2048));
        assert_eq!(second.modified_micros, 1_000_000_000_000_000);
    }

    #[test]
    fn a_tar_archive_cut_anywhere_is_found() {
        let archive = sample();
        for length in (0..archive.len() - 512).step_by(256) {
            assert!(look(Content::Files, &archive[..length]).is_err(), "cut at {length}");
        }
        let mut followed = archive.clone();
        followed.extend(b"more");
        assert!(look(Content::Files, &followed).is_err());
    }

    #[test]
    fn a_dump_without_its_last_line_is_found() {
        let whole = b"CREATE TABLE a;\nCREATE TABLE b;\n-- Dump completed on 2025-01-01\n";
        assert_eq!(look(Content::MysqlDatabase, whole).unwrap().0.entries, 2);
        for cut in [b"CREATE TABLE a;\n".as_slice(), b"", &whole[..40]] {
            let error = look(Content::MysqlDatabase, cut).unwrap_err();
            assert_eq!(error.code, FailureCode::Incomplete);
        }
    }

    #[test]
    fn paths_are_told_from_the_source() {
        for (path, told) in [("./", ""), (".", ""), ("./a/", "a"), ("a/./b", "a/./b"), ("././x", "x")] {
            assert_eq!(tidy_path(path.as_bytes()), told.as_bytes());
        }
        assert_eq!(parse_micros(b"12.3456789"), Some(12_345_678));
        assert_eq!(parse_micros(b"-1.5"), Some(-1_500_000));
    }
}
