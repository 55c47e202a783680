//! The stream of a connection and the bodies on it, wrapped to record their progress.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use holdfast_core::rate::Pace;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::connections::{Connection, State, locked};

/// A client's stream that records reads and writes.
pub(super) struct Watched {
    pub(super) stream: TcpStream,
    pub(super) connection: Arc<Connection>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        locked(&self.connection.connections.open).remove(self.connection.id);
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.connection.change(State::received);
        }
        polled
    }
}

impl Watched {
    fn wrote(&self, polled: &Poll<std::io::Result<usize>>) {
        match polled {
            Poll::Ready(Ok(bytes)) => {
                self.connection.change(|state, now| state.writing.advance(*bytes as u64, now));
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.connection.change(|state, now| state.writing.wait(now)),
        }
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The body of a request, which records its progress.
pub(super) struct RequestBody {
    pub(super) body: Incoming,
    pub(super) connection: Arc<Connection>,
}

impl HttpBody for RequestBody {
    type Data = <Incoming as HttpBody>::Data;
    type Error = <Incoming as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        self.connection.change(|state, now| match &polled {
            Poll::Pending => state.reading.wait(now),
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                state.reading.advance(bytes, now);
            }
            Poll::Ready(_) => state.reading.advance(0, now),
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    /// The body was read completely, or the rest is not needed: there is nothing more to wait for.
    fn drop(&mut self) {
        self.connection.change(|state, _| {
            state.reading = Pace::default();
            state.is_body_read = true;
        });
    }
}

/// The body of a response. When it is dropped, the request has ended.
pub(super) struct AnswerBody {
    pub(super) body: Body,
    pub(super) connection: Arc<Connection>,
}

impl HttpBody for AnswerBody {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.connection.answer_ends();
    }
}
