//! A claimed run while it is executed: renews its lease, writes its progress and log lines, and notices when it is to
//! be cancelled. A worker that cannot renew the lease gives up the run before anybody else may take it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_app::{App, Result};
use holdfast_core::ids::RunId;
use holdfast_core::{Timestamp, clock};
use holdfast_engine::{Context, Progress};
use holdfast_store::runs::{self, LeaseState, RunCounts, RunRow};
use holdfast_store::{StoreError, Tx};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;

/// How often progress is written; also how fast a cancellation is noticed.
const BEAT: Duration = Duration::from_secs(1);

/// When a lease that is renewed now expires. This is for display; workers detect a lost run by its missing heartbeats.
pub(crate) fn lease_until(now: Timestamp, settings: &Settings) -> Timestamp {
    let micros = i64::try_from(settings.lease.as_micros()).unwrap_or(i64::MAX / 4);
    clock::from_micros(now.as_microsecond() + micros)
}

/// The context of a run's work, and the task that sends its heartbeats.
pub(crate) struct Lease {
    pub context: Context,
    pub run: RunRow,
    lost: Arc<AtomicBool>,
    cancelled: Arc<AtomicBool>,
    stop: CancellationToken,
    beating: JoinHandle<Lines>,
}

/// A run whose work has ended and whose lease is still ours.
pub(crate) struct Finished {
    pub run: RunRow,
    pub context: Context,
    /// Log lines that are still to be written.
    pub lines: Vec<String>,
    /// Somebody requested that it be cancelled.
    pub is_cancelled: bool,
}

/// Log lines that are not written yet.
struct Lines {
    received: mpsc::UnboundedReceiver<String>,
    waiting: Vec<String>,
}

/// A run whose worker panicked must not keep sending heartbeats: others have to see that it is lost.
impl Drop for Lease {
    fn drop(&mut self) {
        self.stop.cancel();
        self.context.cancel.cancel();
    }
}

impl Lease {
    pub(crate) fn start(app: Arc<App>, settings: Settings, run: RunRow) -> Self {
        let (context, received) = Context::new(CancellationToken::new());
        let (lost, cancelled) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let stop = CancellationToken::new();
        let renewal = LeaseRenewal {
            app,
            settings,
            id: run.id,
            epoch: run.lease_epoch,
            context: context.clone(),
            lost: lost.clone(),
            cancelled: cancelled.clone(),
            renewed: Instant::now(),
            before: (Instant::now(), 0),
            rate: 0.0,
        };
        let lines = Lines { received, waiting: Vec::new() };
        let beating = tokio::spawn(renewal.beat_until(stop.clone(), lines));
        Self { context, run, lost, cancelled, stop, beating }
    }

    /// Stops the heartbeats. Returns `None` if the lease was lost.
    pub(crate) async fn finish(mut self) -> Option<Finished> {
        self.stop.cancel();
        let mut rest = Vec::new();
        match (&mut self.beating).await {
            Ok(mut lines) => {
                rest.append(&mut lines.waiting);
                while let Ok(line) = lines.received.try_recv() {
                    rest.push(line);
                }
            }
            Err(error) => tracing::error!(%error, run = self.run.id.0, "the log of a run was lost"),
        }
        let is_cancelled = self.cancelled.load(Ordering::SeqCst);
        let finished = Finished { run: self.run.clone(), context: self.context.clone(), lines: rest, is_cancelled };
        (!self.lost.load(Ordering::SeqCst)).then_some(finished)
    }
}

pub(crate) fn counts(progress: &Progress, warnings: u64, rate: f64) -> RunCounts {
    let counts = progress.counts();
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    RunCounts {
        bytes_read: number(counts.bytes_read),
        bytes_stored: number(counts.bytes_stored),
        files: number(counts.files),
        warnings: number(warnings),
        bytes_total: number(counts.bytes_total),
        files_total: number(counts.files_total),
        bytes_per_second: rate as i64,
    }
}

struct LeaseRenewal {
    app: Arc<App>,
    settings: Settings,
    id: RunId,
    epoch: i64,
    context: Context,
    lost: Arc<AtomicBool>,
    cancelled: Arc<AtomicBool>,
    renewed: Instant,
    /// When bytes were last counted, and how many there were.
    before: (Instant, u64),
    rate: f64,
}

impl LeaseRenewal {
    async fn beat_until(mut self, stop: CancellationToken, mut lines: Lines) -> Lines {
        // The claim was the first heartbeat.
        let mut ticks = tokio::time::interval_at(Instant::now() + BEAT, BEAT);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return lines,
                _ = ticks.tick() => {}
            }
            while let Ok(line) = lines.received.try_recv() {
                lines.waiting.push(line);
            }
            // The lease counts from before the heartbeat, however long the database took.
            let begun = Instant::now();
            // A database that hangs must not keep a worker from giving up.
            match tokio::time::timeout(self.settings.lease / 4, self.beat(&mut lines.waiting)).await {
                Ok(Ok(LeaseState::Continue)) => self.renewed = begun,
                Ok(Ok(LeaseState::Cancel)) => {
                    self.renewed = begun;
                    self.cancelled.store(true, Ordering::SeqCst);
                    self.context.cancel.cancel();
                }
                Ok(Ok(LeaseState::Lost)) => self.give_up("another worker has this run"),
                Ok(Err(error)) => tracing::warn!(%error, run = self.id.0, "the lease was not renewed"),
                Err(_) => tracing::warn!(run = self.id.0, "the lease was not renewed in time"),
            }
            if self.renewed.elapsed() > self.settings.lease - self.settings.margin() {
                self.give_up("the database has been unavailable for too long");
            }
        }
    }

    fn give_up(&self, why: &str) {
        if !self.lost.swap(true, Ordering::SeqCst) {
            tracing::warn!(run = self.id.0, why, "giving up this run");
        }
        self.context.cancel.cancel();
    }

    async fn beat(&mut self, lines: &mut Vec<String>) -> Result<LeaseState> {
        let now = self.app.now();
        let rate = self.measure();
        let counts = counts(&self.context.progress, self.context.log.warnings(), rate);
        let mut tx = self.app.store.begin().await?;
        let beat =
            runs::update_progress(&mut tx, self.id, self.epoch, &counts, lease_until(now, &self.settings)).await?;
        // Writes the run before its lines, in the same order as ending a lost run does.
        append_lines(&mut tx, self.id, self.epoch, lines, now).await?;
        tx.commit().await?;
        lines.clear();
        Ok(beat)
    }

    /// Bytes per second, smoothed over some seconds.
    fn measure(&mut self) -> f64 {
        let (then, bytes) = self.before;
        let now = (Instant::now(), self.context.progress.counts().bytes_read);
        let elapsed = now.0.duration_since(then).as_secs_f64();
        if elapsed > 0.1 {
            let current = now.1.saturating_sub(bytes) as f64 / elapsed;
            self.rate = if self.rate == 0.0 { current } else { self.rate * 0.7 + current * 0.3 };
            self.before = now;
        }
        self.rate
    }
}

pub(crate) async fn append_lines(
    tx: &mut Tx,
    id: RunId,
    epoch: i64,
    lines: &[String],
    now: Timestamp,
) -> Result<(), StoreError> {
    for line in lines {
        runs::append_line(tx, id, epoch, line, now).await?;
    }
    Ok(())
}
