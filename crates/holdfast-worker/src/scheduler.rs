//! From due slots to queued runs.

use holdfast_app::{App, Result};
use holdfast_core::ids::{TaskId, UserId};
use holdfast_core::run::Trigger;
use holdfast_core::schedule::Schedule;
use holdfast_core::{Timestamp, clock};
use holdfast_store::runs::{self, Subject};
use holdfast_store::tasks;

/// Due tasks per transaction: long enough to share an fsync, short enough that requests in between hardly wait.
const BATCH: i64 = 200;
/// A slot found this late was missed while nobody was working.
const LATE_SECS: i64 = 60;
/// A slot older than this is not made up for; the next one is.
const TOO_LATE_SECS: i64 = 24 * 3600;

/// Queues a run for every slot that has come and moves the tasks on to their next one. Any number of processes may do
/// this at once: a slot has one run, and a task at most one live run. Gives the number of runs queued.
pub async fn tick(app: &App, now: Timestamp) -> Result<usize> {
    let mut queued = 0;
    loop {
        let mut tx = app.store.begin().await?;
        let due = tasks::list_due(&mut tx, now, BATCH).await?;
        if due.is_empty() {
            break;
        }
        for task in &due {
            // A schedule that cannot be read must not hold up everybody else's: its task stops and the log says so.
            let schedule = task.schedule().inspect_err(|error| {
                tracing::error!(task = task.id, %error, "this task has no next run any more");
            });
            let schedule = schedule.ok();
            let next = schedule.as_ref().and_then(|schedule| schedule.next_after(now));
            if !tasks::advance(&mut tx, task, next).await? {
                continue;
            }
            let Some(slot) = schedule.and_then(|schedule| latest_slot(&schedule, task.next_run_at.0, now)) else {
                tracing::warn!(task = task.id, slot = %task.next_run_at.0, "a slot passed while nobody was working");
                continue;
            };
            let late = now.as_second() - slot.as_second();
            let trigger = if late > LATE_SECS { Trigger::CatchUp } else { Trigger::Schedule };
            let subject = Subject::Backup(TaskId(task.id));
            match runs::insert(&mut tx, UserId(task.user_id), subject, trigger, Some(slot), now).await? {
                Some(_) => queued += 1,
                None => tracing::warn!(task = task.id, %slot, "skipped: the run before is still going"),
            }
        }
        tx.commit().await?;
    }
    metrics::counter!("holdfast_runs_queued_total").increment(queued as u64);
    Ok(queued)
}

/// The newest slot that has come and is not too old to be made up for; the ones before it stay passed.
fn latest_slot(schedule: &Schedule, due: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let horizon = clock::from_micros(now.as_microsecond() - TOO_LATE_SECS * 1_000_000);
    let (mut latest, mut from) = if due >= horizon { (Some(due), due) } else { (None, horizon) };
    while let Some(next) = schedule.next_after(from).filter(|next| *next <= now) {
        (latest, from) = (Some(next), next);
    }
    latest
}
