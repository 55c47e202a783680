//! Feeds a stored backup to a process on a server.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use holdfast_core::failure::FailureCode;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::context::Context;
use crate::error::{EngineError, Result, classify};
use crate::format::PlainReader;
use crate::plan::StoredBackup;
use crate::remote::{self, Pace, stalled};
use crate::ssh::{Connection, Control, Exit, Process, SshError};

/// How many pieces may wait to be sent to the server.
const WAITING_PIECES: usize = 8;
const PIECE_BYTES: usize = 256 * 1024;
/// How long a process may take to exit after we end it.
const GOODBYE: Duration = Duration::from_secs(2);

/// The result of a process that was fed completely, or that exited before.
pub(crate) struct Fed<T> {
    /// The result of `transform`; `None` if the process exited before it had everything.
    pub made: Option<T>,
    pub exit: Exit,
    pub lines: Vec<String>,
    pub plain_bytes: u64,
}

/// A process and what it needs to be fed.
pub(crate) struct Feeding {
    pub process: Process,
    /// Sent before anything else.
    pub login: String,
    /// How long it may take after the last byte.
    pub finish: Duration,
}

impl Engine {
    /// Feeds a remote process with the backup's plain stream, as `transform` passes it on. Returns the exit status and
    /// standard error of the process; if an error is ours, ends the process first.
    pub(crate) async fn feed<T: Send + 'static>(
        &self,
        connection: &Connection,
        feeding: Feeding,
        reader: PlainReader,
        backup: &StoredBackup,
        context: &Context,
        transform: impl FnOnce(&mut dyn io::Read, &mut dyn Write) -> Result<T> + Send + 'static,
    ) -> Result<Fed<T>> {
        // This future is large; boxed, it does not enlarge every future that awaits it.
        Box::pin(self.feed_process(connection, feeding, reader, backup, context, transform)).await
    }

    async fn feed_process<T: Send + 'static>(
        &self,
        connection: &Connection,
        feeding: Feeding,
        mut reader: PlainReader,
        backup: &StoredBackup,
        context: &Context,
        transform: impl FnOnce(&mut dyn io::Read, &mut dyn Write) -> Result<T> + Send + 'static,
    ) -> Result<Fed<T>> {
        let backup = backup.clone();
        let (sender, mut pieces) = mpsc::channel::<Bytes>(WAITING_PIECES);
        let reading = tokio::task::spawn_blocking(move || {
            let mut out = Pieces::new(sender);
            let made = transform(&mut reader.plain, &mut out)?;
            let plain_bytes = reader.plain.bytes;
            // Before the last piece: if the backup is damaged, the process must not see the end of its input.
            reader.finish(&backup)?;
            let sent = out.flush();
            sent.map_err(|error| classify(&error, FailureCode::RemoteFailed, "The server stopped reading"))?;
            Ok((made, plain_bytes))
        });
        let Feeding { process, login, finish } = feeding;
        let Process { mut stdin, mut stdout, control } = process;
        let stall = self.settings.remote.stall;
        let (cancel, given_up, all_fed) = (context.cancel.clone(), CancellationToken::new(), CancellationToken::new());
        let writing = async {
            let mut pace = Pace::new(stall);
            let login = Some(Bytes::from(login)).filter(|login| !login.is_empty());
            if let Some(login) = login {
                stdin.write_all(login).await.map_err(lost)?;
            }
            while let Some(piece) = pieces.recv().await {
                let length = piece.len();
                pace.wait(&cancel, |_| length, stdin.write_all(piece)).await?.map_err(lost)?;
            }
            // The reading thread has stopped sending; its result says why.
            let read = reading.await.map_err(EngineError::internal)?;
            if read.is_ok() {
                stdin.close().await?;
            }
            read
        };
        let (fed, exit) = tokio::join!(
            async {
                let fed = tokio::select! {
                    () = cancel.cancelled() => Err(EngineError::cancelled()),
                    fed = writing => fed,
                };
                match &fed {
                    Ok(_) => all_fed.cancel(),
                    Err(_) => {
                        end_process(&control).await;
                        given_up.cancel();
                    }
                }
                fed
            },
            // Output is drained all the time: a full pipe would stop the process.
            async {
                tokio::select! {
                    exit = stdout.wait() => exit.map_err(EngineError::from),
                    // Everything is fed, but the process takes long and the run was cancelled.
                    () = async { cancel.cancelled().await; end_process(&control).await } => Err(EngineError::cancelled()),
                    () = async { all_fed.cancelled().await; tokio::time::sleep(finish).await } => Err(stalled(finish)),
                    // The reason of the failure is known; the server gets a short time to report the exit.
                    () = async { given_up.cancelled().await; tokio::time::sleep(GOODBYE).await } => {
                        Err(SshError::Lost("given up".to_owned()).into())
                    }
                }
            }
        );
        let lines = remote::lines(stdout.stderr());
        if fed.is_err() || exit.is_err() {
            remote::stop(connection, &control, stdout.process_id().filter(|_| exit.is_err()), context).await;
        }
        if context.cancel.is_cancelled() {
            return Err(EngineError::cancelled());
        }
        match (fed, exit) {
            (Ok((made, plain_bytes)), Ok(exit)) => Ok(Fed { made: Some(made), exit, lines, plain_bytes }),
            // If the process exited early, that explains the failed write.
            (Err(error), Ok(exit)) if error.code == FailureCode::Lost && exit != Exit::default() => {
                Ok(Fed { made: None, exit, lines, plain_bytes: 0 })
            }
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it by value")]
fn lost(error: SshError) -> EngineError {
    EngineError::new(FailureCode::Lost, error.to_string())
}

/// Ends a remote process, or stops waiting for it after a short time.
async fn end_process(control: &Control) {
    if tokio::time::timeout(GOODBYE, control.terminate()).await.is_err() {
        tracing::debug!("timed out while terminating a remote process");
    }
}

/// Sends what is written to the task that feeds the process, in pieces of fixed size.
pub(super) struct Pieces<T> {
    sender: mpsc::Sender<T>,
    filling: Vec<u8>,
}

impl<T: From<Bytes>> Write for Pieces<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // No more than fits, or the vector would be reallocated.
        let taken = &bytes[..bytes.len().min(PIECE_BYTES - self.filling.len())];
        self.filling.extend_from_slice(taken);
        if self.filling.len() == PIECE_BYTES {
            self.send_off()?;
        }
        Ok(taken.len())
    }

    /// Called only at the end: the last piece is held back until everything before it is known to be intact.
    fn flush(&mut self) -> io::Result<()> {
        self.send_off()
    }
}

impl<T: From<Bytes>> Pieces<T> {
    pub(super) fn new(sender: mpsc::Sender<T>) -> Self {
        Self { sender, filling: Vec::new() }
    }

    fn send_off(&mut self) -> io::Result<()> {
        if self.filling.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.filling, Vec::with_capacity(PIECE_BYTES));
        self.sender.blocking_send(Bytes::from(piece).into()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
