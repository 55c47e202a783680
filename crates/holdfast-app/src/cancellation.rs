//! Cancelling runs: at once while they are queued, through their worker once they run.

use holdfast_core::ids::{RunId, UserId};
use holdfast_core::run::RunStatus;
use holdfast_store::runs::{self, RunRow};
use holdfast_store::{Tx, tasks};

use crate::{App, Result};

pub(crate) async fn cancel(app: &App, tx: &mut Tx, run: &RunRow) -> Result<()> {
    let now = app.now();
    if !runs::cancel_queued(tx, run.id, now).await? {
        runs::request_cancel(tx, run.id, now).await?;
    } else if let Some(task) = run.subject.backup_of() {
        tasks::update_last_run(tx, task, run.id, (RunStatus::Cancelled, None), 0, now).await?;
    }
    Ok(())
}

/// Cancels everything of a user's that is queued or running.
pub(crate) async fn cancel_all(app: &App, tx: &mut Tx, owner: UserId) -> Result<Vec<RunId>> {
    let live = runs::list_live(tx, owner).await?;
    for run in &live {
        cancel(app, tx, run).await?;
    }
    Ok(live.into_iter().map(|run| run.id).collect())
}
