//! Reads a whole backup as one stream: a tar archive made of the entries of a snapshot, or the dump that it holds.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use holdfast_core::content::Content;
use holdfast_core::failure::FailureCode;

use super::entries::{FileContent, SnapshotReader};
use super::locks::HeldLock;
use crate::archive::tar::{MemberKind, Writer};
use crate::context::Context;
use crate::error::{EngineError, Result, classify};
use crate::format::PlainReader;
use crate::plan::StoredBackup;
use crate::progress::Progress;
use crate::thread::on_thread;
use std::sync::Arc;

/// The size of what one thread passes to the other at a time, and how much may wait.
const PIECE_BYTES: usize = 256 * 1024;
const WAITING_PIECES: usize = 4;

/// Every blob is checked when it is read, and the last one must have been read before the stream ends, so nothing is
/// left to be checked then.
pub(super) async fn open(
    mut reader: SnapshotReader,
    lock: Option<HeldLock>,
    backup: &StoredBackup,
    context: &Context,
) -> Result<PlainReader> {
    let (is_files, progress) = (backup.content == Content::Files, context.progress.clone());
    let plain: Box<dyn Read + Send> = on_thread(move || {
        Ok(if is_files {
            Box::new(Counting { reader: tar_of(reader), progress, _lock: lock }) as Box<dyn Read + Send>
        } else {
            let dump = reader.find_dump()?;
            Box::new(Counting { reader: reader.into_content(dump), progress, _lock: lock })
        })
    })
    .await?;
    Ok(PlainReader::new(plain, Box::new(|| Ok(None))))
}

/// The size of the whole, which is found by going through the entries first, and all of it.
pub(super) async fn open_counted(
    mut reader: SnapshotReader,
    mut counted: SnapshotReader,
    backup: &StoredBackup,
) -> Result<(u64, Box<dyn Read + Send>)> {
    let is_files = backup.content == Content::Files;
    on_thread(move || {
        if is_files {
            return Ok((tar_size(&mut counted)?, Box::new(tar_of(reader)) as Box<dyn Read + Send>));
        }
        let dump = reader.find_dump()?;
        Ok((dump.size, Box::new(reader.into_content(dump))))
    })
    .await
}

/// The size of the tar archive of a snapshot, without reading any file.
fn tar_size(reader: &mut SnapshotReader) -> Result<u64> {
    let mut writer = Writer::new(Counter(0));
    let failed = |error: &io::Error| classify(error, FailureCode::Corrupt, "This backup is damaged");
    reader.walk(&mut |_, found| {
        let Some(member) = found.member() else { return Ok(true) };
        let bytes = writer.begin(&member).map_err(|error| failed(&error))?;
        writer.get_mut().0 += bytes;
        writer.end_member().map_err(|error| failed(&error))?;
        Ok(true)
    })?;
    writer.finish().map(|counter| counter.0).map_err(|error| failed(&error))
}

struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Counting<R> {
    reader: R,
    progress: Arc<Progress>,
    /// Held until all has been read.
    _lock: Option<HeldLock>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.progress.add_read(read as u64);
        Ok(read)
    }
}

/// Starts a thread that writes the tar archive of a snapshot, which ends when the reader is dropped.
fn tar_of(mut reader: SnapshotReader) -> PieceReader {
    let (sender, pieces) = sync_channel(WAITING_PIECES);
    tokio::task::spawn_blocking(move || {
        let failures = sender.clone();
        let out = PieceWriter { sender, piece: Vec::with_capacity(PIECE_BYTES) };
        let last = match write_tar(&mut reader, out) {
            Ok(()) => Piece::End,
            Err(error) => Piece::Failed(error),
        };
        // If nobody reads any more, nobody needs it.
        let _gone = failures.send(last);
    });
    PieceReader { pieces, piece: io::Cursor::default(), is_over: false }
}

fn write_tar(reader: &mut SnapshotReader, out: PieceWriter) -> Result<()> {
    let mut writer = Writer::new(out);
    let failed = |error: &io::Error| classify(error, FailureCode::Corrupt, "This backup is damaged");
    reader.walk(&mut |blobs, found| {
        let Some(member) = found.member() else { return Ok(true) };
        let written = if member.kind == MemberKind::File {
            let mut content = FileContent::new(blobs, found.node);
            writer.append(&member, &mut content).and_then(|()| content.confirm_end())
        } else {
            writer.append(&member, &mut io::empty())
        };
        written.map_err(|error| failed(&error))?;
        Ok(true)
    })?;
    writer.finish().and_then(|mut out| out.flush()).map_err(|error| failed(&error))
}

enum Piece {
    Bytes(Vec<u8>),
    End,
    Failed(EngineError),
}

struct PieceWriter {
    sender: SyncSender<Piece>,
    piece: Vec<u8>,
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..length]);
        if self.piece.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let gone = |_| io::Error::from(EngineError::cancelled());
        if piece.is_empty() { Ok(()) } else { self.sender.send(Piece::Bytes(piece)).map_err(gone) }
    }
}

struct PieceReader {
    pieces: Receiver<Piece>,
    piece: io::Cursor<Vec<u8>>,
    is_over: bool,
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 || self.is_over {
                return Ok(read);
            }
            match self.pieces.recv() {
                Ok(Piece::Bytes(piece)) => self.piece = io::Cursor::new(piece),
                Ok(Piece::End) => self.is_over = true,
                Ok(Piece::Failed(error)) => return Err(error.into()),
                // The thread has panicked: what came is not all.
                Err(_) => return Err(EngineError::internal("the thread that reads the repository is gone").into()),
            }
        }
    }
}
