//! The control plane: turns due slots into runs, claims runs under a lease, brings each to its end, and tidies up.

mod archives;
mod execute;
mod lease;
mod plans;
mod removal;
mod scheduler;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_app::{App, Result};
use holdfast_core::{clock, random};
use holdfast_engine::Engine;
use holdfast_store::{At, audit, runs, sessions, tokens};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use archives::StoredArchives;
pub use scheduler::tick;

use crate::execute::Executor;
use crate::plans::Planner;

/// How often a worker looks for work that nobody told it of: slots coming due, runs queued by other processes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Sessions and links that expired are only dead weight; hourly is often enough.
const TIDY_EVERY: Duration = Duration::from_secs(3600);
/// Tokens' last uses are gathered for this long before they are written in one go.
const FLUSH_EVERY: Duration = Duration::from_secs(5);
/// After the database did not answer, so that its return is not met by a stampede.
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(2);

/// Long enough to look back at what went wrong last month, and at a year of who did what.
const KEEP_CHECKS_DAYS: i64 = 30;
const KEEP_EXPIRED_TOKENS_DAYS: i64 = 30;
const KEEP_AUDIT_DAYS: i64 = 400;

/// What a worker works with.
#[derive(Clone)]
pub struct Parts {
    pub app: Arc<App>,
    pub engine: Engine,
    /// Where local destinations are.
    pub folder: PathBuf,
    /// Runs that one worker has under way at a time.
    pub runs_at_once: usize,
}

pub struct Worker {
    executor: Executor,
    runs_at_once: usize,
    /// Names this worker in the lease of a run.
    name: String,
}

/// Works until it is told to stop. A worker that panics is replaced: one bad run must not end all of them.
pub async fn supervise(parts: Parts, stop: CancellationToken) {
    loop {
        let (worker, told) = (Worker::new(parts.clone()), stop.clone());
        match tokio::spawn(async move { worker.run(told).await }).await {
            Ok(()) => return,
            Err(error) => {
                tracing::error!(%error, "a worker ended unexpectedly; another takes its place");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

impl Worker {
    pub fn new(parts: Parts) -> Self {
        let Parts { app, engine, folder, runs_at_once } = parts;
        let executor = Executor { app, engine, planner: Planner { folder } };
        Self { executor, runs_at_once, name: format!("worker-{}", random::hex(&random::bytes::<8>())) }
    }

    fn app(&self) -> &Arc<App> {
        &self.executor.app
    }

    /// Works until it is told to stop; runs that have begun are brought to their end.
    pub async fn run(&self, stop: CancellationToken) {
        let queued = self.app().run_queued();
        let mut tidy = tokio::time::interval(TIDY_EVERY);
        let mut flush = tokio::time::interval(FLUSH_EVERY);
        // Dropped at the end, which ends what is not done: it is on record, and goes on with the next start.
        let (mut under_way, mut clearing) = (JoinSet::new(), JoinSet::new());
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => break,
                () = queued.notified() => {}
                Some(_) = under_way.join_next() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = tidy.tick() => self.report("tidying up", self.tidy().await).await,
                _ = flush.tick() => self.report("writing token uses", self.app().flush_token_use().await).await,
            }
            let worked = self.start_runs(&mut under_way, &mut clearing, &stop).await;
            self.report("working", worked).await;
        }
        while under_way.join_next().await.is_some() {}
        if let Err(error) = self.app().flush_token_use().await {
            tracing::warn!(%error, "the last uses of tokens were not written");
        }
    }

    /// Does what is due, and starts runs as long as there is room.
    async fn start_runs(
        &self,
        under_way: &mut JoinSet<()>,
        clearing: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) -> Result<()> {
        while !stop.is_cancelled() {
            let waiting = self.do_chores().await?;
            self.start_clearing(clearing, waiting);
            while under_way.try_join_next().is_some() {}
            if !waiting.has_queued_run || under_way.len() >= self.runs_at_once {
                return Ok(());
            }
            let Some(run) = self.executor.claim(&self.name).await? else { return Ok(()) };
            let executor = self.executor.clone();
            under_way.spawn(async move { executor.run(run).await });
        }
        Ok(())
    }

    /// Does everything that can be done now, one run after the other. Tests call this in place of waiting.
    pub async fn run_until_idle(&self, stop: &CancellationToken) -> Result<()> {
        loop {
            let waiting = self.do_chores().await?;
            Self::clear_away(&self.executor, waiting).await?;
            let run = if waiting.has_queued_run { self.executor.claim(&self.name).await? } else { None };
            let has_run = run.is_some();
            if let Some(run) = run {
                self.executor.run(run).await;
            }
            if stop.is_cancelled() || !(has_run || waiting.has_due_task) {
                return Ok(());
            }
        }
    }

    async fn do_chores(&self) -> Result<runs::Waiting> {
        let app = self.app();
        let now = app.now();
        let waiting = runs::find_waiting(&mut app.store.read().await?, now).await?;
        if waiting.has_due_task {
            tick(app, now).await?;
        }
        if waiting.has_lost_run {
            self.executor.fail_lost().await?;
        }
        Ok(waiting)
    }

    /// Removes what is not wanted any more. Destinations may be slow to answer, so nothing else waits for this.
    async fn clear_away(executor: &Executor, waiting: runs::Waiting) -> Result<()> {
        if waiting.has_removal {
            removal::remove_deleted(&executor.app, &executor.engine, &executor.planner).await?;
        }
        if waiting.has_upload {
            removal::clear_uploads(&executor.app, &executor.engine, &executor.planner).await?;
        }
        Ok(())
    }

    /// Starts to clear away, unless that is under way.
    fn start_clearing(&self, clearing: &mut JoinSet<()>, waiting: runs::Waiting) {
        while clearing.try_join_next().is_some() {}
        if clearing.is_empty() && (waiting.has_removal || waiting.has_upload) {
            let executor = self.executor.clone();
            clearing.spawn(async move {
                if let Err(error) = Self::clear_away(&executor, waiting).await {
                    tracing::error!(?error, "clearing away goes on later");
                }
            });
        }
    }

    async fn tidy(&self) -> Result<()> {
        let now = self.app().now();
        let days_ago = |days: i64| clock::from_micros(now.as_microsecond() - days * 86_400_000_000);
        let mut tx = self.app().store.begin().await?;
        sessions::delete_expired(&mut tx, now).await?;
        runs::delete_old_checks(&mut tx, days_ago(KEEP_CHECKS_DAYS)).await?;
        tokens::delete_expired(&mut tx, days_ago(KEEP_EXPIRED_TOKENS_DAYS)).await?;
        audit::delete_before(&mut tx, At(days_ago(KEEP_AUDIT_DAYS))).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn report(&self, doing: &str, result: Result<()>) {
        if let Err(error) = result {
            tracing::error!(?error, doing, "the worker goes on after an error");
            tokio::time::sleep(PAUSE_AFTER_ERROR).await;
        }
    }
}
