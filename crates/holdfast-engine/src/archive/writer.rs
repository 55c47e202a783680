//! Writes an archive: reads a plain stream once, hashes it, lists what is in it, compresses and encrypts it on the way.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::mpsc::Receiver;

use age::stream::StreamWriter;
use bytes::{Buf as _, Bytes};
use holdfast_core::backup::Content;
use holdfast_core::run::FailureCode;
use holdfast_core::{Secret, random};
use sha2::{Digest as _, Sha256};

use super::frames::{Frame, Pool};
use super::index::{Ending, IndexWriter, Manifest};
use super::inspect::inspect;
use super::{FRAME_BYTES, KeyTurn};
use crate::error::{EngineError, Result, classify};
use crate::progress::Progress;
use crate::source::Batch;

/// Where plain bytes come from. `None` is a proven end: the sender has read the exit status.
pub(crate) trait Chunks {
    fn next(&mut self) -> io::Result<Option<Bytes>>;
}

/// What was written.
#[derive(Debug, Clone)]
pub(crate) struct Packed {
    pub plain_bytes: u64,
    pub plain_sha256: String,
    pub stored_bytes: u64,
    pub stored_sha256: String,
    pub entries: u64,
    pub notes: Vec<String>,
}

/// What an archive is made with.
pub(crate) struct Packing<'a> {
    pub content: Content,
    pub manifest: Manifest,
    pub pool: &'a Pool,
    pub progress: &'a Progress,
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err hands it over")]
fn failed(error: io::Error) -> EngineError {
    classify(&error, FailureCode::Internal, "The archive cannot be written")
}

/// Reads `source` to its end and writes the archive to `out`; gives back what is under it. Blocks, so it wants a thread
/// of its own.
pub(crate) fn pack<W: Write>(packing: &Packing<'_>, source: impl Chunks, out: Out<W>) -> Result<(Packed, W)> {
    let mut index = IndexWriter::new(&packing.manifest).map_err(failed)?;
    let framer = Framer::new(packing.pool, out);
    let mut tee = Tee { source, chunk: Bytes::new(), is_over: false, framer, progress: packing.progress };
    let inspected = inspect(packing.content, &mut tee, FailureCode::Incomplete, &mut |entry| {
        packing.progress.add_file();
        index.entry(entry)
    })?;
    if packing.content != Content::Files {
        packing.progress.set_files(inspected.entries);
    }
    // What a parser leaves unread belongs to the stream all the same, and so does the proof that it has ended.
    io::copy(&mut tee, &mut io::sink()).map_err(failed)?;
    let (ended, sink) = tee.framer.finish(index, inspected.entries).map_err(failed)?;
    Ok((Packed { entries: inspected.entries, notes: inspected.notes, ..ended }, sink))
}

/// A reader whose every byte also goes into the archive.
struct Tee<'a, S, W: Write> {
    source: S,
    chunk: Bytes,
    is_over: bool,
    framer: Framer<W>,
    progress: &'a Progress,
}

impl<S: Chunks, W: Write> Read for Tee<'_, S, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            if self.is_over {
                return Ok(0);
            }
            match self.source.next()? {
                Some(chunk) => {
                    self.framer.push(&chunk)?;
                    self.progress.add_read(chunk.len() as u64);
                    self.chunk = chunk;
                }
                None => self.is_over = true,
            }
        }
        let length = buffer.len().min(self.chunk.len());
        buffer[..length].copy_from_slice(&self.chunk[..length]);
        self.chunk.advance(length);
        Ok(length)
    }
}

/// Where an archive goes: hashed as it is stored, and encrypted before that when there is a password.
pub(crate) enum Out<W: Write> {
    Plain(Hashed<W>),
    Sealed(StreamWriter<Hashed<W>>),
}

impl<W: Write> Out<W> {
    /// With a password this derives a key, which takes a while and much memory.
    pub(crate) fn open(sink: W, password: Option<&Secret>, turn: &KeyTurn) -> Result<Self> {
        let sink = Hashed { sink, hash: Sha256::new(), bytes: 0 };
        match password {
            Some(password) => turn.seal(sink, password).map(Self::Sealed).map_err(failed),
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

/// Cuts the plain stream into frames, has them compressed, and writes them in order.
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
            hash: Sha256::new(),
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
        // As many at once as there are threads, but where many runs share them one each is enough.
        let at_once = if self.pool.is_crowded() { 1 } else { self.pool.threads };
        while self.in_work.len() >= at_once {
            self.write_oldest()?;
        }
        let next = self.spare.pop().unwrap_or_default();
        if at_once == 1 {
            self.spare.clear();
        }
        let frame = std::mem::replace(&mut self.filling, next);
        self.in_work.push_back(self.pool.compress(frame)?);
        Ok(())
    }

    fn write_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.in_work.pop_front() else { return Ok(()) };
        let mut frame = oldest.recv().map_err(|_| io::Error::other("a compressing thread is gone"))??;
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
        let plain_sha256 = random::hex(&self.hash.finalize());
        let plain_bytes = self.plain_bytes;
        let ending = Ending { entries, plain_bytes, plain_sha256: plain_sha256.clone(), frames: self.sizes };
        self.out.write_all(&index.finish(ending)?)?;
        let sink = self.out.finish()?;
        let packed = Packed {
            plain_bytes,
            plain_sha256,
            stored_bytes: sink.bytes,
            stored_sha256: random::hex(&sink.hash.finalize()),
            entries,
            notes: Vec::new(),
        };
        Ok((packed, sink.sink))
    }
}

/// Chunks that arrive from another task; a sender that goes away without the end is a failure.
pub(crate) struct Received {
    batches: tokio::sync::mpsc::Receiver<Result<Batch>>,
    batch: std::vec::IntoIter<Bytes>,
}

impl Received {
    pub(crate) fn new(batches: tokio::sync::mpsc::Receiver<Result<Batch>>) -> Self {
        Self { batches, batch: Vec::new().into_iter() }
    }
}

impl Chunks for Received {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(chunk) = self.batch.next() {
                return Ok(Some(chunk));
            }
            match self.batches.blocking_recv() {
                Some(Ok(Some(batch))) => self.batch = batch.into_iter(),
                Some(Ok(None)) => return Ok(None),
                Some(Err(error)) => return Err(error.into()),
                None => return Err(EngineError::cancelled().into()),
            }
        }
    }
}
