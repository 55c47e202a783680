//! Where a backup's bytes come from.

pub(crate) mod database;
pub(crate) mod files;
pub(crate) mod sftp;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::error::{EngineError, Result};

/// Batches on their way to the packing thread.
pub(crate) const WAITING_BATCHES: usize = 4;
/// A thread that sleeps is woken for each batch, which for every packet would cost more than the packet.
const BATCH_BYTES: usize = 256 * 1024;

/// Chunks that go to the packing thread together; `None` is the end.
pub(crate) type Batch = Option<Vec<Bytes>>;

/// The way to the packing thread.
pub(crate) struct Outlet {
    sender: mpsc::Sender<Result<Batch>>,
    batch: Vec<Bytes>,
    bytes: usize,
}

impl Outlet {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Result<Batch>>) {
        let (sender, receiver) = mpsc::channel(WAITING_BATCHES);
        (Self { sender, batch: Vec::new(), bytes: 0 }, receiver)
    }

    pub(crate) async fn send(&mut self, chunk: Bytes) -> Result<()> {
        self.bytes += chunk.len();
        self.batch.push(chunk);
        if self.bytes >= BATCH_BYTES { self.send_off().await } else { Ok(()) }
    }

    async fn send_off(&mut self) -> Result<()> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        // The other end has failed and says why itself.
        self.sender.send(Ok(Some(batch))).await.map_err(|_| EngineError::internal("the archive takes no more"))
    }

    /// Tells the packing thread how it ended: only a proven end is one.
    pub(crate) async fn close(mut self, ended: Result<()>) {
        let ended = match ended {
            Ok(()) => self.send_off().await,
            failed => failed,
        };
        let _gone = self.sender.send(ended.map(|()| None)).await;
    }
}
