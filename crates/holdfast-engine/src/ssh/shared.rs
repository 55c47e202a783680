//! What a connection shares with the tasks that use it: why it ended, and that its transport stays open.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use russh::ChannelId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{oneshot, watch};

use super::error::SshError;

/// State shared with the session task. It outlives the handler, so that the reason for a disconnect can still be read.
#[derive(Default)]
pub(super) struct State {
    pub offered: Option<String>,
    pub mismatch: bool,
    pub reason: Option<String>,
    /// Wakes stdin writers: russh never wakes a writer that waits for window space when its channel ends.
    pub open: HashMap<ChannelId, watch::Sender<bool>>,
}

#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lost(&self) -> SshError {
        SshError::Lost(self.lock().reason.clone().unwrap_or_else(|| "closed by the server".into()))
    }

    pub(super) fn failure(&self, error: russh::Error) -> SshError {
        let state = self.lock();
        if state.mismatch {
            return SshError::HostKeyChanged { offered: state.offered.clone().unwrap_or_default(), is_jump: false };
        }
        match error {
            russh::Error::IO(error) => SshError::Connect(error.to_string()),
            russh::Error::ConnectionTimeout
            | russh::Error::KeepaliveTimeout
            | russh::Error::InactivityTimeout
            | russh::Error::Elapsed(_) => SshError::Timeout,
            russh::Error::Disconnect | russh::Error::HUP | russh::Error::SendError | russh::Error::RecvError => {
                SshError::Lost(state.reason.clone().unwrap_or_else(|| error.to_string()))
            }
            other => SshError::Protocol(other.to_string()),
        }
    }
}

/// A stream that ends when every clone of its `KeepOpen` has been dropped. Without it, a session task whose peer stalls
/// during the key exchange would outlive our timeout, since russh detaches the task.
pub(super) struct Tied<S> {
    pub inner: S,
    pub released: oneshot::Receiver<()>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Tied<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.inner).poll_read(cx, buf) {
            Poll::Pending => match Pin::new(&mut self.released).poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(_) => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            },
            ready => ready,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tied<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Held by the connection and by everything opened on it, so that the transport lives as long as it is used.
pub(super) type KeepOpen = Arc<oneshot::Sender<()>>;
