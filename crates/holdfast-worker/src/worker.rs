//! One worker: looks for what is due, starts runs while there is room, and does background work alongside them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_app::{App, Result, maintenance};
use holdfast_core::clock::later;
use holdfast_core::lease::{LeaseMonitor, REPORT_EVERY};
use holdfast_core::queue::LongRunCapacity;
use holdfast_core::{Timestamp, random};
use holdfast_engine::Engine;
use holdfast_notify::Sender;
use holdfast_store::queue::{self, Capacity};
use holdfast_store::workers;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::background::{self, Background};
use crate::notices::dispatcher::{self, Dispatcher};
use crate::notices::outbox::Outbox;
use crate::notices::warnings;
use crate::plans::Planner;
use crate::runs;
use crate::schedule::corrections::Corrector;
use crate::schedule::tick::tick;
use crate::services::Services;
use crate::settings::Settings;
use crate::upkeep::expiry::LogPosition;
use crate::upkeep::{daily_stats, due_reads, expiry};

/// The most characters that a host name may have.
const HOST_NAME_CHARS: usize = 64;
/// How often a worker looks for work that it was not notified of: slots coming due, workers that stopped responding.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// How often a worker tidies up: neither deleting what has expired nor verifying backups is urgent.
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// The last uses of tokens are collected for this long before they are written together.
const FLUSH_EVERY: Duration = Duration::from_secs(5);
/// The pause after a database error, so that the database is not overrun when it comes back.
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(2);
/// How many checks and tests one worker executes at a time, in addition to its long runs.
const SHORT_RUNS_AT_ONCE: usize = 8;
/// A database that hangs must not block the worker.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// A search for old logs begins once in this many times of tidying up.
const LOGS_EVERY: u64 = 60;
/// A worker that has not reported for this long is removed from the list.
const FORGET_SILENT_SECS: i64 = 86_400;
/// The time between cancelling what is still running and the end of the process, to record how it ended.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(4);

/// What a worker needs for its work.
#[derive(Clone)]
pub struct Parts {
    pub app: Arc<App>,
    pub engine: Engine,
    /// Where local destinations are.
    pub folder: PathBuf,
    pub settings: Settings,
    pub sender: Sender,
}

pub struct Worker {
    services: Services,
    /// Identifies this worker in the lease of a run.
    name: String,
    started: Timestamp,
    lease_monitor: Mutex<LeaseMonitor>,
    tidied: AtomicU64,
    /// Where the search for old logs continues, if the last pass had no time for all of them.
    logs: Mutex<LogPosition>,
    corrector: tokio::sync::Mutex<Corrector>,
}

/// The runs that a worker is executing.
#[derive(Default)]
struct UnderWay {
    long: JoinSet<()>,
    short: JoinSet<()>,
}

impl UnderWay {
    /// Waits until any of them ends; for ever if there is none.
    async fn next(&mut self) {
        tokio::select! {
            Some(_) = self.long.join_next() => {}
            Some(_) = self.short.join_next() => {}
            else => std::future::pending().await,
        }
    }

    async fn all(&mut self) {
        while self.long.join_next().await.is_some() {}
        while self.short.join_next().await.is_some() {}
    }

    fn len(&self) -> usize {
        self.long.len() + self.short.len()
    }
}

/// Works until it is told to stop. A worker that panics is replaced: one bad run must not end all of them.
pub async fn supervise(parts: Parts, stop: CancellationToken) {
    let _listening = AbortOnDropHandle::new(tokio::spawn(listen_for_queued(parts.app.clone())));
    loop {
        let (worker, told) = (Worker::new(parts.clone()), stop.clone());
        match tokio::spawn(Box::pin(async move { worker.run(told).await })).await {
            Ok(()) => return,
            Err(error) => {
                tracing::error!(%error, "a worker ended unexpectedly; another takes its place");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

/// The name of this machine or container, for the names of its workers.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let plain: String = name.chars().filter(is_plain).take(HOST_NAME_CHARS).collect();
    if plain.is_empty() { "worker".to_owned() } else { plain }
}

/// Wakes the worker when another process queues a run.
async fn listen_for_queued(app: Arc<App>) {
    loop {
        if let Err(error) = app.store.listen_for_queued(|| app.wake_worker()).await {
            tracing::debug!(%error, "no notifications of runs queued by other processes; polling for them");
        }
        tokio::time::sleep(PAUSE_AFTER_ERROR).await;
    }
}

impl Worker {
    pub fn new(parts: Parts) -> Self {
        let Parts { app, engine, folder, settings, sender } = parts;
        let halt = CancellationToken::new();
        let outbox = Outbox::new(sender.base_url(), settings.incident_tasks);
        let services = Services { app, engine, planner: Planner { folder }, settings, halt, outbox, sender };
        let name = format!("{}-{}", host_name(), random::hex(&random::bytes::<4>()));
        let started = services.app.now();
        Self {
            services,
            name,
            started,
            lease_monitor: Mutex::default(),
            tidied: AtomicU64::new(0),
            logs: Mutex::default(),
            corrector: Default::default(),
        }
    }

    fn app(&self) -> &Arc<App> {
        &self.services.app
    }

    /// Works until it is told to stop; runs that have begun may still finish, as far as there is time.
    pub async fn run(&self, stop: CancellationToken) {
        let queued = self.app().run_queued();
        // A separate task, so that users are notified whatever blocks the rest.
        let delivering = AbortOnDropHandle::new(tokio::spawn(dispatcher::supervise(self.dispatcher(), stop.clone())));
        let mut report = tokio::time::interval(REPORT_EVERY);
        report.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut tidy = tokio::time::interval(TIDY_EVERY);
        let mut flush = tokio::time::interval(FLUSH_EVERY);
        let mut poll = tokio::time::interval(POLL_EVERY);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut under_way, mut background) = (UnderWay::default(), Background::default());
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => break,
                () = queued.notified() => {}
                () = under_way.next() => {}
                _ = poll.tick() => {
                    // More may be due than one poll handles.
                    if self.in_time(Box::pin(self.poll(&mut background))).await == Some(true) {
                        poll.reset_immediately();
                    }
                }
                _ = report.tick() => drop(self.in_time(Box::pin(self.report_alive())).await),
                _ = tidy.tick() => {
                    background.start(&self.services, background::BackgroundWork::DailyStats);
                    self.in_time(Box::pin(self.tidy())).await;
                }
                _ = flush.tick() => drop(self.in_time(Box::pin(self.app().flush_token_use())).await),
            }
            if !stop.is_cancelled() {
                self.in_time(Box::pin(self.start_runs(&mut under_way))).await;
            }
        }
        if under_way.len() > 0
            && let Err(error) = self.mark_stopping().await
        {
            tracing::warn!(%error, "could not record that this worker stops");
        }
        self.drain(under_way).await;
        if let Err(error) = delivering.await {
            tracing::error!(%error, "deliveries ended unexpectedly");
        }
        if let Err(error) = self.app().flush_token_use().await {
            tracing::warn!(%error, "the last uses of tokens were not written");
        }
        if let Err(error) = self.leave().await {
            tracing::warn!(%error, "could not remove this worker from the list of workers");
        }
    }

    fn dispatcher(&self) -> Dispatcher {
        Dispatcher::new(self.app().clone(), self.services.sender.clone())
    }

    /// Lets runs finish; those that take too long are cancelled, so that their end is recorded.
    async fn drain(&self, mut under_way: UnderWay) {
        if tokio::time::timeout(self.services.settings.shutdown, under_way.all()).await.is_ok() {
            return;
        }
        tracing::warn!(runs = under_way.len(), "cancelling runs that did not end in time");
        self.services.halt.cancel();
        if tokio::time::timeout(SHUTDOWN_GRACE, under_way.all()).await.is_err() {
            tracing::warn!(runs = under_way.len(), "some runs did not end; another worker will mark them as failed");
        }
    }

    /// Does what is due. Returns true if runs were queued, because more may be due then.
    async fn poll(&self, background: &mut Background) -> Result<bool> {
        let (waiting, queued) = self.end_lost_and_queue_due().await?;
        background.start_due(&self.services, waiting);
        Ok(queued > 0)
    }

    /// Starts runs while there is room.
    async fn start_runs(&self, under_way: &mut UnderWay) -> Result<()> {
        while under_way.long.try_join_next().is_some() || under_way.short.try_join_next().is_some() {}
        let Settings { runs_at_once, at_once, .. } = self.services.settings;
        let free = runs_at_once.saturating_sub(under_way.long.len());
        let room = Capacity {
            long: LongRunCapacity::of_worker(free, runs_at_once, at_once),
            short: SHORT_RUNS_AT_ONCE.saturating_sub(under_way.short.len()),
        };
        if !queue::has_queued(&mut self.app().store.read().await?).await? || !self.may_start_runs().await? {
            return Ok(());
        }
        for run in runs::claim(&self.services, &self.name, room).await? {
            let services = self.services.clone();
            let place = if run.kind().is_long() { &mut under_way.long } else { &mut under_way.short };
            place.spawn(async move { runs::execute(&services, run).await });
        }
        Ok(())
    }

    /// Whether there is no maintenance, and nobody has told this worker to start no runs.
    async fn may_start_runs(&self) -> Result<bool> {
        if maintenance::until(self.app()).await?.is_some() {
            return Ok(false);
        }
        Ok(!workers::is_draining(&mut self.app().store.read().await?, &self.name).await?)
    }

    /// Does everything that can be done now, one run after the other. Tests call this in place of waiting.
    pub async fn run_until_idle(&self, stop: &CancellationToken) -> Result<()> {
        loop {
            let (waiting, _) = self.end_lost_and_queue_due().await?;
            background::run_due(&self.services, waiting).await?;
            let room = Capacity { long: LongRunCapacity { free: 1, reserved: 0 }, short: 1 };
            let may_start = waiting.has_queued_run && self.may_start_runs().await?;
            let runs = if may_start { runs::claim(&self.services, &self.name, room).await? } else { Vec::new() };
            let has_run = !runs.is_empty();
            for run in runs {
                runs::execute(&self.services, run).await;
            }
            if stop.is_cancelled() || !(has_run || waiting.has_due_task) {
                return self.dispatcher().deliver_due().await;
            }
        }
    }

    /// Queues the runs that are due without starting any. Returns their number.
    pub async fn tick(&self) -> Result<usize> {
        tick(self.app(), &self.services.outbox, self.app().now()).await
    }

    /// Delivers what is due. Tests call this in place of waiting.
    pub async fn deliver_due(&self) -> Result<()> {
        self.dispatcher().deliver_due().await
    }

    /// Reports overdue tasks. Tests call this in place of waiting.
    pub async fn report_overdue(&self) -> Result<()> {
        warnings::tell_of_overdue(&self.services).await
    }

    /// Tidies up, as happens now and then. Tests call this in place of waiting.
    pub async fn tidy(&self) -> Result<()> {
        let is_time_for_logs = self.tidied.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOGS_EVERY);
        let services = &self.services;
        self.corrector.lock().await.look(&services.app, &services.settings, &self.name).await?;
        let logs = self.log_position().or_else(|| is_time_for_logs.then(Default::default));
        let logs = expiry::delete(services, logs).await?;
        *self.logs.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = logs;
        expiry::fold_totals(services).await?;
        warnings::tell_of_tokens(&self.services).await?;
        warnings::tell_of_incidents(&self.services).await?;
        due_reads::queue(&self.services).await
    }

    fn log_position(&self) -> LogPosition {
        *self.logs.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Updates the daily statistics. Tests call this in place of waiting.
    pub async fn update_daily_stats(&self) -> Result<()> {
        daily_stats::write(self.app()).await
    }

    /// Reports that this worker is alive, and deletes workers that have not done so for long. Part of the main loop, so
    /// that one that hangs is not reported as running.
    pub async fn report_alive(&self) -> Result<()> {
        let now = self.app().now();
        let mut tx = self.app().store.begin().await?;
        workers::upsert(&mut tx, &self.name, env!("CARGO_PKG_VERSION"), self.started, now).await?;
        workers::delete_silent(&mut tx, later(now, -FORGET_SILENT_SECS)).await?;
        Ok(tx.commit().await?)
    }

    /// Records that this worker was told to stop: if it is killed before its runs have ended, they are not to blame.
    async fn mark_stopping(&self) -> Result<()> {
        let mut tx = self.app().store.begin().await?;
        workers::mark_stopping(&mut tx, &self.name).await?;
        Ok(tx.commit().await?)
    }

    /// Removes this worker from the list after an orderly shutdown.
    async fn leave(&self) -> Result<()> {
        let mut tx = self.app().store.begin().await?;
        workers::delete(&mut tx, &self.name).await?;
        Ok(tx.commit().await?)
    }

    /// Ends lost runs, queues due ones and reports overdue tasks. Returns what there was to do, and how many runs were
    /// queued.
    async fn end_lost_and_queue_due(&self) -> Result<(queue::Waiting, usize)> {
        let app = self.app();
        let now = app.now();
        let waiting = self.find_waiting(now).await?;
        for lost in self.find_lost(waiting).await? {
            runs::fail_lost(&self.services, &lost).await?;
        }
        let queued = if waiting.has_due_task { tick(app, &self.services.outbox, now).await? } else { 0 };
        if queued > 0 {
            app.wake_worker();
            // Some slots may have been missed, which is reported.
            app.wake_dispatcher();
        }
        if waiting.has_overdue {
            warnings::tell_of_overdue(&self.services).await?;
        }
        Ok((waiting, queued))
    }

    /// What there is to do; during maintenance, nothing that contacts a destination or reports that nothing runs.
    async fn find_waiting(&self, now: Timestamp) -> Result<queue::Waiting> {
        let found = queue::find_waiting(&mut self.app().store.read().await?, now).await?;
        let may_pause = found.has_removal || found.has_upload || found.has_catalogue || found.has_overdue;
        if !may_pause || maintenance::until(self.app()).await?.is_none() {
            return Ok(found);
        }
        Ok(queue::Waiting { has_removal: false, has_upload: false, has_catalogue: false, has_overdue: false, ..found })
    }

    /// Runs whose workers have sent no heartbeat for the length of a lease, as far as this worker has observed.
    async fn find_lost(&self, waiting: queue::Waiting) -> Result<Vec<holdfast_core::lease::Heartbeat>> {
        let app = self.app();
        let running = if waiting.has_running_run {
            queue::list_heartbeats(&mut app.store.read().await?).await?
        } else {
            Vec::new()
        };
        let mut monitor = self.lease_monitor.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Ok(monitor.look(&running, self.services.settings.lease, app.now()))
    }

    /// The result of a step. If it fails or hangs, that is logged, and the worker continues after a pause.
    async fn in_time<T>(&self, step: impl Future<Output = Result<T>>) -> Option<T> {
        match tokio::time::timeout(STEP_LIMIT, step).await {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(error)) => tracing::error!(?error, "the worker continues after an error"),
            Err(_) => tracing::error!("the worker continues after a step that took too long"),
        }
        tokio::time::sleep(PAUSE_AFTER_ERROR).await;
        None
    }
}
