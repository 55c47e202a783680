//! What administrators see of other people's things, and the little that they may do to them. Each act is in the audit
//! log of the person, with the administrator as its actor.

use holdfast_core::audit::AuditAction;
use holdfast_core::changes::named;
use holdfast_core::ids::{RunId, TaskId, UserId};
use holdfast_core::page::{Page, PageRequest, Sort};
use holdfast_store::destinations::{self, DestinationRow, StoredRow};
use holdfast_store::runs::{self, RunRow};
use holdfast_store::servers::{self, ServerRow};
use holdfast_store::task_health::{self, TaskHealthRow};
use holdfast_store::tasks::{self as task_rows, TaskFilter, TaskRow};
use holdfast_store::users::{self, Statistics, UserRow};
use holdfast_store::{Listing, Tx};

use crate::people::{self, administrator, administrator_origin};
use crate::refusal::{Conflict, Missing};
use crate::{App, AppError, Caller, Origin, Result, cancellation, tasks};

/// The most of each kind that is shown; pages say how many there are.
const SHOWN: i64 = 200;
/// The newest runs that are shown.
const RUNS_SHOWN: i64 = 30;

/// What a person has.
pub struct Belongings {
    pub user: UserRow,
    pub tasks: Page<TaskRow>,
    pub health: Vec<TaskHealthRow>,
    pub servers: Page<ServerRow>,
    pub destinations: Page<DestinationRow>,
    pub runs: Page<RunRow>,
}

pub async fn show(app: &App, caller: &Caller, id: UserId) -> Result<Belongings> {
    administrator(caller)?;
    let listing = |per_page: i64, sort: Sort| Listing { sort, ..Listing::new(id, PageRequest { page: 1, per_page }) };
    let mut tx = app.store.read().await?;
    let user = users::find(&mut tx, id).await?.ok_or(AppError::Missing(Missing::Account))?;
    let tasks = task_rows::list(&mut tx, &listing(SHOWN, Sort::Id), &TaskFilter::default()).await?;
    let ids: Vec<i64> = tasks.items.iter().map(|task| task.id.0).collect();
    Ok(Belongings {
        user,
        health: task_health::list(&mut tx, &ids).await?,
        tasks,
        servers: servers::list(&mut tx, &listing(SHOWN, Sort::Id)).await?,
        destinations: destinations::list(&mut tx, &listing(SHOWN, Sort::Id)).await?,
        runs: runs::list_long(&mut tx, &listing(RUNS_SHOWN, Sort::IdDescending)).await?,
    })
}

/// What an administrator should know before acting on an account as a whole.
pub struct AccountSummary {
    pub user: UserRow,
    pub figures: Statistics,
    pub live_runs: i64,
    /// Backups by destination.
    pub stored: Vec<StoredRow>,
}

pub async fn summary(app: &App, caller: &Caller, id: UserId) -> Result<AccountSummary> {
    let user = people::show_person(app, caller, id).await?;
    let mut tx = app.store.read().await?;
    Ok(AccountSummary {
        figures: users::statistics(&mut tx, id, app.now()).await?,
        live_runs: users::count_live_runs(&mut tx, id).await?,
        stored: destinations::list_stored(&mut tx, id).await?,
        user,
    })
}

/// What may be done to somebody else's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskAct {
    Pause,
    Resume,
    Cancel,
}

pub async fn act_on_task(app: &App, caller: &Caller, person: UserId, task: TaskId, act: TaskAct) -> Result<()> {
    let acting = acting_for(app, caller, person).await?;
    match act {
        TaskAct::Pause => tasks::pause(app, &acting, task).await.map(drop),
        TaskAct::Resume => tasks::resume(app, &acting, task).await.map(drop),
        TaskAct::Cancel => tasks::cancel(app, &acting, task).await,
    }
}

pub async fn cancel_run(app: &App, caller: &Caller, person: UserId, run: RunId) -> Result<()> {
    crate::runs::cancel(app, &acting_for(app, caller, person).await?, run).await
}

/// The person, with the administrator as the one who acts.
async fn acting_for(app: &App, caller: &Caller, person: UserId) -> Result<Caller> {
    let origin = administrator_origin(app, caller).await?;
    let user = people::show_person(app, caller, person).await?;
    Ok(Caller { gone: caller.gone.clone(), ..Caller::operator(&user, origin) })
}

/// Which tasks of a person a command means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    All,
    /// By its id or its label.
    One(String),
}

/// What became of the tasks, by their labels.
#[derive(Debug, Default)]
pub struct Paused {
    pub changed: Vec<String>,
    /// Tasks that stay paused, because they had been paused before all were.
    pub stay: Vec<String>,
}

/// Pauses or resumes tasks of a person, for the operator of the machine. All tasks are resumed as far as they were paused
/// together, so that afterwards everything is as it was.
pub async fn set_paused(app: &App, origin: &Origin, user: &UserRow, which: &Which, is_paused: bool) -> Result<Paused> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    if !is_paused && users::is_suspended(&mut tx, user.id).await? {
        return Err(AppError::Conflict(Conflict::AccountSuspended));
    }
    let action = if is_paused { AuditAction::BackupTaskPaused } else { AuditAction::BackupTaskResumed };
    let mut done = Paused::default();
    for task in find_tasks(&mut tx, user.id, which).await? {
        if task.paused_at.is_some() == is_paused {
            continue;
        }
        if !is_paused && *which == Which::All && !task.paused_together {
            done.stay.push(task.label);
            continue;
        }
        let next = if is_paused { None } else { task.spec.schedule.next_after(now) };
        task_rows::update_pause(&mut tx, &task, is_paused.then_some(now), next, now).await?;
        task_rows::update_paused_together(&mut tx, task.id, is_paused && *which == Which::All).await?;
        app.audit_as(&mut tx, Some(user.id), origin, action, &named(task.id, &task.label)).await?;
        done.changed.push(task.label);
    }
    tx.commit().await?;
    Ok(done)
}

async fn find_tasks(tx: &mut Tx, owner: UserId, which: &Which) -> Result<Vec<TaskRow>> {
    let all = task_rows::list_of(tx, owner).await?;
    let Which::One(name) = which else { return Ok(all) };
    let found: Vec<TaskRow> =
        all.into_iter().filter(|task| task.label == *name || task.id.to_string() == *name).collect();
    if found.is_empty() {
        return Err(AppError::Missing(Missing::Task));
    }
    Ok(found)
}

/// What a person has stored, by destination. It stays there when the account is deleted.
pub async fn list_stored(app: &App, user: &UserRow) -> Result<Vec<StoredRow>> {
    Ok(destinations::list_stored(&mut app.store.read().await?, user.id).await?)
}

/// How many runs of a person are queued or running.
pub async fn count_live_runs(app: &App, user: &UserRow) -> Result<i64> {
    Ok(users::count_live_runs(&mut app.store.read().await?, user.id).await?)
}

/// Cancels all live runs of a person, for the operator of the machine. Returns how many there were.
pub async fn cancel_all(app: &App, origin: &Origin, user: &UserRow) -> Result<usize> {
    let mut tx = app.store.begin().await?;
    let runs = cancellation::cancel_all(app, &mut tx, user.id).await?;
    for run in &runs {
        app.audit_as(&mut tx, Some(user.id), origin, AuditAction::RunCancelled, &run.to_string()).await?;
    }
    tx.commit().await?;
    Ok(runs.len())
}
