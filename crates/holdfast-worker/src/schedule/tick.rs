//! Turns due slots into queued runs.

use holdfast_app::{App, Result};
use holdfast_core::Timestamp;
use holdfast_core::clock::rfc3339;
use holdfast_core::clock::seconds_between;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::RunId;
use holdfast_core::run::{RunStatus, RunSubject, Trigger};
use holdfast_core::slots::{self, Due};
use holdfast_store::due::{self, DueRow, RetryRow};
use holdfast_store::runs::{self, NewRun};
use holdfast_store::{StoreError, Tx};

use crate::notices::outbox::{MissedSlots, Outbox};

/// Due tasks per transaction: enough to share an fsync, few enough that concurrent requests hardly wait.
const BATCH: i64 = 200;

/// Batches per call; then runs are started, and lost workers looked for, before the next call.
const BATCHES: usize = 5;

/// Queues a run for every slot that has come, and for every retry that is due, and moves the tasks to their next slot.
/// Handles a thousand of each; if more are due, call it again. Any number of processes may do this at once: a slot has
/// one run, and a task at most one live run. Returns the number of runs queued.
pub(crate) async fn tick(app: &App, outbox: &Outbox, now: Timestamp) -> Result<usize> {
    let mut queued = 0;
    for _ in 0..BATCHES {
        let mut tx = app.store.begin().await?;
        let due = due::list(&mut tx, now, BATCH).await?;
        let mut missed = Vec::new();
        for task in &due {
            queued += usize::from(advance(&mut tx, task, &mut missed, now).await?);
        }
        outbox.missed(&mut tx, &missed, now).await?;
        let retries = due::list_retries(&mut tx, now, BATCH).await?;
        for task in &retries {
            queued += usize::from(retry(&mut tx, task, now).await?);
        }
        if due.is_empty() && retries.is_empty() {
            break;
        }
        runs::announce(&mut tx).await?;
        tx.commit().await?;
    }
    metrics::counter!("holdfast_runs_queued_total").increment(queued as u64);
    Ok(queued)
}

/// Queues the retry of a task, or puts it off until the window of the task opens. Returns true if a run was queued.
async fn retry(tx: &mut Tx, task: &RetryRow, now: Timestamp) -> Result<bool, StoreError> {
    let trigger = task.requested_by.unwrap_or(Trigger::Schedule);
    // A schedule that cannot be read has no window that could be read.
    let opens = task.schedule().map_or(now, |schedule| schedule.may_start_from(now));
    if trigger.is_bound_to_window() && opens > now {
        due::put_retry_off(tx, task.id, opens).await?;
        return Ok(false);
    }
    if !due::drop_retry(tx, task.id).await? {
        return Ok(false);
    }
    let retry_of = task.retry_run_id.map(RunId);
    let again = NewRun { attempt: 2, retry_of, ..NewRun::new(task.user_id, RunSubject::Backup(task.id), trigger) };
    // If nothing is queued, the task has a live run, which serves as this one.
    Ok(runs::insert(tx, &again, now).await?.is_some())
}

/// Moves one task to its next slot, and adds what it missed to `all_missed`. Returns true if that queued a run.
async fn advance(
    tx: &mut Tx,
    task: &DueRow,
    all_missed: &mut Vec<MissedSlots>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let (id, owner) = (task.id, task.user_id);
    // A schedule that cannot be read must not block all the others: its task is stopped, and that is logged.
    let Ok(schedule) = task.schedule().inspect_err(|error| {
        tracing::error!(task = task.id.0, %error, "this task will not run again: its schedule cannot be read");
    }) else {
        due::advance(tx, task, None).await?;
        return Ok(false);
    };
    let Due { run, missed, missed_since, next } = slots::due(&schedule, task.next_run_at.0, now);
    if !due::advance(tx, task, next).await? {
        return Ok(false);
    }
    let mut last_missed = None;
    for (number, slot) in missed.iter().enumerate() {
        let text = match missed_since.filter(|_| number == 0) {
            Some(since) => format!("Missed, like all slots since {}: no worker was running.", rfc3339(since)),
            None => "Missed: no worker was running at that time.".to_owned(),
        };
        let ended = (RunStatus::Failed, FailureCode::Missed);
        last_missed = runs::insert_ended(tx, owner, id, *slot, ended, &text, now).await?.or(last_missed);
        metrics::counter!("holdfast_slots_missed_total").increment(1);
        tracing::warn!(task = task.id.0, %slot, "a slot passed while no worker was running");
    }
    if let (Some(run), Some(since)) = (last_missed, missed_since.or(missed.first().copied())) {
        all_missed.push(MissedSlots { owner, task: id, run, since, slots: missed.len() });
    }
    let Some((slot, trigger)) = run else { return Ok(false) };
    // A run that takes the place of a retry counts as one: its end is reported, whatever it is.
    let attempt = if due::drop_retry(tx, id).await? { 2 } else { 1 };
    let new = NewRun { slot: Some(slot), attempt, ..NewRun::new(owner, RunSubject::Backup(id), trigger) };
    if runs::insert(tx, &new, now).await?.is_some() {
        metrics::histogram!("holdfast_slot_late_seconds").record(seconds_between(slot, now));
        return Ok(true);
    }
    let text = "Skipped: the previous run was still in progress when this one was due.";
    runs::insert_ended(tx, owner, id, slot, (RunStatus::Cancelled, FailureCode::Skipped), text, now).await?;
    tracing::warn!(task = task.id.0, %slot, "skipped: the previous run is still in progress");
    Ok(false)
}
