//! The index at the end of an archive: what is in it and where, as compressed lines of JSON in a skippable frame.

use std::io::{self, BufRead, BufReader, Read, Write as _};

use holdfast_core::backup::name_text;
use serde::{Deserialize, Serialize};

use super::FRAME_BYTES;
use super::tar::{Kind, Member, Place};
use crate::error::{EngineError, Result};
use crate::postgres::globals::DatabaseFacts;

/// zstd readers skip frames with this magic number; 16 of them are free for use by applications.
const SKIPPABLE: u32 = 0x184D_2A5E;
/// The last bytes of an archive: the length of the compressed index, and who wrote it.
pub(super) const FOOTER_BYTES: usize = 16;
const FOOTER_MAGIC: &[u8; 8] = b"HFINDEX1";
/// Beyond this the index is left out and listings read the whole archive: about two million files.
const INDEX_BYTES: usize = 24 * 1024 * 1024;
/// One line of it; the table of frames of a 40 TB archive fits.
const LINE_BYTES: u64 = 64 * 1024 * 1024;
/// A line about one entry; the longest path and link fit, however much of them has to be escaped.
const ENTRY_BYTES: u64 = 1024 * 1024;
const ENTRY_START: &[u8] = b"{\"entry\"";

/// What an archive says about itself, in its first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this format.
    pub holdfast: u32,
    /// `files`, `postgresql`, …
    pub content: String,
    pub created_at: String,
    /// The task's label.
    pub label: String,
    /// Where it came from: a path or a database.
    pub source: String,
    pub frame_bytes: u64,
    /// What a dump of one MySQL or MariaDB database does not say itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mysql: Option<MysqlFacts>,
    /// What a dump of one PostgreSQL database does not say itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postgres: Option<Box<DatabaseFacts>>,
}

/// How a database of MySQL or MariaDB was set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MysqlFacts {
    pub character_set: String,
    pub collation: String,
}

/// The last line: what only the end knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ending {
    pub entries: u64,
    pub plain_bytes: u64,
    pub plain_sha256: String,
    /// The size of each frame as stored, in order.
    pub frames: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    /// A further name of a file that came before.
    Hardlink,
    /// Device, fifo and the like.
    Other,
}

impl EntryKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::Hardlink => "hardlink",
            Self::Other => "other",
        }
    }
}

/// One thing in an archive of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Below the source, without a leading slash; odd bytes as `core::backup::name_text` writes them. The source itself
    /// is the empty path.
    #[serde(rename = "p")]
    pub path: String,
    #[serde(rename = "t")]
    pub kind: EntryKind,
    #[serde(rename = "s")]
    pub size: u64,
    /// Microseconds since 1970.
    #[serde(rename = "m")]
    pub modified_micros: i64,
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Whether something other is a device; older backups do not say.
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    pub is_device: Option<bool>,
    /// Where its headers begin in the plain stream, and where the next entry's do.
    #[serde(rename = "o")]
    pub start: u64,
    #[serde(rename = "e")]
    pub end: u64,
}

impl Entry {
    /// A member of a tar archive as the index lists it.
    pub(crate) fn of(member: &Member, place: Place) -> Self {
        let kind = match member.kind {
            Kind::File => EntryKind::File,
            Kind::Directory => EntryKind::Directory,
            Kind::Symlink => EntryKind::Symlink,
            Kind::Hardlink => EntryKind::Hardlink,
            Kind::CharDevice { .. } | Kind::BlockDevice { .. } | Kind::Fifo => EntryKind::Other,
        };
        let has_link = matches!(kind, EntryKind::Symlink | EntryKind::Hardlink);
        Self {
            path: name_text(tidy_path(&member.path)),
            kind,
            size: member.size,
            modified_micros: member.modified.micros(),
            link: has_link.then(|| name_text(&member.link)),
            is_device: (kind == EntryKind::Other).then(|| member.kind.is_device()),
            start: place.start,
            end: place.end,
        }
    }
}

/// `./a/b/` → `a/b`; `.` and `./` are the source itself, the empty path.
pub(super) fn tidy_path(path: &[u8]) -> &[u8] {
    let mut path = path;
    while let Some(rest) = path.strip_prefix(b"./") {
        path = rest;
    }
    while let Some(rest) = path.strip_suffix(b"/") {
        path = rest;
    }
    if path == b"." { b"" } else { path }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Manifest(Manifest),
    Entry(Entry),
    /// There were too many entries to list.
    Unlisted,
    End(Ending),
}

/// Gathers the index while an archive is written; what it holds is compressed from the start.
pub(super) struct IndexWriter {
    lines: zstd::stream::write::Encoder<'static, Vec<u8>>,
    is_full: bool,
}

impl IndexWriter {
    pub(super) fn new(manifest: &Manifest) -> io::Result<Self> {
        let mut writer = Self { lines: zstd::stream::write::Encoder::new(Vec::new(), 1)?, is_full: false };
        writer.line(&Line::Manifest(manifest.clone()))?;
        Ok(writer)
    }

    pub(super) fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        if self.is_full {
            return Ok(());
        }
        self.line(&Line::Entry(entry.clone()))?;
        if self.lines.get_ref().len() > INDEX_BYTES {
            self.is_full = true;
            self.line(&Line::Unlisted)?;
        }
        Ok(())
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.lines, line)?;
        self.lines.write_all(b"\n")
    }

    /// The skippable frame that ends the archive.
    pub(super) fn finish(mut self, ending: Ending) -> io::Result<Vec<u8>> {
        self.line(&Line::End(ending))?;
        let index = self.lines.finish()?;
        let length = u32::try_from(index.len() + FOOTER_BYTES).map_err(io::Error::other)?;
        let mut frame = Vec::with_capacity(index.len() + FOOTER_BYTES + 8);
        frame.extend(SKIPPABLE.to_le_bytes());
        frame.extend(length.to_le_bytes());
        frame.extend(&index);
        frame.extend((index.len() as u64).to_le_bytes());
        frame.extend(FOOTER_MAGIC);
        Ok(frame)
    }
}

/// How long the compressed index before this footer is; `None` when something else ends here.
pub(super) fn index_length(footer: &[u8]) -> Option<u64> {
    let (length, magic) = footer.split_at_checked(8)?;
    let length = u64::from_le_bytes(length.try_into().ok()?);
    (magic == FOOTER_MAGIC && length <= 2 * INDEX_BYTES as u64).then_some(length)
}

/// Reads an index line by line, so that a list of millions is never in memory as a whole.
pub(crate) struct IndexReader<R: Read> {
    lines: BufReader<io::Take<zstd::stream::read::Decoder<'static, BufReader<R>>>>,
    pub manifest: Manifest,
    /// The entries are not listed here.
    pub is_unlisted: bool,
    pub ending: Option<Ending>,
}

impl<R: Read> IndexReader<R> {
    pub(super) fn new(reader: R) -> Result<Self> {
        // A hostile index may not unpack without end.
        let decoder = zstd::stream::read::Decoder::new(reader).map_err(damaged)?;
        let mut lines = BufReader::new(decoder.take(LINE_BYTES * 32));
        let Some(Line::Manifest(manifest)) = read_line(&mut lines)? else {
            return Err(EngineError::corrupt("The index of this backup does not begin with its manifest."));
        };
        if manifest.holdfast != 1 || manifest.frame_bytes != FRAME_BYTES as u64 {
            return Err(EngineError::corrupt("This backup was written in a form that this version does not know."));
        }
        Ok(Self { lines, manifest, is_unlisted: false, ending: None })
    }

    pub(crate) fn next(&mut self) -> Result<Option<Entry>> {
        if self.ending.is_some() {
            return Ok(None);
        }
        loop {
            match read_line(&mut self.lines)? {
                Some(Line::Entry(entry)) => return Ok(Some(entry)),
                Some(Line::Unlisted) => self.is_unlisted = true,
                Some(Line::End(ending)) => {
                    self.ending = Some(ending);
                    return Ok(None);
                }
                Some(Line::Manifest(_)) | None => {
                    return Err(EngineError::corrupt("The index of this backup has no end."));
                }
            }
        }
    }
}

fn read_line(lines: &mut impl BufRead) -> Result<Option<Line>> {
    let mut text = Vec::new();
    lines.take(ENTRY_BYTES).read_until(b'\n', &mut text).map_err(damaged)?;
    if text.is_empty() {
        return Ok(None);
    }
    if !text.ends_with(b"\n") && text.len() as u64 == ENTRY_BYTES {
        if text.starts_with(ENTRY_START) {
            return Err(EngineError::corrupt("The index of this backup has an entry that is too long."));
        }
        lines.take(LINE_BYTES - ENTRY_BYTES).read_until(b'\n', &mut text).map_err(damaged)?;
    }
    serde_json::from_slice(&text).map(Some).map_err(|error| damaged(error.into()))
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err hands it over")]
fn damaged(error: io::Error) -> EngineError {
    crate::error::classify(&error, holdfast_core::run::FailureCode::Corrupt, "The index of this backup is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8], link: &[u8]) -> Entry {
        let member = Member { link: link.to_vec(), ..Member::new(name, Kind::Symlink) };
        Entry::of(&member, Place { start: 0, end: 512 })
    }

    #[test]
    fn lines_are_as_long_as_they_have_to_be() {
        let line = |line: &Line| [serde_json::to_vec(line).unwrap(), b"\n".to_vec()].concat();
        // Bytes that are no text take the most.
        let longest = entry(&[0xff; 64 * 1024], &[0xff; 64 * 1024]);
        let ending =
            Ending { entries: 1, plain_bytes: 0, plain_sha256: String::new(), frames: vec![u32::MAX; 200_000] };
        let text = [line(&Line::Entry(longest.clone())), line(&Line::End(ending.clone()))].concat();
        let mut lines = text.as_slice();
        assert!(matches!(read_line(&mut lines).unwrap(), Some(Line::Entry(read)) if read == longest));
        assert!(matches!(read_line(&mut lines).unwrap(), Some(Line::End(read)) if read == ending));
        assert!(read_line(&mut lines).unwrap().is_none());
        let hostile = line(&Line::Entry(entry(&vec![b'n'; 2_000_000], b"")));
        let Err(error) = read_line(&mut hostile.as_slice()) else { panic!("it was read") };
        assert!(error.message.contains("too long"), "{}", error.message);
    }
}
