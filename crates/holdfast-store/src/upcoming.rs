//! The next runs of a user's tasks, soonest first.

use holdfast_core::ids::UserId;

use crate::{At, Result, Tx, packed};

packed_row! {
    pub struct UpcomingRow {
        id: i64 = "t.id",
        label: String = "t.label",
        kind: String = "t.kind",
        next_run_at: At = "t.next_run_at",
    }
}

/// Straight from an index, however many tasks the owner has.
pub async fn list(tx: &mut Tx, owner: UserId, limit: i64) -> Result<Vec<UpcomingRow>> {
    let lines = fetch_scalar!(
        tx,
        String,
        concat!(
            "SELECT COALESCE(string_agg(p.line, '\u{1e}' ORDER BY p.next_run_at, p.id), '') FROM (SELECT t.id,
                 t.next_run_at, ",
            packed_line!(),
            " AS line FROM backup_tasks t WHERE t.user_id = $1 AND t.next_run_at IS NOT NULL
              ORDER BY t.next_run_at, t.id LIMIT $2) p"
        ),
        owner.0,
        limit
    )?;
    packed::unpack_all(&lines)
}
