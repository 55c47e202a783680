//! The control plane: turns due slots into runs, claims runs under a lease, brings each to its end, and tidies up.

mod execute;
mod scheduler;

use std::sync::Arc;
use std::time::Duration;

use holdfast_app::{App, Result};
use holdfast_core::{clock, random};
use holdfast_store::{At, audit, runs, sessions, tokens};
use tokio_util::sync::CancellationToken;

pub use scheduler::tick;

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

pub struct Worker {
    app: Arc<App>,
    /// Names this worker in the lease of a run.
    name: String,
}

/// Works until it is told to stop. A worker that panics is replaced: one bad run must not end all of them.
pub async fn supervise(app: Arc<App>, stop: CancellationToken) {
    loop {
        let (worker, told) = (Worker::new(app.clone()), stop.clone());
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
    pub fn new(app: Arc<App>) -> Self {
        Self { app, name: format!("worker-{}", random::hex(&random::bytes::<8>())) }
    }

    /// Works until it is told to stop; a run that has begun is brought to its end.
    pub async fn run(&self, stop: CancellationToken) {
        let queued = self.app.run_queued();
        let mut tidy = tokio::time::interval(TIDY_EVERY);
        let mut flush = tokio::time::interval(FLUSH_EVERY);
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => break,
                () = queued.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = tidy.tick() => self.report("tidying up", self.tidy().await).await,
                _ = flush.tick() => self.report("writing token uses", self.app.flush_token_use().await).await,
            }
            let worked = self.run_until_idle(&stop).await;
            self.report("working", worked).await;
        }
        if let Err(error) = self.app.flush_token_use().await {
            tracing::warn!(%error, "the last uses of tokens were not written");
        }
    }

    /// Does everything that can be done now. Tests call this in place of waiting.
    pub async fn run_until_idle(&self, stop: &CancellationToken) -> Result<()> {
        loop {
            let now = self.app.now();
            let waiting = runs::find_waiting(&mut self.app.store.read().await?, now).await?;
            if waiting.has_due_task {
                tick(&self.app, now).await?;
            }
            if waiting.has_lost_run {
                execute::fail_lost(&self.app).await?;
            }
            let worked = waiting.has_queued_run && execute::next(&self.app, &self.name).await?;
            if stop.is_cancelled() || !(worked || waiting.has_due_task) {
                return Ok(());
            }
        }
    }

    async fn tidy(&self) -> Result<()> {
        let now = self.app.now();
        let days_ago = |days: i64| clock::from_micros(now.as_microsecond() - days * 86_400_000_000);
        let mut tx = self.app.store.begin().await?;
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
