//! What the end of a run means for its task: it has run, it may be retried, or it is paused for losing its workers.

use holdfast_app::Origin;
use holdfast_core::Timestamp;
use holdfast_core::audit::AuditAction;
use holdfast_core::clock::{later, rfc3339};
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::TaskId;
use holdfast_core::run::RunStatus;
use holdfast_store::runs::{self, RunRow};
use holdfast_store::{DbTime, StoreError, Tx, audit, due, tasks};

use super::job::Next;
use crate::settings::Settings;

/// A task that loses this many workers in a row is probably the cause, and is paused.
const MOST_LOSSES: i64 = 3;

pub(super) struct FollowUp<'a> {
    pub run: &'a RunRow,
    pub epoch: i64,
    pub code: Option<FailureCode>,
    pub is_loss: bool,
    pub warnings: i64,
}

impl FollowUp<'_> {
    pub(super) async fn write(&self, tx: &mut Tx, settings: &Settings, now: Timestamp) -> Result<Next, StoreError> {
        let Some(task) = self.run.subject.task() else { return Ok(Next::Nothing) };
        let run = self.run.id;
        let ended = (RunStatus::ended(self.code), self.code);
        tasks::update_last_run(tx, task, run, ended, self.warnings, now).await?;
        if self.is_loss {
            let losses = due::count_loss(tx, task).await?;
            if losses >= MOST_LOSSES {
                return self.pause(tx, task, now).await;
            }
        } else {
            due::forget_losses(tx, task).await?;
        }
        if self.code == Some(FailureCode::WindowClosed) {
            let opens = self.may_start_from(tx, task, now).await?;
            return self.put_off(tx, task, opens, "This will run", now).await;
        }
        let is_first = self.run.attempt == 1 && !settings.retry_after.is_zero();
        if is_first && self.code.is_some_and(FailureCode::can_retry) && !runs::is_cancel_requested(tx, run).await? {
            // Runs that lost a worker together are not retried together: one of them may be the cause.
            let apart = if self.is_loss { 1 + task.0.rem_euclid(8) } else { 1 };
            let seconds = i64::try_from(settings.retry_after.as_secs()).unwrap_or(3600) * apart;
            let (soon, opens) = (later(now, seconds), self.may_start_from(tx, task, later(now, seconds)).await?);
            if soon < opens {
                return self.put_off(tx, task, opens, "This will be retried once", now).await;
            }
            if due::plan_retry(tx, task, run, soon).await? {
                self.line(tx, &format!("This will be retried once, in {seconds} seconds."), now).await?;
                return Ok(Next::Retry);
            }
        }
        Ok(Next::Nothing)
    }

    /// `at`, or when the window of the task opens, unless somebody requested the run.
    async fn may_start_from(&self, tx: &mut Tx, task: TaskId, at: Timestamp) -> Result<Timestamp, StoreError> {
        if !self.run.requested_by.is_bound_to_window() {
            return Ok(at);
        }
        Ok(tasks::find(tx, task).await?.map_or(at, |row| row.spec.schedule.may_start_from(at)))
    }

    async fn put_off(
        &self,
        tx: &mut Tx,
        task: TaskId,
        opens: Timestamp,
        what: &str,
        now: Timestamp,
    ) -> Result<Next, StoreError> {
        if !due::plan_retry(tx, task, self.run.id, opens).await? {
            return Ok(Next::Nothing);
        }
        self.line(tx, &format!("{what} when the window of this task opens, at {}.", rfc3339(opens)), now).await?;
        Ok(Next::Retry)
    }

    async fn pause(&self, tx: &mut Tx, task: TaskId, now: Timestamp) -> Result<Next, StoreError> {
        let found = tasks::find(tx, task).await?.filter(|row| row.paused_at.is_none());
        let Some(row) = found else { return Ok(Next::Nothing) };
        tasks::update_pause(tx, &row, Some(now), None, now).await?;
        let text = format!("The task is paused: its last {MOST_LOSSES} runs each lost their worker.");
        self.line(tx, &text, now).await?;
        let detail = format!("{task} {}", row.label);
        let owner = Some(row.user_id);
        audit::insert(tx, DbTime(now), owner, &Origin::default(), AuditAction::BackupTaskPausedAfterLosses, &detail)
            .await?;
        tracing::error!(task = task.0, "paused: its last {MOST_LOSSES} runs each lost their worker");
        metrics::counter!("holdfast_tasks_paused_after_losses_total").increment(1);
        Ok(Next::Pause)
    }

    async fn line(&self, tx: &mut Tx, text: &str, now: Timestamp) -> Result<(), StoreError> {
        runs::append_line(tx, self.run.id, self.epoch, text, now).await.map(drop)
    }
}
