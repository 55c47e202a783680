//! Brings a stream of bytes into a store as one object: in parts, several at once, confirmed at the end.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use holdfast_core::random;
use holdfast_core::run::FailureCode;
use md5::{Digest as _, Md5};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::{BlobStore, Shape};
use crate::error::{EngineError, Result};

/// What crosses from the packing thread at once.
const CHUNK_BYTES: usize = 128 * 1024;
/// Chunks that wait for the destination; more would only be memory.
const WAITING_CHUNKS: usize = 4;

/// Told before anything is created at the destination, so that whoever finds this run lost can clean up after it.
#[async_trait]
pub trait Journal: Send + Sync {
    async fn upload_begins(&self, key: &str) -> Result<()>;
    async fn upload_begun(&self, key: &str, upload_id: &str) -> Result<()>;
}

/// Where the packing thread writes. Dropped without `finish`, the upload is given up.
pub(crate) struct Sink {
    chunks: mpsc::Sender<Message>,
    filling: Vec<u8>,
}

enum Message {
    Chunk(Bytes),
    End,
}

impl Sink {
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.send_off()?;
        self.send(Message::End)
    }

    fn send_off(&mut self) -> io::Result<()> {
        if self.filling.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.filling, Vec::with_capacity(CHUNK_BYTES));
        self.send(Message::Chunk(chunk.into()))
    }

    fn send(&self, message: Message) -> io::Result<()> {
        // The upload has failed and says so itself.
        self.chunks.blocking_send(message).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(CHUNK_BYTES - self.filling.len());
        self.filling.extend_from_slice(&bytes[..length]);
        if self.filling.len() == CHUNK_BYTES {
            self.send_off()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An upload and what it works with.
pub(crate) struct Upload {
    pub store: Arc<dyn BlobStore>,
    pub key: String,
    /// About how large it will be; 0 is unknown.
    pub expected_bytes: u64,
    /// Bounds the memory of all uploads of the process together.
    pub memory: Arc<Semaphore>,
    pub journal: Arc<dyn Journal>,
}

/// A permit of the memory bound stands for this much.
pub(crate) const PERMIT_BYTES: usize = 1024 * 1024;

struct Part {
    chunks: Vec<Bytes>,
    bytes: usize,
    permit: OwnedSemaphorePermit,
}

impl Upload {
    /// The sink to write to, and the task that takes from it. The task gives the size that was stored.
    pub(crate) fn start(self) -> (Sink, JoinHandle<Result<u64>>) {
        let (sender, receiver) = mpsc::channel(WAITING_CHUNKS);
        let sink = Sink { chunks: sender, filling: Vec::with_capacity(CHUNK_BYTES) };
        (sink, tokio::spawn(self.run(receiver)))
    }

    async fn run(self, mut chunks: mpsc::Receiver<Message>) -> Result<u64> {
        let shape = self.store.shape(self.expected_bytes);
        self.journal.upload_begins(&self.key).await?;
        let first = match self.next_part(&mut chunks, shape).await? {
            // Small enough for one request, which is whole or not at all.
            (part, true) => return self.put_whole(part).await,
            (part, false) => part,
        };
        let upload_id = self.store.begin(&self.key).await?;
        let stored = async {
            self.journal.upload_begun(&self.key, &upload_id).await?;
            self.put_parts(&upload_id, first, &mut chunks, shape).await
        };
        match stored.await {
            Ok(size) => Ok(size),
            Err(error) => {
                self.give_up(&upload_id, &error).await;
                Err(error)
            }
        }
    }

    /// Whatever the reason, nothing partial stays. What cannot be removed now is in the journal.
    async fn give_up(&self, upload_id: &str, reason: &EngineError) {
        tracing::debug!(key = self.key, %reason, "giving up an upload");
        if let Err(error) = self.store.abort(&self.key, upload_id).await {
            tracing::warn!(key = self.key, %error, "an unfinished upload was left behind");
        }
    }

    /// Gathers one part; true when the stream has ended with it.
    async fn next_part(&self, chunks: &mut mpsc::Receiver<Message>, shape: Shape) -> Result<(Part, bool)> {
        let permits = u32::try_from(shape.part_bytes.div_ceil(PERMIT_BYTES)).map_err(EngineError::internal)?;
        let permit = self.memory.clone().acquire_many_owned(permits).await.map_err(EngineError::internal)?;
        let mut part = Part { chunks: Vec::new(), bytes: 0, permit };
        while part.bytes < shape.part_bytes {
            match chunks.recv().await {
                Some(Message::Chunk(chunk)) => {
                    part.bytes += chunk.len();
                    part.chunks.push(chunk);
                }
                Some(Message::End) => return Ok((part, true)),
                None => return Err(EngineError::cancelled()),
            }
        }
        Ok((part, false))
    }

    async fn put_whole(&self, part: Part) -> Result<u64> {
        let body: Bytes = part.chunks.concat().into();
        let digest = random::hex(&Md5::digest(&body));
        let size = body.len() as u64;
        self.store.put(&self.key, body).await?;
        self.confirm(size, &digest).await
    }

    async fn put_parts(
        &self,
        upload_id: &str,
        first: Part,
        chunks: &mut mpsc::Receiver<Message>,
        shape: Shape,
    ) -> Result<u64> {
        let mut under_way: VecDeque<JoinHandle<Result<String>>> = VecDeque::new();
        let mut ids = Vec::new();
        let (mut size, mut index, mut part, mut is_last) = (0_u64, 0, first, false);
        loop {
            if part.bytes > 0 {
                if index == shape.max_parts {
                    return Err(EngineError::new(FailureCode::TooLarge, "This backup has more parts than S3 can join."));
                }
                while under_way.len() >= shape.parallel {
                    ids.push(finished(&mut under_way).await?);
                }
                size += part.bytes as u64;
                under_way.push_back(self.send_part(upload_id, index, part));
                index += 1;
            }
            if is_last {
                break;
            }
            (part, is_last) = self.next_part(chunks, shape).await?;
        }
        while !under_way.is_empty() {
            ids.push(finished(&mut under_way).await?);
        }
        let expected = composite_etag(&ids).unwrap_or_default();
        match self.store.complete(&self.key, upload_id, ids).await {
            Ok(()) => self.confirm(size, &expected).await,
            // The answer was lost or the upload is gone: the object itself tells whether it was joined.
            Err(error) if matches!(error.code, FailureCode::DestinationUnavailable | FailureCode::Missing) => {
                match self.store.stat(&self.key).await? {
                    Some(_) => self.confirm(size, &expected).await,
                    None => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn send_part(&self, upload_id: &str, index: usize, part: Part) -> JoinHandle<Result<String>> {
        let (store, key, upload_id) = (self.store.clone(), self.key.clone(), upload_id.to_owned());
        tokio::spawn(async move {
            let Part { chunks, permit, .. } = part;
            let id = store.put_part(&key, &upload_id, index, chunks).await;
            drop(permit);
            id
        })
    }

    /// Asks the destination for what it has now. An entity tag counts where it is a digest we can compute.
    async fn confirm(&self, size: u64, digest: &str) -> Result<u64> {
        let failed = |what: String| Err(EngineError::new(FailureCode::DestinationFailed, what));
        let Some(stat) = self.store.stat(&self.key).await? else {
            return failed("The destination took the backup, but does not have it.".to_owned());
        };
        if stat.size != size {
            return failed(format!("The destination has {} bytes of a backup of {size}.", stat.size));
        }
        let etag = stat.etag.as_deref().map(|etag| etag.trim_matches('"')).unwrap_or_default();
        if !digest.is_empty() && is_digest_like(etag, digest) && !etag.eq_ignore_ascii_case(digest) {
            return failed("The destination's checksum of the backup is not ours.".to_owned());
        }
        Ok(size)
    }
}

async fn finished(under_way: &mut VecDeque<JoinHandle<Result<String>>>) -> Result<String> {
    match under_way.pop_front() {
        Some(part) => part.await.map_err(EngineError::internal)?,
        None => Err(EngineError::internal("no part is under way")),
    }
}

/// What S3 makes of the parts' MD5 digests: the digest of all of them, and their number. `None` where part tags are
/// something else, as with some encryption modes.
fn composite_etag(parts: &[String]) -> Option<String> {
    let mut hash = Md5::new();
    for part in parts {
        let text = part.trim_matches('"');
        if text.len() != 32 {
            return None;
        }
        for pair in text.as_bytes().chunks_exact(2) {
            hash.update([u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?]);
        }
    }
    Some(format!("{}-{}", random::hex(&hash.finalize()), parts.len()))
}

/// Both are of the same form, so that comparing them means something.
fn is_digest_like(etag: &str, digest: &str) -> bool {
    let form = |text: &str| text.split_once('-').map(|(hex, parts)| (hex.len(), parts.to_owned()));
    let is_hex = etag.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_hex && (form(etag) == form(digest)) && etag.len() == digest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composite_tags_are_those_of_s3() {
        // From `printf a | md5sum`, `printf b | md5sum` and the digest of both.
        let parts = ["\"0cc175b9c0f1b6a831c399e269772661\"".to_owned(), "92eb5ffee6ae2fec3ad71c777531578f".to_owned()];
        assert_eq!(composite_etag(&parts).unwrap(), "96e024ba2074fe77e8e965ba43a704be-2");
        assert_eq!(composite_etag(&["opaque".to_owned()]), None);
        assert!(is_digest_like("0cc175b9c0f1b6a831c399e269772661", "92eb5ffee6ae2fec3ad71c777531578f"));
        assert!(!is_digest_like("kms-something", "92eb5ffee6ae2fec3ad71c777531578f"));
    }
}
