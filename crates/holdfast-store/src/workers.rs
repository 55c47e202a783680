//! Worker processes, as they report themselves, and the runs they hold.

use holdfast_core::Timestamp;
use holdfast_core::ids::RunId;
use holdfast_core::run::RunKind;

use crate::{DbTime, Result, Tx};

named_row! {
    #[derive(Debug, Clone)]
    pub struct WorkerRow {
        pub name: String,
        pub version: String,
        pub started_at: DbTime,
        pub seen_at: DbTime,
        /// It was told to start no further runs.
        pub is_draining: bool,
    }
}

named_row! {
    /// A run that a worker holds, of any user; it does not say what is backed up.
    #[derive(Debug, Clone)]
    pub struct LeaseRow {
        pub id: i64,
        pub kind: RunKind,
        pub worker: Option<String>,
        pub email: String,
        pub started_at: Option<DbTime>,
        pub lease_expires_at: Option<DbTime>,
    }
}

pub async fn upsert(tx: &mut Tx, name: &str, version: &str, started: Timestamp, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO workers (name, version, started_at, seen_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at",
        name,
        version,
        DbTime(started),
        DbTime(now)
    )?;
    Ok(())
}

/// Records that a worker was told to stop.
pub async fn mark_stopping(tx: &mut Tx, name: &str) -> Result<()> {
    execute!(tx, "UPDATE workers SET is_stopping = TRUE WHERE name = $1", name)?;
    Ok(())
}

/// Tells a worker whether it may start runs. Returns false if it is not there.
pub async fn update_draining(tx: &mut Tx, name: &str, is_draining: bool) -> Result<bool> {
    Ok(execute!(tx, "UPDATE workers SET is_draining = $1 WHERE name = $2", is_draining, name)? == 1)
}

pub async fn is_draining(tx: &mut Tx, name: &str) -> Result<bool> {
    fetch_scalar!(tx, bool, "SELECT EXISTS (SELECT 1 FROM workers WHERE name = $1 AND is_draining)", name)
}

/// Whether the worker of a run was told to stop while it held the run.
pub async fn was_stopping(tx: &mut Tx, run: RunId) -> Result<bool> {
    let sql =
        "SELECT EXISTS (SELECT 1 FROM runs r JOIN workers w ON w.name = r.worker WHERE r.id = $1 AND w.is_stopping)";
    fetch_scalar!(tx, bool, sql, run.0)
}

/// Deletes workers that were last seen before `before`.
pub async fn delete_silent(tx: &mut Tx, before: Timestamp) -> Result<()> {
    execute!(tx, "DELETE FROM workers WHERE seen_at < $1", DbTime(before))?;
    Ok(())
}

pub async fn delete(tx: &mut Tx, name: &str) -> Result<()> {
    execute!(tx, "DELETE FROM workers WHERE name = $1", name)?;
    Ok(())
}

pub async fn list(tx: &mut Tx) -> Result<Vec<WorkerRow>> {
    fetch_all!(
        tx,
        WorkerRow,
        "SELECT name, version, started_at, seen_at, is_draining FROM workers ORDER BY started_at, name"
    )
}

pub async fn list_leases(tx: &mut Tx, limit: i64) -> Result<Vec<LeaseRow>> {
    fetch_all!(
        tx,
        LeaseRow,
        "SELECT r.id, r.kind, r.worker, u.email, r.started_at, r.lease_expires_at
         FROM runs r JOIN users u ON u.id = r.user_id WHERE r.status = 'running' ORDER BY r.id LIMIT $1",
        limit
    )
}

/// How many runs are queued, and when the first of them was.
pub async fn find_queue(tx: &mut Tx) -> Result<(i64, Option<DbTime>)> {
    let row = fetch_optional!(
        tx,
        (i64, Option<DbTime>),
        "SELECT COUNT(*), MIN(created_at) FROM runs WHERE status = 'queued'"
    )?;
    Ok(row.unwrap_or((0, None)))
}

/// What is stored, by user: the user's id, the number of backups, and bytes.
pub async fn list_storage(tx: &mut Tx) -> Result<Vec<(i64, i64, i64)>> {
    fetch_all!(
        tx,
        (i64, i64, i64),
        "SELECT user_id, CAST(COALESCE(SUM(CASE WHEN status = 'first' THEN amount END), 0) AS BIGINT),
             CAST(SUM(bytes) AS BIGINT)
         FROM totals WHERE subject = 'copy' AND kind = 'stored' GROUP BY user_id HAVING SUM(amount) > 0"
    )
}
