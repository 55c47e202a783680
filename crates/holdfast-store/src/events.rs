//! What happened to a user's runs, backups and notices, in the order in which it took effect. Triggers write it.

use holdfast_core::Timestamp;
use holdfast_core::ids::UserId;

use crate::tx::Backend;
use crate::{DbTime, Result, Tx};

/// A place between two events. See the migration for how the order comes about on each database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventPosition {
    pub position: i64,
    pub id: i64,
}

named_row! {
    #[derive(Debug, Clone)]
    pub struct EventRow {
        pub id: i64,
        pub position: i64,
        /// `run`, `backup` or `notice`.
        pub subject: String,
        pub subject_id: i64,
        /// The kind of the run or notice.
        pub kind: Option<String>,
        pub status: String,
        pub task_id: Option<i64>,
        pub at: DbTime,
    }
}

impl EventRow {
    pub fn place(&self) -> EventPosition {
        EventPosition { position: self.position, id: self.id }
    }
}

/// Behind everything that has happened so far.
pub async fn find_end(tx: &mut Tx) -> Result<EventPosition> {
    if matches!(tx.backend(), Backend::Postgres(_)) {
        let sql = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1";
        return Ok(EventPosition { position: fetch_scalar!(tx, i64, sql)?, id: i64::MAX });
    }
    let id = fetch_scalar!(tx, i64, "SELECT COALESCE(MAX(id), 0) FROM events")?;
    Ok(EventPosition { position: 0, id })
}

/// Whether everything behind `place` is still on record, and `place` belongs to this database.
pub async fn is_complete_after(tx: &mut Tx, place: EventPosition) -> Result<bool> {
    let oldest = fetch_optional!(tx, (i64, i64), "SELECT position, id FROM events ORDER BY position, id LIMIT 1")?;
    let end = find_end(tx).await?;
    let is_known = oldest.is_some_and(|(position, id)| EventPosition { position, id } <= place);
    Ok(place <= end && (is_known || place == end))
}

/// The next events of a user behind `place`, about these subjects.
pub async fn list(
    tx: &mut Tx,
    owner: UserId,
    subjects: &[&'static str],
    place: EventPosition,
    limit: i64,
) -> Result<Vec<EventRow>> {
    let subjects = subjects.join("', '");
    // Events of transactions that are under way may still come before others.
    let settled = match tx.backend() {
        Backend::Postgres(_) => " AND position < pg_snapshot_xmin(pg_current_snapshot())::text::bigint",
        Backend::Sqlite(_) => "",
    };
    let sql = format!(
        "SELECT id, position, subject, subject_id, kind, status, task_id, at FROM events
         WHERE user_id = $1 AND (position, id) > ($2, $3) AND subject IN ('{subjects}'){settled} ORDER BY position, id LIMIT $4"
    );
    fetch_all!(tx, EventRow, sqlx::AssertSqlSafe(sql.clone()), owner.0, place.position, place.id, limit)
}

/// Deletes up to `limit` events from before `before`.
pub async fn delete_before(tx: &mut Tx, before: Timestamp, limit: i64) -> Result<u64> {
    let sql = "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE at < $1 LIMIT $2)";
    execute!(tx, sql, DbTime(before), limit)
}
