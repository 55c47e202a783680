//! Writes an archive: reads a plain stream once and hashes, indexes, compresses and encrypts it.

use holdfast_core::backup::EntryKind;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use age::stream::StreamWriter;
use bytes::{Buf as _, Bytes};
use holdfast_core::Secret;
use holdfast_core::content::Content;
use holdfast_core::failure::FailureCode;
use holdfast_core::source::TaskKind;

use super::frames::Frame;
use super::index::{Entry, IndexWriter, Manifest, Trailer};
use super::inspect::inspect;
use super::inspected::Inspected;
use super::repack::{MemberSink, Readings, repack};
use super::tar::{Member, MemberRange, Writer};
use super::{FRAME_BYTES, KeyDerivation};
use crate::error::{EngineError, Result, classify};
use crate::pool::Pool;
use crate::progress::Progress;
use crate::sha256::Sha256;
use crate::source::changes::Passed;
use crate::source::{Batch, SinkReceiver};

/// A description of the archive that was written.
#[derive(Debug, Clone)]
pub(crate) struct Packed {
    pub plain_bytes: u64,
    pub plain_sha256: String,
    pub stored_bytes: u64,
    pub stored_sha256: String,
    pub entries: u64,
    /// Whether it contains no data: only folders and empty files, or no table.
    pub is_empty: bool,
    pub notes: Vec<String>,
    pub warnings: Vec<String>,
}

/// What is needed to write an archive.
pub(crate) struct Packing<'a> {
    pub content: Content,
    pub manifest: Manifest,
    pub pool: &'a Pool,
    pub progress: Arc<Progress>,
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that map_err needs")]
fn failed(error: io::Error) -> EngineError {
    classify(&error, FailureCode::Internal, "The archive cannot be written")
}

/// Reads `source` to its end and writes the archive to `out`; also returns the underlying writer. Blocks, so it must
/// run on a separate thread.
pub(crate) fn pack<W: Write>(packing: &Packing<'_>, mut source: Received, out: Out<W>) -> Result<(Packed, W)> {
    let mut index = IndexWriter::new(&packing.manifest).map_err(failed)?;
    let mut framer = Framer::new(packing.pool, out);
    source.count(packing.progress.clone());
    let mut has_data = false;
    let mut on_entry = |entry: &Entry| {
        packing.progress.add_file();
        has_data |= match entry.kind {
            EntryKind::Directory => false,
            EntryKind::File => entry.size > 0,
            EntryKind::Symlink | EntryKind::Hardlink | EntryKind::Other => true,
        };
        index.entry(entry)
    };
    let inspected = match packing.content.kind() {
        TaskKind::Files => {
            let mut tar = TarWriter { writer: Writer::new(Counted { out: &mut framer, bytes: 0 }) };
            let repacked = repack(&mut source, &mut tar, &mut on_entry);
            repacked
                .and_then(|inspected| tar.writer.finish().map(|_| inspected))
                .map_err(|error| classify(&error, FailureCode::Incomplete, "The stream is incomplete or damaged"))?
        }
        TaskKind::Database => {
            let mut tee = Tee { source: &mut source, copy: &mut framer };
            let inspected = inspect(packing.content, &mut tee, FailureCode::Incomplete, &mut on_entry)?;
            packing.progress.set_files(inspected.entries);
            // Also archive what the parser left unread.
            io::copy(&mut tee, &mut io::sink()).map_err(failed)?;
            inspected
        }
    };
    if packing.content != Content::Files {
        // A dump with notes has an unknown format, so its tables were not counted.
        has_data = inspected.entries > 0 || !inspected.notes.is_empty();
    }
    // Read to the end, which confirms that the server has finished.
    io::copy(&mut source, &mut io::sink()).map_err(failed)?;
    let (ended, sink) = framer.finish(index, inspected.entries).map_err(failed)?;
    let Inspected { notes, warnings, .. } = inspected;
    Ok((Packed { is_empty: !has_data, notes, warnings, ..ended }, sink))
}

/// A reader that also writes every byte to a copy.
pub(crate) struct Tee<'a, R, W> {
    pub source: &'a mut R,
    pub copy: &'a mut W,
}

impl<R: Read, W: Write> Read for Tee<'_, R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.copy.write_all(&buffer[..read])?;
        Ok(read)
    }
}

/// Writes members as a tar archive of our own.
struct TarWriter<W: Write> {
    writer: Writer<Counted<W>>,
}

impl<W: Write> MemberSink for TarWriter<W> {
    fn put(&mut self, member: &Member, data: &mut dyn Read) -> io::Result<MemberRange> {
        let start = self.writer.get_mut().bytes;
        self.writer.append(member, data)?;
        Ok(MemberRange { start, end: self.writer.get_mut().bytes })
    }
}

/// Counts the bytes written, to determine the position of each member.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Write for Framer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where an archive is written to: encrypted if there is a password, and hashed as it is stored.
pub(crate) enum Out<W: Write> {
    Plain(Hashed<W>),
    Sealed(StreamWriter<Hashed<W>>),
}

impl<W: Write> Out<W> {
    /// With a password, this derives a key, which takes time and a lot of memory.
    pub(crate) fn open(sink: W, password: Option<&Secret>, key_derivation: &KeyDerivation) -> Result<Self> {
        let sink = Hashed { sink, hash: Sha256::default(), bytes: 0 };
        match password {
            Some(password) => key_derivation.seal(sink, password).map(Self::Sealed).map_err(failed),
            None => Ok(Self::Plain(sink)),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(sink) => sink.write_all(bytes),
            Self::Sealed(sink) => sink.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<Hashed<W>> {
        let mut sink = match self {
            Self::Plain(sink) => sink,
            Self::Sealed(sink) => sink.finish()?,
        };
        sink.flush()?;
        Ok(sink)
    }
}

pub(crate) struct Hashed<W> {
    sink: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Splits the plain stream into frames, has them compressed, and writes them in order.
struct Framer<W: Write> {
    pool: Pool,
    out: Out<W>,
    hash: Sha256,
    plain_bytes: u64,
    filling: Frame,
    in_work: VecDeque<Receiver<io::Result<Frame>>>,
    spare: Vec<Frame>,
    sizes: Vec<u32>,
}

impl<W: Write> Framer<W> {
    fn new(pool: &Pool, out: Out<W>) -> Self {
        Self {
            pool: pool.clone(),
            out,
            hash: Sha256::default(),
            plain_bytes: 0,
            filling: Frame::default(),
            in_work: VecDeque::new(),
            spare: Vec::new(),
            sizes: Vec::new(),
        }
    }

    fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.plain_bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let plain = &mut self.filling.plain;
            plain.reserve_exact(FRAME_BYTES - plain.len());
            let (now, later) = bytes.split_at((FRAME_BYTES - plain.len()).min(bytes.len()));
            plain.extend_from_slice(now);
            bytes = later;
            if plain.len() == FRAME_BYTES {
                self.send_off()?;
            }
        }
        Ok(())
    }

    fn send_off(&mut self) -> io::Result<()> {
        // As many frames at once as there are threads; if many runs share the threads, one per run is enough.
        let at_once = if self.pool.is_crowded() { 1 } else { self.pool.threads };
        while self.in_work.len() >= at_once {
            self.write_oldest()?;
        }
        let next = self.spare.pop().unwrap_or_default();
        if at_once == 1 {
            self.spare.clear();
        }
        let frame = std::mem::replace(&mut self.filling, next);
        self.in_work.push_back(frame.compress(&self.pool)?);
        Ok(())
    }

    fn write_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.in_work.pop_front() else { return Ok(()) };
        let mut frame = oldest.recv().map_err(|_| io::Error::other("a compression thread is gone"))??;
        self.out.write_all(&frame.packed)?;
        self.sizes.push(u32::try_from(frame.packed.len()).map_err(io::Error::other)?);
        frame.plain.clear();
        self.spare.push(frame);
        Ok(())
    }

    fn finish(mut self, index: IndexWriter, entries: u64) -> io::Result<(Packed, W)> {
        if !self.filling.plain.is_empty() {
            self.send_off()?;
        }
        while !self.in_work.is_empty() {
            self.write_oldest()?;
        }
        let plain_sha256 = self.hash.hex();
        let plain_bytes = self.plain_bytes;
        let ending = Trailer { entries, plain_bytes, plain_sha256: plain_sha256.clone(), frames: self.sizes };
        self.out.write_all(&index.finish(ending)?)?;
        let sink = self.out.finish()?;
        let packed = Packed {
            plain_bytes,
            plain_sha256,
            stored_bytes: sink.bytes,
            stored_sha256: sink.hash.hex(),
            entries,
            is_empty: false,
            notes: Vec::new(),
            warnings: Vec::new(),
        };
        Ok((packed, sink.sink))
    }
}

/// Reads what another task sends; if the sender is dropped before the end, reading fails.
pub(crate) struct Received {
    receiver: SinkReceiver,
    batch: std::vec::IntoIter<Bytes>,
    chunk: Bytes,
    at: At,
    progress: Option<Arc<Progress>>,
}

/// The progress of the sender.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Reading,
    FirstEnd,
    End,
}

impl Received {
    pub(crate) fn new(receiver: SinkReceiver) -> Self {
        Self { receiver, batch: Vec::new().into_iter(), chunk: Bytes::new(), at: At::Reading, progress: None }
    }

    /// Adds what is read to the progress of the run.
    pub(crate) fn count(&mut self, progress: Arc<Progress>) {
        self.progress = Some(progress);
    }

    fn receive(&mut self) -> io::Result<Batch> {
        match self.receiver.batches.blocking_recv() {
            Some(Ok(batch)) => Ok(batch),
            Some(Err(error)) => Err(error.into()),
            None => Err(EngineError::cancelled().into()),
        }
    }
}

impl Read for Received {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            if let Some(chunk) = self.batch.next() {
                if let Some(progress) = &self.progress {
                    progress.add_read(chunk.len() as u64);
                }
                self.chunk = chunk;
                continue;
            }
            if self.at != At::Reading {
                return Ok(0);
            }
            match self.receive()? {
                Batch::Chunks(chunks) => self.batch = chunks.into_iter(),
                Batch::FirstEnd => self.at = At::FirstEnd,
                Batch::End => self.at = At::End,
                Batch::Second { .. } => return Err(io::Error::other("a second reading that was not requested")),
            }
        }
        let length = buffer.len().min(self.chunk.len());
        buffer[..length].copy_from_slice(&self.chunk[..length]);
        self.chunk.advance(length);
        Ok(length)
    }
}

impl Readings for Received {
    fn passed(&mut self, file: &Member) {
        // Most sources drop the receiver because they do not check files again.
        self.receiver.passed.take_if(|passed| passed.blocking_send(Passed::of(file)).is_err());
    }

    fn again(&mut self, files: &[Member]) -> io::Result<Option<Vec<usize>>> {
        self.receiver.passed = None;
        if self.at == At::End {
            return Ok(None);
        }
        let gone = |_| io::Error::from(EngineError::cancelled());
        self.receiver.again.blocking_send(files.to_vec()).map_err(gone)?;
        loop {
            match self.receive()? {
                Batch::Second { holes } => {
                    self.at = At::Reading;
                    return Ok(Some(holes));
                }
                Batch::End => {
                    self.at = At::End;
                    return Ok(None);
                }
                Batch::Chunks(chunks) if chunks.is_empty() => {}
                Batch::Chunks(_) | Batch::FirstEnd => {
                    return Err(io::Error::other("something follows the end of the tar archive"));
                }
            }
        }
    }
}
