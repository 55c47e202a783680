//! Runs: queued, claimed with a lease, ended once. The run is its own queue entry, and a task's log.

use holdfast_core::ids::{BackupId, DestinationId, RunId, ServerId, StreamId, TaskId, UserId};
use holdfast_core::page::Page;
use holdfast_core::queue::{AtOnce, Chooser, Load};
use holdfast_core::run::{self, FailureCode, RunKind, RunStatus, Trigger};
use holdfast_core::{Timestamp, lease};
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
    /// Copies or reads data, and may take hours.
    pub fn is_long(&self) -> bool {
        matches!(RunKind::parse(&self.kind), Some(RunKind::Backup | RunKind::Restore | RunKind::Verify))
    }

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
    Restore(BackupId, ServerId),
    Verify(BackupId),
    Probe(ServerId),
}

impl Subject {
    fn kind(self) -> RunKind {
        match self {
            Self::Backup(_) => RunKind::Backup,
            Self::CheckServer(_) => RunKind::CheckServer,
            Self::CheckDestination(_) => RunKind::CheckDestination,
            Self::TestStream(_) => RunKind::TestStream,
            Self::Restore(..) => RunKind::Restore,
            Self::Verify(_) => RunKind::Verify,
            Self::Probe(_) => RunKind::Probe,
        }
    }

    fn task(self) -> Option<i64> {
        if let Self::Backup(id) = self { Some(id.0) } else { None }
    }
}

/// What a new run is and why.
#[derive(Debug, Clone, Copy)]
pub struct NewRun {
    pub owner: UserId,
    pub subject: Subject,
    pub trigger: Trigger,
    pub slot: Option<Timestamp>,
    /// 1, or 2 for the one more try and for what comes in its place.
    pub attempt: i64,
    /// What it tries once more.
    pub retry_of: Option<RunId>,
}

impl NewRun {
    pub fn asked_for(owner: UserId, subject: Subject, trigger: Trigger) -> Self {
        Self { owner, subject, trigger, slot: None, attempt: 1, retry_of: None }
    }
}

/// Queues a run behind its owner's other ones (see the core's queue). `None` when the task has a live run, or this slot
/// has its run already.
pub async fn insert(tx: &mut Tx, new: &NewRun, now: Timestamp) -> Result<Option<RunId>> {
    let NewRun { owner, subject, trigger, slot, attempt, retry_of } = *new;
    let (mut server, mut destination, mut stream, mut backup, mut load_server) = (None, None, None, None, None);
    match subject {
        Subject::Backup(_) => {}
        Subject::CheckServer(id) | Subject::Probe(id) => server = Some(id.0),
        Subject::CheckDestination(id) => destination = Some(id.0),
        Subject::TestStream(id) => stream = Some(id.0),
        Subject::Restore(id, at) => (backup, load_server) = (Some(id.0), Some(at.0)),
        Subject::Verify(id) => backup = Some(id.0),
    }
    let row = fetch_optional!(
        tx,
        (i64,),
        "INSERT INTO runs (user_id, kind, task_id, server_id, destination_id, stream_id, backup_id, status,
             requested_by, slot_at, attempt, lease_epoch, bytes_read, bytes_stored, files, warnings, created_at,
             load_server_id, retry_of, turn)
         SELECT $1, $2, CAST($3 AS BIGINT), CAST($4 AS BIGINT), CAST($5 AS BIGINT), CAST($6 AS BIGINT),
             CAST($7 AS BIGINT), 'queued', $8, CAST($9 AS BIGINT), CAST($10 AS BIGINT), 0, 0, 0, 0, 0,
             CAST($11 AS BIGINT),
             COALESCE(CAST($12 AS BIGINT), (SELECT t.remote_server_id FROM backup_tasks t WHERE t.id = $3)),
             CAST($13 AS BIGINT),
             CASE WHEN $2 IN ('backup', 'restore', 'verify') AND q.own >= q.served THEN q.own + 1 ELSE q.served END
         FROM (SELECT COALESCE((SELECT MAX(turn) FROM runs WHERE started_at IS NOT NULL), 0) AS served,
                   COALESCE((SELECT MAX(turn) FROM runs WHERE user_id = $1), -1) AS own) q
         WHERE TRUE
         ON CONFLICT DO NOTHING RETURNING id",
        owner.0,
        subject.kind().as_str(),
        subject.task(),
        server,
        destination,
        stream,
        backup,
        trigger.as_str(),
        slot.map(At),
        attempt,
        At(now),
        load_server,
        retry_of.map(|run| run.0)
    )?;
    Ok(row.map(|(id,)| RunId(id)))
}

/// Puts a slot that got no run on record: it has ended as it began. `None` when the slot has its run.
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
        At(slot),
        end.1.as_str(),
        At(now)
    )?;
    let Some((id,)) = row else { return Ok(None) };
    append_line(tx, RunId(id), 0, text, now).await?;
    Ok(Some(RunId(id)))
}

/// Looks at servers that wait or are under way for a user.
pub async fn count_probes(tx: &mut Tx, owner: UserId) -> Result<i64> {
    let sql = "SELECT COUNT(*) FROM runs WHERE user_id = $1 AND status IN ('queued', 'running') AND kind = 'probe'";
    fetch_scalar!(tx, i64, sql, owner.0)
}

/// Tells workers of other processes that something is queued, once this is committed.
pub async fn announce(tx: &mut Tx) -> Result<()> {
    if let crate::engine::Engine::Postgres(connection) = tx.engine() {
        let sent = sqlx::query("SELECT pg_notify($1, '')").bind(crate::engine::QUEUE_CHANNEL).execute(connection).await;
        tx.checked(sent)?;
    }
    Ok(())
}

pub async fn find(tx: &mut Tx, id: RunId) -> Result<Option<RunRow>> {
    find_packed!(tx, "FROM runs r WHERE r.id = $1", id.0)
}

/// A task's log; runs of other kinds are not logs.
pub async fn find_log(tx: &mut Tx, id: RunId) -> Result<Option<RunRow>> {
    find_packed!(tx, "FROM runs r WHERE r.id = $1 AND r.kind = 'backup'", id.0)
}

/// The newest run of a task. A slot that was skipped because of it is not one.
pub async fn find_latest(tx: &mut Tx, task: TaskId) -> Result<Option<RunRow>> {
    find_packed!(
        tx,
        "FROM runs r WHERE r.task_id = $1 AND COALESCE(r.error_code, '') <> 'skipped' ORDER BY r.id DESC LIMIT 1",
        task.0
    )
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
    let status = filter.status.map(RunStatus::as_str);
    // A statement of its own, so that the task's few runs are found without looking at everybody else's.
    if let Some(task) = filter.task {
        return list_page!(
            tx,
            listing,
            "runs" as "r",
            " AND r.kind = 'backup' AND ($2 IS NULL OR $2 = '') AND r.task_id = $5 AND ($6 IS NULL OR r.status = $6)",
            task,
            status
        );
    }
    list_page!(
        tx,
        listing,
        "runs" as "r",
        " AND r.kind = 'backup' AND ($2 IS NULL OR $2 = '') AND ($5 IS NULL OR r.status = $5)",
        status
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

/// The last lines of a run, in order.
pub async fn list_last_lines(tx: &mut Tx, id: RunId, limit: i64) -> Result<Vec<String>> {
    let sql = "SELECT text FROM run_lines WHERE run_id = $1 ORDER BY number DESC LIMIT $2";
    let rows = fetch_all!(tx, (String,), sql, id.0, limit)?;
    Ok(rows.into_iter().rev().map(|(text,)| text).collect())
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

/// Whom a run keeps busy, as the queue counts it: long ones alone.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
struct LoadRow {
    id: i64,
    user_id: i64,
    load_server_id: Option<i64>,
    turn: i64,
}

impl LoadRow {
    fn load(&self) -> Load {
        Load { user: UserId(self.user_id), server: self.load_server_id.map(ServerId) }
    }
}

/// Whether anything waits; costs next to nothing.
pub async fn has_queued(tx: &mut Tx) -> Result<bool> {
    fetch_scalar!(tx, bool, "SELECT EXISTS (SELECT 1 FROM runs WHERE status = 'queued')")
}

/// Queued runs looked at in one step while runs are chosen.
const CLAIM_PAGE: i64 = 200;
const FIRST_PAGE: i64 = 40;
/// Further down than this nobody looks at once: it bounds how long others wait for their turn to choose.
const CLAIM_PAGES: usize = 100;

async fn list_short(tx: &mut Tx, room: usize) -> Result<Vec<i64>> {
    let rows = fetch_all!(
        tx,
        (i64,),
        "SELECT id FROM runs WHERE status = 'queued' AND kind IN ('check-server', 'check-destination', 'test-stream', 'probe')
         ORDER BY turn, id LIMIT $1",
        i64::try_from(room).unwrap_or(i64::MAX)
    )?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

async fn choose_long(tx: &mut Tx, room: usize, limits: AtOnce) -> Result<Vec<i64>> {
    let running = fetch_all!(
        tx,
        LoadRow,
        "SELECT id, user_id, load_server_id, turn FROM runs
         WHERE status = 'running' AND kind IN ('backup', 'restore', 'verify')"
    )?;
    let mut chooser = Chooser::new(limits, running.iter().map(LoadRow::load));
    let (mut chosen, mut after) = (Vec::new(), (i64::MIN, i64::MIN));
    for number in 0..CLAIM_PAGES {
        // Nearly always the first few may start.
        let limit = if number == 0 { FIRST_PAGE } else { CLAIM_PAGE };
        let page = fetch_all!(
            tx,
            LoadRow,
            "SELECT id, user_id, load_server_id, turn FROM runs
             WHERE status = 'queued' AND kind IN ('backup', 'restore', 'verify') AND (turn, id) > ($1, $2)
             ORDER BY turn, id LIMIT $3",
            after.0,
            after.1,
            limit
        )?;
        for row in &page {
            if chosen.len() < room && chooser.may_start(Some(row.load())) {
                chosen.push(row.id);
            }
        }
        match page.last() {
            Some(last) if chosen.len() < room && page.len() as i64 == limit => after = (last.turn, last.id),
            _ => break,
        }
    }
    Ok(chosen)
}

/// How many more runs a worker can take. Short ones have places of their own: nobody waits hours for a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub long: usize,
    pub short: usize,
}

/// Takes queued runs, in the order of their turns, as far as there is room and the limits let them start. One worker chooses
/// at a time, so that limits hold over all of them; the claim itself is one statement that takes only what is queued.
pub async fn claim(
    tx: &mut Tx,
    worker: &str,
    room: Room,
    limits: AtOnce,
    lease_until: Timestamp,
    now: Timestamp,
) -> Result<Vec<RunRow>> {
    if let crate::engine::Engine::Postgres(connection) = tx.engine() {
        const CLAIMING: i64 = 0x686f_6c64_0001;
        let locked = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(CLAIMING).execute(connection).await;
        tx.checked(locked)?;
    }
    let mut chosen = list_short(tx, room.short).await?;
    if room.long > 0 {
        chosen.extend(choose_long(tx, room.long, limits).await?);
    }
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let claimed = on!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new("UPDATE runs SET status = 'running', worker = ");
        query.push_bind(worker).push(", lease_epoch = lease_epoch + 1, lease_expires_at = ").push_bind(At(lease_until));
        query.push(", started_at = ").push_bind(At(now)).push(" WHERE status = 'queued' AND id IN (");
        let mut ids = query.separated(", ");
        for id in &chosen {
            ids.push_bind(*id);
        }
        query.push(") RETURNING id");
        query.build_query_as::<(i64,)>().fetch_all(conn).await
    })?;
    let lines = on!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new(concat!("SELECT ", packed_line!(), " FROM runs r WHERE r.id IN ("));
        let mut ids = query.separated(", ");
        for (id,) in &claimed {
            ids.push_bind(*id);
        }
        query.push(") ORDER BY r.turn, r.id");
        query.build_query_as::<(String,)>().fetch_all(conn).await
    })?;
    lines.iter().map(|(line,)| crate::packed::unpack(line)).collect()
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

#[derive(Debug, Clone, Copy, sqlx::FromRow)]
struct BeatRow {
    id: i64,
    lease_epoch: i64,
    lease_expires_at: i64,
}

/// Everything that runs, with its worker's last sign.
pub async fn list_beats(tx: &mut Tx) -> Result<Vec<lease::Beat>> {
    let sql = "SELECT id, lease_epoch, COALESCE(lease_expires_at, 0) AS lease_expires_at FROM runs
               WHERE status = 'running'";
    let rows = fetch_all!(tx, BeatRow, sql)?;
    Ok(rows
        .into_iter()
        .map(|row| lease::Beat { run: RunId(row.id), epoch: row.lease_epoch, sign: row.lease_expires_at })
        .collect())
}

/// Takes a run away from a worker that fell silent and ends it. The new epoch, which is given back, shuts the old
/// worker out; `None` when it gave a sign after all, or somebody else was faster.
pub async fn fail_lost(tx: &mut Tx, lost: &lease::Beat, now: Timestamp) -> Result<Option<i64>> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "UPDATE runs SET status = 'failed', error_code = $1, finished_at = $2, lease_epoch = lease_epoch + 1,
             lease_expires_at = NULL
         WHERE id = $3 AND status = 'running' AND lease_epoch = $4 AND COALESCE(lease_expires_at, 0) = $5
         RETURNING lease_epoch",
        FailureCode::WorkerLost.as_str(),
        At(now),
        lost.run.0,
        lost.epoch,
        lost.sign
    )?;
    Ok(row.map(|(epoch,)| epoch))
}

/// Forgets checks and tests that ended long ago, so many at a time; what they found is noted elsewhere.
pub async fn delete_old_checks(tx: &mut Tx, before: Timestamp, limit: i64) -> Result<u64> {
    execute!(
        tx,
        "DELETE FROM runs WHERE id IN (SELECT id FROM runs
             WHERE kind IN ('check-server', 'check-destination', 'test-stream', 'probe') AND finished_at < $1 LIMIT $2)",
        At(before),
        limit
    )
}

/// Verifications that wait or go on.
pub async fn count_verifying(tx: &mut Tx) -> Result<i64> {
    let sql = "SELECT COUNT(*) FROM runs WHERE kind = 'verify' AND status IN ('queued', 'running')";
    fetch_scalar!(tx, i64, sql)
}

/// Forgets logs that ended long ago. The newest of each task stays, and so does whatever made a backup that is there.
pub async fn delete_old_logs(tx: &mut Tx, before: Timestamp, limit: i64) -> Result<u64> {
    execute!(
        tx,
        "DELETE FROM runs WHERE id IN (SELECT r.id FROM runs r
             WHERE r.finished_at < $1 AND r.kind IN ('backup', 'restore', 'verify')
                 AND NOT EXISTS (SELECT 1 FROM backups b WHERE b.run_id = r.id AND b.deleted_at IS NULL)
                 AND (r.task_id IS NULL OR EXISTS (SELECT 1 FROM runs n WHERE n.task_id = r.task_id AND n.id > r.id))
             ORDER BY r.finished_at LIMIT $2)",
        At(before),
        limit
    )
}

/// What there is to do at the moment, from a few index look-ups; costs next to nothing when there is nothing.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub struct Waiting {
    pub has_due_task: bool,
    pub has_queued_run: bool,
    pub has_running_run: bool,
    pub has_removal: bool,
    pub has_upload: bool,
    pub has_overdue: bool,
    pub has_summary: bool,
}

pub async fn find_waiting(tx: &mut Tx, now: Timestamp) -> Result<Waiting> {
    let row = fetch_optional!(
        tx,
        Waiting,
        "SELECT EXISTS (SELECT 1 FROM backup_tasks WHERE next_run_at <= $1)
                 OR EXISTS (SELECT 1 FROM backup_tasks WHERE retry_at <= $1) AS has_due_task,
             EXISTS (SELECT 1 FROM runs WHERE status = 'queued') AS has_queued_run,
             EXISTS (SELECT 1 FROM runs WHERE status = 'running') AS has_running_run,
             EXISTS (SELECT 1 FROM backups WHERE deleted_at IS NOT NULL AND removed_at IS NULL
                     AND remove_after <= $1) AS has_removal,
             EXISTS (SELECT 1 FROM uploads u WHERE u.retry_after <= $1 AND NOT EXISTS
                     (SELECT 1 FROM runs r WHERE r.id = u.run_id AND r.status = 'running')) AS has_upload,
             EXISTS (SELECT 1 FROM backup_tasks WHERE overdue_at <= $1) AS has_overdue,
             EXISTS (SELECT 1 FROM users WHERE summary_at <= $1) AS has_summary",
        At(now)
    )?;
    row.ok_or_else(|| StoreError::Broken("a query without a row".to_owned()))
}
