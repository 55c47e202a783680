//! The figures of a user's weekly summary.

use holdfast_core::Timestamp;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{TaskId, UserId};
use holdfast_core::notice::Trouble;

use crate::{DbTime, Result, Tx};

named_row! {
    /// A task's week.
    #[derive(Debug, Clone)]
    pub struct TaskWeek {
        pub id: TaskId,
        pub label: String,
        pub paused_at: Option<DbTime>,
        /// The trouble that was last reported to users, unless the task has succeeded since.
        pub told_code: Option<Trouble>,
        /// Why its last run failed, if it did.
        pub last_code: Option<FailureCode>,
        pub succeeded: i64,
        pub failed: i64,
        pub missed: i64,
        /// Times of the oldest and the newest backup that are not known to be damaged.
        pub oldest: Option<DbTime>,
        pub newest: Option<DbTime>,
        pub damaged: i64,
        /// Bytes of the newest backup, and of the newest one before the week.
        pub size: Option<i64>,
        pub size_before: Option<i64>,
    }
}

pub async fn list_task_weeks(
    tx: &mut Tx,
    user: UserId,
    from: Timestamp,
    to: Timestamp,
    limit: i64,
) -> Result<Vec<TaskWeek>> {
    fetch_all!(
        tx,
        TaskWeek,
        "SELECT t.id, t.label, t.paused_at, t.told_code,
             (SELECT r.error_code FROM runs r WHERE r.task_id = t.id AND r.finished_at IS NOT NULL
                 AND r.status <> 'cancelled' ORDER BY r.id DESC LIMIT 1) AS last_code,
             (SELECT COUNT(*) FROM runs r WHERE r.task_id = t.id AND r.finished_at >= $2 AND r.finished_at < $3
                 AND r.status = 'successful') AS succeeded,
             (SELECT COUNT(*) FROM runs r WHERE r.task_id = t.id AND r.finished_at >= $2 AND r.finished_at < $3
                 AND r.status = 'failed' AND r.error_code <> 'missed') AS failed,
             (SELECT COUNT(*) FROM runs r WHERE r.task_id = t.id AND r.finished_at >= $2 AND r.finished_at < $3
                 AND r.error_code = 'missed') AS missed,
             (SELECT MIN(b.created_at) FROM backups b WHERE b.task_id = t.id AND b.deleted_at IS NULL
                 AND b.verification NOT IN ('corrupt', 'missing')) AS oldest,
             (SELECT MAX(b.created_at) FROM backups b WHERE b.task_id = t.id AND b.deleted_at IS NULL
                 AND b.verification NOT IN ('corrupt', 'missing')) AS newest,
             (SELECT COUNT(*) FROM backups b WHERE b.task_id = t.id AND b.deleted_at IS NULL
                 AND b.verification IN ('corrupt', 'missing')) AS damaged,
             (SELECT b.plain_bytes FROM backups b WHERE b.task_id = t.id AND b.created_at < $3
                 ORDER BY b.id DESC LIMIT 1) AS size,
             (SELECT b.plain_bytes FROM backups b WHERE b.task_id = t.id AND b.created_at < $2
                 ORDER BY b.id DESC LIMIT 1) AS size_before
         FROM backup_tasks t WHERE t.user_id = $1 ORDER BY t.id LIMIT $4",
        user.0,
        DbTime(from),
        DbTime(to),
        limit
    )
}

/// How many backup runs succeeded and how many failed within a period.
pub async fn count_runs(tx: &mut Tx, user: UserId, from: Timestamp, to: Timestamp) -> Result<(i64, i64)> {
    let row = fetch_optional!(
        tx,
        (i64, i64),
        "SELECT COUNT(CASE WHEN r.status = 'successful' THEN 1 END), COUNT(CASE WHEN r.status = 'failed' THEN 1 END)
         FROM runs r WHERE r.user_id = $1 AND r.kind = 'backup' AND r.finished_at >= $2 AND r.finished_at < $3",
        user.0,
        DbTime(from),
        DbTime(to)
    )?;
    Ok(row.unwrap_or_default())
}

/// Bytes that a user's backups take at their destinations: now, and at an earlier time. A repository had then what it
/// has now without what was added since; what was removed from it since is not known.
pub async fn sum_stored(tx: &mut Tx, user: UserId, then: Timestamp) -> Result<(i64, i64)> {
    let row = fetch_optional!(
        tx,
        (i64, i64),
        "SELECT CAST(COALESCE(SUM(CASE WHEN b.deleted_at IS NULL THEN c.size_bytes ELSE 0 END), 0) AS BIGINT),
             CAST(COALESCE(SUM(CASE WHEN c.created_at < $2 AND (b.deleted_at IS NULL OR b.deleted_at >= $2)
                 THEN c.size_bytes ELSE 0 END), 0) AS BIGINT)
         FROM backup_copies c JOIN backups b ON b.id = c.backup_id
         WHERE c.user_id = $1 AND c.repository_id IS NULL",
        user.0,
        DbTime(then)
    )?;
    let (archives_now, archives_then) = row.unwrap_or_default();
    let repositories = fetch_optional!(
        tx,
        (i64, i64),
        "SELECT CAST(COALESCE(SUM(p.stored_bytes), 0) AS BIGINT),
             (SELECT CAST(COALESCE(SUM(c.size_bytes), 0) AS BIGINT) FROM backup_copies c
                 WHERE c.user_id = $1 AND c.repository_id IS NOT NULL AND c.created_at >= $2)
         FROM repositories p WHERE p.user_id = $1 AND p.removed_at IS NULL",
        user.0,
        DbTime(then)
    )?;
    let (repositories_now, added) = repositories.unwrap_or_default();
    Ok((archives_now + repositories_now, archives_then + (repositories_now - added).max(0)))
}
