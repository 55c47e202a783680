//! Blocking work on threads of its own.

use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::{EngineError, Result};

pub(crate) async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(EngineError::internal)?
}

/// A token that is cancelled when the guard is dropped, to stop a thread.
pub(crate) fn until_dropped() -> (CancellationToken, DropGuard) {
    let stop = CancellationToken::new();
    (stop.clone(), stop.drop_guard())
}
