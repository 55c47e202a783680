//! Reads an archive: all of it in order, its index, or one range of the plain stream.

use std::io::{self, BufReader, Read, Seek, SeekFrom};

use age::stream::StreamReader;
use holdfast_core::Secret;
use holdfast_core::content::Content;
use holdfast_core::failure::FailureCode;
use tokio_util::sync::CancellationToken;

use super::frames::{WINDOW_LOG, decompress};
use super::index::{Entry, FOOTER_BYTES, IndexReader, Manifest, Recorded, Trailer, index_length};
use super::sealed::BoundedHeader;
use super::tar::Reader;
use super::{FRAME_BYTES, KeyDerivation, WrittenBy};
use crate::error::{EngineError, Result, classify};
use crate::plan::StoredBackup;

/// The buffer size between stages; a few of zstd's own blocks.
const BUFFER_BYTES: usize = 256 * 1024;

/// The window size for files that are opened manually, which other tools may have compressed.
const FOREIGN_WINDOW_LOG: u32 = 27;

/// The compressed stream, decrypted if necessary.
enum Stream<S> {
    Plain(S),
    Sealed(StreamReader<BoundedHeader<S>>),
}

impl<S: Read> Read for Stream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(buffer),
            Self::Sealed(source) => source.read(buffer),
        }
    }
}

impl<S: Read + Seek> Seek for Stream<S> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Plain(source) => source.seek(to),
            Self::Sealed(source) => source.seek(to),
        }
    }
}

impl<S: Read> Stream<S> {
    fn open(
        source: S,
        is_encrypted: bool,
        password: Option<&Secret>,
        key_derivation: &KeyDerivation,
        written: WrittenBy<'_>,
    ) -> Result<Self> {
        match (is_encrypted, password) {
            (false, _) => Ok(Self::Plain(source)),
            (true, Some(password)) => key_derivation.open(source, password, written).map(Self::Sealed),
            (true, None) => {
                Err(EngineError::new(FailureCode::WrongPassword, "This backup is encrypted; its password is required."))
            }
        }
    }
}

fn damaged(error: &io::Error) -> EngineError {
    classify(error, FailureCode::Corrupt, "This backup is damaged")
}

/// Opens the whole plain stream, for sources that cannot seek.
pub(crate) fn plain<S: Read>(
    source: S,
    is_encrypted: bool,
    password: Option<&Secret>,
    key_derivation: &KeyDerivation,
    stop: &CancellationToken,
) -> Result<impl Read + use<S>> {
    let stream = Stream::open(source, is_encrypted, password, key_derivation, WrittenBy::Us(stop))?;
    let buffered = BufReader::with_capacity(BUFFER_BYTES, stream);
    let decoder = decompress(buffered, WINDOW_LOG).map_err(|error| damaged(&error))?;
    Ok(ToTheEnd { decoder })
}

/// Also reads what follows the last frame: the index and, if encrypted, the final block, which proves that nothing was
/// cut off.
struct ToTheEnd<S: Read> {
    decoder: zstd::stream::read::Decoder<'static, BufReader<Stream<S>>>,
}

impl<S: Read> Read for ToTheEnd<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer)?;
        if read == 0 && !buffer.is_empty() {
            io::copy(self.decoder.get_mut(), &mut io::sink())?;
        }
        Ok(read)
    }
}

/// A range of the plain stream. The decoder verifies the checksum of a frame when it has reached the end of the frame,
/// and the range may end before that.
struct VerifiedRange<R> {
    reader: R,
    /// What is left of the range before its last frame.
    before: u64,
    /// The part of the range that is in its last frame.
    last: u64,
    /// What follows it in that frame.
    surplus: u64,
    held: io::Cursor<Vec<u8>>,
}

impl<R: Read> VerifiedRange<R> {
    fn new(reader: R, range: std::ops::Range<u64>, has_frames: bool) -> Self {
        const FRAME: u64 = FRAME_BYTES as u64;
        let bytes = range.end.saturating_sub(range.start);
        let held = io::Cursor::default();
        if !has_frames || bytes == 0 {
            return Self { reader, before: bytes, last: 0, surplus: 0, held };
        }
        let last_frame = (range.end - 1) / FRAME * FRAME;
        let last = range.end - last_frame.max(range.start);
        Self { reader, before: bytes - last, last, surplus: last_frame.saturating_add(FRAME) - range.end, held }
    }

    fn verify_last_frame(&mut self) -> io::Result<()> {
        let mut held = Vec::new();
        if (&mut self.reader).take(self.last).read_to_end(&mut held)? as u64 != self.last {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // One byte more than the frame has: the checksum is verified before the next frame begins.
        io::copy(&mut (&mut self.reader).take(self.surplus + 1), &mut io::sink())?;
        // Only now: after an error, another read must not look like the end.
        (self.held, self.last) = (io::Cursor::new(held), 0);
        Ok(())
    }
}

impl<R: Read> Read for VerifiedRange<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.before > 0 {
            let read = (&mut self.reader).take(self.before).read(buffer)?;
            self.before -= read as u64;
            return Ok(read);
        }
        if self.last > 0 {
            self.verify_last_frame()?;
        }
        self.held.read(buffer)
    }
}

/// Fails if more is unpacked than was packed, or if reading is cancelled: a few stored bytes can unpack to very many.
pub(crate) struct Bounded<R> {
    reader: R,
    left: u64,
    stop: CancellationToken,
}

impl<R> Bounded<R> {
    pub(crate) fn new(reader: R, most: u64, stop: CancellationToken) -> Self {
        Self { reader, left: most, stop }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_cancelled() {
            return Err(EngineError::cancelled().into());
        }
        let read = self.reader.read(buffer)?;
        let more = || EngineError::corrupt("This backup holds more than was backed up.");
        self.left = self.left.checked_sub(read as u64).ok_or_else(more)?;
        Ok(read)
    }
}

/// An archive with random access: a file, or an object that is read in ranges.
pub struct Archive<S> {
    stream: Stream<S>,
    window_log: u32,
    recorded: Recorded,
    stop: CancellationToken,
}

impl<S: Read + Seek> Archive<S> {
    /// Opens an archive. With a password it must be encrypted; if it is not, it is damaged or was replaced. A wrong
    /// password is reported here, before anything is written.
    pub fn open(source: S, password: Option<&Secret>) -> Result<Self> {
        let (key_derivation, written) = (KeyDerivation::default(), WrittenBy::Anybody);
        let stream = Stream::open(source, password.is_some(), password, &key_derivation, written)?;
        let window_log = FOREIGN_WINDOW_LOG;
        Ok(Self { stream, window_log, recorded: Recorded::NOTHING, stop: CancellationToken::new() })
    }

    /// Opens a recorded backup, to be read until `stop` is cancelled.
    pub(crate) fn open_stored(
        source: S,
        backup: &StoredBackup,
        key_derivation: &KeyDerivation,
        stop: &CancellationToken,
    ) -> Result<Self> {
        let (is_encrypted, password) = (backup.is_encrypted, backup.password.as_ref());
        let stream = Stream::open(source, is_encrypted, password, key_derivation, WrittenBy::Us(stop))?;
        // For a dump, the recorded number is that of its tables, which are not listed in the index.
        let entries = (backup.content == Content::Files).then_some(backup.entries);
        let recorded = Recorded { entries, plain_bytes: backup.plain_bytes };
        Ok(Self { stream, window_log: WINDOW_LOG, recorded, stop: stop.clone() })
    }

    /// Reads all of it, in order.
    pub fn plain(&mut self) -> Result<impl Read + '_> {
        self.decode_from(0)
    }

    fn decode_from(&mut self, offset: u64) -> Result<impl Read + use<'_, S>> {
        self.stream.seek(SeekFrom::Start(offset)).map_err(|error| damaged(&error))?;
        let buffered = BufReader::with_capacity(BUFFER_BYTES, &mut self.stream);
        let decoder = decompress(buffered, self.window_log).map_err(|error| damaged(&error))?;
        Ok(Bounded::new(decoder, self.recorded.plain_bytes, self.stop.clone()))
    }

    /// Opens the index; `None` if there is none, as in files made by other tools.
    pub(crate) fn index(&mut self) -> Result<Option<IndexReader<impl Read + use<'_, S>>>> {
        let mut read_index = || -> io::Result<Option<(u64, u64)>> {
            let size = self.stream.seek(SeekFrom::End(0))?;
            let Some(footer_at) = size.checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
            self.stream.seek(SeekFrom::Start(footer_at))?;
            let mut footer = [0; FOOTER_BYTES];
            self.stream.read_exact(&mut footer)?;
            let start = index_length(&footer).and_then(|length| Some((footer_at.checked_sub(length)?, length)));
            if let Some((start, _)) = start {
                self.stream.seek(SeekFrom::Start(start))?;
            }
            Ok(start)
        };
        match read_index().map_err(|error| damaged(&error))? {
            Some((_, length)) => {
                let index = (&mut self.stream).take(length);
                IndexReader::new(index, self.recorded, self.stop.clone()).map(Some)
            }
            None => Ok(None),
        }
    }

    /// The manifest of the archive; `None` if it has no index.
    pub(crate) fn manifest(&mut self) -> Result<Option<Manifest>> {
        Ok(self.index()?.map(|index| index.manifest))
    }

    /// Visits every entry in order, from the index if it lists them, otherwise by reading the archive. The visitor
    /// returns whether to continue.
    pub fn visit(&mut self, visitor: &mut dyn FnMut(&Entry) -> Result<bool>) -> Result<()> {
        self.visit_entries(visitor).map(drop)
    }

    pub(crate) fn visit_entries(&mut self, visitor: &mut dyn FnMut(&Entry) -> Result<bool>) -> Result<Option<Trailer>> {
        let (mut ending, mut is_unlisted, mut last, mut count) = (None, true, 0, 0);
        if let Some(mut index) = self.index()? {
            while let Some(entry) = index.next()? {
                if !visitor(&entry)? {
                    return Ok(None);
                }
                (last, count) = (entry.end, count + 1);
            }
            (ending, is_unlisted) = (index.ending.take(), index.is_unlisted);
        }
        if is_unlisted {
            match self.scan(last, visitor)? {
                Some(found) => count += found,
                None => return Ok(ending),
            }
        }
        // An incomplete list must not be taken for a complete one.
        if let Some(recorded) = self.recorded.entries.filter(|recorded| *recorded != count) {
            return Err(EngineError::corrupt(format!(
                "The index of this backup is damaged: it lists {count} of {recorded} entries. All of it can still be \
                 restored or downloaded if the rest is intact; verify it to find out."
            )));
        }
        Ok(ending)
    }

    /// Visits the entries that begin at `from` or later by reading the archive itself. Returns their number if it was
    /// read to its end.
    fn scan(&mut self, from: u64, visitor: &mut dyn FnMut(&Entry) -> Result<bool>) -> Result<Option<u64>> {
        let mut count = 0;
        let mut reader = Reader::new(self.plain()?);
        while let Some((member, place)) = reader.next().map_err(|error| damaged(&error))? {
            if place.start < from {
                continue;
            }
            if !visitor(&Entry::of(&member, place))? {
                return Ok(None);
            }
            count += 1;
        }
        Ok(Some(count))
    }

    /// Reads a range of the plain stream, starting with the frame it begins in. What is in the last frame is returned only
    /// after its checksum was verified.
    pub(crate) fn stretch(&mut self, frames: &[u32], start: u64, end: u64) -> Result<impl Read + use<'_, S>> {
        // Without a frame table, the stream is read from the beginning.
        let (frame, surplus) = match frames {
            [] => (0, start),
            _ => (usize::try_from(start / FRAME_BYTES as u64).unwrap_or(usize::MAX), start % FRAME_BYTES as u64),
        };
        let before = frames.get(..frame).ok_or_else(|| EngineError::corrupt("The index points past the archive."))?;
        let offset: u64 = before.iter().map(|size| u64::from(*size)).sum();
        let mut reader = self.decode_from(offset)?;
        let skipped = io::copy(&mut (&mut reader).take(surplus), &mut io::sink()).map_err(|error| damaged(&error))?;
        if skipped < surplus {
            return Err(EngineError::corrupt("The index points past the archive."));
        }
        Ok(VerifiedRange::new(reader, start..end, !frames.is_empty()))
    }

    /// Finds the entry with this path; also returns the frame table, which is empty if there is none.
    pub(crate) fn find(&mut self, path: &str) -> Result<(Entry, Vec<u32>)> {
        let wanted = path.trim_matches('/');
        let mut found = None;
        let ending = self.visit_entries(&mut |entry| {
            if entry.path == wanted {
                found = Some(entry.clone());
            }
            Ok(true)
        })?;
        let missing = || EngineError::new(FailureCode::EntryMissing, "There is no such entry in this backup.");
        Ok((found.ok_or_else(missing)?, ending.map(|ending| ending.frames).unwrap_or_default()))
    }
}
