//! Runs of every kind: look at them and their output, and cancel them. The runs of a task are also its logs (`logs.rs`).

use holdfast_core::audit::AuditAction;
use holdfast_core::backup::RestoreDraft;
use holdfast_core::changes::named;
use holdfast_core::ids::RunId;
use holdfast_core::page::Page;
use holdfast_core::run::RunStatus;
use holdfast_store::due::{self, SecondAttempt};
use holdfast_store::runs::{self, RunFilter, RunRow};
use holdfast_store::{DbTime, Listing, restores, tasks};

use crate::refusal::Conflict;
use crate::run_output::{with_output, with_outputs};
pub use crate::worker_checks::WaitsFor;
use crate::worker_checks::Workers;
use crate::{App, AppError, Caller, Resource, Result, cancellation, maintenance};

/// Restores and verifications, each with its output.
pub async fn list_runs_of_stored_backups(
    app: &App,
    listing: &Listing,
    filter: &RunFilter,
) -> Result<Page<(RunRow, String)>> {
    let mut tx = app.store.read().await?;
    let page = runs::list_runs_of_stored_backups(&mut tx, listing, filter).await?;
    with_outputs(&mut tx, page).await
}

/// Restores and verifications without their output.
pub async fn list_rows_of_stored_backups(app: &App, listing: &Listing) -> Result<Page<RunRow>> {
    let filter = RunFilter::default();
    Ok(runs::list_runs_of_stored_backups(&mut app.store.read().await?, listing, &filter).await?)
}

/// A run of any kind, with its output.
pub async fn show(app: &App, caller: &Caller, id: RunId) -> Result<(RunRow, String)> {
    let mut tx = app.store.read().await?;
    let run = owned_run(caller, runs::find(&mut tx, id).await?)?;
    with_output(&mut tx, run).await
}

/// What those of these runs that are restores were asked to do.
pub async fn restores(app: &App, runs: &[RunId]) -> Result<Vec<(i64, RestoreDraft)>> {
    let ids: Vec<i64> = runs.iter().map(|run| run.0).collect();
    Ok(restores::list(&mut app.store.read().await?, &ids).await?)
}

/// What somebody who waits for a run needs to know.
#[derive(Debug, Clone, Default)]
pub struct Outlook {
    /// A failed backup will be tried once more, at this time.
    pub retry_at: Option<DbTime>,
    /// The run that is the second attempt.
    pub retried_by: Option<RunId>,
    pub waits_for: Option<WaitsFor>,
}

pub async fn outlook(app: &App, run: &RunRow) -> Result<Outlook> {
    let mut tx = app.store.read().await?;
    if run.status == RunStatus::Queued {
        let waits_for = if maintenance::find(&mut tx, app.now()).await?.is_some() {
            Some(WaitsFor::MaintenanceEnd)
        } else {
            Workers::find(&mut tx, app.now()).await?.hold_up_runs()
        };
        return Ok(Outlook { waits_for, ..Outlook::default() });
    }
    match run.subject.task().filter(|_| run.status == RunStatus::Failed) {
        Some(task) => {
            let SecondAttempt { due_at, run } = due::find_second_attempt(&mut tx, task, run.id).await?;
            Ok(Outlook { retry_at: due_at, retried_by: run.map(RunId), waits_for: None })
        }
        None => Ok(Outlook::default()),
    }
}

/// The last lines of a run's output.
pub async fn tail(app: &App, caller: &Caller, id: RunId, lines: i64) -> Result<Vec<String>> {
    let mut tx = app.store.read().await?;
    owned_run(caller, runs::find(&mut tx, id).await?)?;
    Ok(runs::list_last_lines(&mut tx, id, lines).await?)
}

/// Cancels this run and no other one, even if its task has a new run by now: at once while it is queued, through its
/// worker once it runs.
pub async fn cancel(app: &App, caller: &Caller, id: RunId) -> Result<()> {
    let mut tx = app.store.begin().await?;
    let run = owned_run(caller, runs::find_long(&mut tx, id).await?)?;
    // Locks the task before its run, as the end of a run does: different orders could deadlock.
    let task = match run.subject.task() {
        Some(task) => tasks::find_locked(&mut tx, task).await?,
        None => None,
    };
    if !cancellation::cancel(app, &mut tx, &run).await? {
        return Err(AppError::Conflict(Conflict::RunEnded));
    }
    let (action, detail) = match task {
        Some(task) => (AuditAction::BackupTaskCancelled, named(task.id, &task.label)),
        None => (AuditAction::RunCancelled, format!("{id} {}", run.kind().as_str())),
    };
    app.audit(&mut tx, caller, action, &detail).await?;
    Ok(tx.commit().await?)
}

/// Whether a run that is still under way is to be cancelled.
pub async fn is_stopping(app: &App, id: RunId) -> Result<bool> {
    Ok(runs::is_cancel_requested(&mut app.store.read().await?, id).await?)
}

fn owned_run(caller: &Caller, run: Option<RunRow>) -> Result<RunRow> {
    let run = run.ok_or(AppError::NotFound(Resource::Run))?;
    if run.user_id == caller.user { Ok(run) } else { Err(AppError::Forbidden(Resource::Run)) }
}
