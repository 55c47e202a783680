//! Decorators for any store: retries, a count of bytes, a limit on speed.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdfast_core::failure::FailureCode;
use holdfast_core::random;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Accepted, BlobStore, ListedObject, PartBody, PartLayout, Stat};
use crate::error::Result;
use crate::progress::Progress;

/// How often and for how long to retry. Waits double and are randomised, so that many runs do not retry at the same
/// time.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    pub first_wait: Duration,
    pub longest_wait: Duration,
    /// From the first failure to giving up.
    pub give_up_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first_wait: Duration::from_millis(200),
            longest_wait: Duration::from_secs(15),
            give_up_after: Duration::from_secs(120),
        }
    }
}

impl RetryPolicy {
    /// Retries attempts that failed because the destination was unavailable.
    pub(super) async fn persist<T, F>(&self, what: &str, mut attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut wait = self.first_wait;
        let mut failing_since = None;
        loop {
            let error = match attempt().await {
                Err(error) if error.code == FailureCode::DestinationUnavailable => error,
                done => return done,
            };
            let since = *failing_since.get_or_insert_with(Instant::now);
            if since.elapsed() + wait > self.give_up_after {
                return Err(error);
            }
            tracing::debug!(what, %error, ?wait, "the destination is unavailable; retrying");
            let spread = f64::from(u16::from_be_bytes(random::bytes())) / f64::from(u16::MAX);
            tokio::time::sleep(wait.mul_f64(0.5 + spread / 2.0)).await;
            wait = (wait * 2).min(self.longest_wait);
        }
    }
}

/// Retries temporary failures; everything else fails at once.
pub struct Retrying<S> {
    inner: S,
    policy: RetryPolicy,
}

impl<S: BlobStore> Retrying<S> {
    pub fn new(inner: S, policy: RetryPolicy) -> Self {
        Self { inner, policy }
    }

    async fn persist<T, F>(&self, what: &str, attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.policy.persist(what, attempt).await
    }
}

#[async_trait]
impl<S: BlobStore> BlobStore for Retrying<S> {
    fn part_layout(&self, expected_bytes: u64) -> PartLayout {
        self.inner.part_layout(expected_bytes)
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Accepted> {
        self.persist("put", || self.inner.put(key, body.clone())).await
    }

    async fn begin(&self, key: &str) -> Result<String> {
        self.persist("begin", || self.inner.begin(key)).await
    }

    async fn put_part(&self, key: &str, upload_id: &str, index: usize, body: PartBody) -> Result<String> {
        self.persist("put_part", || self.inner.put_part(key, upload_id, index, body.clone())).await
    }

    async fn complete(&self, key: &str, upload_id: &str, parts: Vec<String>) -> Result<Accepted> {
        self.persist("complete", || self.inner.complete(key, upload_id, parts.clone())).await
    }

    async fn abort(&self, key: &str, upload_id: Option<&str>) -> Result<()> {
        self.persist("abort", || self.inner.abort(key, upload_id)).await
    }

    async fn stat(&self, key: &str) -> Result<Option<Stat>> {
        self.persist("stat", || self.inner.stat(key)).await
    }

    async fn read(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        self.persist("read", || self.inner.read(key, range.clone())).await
    }

    async fn remove(&self, key: &str) -> Result<()> {
        self.persist("remove", || self.inner.remove(key)).await
    }

    async fn list_objects(&self, prefix: &str, limit: usize) -> Result<Vec<ListedObject>> {
        self.persist("list", || self.inner.list_objects(prefix, limit)).await
    }
}

/// Is notified of every byte that is transferred; see `Observed`.
#[async_trait]
pub trait Observer: Send + Sync {
    /// Called before bytes are transferred in either direction.
    async fn before(&self, _bytes: u64) {}

    /// Called after bytes have reached the destination.
    fn stored(&self, _bytes: u64) {}
}

/// A store with an observer of its transfers.
pub struct Observed<T> {
    inner: Arc<dyn BlobStore>,
    observer: T,
}

/// Counts the bytes that reach the destination.
pub type Metered = Observed<Arc<Progress>>;
/// Limits the transfer rate, over all parts of a run.
pub type Throttled = Observed<Throttle>;

impl<T: Observer> Observed<T> {
    pub fn new(inner: Arc<dyn BlobStore>, observer: T) -> Self {
        Self { inner, observer }
    }
}

#[async_trait]
impl<T: Observer> BlobStore for Observed<T> {
    fn part_layout(&self, expected_bytes: u64) -> PartLayout {
        self.inner.part_layout(expected_bytes)
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Accepted> {
        let size = body.len() as u64;
        self.observer.before(size).await;
        let accepted = self.inner.put(key, body).await?;
        self.observer.stored(size);
        Ok(accepted)
    }

    async fn begin(&self, key: &str) -> Result<String> {
        self.inner.begin(key).await
    }

    async fn put_part(&self, key: &str, upload_id: &str, index: usize, body: PartBody) -> Result<String> {
        let size = body.size_bytes();
        self.observer.before(size).await;
        let id = self.inner.put_part(key, upload_id, index, body).await?;
        self.observer.stored(size);
        Ok(id)
    }

    async fn complete(&self, key: &str, upload_id: &str, parts: Vec<String>) -> Result<Accepted> {
        self.inner.complete(key, upload_id, parts).await
    }

    async fn abort(&self, key: &str, upload_id: Option<&str>) -> Result<()> {
        self.inner.abort(key, upload_id).await
    }

    async fn stat(&self, key: &str) -> Result<Option<Stat>> {
        self.inner.stat(key).await
    }

    async fn read(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        self.observer.before(range.end.saturating_sub(range.start)).await;
        self.inner.read(key, range).await
    }

    async fn remove(&self, key: &str) -> Result<()> {
        self.inner.remove(key).await
    }

    async fn list_objects(&self, prefix: &str, limit: usize) -> Result<Vec<ListedObject>> {
        self.inner.list_objects(prefix, limit).await
    }
}

#[async_trait]
impl Observer for Arc<Progress> {
    fn stored(&self, bytes: u64) {
        self.add_stored(bytes);
    }
}

/// A limit of bytes per second.
pub struct Throttle {
    bytes_per_second: u64,
    /// When all bytes let through so far will have been transferred at the limited rate.
    free_at: Mutex<Instant>,
}

impl Throttle {
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), free_at: Mutex::new(Instant::now()) }
    }
}

#[async_trait]
impl Observer for Throttle {
    async fn before(&self, bytes: u64) {
        let until = {
            let mut free_at = self.free_at.lock().await;
            let time = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
            *free_at = (*free_at).max(Instant::now()) + time;
            *free_at
        };
        tokio::time::sleep_until(until).await;
    }
}
