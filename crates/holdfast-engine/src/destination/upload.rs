//! Uploads a stream of bytes to a store as one object: in parts, several concurrently, confirmed at the end.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdfast_core::failure::FailureCode;
use holdfast_core::random;
use md5::{Digest as _, Md5};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::parts::Spool;
use super::{Accepted, BlobStore, PartBody, PartLayout};
use crate::error::{EngineError, Result};

/// The size of the chunks that the packing thread sends.
const CHUNK_BYTES: usize = 128 * 1024;
/// The number of chunks that may wait for the destination; more would only use memory.
const WAITING_CHUNKS: usize = 4;

/// Records an upload before anything is created at the destination, so that it can be cleaned up if the run is lost.
#[async_trait]
pub trait Journal: Send + Sync {
    async fn upload_begins(&self, key: &str) -> Result<()>;
    async fn upload_begun(&self, key: &str, upload_id: &str) -> Result<()>;
}

/// Where the packing thread writes to. If it is dropped without `finish`, the upload is abandoned.
pub(crate) struct Sink {
    chunks: mpsc::Sender<Message>,
    filling: Vec<u8>,
}

/// What was written to a sink, to be uploaded.
pub(crate) struct UploadReceiver(mpsc::Receiver<Message>);

enum Message {
    Chunk(Bytes),
    End,
}

impl Sink {
    pub(crate) fn new() -> (Self, UploadReceiver) {
        let (chunks, written) = mpsc::channel(WAITING_CHUNKS);
        (Self { chunks, filling: Vec::with_capacity(CHUNK_BYTES) }, UploadReceiver(written))
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
        // The upload has failed and reports that itself.
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

/// An upload and what it needs.
pub(crate) struct Upload {
    pub store: Arc<dyn BlobStore>,
    pub key: String,
    /// The approximate size; 0 means unknown.
    pub expected_bytes: u64,
    /// Limits the memory of all uploads of the process together.
    pub memory: Arc<Semaphore>,
    /// Where parts that are too large for memory are kept.
    pub spool_folder: PathBuf,
    pub journal: Arc<dyn Journal>,
    pub cancel: CancellationToken,
}

/// How long a destination may take to discard an upload; if it takes longer, the cleanup is tried again later.
const ABORT_LIMIT: Duration = Duration::from_secs(20);

/// The amount of memory that one permit of the memory limit stands for.
pub(crate) const PERMIT_BYTES: usize = 1024 * 1024;

/// What the destination reports about the new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uploaded {
    pub size: u64,
    /// Whether the store confirmed that it holds the bytes that were sent; otherwise only reading them back can tell.
    pub is_confirmed: bool,
    /// Whether deleted objects remain at the destination as older versions.
    pub is_versioned: bool,
}

/// A part that the store has accepted.
struct SentPart {
    id: String,
    /// The digest of the bytes that were sent, independent of what the store reports.
    digest: Option<String>,
}

struct Part {
    body: PartBody,
    permit: Option<OwnedSemaphorePermit>,
}

/// A part that is being collected.
enum Gathering {
    Memory(Vec<Bytes>, u64),
    File(Spool),
}

impl Gathering {
    fn bytes(&self) -> u64 {
        match self {
            Self::Memory(_, bytes) => *bytes,
            Self::File(spool) => spool.bytes(),
        }
    }

    async fn push(self, chunk: Bytes) -> Result<Self> {
        match self {
            Self::Memory(mut chunks, bytes) => {
                let bytes = bytes + chunk.len() as u64;
                chunks.push(chunk);
                Ok(Self::Memory(chunks, bytes))
            }
            Self::File(spool) => spool.push(chunk).await.map(Self::File),
        }
    }

    fn finish(self) -> PartBody {
        match self {
            Self::Memory(chunks, _) => PartBody::Memory(chunks),
            Self::File(spool) => PartBody::File(spool.finish()),
        }
    }
}

impl Upload {
    /// Starts the task that uploads what is written to a sink.
    pub(crate) fn start(self, written: UploadReceiver) -> JoinHandle<Result<Uploaded>> {
        tokio::spawn(self.run(written.0))
    }

    async fn run(self, mut chunks: mpsc::Receiver<Message>) -> Result<Uploaded> {
        let begun = OnceLock::new();
        let stored = tokio::select! {
            stored = self.store_all(&mut chunks, &begun) => stored,
            // Even in the middle of a request: a destination that hangs must not keep a cancelled run alive.
            () = self.cancel.cancelled() => Err(EngineError::cancelled()),
        };
        if let (Err(error), Some(upload_id)) = (&stored, begun.get()) {
            self.give_up(upload_id, error).await;
        }
        stored
    }

    async fn store_all(&self, chunks: &mut mpsc::Receiver<Message>, begun: &OnceLock<String>) -> Result<Uploaded> {
        let part_layout = self.store.part_layout(self.expected_bytes);
        self.journal.upload_begins(&self.key).await?;
        let (first, is_last) = self.next_part(chunks, part_layout, 0, 0).await?;
        if let (PartBody::Memory(chunks), true) = (&first.body, is_last) {
            // Small enough for a single request, which is stored completely or not at all.
            return self.put_whole(chunks.concat().into()).await;
        }
        let upload_id = self.store.begin(&self.key).await?;
        let upload_id = begun.get_or_init(|| upload_id);
        self.journal.upload_begun(&self.key, upload_id).await?;
        self.put_parts(upload_id, (first, is_last), chunks, part_layout).await
    }

    /// Discards the partial upload. What cannot be removed now is recorded in the journal.
    async fn give_up(&self, upload_id: &str, reason: &EngineError) {
        tracing::debug!(key = self.key, %reason, "abandoning an upload");
        match tokio::time::timeout(ABORT_LIMIT, self.store.abort(&self.key, Some(upload_id))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(key = self.key, %error, "an unfinished upload was left behind"),
            Err(_) => tracing::warn!(key = self.key, "an unfinished upload was left behind: no response"),
        }
    }

    /// Collects the part with this index, after `sent_bytes` have been sent. Returns true if the stream ended with it.
    async fn next_part(
        &self,
        chunks: &mut mpsc::Receiver<Message>,
        part_layout: PartLayout,
        index: usize,
        sent_bytes: u64,
    ) -> Result<(Part, bool)> {
        let wanted = part_layout.parts.part_bytes(index, sent_bytes);
        let is_spooled = wanted > part_layout.parts.limits.in_memory_bytes;
        let permits = if is_spooled { 1 } else { wanted.div_ceil(PERMIT_BYTES as u64) };
        let permits = u32::try_from(permits).map_err(EngineError::internal)?;
        let (mut gathering, mut permit, mut is_last) = (Gathering::Memory(Vec::new(), 0), None, false);
        if is_spooled {
            gathering = Gathering::File(Spool::create(&self.spool_folder).await?);
        }
        while gathering.bytes() < wanted && !is_last {
            match chunks.recv().await {
                Some(Message::Chunk(chunk)) => gathering = gathering.push(chunk).await?,
                Some(Message::End) => is_last = true,
                None => return Err(EngineError::cancelled()),
            }
            // Acquired only once there is data, so that a source that sends nothing uses none of the shared memory.
            if permit.is_none() {
                let acquired = self.memory.clone().acquire_many_owned(permits).await;
                permit = Some(acquired.map_err(EngineError::internal)?);
            }
        }
        Ok((Part { body: gathering.finish(), permit }, is_last))
    }

    async fn put_whole(&self, body: Bytes) -> Result<Uploaded> {
        let digest = random::hex(&Md5::digest(&body));
        let size = body.len() as u64;
        let accepted = self.store.put(&self.key, body).await?;
        confirm(self.store.as_ref(), &self.key, size, Some(digest), accepted).await
    }

    async fn put_parts(
        &self,
        upload_id: &str,
        first: (Part, bool),
        chunks: &mut mpsc::Receiver<Message>,
        part_layout: PartLayout,
    ) -> Result<Uploaded> {
        let mut under_way: VecDeque<AbortOnDropHandle<Result<SentPart>>> = VecDeque::new();
        let mut sent = Vec::new();
        let ((mut part, mut is_last), mut size, mut index) = (first, 0_u64, 0);
        loop {
            let bytes = part.body.size_bytes();
            if bytes > 0 {
                size += bytes;
                let limits = part_layout.parts.limits;
                if index == limits.max_parts || size > limits.max_object_bytes {
                    return Err(EngineError::new(
                        FailureCode::TooLarge,
                        "This backup is larger than one object can be at this destination.",
                    ));
                }
                while under_way.len() >= part_layout.parallel {
                    sent.push(finished(&mut under_way).await?);
                }
                under_way.push_back(AbortOnDropHandle::new(self.send_part(upload_id, index, part, part_layout)));
                index += 1;
            }
            if is_last {
                break;
            }
            (part, is_last) = self.next_part(chunks, part_layout, index, size).await?;
        }
        while !under_way.is_empty() {
            sent.push(finished(&mut under_way).await?);
        }
        let expected = composite_etag(&sent);
        let ids = sent.into_iter().map(|part| part.id).collect();
        let accepted = match self.store.complete(&self.key, upload_id, ids).await {
            Ok(accepted) => accepted,
            // The response was lost or the upload is gone: check whether the object was completed.
            Err(error) if matches!(error.code, FailureCode::DestinationUnavailable | FailureCode::Missing) => {
                if self.store.stat(&self.key).await?.is_none() {
                    return Err(error);
                }
                Accepted::Unconfirmed
            }
            Err(error) => return Err(error),
        };
        confirm(self.store.as_ref(), &self.key, size, expected, accepted).await
    }

    fn send_part(
        &self,
        upload_id: &str,
        index: usize,
        part: Part,
        part_layout: PartLayout,
    ) -> JoinHandle<Result<SentPart>> {
        let (store, key, upload_id) = (self.store.clone(), self.key.clone(), upload_id.to_owned());
        tokio::spawn(async move {
            let Part { body, permit } = part;
            // Computed in parallel with the request, on a blocking thread.
            let digest = match &body {
                PartBody::Memory(chunks) if part_layout.has_etags => {
                    let chunks = chunks.clone();
                    Some(tokio::task::spawn_blocking(move || {
                        let mut hash = Md5::new();
                        chunks.iter().for_each(|chunk| hash.update(chunk));
                        random::hex(&hash.finalize())
                    }))
                }
                PartBody::Memory(_) | PartBody::File(_) => None,
            };
            let spooled_digest = match &body {
                PartBody::File(part) => Some(part.md5().to_owned()),
                PartBody::Memory(_) => None,
            };
            let id = store.put_part(&key, &upload_id, index, body).await?;
            let digest = match digest {
                Some(digest) => Some(digest.await.map_err(EngineError::internal)?),
                None => spooled_digest,
            };
            drop(permit);
            Ok(SentPart { id, digest })
        })
    }
}

/// Checks what the destination has now. The size must match. A tag that differs from the digest proves nothing either
/// way: with some kinds of encryption, tags are not digests.
async fn confirm(
    store: &dyn BlobStore,
    key: &str,
    size: u64,
    digest: Option<String>,
    accepted: Accepted,
) -> Result<Uploaded> {
    let failed = |what: String| Err(EngineError::new(FailureCode::DestinationFailed, what));
    let Some(stat) = store.stat(key).await? else {
        return failed(format!("The destination accepted {key}, but does not have it."));
    };
    if stat.size != size {
        return failed(format!("The destination has {} bytes of {key}; {size} were sent.", stat.size));
    }
    let is_versioned = stat.is_versioned;
    let tag = stat.etag.map(|etag| etag.trim_matches('"').to_lowercase());
    let is_confirmed = accepted == Accepted::Flushed || (tag.is_some() && tag == digest);
    Ok(Uploaded { size, is_confirmed, is_versioned })
}

/// Stores a small object with one request, and returns once the destination has proved that it has it: by a checksum, by
/// having flushed it, or by sending it back.
pub(crate) async fn put_confirmed(store: &Arc<dyn BlobStore>, key: &str, body: Bytes) -> Result<()> {
    let hashed = body.clone();
    let digest = tokio::task::spawn_blocking(move || random::hex(&Md5::digest(&hashed)));
    let accepted = store.put(key, body.clone()).await?;
    let digest = digest.await.map_err(EngineError::internal)?;
    let size = body.len() as u64;
    let uploaded = confirm(store.as_ref(), key, size, Some(digest), accepted).await?;
    if !uploaded.is_confirmed && store.read(key, 0..size).await? != body {
        let message = format!("The bytes of {key} at the destination differ from those that were sent.");
        return Err(EngineError::new(FailureCode::DestinationFailed, message));
    }
    Ok(())
}

async fn finished(under_way: &mut VecDeque<AbortOnDropHandle<Result<SentPart>>>) -> Result<SentPart> {
    match under_way.pop_front() {
        Some(part) => part.await.map_err(EngineError::internal)?,
        None => Err(EngineError::internal("no part is under way")),
    }
}

/// The ETag that S3 derives from the parts' MD5 digests: the digest of all of them, and their number. `None` if a
/// part's tag is not the digest of what was sent.
fn composite_etag(parts: &[SentPart]) -> Option<String> {
    let mut hash = Md5::new();
    for part in parts {
        let digest = part.digest.as_deref()?;
        if part.id.trim_matches('"') != digest {
            return None;
        }
        for pair in digest.as_bytes().chunks_exact(2) {
            hash.update([random::hex_byte(pair)?]);
        }
    }
    Some(format!("{}-{}", random::hex(&hash.finalize()), parts.len()))
}

#[cfg(test)]
mod tests {
    use holdfast_core::Secret;
    use holdfast_testkit::{Fault, S3Server};

    use super::*;
    use crate::destination::{PartLimits, RetryPolicy, Retrying, S3, S3Config};
    use crate::egress::Egress;

    struct NoJournal;

    #[async_trait]
    impl Journal for NoJournal {
        async fn upload_begins(&self, _key: &str) -> Result<()> {
            Ok(())
        }

        async fn upload_begun(&self, _key: &str, _upload_id: &str) -> Result<()> {
            Ok(())
        }
    }

    const MIB: u64 = 1024 * 1024;

    /// Parts of 5 MiB, the minimum that moto accepts; they grow after two and are kept in files above 6 MiB.
    const SMALL: PartLimits = PartLimits {
        least_bytes: 5 * MIB,
        most_bytes: 11 * MIB,
        max_parts: 6,
        max_object_bytes: 60 * MIB,
        unknown_bytes: 5 * MIB,
        in_memory_bytes: 6 * MIB,
        equal_parts: 2,
        growth_share: 1,
    };

    fn store(endpoint: &str) -> Arc<dyn BlobStore> {
        let config = S3Config {
            endpoint: Some(endpoint.to_owned()),
            bucket: "growing".to_owned(),
            region: "us-east-1".to_owned(),
            path_style: true,
            access_key: Secret::new(S3Server::ACCESS_KEY),
            secret_key: Secret::new(S3Server::SECRET_KEY),
            ca_pem: None,
            egress: Egress { allow_private: true, allowed: Vec::new() },
            timeout: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            parts: SMALL,
        };
        let millis = Duration::from_millis;
        let retry =
            RetryPolicy { first_wait: millis(1), longest_wait: millis(5), give_up_after: Duration::from_secs(20) };
        Arc::new(Retrying::new(S3::new(config).unwrap(), retry))
    }

    async fn upload(store: &Arc<dyn BlobStore>, key: &str, expected_bytes: u64, body: &[u8]) -> Result<Uploaded> {
        let folder = tempfile::tempdir().unwrap();
        let upload = Upload {
            store: store.clone(),
            key: key.to_owned(),
            expected_bytes,
            memory: Arc::new(Semaphore::new(16)),
            spool_folder: folder.path().to_owned(),
            journal: Arc::new(NoJournal),
            cancel: CancellationToken::new(),
        };
        let (mut sink, written) = Sink::new();
        let body = body.to_vec();
        let writing = tokio::task::spawn_blocking(move || sink.write_all(&body).and_then(|()| sink.finish()));
        let uploaded = upload.start(written).await.unwrap();
        // A failed upload accepts no more data and reports the reason itself.
        let _ = writing.await.unwrap();
        uploaded
    }

    async fn check_growing(endpoint: &str) {
        let store = store(endpoint);
        for (key, expected, bytes, parts) in [
            ("small object", 0, 3 * MIB, 0),
            // 5, 5, 10, 11 and the rest.
            ("a/growing +ü&=?.tar.zst", 0, 36 * MIB + 5, 5),
            ("expected to be large", 30 * MIB, 2 * MIB, 1),
            ("as expected", 10 * MIB, 19 * MIB, 2),
        ] {
            let body = holdfast_testkit::random(7, usize::try_from(bytes).unwrap());
            let uploaded = upload(&store, key, expected, &body).await.unwrap();
            assert_eq!(uploaded, Uploaded { size: bytes, is_confirmed: true, is_versioned: false }, "{key}");
            assert!(store.read(key, 0..bytes).await.unwrap() == body, "{key} is what was sent");
            let tag = store.stat(key).await.unwrap().unwrap().etag.unwrap();
            let count = tag.trim_matches('"').split_once('-').map_or(0, |(_, count)| count.parse().unwrap());
            assert_eq!(count, parts, "{key}: {tag}");
        }
        let body = holdfast_testkit::random(8, usize::try_from(55 * MIB).unwrap());
        let refused = upload(&store, "too large", 0, &body).await.unwrap_err();
        assert_eq!(refused.code, FailureCode::TooLarge);
        assert_eq!(store.stat("too large").await.unwrap(), None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn parts_grow_and_large_ones_come_from_files() {
        let server = S3Server::start(&["growing"]).await.unwrap();
        check_growing(&server.endpoint()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn parts_from_files_are_sent_again_when_the_store_stumbles() {
        let server = S3Server::start(&["growing"]).await.unwrap();
        let count = std::sync::atomic::AtomicUsize::new(0);
        server.set_hook(move |method, _, query| {
            let is_part = method == "PUT" && query.contains("partNumber");
            let number = if is_part { count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) } else { 1 };
            match number % 4 {
                0 => Some(Fault::Status(503, "SlowDown")),
                2 => Some(Fault::Reset),
                _ => None,
            }
        });
        check_growing(&server.endpoint()).await;
    }

    /// Checks against another implementation of S3, if it is available.
    #[expect(clippy::print_stderr, reason = "a test that leaves something out says so")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn moto_joins_parts_that_grow() {
        let Ok(endpoint) = std::env::var("TEST_MOTO_URL") else {
            eprintln!("skipped: `cargo xtask test` starts moto and runs this");
            return;
        };
        let made = reqwest::Client::new().put(format!("{endpoint}/growing")).send().await.unwrap();
        assert!(made.status().is_success());
        check_growing(&endpoint).await;
    }

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
