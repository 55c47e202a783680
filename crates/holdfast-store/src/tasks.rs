//! Backup tasks, what is attached to them, and when they are due.

use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{BackupId, DestinationId, RunId, ServerId, TaskId, UserId};
use holdfast_core::notice::overdue_at;
use holdfast_core::page::Page;
use holdfast_core::rules::search_form;
use holdfast_core::run::{RunStatus, TaskStatus};
use holdfast_core::schedule::{Frequency, Schedule};
use holdfast_core::secret::SecretChange;
use holdfast_core::source::TaskKind;
use holdfast_core::task::{TaskDraft, TaskSettings, TaskSpec};
use holdfast_core::task_health::TaskHealth;
use holdfast_core::{Secret, Timestamp};
use sqlx::QueryBuilder;

use crate::statement::{Statement as _, decode_all, decode_one};
use crate::tx::{Backend, push_ids};
use crate::{DbTime, Listing, Result, Tx, spec};

// The core's `TaskHealth` in SQL, for filtering; a test compares the two.
macro_rules! health {
    () => {
        concat!(
            "CASE WHEN ",
            is_live!(),
            " THEN 'running' WHEN t.paused_at IS NOT NULL THEN 'paused' WHEN t.last_status = 'failed' THEN 'failed'
              WHEN t.overdue_since IS NOT NULL THEN 'overdue' WHEN t.last_status IS NULL THEN 'new'
              WHEN t.last_warnings > 0 THEN 'warned' ELSE 'good' END"
        )
    };
}

row_type! {
    pub struct TaskRow {
        id: TaskId = "t.id",
        user_id: UserId = "t.user_id",
        remote_server_id: ServerId = "t.remote_server_id",
        backup_destination_id: DestinationId = "t.backup_destination_id",
        label: String = "t.label",
        description: Option<String> = "t.description",
        spec: TaskSpec = "t.spec",
        has_encryption_password: bool = "(t.encryption_password_sealed IS NOT NULL)",
        has_heartbeat: bool = "(t.heartbeat_sealed IS NOT NULL)",
        next_run_at: Option<DbTime> = "t.next_run_at",
        last_run_at: Option<DbTime> = "t.last_run_at",
        /// The last run that ended by itself, and how.
        last_run_id: Option<RunId> = "t.last_run_id",
        last_status: Option<RunStatus> = "t.last_status",
        last_error_code: Option<FailureCode> = "t.last_error_code",
        last_warnings: i64 = "t.last_warnings",
        paused_at: Option<DbTime> = "t.paused_at",
        /// It was paused with all others of its account, and is resumed with them.
        paused_together: bool = "t.paused_together",
        created_at: DbTime = "t.created_at",
        updated_at: DbTime = "t.updated_at",
        streams_count: i64 = "t.streams_count",
        tags_count: i64 = "t.tags_count",
        /// When one of its existing backups was last verified.
        proven_at: Option<DbTime> = "t.proven_at",
        /// Since when old backups are not removed, because a newer one is suspicious.
        retention_held_at: Option<DbTime> = "t.retention_held_at",
        held_signs: Option<String> = "t.held_signs",
        held_reason: Option<String> = "t.held_reason",
        held_told_at: Option<DbTime> = "t.held_told_at",
        is_live: bool = is_live!(),
    }
}

impl TaskRow {
    pub fn status(&self) -> TaskStatus {
        if self.is_live { TaskStatus::Running } else { TaskStatus::Ready }
    }

    /// Everything that an update starts from.
    pub fn settings(&self) -> TaskSettings {
        TaskSettings {
            server: self.remote_server_id,
            destination: self.backup_destination_id,
            label: self.label.clone(),
            description: self.description.clone(),
            spec: self.spec.clone(),
        }
    }
}

/// The value of the column `frequency`, which queries filter by: a task with a cron expression counts as custom.
pub(crate) fn frequency_column(schedule: &Schedule) -> &'static str {
    if schedule.cron.is_some() { Frequency::Custom.as_str() } else { schedule.frequency.as_str() }
}

/// Narrows a list of tasks.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    pub status: Option<TaskStatus>,
    pub kind: Option<TaskKind>,
    pub tag: Option<i64>,
    pub server: Option<i64>,
    pub destination: Option<i64>,
    pub health: Option<TaskHealth>,
}

pub async fn find(tx: &mut Tx, id: TaskId) -> Result<Option<TaskRow>> {
    find_row!(tx, "FROM backup_tasks t WHERE t.id = $1", id.0)
}

/// Finds the row and keeps others from changing it until the transaction ends.
pub async fn find_locked(tx: &mut Tx, id: TaskId) -> Result<Option<TaskRow>> {
    execute!(tx, "UPDATE backup_tasks SET updated_at = updated_at WHERE id = $1", id.0)?;
    find(tx, id).await
}

pub async fn list(tx: &mut Tx, listing: &Listing, filter: &TaskFilter) -> Result<Page<TaskRow>> {
    let narrowed = filter.status.is_some()
        || filter.kind.is_some()
        || filter.tag.is_some()
        || filter.server.is_some()
        || filter.destination.is_some()
        || filter.health.is_some();
    if !narrowed {
        return list_page!(tx, listing, "backup_tasks" as "t");
    }
    list_page!(
        tx,
        listing,
        "backup_tasks" as "t",
        concat!(
            label_matches!("t"),
            " AND ($5 IS NULL OR ",
            is_live!(),
            " = $5)
              AND ($6 IS NULL OR t.kind = $6)
              AND ($7 IS NULL OR EXISTS (SELECT 1 FROM task_tags g WHERE g.task_id = t.id AND g.tag_id = $7))
              AND ($8 IS NULL OR t.remote_server_id = $8)
              AND ($9 IS NULL OR t.backup_destination_id = $9)
              AND ($10 IS NULL OR $10 = ",
            health!(),
            ")"
        ),
        filter.status.map(|status| status == TaskStatus::Running),
        filter.kind.map(TaskKind::as_str),
        filter.tag,
        filter.server,
        filter.destination,
        filter.health.map(TaskHealth::as_str)
    )
}

/// What is attached to the tasks of a page: pairs of task and stream or tag, in order.
pub async fn list_stream_ids(tx: &mut Tx, tasks: &[i64]) -> Result<Vec<(i64, i64)>> {
    list_attached(tx, "SELECT task_id, stream_id FROM task_streams WHERE task_id IN (", tasks).await
}

pub async fn list_tag_ids(tx: &mut Tx, tasks: &[i64]) -> Result<Vec<(i64, i64)>> {
    list_attached(tx, "SELECT task_id, tag_id FROM task_tags WHERE task_id IN (", tasks).await
}

async fn list_attached(tx: &mut Tx, select: &'static str, tasks: &[i64]) -> Result<Vec<(i64, i64)>> {
    with_conn!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new(select);
        push_ids(&mut query, tasks);
        query.push(") ORDER BY 1, 2");
        query.build().all(conn).await.and_then(decode_all::<(i64, i64), _>)
    })
}

/// Runs a statement with a task's settings as `$1` to `$8`, and further values from `$9` on.
macro_rules! with_settings {
    ($run:ident!($($head:tt)*), $settings:expr, $($more:expr),* $(,)?) => {{
        let TaskSettings { server, destination, label, description, spec } = $settings;
        $run!(
            $($head)*,
            server.0,
            destination.0,
            label,
            search_form(label),
            description,
            spec.source.kind().as_str(),
            frequency_column(&spec.schedule),
            spec::encode(&spec.write())?,
            $($more),*
        )
    }};
}

pub async fn insert(
    tx: &mut Tx,
    owner: UserId,
    draft: &TaskDraft,
    next_run_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<TaskId> {
    const SQL: &str =
        "INSERT INTO backup_tasks (remote_server_id, backup_destination_id, label, search_label, description,
             kind, frequency, spec, user_id, next_run_at, created_at, updated_at, overdue_at, paused_at, streams_count,
             tags_count)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $12, $13, 0, 0)
         RETURNING id";
    // A paused task is never overdue.
    let is_paused = draft.is_paused == Some(true);
    let overdue = if is_paused { None } else { overdue_at(&draft.settings.spec.schedule, now) };
    let id = with_settings!(
        fetch_scalar!(tx, i64, SQL),
        &draft.settings,
        owner.0,
        next_run_at.map(DbTime),
        DbTime(now),
        overdue.map(DbTime),
        is_paused.then_some(DbTime(now))
    )?;
    write_attached(tx, id, owner, draft).await?;
    Ok(TaskId(id))
}

pub async fn update(
    tx: &mut Tx,
    row: &TaskRow,
    draft: &TaskDraft,
    next_run_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<()> {
    const SQL: &str = "UPDATE backup_tasks SET remote_server_id = $1, backup_destination_id = $2, label = $3,
             search_label = $4, description = $5, kind = $6, frequency = $7, spec = $8, next_run_at = $9, updated_at = $10,
             overdue_at = COALESCE($11, overdue_at), overdue_since = CASE WHEN $11 IS NULL THEN overdue_since END
         WHERE id = $12 AND user_id = $13";
    let is_rescheduled = row.paused_at.is_none() && row.spec.schedule != draft.settings.spec.schedule;
    let overdue = if is_rescheduled { overdue_at(&draft.settings.spec.schedule, now) } else { None };
    with_settings!(
        execute!(tx, SQL),
        &draft.settings,
        next_run_at.map(DbTime),
        row.updated_at.moved_on(now),
        overdue.map(DbTime),
        row.id.0,
        row.user_id.0
    )?;
    write_attached(tx, row.id.0, row.user_id, draft).await
}

/// Writes the secrets, which are bound to the row, and the streams and tags of the task.
async fn write_attached(tx: &mut Tx, id: i64, owner: UserId, draft: &TaskDraft) -> Result<()> {
    write_secret!(tx, "backup_tasks", "encryption_password_sealed", id, owner, &draft.encryption_password);
    write_secret!(tx, "backup_tasks", "heartbeat_sealed", id, owner, &draft.heartbeat_url);
    if let Some(streams) = &draft.stream_ids {
        execute!(tx, "DELETE FROM task_streams WHERE task_id = $1", id)?;
        for stream in streams {
            execute!(tx, "INSERT INTO task_streams (task_id, stream_id) VALUES ($1, $2)", id, *stream)?;
        }
        execute!(tx, "UPDATE backup_tasks SET streams_count = $1 WHERE id = $2", streams.len() as i64, id)?;
    }
    if let Some(tags) = &draft.tag_ids {
        execute!(tx, "DELETE FROM task_tags WHERE task_id = $1", id)?;
        for tag in tags {
            execute!(tx, "INSERT INTO task_tags (task_id, tag_id) VALUES ($1, $2)", id, *tag)?;
        }
        execute!(tx, "UPDATE backup_tasks SET tags_count = $1 WHERE id = $2", tags.len() as i64, id)?;
    }
    Ok(())
}

/// The password that the task's backups are encrypted with.
pub async fn open_encryption_password(tx: &mut Tx, row: &TaskRow) -> Result<Option<Secret>> {
    read_secret!(tx, "backup_tasks", "encryption_password_sealed", row.id.0, row.user_id)
}

/// The URL that the task's heartbeat is sent to.
pub async fn open_heartbeat_url(tx: &mut Tx, row: &TaskRow) -> Result<Option<Secret>> {
    read_secret!(tx, "backup_tasks", "heartbeat_sealed", row.id.0, row.user_id)
}

/// The secret of the task's trigger URL, if one has been created.
pub async fn open_trigger_secret(tx: &mut Tx, row: &TaskRow) -> Result<Option<Secret>> {
    read_secret!(tx, "backup_tasks", "trigger_sealed", row.id.0, row.user_id)
}

pub async fn update_trigger_secret(tx: &mut Tx, row: &TaskRow, secret: Secret) -> Result<()> {
    let change = SecretChange::Set(secret);
    write_secret!(tx, "backup_tasks", "trigger_sealed", row.id.0, row.user_id, &change);
    Ok(())
}

/// Revokes the trigger URLs of all of the user's tasks. Returns how many there were.
pub async fn delete_trigger_secrets(tx: &mut Tx, user: UserId) -> Result<u64> {
    let sql = "UPDATE backup_tasks SET trigger_sealed = NULL WHERE user_id = $1 AND trigger_sealed IS NOT NULL";
    execute!(tx, sql, user.0)
}

/// Pauses with a time, resumes with `None`. A paused task has no next run.
pub async fn update_pause(
    tx: &mut Tx,
    row: &TaskRow,
    paused_at: Option<Timestamp>,
    next_run_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<()> {
    // A paused task is never overdue; a resumed one gets its full time again.
    let overdue = if paused_at.is_none() { overdue_at(&row.spec.schedule, now) } else { None };
    execute!(
        tx,
        "UPDATE backup_tasks SET paused_at = $1, next_run_at = $2, updated_at = $3, overdue_at = $4, retry_at = NULL,
             losses = 0, overdue_since = NULL, paused_together = FALSE
         WHERE id = $5 AND user_id = $6",
        paused_at.map(DbTime),
        next_run_at.map(DbTime),
        row.updated_at.moved_on(now),
        overdue.map(DbTime),
        row.id.0,
        row.user_id.0
    )?;
    Ok(())
}

/// Records whether a paused task is to be resumed with all others of its account.
pub async fn update_paused_together(tx: &mut Tx, id: TaskId, is_together: bool) -> Result<()> {
    execute!(tx, "UPDATE backup_tasks SET paused_together = $1 WHERE id = $2", is_together, id.0)?;
    Ok(())
}

/// Takes the schedule from all of a user's tasks, without pausing them: nothing is due, nothing is overdue.
pub async fn stop_schedules(tx: &mut Tx, owner: UserId) -> Result<()> {
    execute!(
        tx,
        "UPDATE backup_tasks SET next_run_at = NULL, retry_at = NULL, overdue_at = NULL, overdue_since = NULL
         WHERE user_id = $1",
        owner.0
    )?;
    Ok(())
}

/// Keeps others from changing any of a user's tasks, or starting one, until the transaction ends.
pub async fn lock_all(tx: &mut Tx, owner: UserId) -> Result<()> {
    execute!(tx, "UPDATE backup_tasks SET updated_at = updated_at WHERE user_id = $1", owner.0)?;
    Ok(())
}

/// How many of a user's tasks have a trigger URL.
pub async fn count_triggers(tx: &mut Tx, owner: UserId) -> Result<i64> {
    let sql = "SELECT COUNT(*) FROM backup_tasks WHERE user_id = $1 AND trigger_sealed IS NOT NULL";
    fetch_scalar!(tx, i64, sql, owner.0)
}

/// All tasks of a user.
pub async fn list_of(tx: &mut Tx, owner: UserId) -> Result<Vec<TaskRow>> {
    let sql = concat!("SELECT ", columns!(), " FROM backup_tasks t WHERE t.user_id = $1 ORDER BY t.id");
    fetch_all!(tx, _, sql, owner.0)
}

/// The tasks of a user that are not paused.
pub async fn list_unpaused(tx: &mut Tx, owner: UserId) -> Result<Vec<TaskRow>> {
    fetch_all!(
        tx,
        _,
        concat!(
            "SELECT ",
            columns!(),
            " FROM backup_tasks t WHERE t.user_id = $1 AND t.paused_at IS NULL ORDER BY t.id"
        ),
        owner.0
    )
}

pub async fn delete(tx: &mut Tx, owner: UserId, id: TaskId) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM backup_tasks WHERE id = $1 AND user_id = $2", id.0, owner.0)? == 1)
}

/// How many of these ids are the owner's: fewer than given means that some are not.
pub async fn count_owned(tx: &mut Tx, table: Referenced, owner: UserId, ids: &[i64]) -> Result<usize> {
    let select = match table {
        Referenced::Server => "SELECT COUNT(*) FROM remote_servers WHERE user_id = ",
        Referenced::Destination => "SELECT COUNT(*) FROM backup_destinations WHERE user_id = ",
        Referenced::Stream => "SELECT COUNT(*) FROM notification_streams WHERE user_id = ",
        Referenced::Tag => "SELECT COUNT(*) FROM tags WHERE user_id = ",
    };
    if ids.is_empty() {
        return Ok(0);
    }
    let (count,) = with_conn!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new(select);
        query.push_bind(owner.0).push(" AND id IN (");
        push_ids(&mut query, ids);
        query.push(")");
        query.build().first(conn).await.and_then(decode_one::<(i64,), _>)
    })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Prevents streams and tags from being attached to or detached from tasks until the transaction ends, so that the
/// counts in tasks stay right when one is deleted. SQLite has only one writer anyway.
pub(crate) async fn lock_attachments(tx: &mut Tx) -> Result<()> {
    if let Backend::Postgres(connection) = tx.backend() {
        let lock = "LOCK TABLE task_streams, task_tags IN SHARE ROW EXCLUSIVE MODE";
        let locked = sqlx::query::<sqlx::Postgres>(lock).run(connection).await;
        tx.checked(locked)?;
    }
    Ok(())
}

/// What a task can refer to.
#[derive(Debug, Clone, Copy)]
pub enum Referenced {
    Server,
    Destination,
    Stream,
    Tag,
}

/// Records the end of the task's last run. A cancelled run says nothing about the task's health.
pub async fn update_last_run(
    tx: &mut Tx,
    id: TaskId,
    run: RunId,
    end: (RunStatus, Option<FailureCode>),
    warnings: i64,
    finished_at: Timestamp,
) -> Result<()> {
    let (status, code) = end;
    if status == RunStatus::Cancelled {
        execute!(tx, "UPDATE backup_tasks SET last_run_at = $1 WHERE id = $2", DbTime(finished_at), id.0)?;
        return Ok(());
    }
    execute!(
        tx,
        "UPDATE backup_tasks SET last_run_at = $1, last_run_id = $2, last_status = $3, last_error_code = $4,
             last_warnings = $5, last_success_at = CASE WHEN $3 = 'successful' THEN $1 ELSE last_success_at END
         WHERE id = $6",
        DbTime(finished_at),
        run.0,
        status.as_str(),
        code.map(FailureCode::as_str),
        warnings,
        id.0
    )?;
    Ok(())
}

/// Puts the removal of a task's old backups on hold, or updates the reason if it already is.
pub async fn update_hold(tx: &mut Tx, id: TaskId, signs: &str, reason: &str, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE backup_tasks SET retention_held_at = COALESCE(retention_held_at, $1), held_signs = $2, held_reason = $3
         WHERE id = $4",
        DbTime(now),
        signs,
        reason,
        id.0
    )?;
    Ok(())
}

pub async fn update_hold_told(tx: &mut Tx, id: TaskId, now: Timestamp) -> Result<()> {
    execute!(tx, "UPDATE backup_tasks SET held_told_at = $1 WHERE id = $2", DbTime(now), id.0)?;
    Ok(())
}

/// Ends the hold: old backups are removed again from the next success on.
pub async fn end_hold(tx: &mut Tx, id: TaskId) -> Result<()> {
    execute!(
        tx,
        "UPDATE backup_tasks SET retention_held_at = NULL, held_signs = NULL, held_reason = NULL, held_told_at = NULL
         WHERE id = $1",
        id.0
    )?;
    Ok(())
}

/// The user's tasks for which the removal of old backups is on hold.
pub async fn list_held(tx: &mut Tx, owner: UserId, limit: i64) -> Result<Vec<TaskRow>> {
    let rows = fetch_all!(
        tx,
        (i64,),
        "SELECT id FROM backup_tasks WHERE user_id = $1 AND retention_held_at IS NOT NULL ORDER BY id LIMIT $2",
        owner.0,
        limit
    )?;
    let ids: Vec<i64> = rows.into_iter().map(|(id,)| id).collect();
    list_by_id(tx, &ids).await
}

/// Updates when one of the existing backups of this backup's task was last verified.
pub async fn update_proven(tx: &mut Tx, backup: BackupId) -> Result<()> {
    execute!(
        tx,
        "UPDATE backup_tasks SET proven_at = (SELECT MAX(b.verified_at) FROM backups b WHERE b.task_id = backup_tasks.id
                 AND b.verification = 'verified' AND b.deleted_at IS NULL)
         WHERE id = (SELECT task_id FROM backups WHERE id = $1)",
        backup.0
    )?;
    Ok(())
}

/// The labels of these tasks, if they are the owner's.
pub async fn list_labels(tx: &mut Tx, owner: UserId, tasks: &[i64]) -> Result<Vec<(i64, String)>> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    with_conn!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new("SELECT id, label FROM backup_tasks WHERE user_id = ");
        query.push_bind(owner.0).push(" AND id IN (");
        push_ids(&mut query, tasks);
        query.push(")");
        query.build().all(conn).await.and_then(decode_all::<(i64, String), _>)
    })
}

/// The tasks with these ids, in the same order.
pub async fn list_by_id(tx: &mut Tx, ids: &[i64]) -> Result<Vec<TaskRow>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows: Vec<TaskRow> = with_conn!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new(concat!("SELECT ", columns!(), " FROM backup_tasks t WHERE t.id IN ("));
        push_ids(&mut query, ids);
        query.push(")");
        query.build().all(conn).await.and_then(decode_all)
    })?;
    rows.sort_unstable_by_key(|row| ids.iter().position(|id| *id == row.id.0));
    Ok(rows)
}
