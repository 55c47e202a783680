//! Cancelling runs: at once while they are queued, through their worker once they run.

use holdfast_core::ids::{RunId, UserId};
use holdfast_core::run::RunStatus;
use holdfast_store::runs::{self, RunRow};
use holdfast_store::{Tx, tasks};

use crate::{App, Result};

/// Returns false if the run has ended.
pub(crate) async fn cancel(app: &App, tx: &mut Tx, run: &RunRow) -> Result<bool> {
    let now = app.now();
    if !runs::cancel_queued(tx, run.id, now).await? {
        return Ok(runs::request_cancel(tx, run.id, now).await?);
    }
    if let Some(task) = run.subject.task() {
        tasks::update_last_run(tx, task, run.id, (RunStatus::Cancelled, None), 0, now).await?;
    }
    Ok(true)
}

/// Cancels everything of a user's that is queued or running.
pub(crate) async fn cancel_all(app: &App, tx: &mut Tx, owner: UserId) -> Result<Vec<RunId>> {
    let mut cancelled = Vec::new();
    for run in runs::list_live(tx, owner).await? {
        if cancel(app, tx, &run).await? {
            cancelled.push(run.id);
        }
    }
    Ok(cancelled)
}
