//! Reads an object in pieces, the next one fetched while this one is used. For threads that may block.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::BlobStore;
use crate::error::{EngineError, Result};

/// One request; large enough that a distant store is not asked too often.
const PIECE_BYTES: u64 = 2 * 1024 * 1024;
/// The first piece, which may be all that is wanted; while a key is derived from it, nothing more is held.
const FIRST_BYTES: u64 = 256 * 1024;
/// Pieces fetched ahead once reading goes straight on.
const AHEAD: usize = 3;

pub struct ObjectReader {
    store: Arc<dyn BlobStore>,
    key: String,
    size: u64,
    runtime: Handle,
    position: u64,
    current: Bytes,
    /// Where `current` ends; the pieces in `ahead` follow it.
    ends_at: u64,
    ahead: VecDeque<(u64, JoinHandle<Result<Bytes>>)>,
    is_straight: bool,
    cancel: CancellationToken,
}

impl ObjectReader {
    /// Must be called on a runtime, which fetches what is read.
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
        }
    }

    /// Gives up when this is cancelled, also in the middle of a request: a destination may hang.
    #[must_use]
    pub fn until(mut self, cancel: CancellationToken) -> Self {
        self.cancel = cancel;
        self
    }

    fn fetch_ahead(&mut self) {
        let (wanted, bytes) = if self.is_straight { (AHEAD, PIECE_BYTES) } else { (1, FIRST_BYTES) };
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
            (self.position, self.ends_at, self.is_straight) = (target, target, false);
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
