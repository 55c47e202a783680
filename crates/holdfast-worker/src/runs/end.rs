//! The end of a run: what it did, and everything that follows from that, in one fenced transaction.

use std::time::Duration;

use holdfast_app::{AppError, Result};
use holdfast_core::clock::seconds_between;
use holdfast_core::failure::FailureCode;
use holdfast_core::lease::Heartbeat;
use holdfast_core::run::RunStatus;
use holdfast_engine::{Context, EngineError};
use holdfast_store::runs::{self, RunRow};
use holdfast_store::{queue, tasks, workers};

use super::findings::note_contact;
use super::follow_up::FollowUp;
use super::job::{Assessed, ContactedServers, Ending, Job, RunOutcome, of_app};
use super::lease::{append_lines, counts, lease_until};
use crate::services::Services;

const LOST: &str = "The worker that had this run stopped responding before its end.";

/// The pause between attempts to write the end of a run while the database is unavailable.
const TRY_AGAIN: Duration = Duration::from_millis(500);

pub(super) struct End<'a> {
    pub services: &'a Services,
    pub run: &'a RunRow,
    pub context: &'a Context,
    pub lines: Vec<String>,
    pub job: Box<dyn Job>,
    pub result: Result<(), EngineError>,
    pub contacted: ContactedServers,
    pub has_crashed: bool,
}

impl End<'_> {
    /// Tries until the end is written or the lease would have expired. What was stored but not recorded is discarded.
    pub(super) async fn write(mut self) {
        let line = self.last_line();
        self.lines.push(line);
        let status = self.status();
        let deadline = tokio::time::Instant::now() + self.services.settings.lease;
        loop {
            match self.try_write(status).await {
                Ok(true) => break,
                Ok(false) => {
                    tracing::warn!(run = self.run.id.0, "lost the lease; another worker ends this run");
                    return self.job.discard(self.services).await;
                }
                Err(AppError::Unavailable(outage)) if tokio::time::Instant::now() < deadline => {
                    let reason = outage.reason;
                    tracing::warn!(run = self.run.id.0, reason, "the end of a run is not written yet; trying again");
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                Err(error) => return self.write_failure(error).await,
            }
        }
        self.count(status);
        let code = self.result.as_ref().err().map(|error| error.code.as_str());
        let kind = self.run.kind().as_str();
        tracing::info!(run = self.run.id.0, kind, status = status.as_str(), code, "run ended");
    }

    /// Records that the run failed, because its result could not be recorded.
    async fn write_failure(mut self, error: AppError) {
        tracing::error!(run = self.run.id.0, ?error, "the end of a run could not be written");
        self.result = Err(match error {
            AppError::Unavailable(_) => of_app(error),
            _ => EngineError::internal("What this run did could not be recorded."),
        });
        self.lines = vec![self.last_line()];
        match self.try_write(RunStatus::Failed).await {
            Ok(_) => self.job.discard(self.services).await,
            // An earlier commit may still take effect, so what is stored is kept, and the record of its upload too.
            Err(error) => tracing::error!(run = self.run.id.0, ?error, "the failure of a run could not be written"),
        }
    }

    /// Updates the metrics.
    fn count(&self, status: RunStatus) {
        let kind = self.run.kind().as_str();
        metrics::counter!("holdfast_runs_ended_total", "kind" => kind, "status" => status.as_str()).increment(1);
        if let Some(started) = self.run.started_at {
            let took = seconds_between(started.0, self.services.app.now());
            metrics::histogram!("holdfast_run_duration_seconds", "kind" => kind).record(took);
        }
        let moved = self.context.progress.counts();
        metrics::counter!("holdfast_run_bytes_read_total", "kind" => kind).increment(moved.bytes_read);
        metrics::counter!("holdfast_run_bytes_stored_total", "kind" => kind).increment(moved.bytes_stored);
    }

    fn status(&self) -> RunStatus {
        RunStatus::ended(self.result.as_ref().err().map(|error| error.code))
    }

    fn last_line(&self) -> String {
        match &self.result {
            Ok(()) => self.job.summary(),
            Err(error) => format!("{} {}", error.message, error.code.advice()),
        }
    }

    /// Returns false if another worker has the run by now.
    async fn try_write(&mut self, status: RunStatus) -> Result<bool> {
        let (services, run) = (self.services, self.run);
        let now = services.app.now();
        let (id, epoch) = (run.id, run.lease_epoch);
        let mut tx = services.app.store.begin().await?;
        // Locks the task before its run, as cancelling does: different orders could deadlock.
        let task = match run.subject.task() {
            Some(task) => tasks::find_locked(&mut tx, task).await?,
            None => None,
        };
        let ending = Ending { services, run, context: self.context, contacted: &self.contacted, now };
        let assessed = match self.result {
            Ok(()) => self.job.assess(&mut tx, &ending, task.as_ref()).await?,
            Err(_) => Assessed::default(),
        };
        // Writes the run before its lines, in the same order as ending a lost run does.
        let mut counts = counts(&self.context.progress, self.context.log.warnings(), 0.0);
        counts.warnings += assessed.warnings;
        runs::update_progress(&mut tx, id, epoch, &counts, lease_until(now, &services.settings)).await?;
        append_lines(&mut tx, id, epoch, &self.lines, now).await?;
        append_lines(&mut tx, id, epoch, &assessed.lines, now).await?;
        let error = self.result.as_ref().err();
        let code = error.map(|error| error.code);
        if !runs::finish(&mut tx, id, epoch, status, code, now).await? {
            return Ok(false);
        }
        note_contact(&mut tx, &ending, error, self.job.tells_of_failures()).await?;
        match error {
            None => self.job.record(&mut tx, &ending).await?,
            Some(error) => self.job.record_failure(&mut tx, &ending, error).await?,
        }
        let follow_up = FollowUp { run, epoch, code, is_loss: self.has_crashed, warnings: counts.warnings };
        let next = follow_up.write(&mut tx, &services.settings, now).await?;
        let failure = error.map(|error| (error.code, error.message.as_str()));
        let outcome = RunOutcome { run, failure, next, warnings: counts.warnings, now };
        self.job.tell(&mut tx, services, &outcome).await?;
        tx.commit().await?;
        services.app.wake_dispatcher();
        Ok(true)
    }
}

/// Ends a run whose worker stopped responding.
pub(super) async fn write_loss(services: &Services, lost: &Heartbeat, run: &RunRow, job: &dyn Job) -> Result<()> {
    let now = services.app.now();
    let mut tx = services.app.store.begin().await?;
    if let Some(task) = run.subject.task() {
        tasks::find_locked(&mut tx, task).await?;
    }
    let is_loss = !workers::was_stopping(&mut tx, lost.run).await?;
    let Some(epoch) = queue::fail_lost(&mut tx, lost, now).await? else { return Ok(()) };
    let line = format!("{LOST} {}", job.left_behind(&mut tx, run).await?);
    runs::append_line(&mut tx, lost.run, epoch, &line, now).await?;
    let code = FailureCode::WorkerLost;
    let follow_up = FollowUp { run, epoch, code: Some(code), is_loss, warnings: run.warnings };
    let next = follow_up.write(&mut tx, &services.settings, now).await?;
    let outcome = RunOutcome { run, failure: Some((code, LOST)), next, warnings: run.warnings, now };
    job.tell(&mut tx, services, &outcome).await?;
    tx.commit().await?;
    services.app.wake_dispatcher();
    // A worker that was killed while it stopped is no sign of trouble.
    metrics::counter!("holdfast_leases_lost_total").increment(u64::from(is_loss));
    tracing::warn!(run = run.id.0, "the worker of this run stopped responding; the run has been ended as failed");
    Ok(())
}
