//! Single objects at destinations: catalogues, what unfinished runs left behind, and whether objects are still there.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use holdfast_core::failure::FailureCode;

use crate::Engine;
use crate::context::Context;
use crate::destination::{Accepted, BlobStore, DestinationPlan, Opened};
use crate::error::{EngineError, Result};

impl Engine {
    /// Removes an object; a missing one is not an error.
    pub async fn remove_object(&self, destination: &DestinationPlan, key: &str) -> Result<()> {
        let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
        store.remove(key).await
    }

    /// Stores a small object, completely or not at all. It is read back unless the destination has flushed it.
    pub async fn put_object(&self, destination: &DestinationPlan, key: &str, body: Bytes) -> Result<()> {
        let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
        match store.put(key, body.clone()).await? {
            Accepted::Flushed => Ok(()),
            Accepted::Unconfirmed if store.read(key, 0..body.len() as u64).await? == body => Ok(()),
            Accepted::Unconfirmed => {
                let message = format!("The bytes of {key} at the destination differ from those that were sent.");
                Err(EngineError::new(FailureCode::DestinationFailed, message))
            }
        }
    }

    /// Returns up to `limit` keys at a destination that start with `prefix`.
    pub async fn list_objects(&self, destination: &DestinationPlan, prefix: &str, limit: usize) -> Result<Vec<String>> {
        let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
        store.list(prefix, limit).await
    }

    /// The size of each of these objects, in the same order: `None` for a missing one, an error for one that could not
    /// be checked. An object counts as missing only if the destination was there before and after it was looked for.
    pub async fn object_sizes(
        &self,
        destination: &DestinationPlan,
        keys: &[String],
        context: &Context,
    ) -> Result<Vec<Result<Option<u64>>>> {
        let looking = async {
            let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
            let mut sizes = object_sizes(store.as_ref(), keys.iter()).await;
            let missing: Vec<usize> = (0..keys.len()).filter(|at| matches!(sizes[*at], Ok(None))).collect();
            if !missing.is_empty() {
                let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
                let again = object_sizes(store.as_ref(), missing.iter().map(|at| &keys[*at])).await;
                missing.into_iter().zip(again).for_each(|(at, size)| sizes[at] = size);
                self.settings.destination.open_known(destination).await?;
            }
            Ok(sizes)
        };
        tokio::select! {
            () = context.cancel.cancelled() => Err(EngineError::cancelled()),
            sizes = looking => sizes,
        }
    }

    /// Reads a whole object of up to `most` bytes.
    pub async fn read_object(&self, destination: &DestinationPlan, key: &str, most: u64) -> Result<Bytes> {
        let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
        let missing = || EngineError::new(FailureCode::Missing, format!("{key} is not there."));
        let stat = store.stat(key).await?.ok_or_else(missing)?;
        if stat.size > most {
            return Err(EngineError::corrupt(format!("{key} is larger than expected.")));
        }
        store.read(key, 0..stat.size).await
    }

    /// Removes what an unfinished run may have left: its upload, and an object that was not recorded.
    pub async fn discard_upload(
        &self,
        destination: &DestinationPlan,
        key: &str,
        upload_id: Option<&str>,
    ) -> Result<()> {
        let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
        store.abort(key, upload_id).await?;
        store.remove(key).await
    }
}

/// Once the destination does not answer, it is not asked again: each further question would take just as long.
async fn object_sizes<'a>(store: &dyn BlobStore, keys: impl Iterator<Item = &'a String>) -> Vec<Result<Option<u64>>> {
    /// The number of concurrent requests.
    const AT_ONCE: usize = 8;
    let mut stats = Vec::new();
    for key in keys {
        stats.push(store.stat(key));
    }
    let mut left = stats.len();
    let mut stats = stream::iter(stats).buffered(AT_ONCE);
    let mut sizes = Vec::with_capacity(left);
    while let Some(stat) = stats.next().await {
        left -= 1;
        let silent =
            stat.as_ref().err().filter(|error| is_silent(error)).map(|error| (error.code, error.message.clone()));
        sizes.push(stat.map(|stat| stat.map(|stat| stat.size)));
        if let Some((code, message)) = silent {
            sizes.extend((0..left).map(|_| Err(EngineError::new(code, &*message))));
            break;
        }
    }
    sizes
}

/// Whether an error says that the destination does not answer at all.
fn is_silent(error: &EngineError) -> bool {
    matches!(error.code, FailureCode::Stalled | FailureCode::DestinationUnavailable | FailureCode::Lost)
}
