//! The interface of stores: one bucket or folder of objects.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use super::parts::{PartBody, PartPlan};
use crate::error::Result;

/// Size and entity tag of a stored object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    pub size: u64,
    /// As sent by the store, including the quotes.
    pub etag: Option<String>,
    /// Whether the store keeps versions: a deleted object remains there as an older version.
    pub is_versioned: bool,
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedObject {
    pub key: String,
    /// `None` if the listing does not tell.
    pub size: Option<u64>,
}

/// How uploads to a store are divided into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartLayout {
    pub parts: PartPlan,
    /// How many parts are sent concurrently; 1 means one after the other.
    pub parallel: usize,
    /// Whether the store reports a checksum of each object.
    pub has_etags: bool,
}

/// What a store knows about an object that it has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Everything was flushed to disk, without an interruption in which a part could have been lost.
    Flushed,
    /// Only a checksum, or reading the object back, can tell.
    Unconfirmed,
}

/// One bucket or folder of objects. No method retries: a decorator does that for all stores. An object becomes visible
/// under its key only when it is complete.
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// How to divide an object of about this size into parts; 0 means unknown.
    fn part_layout(&self, expected_bytes: u64) -> PartLayout;

    async fn put(&self, key: &str, body: Bytes) -> Result<Accepted>;

    /// Starts an upload in parts and returns its id.
    async fn begin(&self, key: &str) -> Result<String>;

    /// Stores part `index` (from 0) and returns the part's id, to be passed to `complete`.
    async fn put_part(&self, key: &str, upload_id: &str, index: usize, body: PartBody) -> Result<String>;

    /// Makes the object visible. If a response was lost, a second call may fail with `Missing`; use `stat` to find out
    /// whether the object exists.
    async fn complete(&self, key: &str, upload_id: &str, parts: Vec<String>) -> Result<Accepted>;

    /// Discards an upload and its parts; an unknown upload is not an error. Without an id, discards what can be found
    /// by the key alone.
    async fn abort(&self, key: &str, upload_id: Option<&str>) -> Result<()>;

    async fn stat(&self, key: &str) -> Result<Option<Stat>>;

    /// Returns exactly the bytes of `range`; a shorter response is an error.
    async fn read(&self, key: &str, range: Range<u64>) -> Result<Bytes>;

    /// Removes an object; a missing one is not an error.
    async fn remove(&self, key: &str) -> Result<()>;

    /// Returns up to `limit` objects whose keys start with `prefix`.
    async fn list_objects(&self, prefix: &str, limit: usize) -> Result<Vec<ListedObject>>;

    /// Returns up to `limit` keys that start with `prefix`.
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        Ok(self.list_objects(prefix, limit).await?.into_iter().map(|object| object.key).collect())
    }
}
