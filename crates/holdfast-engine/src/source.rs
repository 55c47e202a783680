//! Where a backup's bytes come from.

mod after_rows;
pub(crate) mod changes;
pub(crate) mod database;
pub(crate) mod database_dump;
pub(crate) mod files;
pub(crate) mod listing;
pub(crate) mod mysql;
pub(crate) mod mysql_database;
mod mysql_definitions;
pub(crate) mod mysql_server;
mod mysql_tables;
mod parts;
pub(crate) mod patterns;
pub(crate) mod postgres;
pub(crate) mod postgres_server;
pub(crate) mod sftp;
pub(crate) mod tool;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::archive::tar::Member;
use crate::error::{EngineError, Result};
use changes::Passed;

/// The number of batches that may wait for the packing thread.
const WAITING_BATCHES: usize = 4;
/// The size of a batch. Each batch wakes the packing thread; doing so for every packet would cost more than the packet
/// itself.
const BATCH_BYTES: usize = 256 * 1024;
/// The number of files that were read and may wait to be checked again.
pub(crate) const WAITING_FILES: usize = 4096;

/// A message to the packing thread.
pub(crate) enum Batch {
    Chunks(Vec<Bytes>),
    /// The first reading is over; the packing thread replies with the files to read again.
    FirstEnd,
    /// Of the files to be read again, these really consist only of holes; a second reading of the others follows.
    Second {
        holes: Vec<usize>,
    },
    /// The end, confirmed by an exit status.
    End,
}

/// The sending half of the channel to the packing thread.
pub(crate) struct PlainSink {
    sender: mpsc::Sender<Result<Batch>>,
    again: mpsc::Receiver<Vec<Member>>,
    passed: Option<mpsc::Receiver<Passed>>,
    batch: Vec<Bytes>,
    bytes: usize,
}

/// The receiving half, for the packing thread.
pub(crate) struct SinkReceiver {
    pub batches: mpsc::Receiver<Result<Batch>>,
    pub again: mpsc::Sender<Vec<Member>>,
    /// Receives each file that was read, during the first reading.
    pub passed: Option<mpsc::Sender<Passed>>,
}

impl PlainSink {
    pub(crate) fn new() -> (Self, SinkReceiver) {
        let (sender, batches) = mpsc::channel(WAITING_BATCHES);
        let (ask_again, again) = mpsc::channel(1);
        let (pass, passed) = mpsc::channel(WAITING_FILES);
        let sink = Self { sender, again, passed: Some(passed), batch: Vec::new(), bytes: 0 };
        (sink, SinkReceiver { batches, again: ask_again, passed: Some(pass) })
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
        // The packing thread has failed and reports the reason itself.
        self.sender.send(Ok(batch)).await.map_err(|_| EngineError::internal("the packing thread has stopped"))
    }

    /// The receiver of the files that the packing thread has read. Once taken, it must be drained or dropped.
    pub(crate) fn take_passed(&mut self) -> Option<mpsc::Receiver<Passed>> {
        self.passed.take()
    }

    /// Ends the first reading and returns the files to read again, in order.
    pub(crate) async fn first_end(&mut self) -> Result<Vec<Member>> {
        self.send_off().await?;
        self.pass(Batch::FirstEnd).await?;
        self.again.recv().await.ok_or_else(|| EngineError::internal("the packing thread has stopped"))
    }

    pub(crate) async fn second(&mut self, holes: Vec<usize>) -> Result<()> {
        self.pass(Batch::Second { holes }).await
    }

    /// Tells the packing thread how reading ended; only a confirmed end counts as the end.
    pub(crate) async fn close(mut self, ended: Result<()>) {
        let ended = match ended {
            Ok(()) => self.send_off().await,
            failed => failed,
        };
        let _gone = self.sender.send(ended.map(|()| Batch::End)).await;
    }
}
