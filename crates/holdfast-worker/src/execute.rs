//! Claims a run and brings it to its end.
//!
//! The engine that copies data is not part of this build. A run therefore ends as failed, and says so: nothing here
//! may look like a backup.

use holdfast_app::{App, Result};
use holdfast_core::ids::{DestinationId, RunId, ServerId, StreamId, TaskId};
use holdfast_core::run::{RunKind, RunStatus, error_code};
use holdfast_core::{Timestamp, clock};
use holdfast_store::runs::{self, RunRow};
use holdfast_store::{Tx, destinations, servers, streams, tasks};

/// A claimed run is ended within milliseconds; the lease is for a worker that dies in between.
const LEASE_SECS: i64 = 60;

const NO_ENGINE: &str = "This version of Holdfast cannot copy data yet: it comes without the backup engine. Nothing \
    was read from the server, and nothing was stored or deleted.";
const NO_CHECK: &str = "Not checked: this version of Holdfast comes without the engine that connects to servers and \
    destinations.";
const NO_MESSAGE: &str = "Not sent: this version of Holdfast cannot deliver messages yet.";

const LOST: &str = "The worker that had this run went away before its end. Nothing counts as backed up by it.";

/// Claims the oldest queued run and ends it. False when there was none to claim.
pub(crate) async fn next(app: &App, worker: &str) -> Result<bool> {
    let now = app.now();
    let lease_until = clock::from_micros(now.as_microsecond() + LEASE_SECS * 1_000_000);
    let mut tx = app.store.begin().await?;
    let Some(run) = runs::claim(&mut tx, worker, lease_until, now).await? else { return Ok(false) };
    tx.commit().await?;
    end(app, &run).await?;
    Ok(true)
}

/// One fenced transaction: the line that says why, the end, and what it means for the task or the thing checked.
async fn end(app: &App, run: &RunRow) -> Result<()> {
    let now = app.now();
    let id = RunId(run.id);
    let mut tx = app.store.begin().await?;
    // The task before its run, as those who cancel do: two orders would deadlock.
    if let Some(task) = run.task_id {
        tasks::find_locked(&mut tx, TaskId(task)).await?;
    }
    let (line, kind) = match RunKind::parse(&run.kind) {
        Some(RunKind::Backup) => (NO_ENGINE, RunKind::Backup),
        Some(RunKind::TestStream) => (NO_MESSAGE, RunKind::TestStream),
        Some(kind @ (RunKind::CheckServer | RunKind::CheckDestination)) => (NO_CHECK, kind),
        None => return Err(holdfast_app::AppError::Internal(format!("run {id} is of unknown kind {}", run.kind))),
    };
    runs::append_line(&mut tx, id, run.lease_epoch, line, now).await?;
    let status = if runs::is_cancel_requested(&mut tx, id).await? { RunStatus::Cancelled } else { RunStatus::Failed };
    let code = (status == RunStatus::Failed).then_some(error_code::NOT_SUPPORTED);
    if !runs::finish(&mut tx, id, run.lease_epoch, status, code, now).await? {
        tracing::warn!(run = run.id, "lost the lease; another worker ends this run");
        return Ok(());
    }
    note_end(&mut tx, kind, run, line, now).await?;
    tx.commit().await?;
    metrics::counter!("holdfast_runs_ended_total", "status" => status.as_str()).increment(1);
    tracing::info!(run = run.id, kind = run.kind, status = status.as_str(), "run ended");
    Ok(())
}

/// What could not be found out leaves the state as it was and says why.
async fn note_end(tx: &mut Tx, kind: RunKind, run: &RunRow, line: &str, now: Timestamp) -> Result<()> {
    match (kind, run.task_id, run.server_id, run.destination_id, run.stream_id) {
        (RunKind::Backup, Some(task), ..) => tasks::update_last_run(tx, TaskId(task), now).await?,
        (RunKind::CheckServer, _, Some(server), ..) => servers::update_last_error(tx, ServerId(server), line).await?,
        (RunKind::CheckDestination, _, _, Some(destination), _) => {
            destinations::update_check(tx, DestinationId(destination), None, Some(line), None).await?;
        }
        (RunKind::TestStream, _, _, _, Some(stream)) => {
            streams::update_test(tx, StreamId(stream), false, line, now).await?;
        }
        // What the run was about has been deleted meanwhile.
        _ => {}
    }
    Ok(())
}

/// Ends the runs of workers that went away.
pub(crate) async fn fail_lost(app: &App) -> Result<()> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    for lost in runs::fail_lost(&mut tx, now).await? {
        runs::append_line(&mut tx, RunId(lost.id), lost.lease_epoch, LOST, now).await?;
        if let Some(task) = lost.task_id {
            tasks::update_last_run(&mut tx, TaskId(task), now).await?;
        }
        tracing::warn!(run = lost.id, "the worker of this run went away; the run is ended as failed");
    }
    tx.commit().await?;
    Ok(())
}
