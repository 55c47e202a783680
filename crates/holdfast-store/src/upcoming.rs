//! The next runs of a user's tasks, soonest first.

use holdfast_core::ids::{TaskId, UserId};
use holdfast_core::source::TaskKind;

use crate::{DbTime, Result, Tx, packed};

packed_row! {
    pub struct UpcomingRow {
        id: TaskId = "t.id",
        label: String = "t.label",
        kind: TaskKind = "t.kind",
        next_run_at: DbTime = "t.next_run_at",
    }
}

/// Reads straight from an index, however many tasks the owner has.
pub async fn list(tx: &mut Tx, owner: UserId, limit: i64) -> Result<Vec<UpcomingRow>> {
    let lines = fetch_scalar!(
        tx,
        String,
        concat!(
            "SELECT COALESCE(string_agg(p.line, '\u{1e}'), '') FROM (SELECT ",
            packed_line!(),
            " AS line FROM backup_tasks t WHERE t.user_id = $1 AND t.next_run_at IS NOT NULL
              ORDER BY t.next_run_at, t.id LIMIT $2) p"
        ),
        owner.0,
        limit
    )?;
    let mut rows: Vec<UpcomingRow> = packed::unpack_all(&lines)?;
    rows.sort_unstable_by_key(|row| (row.next_run_at, row.id));
    Ok(rows)
}
