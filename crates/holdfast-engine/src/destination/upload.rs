//! Brings a stream of bytes into a store as one object: in parts, several at once, confirmed at the end.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdfast_core::random;
use holdfast_core::run::FailureCode;
use md5::{Digest as _, Md5};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

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

/// What was written to a sink, for the upload that takes it.
pub(crate) struct Written(mpsc::Receiver<Message>);

enum Message {
    Chunk(Bytes),
    End,
}

impl Sink {
    pub(crate) fn new() -> (Self, Written) {
        let (chunks, written) = mpsc::channel(WAITING_CHUNKS);
        (Self { chunks, filling: Vec::with_capacity(CHUNK_BYTES) }, Written(written))
    }

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
    pub cancel: CancellationToken,
}

/// How long a destination may take to drop an upload; later it is asked again.
const ABORT_LIMIT: Duration = Duration::from_secs(20);

/// A permit of the memory bound stands for this much.
pub(crate) const PERMIT_BYTES: usize = 1024 * 1024;

/// What the destination said when it was asked for the new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uploaded {
    pub size: u64,
    /// Its checksum is that of what was sent. Without it only reading back can tell.
    pub is_proven: bool,
}

/// A part that the store has taken.
struct SentPart {
    id: String,
    /// Of what was sent, whatever the store says that it has.
    digest: Option<String>,
}

struct Part {
    chunks: Vec<Bytes>,
    bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl Upload {
    /// Starts the task that takes from a sink.
    pub(crate) fn start(self, written: Written) -> JoinHandle<Result<Uploaded>> {
        tokio::spawn(self.run(written.0))
    }

    async fn run(self, mut chunks: mpsc::Receiver<Message>) -> Result<Uploaded> {
        let begun = OnceLock::new();
        let stored = tokio::select! {
            stored = self.store_all(&mut chunks, &begun) => stored,
            // Also in the middle of a request: a destination that hangs must not keep a cancelled run alive.
            () = self.cancel.cancelled() => Err(EngineError::cancelled()),
        };
        if let (Err(error), Some(upload_id)) = (&stored, begun.get()) {
            self.give_up(upload_id, error).await;
        }
        stored
    }

    async fn store_all(&self, chunks: &mut mpsc::Receiver<Message>, begun: &OnceLock<String>) -> Result<Uploaded> {
        let shape = self.store.shape(self.expected_bytes);
        self.journal.upload_begins(&self.key).await?;
        let first = match self.next_part(chunks, shape).await? {
            // Small enough for one request, which is whole or not at all.
            (part, true) => return self.put_whole(part, shape).await,
            (part, false) => part,
        };
        let upload_id = self.store.begin(&self.key).await?;
        let upload_id = begun.get_or_init(|| upload_id);
        self.journal.upload_begun(&self.key, upload_id).await?;
        self.put_parts(upload_id, first, chunks, shape).await
    }

    /// Whatever the reason, nothing partial stays. What cannot be removed now is in the journal.
    async fn give_up(&self, upload_id: &str, reason: &EngineError) {
        tracing::debug!(key = self.key, %reason, "giving up an upload");
        match tokio::time::timeout(ABORT_LIMIT, self.store.abort(&self.key, upload_id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(key = self.key, %error, "an unfinished upload was left behind"),
            Err(_) => tracing::warn!(key = self.key, "an unfinished upload was left behind: no answer"),
        }
    }

    /// Gathers one part; true when the stream has ended with it.
    async fn next_part(&self, chunks: &mut mpsc::Receiver<Message>, shape: Shape) -> Result<(Part, bool)> {
        let permits = u32::try_from(shape.part_bytes.div_ceil(PERMIT_BYTES)).map_err(EngineError::internal)?;
        let (mut part, mut is_last) = (Part { chunks: Vec::new(), bytes: 0, permit: None }, false);
        while part.bytes < shape.part_bytes && !is_last {
            match chunks.recv().await {
                Some(Message::Chunk(chunk)) => {
                    part.bytes += chunk.len();
                    part.chunks.push(chunk);
                }
                Some(Message::End) => is_last = true,
                None => return Err(EngineError::cancelled()),
            }
            // Only once there is something to hold: a source that sends nothing takes nobody's memory.
            if part.permit.is_none() {
                let permit = self.memory.clone().acquire_many_owned(permits).await;
                part.permit = Some(permit.map_err(EngineError::internal)?);
            }
        }
        Ok((part, is_last))
    }

    async fn put_whole(&self, part: Part, shape: Shape) -> Result<Uploaded> {
        let body: Bytes = part.chunks.concat().into();
        let digest = random::hex(&Md5::digest(&body));
        let size = body.len() as u64;
        self.store.put(&self.key, body).await?;
        self.confirm(size, Some(digest), shape).await
    }

    async fn put_parts(
        &self,
        upload_id: &str,
        first: Part,
        chunks: &mut mpsc::Receiver<Message>,
        shape: Shape,
    ) -> Result<Uploaded> {
        let mut under_way: VecDeque<AbortOnDropHandle<Result<SentPart>>> = VecDeque::new();
        let mut sent = Vec::new();
        let (mut size, mut index, mut part, mut is_last) = (0_u64, 0, first, false);
        loop {
            if part.bytes > 0 {
                if index == shape.max_parts {
                    return Err(EngineError::new(
                        FailureCode::TooLarge,
                        "This backup has more parts than S3 can join.",
                    ));
                }
                while under_way.len() >= shape.parallel {
                    sent.push(finished(&mut under_way).await?);
                }
                size += part.bytes as u64;
                under_way.push_back(AbortOnDropHandle::new(self.send_part(upload_id, index, part, shape)));
                index += 1;
            }
            if is_last {
                break;
            }
            (part, is_last) = self.next_part(chunks, shape).await?;
        }
        while !under_way.is_empty() {
            sent.push(finished(&mut under_way).await?);
        }
        let expected = composite_etag(&sent);
        let ids = sent.into_iter().map(|part| part.id).collect();
        match self.store.complete(&self.key, upload_id, ids).await {
            Ok(()) => {}
            // The answer was lost or the upload is gone: the object itself tells whether it was joined.
            Err(error) if matches!(error.code, FailureCode::DestinationUnavailable | FailureCode::Missing) => {
                if self.store.stat(&self.key).await?.is_none() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        self.confirm(size, expected, shape).await
    }

    fn send_part(&self, upload_id: &str, index: usize, part: Part, shape: Shape) -> JoinHandle<Result<SentPart>> {
        let (store, key, upload_id) = (self.store.clone(), self.key.clone(), upload_id.to_owned());
        tokio::spawn(async move {
            let Part { chunks, permit, .. } = part;
            // Beside the request, on a thread that may be busy for a while.
            let digest = shape.has_tags.then(|| {
                let chunks = chunks.clone();
                tokio::task::spawn_blocking(move || {
                    let mut hash = Md5::new();
                    chunks.iter().for_each(|chunk| hash.update(chunk));
                    random::hex(&hash.finalize())
                })
            });
            let id = store.put_part(&key, &upload_id, index, chunks).await?;
            let digest = match digest {
                Some(digest) => Some(digest.await.map_err(EngineError::internal)?),
                None => None,
            };
            drop(permit);
            Ok(SentPart { id, digest })
        })
    }

    /// Asks the destination for what it has now. The size must be right. A tag that is not the digest proves nothing
    /// either way: some kinds of encryption make tags of another sort.
    async fn confirm(&self, size: u64, digest: Option<String>, shape: Shape) -> Result<Uploaded> {
        let failed = |what: String| Err(EngineError::new(FailureCode::DestinationFailed, what));
        let Some(stat) = self.store.stat(&self.key).await? else {
            return failed("The destination took the backup, but does not have it.".to_owned());
        };
        if stat.size != size {
            return failed(format!("The destination has {} bytes of a backup of {size}.", stat.size));
        }
        let tag = stat.etag.map(|etag| etag.trim_matches('"').to_lowercase());
        Ok(Uploaded { size, is_proven: !shape.has_tags || (tag.is_some() && tag == digest) })
    }
}

async fn finished(under_way: &mut VecDeque<AbortOnDropHandle<Result<SentPart>>>) -> Result<SentPart> {
    match under_way.pop_front() {
        Some(part) => part.await.map_err(EngineError::internal)?,
        None => Err(EngineError::internal("no part is under way")),
    }
}

/// What S3 makes of the parts' MD5 digests: the digest of all of them, and their number. `None` where a part's tag is not
/// the digest of what was sent.
fn composite_etag(parts: &[SentPart]) -> Option<String> {
    let mut hash = Md5::new();
    for part in parts {
        let digest = part.digest.as_deref()?;
        if part.id.trim_matches('"') != digest {
            return None;
        }
        for pair in digest.as_bytes().chunks_exact(2) {
            hash.update([u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?]);
        }
    }
    Some(format!("{}-{}", random::hex(&hash.finalize()), parts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composite_tags_are_those_of_s3() {
        // From `printf a | md5sum`, `printf b | md5sum` and the digest of both.
        let part = |id: &str, digest: &str| SentPart { id: id.to_owned(), digest: Some(digest.to_owned()) };
        let (a, b) = ("0cc175b9c0f1b6a831c399e269772661", "92eb5ffee6ae2fec3ad71c777531578f");
        let parts = [part(&format!("\"{a}\""), a), part(b, b)];
        assert_eq!(composite_etag(&parts).unwrap(), "96e024ba2074fe77e8e965ba43a704be-2");
        assert_eq!(composite_etag(&[part("opaque", a)]), None);
        assert_eq!(composite_etag(&[part(b, a)]), None, "the store has other bytes than were sent");
    }
}
