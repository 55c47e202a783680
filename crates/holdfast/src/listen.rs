//! Accepts connections and serves them: how many there may be, how long each may keep us waiting, and which of them
//! make room when there are too many.
//!
//! Every connection is in one of three phases: the headers of a request are on their way, a request is being answered,
//! or nothing is under way. In the first and the last the client alone is waited for, and both have a time limit.
//! While a request is answered, we wait for the client only as long as it has to send more of the body or take more of
//! the answer; there the client has to keep up a least rate.

mod connections;
mod limits;
mod streams;

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
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use limits::{CLOSED, Limits, OPEN, Reason};

use connections::Connections;
use limits::LEAST_CONNECTIONS;
use streams::{AnswerBody, RequestBody, Watched};

/// How often time limits are looked at, which is also how exactly they are kept.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Request headers that are longer are refused; also bounds what a connection holds in memory. Ordinary ones stay
/// below 8 KiB.
const BUFFER_BYTES: usize = 64 * 1024;
/// What the kernel keeps of an answer that it has not sent yet. Small, so that we see a slow client's progress in small
/// steps; throughput does not suffer, since what is on its way does not count.
const UNSENT_BYTES: u32 = 128 * 1024;
/// Connections that the system holds until they are accepted. Beyond them it drops packets, and a client tries again
/// after a second: too late for those who come at the same moment as a crowd.
const BACKLOG: u32 = 4096;
/// Files that are not connections of clients: database, destinations, servers, logs.
const OTHER_FILES: u64 = 256;

/// Takes an address to listen on.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of the service before may still be about to end.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves whoever connects until it is told to stop, and then until every request that was begun is answered.
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
                // As far as it can be said without waiting.
                drop(stream.try_write(reason.answer().unwrap_or_default()));
            }
        }
        // What was accepted gets its turn to read a request, before more come who may want its place.
        tokio::task::yield_now().await;
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

async fn serve_one(io: Watched, peer: SocketAddr, router: Router, stop: CancellationToken) {
    if let Err(error) = socket2::SockRef::from(&io.stream).set_tcp_notsent_lowat(UNSENT_BYTES) {
        tracing::debug!(%error, "slow clients of this connection are noticed late");
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
                part(&serving.into_parts().io.into_inner().stream, reason);
                return;
            }
            () = stop.cancelled(), if !is_stopping => {
                is_stopping = true;
                Pin::new(&mut serving).graceful_shutdown();
            }
        }
    }
}

/// The last that is said on a connection before it is closed.
fn part(stream: &TcpStream, reason: Reason) {
    if let Some(answer) = reason.answer() {
        drop(stream.try_write(answer));
    } else if reason == Reason::SlowAnswer {
        // Nobody takes what the kernel still holds.
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

/// How many connections of the wanted ones the system has files for, after the process asked for as many as it may have.
/// The database and the runs need some too.
pub fn connections_within_files(wanted: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit = raised,
            Err(error) => tracing::debug!(%error, "the limit on open files stays as it is"),
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

/// Series that are there from the start, with nothing in them: who watches for a rise must have seen the ground.
pub fn describe_metrics() {
    metrics::describe_gauge!(OPEN, "Connections of clients that are open.");
    metrics::describe_counter!(CLOSED, "Connections that were closed or refused by a limit, by reason.");
    metrics::gauge!(OPEN).set(0.0);
    for reason in Reason::ALL {
        metrics::counter!(CLOSED, "reason" => reason.as_str()).increment(0);
    }
}

#[cfg(test)]
mod tests;
