//! Where backups are stored: one trait for folders, buckets and servers, and decorators for all of them.

mod decorators;
mod local;
mod object;
mod parts;
mod s3;
mod sftp;
mod upload;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdfast_core::Secret;
use holdfast_core::destination::{DestinationIdentity, DestinationSpec, LocalDestination};
use holdfast_core::run::FailureCode;

pub use decorators::{Metered, RetryPolicy, Retrying, Throttle, Throttled};
pub use local::Local;
pub(crate) use object::Blocks;
pub use object::{ObjectReader, Proven};
pub use parts::{PartBody, PartLimits, PartPlan, SpooledPart};
pub use s3::{S3, S3Config};
pub use sftp::Sftp;
pub use upload::Journal;
pub(crate) use upload::{PERMIT_BYTES, Sink, Upload, Uploaded, Written};

use crate::egress::Egress;
use crate::error::{EngineError, Result};
use crate::ssh::KeySeed;

/// Size and entity tag of a stored object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    pub size: u64,
    /// As sent by the store, including the quotes.
    pub etag: Option<String>,
    /// Whether the store keeps versions: a deleted object remains there as an older version.
    pub is_versioned: bool,
}

/// How uploads to a store are divided into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub parts: PartPlan,
    /// How many parts are sent concurrently; 1 means one after the other.
    pub parallel: usize,
    /// Whether the store reports a checksum of each object.
    pub has_tags: bool,
}

/// What a store knows about an object that it has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Everything was flushed to disk, without an interruption in which a part could have been lost.
    Flushed,
    /// Only a checksum, or reading the object back, can tell.
    Unproven,
}

/// One bucket or folder of objects. No method retries: a decorator does that for all stores. An object becomes visible
/// under its key only when it is complete.
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// How to divide an object of about this size into parts; 0 means unknown.
    fn shape(&self, expected_bytes: u64) -> Shape;

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

    /// Returns up to `limit` keys that start with `prefix`.
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<String>>;
}

/// A destination, and everything needed to access it.
#[derive(Debug, Clone)]
pub struct DestinationPlan {
    pub spec: DestinationSpec,
    pub access_key: Option<Secret>,
    pub secret_key: Option<Secret>,
    /// The folder of a local destination.
    pub folder: PathBuf,
    /// The content of the folder's marker, set when the folder was first used. An empty mount point has no marker and
    /// is not written to.
    pub marker: Option<String>,
    /// The owner's SSH key, for destinations that authenticate with it.
    pub owner_key: Option<KeySeed>,
    /// Whether the owner may connect to private networks.
    pub allow_private: bool,
}

impl DestinationPlan {
    /// A folder on this machine.
    pub fn local(folder: PathBuf, marker: Option<String>) -> Self {
        Self {
            spec: DestinationSpec::Local(LocalDestination),
            access_key: None,
            secret_key: None,
            folder,
            marker,
            owner_key: None,
            allow_private: false,
        }
    }

    /// Whether the destination is a folder that has not been used yet.
    pub fn is_untouched(&self) -> bool {
        self.spec.has_marker() && self.marker.is_none()
    }
}

/// A destination that was opened successfully.
pub struct Opened {
    pub store: Arc<dyn BlobStore>,
    pub identity: DestinationIdentity,
}

/// How this installation connects to destinations.
#[derive(Debug, Clone)]
pub struct DestinationSettings {
    pub egress_allow: Vec<holdfast_core::network::Network>,
    /// Trusted in addition to the system's certificates.
    pub ca_pem: Option<Vec<u8>>,
    pub retry: RetryPolicy,
    /// The time limit for a whole request, which also determines the slowest link that can still transfer a part.
    pub request_timeout: Duration,
    /// Reading a response fails when nothing arrives for this long, or when it is slower on average over this time than
    /// is tolerated from a server.
    pub stall: Duration,
    /// Bytes per second and run; 0 means no limit.
    pub bytes_per_second: u64,
    pub parts: PartLimits,
    /// Parts that are too large for memory are kept here, in unnamed temporary files.
    pub spool_folder: PathBuf,
}

impl Default for DestinationSettings {
    fn default() -> Self {
        Self {
            egress_allow: Vec::new(),
            ca_pem: None,
            retry: RetryPolicy::default(),
            request_timeout: Duration::from_secs(1800),
            stall: Duration::from_secs(600),
            bytes_per_second: 0,
            parts: PartLimits::default(),
            spool_folder: std::env::temp_dir(),
        }
    }
}

impl DestinationSettings {
    /// Opens the store, with its decorators. A folder that is used for the first time is marked.
    pub async fn open(&self, plan: &DestinationPlan) -> Result<Opened> {
        match &plan.spec {
            DestinationSpec::Local(_) => {
                let (store, marker) = Local::open(&plan.folder, plan.marker.as_deref()).await?;
                let identity = DestinationIdentity { marker: Some(marker), ..DestinationIdentity::default() };
                Ok(Opened { store: self.decorated(store), identity })
            }
            DestinationSpec::S3(settings) | DestinationSpec::CustomS3(settings) => {
                let store = S3::new(S3Config {
                    endpoint: settings.endpoint.clone(),
                    bucket: settings.bucket.clone(),
                    region: settings.region.clone(),
                    path_style: settings.path_style,
                    access_key: plan.access_key.clone().unwrap_or_default(),
                    secret_key: plan.secret_key.clone().unwrap_or_default(),
                    ca_pem: self.ca_pem.clone(),
                    egress: self.egress(plan),
                    timeout: self.request_timeout,
                    stall: self.stall,
                    parts: self.parts,
                })?;
                Ok(Opened { store: self.decorated(store), identity: DestinationIdentity::default() })
            }
            DestinationSpec::Sftp(settings) => {
                // Boxed because connecting is a large future, and nearly every operation opens a destination.
                let (store, identity) = Box::pin(Sftp::open(settings, plan, self)).await?;
                Ok(Opened { store: self.decorated(store), identity })
            }
        }
    }

    /// Opens a store that was used before. Only checks and backups call `open`, because they record what identifies the
    /// destination; everything else must find it as recorded.
    pub async fn open_known(&self, plan: &DestinationPlan) -> Result<Opened> {
        if plan.spec.sftp().is_some_and(|sftp| sftp.host_key.is_none()) {
            let message = "The host key of the destination's server is not known yet. Check the destination first.";
            return Err(EngineError::new(FailureCode::DestinationFailed, message));
        }
        if !plan.is_untouched() {
            return Box::pin(self.open(plan)).await;
        }
        // Boxed for the same reason as connecting.
        let marker = Box::pin(self.find_marker(plan)).await?;
        Box::pin(self.open(&DestinationPlan { marker, ..plan.clone() })).await
    }

    /// Reads the marker of a destination that was used before, without writing to it; `None` for kinds that have no
    /// marker.
    pub async fn find_marker(&self, plan: &DestinationPlan) -> Result<Option<String>> {
        match &plan.spec {
            DestinationSpec::Local(_) => Local::find_marker(&plan.folder).map(Some),
            DestinationSpec::S3(_) | DestinationSpec::CustomS3(_) => Ok(None),
            DestinationSpec::Sftp(settings) => Sftp::find_marker(settings, plan, self).await.map(Some),
        }
    }

    fn egress(&self, plan: &DestinationPlan) -> Egress {
        Egress { allow_private: plan.allow_private, allowed: self.egress_allow.clone() }
    }

    /// Settings with shorter time limits, for checks that a user waits for and that transfer little data.
    pub(crate) fn for_checks(&self) -> Self {
        const ANSWER_WITHIN: Duration = Duration::from_secs(20);
        let retry = RetryPolicy { give_up_after: self.retry.give_up_after.min(ANSWER_WITHIN), ..self.retry };
        Self { request_timeout: self.request_timeout.min(ANSWER_WITHIN), retry, ..self.clone() }
    }

    fn decorated(&self, store: impl BlobStore + 'static) -> Arc<dyn BlobStore> {
        let retrying = Arc::new(Retrying::new(store, self.retry));
        if self.bytes_per_second == 0 {
            return retrying;
        }
        Arc::new(Throttled::new(retrying, Throttle::new(self.bytes_per_second)))
    }
}

/// What a successful check found out about a destination.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    pub identity: DestinationIdentity,
    /// Whether deleted objects remain as older versions.
    pub keeps_versions: bool,
}

/// Checks that a destination works: writes a probe object, reads it back, finds it in a listing and removes it. Returns
/// whether the destination keeps versions of deleted objects.
pub async fn check(store: &dyn BlobStore, probe_key: &str) -> Result<bool> {
    let body = Bytes::from(format!("Holdfast writes this to check the destination: {probe_key}"));
    store.put(probe_key, body.clone()).await?;
    let proved = prove(store, probe_key, &body).await;
    // Remove the probe in any case; an error of the check takes precedence over one of the removal.
    let removed = store.remove(probe_key).await;
    let is_versioned = proved?;
    removed?;
    match store.stat(probe_key).await? {
        None => Ok(is_versioned),
        Some(_) => Err(EngineError::new(FailureCode::DestinationFailed, "A deleted object is still there.")),
    }
}

async fn prove(store: &dyn BlobStore, key: &str, body: &Bytes) -> Result<bool> {
    let failed = |what: &str| Err(EngineError::new(FailureCode::DestinationFailed, what));
    let size = body.len() as u64;
    let Some(stat) = store.stat(key).await?.filter(|stat| stat.size == size) else {
        return failed("The object just written is missing or has a different size.");
    };
    if store.read(key, 0..size).await? != *body {
        return failed("What was read back differs from what was written.");
    }
    if !store.list(key, 10).await?.iter().any(|found| found == key) {
        return failed("A written object does not appear in the listing.");
    }
    Ok(stat.is_versioned)
}
