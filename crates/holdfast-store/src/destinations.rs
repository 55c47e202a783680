//! Backup destinations.

use holdfast_core::characters;
use holdfast_core::destination::{
    CurrentDestination, DestinationDraft, DestinationIdentity, DestinationKind, DestinationSpec, Reachability,
};
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{DestinationId, UserId};
use holdfast_core::page::Page;
use holdfast_core::rules::search_form;
use holdfast_core::{Secret, Timestamp};

use crate::{DbTime, Listing, Result, Tx, spec};

row_type! {
    pub struct DestinationRow {
        id: DestinationId = "d.id",
        user_id: UserId = "d.user_id",
        label: String = "d.label",
        spec: DestinationSpec = "d.spec",
        status: Reachability = "d.status",
        last_checked_at: Option<DbTime> = "d.last_checked_at",
        last_error: Option<String> = "d.last_error",
        last_error_code: Option<FailureCode> = "d.last_error_code",
        /// The text of the marker that identifies its folder, once it has been used.
        marker: Option<String> = "d.marker",
        /// Whether deleted objects remain as older versions, according to the last check.
        keeps_versions: bool = "d.keeps_versions",
        /// The account whose number its local folder has, if it is not its owner.
        folder_user_id: Option<UserId> = "d.folder_user_id",
        created_at: DbTime = "d.created_at",
        updated_at: DbTime = "d.updated_at",
    }
}

impl DestinationRow {
    /// What an update starts from.
    pub fn current(&self) -> CurrentDestination {
        CurrentDestination { label: self.label.clone(), spec: self.spec.clone() }
    }
}

pub async fn find(tx: &mut Tx, id: DestinationId) -> Result<Option<DestinationRow>> {
    find_row!(tx, "FROM backup_destinations d WHERE d.id = $1", id.0)
}

/// Finds the row and keeps others from changing it until the transaction ends.
pub async fn find_locked(tx: &mut Tx, id: DestinationId) -> Result<Option<DestinationRow>> {
    execute!(tx, "UPDATE backup_destinations SET updated_at = updated_at WHERE id = $1", id.0)?;
    find(tx, id).await
}

pub async fn list(tx: &mut Tx, listing: &Listing) -> Result<Page<DestinationRow>> {
    list_page!(tx, listing, "backup_destinations" as "d")
}

/// Local destinations of all users that were used before.
pub async fn list_local(tx: &mut Tx, limit: i64) -> Result<Vec<DestinationRow>> {
    fetch_all!(
        tx,
        _,
        concat!(
            "SELECT ",
            columns!(),
            " FROM backup_destinations d WHERE d.kind = $1 AND d.marker IS NOT NULL ORDER BY d.id LIMIT $2"
        ),
        DestinationKind::Local.as_str(),
        limit
    )
}

pub async fn insert(tx: &mut Tx, owner: UserId, draft: &DestinationDraft, now: Timestamp) -> Result<DestinationId> {
    let id = fetch_scalar!(
        tx,
        i64,
        "INSERT INTO backup_destinations (user_id, label, search_label, kind, spec, status, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, 'unknown', $6, $6) RETURNING id",
        owner.0,
        &draft.label,
        search_form(&draft.label),
        draft.spec.kind().as_str(),
        spec::encode(&draft.spec.write())?,
        DbTime(now)
    )?;
    write(tx, id, owner, draft, DbTime(now)).await?;
    Ok(DestinationId(id))
}

/// Writes the new settings. If they or the keys have changed, the destination counts as unchecked. If the settings have
/// changed and the destination is empty (`is_empty`), its marker is cleared: it may be a different place from now on.
/// With another host or login, the key that a former owner left with it is removed.
pub async fn update(
    tx: &mut Tx,
    row: &DestinationRow,
    draft: &DestinationDraft,
    is_empty: bool,
    now: Timestamp,
) -> Result<()> {
    write(tx, row.id.0, row.user_id, draft, row.updated_at.moved_on(now)).await?;
    if is_empty && row.spec != draft.spec {
        execute!(tx, "UPDATE backup_destinations SET marker = NULL, login_key_sealed = NULL WHERE id = $1", row.id.0)?;
    }
    // The key of a former owner is for the place that they opened with it.
    if !row.spec.has_same_login(&draft.spec) {
        execute!(tx, "UPDATE backup_destinations SET login_key_sealed = NULL WHERE id = $1", row.id.0)?;
    }
    if row.spec != draft.spec || draft.keys.has_new() {
        let reset = "UPDATE backup_destinations SET status = 'unknown', last_error = NULL, last_error_code = NULL,
                 last_checked_at = NULL
             WHERE id = $1";
        execute!(tx, reset, row.id.0)?;
    }
    Ok(())
}

async fn write(tx: &mut Tx, id: i64, owner: UserId, draft: &DestinationDraft, updated_at: DbTime) -> Result<()> {
    // The names date from when only S3 destinations had keys. A secret is sealed for the name of its column, so they
    // stay.
    write_secret!(tx, "backup_destinations", "s3_access_key_sealed", id, owner, &draft.keys.access_key);
    write_secret!(tx, "backup_destinations", "s3_secret_key_sealed", id, owner, &draft.keys.secret_key);
    execute!(
        tx,
        "UPDATE backup_destinations SET label = $1, search_label = $2, kind = $3, spec = $4, updated_at = $5
         WHERE id = $6 AND user_id = $7",
        &draft.label,
        search_form(&draft.label),
        draft.spec.kind().as_str(),
        spec::encode(&draft.spec.write())?,
        updated_at,
        id,
        owner.0
    )?;
    Ok(())
}

/// Returns false if there is no such row; fails with `InUse` if tasks store there or backups are there.
pub async fn delete(tx: &mut Tx, owner: UserId, id: DestinationId) -> Result<bool> {
    // Deletes the records of copies that have been removed, and of backups that have no copy elsewhere.
    execute!(
        tx,
        "DELETE FROM backups WHERE id IN (SELECT backup_id FROM backup_copies WHERE destination_id = $1 AND user_id = $2
                 AND removed_at IS NOT NULL)
             AND NOT EXISTS (SELECT 1 FROM backup_copies o WHERE o.backup_id = backups.id AND o.destination_id <> $1)",
        id.0,
        owner.0
    )?;
    execute!(
        tx,
        "DELETE FROM backup_copies WHERE destination_id = $1 AND user_id = $2 AND removed_at IS NOT NULL",
        id.0,
        owner.0
    )?;
    Ok(execute!(tx, "DELETE FROM backup_destinations WHERE id = $1 AND user_id = $2", id.0, owner.0)? == 1)
}

/// Records what the last check or run found: `None` if there was no error.
pub async fn update_check(
    tx: &mut Tx,
    id: DestinationId,
    error: Option<(FailureCode, &str)>,
    now: Timestamp,
) -> Result<()> {
    execute!(
        tx,
        "UPDATE backup_destinations SET status = $1, last_error = $2, last_error_code = $3, last_checked_at = $4
         WHERE id = $5",
        if error.is_none() { Reachability::Reachable } else { Reachability::Unreachable }.as_str(),
        error.map(|(_, text)| characters::stored_line(text)),
        error.map(|(code, _)| code.as_str()),
        DbTime(now),
        id.0
    )?;
    Ok(())
}

/// Records the identity of a destination that was used, unless its settings have changed since.
pub async fn update_identity(
    tx: &mut Tx,
    id: DestinationId,
    used: &DestinationSpec,
    identity: &DestinationIdentity,
) -> Result<()> {
    let pinned = identity.host_key.as_deref().and_then(|key| used.pinned(key));
    let is_new = |row: &DestinationRow| {
        row.spec == *used && (pinned.is_some() || (row.marker.is_none() && identity.marker.is_some()))
    };
    // Usually there is nothing new, so look before taking the lock.
    if !find(tx, id).await?.is_some_and(|row| is_new(&row))
        || !find_locked(tx, id).await?.is_some_and(|row| is_new(&row))
    {
        return Ok(());
    }
    execute!(
        tx,
        "UPDATE backup_destinations SET marker = COALESCE(marker, $1), spec = $2 WHERE id = $3",
        identity.marker.as_deref(),
        spec::encode(&pinned.as_ref().unwrap_or(used).write())?,
        id.0
    )?;
    Ok(())
}

pub async fn update_keeps_versions(tx: &mut Tx, id: DestinationId, keeps_versions: bool) -> Result<()> {
    execute!(tx, "UPDATE backup_destinations SET keeps_versions = $1 WHERE id = $2", keeps_versions, id.0)?;
    Ok(())
}

/// The access key and the secret key of a destination, where it has them.
pub async fn open_keys(tx: &mut Tx, row: &DestinationRow) -> Result<(Option<Secret>, Option<Secret>)> {
    let owner = row.user_id;
    let access = read_secret!(tx, "backup_destinations", "s3_access_key_sealed", row.id.0, owner)?;
    let secret = read_secret!(tx, "backup_destinations", "s3_secret_key_sealed", row.id.0, owner)?;
    Ok((access, secret))
}

/// The SSH key with which its former owner logged in, if it was transferred to another account.
pub async fn open_login_key(tx: &mut Tx, row: &DestinationRow) -> Result<Option<Secret>> {
    read_secret!(tx, "backup_destinations", "login_key_sealed", row.id.0, row.user_id)
}

/// Whether a run is working with the destination: writing to it, reading from it or checking it.
pub async fn is_in_use(tx: &mut Tx, id: DestinationId) -> Result<bool> {
    fetch_scalar!(
        tx,
        bool,
        "SELECT EXISTS (SELECT 1 FROM runs r WHERE r.status = 'running' AND (r.destination_id = $1
             OR r.task_id IN (SELECT t.id FROM backup_tasks t WHERE t.backup_destination_id = $1)
             OR r.backup_id IN (SELECT c.backup_id FROM backup_copies c WHERE c.destination_id = $1)))",
        id.0
    )
}

/// How many backups are stored there, including those whose objects are still to be removed and uploads that are being
/// written or cleaned up.
pub async fn count_backups(tx: &mut Tx, id: DestinationId) -> Result<i64> {
    fetch_scalar!(
        tx,
        i64,
        "SELECT (SELECT COUNT(*) FROM backup_copies WHERE destination_id = $1 AND removed_at IS NULL)
             + (SELECT COUNT(*) FROM uploads WHERE destination_id = $1)",
        id.0
    )
}

/// When the last inventory of a destination ended.
pub async fn last_inventory(tx: &mut Tx, id: DestinationId) -> Result<Option<DbTime>> {
    fetch_scalar!(
        tx,
        Option<DbTime>,
        "SELECT MAX(finished_at) FROM runs WHERE destination_id = $1 AND kind = 'inventory'",
        id.0
    )
}

/// Destinations that hold something older than `since` and have had no inventory after that time; those with an
/// inventory queued or running are left out.
pub async fn list_inventory_due(tx: &mut Tx, since: Timestamp, limit: i64) -> Result<Vec<(DestinationId, UserId)>> {
    let rows = fetch_all!(
        tx,
        (i64, i64),
        concat!(
            "SELECT d.id, d.user_id FROM backup_destinations d
         WHERE EXISTS (SELECT 1 FROM backup_copies c
                 WHERE c.destination_id = d.id AND c.remove_after IS NULL AND c.removed_at IS NULL AND c.created_at < $1)
             AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.destination_id = d.id AND r.kind = 'inventory'
                 AND (r.created_at > $1 OR r.status IN ('queued', 'running')))
             AND ",
            is_active!("d"),
            " ORDER BY d.id LIMIT $2"
        ),
        DbTime(since),
        limit
    )?;
    Ok(rows.into_iter().map(|(id, owner)| (DestinationId(id), UserId(owner))).collect())
}

named_row! {
    /// What a user has stored at a destination.
    #[derive(Debug, Clone)]
    pub struct StoredRow {
        pub label: String,
        pub kind: String,
        pub backups: i64,
        pub bytes: i64,
    }
}

/// What a user has stored, by destination; those without any backup are left out.
pub async fn list_stored(tx: &mut Tx, owner: UserId) -> Result<Vec<StoredRow>> {
    fetch_all!(
        tx,
        StoredRow,
        "SELECT d.label, d.kind, COUNT(*) AS backups,
             CAST(SUM(CASE WHEN c.repository_id IS NULL THEN c.size_bytes ELSE 0 END) AS BIGINT)
                 + (SELECT CAST(COALESCE(SUM(p.stored_bytes), 0) AS BIGINT) FROM repositories p
                    WHERE p.destination_id = d.id AND p.removed_at IS NULL) AS bytes
         FROM backup_copies c JOIN backup_destinations d ON d.id = c.destination_id
         WHERE d.user_id = $1 AND c.remove_after IS NULL AND c.removed_at IS NULL
         GROUP BY d.id, d.label, d.kind ORDER BY d.id",
        owner.0
    )
}

/// How many tasks store there.
pub async fn count_tasks(tx: &mut Tx, id: DestinationId) -> Result<i64> {
    fetch_scalar!(tx, i64, "SELECT COUNT(*) FROM backup_tasks WHERE backup_destination_id = $1", id.0)
}
