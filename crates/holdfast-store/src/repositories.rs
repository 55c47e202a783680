//! The repositories of tasks: where they are, with what they are opened, and how they fare.

use holdfast_core::backup::Verification;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{DestinationId, RepositoryId, TaskId, UserId};
use holdfast_core::secret::SecretChange;
use holdfast_core::{Secret, Timestamp};

use crate::{DbTime, Result, StoreError, Tx};

/// How many passwords are tried: that of the last backup, and those that runs without a backup may have set since.
pub const MOST_PASSWORDS: usize = 8;

row_type! {
    pub struct RepositoryRow {
        id: RepositoryId = "p.id",
        user_id: UserId = "p.user_id",
        /// `None` once the task has been deleted.
        task_id: Option<TaskId> = "p.task_id",
        destination_id: DestinationId = "p.destination_id",
        /// The folder that the task named.
        store_path: String = "p.store_path",
        folder: String = "p.folder",
        /// `None` until the first backup.
        stored_bytes: Option<i64> = "p.stored_bytes",
        /// Since when something in it may be needed by no snapshot; `None` if everything is needed.
        garbage_since: Option<DbTime> = "p.garbage_since",
        /// An estimate.
        garbage_bytes: i64 = "p.garbage_bytes",
        /// What the last prune left unused.
        unused_bytes: i64 = "p.unused_bytes",
        pruned_at: Option<DbTime> = "p.pruned_at",
        /// When the whole was last found to be sound.
        checked_at: Option<DbTime> = "p.checked_at",
        /// When the check under way began, and the pack up to which it has read.
        check_began_at: Option<DbTime> = "p.check_began_at",
        check_position: Option<String> = "p.check_position",
        /// What went wrong with the last prune, and when users were told.
        prune_trouble_code: Option<FailureCode> = "p.prune_trouble_code",
        prune_trouble: Option<String> = "p.prune_trouble",
        prune_told_at: Option<DbTime> = "p.prune_told_at",
        /// The same for the last check.
        check_trouble_code: Option<FailureCode> = "p.check_trouble_code",
        check_trouble: Option<String> = "p.check_trouble",
        check_told_at: Option<DbTime> = "p.check_told_at",
        created_at: DbTime = "p.created_at",
    }
}

impl RepositoryRow {
    /// What went wrong with the last check, or else with the last prune, with the reason.
    pub fn trouble(&self) -> Option<(FailureCode, &str)> {
        let check = self.check_trouble_code.zip(self.check_trouble.as_deref());
        check.or_else(|| self.prune_trouble_code.zip(self.prune_trouble.as_deref()))
    }

    /// Why a prune, or else a check, failed last, and when users were told.
    pub fn told(&self, is_prune: bool) -> (Option<FailureCode>, Option<DbTime>) {
        if is_prune {
            (self.prune_trouble_code, self.prune_told_at)
        } else {
            (self.check_trouble_code, self.check_told_at)
        }
    }
}

/// A repository that a task is about to begin or to adopt.
#[derive(Debug, Clone)]
pub struct NewRepository {
    pub task: TaskId,
    pub destination: DestinationId,
    pub store_path: String,
    pub folder: String,
    pub password: Secret,
}

/// Records a repository; `None` if another one has this folder.
pub async fn insert(tx: &mut Tx, owner: UserId, new: &NewRepository, now: Timestamp) -> Result<Option<RepositoryId>> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "INSERT INTO repositories (user_id, task_id, destination_id, store_path, folder, created_at)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING RETURNING id",
        owner.0,
        new.task.0,
        new.destination.0,
        &new.store_path,
        &new.folder,
        DbTime(now)
    )?;
    let Some((id,)) = row else { return Ok(None) };
    write_passwords(tx, RepositoryId(id), owner, std::slice::from_ref(&new.password)).await?;
    Ok(Some(RepositoryId(id)))
}

pub async fn find(tx: &mut Tx, id: RepositoryId) -> Result<Option<RepositoryRow>> {
    find_row!(tx, "FROM repositories p WHERE p.id = $1", id.0)
}

/// Gives the repository in this folder to a task of its owner, if the task that it belonged to has been deleted.
pub async fn take_over(tx: &mut Tx, owner: UserId, new: &NewRepository) -> Result<Option<RepositoryId>> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "UPDATE repositories SET task_id = $1, store_path = $2
         WHERE destination_id = $3 AND folder = $4 AND user_id = $5 AND task_id IS NULL AND removed_at IS NULL
         RETURNING id",
        new.task.0,
        &new.store_path,
        new.destination.0,
        &new.folder,
        owner.0
    )?;
    Ok(row.map(|(id,)| RepositoryId(id)))
}

/// Finds the row and keeps others from changing it until the transaction ends.
pub async fn find_locked(tx: &mut Tx, id: RepositoryId) -> Result<Option<RepositoryRow>> {
    execute!(tx, "UPDATE repositories SET folder = folder WHERE id = $1", id.0)?;
    find(tx, id).await
}

/// The repository into which a task stores its backups.
pub async fn find_of_task(
    tx: &mut Tx,
    task: TaskId,
    destination: DestinationId,
    store_path: &str,
) -> Result<Option<RepositoryRow>> {
    find_row!(
        tx,
        "FROM repositories p WHERE p.task_id = $1 AND p.destination_id = $2 AND p.store_path = $3
             AND p.removed_at IS NULL
         ORDER BY p.id DESC LIMIT 1",
        task.0,
        destination.0,
        store_path
    )
}

/// All repositories of a task, the newest first: it has several if its destination or folder was changed.
pub async fn list_of_task(tx: &mut Tx, task: TaskId) -> Result<Vec<RepositoryRow>> {
    fetch_all!(
        tx,
        _,
        concat!(
            "SELECT ",
            columns!(),
            " FROM repositories p WHERE p.task_id = $1 AND p.removed_at IS NULL ORDER BY p.id DESC"
        ),
        task.0
    )
}

/// The locator of the newest backup of a source in a repository.
pub async fn find_parent(tx: &mut Tx, id: RepositoryId, source: &str, source_server: &str) -> Result<Option<String>> {
    let row = fetch_optional!(
        tx,
        (String,),
        "SELECT c.locator FROM backup_copies c JOIN backups b ON b.id = c.backup_id
         WHERE c.repository_id = $1 AND c.remove_after IS NULL AND b.source = $2 AND b.source_server = $3
             AND b.content = 'files'
         ORDER BY b.id DESC LIMIT 1",
        id.0,
        source,
        source_server
    )?;
    Ok(row.map(|(locator,)| locator))
}

/// Deletes the records of repositories that were removed before `before`, with their runs. Returns how many.
pub async fn delete_removed(tx: &mut Tx, before: Timestamp, limit: i64) -> Result<u64> {
    execute!(
        tx,
        "DELETE FROM repositories WHERE id IN (SELECT id FROM repositories WHERE removed_at < $1 LIMIT $2)",
        DbTime(before),
        limit
    )
}

/// The passwords that may open it, the newest first.
pub async fn open_passwords(tx: &mut Tx, row: &RepositoryRow) -> Result<Vec<Secret>> {
    let sealed: Option<Secret> = read_secret!(tx, "repositories", "passwords_sealed", row.id.0, row.user_id)?;
    let Some(sealed) = sealed else { return Ok(Vec::new()) };
    let passwords: Vec<String> = serde_json::from_str(sealed.reveal())
        .map_err(|_| StoreError::Broken(format!("the passwords of repository {}", row.id)))?;
    Ok(passwords.into_iter().map(Secret::new).collect())
}

/// Records the passwords that may open it, the newest first.
pub async fn write_passwords(tx: &mut Tx, id: RepositoryId, owner: UserId, passwords: &[Secret]) -> Result<()> {
    let mut list: Vec<&str> = passwords.iter().map(Secret::reveal).collect();
    // The last one is that of the last backup, and opens the repository in any case.
    if list.len() > MOST_PASSWORDS {
        list.drain(MOST_PASSWORDS - 1..list.len() - 1);
    }
    let list = Secret::new(serde_json::json!(list).to_string());
    write_secret!(tx, "repositories", "passwords_sealed", id.0, owner, &SecretChange::Set(list));
    Ok(())
}

/// Records how large it is after a backup.
pub async fn update_stored(tx: &mut Tx, id: RepositoryId, stored_bytes: i64) -> Result<()> {
    execute!(tx, "UPDATE repositories SET stored_bytes = $1 WHERE id = $2", stored_bytes, id.0)?;
    Ok(())
}

/// Records that something in it may no longer be needed: a snapshot was removed, or a run has left something.
pub async fn note_garbage(tx: &mut Tx, id: RepositoryId, bytes: i64, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE repositories SET garbage_since = COALESCE(garbage_since, $1), garbage_bytes = garbage_bytes + $2
         WHERE id = $3",
        DbTime(now),
        bytes,
        id.0
    )?;
    Ok(())
}

/// What a prune has left.
#[derive(Debug, Clone, Copy)]
pub struct Pruned {
    pub stored_bytes: i64,
    pub unused_bytes: i64,
    /// There was no time for all of it.
    pub is_partial: bool,
    /// It was removed as a whole.
    pub is_gone: bool,
}

/// Records a prune that began at `began`. What backups needed that were removed since may still be there.
pub async fn update_pruned(
    tx: &mut Tx,
    id: RepositoryId,
    pruned: Pruned,
    began: Timestamp,
    now: Timestamp,
) -> Result<()> {
    if pruned.is_gone {
        execute!(tx, "UPDATE repositories SET removed_at = $1, garbage_since = NULL WHERE id = $2", DbTime(now), id.0)?;
        return Ok(());
    }
    execute!(
        tx,
        "UPDATE repositories SET stored_bytes = $1, unused_bytes = $2, pruned_at = $3, prune_tried_at = $3,
             garbage_since = CASE WHEN $4 OR EXISTS (SELECT 1 FROM backup_copies c
                 WHERE c.repository_id = repositories.id AND c.removed_at >= $5) THEN garbage_since END,
             garbage_bytes = 0
         WHERE id = $6",
        pruned.stored_bytes,
        pruned.unused_bytes,
        DbTime(now),
        pruned.is_partial,
        DbTime(began),
        id.0
    )?;
    clear_trouble(tx, id, true).await
}

/// What a check has read.
#[derive(Debug, Clone)]
pub struct Checked {
    /// When the reading of all packs began, of which this was a part.
    pub began_at: Timestamp,
    /// The pack up to which has been read; `None` after the last one.
    pub position: Option<String>,
}

/// Records that a prune or a check has been queued: one that never ends is not queued again at once.
pub async fn note_tried(tx: &mut Tx, id: RepositoryId, is_prune: bool, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE repositories SET
             prune_tried_at = CASE WHEN $1 THEN CAST($2 AS BIGINT) ELSE prune_tried_at END,
             check_tried_at = CASE WHEN $1 THEN check_tried_at ELSE CAST($2 AS BIGINT) END
         WHERE id = $3",
        is_prune,
        DbTime(now),
        id.0
    )?;
    Ok(())
}

/// Records how far a check has read, whatever it has found.
pub async fn update_check_position(tx: &mut Tx, id: RepositoryId, checked: &Checked, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE repositories SET check_tried_at = $1, check_position = $2,
             check_began_at = CASE WHEN $3 THEN NULL ELSE CAST($4 AS BIGINT) END
         WHERE id = $5",
        DbTime(now),
        checked.position.as_deref(),
        checked.position.is_none(),
        DbTime(checked.began_at),
        id.0
    )?;
    Ok(())
}

/// Records a check that has found nothing wrong.
pub async fn update_checked(tx: &mut Tx, id: RepositoryId, checked: &Checked, now: Timestamp) -> Result<()> {
    update_check_position(tx, id, checked, now).await?;
    if checked.position.is_none() {
        execute!(tx, "UPDATE repositories SET checked_at = $1 WHERE id = $2", DbTime(now), id.0)?;
    }
    clear_trouble(tx, id, false).await
}

async fn clear_trouble(tx: &mut Tx, id: RepositoryId, is_prune: bool) -> Result<()> {
    let sql = if is_prune {
        "UPDATE repositories SET prune_trouble_code = NULL, prune_trouble = NULL, prune_told_at = NULL WHERE id = $1"
    } else {
        "UPDATE repositories SET check_trouble_code = NULL, check_trouble = NULL, check_told_at = NULL WHERE id = $1"
    };
    execute!(tx, sql, id.0)?;
    Ok(())
}

/// Records that a prune or a check failed.
pub async fn update_trouble(
    tx: &mut Tx,
    id: RepositoryId,
    is_prune: bool,
    (code, reason): (FailureCode, &str),
    now: Timestamp,
) -> Result<()> {
    let sql = if is_prune {
        "UPDATE repositories SET prune_trouble_code = $1, prune_trouble = $2 WHERE id = $3"
    } else {
        "UPDATE repositories SET check_trouble_code = $1, check_trouble = $2 WHERE id = $3"
    };
    execute!(tx, sql, code.as_str(), reason, id.0)?;
    note_tried(tx, id, is_prune, now).await
}

pub async fn update_trouble_told(tx: &mut Tx, id: RepositoryId, is_prune: bool, now: Timestamp) -> Result<()> {
    let sql = if is_prune {
        "UPDATE repositories SET prune_told_at = $1 WHERE id = $2"
    } else {
        "UPDATE repositories SET check_told_at = $1 WHERE id = $2"
    };
    execute!(tx, sql, DbTime(now), id.0)?;
    Ok(())
}

/// When maintenance of a repository is due.
#[derive(Debug, Clone, Copy)]
pub struct DueLimits {
    /// What has been garbage since before this is removed …
    pub garbage_before: Timestamp,
    /// … and what takes more than this share of the repository, in per cent.
    pub garbage_percent: i64,
    /// One that was tried since then waits.
    pub tried_before: Timestamp,
    pub limit: i64,
}

/// Repositories to be pruned, with their owners.
pub async fn list_to_prune(tx: &mut Tx, due: DueLimits) -> Result<Vec<(RepositoryId, UserId)>> {
    let rows = fetch_all!(
        tx,
        (i64, i64),
        concat!(
            "SELECT p.id, p.user_id FROM repositories p
             WHERE p.garbage_since IS NOT NULL
                 AND (p.garbage_since <= $1 OR p.garbage_bytes * 100 > COALESCE(p.stored_bytes, 0) * $2)
                 AND (p.prune_tried_at IS NULL OR p.prune_tried_at <= $3)
                 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.repository_id = p.id AND r.status IN ('queued', 'running'))
                 AND ",
            is_active!("p"),
            " ORDER BY p.garbage_since, p.id LIMIT $4"
        ),
        DbTime(due.garbage_before),
        due.garbage_percent,
        DbTime(due.tried_before),
        due.limit
    )?;
    Ok(rows.into_iter().map(|(id, owner)| (RepositoryId(id), UserId(owner))).collect())
}

/// Repositories with backups that have not been checked since `before`.
pub async fn list_to_check(tx: &mut Tx, before: Timestamp, limit: i64) -> Result<Vec<(RepositoryId, UserId)>> {
    let rows = fetch_all!(
        tx,
        (i64, i64),
        concat!(
            "SELECT p.id, p.user_id FROM repositories p
             WHERE COALESCE(p.check_tried_at, p.created_at) <= $1
                 AND EXISTS (SELECT 1 FROM backup_copies c WHERE c.repository_id = p.id AND c.remove_after IS NULL)
                 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.repository_id = p.id AND r.status IN ('queued', 'running'))
                 AND ",
            is_active!("p"),
            " ORDER BY COALESCE(p.check_tried_at, p.created_at), p.id LIMIT $2"
        ),
        DbTime(before),
        limit
    )?;
    Ok(rows.into_iter().map(|(id, owner)| (RepositoryId(id), UserId(owner))).collect())
}

/// Whether a prune or a check of it is queued or running.
pub async fn is_in_maintenance(tx: &mut Tx, id: RepositoryId) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE repository_id = $1 AND status IN ('queued', 'running'))";
    fetch_scalar!(tx, bool, sql, id.0)
}

named_row! {
    /// A snapshot that a backup is.
    #[derive(Debug, Clone)]
    pub struct SnapshotRow {
        pub backup_id: holdfast_core::ids::BackupId,
        pub locator: String,
        pub created_at: DbTime,
        pub plain_bytes: i64,
        /// What the last reading of it has found.
        pub verification: Verification,
        pub verified_at: Option<DbTime>,
    }
}

/// The backups that should be in a repository, the oldest first.
pub async fn list_snapshots(tx: &mut Tx, id: RepositoryId) -> Result<Vec<SnapshotRow>> {
    fetch_all!(
        tx,
        SnapshotRow,
        "SELECT c.backup_id, c.locator, b.created_at, b.plain_bytes, c.verification, c.verified_at FROM backup_copies c
         JOIN backups b ON b.id = c.backup_id
         WHERE c.repository_id = $1 AND c.remove_after IS NULL AND c.removed_at IS NULL ORDER BY c.backup_id",
        id.0
    )
}

/// How many backups are in a repository, and what they hold together.
pub async fn count_snapshots(tx: &mut Tx, id: RepositoryId) -> Result<(i64, i64)> {
    let row = fetch_optional!(
        tx,
        (i64, i64),
        "SELECT COUNT(*), CAST(COALESCE(SUM(b.plain_bytes), 0) AS BIGINT) FROM backup_copies c
         JOIN backups b ON b.id = c.backup_id
         WHERE c.repository_id = $1 AND c.remove_after IS NULL AND c.removed_at IS NULL",
        id.0
    )?;
    Ok(row.unwrap_or_default())
}
