//! The repositories of tasks: how they fare, and requests to prune and check them.

use holdfast_core::audit::AuditAction;
use holdfast_core::changes::named;
use holdfast_core::ids::{RepositoryId, RunId, TaskId};
use holdfast_core::run::{RunSubject, Trigger};
use holdfast_store::repositories::{self, RepositoryRow};
use holdfast_store::runs::{self, NewRun, RunRow};
use holdfast_store::tasks::TaskRow;
use holdfast_store::{Tx, tasks};

use crate::access::{owned, written};
use crate::refusal::{Conflict, Missing};
use crate::{App, AppError, Caller, Result};

/// A repository, with what the backups in it amount to.
#[derive(Debug, Clone)]
pub struct Repository {
    pub row: RepositoryRow,
    pub backups: i64,
    /// What these backups hold together.
    pub plain_bytes: i64,
    /// The newest prune or check.
    pub newest_run: Option<RunRow>,
}

/// The repository into which a task stores its backups; `None` if it has none yet.
pub async fn find(app: &App, caller: &Caller, task: TaskId) -> Result<Option<Repository>> {
    let mut tx = app.store.read().await?;
    let task = owned(caller, tasks::find(&mut tx, task).await?)?;
    match current(&mut tx, &task).await? {
        Some(row) => whole(&mut tx, row).await.map(Some),
        None => Ok(None),
    }
}

pub async fn show(app: &App, caller: &Caller, task: TaskId) -> Result<Repository> {
    find(app, caller, task).await?.ok_or(AppError::Missing(Missing::Repository))
}

/// The task whose repository this is, if that still exists.
pub async fn find_task(app: &App, caller: &Caller, id: RepositoryId) -> Result<Option<TaskRow>> {
    let mut tx = app.store.read().await?;
    let row = repositories::find(&mut tx, id).await?.filter(|row| row.user_id == caller.user);
    match row.and_then(|row| row.task_id) {
        Some(task) => Ok(tasks::find(&mut tx, task).await?),
        None => Ok(None),
    }
}

async fn current(tx: &mut Tx, task: &TaskRow) -> Result<Option<RepositoryRow>> {
    let path = &task.spec.storage.path;
    Ok(if task.spec.storage.format.is_shared() {
        repositories::find_of_task(tx, task.id, task.backup_destination_id, path).await?
    } else {
        // The one that it had before: its backups are still there.
        repositories::list_of_task(tx, task.id).await?.into_iter().next()
    })
}

async fn whole(tx: &mut Tx, row: RepositoryRow) -> Result<Repository> {
    let (backups, plain_bytes) = repositories::count_snapshots(tx, row.id).await?;
    let newest_run = runs::find_newest_of_repository(tx, row.id).await?;
    Ok(Repository { row, backups, plain_bytes, newest_run })
}

/// Queues a prune, or returns the one that is queued already.
pub async fn request_prune(app: &App, caller: &Caller, task: TaskId) -> Result<RunRow> {
    request(app, caller, task, RunSubject::Prune, AuditAction::RepositoryPruneRequested).await
}

/// Queues a check, or returns the one that is queued already.
pub async fn request_check(app: &App, caller: &Caller, task: TaskId) -> Result<RunRow> {
    request(app, caller, task, RunSubject::CheckRepository, AuditAction::RepositoryCheckRequested).await
}

async fn request(
    app: &App,
    caller: &Caller,
    task: TaskId,
    subject: fn(RepositoryId) -> RunSubject,
    action: AuditAction,
) -> Result<RunRow> {
    app.limit_action(caller.limit_key)?;
    let mut tx = app.store.begin().await?;
    let task = owned(caller, tasks::find_locked(&mut tx, task).await?)?;
    let row = current(&mut tx, &task).await?.ok_or(AppError::Conflict(Conflict::NoRepository))?;
    let subject = subject(row.id);
    let run = match runs::find_same(&mut tx, caller.user, subject).await? {
        Some(run) => run,
        None => queue(app, caller, &mut tx, (&task, subject, action)).await?,
    };
    let run = written(runs::find(&mut tx, run).await?)?;
    tx.commit().await?;
    app.wake_worker();
    Ok(run)
}

async fn queue(
    app: &App,
    caller: &Caller,
    tx: &mut Tx,
    (task, subject, action): (&TaskRow, RunSubject, AuditAction),
) -> Result<RunId> {
    app.audit(tx, caller, action, &named(task.id, &task.label)).await?;
    written(app.queue_run(tx, &NewRun::new(caller.user, subject, Trigger::Manual)).await?)
}
