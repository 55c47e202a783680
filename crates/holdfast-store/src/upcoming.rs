//! The next runs of a user's tasks, soonest first.

use holdfast_core::ids::{TaskId, UserId};
use holdfast_core::source::TaskKind;

use crate::{DbTime, Result, Tx};

row_type! {
    pub struct UpcomingRow {
        id: TaskId = "t.id",
        label: String = "t.label",
        kind: TaskKind = "t.kind",
        next_run_at: DbTime = "t.next_run_at",
    }
}

/// Reads straight from an index, however many tasks the owner has.
pub async fn list(tx: &mut Tx, owner: UserId, limit: i64) -> Result<Vec<UpcomingRow>> {
    fetch_all!(
        tx,
        _,
        concat!(
            "SELECT ",
            columns!(),
            " FROM backup_tasks t WHERE t.user_id = $1 AND t.next_run_at IS NOT NULL
              ORDER BY t.next_run_at, t.id LIMIT $2"
        ),
        owner.0,
        limit
    )
}
