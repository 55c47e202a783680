//! The open connections: what each is doing and since when, when it takes too long, and which are closed to make room.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use holdfast_core::network::ClientKey;
use holdfast_core::rate::{MinimumRate, Pace};
use tokio::sync::Notify;

use super::limits::{CLOSED, LEAST_CONNECTIONS, Limits, OPEN, Reason};

/// An ordinary client sends a complete request within this time, and a connection idle for less may be in use.
const RECENT: Duration = Duration::from_secs(1);
/// The minimum interval between summaries in the log.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// The pause after an error of `accept`, such as too many open files, which an immediate retry would not resolve.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// All open connections of a listener.
pub(super) struct Connections {
    limits: Limits,
    started: Instant,
    pub(super) open: Mutex<Open>,
    closed: Mutex<Closed>,
}

#[derive(Default)]
pub(super) struct Open {
    by_id: HashMap<u64, Arc<Connection>>,
    by_client: HashMap<ClientKey, usize>,
    next_id: u64,
}

impl Open {
    pub(super) fn remove(&mut self, id: u64) {
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

/// The connections closed since the last summary.
#[derive(Default)]
struct Closed {
    counts: [u64; Reason::ALL.len()],
    reported_at: Option<Instant>,
}

impl Connections {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, started: Instant::now(), open: Mutex::default(), closed: Mutex::default() }
    }

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Admits a new connection. If the client, or all clients together, have too many, the connections that have waited
    /// longest for their client are closed. A client that sends ordinary requests is served whatever others do.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Arc<Connection>, Reason> {
        let is_proxy = self.limits.proxies.iter().any(|network| network.contains(address));
        let client = (!is_proxy).then(|| ClientKey::of(address));
        let mut open = locked(&self.open);
        let own = client.and_then(|client| open.by_client.get(&client)).copied().unwrap_or(0);
        if own >= self.limits.per_client && self.make_room(&mut open, 1, |other| other.client == client) == 0 {
            self.count(Reason::ClientLimit);
            return Err(Reason::ClientLimit);
        }
        if open.by_id.len() >= self.limits.total {
            // Close several at once, because a search through all connections for each new one would be expensive.
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

    /// Closes up to `wanted` connections that wait for their client, and returns how many were closed. Slow ones go
    /// first, those that wait longest before the others. A connection in use is closed only if there is no other.
    fn make_room(&self, open: &mut Open, wanted: usize, may_go: impl Fn(&Connection) -> bool) -> usize {
        let now = self.now();
        let waiting = open.by_id.values().filter(|connection| may_go(connection)).filter_map(|connection| {
            let (priority, since) = locked(&connection.state).priority(self.limits.least_rate, now)?;
            Some((priority, std::cmp::Reverse(since), connection.id))
        });
        let mut waiting: Vec<_> = waiting.collect();
        if wanted < waiting.len() {
            waiting.select_nth_unstable(wanted);
            waiting.truncate(wanted);
        }
        waiting.sort_unstable();
        let mut ended = 0;
        for (priority, _, id) in waiting {
            if ended > 0 && priority == Priority::InUse {
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

    /// Handles an error of `accept`: either the client disconnected, or a system resource is exhausted.
    pub(super) async fn recover(&self, error: &std::io::Error) {
        use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
            return;
        }
        tracing::debug!(%error, "could not accept a connection");
        self.count(Reason::AcceptFailed);
        self.make_room(&mut locked(&self.open), LEAST_CONNECTIONS, |_| true);
        tokio::time::sleep(PAUSE_AFTER_ERROR).await;
    }

    pub(super) fn count(&self, reason: Reason) {
        metrics::counter!(CLOSED, "reason" => reason.as_str()).increment(1);
        locked(&self.closed).counts[reason as usize] += 1;
    }

    /// Closes connections that exceed a time limit. While the service is stopping, the limit for headers is shorter.
    pub(super) fn end_overdue(&self, is_stopping: bool) {
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

    /// Logs one summary of all connections closed since the last one.
    pub(super) fn report(&self) {
        let open = locked(&self.open).by_id.len();
        let mut closed = locked(&self.closed);
        let is_recent = closed.reported_at.is_some_and(|at| at.elapsed() < REPORT_EVERY);
        // Idle time-outs alone are not worth a line.
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

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub(super) struct Connection {
    pub(super) id: u64,
    /// The client whose limit it counts towards; `None` behind a trusted proxy.
    pub(super) client: Option<ClientKey>,
    pub(super) connections: Arc<Connections>,
    pub(super) state: Mutex<State>,
    pub(super) reason: OnceLock<Reason>,
    pub(super) told: Notify,
}

impl Connection {
    pub(super) fn end(&self, reason: Reason) {
        if self.reason.set(reason).is_ok() {
            self.connections.count(reason);
            self.told.notify_one();
        }
    }

    /// Resolves when this connection must be closed.
    pub(super) async fn ended(&self) -> Reason {
        loop {
            self.told.notified().await;
            if let Some(reason) = self.reason.get() {
                return *reason;
            }
        }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut State, Duration)) {
        let now = self.connections.now();
        change(&mut locked(&self.state), now);
    }

    pub(super) fn request_begins(&self) {
        self.change(|state, now| {
            *state = State { phase: Phase::Request, since: now, writing: state.writing, ..State::new(now) };
        });
    }

    pub(super) fn answer_ends(&self) {
        self.change(|state, now| {
            let phase = if state.has_read_ahead { Phase::Headers } else { Phase::Idle };
            *state = State { phase, since: now, writing: state.writing, ..State::new(now) };
        });
    }
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Headers,
    Request,
    Idle,
}

/// The order in which connections are closed to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Priority {
    /// Slower than an ordinary client.
    Slow,
    Idle,
    /// Too new to have sent a complete request.
    New,
    /// Used a moment ago, or receiving a response.
    InUse,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    phase: Phase,
    since: Duration,
    /// The pace of the request body, while the handler waits for it.
    pub(super) reading: Pace,
    /// The pace of writing to the client, for this request and earlier ones.
    pub(super) writing: Pace,
    pub(super) is_body_read: bool,
    /// Part of the next request has arrived before this one is answered.
    has_read_ahead: bool,
}

impl State {
    /// A new connection starts by sending headers.
    pub(super) fn new(now: Duration) -> Self {
        Self {
            phase: Phase::Headers,
            since: now,
            reading: Pace::default(),
            writing: Pace::default(),
            is_body_read: false,
            has_read_ahead: false,
        }
    }

    pub(super) fn received(&mut self, now: Duration) {
        match self.phase {
            Phase::Idle => *self = Self { writing: self.writing, ..Self::new(now) },
            Phase::Request if self.is_body_read => self.has_read_ahead = true,
            Phase::Request | Phase::Headers => {}
        }
    }

    pub(super) fn overdue(&mut self, limits: &Limits, now: Duration) -> Option<Reason> {
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

    /// Its priority and how long it has waited for the client; `None` while the service is working on its request.
    pub(super) fn priority(&self, least: MinimumRate, now: Duration) -> Option<(Priority, Duration)> {
        let slow_or = |priority: Priority, waited: Duration| {
            Some((if waited < RECENT { priority } else { Priority::Slow }, waited))
        };
        if let Some(waited) = self.writing.behind(least, now).max(self.reading.behind(least, now)) {
            return slow_or(Priority::New, waited);
        }
        // A response that the client does not read: what the kernel buffered at first says nothing about the client.
        if let Some(stalled) = self.writing.stalled(now).max(self.reading.stalled(now)) {
            return slow_or(Priority::InUse, stalled);
        }
        let waited = now.saturating_sub(self.since);
        match self.phase {
            Phase::Request => None,
            Phase::Headers => slow_or(Priority::New, waited),
            Phase::Idle => Some((if waited < RECENT { Priority::InUse } else { Priority::Idle }, waited)),
        }
    }
}
