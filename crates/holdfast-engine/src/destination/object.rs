//! Reads an object in pieces and prefetches the next ones. For threads that may block.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Arc, OnceLock};

use bytes::{Buf as _, Bytes};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::BlobStore;
use crate::error::{EngineError, Result};
use crate::sha256::{Digest, Sha256};

/// The size of one request; large enough that a distant store does not need too many.
const PIECE_BYTES: u64 = 2 * 1024 * 1024;
/// The size of the first piece, which may be all that is needed. While a key is being derived, no more than this is
/// held in memory.
const FIRST_BYTES: u64 = 256 * 1024;
/// The number of pieces to prefetch during sequential reading.
const AHEAD: usize = 3;

/// The hashes of an object's blocks, set once the whole object was read and verified. If a destination replaces the
/// object between two readings, this is detected before any changed byte is used. The hashes of five terabytes take 80
/// MB.
#[derive(Debug, Clone, Default)]
pub struct VerifiedBlocks(Arc<OnceLock<Vec<Digest>>>);

/// Computes the hashes of the blocks of an object that is read from its first byte.
#[derive(Default)]
pub(crate) struct Blocks {
    done: Vec<Digest>,
    block: Sha256,
    filled: u64,
}

impl Blocks {
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(PIECE_BYTES - self.filled).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.update(now);
            self.filled += now.len() as u64;
            if self.filled == PIECE_BYTES {
                self.end_block();
            }
            bytes = later;
        }
    }

    fn end_block(&mut self) {
        self.done.push(std::mem::take(&mut self.block).finish());
        self.filled = 0;
    }

    /// To be called when the object was verified.
    pub(crate) fn prove(mut self, proven: &VerifiedBlocks) {
        if self.filled > 0 {
            self.end_block();
        }
        // If another reader was first, it has read the same bytes.
        let _same = proven.0.set(self.done);
    }
}

pub struct ObjectReader {
    store: Arc<dyn BlobStore>,
    key: String,
    size: u64,
    runtime: Handle,
    position: u64,
    current: Bytes,
    /// The offset at which `current` ends; the pieces in `ahead` follow it.
    ends_at: u64,
    ahead: VecDeque<(u64, JoinHandle<Result<Bytes>>)>,
    is_straight: bool,
    cancel: CancellationToken,
    proven: Option<VerifiedBlocks>,
    /// How many bytes to skip in the next piece, which begins at a block boundary while `position` may lie within the
    /// block.
    skipped: usize,
}

impl ObjectReader {
    /// Must be called within a runtime, which then fetches the pieces.
    pub fn new(store: Arc<dyn BlobStore>, key: &str, size: u64) -> Self {
        Self {
            store,
            key: key.to_owned(),
            size,
            runtime: Handle::current(),
            position: 0,
            current: Bytes::new(),
            ends_at: 0,
            ahead: VecDeque::new(),
            is_straight: false,
            cancel: CancellationToken::new(),
            proven: None,
            skipped: 0,
        }
    }

    /// Returns only bytes that match those of an earlier, verified reading, if there was one.
    #[must_use]
    pub fn like(mut self, proven: Option<&VerifiedBlocks>) -> Self {
        self.proven = proven.filter(|proven| proven.0.get().is_some()).cloned();
        self
    }

    fn check(&self, start: u64, piece: &Bytes) -> Result<()> {
        let Some(blocks) = self.proven.as_ref().and_then(|proven| proven.0.get()) else { return Ok(()) };
        let first = usize::try_from(start / PIECE_BYTES).unwrap_or(usize::MAX);
        match blocks.get(first) {
            Some(expected) if *expected == Sha256::of(piece) => Ok(()),
            _ => {
                Err(EngineError::corrupt("The destination sent different bytes than when the backup was read before."))
            }
        }
    }

    /// Stops when this token is cancelled, even in the middle of a request: a destination may hang.
    #[must_use]
    pub fn until(mut self, cancel: CancellationToken) -> Self {
        self.cancel = cancel;
        self
    }

    fn fetch_ahead(&mut self) {
        let first = if self.proven.is_some() { PIECE_BYTES } else { FIRST_BYTES };
        let (wanted, bytes) = if self.is_straight { (AHEAD, PIECE_BYTES) } else { (1, first) };
        while self.ahead.len() < wanted {
            let start = self.ahead.back().map_or(self.ends_at, |(end, _)| *end);
            if start >= self.size {
                return;
            }
            let end = (start + bytes).min(self.size);
            let (store, key) = (self.store.clone(), self.key.clone());
            self.ahead.push_back((end, self.runtime.spawn(async move { store.read(&key, start..end).await })));
        }
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(EngineError::cancelled().into());
        }
        if self.current.is_empty() {
            self.fetch_ahead();
            let Some((end, piece)) = self.ahead.pop_front() else { return Ok(0) };
            self.ends_at = end;
            if self.is_straight {
                self.fetch_ahead();
            }
            self.is_straight = true;
            let piece = self.runtime.block_on(self.cancel.run_until_cancelled(piece));
            self.current = piece.ok_or_else(EngineError::cancelled)?.map_err(EngineError::internal)??;
            self.check(end.saturating_sub(self.current.len() as u64), &self.current)?;
            let skipped = std::mem::take(&mut self.skipped).min(self.current.len());
            self.current.advance(skipped);
        }
        let length = buffer.len().min(self.current.len());
        buffer[..length].copy_from_slice(&self.current.split_to(length));
        self.position += length as u64;
        Ok(length)
    }
}

impl Seek for ObjectReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.size.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        let target = target.ok_or(io::ErrorKind::InvalidInput)?;
        if target != self.position {
            self.drop_pieces();
            let begin = if self.proven.is_some() { target - target % PIECE_BYTES } else { target };
            self.skipped = usize::try_from(target - begin).unwrap_or(usize::MAX);
            (self.position, self.ends_at, self.is_straight) = (target, begin, false);
        }
        Ok(target)
    }
}

impl ObjectReader {
    fn drop_pieces(&mut self) {
        self.current = Bytes::new();
        for (_, piece) in self.ahead.drain(..) {
            piece.abort();
        }
    }
}

impl Drop for ObjectReader {
    fn drop(&mut self) {
        self.drop_pieces();
    }
}

#[cfg(test)]
mod tests {
    use super::super::local::Local;
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn later_readings_return_only_verified_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn BlobStore> = Arc::new(Local::open(folder.path(), None).await.unwrap().0);
        let block = usize::try_from(PIECE_BYTES).unwrap();
        let bytes: Vec<u8> = (0..block * 2 + 5000).map(|place| u8::try_from(place % 251).unwrap()).collect();
        store.put("object", bytes.clone().into()).await.unwrap();
        let open = || ObjectReader::new(store.clone(), "object", bytes.len() as u64);
        let (first, proven) = (open(), VerifiedBlocks::default());
        let read = |mut reader: ObjectReader, from: u64| {
            tokio::task::block_in_place(move || {
                let mut found = Vec::new();
                reader.seek(SeekFrom::Start(from))?;
                reader.read_to_end(&mut found).map(|_| found)
            })
        };
        let mut blocks = Blocks::default();
        read(first, 0).unwrap().chunks(777).for_each(|piece| blocks.update(piece));
        blocks.prove(&proven);
        for from in [0, 1, block - 1, block, block + 7, bytes.len() - 1, bytes.len()] {
            assert_eq!(read(open().like(Some(&proven)), from as u64).unwrap(), bytes[from..], "from {from}");
        }

        let mut changed = bytes.clone();
        changed[block + 100] ^= 1;
        store.remove("object").await.unwrap();
        store.put("object", changed.into()).await.unwrap();
        let mut reader = open().like(Some(&proven));
        let found = tokio::task::block_in_place(|| {
            let mut found = Vec::new();
            let error = reader.read_to_end(&mut found).unwrap_err();
            assert!(error.to_string().contains("different bytes"), "{error}");
            found
        });
        assert_eq!(found, bytes[..block], "nothing of the changed block is given");
        assert!(read(open().like(Some(&VerifiedBlocks::default())), 0).is_ok(), "nothing is proven yet");
    }
}
