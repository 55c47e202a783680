//! Backup tasks: their settings, and the runs that users request.

use holdfast_core::audit::AuditAction;
use holdfast_core::backup::DeletedReason;
use holdfast_core::changes::{Changes, named};
use holdfast_core::fields::FieldSpec;
use holdfast_core::ids::{BackupId, RunId, TaskId, UserId};
use holdfast_core::input::{Errors, Input};
use holdfast_core::page::Page;
use holdfast_core::refusal::Rule;
use holdfast_core::run::{RunSubject, Trigger};
use holdfast_core::task::{self, CurrentTask, TaskDraft};
use holdfast_core::{Secret, Timestamp, random};
use holdfast_store::due;
use holdfast_store::labels::Labelled;
use holdfast_store::runs::{self, NewRun, RunRow};
use holdfast_store::task_health::{self, TaskHealthRow};
use holdfast_store::tasks::{self, Referenced, TaskFilter, TaskRow};
use holdfast_store::upcoming::{self, UpcomingRow};
use holdfast_store::{DbTime, Listing, Tx, backups, users};

use crate::access::{Owned, owned, written};
use crate::caller::LimitKey;
use crate::dry_run::{self, SecretPair};
use crate::refusal::{Conflict, Missing};
use crate::{App, AppError, Caller, Origin, Resource, Result, cancellation};

/// A task with its streams and tags.
#[derive(Debug, Clone)]
pub struct Task {
    pub row: TaskRow,
    pub stream_ids: Vec<i64>,
    pub tag_ids: Vec<i64>,
}

impl Owned for Task {
    const RESOURCE: Resource = TaskRow::RESOURCE;

    fn owner(&self) -> UserId {
        self.row.owner()
    }

    fn changed_at(&self) -> DbTime {
        self.row.changed_at()
    }
}

pub async fn list(app: &App, listing: &Listing, filter: &TaskFilter) -> Result<Page<Task>> {
    let mut tx = app.store.read().await?;
    let page = tasks::list(&mut tx, listing, filter).await?;
    let mut page = page.map(|row| Task { row, stream_ids: Vec::new(), tag_ids: Vec::new() });
    attach(&mut tx, &mut page.items).await?;
    Ok(page)
}

pub async fn show(app: &App, caller: &Caller, id: TaskId) -> Result<Task> {
    let mut tx = app.store.read().await?;
    let row = owned(caller, tasks::find(&mut tx, id).await?)?;
    whole(&mut tx, row).await
}

/// The health of these tasks.
pub async fn list_health(app: &App, items: &[Task]) -> Result<Vec<TaskHealthRow>> {
    let ids: Vec<i64> = items.iter().map(|task| task.row.id.0).collect();
    Ok(task_health::list(&mut app.store.read().await?, &ids).await?)
}

/// The labels of these tasks of the caller's.
pub async fn list_labels(app: &App, caller: &Caller, ids: &[i64]) -> Result<Vec<(i64, String)>> {
    Ok(tasks::list_labels(&mut app.store.read().await?, caller.user, ids).await?)
}

pub async fn list_upcoming(app: &App, caller: &Caller, limit: i64) -> Result<Vec<UpcomingRow>> {
    Ok(upcoming::list(&mut app.store.read().await?, caller.user, limit).await?)
}

pub async fn create(app: &App, caller: &Caller, input: &Input) -> Result<Task> {
    let now = app.now();
    let mut errors = Errors::default();
    // Before the transaction: looking for a cron expression's next slot can take a while.
    let draft = TaskDraft::check(&mut errors, input, None, false, now);
    let mut tx = app.store.begin().await?;
    check_ids(&mut tx, &mut errors, caller.user, input).await?;
    let draft = draft.filter(|_| errors.is_empty()).ok_or(AppError::Invalid(errors))?;
    let is_paused = draft.is_paused == Some(true);
    let next_run_at = if is_paused { None } else { draft.settings.spec.schedule.next_after(now) };
    dry_run::check_label(&mut tx, caller, Labelled::Task, &draft.settings.label).await?;
    let id = tasks::insert(&mut tx, caller.user, &draft, next_run_at, now).await?;
    app.audit(&mut tx, caller, AuditAction::BackupTaskCreated, &named(id, &draft.settings.label)).await?;
    finish(app, caller, tx, id, &draft).await
}

pub async fn update(app: &App, caller: &Caller, id: TaskId, input: &Input) -> Result<Task> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let row = owned(caller, tasks::find_locked(&mut tx, id).await?)?;
    let current = row.settings();
    let mut errors = Errors::default();
    let draft = TaskDraft::check(&mut errors, input, Some(&current), row.has_encryption_password, now);
    check_ids(&mut tx, &mut errors, caller.user, input).await?;
    let draft = draft.filter(|_| errors.is_empty()).ok_or(AppError::Invalid(errors))?;
    // An unchanged schedule keeps its slot, even one that is due right now.
    let next_run_at = if draft.settings.spec.schedule == current.spec.schedule {
        row.next_run_at.map(|at| at.0)
    } else {
        next_run(&row, &draft.settings.spec.schedule, now)
    };
    let before = whole(&mut tx, row).await?;
    let changes = draft.changes(&CurrentTask {
        settings: &current,
        stream_ids: &before.stream_ids,
        tag_ids: &before.tag_ids,
        has_encryption_password: before.row.has_encryption_password,
        has_heartbeat: before.row.has_heartbeat,
    });
    if caller.dry_run.is_some() {
        note_dry_run(app, caller, &mut tx, (&before.row, &draft), changes.clone()).await?;
    }
    let pauses = draft.is_paused.filter(|is_paused| *is_paused != before.row.paused_at.is_some());
    tasks::update(&mut tx, &before.row, &draft, next_run_at, now).await?;
    app.audit_changes(&mut tx, caller, AuditAction::BackupTaskUpdated, &named(id, &current.label), &changes).await?;
    if let Some(is_paused) = pauses {
        set_paused(app, caller, &mut tx, id, is_paused).await?;
    } else if draft.is_paused == Some(true) {
        keep_paused(&mut tx, &before.row).await?;
    }
    finish(app, caller, tx, id, &draft).await
}

async fn note_dry_run(
    app: &App,
    caller: &Caller,
    tx: &mut Tx,
    (row, draft): (&TaskRow, &TaskDraft),
    changes: Changes,
) -> Result<()> {
    let was_paused = row.paused_at.is_some();
    let is_paused = draft.is_paused.unwrap_or(was_paused);
    let changes = changes.with_field(task::PAUSED.name, &was_paused.into(), &is_paused.into());
    let stored = tasks::open_encryption_password(tx, row).await;
    let password = SecretPair::new(task::PASSWORD.name, &draft.encryption_password, stored)?;
    let stored = tasks::open_heartbeat_url(tx, row).await;
    let heartbeat = SecretPair::new(task::HEARTBEAT.name, &draft.heartbeat_url, stored)?;
    dry_run::note_update(app, caller, row, &changes, &[password, heartbeat])
}

/// Refused while a run is under way. Stored backups are kept unless `with_backups` is set.
pub async fn delete(app: &App, caller: &Caller, id: TaskId, with_backups: bool) -> Result<()> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, tasks::find_locked(&mut tx, id).await?)?;
    if row.is_live {
        return Err(AppError::Conflict(Conflict::TaskBusy));
    }
    if with_backups {
        for backup in backups::list_of_task(&mut tx, id).await? {
            if backup.is_in_use {
                return Err(AppError::Conflict(Conflict::TaskBackupInUse { backup: backup.id.0 }));
            }
            backups::mark_deleted(&mut tx, backup.id, DeletedReason::TaskDeleted, app.now()).await?;
        }
    }
    tasks::delete(&mut tx, caller.user, id).await?;
    let detail = format!("{}{}", named(id, &row.label), if with_backups { " with its backups" } else { "" });
    app.audit(&mut tx, caller, AuditAction::BackupTaskDeleted, &detail).await?;
    dry_run::note_deletion(caller, &row);
    if dry_run::commit(tx, caller).await? {
        app.wake_worker();
    }
    Ok(())
}

/// Queues a run. The queued run is what makes the task `running`, in one transaction.
pub async fn request_run(app: &App, caller: &Caller, id: TaskId) -> Result<RunId> {
    app.limit_action(caller.limit_key)?;
    let mut tx = app.store.begin().await?;
    let row = owned(caller, tasks::find_locked(&mut tx, id).await?)?;
    app.audit(&mut tx, caller, AuditAction::BackupTaskRunRequested, &named(id, &row.label)).await?;
    queue(app, tx, &row, Trigger::Manual).await
}

/// Queues a run for whoever knows the task's own secret. Without it nobody learns whether the task exists.
pub async fn trigger_run(app: &App, id: TaskId, secret: &Secret, origin: &Origin) -> Result<RunId> {
    let mut tx = app.store.read().await?;
    let row = tasks::find(&mut tx, id).await?.ok_or(AppError::NotFound(Resource::BackupTask))?;
    let known = tasks::open_trigger_secret(&mut tx, &row).await?;
    drop(tx);
    let matches = known.is_some_and(|known| random::equal(known.reveal().as_bytes(), secret.reveal().as_bytes()));
    if !matches {
        return Err(AppError::NotFound(Resource::BackupTask));
    }
    app.limit_action(LimitKey::Trigger(row.id.0))?;
    let mut tx = app.store.begin().await?;
    let row = tasks::find_locked(&mut tx, id).await?.ok_or(AppError::NotFound(Resource::BackupTask))?;
    app.audit_as(&mut tx, Some(row.user_id), origin, AuditAction::BackupTaskTriggered, &named(id, &row.label)).await?;
    queue(app, tx, &row, Trigger::Webhook).await
}

/// Creates a new secret for the task's trigger URL; the previous one stops working.
pub async fn rotate_trigger(app: &App, caller: &Caller, id: TaskId) -> Result<Secret> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, tasks::find_locked(&mut tx, id).await?)?;
    let secret = random::token("hft_");
    tasks::update_trigger_secret(&mut tx, &row, secret.clone()).await?;
    app.audit(&mut tx, caller, AuditAction::BackupTaskTriggerRotated, &named(id, &row.label)).await?;
    tx.commit().await?;
    Ok(secret)
}

/// A task that was paused with all others stays paused when they are resumed, if its owner wants it paused, too.
async fn keep_paused(tx: &mut Tx, row: &TaskRow) -> Result<()> {
    if row.paused_together {
        tasks::update_paused_together(tx, row.id, false).await?;
    }
    Ok(())
}

/// A paused task has no next run. Pausing it again changes nothing.
pub async fn pause(app: &App, caller: &Caller, id: TaskId) -> Result<Task> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, tasks::find_locked(&mut tx, id).await?)?;
    if row.paused_at.is_none() {
        set_paused(app, caller, &mut tx, id, true).await?;
    } else {
        keep_paused(&mut tx, &row).await?;
    }
    commit_and_read(caller, tx, id).await
}

/// Resumes a task with its next slot; slots that passed meanwhile are not caught up.
pub async fn resume(app: &App, caller: &Caller, id: TaskId) -> Result<Task> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, tasks::find_locked(&mut tx, id).await?)?;
    if row.paused_at.is_some() {
        set_paused(app, caller, &mut tx, id, false).await?;
    }
    commit_and_read(caller, tx, id).await
}

/// Pauses or resumes a task as it is now.
async fn set_paused(app: &App, caller: &Caller, tx: &mut Tx, id: TaskId, is_paused: bool) -> Result<()> {
    let (row, now) = (written(tasks::find(tx, id).await?)?, app.now());
    let action = if is_paused {
        tasks::update_pause(tx, &row, Some(now), None, now).await?;
        AuditAction::BackupTaskPaused
    } else {
        if users::is_suspended(tx, row.user_id).await? {
            return Err(AppError::Conflict(Conflict::AccountSuspended));
        }
        tasks::update_pause(tx, &row, None, row.spec.schedule.next_after(now), now).await?;
        AuditAction::BackupTaskResumed
    };
    app.audit(tx, caller, action, &named(id, &row.label)).await
}

pub async fn newest_backup(app: &App, caller: &Caller, id: TaskId) -> Result<Option<BackupId>> {
    let mut tx = app.store.read().await?;
    owned(caller, tasks::find(&mut tx, id).await?)?;
    Ok(backups::find_newest(&mut tx, id).await?)
}

/// Ends the hold on retention: old backups are removed again from the next success on. The caller has looked at the
/// newest backup, so later ones are compared with it. `seen` is the one that they looked at, if they say so.
pub async fn release_retention(app: &App, caller: &Caller, id: TaskId, seen: Option<BackupId>) -> Result<Task> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, tasks::find_locked(&mut tx, id).await?)?;
    if row.retention_held_at.is_none() {
        return Err(AppError::Conflict(Conflict::RetentionNotHeld));
    }
    let newest = backups::find_newest(&mut tx, id).await?;
    if seen.is_some() && seen != newest {
        let conflict = newest.map_or(Conflict::NoBackupLeft, |newest| Conflict::NewerBackup { newest: newest.0 });
        return Err(AppError::Conflict(conflict));
    }
    tasks::end_hold(&mut tx, id).await?;
    if let Some(newest) = newest {
        backups::confirm(&mut tx, newest).await?;
    }
    let detail = format!("{}: {}", named(id, &row.label), row.held_reason.unwrap_or_default());
    app.audit(&mut tx, caller, AuditAction::BackupTaskRetentionReleased, &detail).await?;
    commit_and_read(caller, tx, id).await
}

/// Cancels the live run: at once while it is queued, through its worker once it runs.
pub async fn cancel(app: &App, caller: &Caller, id: TaskId) -> Result<()> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, tasks::find_locked(&mut tx, id).await?)?;
    let is_cancelled = match runs::find_live(&mut tx, id).await? {
        Some(run) => cancellation::cancel(app, &mut tx, &run).await?,
        None => false,
    };
    if !is_cancelled {
        return Err(AppError::Conflict(Conflict::TaskNotRunning));
    }
    app.audit(&mut tx, caller, AuditAction::BackupTaskCancelled, &named(id, &row.label)).await?;
    Ok(tx.commit().await?)
}

pub async fn latest_log(app: &App, caller: &Caller, id: TaskId) -> Result<(RunRow, String)> {
    let mut tx = app.store.read().await?;
    owned(caller, tasks::find(&mut tx, id).await?)?;
    let run = runs::find_latest(&mut tx, id).await?;
    let run = run.ok_or(AppError::Missing(Missing::Logs))?;
    crate::run_output::with_output(&mut tx, run).await
}

async fn queue(app: &App, mut tx: Tx, row: &TaskRow, trigger: Trigger) -> Result<RunId> {
    if row.paused_at.is_some() {
        return Err(AppError::Conflict(Conflict::TaskPaused));
    }
    if users::is_suspended(&mut tx, row.user_id).await? {
        return Err(AppError::Conflict(Conflict::AccountSuspended));
    }
    let task = row.id;
    // A run that replaces a pending retry counts as that second attempt: its result is reported, whatever it is.
    let attempt = if due::drop_retry(&mut tx, task).await? { 2 } else { 1 };
    let new = NewRun { attempt, ..NewRun::new(row.user_id, RunSubject::Backup(task), trigger) };
    let Some(run) = runs::insert(&mut tx, &new, app.now()).await? else {
        return Err(AppError::Conflict(Conflict::TaskRunning));
    };
    runs::announce(&mut tx).await?;
    tx.commit().await?;
    app.wake_worker();
    Ok(run)
}

fn next_run(row: &TaskRow, schedule: &holdfast_core::schedule::Schedule, now: Timestamp) -> Option<Timestamp> {
    if row.paused_at.is_some() { None } else { schedule.next_after(now) }
}

/// Every id in a request must belong to the caller; another user's is as invalid as one that does not exist.
async fn check_ids(tx: &mut Tx, errors: &mut Errors, owner: UserId, input: &Input) -> Result<()> {
    let one = |field: &FieldSpec| input.integer(field.name).value().copied().into_iter().collect();
    let named: [(&str, Referenced, Vec<i64>); 4] = [
        (task::SERVER.name, Referenced::Server, one(&task::SERVER)),
        (task::DESTINATION.name, Referenced::Destination, one(&task::DESTINATION)),
        (task::STREAMS.name, Referenced::Stream, distinct(input.integers(task::STREAMS.name).value())),
        (task::TAGS.name, Referenced::Tag, distinct(input.integers(task::TAGS.name).value())),
    ];
    for (field, table, ids) in named {
        if ids.is_empty() || errors.has(field) {
            continue;
        }
        if tasks::count_owned(tx, table, owner, &ids).await? != ids.len() {
            errors.add(field, Rule::Choice);
        }
    }
    Ok(())
}

fn distinct(ids: Option<&Vec<i64>>) -> Vec<i64> {
    let mut ids = ids.cloned().unwrap_or_default();
    ids.sort_unstable();
    ids.dedup();
    ids
}

async fn finish(app: &App, caller: &Caller, mut tx: Tx, id: TaskId, draft: &TaskDraft) -> Result<Task> {
    if draft.encryption_password.set().is_some() {
        app.audit(&mut tx, caller, AuditAction::BackupTaskEncryptionPasswordSet, &named(id, &draft.settings.label))
            .await?;
    }
    commit_and_read(caller, tx, id).await
}

async fn commit_and_read(caller: &Caller, mut tx: Tx, id: TaskId) -> Result<Task> {
    let row = written(tasks::find(&mut tx, id).await?)?;
    let task = whole(&mut tx, row).await?;
    dry_run::commit(tx, caller).await?;
    Ok(task)
}

async fn whole(tx: &mut Tx, row: TaskRow) -> Result<Task> {
    let mut tasks = [Task { row, stream_ids: Vec::new(), tag_ids: Vec::new() }];
    attach(tx, &mut tasks).await?;
    let [task] = tasks;
    Ok(task)
}

/// Looks up streams and tags of those tasks that have any: most pages need no further query.
async fn attach(tx: &mut Tx, items: &mut [Task]) -> Result<()> {
    let with = |count: fn(&TaskRow) -> i64, items: &[Task]| -> Vec<i64> {
        items.iter().filter(|task| count(&task.row) > 0).map(|task| task.row.id.0).collect()
    };
    let with_streams = with(|row| row.streams_count, items);
    if !with_streams.is_empty() {
        for (task, stream) in tasks::list_stream_ids(tx, &with_streams).await? {
            items.iter_mut().filter(|item| item.row.id == TaskId(task)).for_each(|item| item.stream_ids.push(stream));
        }
    }
    let with_tags = with(|row| row.tags_count, items);
    if !with_tags.is_empty() {
        for (task, tag) in tasks::list_tag_ids(tx, &with_tags).await? {
            items.iter_mut().filter(|item| item.row.id == TaskId(task)).for_each(|item| item.tag_ids.push(tag));
        }
    }
    Ok(())
}
