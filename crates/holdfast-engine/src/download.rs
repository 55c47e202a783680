//! Downloads: pieces of bytes that a thread reads and a client receives.

use std::io::{self, Read};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use crate::error::EngineError;
use crate::sha256::Sha256;

/// The size of one piece of a download.
pub(crate) const PIECE_BYTES: usize = 256 * 1024;
/// How many pieces may wait for the client.
const WAITING_PIECES: usize = 4;

/// A stream of bytes to a client; the last item may be an error. Dropping it ends the reading thread.
pub struct Download {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    _stop: DropGuard,
}

impl Download {
    /// Starts a thread that sends the pieces. The guard stops it when the download is dropped.
    pub(crate) fn start(guard: DropGuard, send: impl FnOnce(Pieces) + Send + 'static) -> Self {
        let (sender, pieces) = mpsc::channel(WAITING_PIECES);
        tokio::task::spawn_blocking(move || send(Pieces(sender)));
        Self { pieces, _stop: guard }
    }

    pub async fn recv(&mut self) -> Option<io::Result<Bytes>> {
        self.pieces.recv().await
    }
}

/// The sending end of a download. Sends each write as one piece.
#[derive(Clone)]
pub(crate) struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone");
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Pieces {
    /// Sends the last item. If the client is gone, nobody needs it.
    pub(crate) fn send_last(&self, item: io::Result<Bytes>) {
        let _gone = self.0.blocking_send(item);
    }

    /// Sends a whole object. The last piece is held back until the hash of all bytes has been verified; if the object was
    /// replaced, the download ends with an error.
    pub(crate) fn send_checked(&self, reader: &mut dyn Read, sha256: &str) {
        let (mut hash, mut held) = (Sha256::default(), None::<Bytes>);
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let item = match reader.read(&mut piece) {
                Ok(0) if hash.hex() == sha256 => held.take().map(Ok),
                Ok(0) => Some(Err(EngineError::corrupt("The stored bytes are not the ones that were written.").into())),
                Ok(read) => {
                    piece.truncate(read);
                    hash.update(&piece);
                    let before = held.replace(Bytes::from(piece));
                    if before.is_some_and(|before| self.0.blocking_send(Ok(before)).is_err()) {
                        return;
                    }
                    continue;
                }
                Err(error) => Some(Err(error)),
            };
            if let Some(item) = item {
                self.send_last(item);
            }
            return;
        }
    }

    /// Sends pieces until the end, the first error, or until the receiver is gone.
    pub(crate) fn send_all(&self, reader: &mut dyn Read) {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let item = match reader.read(&mut piece) {
                Ok(0) => return,
                Ok(read) => {
                    piece.truncate(read);
                    Ok(Bytes::from(piece))
                }
                Err(error) => Err(error),
            };
            let is_last = item.is_err();
            if self.0.blocking_send(item).is_err() || is_last {
                return;
            }
        }
    }
}
