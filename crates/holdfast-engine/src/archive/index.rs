//! The index at the end of an archive, which lists its entries and where they are, as compressed lines of JSON in a
//! skippable frame.

use std::io::{self, BufRead, BufReader, Read, Write as _};

use holdfast_core::backup::{EntryKind, name_text};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::FRAME_BYTES;
use super::frames::{WINDOW_LOG, decompress};
use super::tar::{Member, MemberKind, MemberRange};
use crate::error::{EngineError, Result};
use crate::postgres::globals::DatabaseFacts;

/// zstd readers skip frames with this magic number; 16 of these numbers are reserved for applications.
const SKIPPABLE: u32 = 0x184D_2A5E;
/// The last bytes of an archive: the length of the compressed index, and a magic number.
pub(super) const FOOTER_BYTES: usize = 16;
const FOOTER_MAGIC: &[u8; 8] = b"HFINDEX1";
/// The maximum size of the compressed index, about two million files. Beyond this the other entries are not listed, and
/// listings read the whole archive.
const INDEX_BYTES: usize = 24 * 1024 * 1024;
/// The maximum length of any line. The frame table of a 5 TB archive fits, and no destination accepts a larger archive.
const LINE_BYTES: u64 = 64 * 1024 * 1024;
/// The maximum length of all lines together, so that a hostile index does not unpack without end.
const LINES_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// The maximum length of the first line, many times more than the description of any database needs.
const MANIFEST_BYTES: u64 = 16 * 1024 * 1024;
/// The maximum length of the last line without its frame table, and of each number in the table.
const ENDING_BYTES: u64 = 64 * 1024;
const FRAME_SIZE_BYTES: u64 = 11;
/// The maximum length of an entry's line; the longest path and link fit, even if every byte has to be escaped.
const ENTRY_BYTES: u64 = 1024 * 1024;
const ENTRY_START: &[u8] = b"{\"entry\"";

/// The description of an archive, in the first line of its index.
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
    /// What a dump of one MySQL or MariaDB database does not contain itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mysql: Option<MysqlFacts>,
    /// What a dump of one PostgreSQL database does not contain itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postgres: Option<Box<DatabaseFacts>>,
}

/// The properties of a MySQL or MariaDB database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MysqlFacts {
    pub character_set: String,
    pub collation: String,
    /// Only MariaDB has comments on databases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether routines, triggers, views and events follow its tables as data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_definitions: bool,
}

/// The last line: what is known only at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trailer {
    pub entries: u64,
    pub plain_bytes: u64,
    pub plain_sha256: String,
    /// The size of each frame as stored, in order.
    pub frames: Vec<u32>,
}

/// One entry in an archive of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The path below the source, without a leading slash; bytes that are not text are escaped by
    /// `core::backup::name_text`. The source itself has the empty path.
    #[serde(rename = "p")]
    pub path: String,
    #[serde(rename = "t", with = "kind_word")]
    pub kind: EntryKind,
    #[serde(rename = "s")]
    pub size: u64,
    /// Microseconds since 1970.
    #[serde(rename = "m")]
    pub modified_micros: i64,
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// For entries of kind `Other`, whether it is a device; unknown in older backups.
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    pub is_device: Option<bool>,
    /// Where its headers begin in the plain stream, and where those of the next entry begin.
    #[serde(rename = "o")]
    pub start: u64,
    #[serde(rename = "e")]
    pub end: u64,
}

/// The kind of an entry as its word.
mod kind_word {
    use holdfast_core::backup::EntryKind;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(kind: &EntryKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(kind.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EntryKind, D::Error> {
        EntryKind::try_from(String::deserialize(deserializer)?.as_str()).map_err(de::Error::custom)
    }
}

impl Entry {
    /// Converts a member of a tar archive to an entry of the index.
    pub(crate) fn of(member: &Member, place: MemberRange) -> Self {
        let kind = match member.kind {
            MemberKind::File => EntryKind::File,
            MemberKind::Directory => EntryKind::Directory,
            MemberKind::Symlink => EntryKind::Symlink,
            MemberKind::Hardlink => EntryKind::Hardlink,
            MemberKind::CharDevice { .. } | MemberKind::BlockDevice { .. } | MemberKind::Fifo => EntryKind::Other,
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
pub(crate) fn tidy_path(path: &[u8]) -> &[u8] {
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
    /// The following entries are not listed because there were too many.
    Unlisted,
    End(Trailer),
}

/// Collects the index while an archive is written, in compressed form.
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
    pub(super) fn finish(mut self, ending: Trailer) -> io::Result<Vec<u8>> {
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

/// The length of the compressed index before this footer; `None` if these bytes are not a footer.
pub(super) fn index_length(footer: &[u8]) -> Option<u64> {
    let (length, magic) = footer.split_at_checked(8)?;
    let length = u64::from_le_bytes(length.try_into().ok()?);
    (magic == FOOTER_MAGIC && length <= 2 * INDEX_BYTES as u64).then_some(length)
}

/// What is recorded about an archive; its index must not list more than that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recorded {
    /// `None` if the number of entries in the index is not known.
    pub entries: Option<u64>,
    pub plain_bytes: u64,
}

impl Recorded {
    pub(super) const NOTHING: Self = Self { entries: None, plain_bytes: u64::MAX };

    fn frames(self) -> u64 {
        self.plain_bytes / FRAME_BYTES as u64 + 1
    }

    fn last_line_bytes(self) -> u64 {
        self.frames().saturating_mul(FRAME_SIZE_BYTES).saturating_add(ENDING_BYTES).min(LINE_BYTES)
    }
}

/// Reads an index line by line, so that millions of entries are never in memory at once.
pub(crate) struct IndexReader<R: Read> {
    lines: BufReader<io::Take<zstd::stream::read::Decoder<'static, BufReader<R>>>>,
    recorded: Recorded,
    stop: CancellationToken,
    entries: u64,
    pub manifest: Manifest,
    /// Whether some entries are not listed.
    pub is_unlisted: bool,
    pub ending: Option<Trailer>,
}

impl<R: Read> IndexReader<R> {
    pub(super) fn new(reader: R, recorded: Recorded, stop: CancellationToken) -> Result<Self> {
        let decoder = decompress(BufReader::new(reader), WINDOW_LOG).map_err(damaged)?;
        let mut lines = BufReader::new(decoder.take(LINES_BYTES));
        let Some(Line::Manifest(manifest)) = read_line(&mut lines, MANIFEST_BYTES)? else {
            return Err(EngineError::corrupt("The index of this backup does not begin with its manifest."));
        };
        if manifest.holdfast != 1 || manifest.frame_bytes != FRAME_BYTES as u64 {
            return Err(EngineError::corrupt("This backup has a format that this version does not support."));
        }
        Ok(Self { lines, recorded, stop, entries: 0, manifest, is_unlisted: false, ending: None })
    }

    pub(crate) fn next(&mut self) -> Result<Option<Entry>> {
        if self.ending.is_some() {
            return Ok(None);
        }
        loop {
            // Checked for every line, since there may be very many short ones.
            if self.stop.is_cancelled() {
                return Err(EngineError::cancelled());
            }
            match read_line(&mut self.lines, self.recorded.last_line_bytes())? {
                Some(Line::Entry(entry)) if !self.is_unlisted => {
                    self.entries += 1;
                    if self.recorded.entries.is_some_and(|recorded| self.entries > recorded) {
                        return Err(EngineError::corrupt("The index of this backup lists more than was backed up."));
                    }
                    return Ok(Some(entry));
                }
                Some(Line::Unlisted) if !self.is_unlisted => self.is_unlisted = true,
                Some(Line::Entry(_) | Line::Unlisted) => {
                    return Err(EngineError::corrupt("The index of this backup continues after its list."));
                }
                Some(Line::End(ending)) if ending.frames.len() as u64 > self.recorded.frames() => {
                    return Err(EngineError::corrupt("The index of this backup lists more frames than there are."));
                }
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

/// Reads a line. One that is not about an entry may have up to `most` bytes.
fn read_line(lines: &mut impl BufRead, most: u64) -> Result<Option<Line>> {
    let mut text = Vec::new();
    lines.take(ENTRY_BYTES).read_until(b'\n', &mut text).map_err(damaged)?;
    if text.is_empty() {
        return Ok(None);
    }
    if !text.ends_with(b"\n") && text.len() as u64 == ENTRY_BYTES {
        if text.starts_with(ENTRY_START) {
            return Err(EngineError::corrupt("The index of this backup has an entry that is too long."));
        }
        lines.take(most.saturating_sub(ENTRY_BYTES)).read_until(b'\n', &mut text).map_err(damaged)?;
        if !text.ends_with(b"\n") && text.len() as u64 >= most {
            return Err(EngineError::corrupt("The index of this backup has a line that is too long."));
        }
    }
    serde_json::from_slice(&text).map(Some).map_err(|error| damaged(error.into()))
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that map_err needs")]
fn damaged(error: io::Error) -> EngineError {
    crate::error::classify(&error, holdfast_core::failure::FailureCode::Corrupt, "The index of this backup is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8], link: &[u8]) -> Entry {
        let member = Member { link: link.to_vec(), ..Member::new(name, MemberKind::Symlink) };
        Entry::of(&member, MemberRange { start: 0, end: 512 })
    }

    #[test]
    fn line_lengths_are_limited_but_long_enough() {
        let line = |line: &Line| [serde_json::to_vec(line).unwrap(), b"\n".to_vec()].concat();
        // Bytes that are not text take up the most space.
        let longest = entry(&[0xff; 64 * 1024], &[0xff; 64 * 1024]);
        let ending =
            Trailer { entries: 1, plain_bytes: 0, plain_sha256: String::new(), frames: vec![u32::MAX; 200_000] };
        let text = [line(&Line::Entry(longest.clone())), line(&Line::End(ending.clone()))].concat();
        let mut lines = text.as_slice();
        assert!(matches!(read_line(&mut lines, LINE_BYTES).unwrap(), Some(Line::Entry(read)) if read == longest));
        assert!(matches!(read_line(&mut lines, LINE_BYTES).unwrap(), Some(Line::End(read)) if read == ending));
        assert!(read_line(&mut lines, LINE_BYTES).unwrap().is_none());
        let hostile = line(&Line::Entry(entry(&vec![b'n'; 2_000_000], b"")));
        let Err(error) = read_line(&mut hostile.as_slice(), LINE_BYTES) else { panic!("it was read") };
        assert!(error.message.contains("too long"), "{}", error.message);
    }
    fn index(lines: &[Line]) -> Vec<u8> {
        let manifest = Manifest {
            holdfast: 1,
            content: "files".to_owned(),
            created_at: String::new(),
            label: String::new(),
            source: String::new(),
            frame_bytes: FRAME_BYTES as u64,
            mysql: None,
            postgres: None,
        };
        let mut writer = IndexWriter::new(&manifest).unwrap();
        for line in lines {
            writer.line(line).unwrap();
        }
        writer.lines.finish().unwrap()
    }

    fn ending(frames: usize) -> Line {
        Line::End(Trailer { entries: 2, plain_bytes: 0, plain_sha256: String::new(), frames: vec![1; frames] })
    }

    fn read(index: &[u8], recorded: Recorded, stop: &CancellationToken) -> Result<u64> {
        let mut reader = IndexReader::new(index, recorded, stop.clone())?;
        while reader.next()?.is_some() {}
        Ok(reader.entries)
    }

    #[test]
    fn an_index_must_not_list_more_than_is_recorded() {
        let recorded = Recorded { entries: Some(2), plain_bytes: 3 * FRAME_BYTES as u64 };
        let (go_on, listed) = (CancellationToken::new(), || Line::Entry(entry(b"a", b"b")));
        let good = index(&[listed(), listed(), ending(4)]);
        assert_eq!(read(&good, recorded, &go_on).unwrap(), 2);
        assert_eq!(read(&index(&[listed(), Line::Unlisted, ending(4)]), recorded, &go_on).unwrap(), 1);
        let hostile = [
            ("lists more", index(&[listed(), listed(), listed(), ending(1)])),
            ("continues", index(&[Line::Unlisted, Line::Unlisted, ending(1)])),
            ("continues", index(&[Line::Unlisted, listed(), ending(1)])),
            ("more frames", index(&[listed(), listed(), ending(5)])),
            ("too long", index(&[ending(1_000_000)])),
        ];
        for (told, index) in hostile {
            let error = read(&index, recorded, &go_on).unwrap_err();
            assert!(error.message.contains(told), "{}", error.message);
        }
        // Without a record, as for a file opened manually, the index is accepted as it is.
        assert_eq!(read(&index(&[listed(), ending(1_000_000)]), Recorded::NOTHING, &go_on).unwrap(), 1);
        go_on.cancel();
        let stopped = read(&index(&[Line::Unlisted, ending(1)]), recorded, &go_on).unwrap_err();
        assert_eq!(stopped.code, holdfast_core::failure::FailureCode::Cancelled);
    }
}
