//! Feeds the dumps of a whole server's archive to processes, one dump after the other, each to its own process.

use std::io::{self, Read, Write};

use bytes::Bytes;
use holdfast_core::failure::FailureCode;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::feed::Pieces;
use crate::Engine;
use crate::archive::server::ServerReader;
use crate::context::Context;
use crate::error::{EngineError, Result, classify};
use crate::plan::RestorePlan;
use crate::remote::{Pace, Script, end_of, lines, stalled, stop};
use crate::ssh::{Connection, Exit, Process};

/// How many pieces may wait to be sent to the server.
const WAITING_PIECES: usize = 8;

/// A dump in the archive.
pub(super) struct Dump {
    pub index: usize,
    pub name: String,
    pub is_wanted: bool,
}

/// What the reading thread sends about the dumps.
enum Piece {
    Begin(usize),
    Data(Bytes),
    End,
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Self {
        Self::Data(bytes)
    }
}

/// The thread that reads the archive.
pub(super) struct Reading {
    pieces: mpsc::Receiver<Piece>,
    thread: JoinHandle<Result<u64>>,
}

/// How the process that was fed a dump ended.
pub(super) struct FedDump {
    pub exit: Exit,
    pub lines: Vec<String>,
}

impl Reading {
    /// The index of the next wanted dump; skips the rest of the one before.
    pub(super) async fn next(&mut self) -> Option<usize> {
        while let Some(piece) = self.pieces.recv().await {
            if let Piece::Begin(index) = piece {
                return Some(index);
            }
        }
        None
    }

    /// Why the reading thread ended in the middle of a dump.
    async fn failure(&mut self) -> EngineError {
        self.pieces.close();
        match (&mut self.thread).await {
            Ok(Err(error)) => error,
            Ok(Ok(_)) => EngineError::internal("a dump without an end"),
            Err(error) => EngineError::internal(error),
        }
    }

    /// How many plain bytes were read, once the whole backup has been read and verified.
    pub(super) async fn finish(self) -> Result<u64> {
        drop(self.pieces);
        self.thread.await.map_err(EngineError::internal)?
    }
}

/// Passes a dump on as it is.
pub(super) fn copy(_name: &str, dump: &mut dyn Read, out: &mut dyn Write) -> io::Result<()> {
    io::copy(dump, out).map(drop)
}

impl Engine {
    /// Begins to read the wanted dumps; `transform` gets the name of each, and what it writes is passed on.
    pub(super) async fn read_dumps(
        &self,
        plan: &RestorePlan,
        context: &Context,
        statements: &'static [u8],
        dumps: Vec<Dump>,
        transform: impl Fn(&str, &mut dyn Read, &mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Result<Reading> {
        let mut reader = self.open_plain(&plan.backup, context).await?;
        let backup = plan.backup.clone();
        let (sender, pieces) = mpsc::channel(WAITING_PIECES);
        let thread = tokio::task::spawn_blocking(move || {
            let sent = send(&mut reader.plain, statements, &dumps, &sender, &transform);
            sent.map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))?;
            let plain_bytes = reader.plain.bytes;
            reader.finish(&backup)?;
            Ok(plain_bytes)
        });
        Ok(Reading { pieces, thread })
    }

    /// Feeds the dump that `reading` has just begun to a process.
    pub(super) async fn feed_dump(
        &self,
        connection: &Connection,
        script: &Script,
        login: String,
        reading: &mut Reading,
        context: &Context,
    ) -> Result<FedDump> {
        let settings = &self.settings.remote;
        let cancel = &context.cancel;
        let Process { mut stdin, mut stdout, control } = script.start(connection).await?;
        let all_fed = CancellationToken::new();
        let feeding = async {
            let mut pace = Pace::new(settings.stall);
            let mut is_taking = stdin.write_all(Bytes::from(login)).await.is_ok();
            loop {
                match reading.pieces.recv().await {
                    Some(Piece::Data(data)) if is_taking => {
                        let length = data.len();
                        // If a process takes no more, its exit says why; the rest of its dump is skipped.
                        is_taking = pace.wait(cancel, |_| length, stdin.write_all(data)).await?.is_ok();
                    }
                    Some(Piece::Data(_)) => {}
                    Some(Piece::Begin(_)) | None => return Err(reading.failure().await),
                    Some(Piece::End) => {
                        let _gone = stdin.close().await;
                        all_fed.cancel();
                        return Ok(());
                    }
                }
            }
        };
        // Output is drained all the time: a full pipe would stop the process. After the last byte, the process has a
        // limited time to finish.
        let draining = async {
            while stdout.next().await.is_some() {}
            Ok(())
        };
        let fed = tokio::select! {
            fed = async { tokio::try_join!(feeding, draining) } => fed,
            () = cancel.cancelled() => Err(EngineError::cancelled()),
            () = async { all_fed.cancelled().await; tokio::time::sleep(settings.finish).await } => {
                Err(stalled(settings.finish))
            }
        };
        let exit = match fed {
            Ok(_) => end_of(&mut stdout, settings.finish, cancel).await,
            Err(error) => Err(error),
        };
        match exit {
            Ok(exit) => Ok(FedDump { exit, lines: lines(stdout.stderr()) }),
            Err(error) => {
                stop(connection, &control, stdout.process_id(), context).await;
                Err(error)
            }
        }
    }
}

/// Writes the transformed dump of the database with this name.
type Transform<'a> = &'a dyn Fn(&str, &mut dyn Read, &mut dyn Write) -> io::Result<()>;

/// Sends the wanted dumps, each with a beginning and an end.
fn send(
    plain: &mut dyn Read,
    statements: &[u8],
    dumps: &[Dump],
    sender: &mpsc::Sender<Piece>,
    transform: Transform<'_>,
) -> io::Result<()> {
    let gone = |_| io::Error::from(EngineError::cancelled());
    let (mut archive, _) = ServerReader::open(plain, statements)?;
    for dump in dumps {
        if !archive.enter(dump.index, &dump.name) {
            continue;
        }
        if !dump.is_wanted {
            copy(&dump.name, &mut archive, &mut io::sink())?;
            continue;
        }
        sender.blocking_send(Piece::Begin(dump.index)).map_err(gone)?;
        let mut out = Pieces::new(sender.clone());
        transform(&dump.name, &mut archive, &mut out)?;
        out.flush()?;
        sender.blocking_send(Piece::End).map_err(gone)?;
    }
    archive.finish()
}
