//! Checks that a destination works.

use bytes::Bytes;
use holdfast_core::destination::DestinationIdentity;
use holdfast_core::failure::FailureCode;

use super::store::BlobStore;
use crate::error::{EngineError, Result};

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
