//! Runs: queued, claimed with a lease, ended once. The run is its own queue entry, and a task's log.

use holdfast_core::Timestamp;
use holdfast_core::ids::{BackupId, DestinationId, RunId, ServerId, StreamId, TaskId, UserId};
use holdfast_core::page::Page;
use holdfast_core::run::{self, FailureCode, RunKind, RunStatus, Trigger};
use sqlx::QueryBuilder;

use crate::{At, Listing, Result, StoreError, Tx};

packed_row! {
    pub struct RunRow {
        id: i64 = "r.id",
        user_id: i64 = "r.user_id",
        kind: String = "r.kind",
        task_id: Option<i64> = "r.task_id",
        server_id: Option<i64> = "r.server_id",
        destination_id: Option<i64> = "r.destination_id",
        stream_id: Option<i64> = "r.stream_id",
        backup_id: Option<i64> = "r.backup_id",
        status: String = "r.status",
        requested_by: String = "r.requested_by",
        attempt: i64 = "r.attempt",
        lease_epoch: i64 = "r.lease_epoch",
        bytes_read: i64 = "r.bytes_read",
        bytes_stored: i64 = "r.bytes_stored",
        files: i64 = "r.files",
        /// Estimates; 0 is unknown.
        bytes_total: i64 = "r.bytes_total",
        files_total: i64 = "r.files_total",
        bytes_per_second: i64 = "r.bytes_per_second",
        warnings: i64 = "r.warnings",
        error_code: Option<String> = "r.error_code",
        created_at: At = "r.created_at",
        started_at: Option<At> = "r.started_at",
        finished_at: Option<At> = "r.finished_at",
    }
}

impl RunRow {
    pub fn is_live(&self) -> bool {
        matches!(RunStatus::parse(&self.status), Some(RunStatus::Queued | RunStatus::Running))
    }
}

/// What a run is about.
#[derive(Debug, Clone, Copy)]
pub enum Subject {
    Backup(TaskId),
    CheckServer(ServerId),
    CheckDestination(DestinationId),
    TestStream(StreamId),
    Restore(BackupId),
    Verify(BackupId),
}

impl Subject {
    fn kind(self) -> RunKind {
        match self {
            Self::Backup(_) => RunKind::Backup,
            Self::CheckServer(_) => RunKind::CheckServer,
            Self::CheckDestination(_) => RunKind::CheckDestination,
            Self::TestStream(_) => RunKind::TestStream,
            Self::Restore(_) => RunKind::Restore,
            Self::Verify(_) => RunKind::Verify,
        }
    }
}

/// Queues a run. `None` when the task has a live run, or this slot has its run already.
pub async fn insert(
    tx: &mut Tx,
    owner: UserId,
    subject: Subject,
    trigger: Trigger,
    slot: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<RunId>> {
    let pick = |wanted: RunKind, id: i64| (subject.kind() == wanted).then_some(id);
    let id = match subject {
        Subject::Backup(id) => id.0,
        Subject::CheckServer(id) => id.0,
        Subject::CheckDestination(id) => id.0,
        Subject::TestStream(id) => id.0,
        Subject::Restore(id) | Subject::Verify(id) => id.0,
    };
    let row = fetch_optional!(
        tx,
        (i64,),
        "INSERT INTO runs (user_id, kind, task_id, server_id, destination_id, stream_id, backup_id, status,
             requested_by, slot_at, attempt, lease_epoch, bytes_read, bytes_stored, files, warnings, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 'queued', $8, $9, 1, 0, 0, 0, 0, 0, $10)
         ON CONFLICT DO NOTHING RETURNING id",
        owner.0,
        subject.kind().as_str(),
        pick(RunKind::Backup, id),
        pick(RunKind::CheckServer, id),
        pick(RunKind::CheckDestination, id),
        pick(RunKind::TestStream, id),
        pick(RunKind::Restore, id).or(pick(RunKind::Verify, id)),
        trigger.as_str(),
        slot.map(At),
        At(now)
    )?;
    Ok(row.map(|(id,)| RunId(id)))
}

pub async fn find(tx: &mut Tx, id: RunId) -> Result<Option<RunRow>> {
    find_packed!(tx, "FROM runs r WHERE r.id = $1", id.0)
}

/// A task's log; runs of other kinds are not logs.
pub async fn find_log(tx: &mut Tx, id: RunId) -> Result<Option<RunRow>> {
    find_packed!(tx, "FROM runs r WHERE r.id = $1 AND r.kind = 'backup'", id.0)
}

pub async fn find_latest(tx: &mut Tx, task: TaskId) -> Result<Option<RunRow>> {
    find_packed!(tx, "FROM runs r WHERE r.task_id = $1 ORDER BY r.id DESC LIMIT 1", task.0)
}

pub async fn find_live(tx: &mut Tx, task: TaskId) -> Result<Option<RunRow>> {
    find_packed!(tx, "FROM runs r WHERE r.task_id = $1 AND r.status IN ('queued', 'running')", task.0)
}

/// Narrows a list of logs.
#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    pub task: Option<i64>,
    pub status: Option<RunStatus>,
}

pub async fn list_logs(tx: &mut Tx, listing: &Listing, filter: &LogFilter) -> Result<Page<RunRow>> {
    list_page!(
        tx,
        listing,
        "runs" as "r",
        " AND r.kind = 'backup' AND ($2 IS NULL OR $2 = '') AND ($5 IS NULL OR r.task_id = $5)
          AND ($6 IS NULL OR r.status = $6)",
        filter.task,
        filter.status.map(RunStatus::as_str)
    )
}

/// Deletes a log that has ended. A live run is not a log to delete.
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
    on!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new("SELECT run_id, text FROM run_lines WHERE run_id IN (");
        let mut ids = query.separated(", ");
        for id in runs {
            ids.push_bind(*id);
        }
        query.push(") ORDER BY run_id, number");
        query.build_query_as::<(i64, String)>().fetch_all(conn).await
    })
}

/// Appends a line to a run's output, as long as the lease of `epoch` holds.
pub async fn append_line(tx: &mut Tx, id: RunId, epoch: i64, text: &str, now: Timestamp) -> Result<bool> {
    let text = run::stored_line(text);
    let appended = execute!(
        tx,
        "INSERT INTO run_lines (run_id, number, at, text)
         SELECT r.id, (SELECT COALESCE(MAX(number), 0) + 1 FROM run_lines WHERE run_id = r.id), $1, $2
         FROM runs r WHERE r.id = $3 AND r.lease_epoch = $4",
        At(now),
        text,
        id.0,
        epoch
    )?;
    Ok(appended == 1)
}

/// Takes the oldest queued run. Of several workers, each gets another one or none.
pub async fn claim(tx: &mut Tx, worker: &str, lease_until: Timestamp, now: Timestamp) -> Result<Option<RunRow>> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "UPDATE runs SET status = 'running', worker = $1, lease_epoch = lease_epoch + 1, lease_expires_at = $2,
             started_at = $3
         WHERE id = (SELECT id FROM runs WHERE status = 'queued' ORDER BY id LIMIT 1) AND status = 'queued'
         RETURNING id",
        worker,
        At(lease_until),
        At(now)
    )?;
    match row {
        Some((id,)) => find(tx, RunId(id)).await,
        None => Ok(None),
    }
}

/// How far a run is; see `update_progress`.
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

/// What a heartbeat finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    GoOn,
    /// Somebody asked for the run to end.
    Cancel,
    /// The lease is not ours any more.
    Lost,
}

/// Renews the lease of a run and notes how far it is.
pub async fn update_progress(
    tx: &mut Tx,
    id: RunId,
    epoch: i64,
    counts: &RunCounts,
    lease_until: Timestamp,
) -> Result<Beat> {
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
        At(lease_until),
        id.0,
        epoch
    )?;
    Ok(match row {
        Some((false,)) => Beat::GoOn,
        Some((true,)) => Beat::Cancel,
        None => Beat::Lost,
    })
}

/// A run of a backup: a restore or a verification.
pub async fn find_of_backup(tx: &mut Tx, id: RunId) -> Result<Option<RunRow>> {
    find_packed!(tx, "FROM runs r WHERE r.id = $1 AND r.kind IN ('backup', 'restore', 'verify')", id.0)
}

/// Narrows a list of runs.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    pub backup: Option<i64>,
    pub kind: Option<RunKind>,
    pub status: Option<RunStatus>,
}

/// Restores and verifications.
pub async fn list_of_backups(tx: &mut Tx, listing: &Listing, filter: &RunFilter) -> Result<Page<RunRow>> {
    list_page!(
        tx,
        listing,
        "runs" as "r",
        " AND r.kind IN ('restore', 'verify') AND ($2 IS NULL OR $2 = '') AND ($5 IS NULL OR r.backup_id = $5)
          AND ($6 IS NULL OR r.kind = $6) AND ($7 IS NULL OR r.status = $7)",
        filter.backup,
        filter.kind.map(RunKind::as_str),
        filter.status.map(RunStatus::as_str)
    )
}

/// Ends a run that this lease still holds. False when it was lost: whoever took it over ends it.
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
        At(now),
        id.0,
        epoch
    )?;
    Ok(ended == 1)
}

/// Ends a run that no worker has taken yet.
pub async fn cancel_queued(tx: &mut Tx, id: RunId, now: Timestamp) -> Result<bool> {
    let cancelled = execute!(
        tx,
        "UPDATE runs SET status = 'cancelled', finished_at = $1 WHERE id = $2 AND status = 'queued'",
        At(now),
        id.0
    )?;
    Ok(cancelled == 1)
}

/// Asks the worker that has the run to end it.
pub async fn request_cancel(tx: &mut Tx, id: RunId, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE runs SET cancel_requested_at = COALESCE(cancel_requested_at, $1) WHERE id = $2",
        At(now),
        id.0
    )?;
    Ok(())
}

pub async fn is_cancel_requested(tx: &mut Tx, id: RunId) -> Result<bool> {
    fetch_scalar!(tx, bool, "SELECT cancel_requested_at IS NOT NULL FROM runs WHERE id = $1", id.0)
}

/// A run whose worker went away.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct LostRun {
    pub id: i64,
    pub task_id: Option<i64>,
}

pub async fn list_lost(tx: &mut Tx, now: Timestamp) -> Result<Vec<LostRun>> {
    let sql = "SELECT id, task_id FROM runs WHERE status = 'running' AND lease_expires_at < $1 ORDER BY id LIMIT 100";
    fetch_all!(tx, LostRun, sql, At(now))
}

/// Takes a run away from a worker whose lease has run out and ends it. The new epoch, which is given back, shuts the old
/// worker out; `None` when somebody else was faster.
pub async fn fail_lost(tx: &mut Tx, id: RunId, now: Timestamp) -> Result<Option<i64>> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "UPDATE runs SET status = 'failed', error_code = $1, finished_at = $2, lease_epoch = lease_epoch + 1,
             lease_expires_at = NULL
         WHERE id = $3 AND status = 'running' AND lease_expires_at < $2 RETURNING lease_epoch",
        FailureCode::WorkerLost.as_str(),
        At(now),
        id.0
    )?;
    Ok(row.map(|(epoch,)| epoch))
}

/// Forgets checks and tests that ended long ago; what they found is noted elsewhere.
pub async fn delete_old_checks(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    execute!(
        tx,
        "DELETE FROM runs WHERE kind IN ('check-server', 'check-destination', 'test-stream') AND finished_at < $1",
        At(before)
    )
}

/// What there is to do at the moment, from a few index look-ups; costs next to nothing when there is nothing.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub struct Waiting {
    pub has_due_task: bool,
    pub has_queued_run: bool,
    pub has_lost_run: bool,
    pub has_removal: bool,
    pub has_upload: bool,
}

pub async fn find_waiting(tx: &mut Tx, now: Timestamp) -> Result<Waiting> {
    let row = fetch_optional!(
        tx,
        Waiting,
        "SELECT EXISTS (SELECT 1 FROM backup_tasks WHERE next_run_at <= $1) AS has_due_task,
             EXISTS (SELECT 1 FROM runs WHERE status = 'queued') AS has_queued_run,
             EXISTS (SELECT 1 FROM runs WHERE status = 'running' AND lease_expires_at < $1) AS has_lost_run,
             EXISTS (SELECT 1 FROM backups WHERE deleted_at IS NOT NULL AND removed_at IS NULL
                     AND remove_after <= $1) AS has_removal,
             EXISTS (SELECT 1 FROM uploads u WHERE u.retry_after <= $1 AND NOT EXISTS
                     (SELECT 1 FROM runs r WHERE r.id = u.run_id AND r.status = 'running')) AS has_upload",
        At(now)
    )?;
    row.ok_or_else(|| StoreError::Broken("a query without a row".to_owned()))
}
