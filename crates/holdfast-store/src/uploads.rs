//! Uploads, recorded before runs create them at destinations, so that whatever a lost run leaves behind can be found.

use holdfast_core::Timestamp;
use holdfast_core::ids::{DestinationId, RunId, UserId};

use crate::{DbTime, Result, Tx};

/// Records the key of an upload that is about to begin, if the lease of `epoch` still holds.
pub async fn insert(
    tx: &mut Tx,
    run: RunId,
    epoch: i64,
    destination: DestinationId,
    key: &str,
    now: Timestamp,
) -> Result<bool> {
    let inserted = execute!(
        tx,
        "INSERT INTO uploads (run_id, user_id, destination_id, object_key, retry_after, created_at)
         SELECT r.id, r.user_id, $1, $2, $3, $3 FROM runs r
         WHERE r.id = $4 AND r.lease_epoch = $5 AND r.status = 'running'
         ON CONFLICT (run_id) DO UPDATE SET object_key = excluded.object_key",
        destination.0,
        key,
        DbTime(now),
        run.0,
        epoch
    )?;
    Ok(inserted == 1)
}

/// Records the id that the destination gave the upload.
pub async fn update_id(tx: &mut Tx, run: RunId, upload_id: &str) -> Result<bool> {
    Ok(execute!(tx, "UPDATE uploads SET upload_id = $1 WHERE run_id = $2", upload_id, run.0)? == 1)
}

/// Deletes the record of an upload that has become a backup or has been cleared.
pub async fn delete(tx: &mut Tx, run: RunId) -> Result<()> {
    execute!(tx, "DELETE FROM uploads WHERE run_id = $1", run.0)?;
    Ok(())
}

named_row! {
    /// An upload whose run has ended without making it a backup.
    #[derive(Debug, Clone)]
    pub struct AbandonedRow {
        pub run_id: RunId,
        pub user_id: UserId,
        pub destination_id: DestinationId,
        pub object_key: String,
        pub upload_id: Option<String>,
        pub cleared_at: Option<DbTime>,
    }
}

impl AbandonedRow {
    pub fn owner(&self) -> UserId {
        self.user_id
    }
}

pub async fn list_abandoned(tx: &mut Tx, now: Timestamp, limit: i64) -> Result<Vec<AbandonedRow>> {
    fetch_all!(
        tx,
        AbandonedRow,
        "SELECT u.run_id, u.user_id, u.destination_id, u.object_key, u.upload_id, u.cleared_at FROM uploads u
         WHERE u.retry_after <= $1
           AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = u.run_id AND r.status = 'running')
           AND NOT EXISTS (SELECT 1 FROM backup_copies c
                           WHERE c.destination_id = u.destination_id AND c.locator = u.object_key)
         ORDER BY u.run_id LIMIT $2",
        DbTime(now),
        limit
    )
}

/// Records when an upload was first cleared.
pub async fn update_cleared(tx: &mut Tx, run: RunId, now: Timestamp) -> Result<()> {
    execute!(tx, "UPDATE uploads SET cleared_at = COALESCE(cleared_at, $1) WHERE run_id = $2", DbTime(now), run.0)?;
    Ok(())
}

/// Claims the clearing of an upload until `until`.
pub async fn claim(tx: &mut Tx, run: RunId, now: Timestamp, until: Timestamp) -> Result<bool> {
    let sql = "UPDATE uploads SET retry_after = $1 WHERE run_id = $2 AND retry_after <= $3";
    Ok(execute!(tx, sql, DbTime(until), run.0, DbTime(now))? == 1)
}
