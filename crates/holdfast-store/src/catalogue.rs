//! Which destinations need their catalogue (a sealed list of everything stored) written again, and who is writing it.

use holdfast_core::Timestamp;
use holdfast_core::ids::{DestinationId, UserId};

use crate::{DbTime, Result, Tx};

/// How many wishes are processed at a time; the rest follow in the next pass.
const WISHES: i64 = 10_000;

/// Marks the destinations of every user with recorded changes as needing a new catalogue.
pub async fn settle_wishes(tx: &mut Tx, now: Timestamp) -> Result<()> {
    const SQL: &str = "DELETE FROM catalogue_wishes WHERE id IN
        (SELECT id FROM catalogue_wishes ORDER BY id LIMIT $1) RETURNING user_id";
    const SHARED: &str = "DELETE FROM catalogue_wishes WHERE id IN
        (SELECT id FROM catalogue_wishes ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING user_id";
    let sql = if tx.is_sqlite() { SQL } else { SHARED };
    let mut users: Vec<i64> = fetch_all!(tx, (i64,), sql, WISHES)?.into_iter().map(|(user,)| user).collect();
    users.sort_unstable();
    users.dedup();
    for user in users {
        let sql = "UPDATE backup_destinations SET catalogue_wanted_at = $1 WHERE user_id = $2";
        execute!(tx, sql, DbTime(now), user)?;
    }
    Ok(())
}

named_row! {
    /// A destination whose catalogue is due to be written.
    #[derive(Debug, Clone)]
    pub struct DueRow {
        pub id: DestinationId,
        pub user_id: UserId,
        wanted_at: DbTime,
        /// Object key of the last catalogue written there.
        pub key: Option<String>,
        /// Object key of a catalogue that is still to be removed: one that was replaced or never recorded as finished.
        pub pending: Option<String>,
    }
}

/// Claims due destinations until `lease`, so that nobody else writes their catalogues meanwhile: one per owner, and
/// either only those whose last write failed or only those whose last write did not. Destinations that are not known to
/// be reachable are skipped.
pub async fn claim(tx: &mut Tx, has_failed: bool, limit: i64, lease: Timestamp, now: Timestamp) -> Result<Vec<DueRow>> {
    macro_rules! claim {
        ($lock:literal) => {
            concat!(
                "UPDATE backup_destinations SET catalogue_next_at = $1 WHERE id IN
                     (SELECT id FROM backup_destinations WHERE id IN
                         (SELECT id FROM
                             (SELECT id, COALESCE(catalogue_next_at, 0) AS due_at, ROW_NUMBER() OVER
                                  (PARTITION BY user_id ORDER BY COALESCE(catalogue_next_at, 0), id) AS place
                              FROM backup_destinations
                              WHERE catalogue_wanted_at IS NOT NULL AND status = 'reachable'
                                  AND (catalogue_error IS NOT NULL) = $2 AND COALESCE(catalogue_next_at, 0) <= $3) due
                          WHERE place = 1 ORDER BY due_at, id LIMIT $4) ",
                $lock,
                ")
                 RETURNING id, user_id, catalogue_wanted_at AS wanted_at, catalogue_key AS key,
                     catalogue_pending AS pending"
            )
        };
    }
    let sql = if tx.is_sqlite() { claim!("") } else { claim!("FOR UPDATE SKIP LOCKED") };
    fetch_all!(tx, DueRow, sql, DbTime(lease), has_failed, DbTime(now), limit)
}

/// Records the key about to be written, so that what a lost worker leaves behind is found. Returns false if the claim
/// was lost.
pub async fn note(tx: &mut Tx, due: &DueRow, lease: Timestamp, key: &str) -> Result<bool> {
    let sql = "UPDATE backup_destinations SET catalogue_pending = $1 WHERE id = $2 AND catalogue_next_at = $3";
    Ok(execute!(tx, sql, key, due.id.0, DbTime(lease))? == 1)
}

/// A catalogue that was written, and the earliest time to write the next one.
#[derive(Debug)]
pub struct WrittenCatalogue<'a> {
    pub key: &'a str,
    pub bytes: i64,
    pub at: Timestamp,
    pub next_at: Timestamp,
}

/// Records a written catalogue. If something has changed since it was begun, another one is still due. The previous one
/// is recorded as pending until it is removed, so that a worker lost in between leaves no untracked object behind.
/// Returns false if the claim was lost.
pub async fn finish(tx: &mut Tx, due: &DueRow, lease: Timestamp, written: &WrittenCatalogue<'_>) -> Result<bool> {
    let noted = execute!(
        tx,
        "UPDATE backup_destinations SET catalogue_key = $1, catalogue_bytes = $2, catalogue_at = $3,
             catalogue_next_at = $4, catalogue_error = NULL, catalogue_pending = $8,
             catalogue_wanted_at = CASE WHEN catalogue_wanted_at = $5 THEN NULL ELSE catalogue_wanted_at END
         WHERE id = $6 AND catalogue_next_at = $7",
        written.key,
        written.bytes,
        DbTime(written.at),
        DbTime(written.next_at),
        due.wanted_at,
        due.id.0,
        DbTime(lease),
        due.key.as_deref()
    )?;
    Ok(noted == 1)
}

/// Records that the pending catalogue `key` has been removed.
pub async fn note_removed(tx: &mut Tx, due: &DueRow, key: &str) -> Result<()> {
    let sql = "UPDATE backup_destinations SET catalogue_pending = NULL WHERE id = $1 AND catalogue_pending = $2";
    execute!(tx, sql, due.id.0, key)?;
    Ok(())
}

/// Delays the next catalogue further, unless it has been claimed since.
pub async fn wait_until(tx: &mut Tx, due: &DueRow, planned: Timestamp, next_at: Timestamp) -> Result<()> {
    let sql = "UPDATE backup_destinations SET catalogue_next_at = $1 WHERE id = $2 AND catalogue_next_at = $3";
    execute!(tx, sql, DbTime(next_at), due.id.0, DbTime(planned))?;
    Ok(())
}

/// Releases a claim when nothing can be written there yet; the next change makes the destination due again.
pub async fn put_off(tx: &mut Tx, due: &DueRow, lease: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE backup_destinations SET catalogue_next_at = NULL,
             catalogue_wanted_at = CASE WHEN catalogue_wanted_at = $1 THEN NULL ELSE catalogue_wanted_at END
         WHERE id = $2 AND catalogue_next_at = $3",
        due.wanted_at,
        due.id.0,
        DbTime(lease)
    )?;
    Ok(())
}

/// Records why the catalogue could not be written, and when to try again.
pub async fn fail(tx: &mut Tx, due: &DueRow, lease: Timestamp, error: &str, next_at: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE backup_destinations SET catalogue_error = $1, catalogue_next_at = $2
         WHERE id = $3 AND catalogue_next_at = $4",
        error,
        DbTime(next_at),
        due.id.0,
        DbTime(lease)
    )?;
    Ok(())
}

/// The status shown to users: when the catalogue was last written, and why the last attempt failed, if it did.
pub async fn find(tx: &mut Tx, destination: i64) -> Result<Option<(Option<DbTime>, Option<String>)>> {
    let sql = "SELECT catalogue_at, catalogue_error FROM backup_destinations WHERE id = $1";
    fetch_optional!(tx, (Option<DbTime>, Option<String>), sql, destination)
}
