//! Runs: queued, claimed with a lease, ended exactly once. A run is its own queue entry, and a backup run is a task's
//! log.

use holdfast_core::Timestamp;
use holdfast_core::characters;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{BackupId, DestinationId, RepositoryId, RunId, ServerId, StreamId, TaskId, UserId};
use holdfast_core::page::Page;
use holdfast_core::run::{RunIds, RunKind, RunStatus, RunSubject, Trigger};
use sqlx::QueryBuilder;

use crate::listing::equals;
use crate::row::{AnyRow, FromAnyRow};
use crate::statement::{Statement as _, decode_all};
use crate::tx::push_ids;
use crate::{DbTime, Listing, Result, Tx};

/// When a run last changed.
macro_rules! ended_at {
    () => {
        "COALESCE(r.finished_at, r.started_at, r.created_at)"
    };
}

/// The kept totals of a user's runs.
macro_rules! kept_runs {
    () => {
        concat!("subject = 'run'", unsearched!())
    };
}

row_type! {
    /// A run as stored; callers get a [`RunRow`].
    struct RunFields {
        id: RunId = "r.id",
        user_id: UserId = "r.user_id",
        kind: RunKind = "r.kind",
        task_id: Option<TaskId> = "r.task_id",
        server_id: Option<ServerId> = "r.server_id",
        destination_id: Option<DestinationId> = "r.destination_id",
        stream_id: Option<StreamId> = "r.stream_id",
        backup_id: Option<BackupId> = "r.backup_id",
        repository_id: Option<RepositoryId> = "r.repository_id",
        made_backup: Option<BackupId> = "(SELECT MIN(b.id) FROM backups b WHERE b.run_id = r.id)",
        status: RunStatus = "r.status",
        requested_by: Trigger = "r.requested_by",
        attempt: i64 = "r.attempt",
        lease_epoch: i64 = "r.lease_epoch",
        bytes_read: i64 = "r.bytes_read",
        bytes_stored: i64 = "r.bytes_stored",
        files: i64 = "r.files",
        bytes_total: i64 = "r.bytes_total",
        files_total: i64 = "r.files_total",
        bytes_per_second: i64 = "r.bytes_per_second",
        warnings: i64 = "r.warnings",
        error_code: Option<FailureCode> = "r.error_code",
        created_at: DbTime = "r.created_at",
        started_at: Option<DbTime> = "r.started_at",
        finished_at: Option<DbTime> = "r.finished_at",
    }
}

impl RunFields {
    /// What the run works on. It is never missing, because deleting it deletes the run.
    fn subject(&self) -> Option<RunSubject> {
        RunSubject::of(
            self.kind,
            &RunIds {
                task: self.task_id,
                server: self.server_id,
                destination: self.destination_id,
                stream: self.stream_id,
                backup: self.backup_id,
                repository: self.repository_id,
            },
        )
    }
}

#[derive(Debug, Clone)]
pub struct RunRow {
    pub id: RunId,
    pub user_id: UserId,
    pub subject: RunSubject,
    /// The backup that a backup run has made.
    pub made_backup: Option<BackupId>,
    pub status: RunStatus,
    pub requested_by: Trigger,
    pub attempt: i64,
    pub lease_epoch: i64,
    pub bytes_read: i64,
    pub bytes_stored: i64,
    pub files: i64,
    /// Estimates; 0 means unknown.
    pub bytes_total: i64,
    pub files_total: i64,
    pub bytes_per_second: i64,
    pub warnings: i64,
    pub error_code: Option<FailureCode>,
    pub created_at: DbTime,
    pub started_at: Option<DbTime>,
    pub finished_at: Option<DbTime>,
}

row_of_either!(RunRow);

impl FromAnyRow for RunRow {
    fn from_any(row: &dyn AnyRow) -> std::result::Result<Self, sqlx::Error> {
        let row = RunFields::from_any(row)?;
        let subject = row.subject();
        let subject = subject.ok_or_else(|| sqlx::Error::Decode(format!("run {} has no subject", row.id).into()))?;
        Ok(Self {
            id: row.id,
            user_id: row.user_id,
            subject,
            made_backup: row.made_backup,
            status: row.status,
            requested_by: row.requested_by,
            attempt: row.attempt,
            lease_epoch: row.lease_epoch,
            bytes_read: row.bytes_read,
            bytes_stored: row.bytes_stored,
            files: row.files,
            bytes_total: row.bytes_total,
            files_total: row.files_total,
            bytes_per_second: row.bytes_per_second,
            warnings: row.warnings,
            error_code: row.error_code,
            created_at: row.created_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
        })
    }
}

impl RunRow {
    pub fn kind(&self) -> RunKind {
        self.subject.kind()
    }

    pub fn is_live(&self) -> bool {
        self.status.is_live()
    }
}

/// A run to be queued.
#[derive(Debug, Clone, Copy)]
pub struct NewRun {
    pub owner: UserId,
    pub subject: RunSubject,
    /// The server it puts load on, if that is not the server of its task.
    pub load_server: Option<ServerId>,
    pub trigger: Trigger,
    pub slot: Option<Timestamp>,
    /// 1, or 2 for a retry and for a run that takes the place of one.
    pub attempt: i64,
    /// The run that it retries.
    pub retry_of: Option<RunId>,
}

impl NewRun {
    pub fn new(owner: UserId, subject: RunSubject, trigger: Trigger) -> Self {
        Self { owner, subject, load_server: None, trigger, slot: None, attempt: 1, retry_of: None }
    }
}

/// Queues a run behind its owner's other ones (see the core's queue). Returns `None` if the task has a live run, or the
/// slot already has its run.
pub async fn insert(tx: &mut Tx, new: &NewRun, now: Timestamp) -> Result<Option<RunId>> {
    let NewRun { owner, subject, load_server, trigger, slot, attempt, retry_of } = *new;
    let row = fetch_optional!(
        tx,
        (i64,),
        "INSERT INTO runs (user_id, kind, task_id, server_id, destination_id, stream_id, backup_id, status,
             requested_by, slot_at, attempt, lease_epoch, bytes_read, bytes_stored, files, warnings, created_at,
             load_server_id, retry_of, is_long, repository_id, turn)
         SELECT $1, $2, CAST($3 AS BIGINT), CAST($4 AS BIGINT), CAST($5 AS BIGINT), CAST($6 AS BIGINT),
             CAST($7 AS BIGINT), 'queued', $8, CAST($9 AS BIGINT), CAST($10 AS BIGINT), 0, 0, 0, 0, 0,
             CAST($11 AS BIGINT),
             COALESCE(CAST($12 AS BIGINT), (SELECT t.remote_server_id FROM backup_tasks t WHERE t.id = $3)),
             CAST($13 AS BIGINT), $14, CAST($15 AS BIGINT),
             CASE WHEN $14 AND q.own >= q.served THEN q.own + 1 ELSE q.served END
         FROM (SELECT COALESCE((SELECT MAX(turn) FROM runs WHERE started_at IS NOT NULL), 0) AS served,
                   COALESCE((SELECT MAX(turn) FROM runs WHERE user_id = $1), -1) AS own) q
         WHERE TRUE
         ON CONFLICT DO NOTHING RETURNING id",
        owner.0,
        subject.kind().as_str(),
        subject.task().map(|id| id.0),
        subject.server().map(|id| id.0),
        subject.destination().map(|id| id.0),
        subject.stream().map(|id| id.0),
        subject.backup().map(|id| id.0),
        trigger.as_str(),
        slot.map(DbTime),
        attempt,
        DbTime(now),
        load_server.map(|id| id.0),
        retry_of.map(|run| run.0),
        subject.kind().is_long(),
        subject.repository().map(|id| id.0)
    )?;
    Ok(row.map(|(id,)| RunId(id)))
}

/// Records a slot for which nothing was run, as a run that has already ended. Returns `None` if the slot has its run.
pub async fn insert_ended(
    tx: &mut Tx,
    owner: UserId,
    task: TaskId,
    slot: Timestamp,
    end: (RunStatus, FailureCode),
    text: &str,
    now: Timestamp,
) -> Result<Option<RunId>> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "INSERT INTO runs (user_id, kind, task_id, status, requested_by, slot_at, attempt, lease_epoch, bytes_read,
             bytes_stored, files, warnings, error_code, created_at, finished_at)
         VALUES ($1, 'backup', $2, $3, 'schedule', $4, 1, 0, 0, 0, 0, 0, $5, $6, $6)
         ON CONFLICT DO NOTHING RETURNING id",
        owner.0,
        task.0,
        end.0.as_str(),
        DbTime(slot),
        end.1.as_str(),
        DbTime(now)
    )?;
    let Some((id,)) = row else { return Ok(None) };
    append_line(tx, RunId(id), 0, text, now).await?;
    Ok(Some(RunId(id)))
}

/// The queued or running run of a subject.
pub async fn find_same(tx: &mut Tx, owner: UserId, subject: RunSubject) -> Result<Option<RunId>> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "SELECT id FROM runs WHERE user_id = $1 AND status IN ('queued', 'running') AND kind = $2
             AND COALESCE(task_id, 0) = $3 AND COALESCE(server_id, 0) = $4 AND COALESCE(destination_id, 0) = $5
             AND COALESCE(stream_id, 0) = $6 AND COALESCE(backup_id, 0) = $7 AND COALESCE(repository_id, 0) = $8
         ORDER BY id DESC LIMIT 1",
        owner.0,
        subject.kind().as_str(),
        subject.task().map_or(0, |id| id.0),
        subject.server().map_or(0, |id| id.0),
        subject.destination().map_or(0, |id| id.0),
        subject.stream().map_or(0, |id| id.0),
        subject.backup().map_or(0, |id| id.0),
        subject.repository().map_or(0, |id| id.0)
    )?;
    Ok(row.map(|(id,)| RunId(id)))
}

/// How many of a user's probes are queued or running.
pub async fn count_probes(tx: &mut Tx, owner: UserId) -> Result<i64> {
    let sql = "SELECT COUNT(*) FROM runs WHERE user_id = $1 AND status IN ('queued', 'running') AND kind = 'probe'";
    fetch_scalar!(tx, i64, sql, owner.0)
}

/// Notifies the workers of other processes, once this is committed, that something is queued.
pub async fn announce(tx: &mut Tx) -> Result<()> {
    if let crate::tx::Backend::Postgres(connection) = tx.backend() {
        let sent = sqlx::query::<sqlx::Postgres>("SELECT pg_notify($1, '')")
            .bind(crate::tx::QUEUE_CHANNEL)
            .run(connection)
            .await;
        tx.checked(sent)?;
    }
    Ok(())
}

pub async fn find(tx: &mut Tx, id: RunId) -> Result<Option<RunRow>> {
    find_row!(tx, "FROM runs r WHERE r.id = $1", id.0)
}

/// A task's log; only backup runs are logs.
pub async fn find_log(tx: &mut Tx, id: RunId) -> Result<Option<RunRow>> {
    find_row!(tx, "FROM runs r WHERE r.id = $1 AND r.kind = 'backup'", id.0)
}

/// The newest run of a task, not counting slots that were skipped.
pub async fn find_latest(tx: &mut Tx, task: TaskId) -> Result<Option<RunRow>> {
    find_row!(
        tx,
        "FROM runs r WHERE r.task_id = $1 AND COALESCE(r.error_code, '') <> 'skipped' ORDER BY r.id DESC LIMIT 1",
        task.0
    )
}

pub async fn find_live(tx: &mut Tx, task: TaskId) -> Result<Option<RunRow>> {
    find_row!(tx, "FROM runs r WHERE r.task_id = $1 AND r.status IN ('queued', 'running')", task.0)
}

/// The newest prune or check of a repository.
pub async fn find_newest_of_repository(tx: &mut Tx, id: RepositoryId) -> Result<Option<RunRow>> {
    find_row!(tx, "FROM runs r WHERE r.repository_id = $1 ORDER BY r.id DESC LIMIT 1", id.0)
}

/// All of a user's runs that are queued or running.
pub async fn list_live(tx: &mut Tx, owner: UserId) -> Result<Vec<RunRow>> {
    fetch_all!(
        tx,
        _,
        concat!(
            "SELECT ",
            columns!(),
            " FROM runs r WHERE r.user_id = $1 AND r.status IN ('queued', 'running') ORDER BY r.id"
        ),
        owner.0
    )
}

/// The long runs of a user.
pub async fn list_long(tx: &mut Tx, listing: &Listing) -> Result<Page<RunRow>> {
    let total = format!("{} AND kind IN ({})", kept_runs!(), kinds(RunKind::is_long));
    list_page!(
        tx,
        listing,
        "runs" as "r" with "", created "r.created_at", changed ended_at!(), total Some(&*total),
        concat!(" AND r.is_long", unsearched!())
    )
}

/// The kinds of runs that are counted for a list, for a statement: totals are kept by kind.
fn kinds(is_listed: impl Fn(RunKind) -> bool) -> String {
    let listed = RunKind::ALL.iter().filter(|kind| is_listed(**kind)).map(|kind| format!("'{}'", kind.as_str()));
    listed.collect::<Vec<_>>().join(", ")
}

/// Narrows a list of logs.
#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    pub task: Option<i64>,
    pub status: Option<RunStatus>,
}

pub async fn list_logs(tx: &mut Tx, listing: &Listing, filter: &LogFilter) -> Result<Page<RunRow>> {
    // Only the conditions that apply, so that each combination is found by an index.
    let task = filter.task.map_or("", |_| " AND r.task_id = $5");
    let status = equals("r.status", filter.status.map(RunStatus::as_str));
    let condition = format!(" AND r.kind = 'backup'{task}{status}{}", unsearched!());
    let kept_status = equals("status", filter.status.map(RunStatus::as_str));
    let kept = format!("{} AND kind = 'backup'{kept_status}", kept_runs!());
    list_page!(
        tx,
        listing,
        "runs" as "r" with "", created "r.created_at", changed ended_at!(),
        total filter.task.is_none().then_some(&*kept), &condition,
        filter.task
    )
}

/// Deletes the log of a run that has ended. Returns false for a live run, or if there is no such log.
pub async fn delete_log(tx: &mut Tx, owner: UserId, id: RunId) -> Result<bool> {
    let deleted = execute!(
        tx,
        "DELETE FROM runs WHERE id = $1 AND user_id = $2 AND kind = 'backup' AND finished_at IS NOT NULL",
        id.0,
        owner.0
    )?;
    Ok(deleted == 1)
}

/// The output of several runs: pairs of run and line, in order.
pub async fn list_lines(tx: &mut Tx, runs: &[i64]) -> Result<Vec<(i64, String)>> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    with_conn!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new("SELECT run_id, text FROM run_lines WHERE run_id IN (");
        push_ids(&mut query, runs);
        query.push(") ORDER BY run_id, number");
        query.build().all(conn).await.and_then(decode_all::<(i64, String), _>)
    })
}

/// The last lines of a run, in order.
pub async fn list_last_lines(tx: &mut Tx, id: RunId, limit: i64) -> Result<Vec<String>> {
    let sql = "SELECT text FROM run_lines WHERE run_id = $1 ORDER BY number DESC LIMIT $2";
    let rows = fetch_all!(tx, (String,), sql, id.0, limit)?;
    Ok(rows.into_iter().rev().map(|(text,)| text).collect())
}

/// Appends a line to a run's output if the lease of `epoch` still holds.
pub async fn append_line(tx: &mut Tx, id: RunId, epoch: i64, text: &str, now: Timestamp) -> Result<bool> {
    let text = characters::stored_line(text);
    let appended = execute!(
        tx,
        "INSERT INTO run_lines (run_id, number, at, text)
         SELECT r.id, (SELECT COALESCE(MAX(number), 0) + 1 FROM run_lines WHERE run_id = r.id), $1, $2
         FROM runs r WHERE r.id = $3 AND r.lease_epoch = $4",
        DbTime(now),
        text,
        id.0,
        epoch
    )?;
    Ok(appended == 1)
}

/// The runs with these ids, in the order of their turns.
pub(crate) async fn list_in_turn(tx: &mut Tx, wanted: &[i64]) -> Result<Vec<RunRow>> {
    with_conn!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new(concat!("SELECT ", columns!(), " FROM runs r WHERE r.id IN ("));
        push_ids(&mut query, wanted);
        query.push(") ORDER BY r.turn, r.id");
        query.build().all(conn).await.and_then(decode_all)
    })
}

/// The progress of a run; see `update_progress`.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunCounts {
    pub bytes_read: i64,
    pub bytes_stored: i64,
    pub files: i64,
    pub warnings: i64,
    pub bytes_total: i64,
    pub files_total: i64,
    pub bytes_per_second: i64,
}

/// What a heartbeat finds out about its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    Continue,
    /// Somebody requested that the run be cancelled.
    Cancel,
    /// This worker no longer holds the lease.
    Lost,
}

/// Renews the lease of a run and records its progress.
pub async fn update_progress(
    tx: &mut Tx,
    id: RunId,
    epoch: i64,
    counts: &RunCounts,
    lease_until: Timestamp,
) -> Result<LeaseState> {
    let row = fetch_optional!(
        tx,
        (bool,),
        "UPDATE runs SET bytes_read = $1, bytes_stored = $2, files = $3, warnings = $4, bytes_total = $5,
             files_total = $6, bytes_per_second = $7, lease_expires_at = $8
         WHERE id = $9 AND lease_epoch = $10 AND status = 'running' RETURNING cancel_requested_at IS NOT NULL",
        counts.bytes_read,
        counts.bytes_stored,
        counts.files,
        counts.warnings,
        counts.bytes_total,
        counts.files_total,
        counts.bytes_per_second,
        DbTime(lease_until),
        id.0,
        epoch
    )?;
    Ok(match row {
        Some((false,)) => LeaseState::Continue,
        Some((true,)) => LeaseState::Cancel,
        None => LeaseState::Lost,
    })
}

/// A long run: a backup, restore, verification or inventory.
pub async fn find_long(tx: &mut Tx, id: RunId) -> Result<Option<RunRow>> {
    find_row!(tx, "FROM runs r WHERE r.id = $1 AND r.is_long", id.0)
}

/// Narrows a list of runs.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    pub backup: Option<i64>,
    pub kind: Option<RunKind>,
    pub status: Option<RunStatus>,
}

/// Restores, verifications and any other runs that work on a stored backup; or, if that is what is asked for, runs of a
/// kind that looks after repositories.
pub async fn list_runs_of_stored_backups(tx: &mut Tx, listing: &Listing, filter: &RunFilter) -> Result<Page<RunRow>> {
    // Only the conditions that apply, so that each combination is found by an index.
    let backup = filter.backup.map_or("", |_| " AND r.backup_id = $5");
    let kind = equals("r.kind", filter.kind.map(RunKind::as_str));
    let status = equals("r.status", filter.status.map(RunStatus::as_str));
    let is_of_repository = filter.kind.is_some_and(RunKind::is_of_repository);
    let what = if is_of_repository { "r.repository_id" } else { "r.backup_id" };
    let condition = format!(" AND {what} IS NOT NULL{backup}{kind}{status}{}", unsearched!());
    let kept_kind = equals("kind", filter.kind.map(RunKind::as_str));
    let kept_status = equals("status", filter.status.map(RunStatus::as_str));
    let kinds = kinds(if is_of_repository { RunKind::is_of_repository } else { RunKind::reads_stored_backup });
    let kept = format!("{} AND kind IN ({kinds}){kept_kind}{kept_status}", kept_runs!());
    list_page!(
        tx,
        listing,
        "runs" as "r" with "", created "r.created_at", changed ended_at!(),
        total filter.backup.is_none().then_some(&*kept), &condition,
        filter.backup
    )
}

/// Ends a run that this lease still holds. Returns false if the lease was lost: whoever took the run over ends it.
pub async fn finish(
    tx: &mut Tx,
    id: RunId,
    epoch: i64,
    status: RunStatus,
    error_code: Option<FailureCode>,
    now: Timestamp,
) -> Result<bool> {
    let ended = execute!(
        tx,
        "UPDATE runs SET status = $1, error_code = $2, finished_at = $3, lease_expires_at = NULL
         WHERE id = $4 AND lease_epoch = $5 AND status = 'running'",
        status.as_str(),
        error_code.map(FailureCode::as_str),
        DbTime(now),
        id.0,
        epoch
    )?;
    Ok(ended == 1)
}

/// Cancels a run that no worker has claimed yet.
pub async fn cancel_queued(tx: &mut Tx, id: RunId, now: Timestamp) -> Result<bool> {
    let cancelled = execute!(
        tx,
        "UPDATE runs SET status = 'cancelled', finished_at = $1 WHERE id = $2 AND status = 'queued'",
        DbTime(now),
        id.0
    )?;
    Ok(cancelled == 1)
}

/// Asks the worker that has the run to cancel it. Returns false if no worker has it.
pub async fn request_cancel(tx: &mut Tx, id: RunId, now: Timestamp) -> Result<bool> {
    let requested = execute!(
        tx,
        "UPDATE runs SET cancel_requested_at = COALESCE(cancel_requested_at, $1) WHERE id = $2 AND status = 'running'",
        DbTime(now),
        id.0
    )?;
    Ok(requested == 1)
}

pub async fn is_cancel_requested(tx: &mut Tx, id: RunId) -> Result<bool> {
    fetch_scalar!(tx, bool, "SELECT cancel_requested_at IS NOT NULL FROM runs WHERE id = $1", id.0)
}

/// Deletes inventories, prunes, checks and tests that ended before `before`: up to `limit` of those that can take long,
/// and of the others. Their findings are recorded elsewhere. Returns how many were deleted.
pub async fn delete_old_checks(tx: &mut Tx, before: Timestamp, limit: i64) -> Result<u64> {
    let long = execute!(
        tx,
        "DELETE FROM runs WHERE id IN (SELECT id FROM runs
             WHERE kind IN ('inventory', 'prune', 'check-repository') AND finished_at < $1 LIMIT $2)",
        DbTime(before),
        limit
    )?;
    let checks = execute!(
        tx,
        "DELETE FROM runs WHERE id IN (SELECT id FROM runs
             WHERE is_long = FALSE AND finished_at < $1 LIMIT $2)",
        DbTime(before),
        limit
    )?;
    Ok(long + checks)
}

/// How many scheduled verifications are queued or running, for all users.
pub async fn count_verifying(tx: &mut Tx) -> Result<i64> {
    let sql = "SELECT COUNT(*) FROM runs WHERE kind = 'verify' AND requested_by = 'schedule'
         AND status IN ('queued', 'running')";
    fetch_scalar!(tx, i64, sql)
}

/// A place among the runs that have ended, in the order in which they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndedPosition {
    at: i64,
    id: i64,
}

/// How many logs a search for old ones passes for each that it may delete: passing them takes far less time.
const PASSED_PER_DELETED: i64 = 10;

/// How far a search for old logs got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSearch {
    pub deleted: u64,
    /// Where it continues; `None` at its end.
    pub next: Option<EndedPosition>,
}

/// Deletes old logs that ended before `before`: at most `rows` of the next `rows * PASSED_PER_DELETED` behind `position`.
/// The newest of each task is kept, as is that of any backup that still exists. These stay for as long as the backups do
/// and may be millions, so the search continues behind them instead of beginning again.
pub async fn delete_old_logs(tx: &mut Tx, before: Timestamp, position: EndedPosition, rows: i64) -> Result<LogSearch> {
    let most = rows.saturating_mul(PASSED_PER_DELETED);
    let last = fetch_optional!(
        tx,
        (i64, i64, i64),
        "SELECT finished_at, id, place FROM (SELECT finished_at, id, ROW_NUMBER() OVER (ORDER BY finished_at, id) AS place
             FROM runs
             WHERE is_long AND finished_at IS NOT NULL AND finished_at < $1 AND (finished_at, id) > ($2, $3)
             ORDER BY finished_at, id LIMIT $4) AS candidates
         ORDER BY place DESC LIMIT 1",
        DbTime(before),
        position.at,
        position.id,
        most
    )?;
    let Some((at, id, found)) = last else { return Ok(LogSearch { deleted: 0, next: None }) };
    let end = EndedPosition { at, id };
    let gone = fetch_all!(
        tx,
        (i64, i64),
        "DELETE FROM runs WHERE id IN (SELECT r.id FROM runs r
             WHERE r.is_long AND r.finished_at IS NOT NULL AND (r.finished_at, r.id) > ($1, $2)
                 AND (r.finished_at, r.id) <= ($3, $4)
                 AND NOT EXISTS (SELECT 1 FROM backups b WHERE b.run_id = r.id AND b.deleted_at IS NULL)
                 AND (r.task_id IS NULL OR EXISTS (SELECT 1 FROM runs n WHERE n.task_id = r.task_id AND n.id > r.id))
             ORDER BY r.finished_at, r.id LIMIT $5)
         RETURNING finished_at, id",
        position.at,
        position.id,
        end.at,
        end.id,
        rows
    )?;
    // If there may be more of them in this part, the search continues behind the last one.
    let next = if i64::try_from(gone.len()).unwrap_or(i64::MAX) >= rows {
        gone.iter().max().map(|(at, id)| EndedPosition { at: *at, id: *id })
    } else {
        (found == most).then_some(end)
    };
    Ok(LogSearch { deleted: gone.len() as u64, next })
}
