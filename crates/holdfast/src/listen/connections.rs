//! One connection: what it is doing, since when, and when that takes too long.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use holdfast_core::network::ClientKey;
use holdfast_core::rate::{LeastRate, Pace};
use tokio::sync::Notify;

use super::{Connections, Limits, RECENT, Reason, locked};

pub(super) struct Connection {
    pub(super) id: u64,
    /// Whom it counts for; nobody when a proxy stands between.
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

    /// Resolves when this connection is to be closed.
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

/// Which connections make room first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Sends or takes less than an ordinary client would.
    Slow,
    Idle,
    /// Has not had the time yet to send a whole request.
    New,
    /// Was used a moment ago, or reads an answer.
    InUse,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    phase: Phase,
    since: Duration,
    /// The body of the request, as far as we wait for it.
    pub(super) reading: Pace,
    /// What we have for the client, of this request and the ones before.
    pub(super) writing: Pace,
    pub(super) is_body_read: bool,
    /// Some of the next request is here before this one is answered.
    has_read_ahead: bool,
}

impl State {
    /// A new connection is one that sends its first headers.
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

    /// How it stands beside the others, and for how long; `None` while it is we who have something to do.
    pub(super) fn standing(&self, least: LeastRate, now: Duration) -> Option<(Standing, Duration)> {
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
