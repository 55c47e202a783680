//! Finds times that lie too far ahead, as left behind by a clock that was wrong for a while, and pulls them back.

use holdfast_core::Timestamp;
use holdfast_core::ids::{TaskId, UserId};
use holdfast_core::schedule::Schedule;

use crate::{DbTime, Result, StoreError, Tx, spec};

named_row! {
    /// A task whose times may lie too far ahead; its schedule shows whether they do.
    #[derive(Debug, Clone)]
    pub struct AheadRow {
        pub id: TaskId,
        pub user_id: UserId,
        pub label: String,
        pub next_run_at: DbTime,
        pub overdue_at: Option<DbTime>,
        spec: String,
    }
}

impl AheadRow {
    pub fn schedule(&self) -> Result<Schedule> {
        let spec =
            spec::task(&self.spec).ok_or_else(|| StoreError::Broken(format!("task {} cannot be read", self.id)))?;
        Ok(spec.schedule)
    }
}

/// Tasks after `after` whose times may lie too far ahead, by id. The thresholds are a little shorter than the period of
/// each frequency, so that no task whose next run or reminder is a whole period late is missed, while most tasks need
/// no closer look. Cron expressions have no fixed period, so those tasks are always listed.
pub async fn list_tasks_ahead(tx: &mut Tx, now: Timestamp, after: TaskId, limit: i64) -> Result<Vec<AheadRow>> {
    fetch_all!(
        tx,
        AheadRow,
        "SELECT id, user_id, label, next_run_at, overdue_at, spec
         FROM backup_tasks
         WHERE id > $2 AND next_run_at > $1 AND (frequency = 'custom'
             OR next_run_at > $1 + CASE frequency WHEN 'hourly' THEN 3000000000 WHEN 'daily' THEN 79200000000
                 WHEN 'weekly' THEN 597600000000 ELSE 2332800000000 END
             OR overdue_at > $1 + CASE frequency WHEN 'hourly' THEN 86400000000 WHEN 'daily' THEN 122400000000
                 WHEN 'weekly' THEN 684000000000 ELSE 2419200000000 END)
         ORDER BY id LIMIT $3",
        DbTime(now),
        after.0,
        limit
    )
}

/// Pulls a task's times back, unless they were changed meanwhile. Slots after `now` that are recorded as run or missed
/// cannot have been either, so they are freed.
pub async fn pull_task_back(
    tx: &mut Tx,
    row: &AheadRow,
    next_run_at: Timestamp,
    overdue_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<bool> {
    let moved = execute!(
        tx,
        "UPDATE backup_tasks SET next_run_at = $1, overdue_at = $2 WHERE id = $3 AND next_run_at = $4",
        DbTime(next_run_at),
        overdue_at.map(DbTime),
        row.id.0,
        row.next_run_at
    )?;
    if moved == 1 {
        execute!(tx, "UPDATE runs SET slot_at = NULL WHERE task_id = $1 AND slot_at > $2", row.id.0, DbTime(now))?;
    }
    Ok(moved == 1)
}

/// The latest time at which each kind of wait may end.
#[derive(Debug, Clone, Copy)]
pub struct Latest {
    pub retry: Timestamp,
    pub notice: Timestamp,
    pub removal: Timestamp,
    pub upload: Timestamp,
    pub catalogue: Timestamp,
}

/// Ends every wait that would exceed its limit. Returns how many there were.
pub async fn end_waits(tx: &mut Tx, latest: Latest, now: Timestamp) -> Result<u64> {
    let now = DbTime(now);
    let mut ended = 0;
    let sql = "UPDATE backup_tasks SET retry_at = $1 WHERE retry_at > $2";
    ended += execute!(tx, sql, now, DbTime(latest.retry))?;
    let sql = "UPDATE notices SET next_try_at = $1 WHERE next_try_at > $2";
    ended += execute!(tx, sql, now, DbTime(latest.notice))?;
    let sql = "UPDATE backup_copies SET remove_after = $1 WHERE removed_at IS NULL AND remove_after > $2";
    ended += execute!(tx, sql, now, DbTime(latest.removal))?;
    // `cleared_at` is as wrong as `retry_after`: the same clock set both.
    let sql = "UPDATE uploads SET retry_after = $1, cleared_at = NULL WHERE retry_after > $2 OR cleared_at > $2";
    ended += execute!(tx, sql, now, DbTime(latest.upload))?;
    let sql = "UPDATE backup_destinations SET catalogue_next_at = $1
               WHERE catalogue_wanted_at IS NOT NULL AND catalogue_next_at > $2";
    ended += execute!(tx, sql, now, DbTime(latest.catalogue))?;
    Ok(ended)
}

/// Users whose next weekly summary is later than `latest`, with their time zones.
pub async fn list_summaries_after(tx: &mut Tx, latest: Timestamp, limit: i64) -> Result<Vec<(UserId, DbTime, String)>> {
    let sql = "SELECT id, summary_at, timezone FROM users WHERE summary_at > $1 ORDER BY summary_at, id LIMIT $2";
    let rows = fetch_all!(tx, (i64, DbTime, String), sql, DbTime(latest), limit)?;
    Ok(rows.into_iter().map(|(id, at, zone)| (UserId(id), at, zone)).collect())
}
