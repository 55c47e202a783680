//! Backup task logs: a log is a run of a task.

use holdfast_core::audit::AuditAction;
use holdfast_core::ids::RunId;
use holdfast_core::page::Page;
use holdfast_store::Listing;
use holdfast_store::runs::{self, LogFilter, RunRow};

use crate::access::owned;
use crate::refusal::Conflict;
use crate::run_output::{with_output, with_outputs};
use crate::{App, AppError, Caller, Result};

/// Each log with its output.
pub async fn list(app: &App, listing: &Listing, filter: &LogFilter) -> Result<Page<(RunRow, String)>> {
    let mut tx = app.store.read().await?;
    let page = runs::list_logs(&mut tx, listing, filter).await?;
    with_outputs(&mut tx, page).await
}

/// Logs without their output.
pub async fn list_rows(app: &App, listing: &Listing, filter: &LogFilter) -> Result<Page<RunRow>> {
    Ok(runs::list_logs(&mut app.store.read().await?, listing, filter).await?)
}

pub async fn show(app: &App, caller: &Caller, id: RunId) -> Result<(RunRow, String)> {
    let mut tx = app.store.read().await?;
    let run = owned(caller, runs::find_log(&mut tx, id).await?)?;
    with_output(&mut tx, run).await
}

pub async fn delete(app: &App, caller: &Caller, id: RunId) -> Result<()> {
    let mut tx = app.store.begin().await?;
    let run = owned(caller, runs::find_log(&mut tx, id).await?)?;
    if !runs::delete_log(&mut tx, caller.user, id).await? {
        return Err(AppError::Conflict(Conflict::RunNotEnded));
    }
    let detail = match run.subject.task() {
        Some(task) => format!("{id} of task {task}"),
        None => id.to_string(),
    };
    app.audit(&mut tx, caller, AuditAction::BackupTaskLogDeleted, &detail).await?;
    Ok(tx.commit().await?)
}
