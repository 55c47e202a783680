//! Totals that triggers keep, so that nothing has to count or add up a user's millions of rows. See the migration, and
//! `docs/decisions/0037`.

use holdfast_core::ids::UserId;

use crate::{Result, Tx};

/// Adds the parts of each total to one row, and drops totals that are zero. On PostgreSQL each change is a part of its
/// own, which makes reading a total slower the more there are. If another process is doing that, this does nothing.
pub async fn fold(tx: &mut Tx) -> Result<()> {
    if !tx.is_sqlite() {
        let lock = "SELECT pg_try_advisory_xact_lock(4846202402)";
        if !fetch_scalar!(tx, bool, lock)? {
            return Ok(());
        }
        // One statement, so that every reader sees either the parts or their sum.
        execute!(
            tx,
            "WITH parts AS (DELETE FROM totals WHERE part <> 0
                 RETURNING subject, user_id, kind, status, amount, bytes)
             INSERT INTO totals (subject, user_id, kind, status, part, amount, bytes)
             SELECT subject, user_id, kind, status, 0, SUM(amount), SUM(bytes) FROM parts
             GROUP BY subject, user_id, kind, status
             ON CONFLICT (subject, user_id, kind, status, part)
                 DO UPDATE SET amount = totals.amount + excluded.amount, bytes = totals.bytes + excluded.bytes"
        )?;
    }
    execute!(tx, "DELETE FROM totals WHERE part = 0 AND amount = 0 AND bytes = 0")?;
    Ok(())
}

/// Bytes that a user has stored now.
pub async fn sum_stored(tx: &mut Tx, user: UserId) -> Result<i64> {
    fetch_scalar!(
        tx,
        i64,
        "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM totals
         WHERE subject = 'copy' AND user_id = $1 AND kind = 'stored'",
        user.0
    )
}
