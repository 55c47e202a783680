//! What pages watch: a user's current activity, and a fingerprint that changes whenever any of it does.

use holdfast_core::ids::{RunId, UserId};

use crate::runs::{self, RunRow};
use crate::{Result, Tx};

named_row! {
    /// The counts shown in the corner of every page.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct LiveCounts {
        pub running: i64,
        pub undelivered: i64,
    }
}

pub async fn count(tx: &mut Tx, user: UserId) -> Result<LiveCounts> {
    let found = fetch_optional!(
        tx,
        LiveCounts,
        "SELECT (SELECT COUNT(*) FROM runs WHERE user_id = $1 AND status IN ('queued', 'running')) AS running,
             (SELECT COUNT(*) FROM notices WHERE user_id = $1 AND status = 'undelivered') AS undelivered",
        user.0
    )?;
    Ok(found.unwrap_or_default())
}

/// A text that changes whenever one of the user's runs is queued, progresses, writes a line or ends, or a notice is
/// created or cannot be delivered. Every part comes from a small index.
pub async fn sign(tx: &mut Tx, user: UserId) -> Result<String> {
    fetch_scalar!(
        tx,
        String,
        "SELECT concat_ws(' ',
             (SELECT MAX(id) FROM runs WHERE user_id = $1 AND kind = 'backup'),
             (SELECT MAX(id) FROM runs WHERE user_id = $1 AND backup_id IS NOT NULL),
             (SELECT MAX(id) FROM runs WHERE user_id = $1 AND NOT is_long),
             (SELECT concat_ws('.', COUNT(*), SUM(id), SUM(CASE WHEN status = 'running' THEN 1 ELSE 0 END),
                  SUM(bytes_read), SUM(bytes_stored), SUM(files),
                  SUM((SELECT COUNT(*) FROM run_lines l WHERE l.run_id = runs.id)))
              FROM runs WHERE user_id = $1 AND status IN ('queued', 'running')),
             (SELECT MAX(id) FROM notices WHERE user_id = $1),
             (SELECT COUNT(*) FROM notices WHERE user_id = $1 AND status = 'undelivered'))",
        user.0
    )
}

/// How many queued and running runs are listed at most: the corner of a page shows no more.
const SHOWN: i64 = 20;

pub async fn list_runs(tx: &mut Tx, user: UserId) -> Result<Vec<RunRow>> {
    let ids = fetch_all!(
        tx,
        (i64,),
        "SELECT id FROM runs WHERE user_id = $1 AND status IN ('queued', 'running') ORDER BY id LIMIT $2",
        user.0,
        SHOWN
    )?;
    let mut rows = Vec::with_capacity(ids.len());
    for (id,) in ids {
        rows.extend(runs::find(tx, RunId(id)).await?);
    }
    Ok(rows)
}
