//! Stored backups: recorded when they are confirmed, kept on record when they are deleted.

use std::collections::BTreeSet;

use holdfast_core::anomaly::{self, Measure, Sign};
use holdfast_core::backup::{DeletedReason, Verification, source_key};
use holdfast_core::content::Content;
use holdfast_core::ids::{BackupId, DestinationId, RepositoryId, RunId, TaskId, UserId};
use holdfast_core::page::Page;
use holdfast_core::retention::Stored;
use holdfast_core::secret::SecretChange;
use holdfast_core::storage::Format;
use holdfast_core::{Secret, Timestamp};
use sqlx::QueryBuilder;

use crate::copies::{self, NewCopy};
use crate::listing::equals;
use crate::statement::{Statement as _, decode_all};
use crate::{DbTime, Listing, Result, StoreError, Tx};

row_type! {
    pub struct BackupRow {
        id: BackupId = "b.id",
        user_id: UserId = "b.user_id",
        /// `None` once the task has been deleted.
        task_id: Option<TaskId> = "b.task_id",
        /// Destination of the first copy; `locator`, `size_bytes` and `sha256` describe that copy too.
        destination_id: DestinationId = "c.destination_id",
        run_id: Option<RunId> = "b.run_id",
        task_label: String = "b.task_label",
        source: String = "b.source",
        /// The anomaly signs found, as words; `None` if there were none or a user has confirmed the backup.
        suspicion: Option<String> = "b.suspicion",
        content: Content = "b.content",
        format: Format = "b.format",
        locator: String = "c.locator",
        size_bytes: i64 = "c.size_bytes",
        sha256: String = "c.sha256",
        repository_id: Option<RepositoryId> = "c.repository_id",
        plain_bytes: i64 = "b.plain_bytes",
        plain_sha256: String = "b.plain_sha256",
        entries: i64 = "b.entries",
        is_encrypted: bool = "b.is_encrypted",
        verification: Verification = "b.verification",
        verified_at: Option<DbTime> = "b.verified_at",
        created_at: DbTime = "b.created_at",
        deleted_at: Option<DbTime> = "b.deleted_at",
        deleted_reason: Option<DeletedReason> = "b.deleted_reason",
    }
}

/// Joins the first copy, which is the one that lists show.
macro_rules! first_copy {
    () => {
        "JOIN backup_copies c ON c.backup_id = b.id AND c.position = 0"
    };
}

/// A backup whose copies the destinations have confirmed.
#[derive(Debug, Clone)]
pub struct NewBackup {
    pub task: TaskId,
    pub run: RunId,
    pub task_label: String,
    pub source: String,
    /// The address of the server it was read from, as written by `core::backup::server_address`.
    pub source_server: String,
    /// Anomalies in comparison with earlier backups.
    pub signs: Vec<Sign>,
    pub content: Content,
    pub format: Format,
    /// At least one.
    pub copies: Vec<NewCopy>,
    pub plain_bytes: i64,
    pub plain_sha256: String,
    pub entries: i64,
    /// The databases in a backup of a whole database server; empty for other backups.
    pub databases: Vec<String>,
    /// Stored with the backup, because the task's password may change or be removed. Repositories have their own.
    pub password: Option<Secret>,
}

pub async fn insert(tx: &mut Tx, owner: UserId, new: &NewBackup, now: Timestamp) -> Result<BackupId> {
    let id = fetch_scalar!(
        tx,
        i64,
        "INSERT INTO backups (user_id, task_id, run_id, task_label, source, content, format, plain_bytes, plain_sha256,
             entries, is_encrypted, verification, created_at, source_server, suspicion, databases)
         VALUES ($1, $2, $3, $4, $5, $6, $15, $7, $8, $9, $10, 'unverified', $11, $12, $13, $14)
         RETURNING id",
        owner.0,
        new.task.0,
        new.run.0,
        &new.task_label,
        &new.source,
        new.content.as_str(),
        new.plain_bytes,
        &new.plain_sha256,
        new.entries,
        new.password.is_some() || new.format.is_shared(),
        DbTime(now),
        &new.source_server,
        (!new.signs.is_empty()).then(|| anomaly::signs_text(&new.signs)),
        (!new.databases.is_empty()).then(|| serde_json::json!(new.databases).to_string()),
        new.format.as_str()
    )?;
    if let Some(password) = &new.password {
        write_secret!(tx, "backups", "password_sealed", id, owner, &SecretChange::Set(password.clone()));
    }
    copies::insert(tx, owner, BackupId(id), &new.copies, now).await?;
    Ok(BackupId(id))
}

pub async fn find(tx: &mut Tx, id: BackupId) -> Result<Option<BackupRow>> {
    find_row!(tx, concat!("FROM backups b ", first_copy!(), " WHERE b.id = $1"), id.0)
}

/// Finds the row and keeps others from changing it until the transaction ends.
pub async fn find_locked(tx: &mut Tx, id: BackupId) -> Result<Option<BackupRow>> {
    execute!(tx, "UPDATE backups SET verification = verification WHERE id = $1", id.0)?;
    find(tx, id).await
}

/// Narrows a list of backups.
#[derive(Debug, Clone, Default)]
pub struct BackupFilter {
    pub task: Option<i64>,
    pub status: Option<Verification>,
    /// Only backups that are corrupt or missing.
    pub is_damaged: bool,
    /// Include deleted backups.
    pub with_deleted: bool,
}

pub async fn list(tx: &mut Tx, listing: &Listing, filter: &BackupFilter) -> Result<Page<BackupRow>> {
    // Only the conditions that apply, so that each combination is found by an index.
    let task = filter.task.map_or("", |_| " AND b.task_id = $5");
    let status = equals("b.verification", filter.status.map(Verification::as_str));
    let stored = if filter.with_deleted { "" } else { " AND b.deleted_at IS NULL" };
    let damaged = if filter.is_damaged { " AND b.verification IN ('corrupt', 'missing')" } else { "" };
    let condition = format!("{task}{status}{stored}{damaged}{}", unsearched!());
    let kept_status = equals("status", filter.status.map(Verification::as_str));
    let kept_stored = if filter.with_deleted { "" } else { " AND kind = 'stored'" };
    let kept_damaged = if filter.is_damaged { " AND status IN ('corrupt', 'missing')" } else { "" };
    let kept = format!("subject = 'backup'{kept_stored}{kept_status}{kept_damaged}{}", unsearched!());
    list_page!(
        tx,
        listing,
        "backups" as "b" with first_copy!(), created "b.created_at",
        changed "COALESCE(b.deleted_at, b.verified_at, b.created_at)",
        total filter.task.is_none().then_some(&*kept), &condition,
        filter.task
    )
}

/// The password that the backup is encrypted with.
pub async fn open_password(tx: &mut Tx, row: &BackupRow) -> Result<Option<Secret>> {
    read_secret!(tx, "backups", "password_sealed", row.id.0, row.user_id)
}

/// `(plain_bytes, entries)` of the task's newest backup of `source`: an estimate for the next one.
pub async fn find_last_size(tx: &mut Tx, task: TaskId, source: &str) -> Result<Option<(i64, i64)>> {
    fetch_optional!(
        tx,
        (i64, i64),
        "SELECT plain_bytes, entries FROM backups WHERE task_id = $1 AND source = $2 ORDER BY id DESC LIMIT 1",
        task.0,
        source
    )
}

named_row! {
    struct MeasuredRow {
        content: String,
        format: Format,
        source: String,
        source_server: String,
        plain_bytes: i64,
        size_bytes: i64,
        entries: i64,
        databases: Option<String>,
        is_confirmed: bool,
    }
}

/// The earlier backups that a new one is compared with.
#[derive(Debug, Default)]
pub struct Normal {
    /// Newest first.
    pub measures: Vec<Measure>,
    /// Every database that any of them contained, for backups of whole database servers.
    pub databases: BTreeSet<String>,
}

/// How many of a task's earlier backups are considered at most: more than a year of an hourly task.
const MOST_NORMAL: i64 = 10_000;

/// What a new backup of a source is compared with: the task's backups of the same source that are neither damaged nor
/// suspicious, newest first, back to the newest one that a user has confirmed. Those deleted by retention are included.
pub async fn list_normal(tx: &mut Tx, task: TaskId, source: &str) -> Result<Normal> {
    let rows = fetch_all!(
        tx,
        MeasuredRow,
        concat!(
            "SELECT b.content, b.format, b.source, b.source_server, b.plain_bytes, c.size_bytes, b.entries, b.databases,
                 b.is_confirmed
             FROM backups b ",
            first_copy!(),
            " WHERE b.task_id = $1 AND (b.deleted_at IS NULL OR b.deleted_reason = 'retention')
                 AND b.suspicion IS NULL AND b.verification NOT IN ('corrupt', 'missing')
             ORDER BY b.id DESC LIMIT $2"
        ),
        task.0,
        MOST_NORMAL
    )?;
    let is_same = |row: &MeasuredRow| key_of(&row.source_server, &row.content, &row.source) == source;
    let mut normal = Normal::default();
    for row in rows.into_iter().filter(is_same) {
        let stored_bytes = (!row.format.is_shared()).then_some(row.size_bytes);
        let measure = Measure { plain_bytes: row.plain_bytes, stored_bytes, entries: row.entries };
        normal.measures.push(measure);
        if let Some(databases) = row.databases {
            let broken = |error: serde_json::Error| StoreError::Broken(format!("the databases of a backup: {error}"));
            normal.databases.extend(serde_json::from_str::<Vec<String>>(&databases).map_err(broken)?);
        }
        if row.is_confirmed {
            break;
        }
    }
    Ok(normal)
}

/// The key of a backup's source; empty if this version does not know the content, so that it matches no known source.
fn key_of(server: &str, content: &str, source: &str) -> String {
    Content::parse(content).map(|content| source_key(server, content, source)).unwrap_or_default()
}

/// The run that made the newest backup of a task's source that a user has confirmed.
pub async fn find_confirmed_run(tx: &mut Tx, task: TaskId, source: &str) -> Result<Option<RunId>> {
    let rows = fetch_all!(
        tx,
        (Option<i64>, String, String, String),
        "SELECT run_id, source_server, content, source FROM backups
         WHERE task_id = $1 AND is_confirmed ORDER BY id DESC LIMIT $2",
        task.0,
        MOST_CONFIRMED
    )?;
    let mut same = rows.into_iter().filter(|(_, server, content, of)| key_of(server, content, of) == source);
    Ok(same.next().and_then(|(run, ..)| run).map(RunId))
}

/// How many confirmed backups are considered at most; there are few, because a user confirms each one manually.
const MOST_CONFIRMED: i64 = 500;

pub async fn find_newest(tx: &mut Tx, task: TaskId) -> Result<Option<BackupId>> {
    let newest = "SELECT MAX(id) FROM backups WHERE task_id = $1 AND deleted_at IS NULL";
    Ok(fetch_scalar!(tx, Option<i64>, newest, task.0)?.map(BackupId))
}

/// Records that a user has found a backup to be correct: later ones are compared with it, and no longer with any before
/// it.
pub async fn confirm(tx: &mut Tx, id: BackupId) -> Result<()> {
    execute!(tx, "UPDATE backups SET suspicion = NULL, is_confirmed = TRUE WHERE id = $1", id.0)?;
    Ok(())
}

/// Assumes that backups made before servers were recorded came from the server that their task uses now.
pub(crate) async fn fill_source_server(tx: &mut Tx) -> Result<()> {
    execute!(
        tx,
        "UPDATE backups SET source_server = COALESCE(
             (SELECT s.username || '@' || s.host || ':' || CAST(s.port AS TEXT) || COALESCE(
                     (SELECT ' via ' || j.username || '@' || j.host || ':' || CAST(j.port AS TEXT)
                      FROM remote_servers j WHERE j.id = s.jump_server_id), '')
              FROM backup_tasks t JOIN remote_servers s ON s.id = t.remote_server_id WHERE t.id = backups.task_id), '')
         WHERE source_server = ''"
    )?;
    Ok(())
}

named_row! {
    struct StoredRow {
        id: i64,
        content: String,
        source: String,
        source_server: String,
        is_suspicious: bool,
        verification: String,
        is_in_use: bool,
    }
}

/// The backups that retention considers: those of a task that are not deleted, at its current destination or an earlier
/// one. They are locked first: a concurrent request to restore one either waits, or has already marked it as in use.
pub async fn list_of_task(tx: &mut Tx, task: TaskId) -> Result<Vec<Stored>> {
    let lock = "UPDATE backups SET verification = verification WHERE task_id = $1 AND deleted_at IS NULL";
    execute!(tx, lock, task.0)?;
    let rows = fetch_all!(
        tx,
        StoredRow,
        "SELECT b.id, b.content, b.source, b.source_server, (b.suspicion IS NOT NULL) AS is_suspicious, b.verification,
             EXISTS (SELECT 1 FROM runs r WHERE r.backup_id = b.id AND r.status IN ('queued', 'running')) AS is_in_use
         FROM backups b WHERE b.task_id = $1 AND b.deleted_at IS NULL",
        task.0
    )?;
    let stored = |row: StoredRow| Stored {
        id: BackupId(row.id),
        source: key_of(&row.source_server, &row.content, &row.source),
        is_suspicious: row.is_suspicious,
        // A state that this version does not know does not prove that the backup is good.
        is_damaged: match Verification::parse(&row.verification) {
            Some(Verification::Unverified | Verification::Verified) => false,
            Some(Verification::Corrupt | Verification::Missing) | None => true,
        },
        is_in_use: row.is_in_use,
    };
    Ok(rows.into_iter().map(stored).collect())
}

/// Whether a restore or verification of it is queued or running.
pub async fn is_in_use(tx: &mut Tx, id: BackupId) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE backup_id = $1 AND status IN ('queued', 'running'))";
    fetch_scalar!(tx, bool, sql, id.0)
}

/// Marks a backup as deleted and its copies as due for removal by a worker. Returns false if it was deleted already.
pub async fn mark_deleted(tx: &mut Tx, id: BackupId, reason: DeletedReason, now: Timestamp) -> Result<bool> {
    let marked = execute!(
        tx,
        "UPDATE backups SET deleted_at = $1, deleted_reason = $2 WHERE id = $3 AND deleted_at IS NULL",
        DbTime(now),
        reason.as_str(),
        id.0
    )?;
    let sql = "UPDATE backup_copies SET remove_after = $1 WHERE backup_id = $2 AND remove_after IS NULL";
    execute!(tx, sql, DbTime(now), id.0)?;
    crate::tasks::update_proven(tx, id).await?;
    Ok(marked == 1)
}

/// Stored backups that have not been verified since `before`, the longest unverified first: one per owner, and only for
/// owners with no verification running and no run queued. Those with a verification attempt since `tried` are skipped.
pub async fn list_unread(
    tx: &mut Tx,
    before: Timestamp,
    tried: Timestamp,
    limit: i64,
) -> Result<Vec<(BackupId, UserId)>> {
    let rows = fetch_all!(
        tx,
        (i64, i64),
        concat!(
            // For each user the first in the index, so that it does not matter how many are due.
            "SELECT b.id, b.user_id FROM users u JOIN backups b ON b.id = (SELECT o.id FROM backups o
                 WHERE o.user_id = u.id AND o.deleted_at IS NULL AND COALESCE(o.verified_at, o.created_at) < $1
                     AND o.format <> 'repository'
                     AND NOT EXISTS (SELECT 1 FROM runs v WHERE v.backup_id = o.id AND v.kind = 'verify'
                         AND v.created_at > $2)
                 ORDER BY COALESCE(o.verified_at, o.created_at), o.id LIMIT 1)
             WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.user_id = u.id AND r.status IN ('queued', 'running')
                     AND (r.status = 'queued' OR r.kind = 'verify'))
                 AND ",
            is_active!("b"),
            " ORDER BY COALESCE(b.verified_at, b.created_at), b.id LIMIT $3"
        ),
        DbTime(before),
        DbTime(tried),
        limit
    )?;
    Ok(rows.into_iter().map(|(id, owner)| (BackupId(id), UserId(owner))).collect())
}

/// `(plain_bytes, entries)` of a task's newest backup from any other run.
pub async fn find_size_before(tx: &mut Tx, task: TaskId, run: RunId) -> Result<Option<(i64, i64)>> {
    fetch_optional!(
        tx,
        (i64, i64),
        "SELECT plain_bytes, entries FROM backups WHERE task_id = $1 AND (run_id IS NULL OR run_id <> $2)
         ORDER BY id DESC LIMIT 1",
        task.0,
        run.0
    )
}

/// When one of the user's existing backups was last verified.
pub async fn find_last_proven(tx: &mut Tx, user: UserId) -> Result<Option<Timestamp>> {
    let row = fetch_optional!(
        tx,
        (Option<DbTime>,),
        "SELECT MAX(verified_at) FROM backups
         WHERE user_id = $1 AND verification = 'verified' AND deleted_at IS NULL",
        user.0
    )?;
    Ok(row.and_then(|(at,)| at).map(|at| at.0))
}

named_row! {
    /// What needs a user's attention, apart from tasks.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Needs {
        pub damaged_backups: i64,
        pub offline_servers: i64,
        pub unreachable_destinations: i64,
        pub undelivered_notices: i64,
    }
}

pub async fn count_needs(tx: &mut Tx, user: UserId) -> Result<Needs> {
    let found = fetch_optional!(
        tx,
        Needs,
        "SELECT (SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM totals WHERE subject = 'backup' AND user_id = $1
                 AND kind = 'stored' AND status IN ('corrupt', 'missing')) AS damaged_backups,
             (SELECT COUNT(*) FROM remote_servers WHERE user_id = $1 AND connectivity = 'offline') AS offline_servers,
             (SELECT COUNT(*) FROM backup_destinations WHERE user_id = $1 AND status = 'unreachable')
                 AS unreachable_destinations,
             (SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM totals WHERE subject = 'notice' AND user_id = $1
                 AND status = 'undelivered') AS undelivered_notices",
        user.0
    )?;
    Ok(found.unwrap_or_default())
}

/// Pairs of task and size for the newest `limit` backups of each task, oldest first, including deleted ones. The size of
/// one in a repository is that of its content: what it added says little.
pub async fn list_sizes(tx: &mut Tx, tasks: &[i64], limit: i64) -> Result<Vec<(i64, i64)>> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    with_conn!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new("SELECT task_id, size_bytes FROM (");
        // Each task's newest from the end of its index, however many there are.
        for (number, task) in tasks.iter().enumerate() {
            let all = if number == 0 { "" } else { " UNION ALL " };
            query.push(all).push(concat!(
                "SELECT id, task_id, size_bytes FROM (SELECT b.id, b.task_id,
                     CASE WHEN b.format = 'repository' THEN b.plain_bytes ELSE c.size_bytes END AS size_bytes
                 FROM backups b ",
                first_copy!(),
                " WHERE b.task_id = "
            ));
            query.push_bind(*task).push(" ORDER BY b.id DESC LIMIT ").push_bind(limit).push(") AS newest");
        }
        query.push(") AS sizes ORDER BY id");
        query.build().all(conn).await.and_then(decode_all::<(i64, i64), _>)
    })
}

/// Deletes records of backups that were removed before `before`, with their copies and verifications. Those whose
/// restores have logs stay with them: a restore that was interrupted must be remembered.
pub async fn delete_removed(tx: &mut Tx, before: Timestamp, limit: i64) -> Result<u64> {
    execute!(
        tx,
        "DELETE FROM backups WHERE id IN (SELECT b.id FROM backups b
             WHERE b.deleted_at < $1
                 AND NOT EXISTS (SELECT 1 FROM backup_copies c WHERE c.backup_id = b.id AND c.removed_at IS NULL)
                 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.backup_id = b.id
                     AND (r.kind = 'restore' OR r.status IN ('queued', 'running')))
             ORDER BY b.deleted_at LIMIT $2)",
        DbTime(before),
        limit
    )
}
