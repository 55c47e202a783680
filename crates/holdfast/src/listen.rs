//! Accepts connections and serves them: how many there may be, how long each may keep us waiting, and which of them
//! make room when there are too many.
//!
//! Every connection is in one of three phases: the headers of a request are on their way, a request is being answered,
//! or nothing is under way. In the first and the last the client alone is waited for, and both have a time limit.
//! While a request is answered, we wait for the client only as long as it has to send more of the body or take more of
//! the answer; there the client has to keep up a least rate.

mod connection;
mod streams;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use holdfast_core::network::{ClientKey, Network};
use holdfast_core::rate::LeastRate;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use connection::{Connection, Standing, State};
use streams::{AnswerBody, RequestBody, Watched};

/// How many connections there may be and how long a client may keep us waiting; each can be set by the operator.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once.
    pub total: usize,
    /// Connections at once of one client, as `ClientKey` has it.
    pub per_client: usize,
    /// From the first byte of a request, or from the connection's start, to the end of the headers.
    pub headers: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// Of a body on its way here, or an answer on its way there.
    pub least_rate: LeastRate,
    /// Whole crowds come from these addresses, so `per_client` does not count for them.
    pub proxies: Vec<Network>,
}

/// How often time limits are looked at, which is also how exactly they are kept.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Summaries in the log are no closer to each other than this, however many connections are closed.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// A request that is whole by then came from an ordinary client; what is idle for less may be in use.
const RECENT: Duration = Duration::from_secs(1);
/// Request headers that are longer are refused; also bounds what a connection holds in memory. Ordinary ones stay
/// below 8 KiB.
const BUFFER_BYTES: usize = 64 * 1024;
/// What the kernel keeps of an answer that it has not sent yet. Small, so that we see a slow client's progress in small
/// steps; throughput does not suffer, since what is on its way does not count.
const UNSENT_BYTES: u32 = 128 * 1024;
/// After an error of `accept`, such as too many open files, which does not go away by asking again at once.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
/// Connections that the system holds until they are accepted. Beyond them it drops packets, and a client tries again
/// after a second: too late for those who come at the same moment as a crowd.
const BACKLOG: u32 = 4096;
/// Files that are not connections of clients: database, destinations, servers, logs.
const OTHER_FILES: u64 = 256;
/// However few files the system allows, somebody must be able to connect.
const LEAST_CONNECTIONS: usize = 16;

pub const OPEN: &str = "holdfast_connections_open";
pub const CLOSED: &str = "holdfast_connections_closed_total";

/// Why a connection was ended by us, or not even begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    HeaderTimeout,
    IdleTimeout,
    SlowRequest,
    SlowAnswer,
    /// Made room for a newer connection while it kept us waiting.
    MadeRoom,
    ClientLimit,
    TotalLimit,
    AcceptFailed,
}

impl Reason {
    pub const ALL: [Self; 8] = [
        Self::HeaderTimeout,
        Self::IdleTimeout,
        Self::SlowRequest,
        Self::SlowAnswer,
        Self::MadeRoom,
        Self::ClientLimit,
        Self::TotalLimit,
        Self::AcceptFailed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::HeaderTimeout => "header_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::SlowRequest => "slow_request",
            Self::SlowAnswer => "slow_answer",
            Self::MadeRoom => "made_room",
            Self::ClientLimit => "client_limit",
            Self::TotalLimit => "total_limit",
            Self::AcceptFailed => "accept_failed",
        }
    }

    /// What a client that still listens is told.
    fn answer(self) -> Option<&'static [u8]> {
        match self {
            Self::HeaderTimeout | Self::SlowRequest => {
                Some(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            }
            Self::ClientLimit | Self::TotalLimit => Some(
                b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            ),
            Self::IdleTimeout | Self::SlowAnswer | Self::MadeRoom | Self::AcceptFailed => None,
        }
    }
}

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

/// What is open at the moment.
struct Connections {
    limits: Limits,
    started: Instant,
    open: Mutex<Open>,
    closed: Mutex<Closed>,
}

#[derive(Default)]
struct Open {
    by_id: HashMap<u64, Arc<Connection>>,
    by_client: HashMap<ClientKey, usize>,
    next_id: u64,
}

impl Open {
    fn remove(&mut self, id: u64) {
        let Some(connection) = self.by_id.remove(&id) else { return };
        metrics::gauge!(OPEN).decrement(1.0);
        if let Some(client) = connection.client
            && let Some(count) = self.by_client.get_mut(&client)
        {
            *count -= 1;
            if *count == 0 {
                self.by_client.remove(&client);
            }
        }
    }
}

/// What was closed since the last summary.
#[derive(Default)]
struct Closed {
    counts: [u64; Reason::ALL.len()],
    reported_at: Option<Instant>,
}

impl Connections {
    fn new(limits: Limits) -> Self {
        Self { limits, started: Instant::now(), open: Mutex::default(), closed: Mutex::default() }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Takes in a new connection. Where the client or everybody together has too many, those that have kept us waiting
    /// for the longest make room; a client that only sends requests is served whatever the others do.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Arc<Connection>, Reason> {
        let is_proxy = self.limits.proxies.iter().any(|network| network.contains(address));
        let client = (!is_proxy).then(|| ClientKey::of(address));
        let mut open = locked(&self.open);
        let own = client.and_then(|client| open.by_client.get(&client)).copied().unwrap_or(0);
        if own >= self.limits.per_client && self.make_room(&mut open, 1, |other| other.client == client) == 0 {
            self.count(Reason::ClientLimit);
            return Err(Reason::ClientLimit);
        }
        if open.by_id.len() >= self.limits.total {
            // Several at once: looking through all of them for each newcomer would be work that a crowd could cause.
            let batch = 1 + self.limits.total / 64;
            if self.make_room(&mut open, batch, |_| true) == 0 {
                self.count(Reason::TotalLimit);
                return Err(Reason::TotalLimit);
            }
        }
        let id = open.next_id;
        open.next_id += 1;
        let state = State::new(self.now());
        let connection = Arc::new(Connection {
            id,
            client,
            connections: self.clone(),
            state: Mutex::new(state),
            reason: OnceLock::new(),
            told: Notify::new(),
        });
        open.by_id.insert(id, connection.clone());
        if let Some(client) = client {
            *open.by_client.entry(client).or_default() += 1;
        }
        metrics::gauge!(OPEN).increment(1.0);
        Ok(connection)
    }

    /// Ends up to so many connections that wait for their client, and gives their number. Those that take longer than an
    /// ordinary client would go first, the oldest before the others; one that was used a moment ago goes only when there
    /// is nothing else.
    fn make_room(&self, open: &mut Open, wanted: usize, may_go: impl Fn(&Connection) -> bool) -> usize {
        let now = self.now();
        let waiting = open.by_id.values().filter(|connection| may_go(connection)).filter_map(|connection| {
            let (standing, since) = locked(&connection.state).standing(self.limits.least_rate, now)?;
            Some((standing, std::cmp::Reverse(since), connection.id))
        });
        let mut waiting: Vec<_> = waiting.collect();
        if wanted < waiting.len() {
            waiting.select_nth_unstable(wanted);
            waiting.truncate(wanted);
        }
        waiting.sort_unstable();
        let mut ended = 0;
        for (standing, _, id) in waiting {
            if ended > 0 && standing == Standing::InUse {
                break;
            }
            if let Some(connection) = open.by_id.get(&id) {
                connection.end(Reason::MadeRoom);
            }
            open.remove(id);
            ended += 1;
        }
        ended
    }

    /// `accept` failed: either that one client went away, or there is something that we have too many of.
    async fn recover(&self, error: &std::io::Error) {
        use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
            return;
        }
        tracing::debug!(%error, "a connection was not accepted");
        self.count(Reason::AcceptFailed);
        self.make_room(&mut locked(&self.open), LEAST_CONNECTIONS, |_| true);
        tokio::time::sleep(PAUSE_AFTER_ERROR).await;
    }

    fn count(&self, reason: Reason) {
        metrics::counter!(CLOSED, "reason" => reason.as_str()).increment(1);
        locked(&self.closed).counts[reason as usize] += 1;
    }

    /// Ends what took too long. While the service stops, nobody may begin a request at leisure.
    fn end_overdue(&self, is_stopping: bool) {
        let now = self.now();
        let headers = if is_stopping { self.limits.headers.min(RECENT) } else { self.limits.headers };
        let limits = Limits { headers, ..self.limits.clone() };
        let mut open = locked(&self.open);
        let overdue = open.by_id.values().filter_map(|connection| {
            let reason = locked(&connection.state).overdue(&limits, now)?;
            connection.end(reason);
            Some(connection.id)
        });
        for id in overdue.collect::<Vec<_>>() {
            open.remove(id);
        }
    }

    /// One line for everything since the last one.
    fn report(&self) {
        let open = locked(&self.open).by_id.len();
        let mut closed = locked(&self.closed);
        let is_recent = closed.reported_at.is_some_and(|at| at.elapsed() < REPORT_EVERY);
        // A connection that nobody uses any more is nothing to tell of.
        let is_worth_it =
            Reason::ALL.iter().any(|reason| *reason != Reason::IdleTimeout && closed.counts[*reason as usize] > 0);
        if is_recent || !is_worth_it {
            return;
        }
        let counts: Vec<String> = Reason::ALL
            .iter()
            .filter(|reason| closed.counts[**reason as usize] > 0)
            .map(|reason| format!("{} {}", closed.counts[*reason as usize], reason.as_str()))
            .collect();
        tracing::warn!(open, closed = counts.join(", "), "connections were closed or refused");
        *closed = Closed { reported_at: Some(Instant::now()), ..Closed::default() };
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
