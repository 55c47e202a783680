//! Where a backup's bytes come from.

pub(crate) mod cluster;
pub(crate) mod database;
pub(crate) mod files;
pub(crate) mod sftp;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::archive::tar::Member;
use crate::error::{EngineError, Result};

/// Batches on their way to the packing thread.
const WAITING_BATCHES: usize = 4;
/// A thread that sleeps is woken for each batch, which for every packet would cost more than the packet.
const BATCH_BYTES: usize = 256 * 1024;

/// What goes to the packing thread.
pub(crate) enum Batch {
    Chunks(Vec<Bytes>),
    /// The first reading is over; the packing thread says which files it wants read again.
    FirstEnd,
    /// Of the files that were to be read again, these really are nothing but holes; a second reading of the others
    /// follows.
    Second {
        holes: Vec<usize>,
    },
    /// The end, proven by an exit status.
    End,
}

/// The way to the packing thread.
pub(crate) struct Outlet {
    sender: mpsc::Sender<Result<Batch>>,
    again: mpsc::Receiver<Vec<Member>>,
    batch: Vec<Bytes>,
    bytes: usize,
}

/// The other end of an outlet.
pub(crate) struct Inlet {
    pub batches: mpsc::Receiver<Result<Batch>>,
    pub again: mpsc::Sender<Vec<Member>>,
}

impl Outlet {
    pub(crate) fn new() -> (Self, Inlet) {
        let (sender, batches) = mpsc::channel(WAITING_BATCHES);
        let (ask_again, again) = mpsc::channel(1);
        (Self { sender, again, batch: Vec::new(), bytes: 0 }, Inlet { batches, again: ask_again })
    }

    pub(crate) async fn send(&mut self, chunk: Bytes) -> Result<()> {
        self.bytes += chunk.len();
        self.batch.push(chunk);
        if self.bytes >= BATCH_BYTES { self.send_off().await } else { Ok(()) }
    }

    async fn send_off(&mut self) -> Result<()> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.pass(Batch::Chunks(batch)).await
    }

    async fn pass(&mut self, batch: Batch) -> Result<()> {
        // The other end has failed and says why itself.
        self.sender.send(Ok(batch)).await.map_err(|_| EngineError::internal("the archive takes no more"))
    }

    /// Ends the first reading and gives the files that are wanted again, in order.
    pub(crate) async fn first_end(&mut self) -> Result<Vec<Member>> {
        self.send_off().await?;
        self.pass(Batch::FirstEnd).await?;
        self.again.recv().await.ok_or_else(|| EngineError::internal("the archive takes no more"))
    }

    pub(crate) async fn second(&mut self, holes: Vec<usize>) -> Result<()> {
        self.pass(Batch::Second { holes }).await
    }

    /// Tells the packing thread how it ended: only a proven end is one.
    pub(crate) async fn close(mut self, ended: Result<()>) {
        let ended = match ended {
            Ok(()) => self.send_off().await,
            failed => failed,
        };
        let _gone = self.sender.send(ended.map(|()| Batch::End)).await;
    }
}
