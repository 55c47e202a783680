//! Where a backup's bytes come from.

pub(crate) mod database;
pub(crate) mod files;
pub(crate) mod sftp;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::error::{EngineError, Result};

/// Chunks on their way to the packing thread; with 32 KiB each, a megabyte or two.
pub(crate) const WAITING_CHUNKS: usize = 32;

/// The way to the packing thread.
pub(crate) struct Outlet(pub mpsc::Sender<Result<Option<Bytes>>>);

impl Outlet {
    pub(crate) async fn send(&self, chunk: Bytes) -> Result<()> {
        // The other end has failed and says why itself.
        self.0.send(Ok(Some(chunk))).await.map_err(|_| EngineError::internal("the archive takes no more"))
    }

    /// Tells the packing thread how it ended: only a proven end is one.
    pub(crate) async fn close(self, ended: &Result<()>) {
        let last = match ended {
            Ok(()) => Ok(None),
            Err(error) => Err(error.clone()),
        };
        let _gone = self.0.send(last).await;
    }
}
