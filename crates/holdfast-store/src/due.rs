//! When tasks are due: their slots, their retries, and how many workers they have lost in a row.

use holdfast_core::Timestamp;
use holdfast_core::ids::{RunId, TaskId, UserId};
use holdfast_core::run::Trigger;
use holdfast_core::schedule::Schedule;

use crate::{DbTime, Result, StoreError, Tx, spec};

named_row! {
    /// A task whose slot has come.
    #[derive(Debug, Clone)]
    pub struct DueRow {
        pub id: TaskId,
        pub user_id: UserId,
        pub next_run_at: DbTime,
        spec: String,
    }
}

impl DueRow {
    pub fn schedule(&self) -> Result<Schedule> {
        schedule(self.id, &self.spec)
    }
}

/// Tasks whose slot has come, earliest first. Concurrent callers get different tasks.
pub async fn list(tx: &mut Tx, now: Timestamp, limit: i64) -> Result<Vec<DueRow>> {
    const SQL: &str = concat!(
        "SELECT t.id, t.user_id, t.next_run_at, t.spec FROM backup_tasks t WHERE t.next_run_at <= $1 AND ",
        is_active!("t"),
        " ORDER BY t.next_run_at, t.id LIMIT $2"
    );
    const SHARED: &str = concat!(
        "SELECT t.id, t.user_id, t.next_run_at, t.spec FROM backup_tasks t WHERE t.next_run_at <= $1 AND ",
        is_active!("t"),
        " ORDER BY t.next_run_at, t.id LIMIT $2 FOR UPDATE OF t SKIP LOCKED"
    );
    let sql = if tx.is_sqlite() { SQL } else { SHARED };
    fetch_all!(tx, DueRow, sql, DbTime(now), limit)
}

named_row! {
    /// A task whose retry is due.
    #[derive(Debug, Clone)]
    pub struct RetryRow {
        pub id: TaskId,
        pub user_id: UserId,
        /// Who requested the run that failed; `None` if that run has been deleted.
        pub requested_by: Option<Trigger>,
        pub retry_run_id: Option<i64>,
        spec: String,
    }
}

impl RetryRow {
    pub fn schedule(&self) -> Result<Schedule> {
        schedule(self.id, &self.spec)
    }
}

fn schedule(id: TaskId, spec: &str) -> Result<Schedule> {
    let spec = spec::task(spec).ok_or_else(|| StoreError::Broken(format!("task {id} cannot be read")))?;
    Ok(spec.schedule)
}

/// Tasks whose retry is due, earliest first. Concurrent callers get different tasks.
pub async fn list_retries(tx: &mut Tx, now: Timestamp, limit: i64) -> Result<Vec<RetryRow>> {
    const SQL: &str = concat!(
        "SELECT t.id, t.user_id,
             (SELECT r.requested_by FROM runs r WHERE r.id = t.retry_run_id) AS requested_by, t.retry_run_id, t.spec
         FROM backup_tasks t WHERE t.retry_at <= $1 AND ",
        is_active!("t"),
        " ORDER BY t.retry_at, t.id LIMIT $2"
    );
    const SHARED: &str = concat!(
        "SELECT t.id, t.user_id,
             (SELECT r.requested_by FROM runs r WHERE r.id = t.retry_run_id) AS requested_by, t.retry_run_id, t.spec
         FROM backup_tasks t WHERE t.retry_at <= $1 AND ",
        is_active!("t"),
        " ORDER BY t.retry_at, t.id LIMIT $2 FOR UPDATE OF t SKIP LOCKED"
    );
    let sql = if tx.is_sqlite() { SQL } else { SHARED };
    fetch_all!(tx, RetryRow, sql, DbTime(now), limit)
}

/// Schedules a retry of a task, unless it is paused.
pub async fn plan_retry(tx: &mut Tx, id: TaskId, failed: RunId, at: Timestamp) -> Result<bool> {
    let planned = execute!(
        tx,
        "UPDATE backup_tasks SET retry_at = $1, retry_run_id = $2 WHERE id = $3 AND paused_at IS NULL",
        DbTime(at),
        failed.0,
        id.0
    )?;
    Ok(planned == 1)
}

named_row! {
    /// The second attempt after a run that failed.
    #[derive(Debug, Clone, Default)]
    pub struct SecondAttempt {
        /// When it will be queued.
        pub due_at: Option<DbTime>,
        /// The run that is the second attempt, once it is queued.
        pub run: Option<i64>,
    }
}

/// What is known of the second attempt after a run.
pub async fn find_second_attempt(tx: &mut Tx, task: TaskId, run: RunId) -> Result<SecondAttempt> {
    let found = fetch_optional!(
        tx,
        SecondAttempt,
        "SELECT (SELECT t.retry_at FROM backup_tasks t WHERE t.id = $1 AND t.retry_run_id = $2) AS due_at,
             (SELECT MAX(r.id) FROM runs r WHERE r.task_id = $1 AND r.retry_of = $2) AS run",
        task.0,
        run.0
    )?;
    Ok(found.unwrap_or_default())
}

/// Moves a task's pending retry to a later time, unless another process took it.
pub async fn put_retry_off(tx: &mut Tx, id: TaskId, until: Timestamp) -> Result<bool> {
    let sql = "UPDATE backup_tasks SET retry_at = $1 WHERE id = $2 AND retry_at IS NOT NULL";
    Ok(execute!(tx, sql, DbTime(until), id.0)? == 1)
}

/// Clears a task's pending retry, because a run starts now. Returns false if there was none, or another process took
/// it.
pub async fn drop_retry(tx: &mut Tx, id: TaskId) -> Result<bool> {
    let sql = "UPDATE backup_tasks SET retry_at = NULL WHERE id = $1 AND retry_at IS NOT NULL";
    Ok(execute!(tx, sql, id.0)? == 1)
}

/// Counts a worker that was lost during a run of this task, and returns how many were lost in a row.
pub async fn count_loss(tx: &mut Tx, id: TaskId) -> Result<i64> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "UPDATE backup_tasks SET losses = losses + 1 WHERE id = $1 RETURNING losses",
        id.0
    )?;
    Ok(row.map_or(0, |(losses,)| losses))
}

/// Moves a due task to its next slot, unless another scheduler has done so or the schedule was edited meanwhile.
pub async fn advance(tx: &mut Tx, due: &DueRow, next_run_at: Option<Timestamp>) -> Result<bool> {
    let moved = execute!(
        tx,
        "UPDATE backup_tasks SET next_run_at = $1 WHERE id = $2 AND next_run_at = $3",
        next_run_at.map(DbTime),
        due.id.0,
        due.next_run_at
    )?;
    Ok(moved == 1)
}

/// Resets the count of lost workers, because a run of the task has ended normally.
pub async fn forget_losses(tx: &mut Tx, id: TaskId) -> Result<()> {
    execute!(tx, "UPDATE backup_tasks SET losses = 0 WHERE id = $1 AND losses > 0", id.0)?;
    Ok(())
}
