//! Accepts connections and serves them. Limits how many there are and how long each may wait for its client, and
//! decides which of them are closed when there are too many.
//!
//! Every connection is in one of three phases: it receives the headers of a request, it processes a request, or it is
//! idle. In the first and the last it waits only for the client, and both have a time limit. While a request is
//! processed, the connection waits for the client only to send more of the body or to receive more of the response, and
//! the client must keep up a minimum rate.

mod connections;
mod limits;
mod streams;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use limits::{CLOSED, Limits, OPEN, Reason};

use connections::Connections;
use limits::LEAST_CONNECTIONS;
use streams::{AnswerBody, RequestBody, Watched};

/// How often time limits are checked, and therefore their precision.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The limit for request headers, which also bounds the memory of a connection. Ordinary headers are below 8 KiB.
const BUFFER_BYTES: usize = 64 * 1024;
/// How much unsent response data the kernel may buffer. Small, so that a slow client's progress is visible in small
/// steps. Throughput does not suffer, because data in flight does not count.
const UNSENT_BYTES: u32 = 128 * 1024;
/// Connections that the system queues until they are accepted. Beyond this it drops packets, and clients retry only
/// after a second, which would delay ordinary clients that connect during a burst.
const BACKLOG: u32 = 4096;
/// File descriptors reserved for everything except client connections: database, destinations, servers, logs.
const OTHER_FILES: u64 = 256;

/// Binds an address and listens on it.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of a previous process may still be closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The response to every request while the service starts.
const STARTING: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 2\r\n\
    content-length: 22\r\nconnection: close\r\n\r\n{\"message\":\"starting\"}";
/// How many requests are answered at once while the service starts, and how long each client may take to send its own.
const STARTING_AT_ONCE: usize = 64;
const STARTING_WAIT: Duration = Duration::from_secs(5);

/// Answers every request with 503 until it is dropped.
pub async fn answer_starting(listener: &TcpListener) -> Infallible {
    let places = Arc::new(Semaphore::new(STARTING_AT_ONCE));
    loop {
        let place = places.clone().acquire_owned().await;
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        };
        tokio::spawn(async move {
            let _place = place;
            let answering = async {
                // A connection that is closed before its request was read would look broken.
                let mut request = Vec::new();
                while request.len() < BUFFER_BYTES && !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    if stream.read_buf(&mut request).await? == 0 {
                        break;
                    }
                }
                stream.write_all(STARTING).await?;
                stream.shutdown().await
            };
            // A client that is gone needs no answer.
            drop(tokio::time::timeout(STARTING_WAIT, answering).await);
        });
    }
}

/// Serves connections until `stop`, and then until every request in progress is answered.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: CancellationToken) {
    let connections = Arc::new(Connections::new(limits));
    let watching = CancellationToken::new();
    let _watching = watching.clone().drop_guard();
    tokio::spawn(watch(connections.clone(), watching, stop.clone()));
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                connections.recover(&error).await;
                continue;
            }
        };
        match connections.admit(peer.ip()) {
            Ok(connection) => {
                tasks.spawn(serve_one(Watched { stream, connection }, peer, router.clone(), stop.clone()));
            }
            Err(reason) => {
                // Best effort, without waiting.
                drop(stream.try_write(reason.answer().unwrap_or_default()));
            }
        }
        // Let the accepted connection read its request before newer ones can displace it.
        tokio::task::yield_now().await;
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

async fn serve_one(io: Watched, peer: SocketAddr, router: Router, stop: CancellationToken) {
    if let Err(error) = socket2::SockRef::from(&io.stream).set_tcp_notsent_lowat(UNSENT_BYTES) {
        tracing::debug!(%error, "cannot limit unsent data; a slow client is noticed late");
    }
    drop(io.stream.set_nodelay(true));
    let connection = io.connection.clone();
    let watched = connection.clone();
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let (watched, router) = (watched.clone(), router.clone());
        async move {
            watched.request_begins();
            let mut request = request.map(|body| Body::new(RequestBody { body, connection: watched.clone() }));
            request.extensions_mut().insert(ConnectInfo(peer));
            let response = router.call(request).await;
            response.map(|response: Response<Body>| response.map(|body| AnswerBody { body, connection: watched }))
        }
    });
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).max_buf_size(BUFFER_BYTES);
    let mut serving = builder.serve_connection(TokioIo::new(io), service);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            _ = &mut serving => return,
            reason = connection.ended() => {
                send_final_response(&serving.into_parts().io.into_inner().stream, reason);
                return;
            }
            () = stop.cancelled(), if !is_stopping => {
                is_stopping = true;
                Pin::new(&mut serving).graceful_shutdown();
            }
        }
    }
}

/// Sends a final response, if there is one for the reason, before the connection is closed.
fn send_final_response(stream: &TcpStream, reason: Reason) {
    if let Some(answer) = reason.answer() {
        drop(stream.try_write(answer));
    } else if reason == Reason::SlowAnswer {
        // The client does not read, so discard what the kernel still buffers.
        drop(stream.set_zero_linger());
    }
}

async fn watch(connections: Arc<Connections>, until: CancellationToken, stop: CancellationToken) {
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = until.cancelled() => return,
            _ = look.tick() => {}
        }
        connections.end_overdue(stop.is_cancelled());
        connections.report();
    }
}

/// Raises the limit on open files as far as possible and returns how many of the wanted connections fit into it. The
/// database and the runs need some files too.
pub fn connections_within_files(wanted: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit = raised,
            Err(error) => tracing::debug!(%error, "could not raise the limit on open files"),
        }
    }
    let Some(files) = limit.current else { return wanted };
    let room = files.saturating_sub(OTHER_FILES.min(files / 2));
    let room = usize::try_from(room).unwrap_or(usize::MAX).max(LEAST_CONNECTIONS);
    if room < wanted {
        tracing::warn!(files, connections = room, wanted, "the limit on open files allows fewer connections; raise it");
    }
    room.min(wanted)
}

/// Registers the metrics with the value 0, so that monitoring can detect the first increase.
pub fn describe_metrics() {
    metrics::describe_gauge!(OPEN, "Open client connections.");
    metrics::describe_counter!(CLOSED, "Connections closed or refused because of a limit, by reason.");
    metrics::gauge!(OPEN).set(0.0);
    for reason in Reason::ALL {
        metrics::counter!(CLOSED, "reason" => reason.as_str()).increment(0);
    }
}

#[cfg(test)]
mod tests;
