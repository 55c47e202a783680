//! Backup task logs: a log is a run of a task.

use holdfast_core::audit::AuditAction;
use holdfast_core::ids::RunId;
use holdfast_core::page::Page;
use holdfast_core::run;
use holdfast_store::runs::{self, LogFilter, RunRow};
use holdfast_store::{Listing, Tx};

use crate::access::owned;
use crate::refusal::Conflict;
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

/// The last lines of a run's output.
pub async fn tail(app: &App, caller: &Caller, id: RunId, lines: i64) -> Result<Vec<String>> {
    let mut tx = app.store.read().await?;
    owned(caller, runs::find(&mut tx, id).await?)?;
    Ok(runs::list_last_lines(&mut tx, id, lines).await?)
}

pub(crate) async fn with_outputs(tx: &mut Tx, page: Page<RunRow>) -> Result<Page<(RunRow, String)>> {
    let ids: Vec<i64> = page.items.iter().map(|run| run.id.0).collect();
    let lines = runs::list_lines(tx, &ids).await?;
    Ok(page.map(|run| {
        let own = lines.iter().filter(|(id, _)| *id == run.id.0).map(|(_, text)| text.as_str());
        let output = run::join_output(own);
        (run, output)
    }))
}

pub async fn show(app: &App, caller: &Caller, id: RunId) -> Result<(RunRow, String)> {
    let mut tx = app.store.read().await?;
    let run = owned(caller, runs::find_log(&mut tx, id).await?)?;
    with_output(&mut tx, run).await
}

/// A run of any kind, with its output.
pub async fn show_run(app: &App, caller: &Caller, id: RunId) -> Result<(RunRow, String)> {
    let mut tx = app.store.read().await?;
    let run = owned(caller, runs::find(&mut tx, id).await?)?;
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

pub(crate) async fn with_output(tx: &mut Tx, run: RunRow) -> Result<(RunRow, String)> {
    let lines = runs::list_lines(tx, &[run.id.0]).await?;
    let output = run::join_output(lines.iter().map(|(_, text)| text.as_str()));
    Ok((run, output))
}

/// Whether a run that is still under way is to be cancelled.
pub async fn is_stopping(app: &App, id: RunId) -> Result<bool> {
    Ok(runs::is_cancel_requested(&mut app.store.read().await?, id).await?)
}
