//! Accepts connections and serves them: how many there may be, how long each may keep us waiting, and which of them
//! make room when there are too many.
//!
//! Every connection is in one of three phases: the headers of a request are on their way, a request is being answered,
//! or nothing is under way. In the first and the last the client alone is waited for, and both have a time limit.
//! While a request is answered, we wait for the client only as long as it has to send more of the body or take more of
//! the answer; there the client has to keep up a least rate.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use holdfast_core::network::{ClientKey, Network};
use holdfast_core::rate::{LeastRate, Pace};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

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

struct Connection {
    id: u64,
    /// Whom it counts for; nobody when a proxy stands between.
    client: Option<ClientKey>,
    connections: Arc<Connections>,
    state: Mutex<State>,
    reason: OnceLock<Reason>,
    told: Notify,
}

impl Connection {
    fn end(&self, reason: Reason) {
        if self.reason.set(reason).is_ok() {
            self.connections.count(reason);
            self.told.notify_one();
        }
    }

    /// Resolves when this connection is to be closed.
    async fn ended(&self) -> Reason {
        loop {
            self.told.notified().await;
            if let Some(reason) = self.reason.get() {
                return *reason;
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut State, Duration)) {
        let now = self.connections.now();
        change(&mut locked(&self.state), now);
    }

    fn request_begins(&self) {
        self.change(|state, now| {
            *state = State { phase: Phase::Request, since: now, writing: state.writing, ..State::new(now) };
        });
    }

    fn answer_ends(&self) {
        self.change(|state, now| {
            let phase = if state.has_read_ahead { Phase::Headers } else { Phase::Idle };
            *state = State { phase, since: now, writing: state.writing, ..State::new(now) };
        });
    }
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Headers,
    Request,
    Idle,
}

/// Which connections make room first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Sends or takes less than an ordinary client would.
    Slow,
    Idle,
    /// Has not had the time yet to send a whole request.
    New,
    /// Was used a moment ago, or reads an answer.
    InUse,
}

#[derive(Debug, Clone, Copy)]
struct State {
    phase: Phase,
    since: Duration,
    /// The body of the request, as far as we wait for it.
    reading: Pace,
    /// What we have for the client, of this request and the ones before.
    writing: Pace,
    is_body_read: bool,
    /// Some of the next request is here before this one is answered.
    has_read_ahead: bool,
}

impl State {
    /// A new connection is one that sends its first headers.
    fn new(now: Duration) -> Self {
        Self {
            phase: Phase::Headers,
            since: now,
            reading: Pace::default(),
            writing: Pace::default(),
            is_body_read: false,
            has_read_ahead: false,
        }
    }

    fn received(&mut self, now: Duration) {
        match self.phase {
            Phase::Idle => *self = Self { writing: self.writing, ..Self::new(now) },
            Phase::Request if self.is_body_read => self.has_read_ahead = true,
            Phase::Request | Phase::Headers => {}
        }
    }

    fn overdue(&mut self, limits: &Limits, now: Duration) -> Option<Reason> {
        if self.writing.is_too_slow(limits.least_rate, now) {
            return Some(Reason::SlowAnswer);
        }
        let waited = now.saturating_sub(self.since);
        match self.phase {
            Phase::Headers => (waited >= limits.headers).then_some(Reason::HeaderTimeout),
            Phase::Idle => (waited >= limits.idle).then_some(Reason::IdleTimeout),
            Phase::Request => self.reading.is_too_slow(limits.least_rate, now).then_some(Reason::SlowRequest),
        }
    }

    /// How it stands beside the others, and for how long; `None` while it is we who have something to do.
    fn standing(&self, least: LeastRate, now: Duration) -> Option<(Standing, Duration)> {
        let slow_or = |standing: Standing, waited: Duration| {
            Some((if waited < RECENT { standing } else { Standing::Slow }, waited))
        };
        if let Some(waited) = self.writing.behind(least, now).max(self.reading.behind(least, now)) {
            return slow_or(Standing::New, waited);
        }
        // An answer that nobody reads: what the kernel took of it at first says nothing about the client.
        if let Some(stalled) = self.writing.stalled(now).max(self.reading.stalled(now)) {
            return slow_or(Standing::InUse, stalled);
        }
        let waited = now.saturating_sub(self.since);
        match self.phase {
            Phase::Request => None,
            Phase::Headers => slow_or(Standing::New, waited),
            Phase::Idle => Some((if waited < RECENT { Standing::InUse } else { Standing::Idle }, waited)),
        }
    }
}

/// A client's stream that notes what moves on it.
struct Watched {
    stream: TcpStream,
    connection: Arc<Connection>,
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

/// The body of a request, which notes how it arrives.
struct RequestBody {
    body: Incoming,
    connection: Arc<Connection>,
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
    /// Read to its end, or nobody wants the rest: there is nothing to wait for any more.
    fn drop(&mut self) {
        self.connection.change(|state, _| {
            state.reading = Pace::default();
            state.is_body_read = true;
        });
    }
}

/// The body of an answer, whose end is the end of the request.
struct AnswerBody {
    body: Body,
    connection: Arc<Connection>,
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
mod tests {
    use axum::routing::{get, post};
    use futures_util::StreamExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    fn limits() -> Limits {
        Limits {
            total: 1000,
            per_client: 1000,
            headers: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            least_rate: LeastRate { bytes_per_second: 1000, window: Duration::from_secs(60) },
            proxies: Vec::new(),
        }
    }

    struct Server {
        address: SocketAddr,
        stop: CancellationToken,
        serving: JoinHandle<()>,
        /// `/wait` answers when it gets one of these.
        permits: Arc<Semaphore>,
        /// Requests that wait.
        waiting: Arc<Semaphore>,
        /// Endless answers that ended.
        ended: Arc<Semaphore>,
    }

    struct Ended(Arc<Semaphore>);

    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }

    async fn start(limits: Limits) -> Server {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let [permits, waiting, ended] = std::array::from_fn(|_| Arc::new(Semaphore::new(0)));
        let (may_answer, waits, drops) = (permits.clone(), waiting.clone(), ended.clone());
        let wait = async move || {
            waits.add_permits(1);
            may_answer.acquire().await.unwrap().forget();
            "waited"
        };
        let endless = async move || {
            let guard = Ended(drops);
            let pieces = futures_util::stream::repeat_with(move || {
                let _guard = &guard;
                Ok::<_, std::convert::Infallible>(vec![7_u8; 16 * 1024])
            });
            Body::from_stream(pieces.boxed())
        };
        let router = Router::new()
            .route("/", get(async || "hello"))
            .route("/body", post(async |body: axum::body::Bytes| body.len().to_string()))
            .route("/wait", get(wait))
            .route("/endless", get(endless));
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, router, limits, stop.clone()));
        Server { address, stop, serving, permits, waiting, ended }
    }

    impl Server {
        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.address).await.unwrap()
        }

        async fn connect_from(&self, address: &str) -> TcpStream {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap();
            socket.connect(self.address).await.unwrap()
        }

        /// A request that is being answered.
        async fn begin_to_wait(&self) -> TcpStream {
            let mut stream = self.connect().await;
            stream.write_all(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            self.waiting.acquire().await.unwrap().forget();
            stream
        }
    }

    /// Everything until the connection ends, whichever way it does.
    async fn rest(mut stream: TcpStream) -> String {
        let mut bytes = Vec::new();
        drop(stream.read_to_end(&mut bytes).await);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    async fn ask(stream: &mut TcpStream) -> String {
        stream.write_all(REQUEST).await.unwrap();
        let mut bytes = vec![0; 4096];
        let count = stream.read(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    /// One byte after the other, until the connection is closed.
    async fn drip(stream: TcpStream) -> String {
        let (mut reading, mut writing) = stream.into_split();
        let dripping = tokio::spawn(async move {
            let mut every = tokio::time::interval(Duration::from_millis(50));
            while writing.write_all(b"x").await.is_ok() {
                every.tick().await;
            }
        });
        let mut bytes = Vec::new();
        drop(reading.read_to_end(&mut bytes).await);
        dripping.abort();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[tokio::test]
    async fn headers_have_a_time_limit_however_they_come() {
        let server = start(Limits { headers: Duration::from_secs(1), ..limits() }).await;
        let silent = server.connect().await;
        let mut half = server.connect().await;
        half.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n").await.unwrap();
        let mut dripping = server.connect().await;
        dripping.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx: ").await.unwrap();
        let mut second = server.connect().await;
        assert!(ask(&mut second).await.ends_with("hello"));
        second.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let (silent, half, second) = (rest(silent), rest(half), rest(second));
        let (silent, half, second, dripping) = tokio::join!(silent, half, second, drip(dripping));
        for answer in [silent, half, second] {
            assert!(answer.starts_with("HTTP/1.1 408"), "{answer:?}");
        }
        // Bytes that arrive with the end turn it into a reset, which may overtake the answer.
        assert!(dripping.is_empty() || dripping.starts_with("HTTP/1.1 408"), "{dripping:?}");
    }

    #[tokio::test]
    async fn a_connection_without_requests_is_closed_after_a_while() {
        let server = start(Limits { idle: Duration::from_secs(1), ..limits() }).await;
        let mut stream = server.connect().await;
        assert!(ask(&mut stream).await.ends_with("hello"));
        assert_eq!(rest(stream).await, "", "closed without a word");
    }

    #[tokio::test]
    async fn a_body_that_drips_is_given_up() {
        let least_rate = LeastRate { bytes_per_second: 1000, window: Duration::from_secs(1) };
        let server = start(Limits { least_rate, ..limits() }).await;
        let mut stream = server.connect().await;
        stream.write_all(b"POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n").await.unwrap();
        let answer = drip(stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer:?}");
        let mut whole = server.connect().await;
        let head = b"POST /body HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 5000\r\n\r\n";
        whole.write_all(head).await.unwrap();
        whole.write_all(&[7; 5000]).await.unwrap();
        assert!(rest(whole).await.ends_with("5000"));
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_dropped_and_a_slow_one_is_served() {
        let least_rate = LeastRate { bytes_per_second: 20_000, window: Duration::from_secs(2) };
        let server = start(Limits { least_rate, ..limits() }).await;
        let mut streams = Vec::new();
        for _ in 0..2 {
            let mut stream = server.connect().await;
            stream.write_all(b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            streams.push(stream);
        }
        let mut slow = streams.pop().unwrap();
        let (mut bytes, mut every) = (vec![0; 16 * 1024], tokio::time::interval(Duration::from_millis(100)));
        // 160 kB a second, until the one that takes nothing is gone.
        let until_dropped = server.ended.acquire();
        tokio::pin!(until_dropped);
        let mut permit = None;
        while permit.is_none() {
            tokio::select! {
                ended = &mut until_dropped => permit = Some(ended.unwrap()),
                _ = every.tick() => drop(slow.read_exact(&mut bytes).await.unwrap()),
            }
        }
        for _ in 0..60 {
            every.tick().await;
            slow.read_exact(&mut bytes).await.expect("served for three more windows");
        }
        assert_eq!(server.ended.available_permits(), 0, "only the other one was dropped");
    }

    #[tokio::test]
    async fn connections_that_wait_for_their_client_make_room_for_those_who_ask() {
        let openings: [&[u8]; 4] = [
            b"",
            b"GET / HTTP/1.1\r\nhost: a\r\nx: ",
            b"POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n",
            b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n",
        ];
        for limits in [Limits { total: 16, ..limits() }, Limits { per_client: 16, ..limits() }] {
            let server = start(limits).await;
            for opening in openings {
                let mut slow = Vec::new();
                for _ in 0..50 {
                    let mut stream = server.connect().await;
                    stream.write_all(opening).await.unwrap();
                    slow.push(stream);
                }
                for _ in 0..20 {
                    assert!(ask(&mut server.connect().await).await.ends_with("hello"), "{opening:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_client_with_its_share_of_requests_under_way_is_refused_and_others_are_not() {
        let proxies = vec!["127.0.0.3".parse().unwrap()];
        let server = start(Limits { per_client: 3, proxies, ..limits() }).await;
        let mut waiting = Vec::new();
        for _ in 0..3 {
            waiting.push(server.begin_to_wait().await);
        }
        let refused = rest(server.connect().await).await;
        assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after"), "{refused:?}");
        assert!(ask(&mut server.connect_from("127.0.0.2").await).await.ends_with("hello"));
        let mut through_proxy = Vec::new();
        for _ in 0..10 {
            let mut stream = server.connect_from("127.0.0.3").await;
            assert!(ask(&mut stream).await.ends_with("hello"));
            through_proxy.push(stream);
        }
        server.permits.add_permits(1);
        let mut bytes = [0; 12];
        waiting[0].read_exact(&mut bytes).await.unwrap();
        assert!(ask(&mut server.connect().await).await.ends_with("hello"), "the one that was answered makes room");
    }

    #[tokio::test]
    async fn everybody_together_is_limited_too() {
        let server = start(Limits { total: 2, ..limits() }).await;
        let _waiting = [server.begin_to_wait().await, server.begin_to_wait().await];
        let refused = rest(server.connect_from("127.0.0.2").await).await;
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused:?}");
    }

    #[tokio::test]
    async fn the_end_waits_for_answers_and_for_nothing_else() {
        let server = start(limits()).await;
        let mut idle = server.connect().await;
        assert!(ask(&mut idle).await.ends_with("hello"));
        let silent = server.connect().await;
        let asked = server.begin_to_wait().await;
        server.stop.cancel();
        assert_eq!(rest(idle).await, "");
        drop(rest(silent).await);
        assert!(!server.serving.is_finished());
        server.permits.add_permits(1);
        assert!(rest(asked).await.ends_with("waited"));
        server.serving.await.unwrap();
    }
}
