//! Copies of backups: where each is stored, its verification status, and its removal.

use holdfast_core::Timestamp;
use holdfast_core::backup::Verification;
use holdfast_core::ids::{BackupId, CopyId, DestinationId, RepositoryId, UserId};
use holdfast_core::storage::Format;

use crate::{DbTime, Result, StoreError, Tx};

/// A copy as the destination has confirmed it.
#[derive(Debug, Clone)]
pub struct NewCopy {
    pub destination: DestinationId,
    /// The key of the object.
    pub locator: String,
    pub size_bytes: i64,
    pub sha256: String,
    /// The repository that it is a snapshot of.
    pub repository: Option<RepositoryId>,
}

/// Records the copies of a new backup. The first is the one that lists show.
pub(crate) async fn insert(
    tx: &mut Tx,
    owner: UserId,
    backup: BackupId,
    copies: &[NewCopy],
    now: Timestamp,
) -> Result<()> {
    for (position, copy) in (0_i64..).zip(copies) {
        execute!(
            tx,
            "INSERT INTO backup_copies (user_id, backup_id, destination_id, position, locator, size_bytes, sha256,
                 verification, created_at, remove_attempts, repository_id)
             VALUES ($1, $2, $3, $4, $5, $6, $7, 'unverified', $8, 0, $9)",
            owner.0,
            backup.0,
            copy.destination.0,
            position,
            &copy.locator,
            copy.size_bytes,
            &copy.sha256,
            DbTime(now),
            copy.repository.map(|id| id.0)
        )?;
    }
    Ok(())
}

/// Records what a full read of a copy found, and updates the backup's verification from all its copies.
pub async fn update_verification(
    tx: &mut Tx,
    backup: BackupId,
    destination: DestinationId,
    found: Verification,
    now: Timestamp,
) -> Result<()> {
    let read_at = (found != Verification::Unverified).then_some(DbTime(now));
    execute!(
        tx,
        "UPDATE backup_copies SET verification = $1, verified_at = $2 WHERE backup_id = $3 AND destination_id = $4",
        found.as_str(),
        read_at,
        backup.0,
        destination.0
    )?;
    let rows = fetch_all!(
        tx,
        (String, Option<DbTime>),
        "SELECT verification, verified_at FROM backup_copies WHERE backup_id = $1 ORDER BY position",
        backup.0
    )?;
    let known = rows.iter().map(|(word, at)| Some((Verification::parse(word)?, *at)));
    let known: Option<Vec<(Verification, Option<DbTime>)>> = known.collect();
    let known = known.ok_or_else(|| StoreError::Broken("a copy has an unknown state".to_owned()))?;
    let copies: Vec<Verification> = known.iter().map(|(verification, _)| *verification).collect();
    let overall = Verification::of_copies(&copies);
    let newest = known.iter().filter(|(verification, _)| *verification == overall).filter_map(|(_, at)| *at).max();
    execute!(
        tx,
        "UPDATE backups SET verification = $1, verified_at = $2 WHERE id = $3",
        overall.as_str(),
        newest,
        backup.0
    )?;
    crate::tasks::update_proven(tx, backup).await
}

named_row! {
    /// A copy that should be at its destination.
    #[derive(Debug, Clone)]
    pub struct StoredCopy {
        pub backup_id: BackupId,
        pub locator: String,
        pub format: Format,
        pub size_bytes: i64,
        /// What was found when it was last looked at.
        pub verification: Verification,
    }
}

/// Everything that should be at a destination, newest first.
pub async fn list_stored(tx: &mut Tx, destination: DestinationId) -> Result<Vec<StoredCopy>> {
    fetch_all!(
        tx,
        StoredCopy,
        "SELECT c.backup_id, c.locator, b.format, c.size_bytes, c.verification FROM backup_copies c
         JOIN backups b ON b.id = c.backup_id
         WHERE c.destination_id = $1 AND c.remove_after IS NULL AND c.removed_at IS NULL ORDER BY c.backup_id DESC",
        destination.0
    )
}

/// How many copies at a destination are missing or damaged.
pub async fn count_damaged(tx: &mut Tx, destination: DestinationId) -> Result<i64> {
    fetch_scalar!(
        tx,
        i64,
        "SELECT COUNT(*) FROM backup_copies
         WHERE destination_id = $1 AND remove_after IS NULL AND removed_at IS NULL
             AND verification IN ('missing', 'corrupt')",
        destination.0
    )
}

/// Whether an object belongs to a backup, deleted or not.
pub async fn is_recorded(tx: &mut Tx, destination: DestinationId, locator: &str) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM backup_copies WHERE destination_id = $1 AND locator = $2)";
    fetch_scalar!(tx, bool, sql, destination.0, locator)
}

named_row! {
    /// A copy of a deleted backup that is still at its destination.
    #[derive(Debug, Clone)]
    pub struct DueRow {
        pub id: CopyId,
        pub user_id: UserId,
        pub backup_id: BackupId,
        pub destination_id: DestinationId,
        pub format: Format,
        pub locator: String,
        pub size_bytes: i64,
        pub repository_id: Option<RepositoryId>,
        pub remove_attempts: i64,
    }
}

/// Copies that are due to be removed.
pub async fn list_to_remove(tx: &mut Tx, now: Timestamp, limit: i64) -> Result<Vec<DueRow>> {
    fetch_all!(
        tx,
        DueRow,
        "SELECT c.id, c.user_id, c.backup_id, c.destination_id, b.format, c.locator, c.size_bytes, c.repository_id,
             c.remove_attempts
         FROM backup_copies c JOIN backups b ON b.id = c.backup_id
         WHERE c.remove_after IS NOT NULL AND c.removed_at IS NULL AND c.remove_after <= $1
         ORDER BY c.remove_after, c.id LIMIT $2",
        DbTime(now),
        limit
    )
}

/// Claims the removal of a copy until `until`, so that two workers do not both try. `is_try` counts an attempt.
pub async fn claim_removal(tx: &mut Tx, id: CopyId, now: Timestamp, until: Timestamp, is_try: bool) -> Result<bool> {
    let claimed = execute!(
        tx,
        "UPDATE backup_copies SET remove_after = $1, remove_attempts = remove_attempts + $2
         WHERE id = $3 AND removed_at IS NULL AND remove_after <= $4",
        DbTime(until),
        i64::from(is_try),
        id.0,
        DbTime(now)
    )?;
    Ok(claimed == 1)
}

/// Records that a copy is gone. What it alone needed in a repository stays there until that is pruned.
pub async fn update_removed(tx: &mut Tx, copy: &DueRow, now: Timestamp) -> Result<()> {
    execute!(tx, "UPDATE backup_copies SET removed_at = $1 WHERE id = $2", DbTime(now), copy.id.0)?;
    match copy.repository_id {
        Some(repository) => crate::repositories::note_garbage(tx, repository, copy.size_bytes, now).await,
        None => Ok(()),
    }
}
