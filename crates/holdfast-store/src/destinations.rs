//! Backup destinations.

use holdfast_core::Timestamp;
use holdfast_core::destination::{CurrentDestination, DestinationDraft, DestinationKind, S3Settings};
use holdfast_core::ids::{DestinationId, UserId};
use holdfast_core::page::Page;
use holdfast_core::rules::search_form;

use crate::{At, Listing, Place, Result, StoreError, Tx};

macro_rules! columns {
    () => {
        "d.id, d.user_id, d.label, d.kind, d.s3_bucket, d.s3_region, d.s3_endpoint, d.s3_path_style, \
         d.s3_access_key_sealed, d.s3_secret_key_sealed, d.status, d.last_checked_at, d.last_error, d.created_at, \
         d.updated_at"
    };
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct DestinationRow {
    pub id: i64,
    pub user_id: i64,
    pub label: String,
    pub kind: String,
    pub s3_bucket: Option<String>,
    pub s3_region: Option<String>,
    pub s3_endpoint: Option<String>,
    pub s3_path_style: bool,
    pub s3_access_key_sealed: Option<Vec<u8>>,
    pub s3_secret_key_sealed: Option<Vec<u8>>,
    pub status: String,
    pub last_checked_at: Option<At>,
    pub last_error: Option<String>,
    pub created_at: At,
    pub updated_at: At,
}

impl DestinationRow {
    pub fn kind(&self) -> Result<DestinationKind> {
        DestinationKind::parse(&self.kind).ok_or_else(|| StoreError::Broken(format!("destination type {}", self.kind)))
    }

    pub fn s3(&self) -> Option<S3Settings> {
        Some(S3Settings {
            bucket: self.s3_bucket.clone()?,
            region: self.s3_region.clone()?,
            endpoint: self.s3_endpoint.clone(),
            path_style: self.s3_path_style,
        })
    }

    /// What an update starts from.
    pub fn current(&self) -> Result<CurrentDestination> {
        Ok(CurrentDestination { label: self.label.clone(), kind: self.kind()?, s3: self.s3() })
    }
}

pub async fn find(tx: &mut Tx, id: DestinationId) -> Result<Option<DestinationRow>> {
    let sql = concat!("SELECT ", columns!(), " FROM backup_destinations d WHERE d.id = $1");
    fetch_optional!(tx, DestinationRow, sql, id.0)
}

/// Finds the row and keeps others from changing it until the transaction ends.
pub async fn find_locked(tx: &mut Tx, id: DestinationId) -> Result<Option<DestinationRow>> {
    execute!(tx, "UPDATE backup_destinations SET updated_at = updated_at WHERE id = $1", id.0)?;
    find(tx, id).await
}

pub async fn list(tx: &mut Tx, listing: &Listing) -> Result<Page<DestinationRow>> {
    list_page!(tx, listing, DestinationRow, "backup_destinations" as "d", columns!(), label_matches!("d"))
}

pub async fn insert(tx: &mut Tx, owner: UserId, draft: &DestinationDraft, now: Timestamp) -> Result<DestinationId> {
    let id = fetch_scalar!(
        tx,
        i64,
        "INSERT INTO backup_destinations (user_id, label, search_label, kind, s3_path_style, status, created_at,
             updated_at)
         VALUES ($1, $2, $3, $4, FALSE, 'unknown', $5, $5) RETURNING id",
        owner.0,
        &draft.label,
        search_form(&draft.label),
        draft.kind.as_str(),
        At(now)
    )?;
    write(tx, id, owner, draft, (None, None), At(now)).await?;
    Ok(DestinationId(id))
}

pub async fn update(tx: &mut Tx, row: &DestinationRow, draft: &DestinationDraft, now: Timestamp) -> Result<()> {
    let keys = (row.s3_access_key_sealed.clone(), row.s3_secret_key_sealed.clone());
    write(tx, row.id, UserId(row.user_id), draft, keys, row.updated_at.moved_on(now)).await
}

/// Secrets are bound to their row, so everything is written once its id is known.
async fn write(
    tx: &mut Tx,
    id: i64,
    owner: UserId,
    draft: &DestinationDraft,
    (access_key, secret_key): (Option<Vec<u8>>, Option<Vec<u8>>),
    updated_at: At,
) -> Result<()> {
    let place = |column| Place { table: "backup_destinations", column, row: id, user: owner };
    let access_key = tx.sealed_after(place("s3_access_key_sealed"), &draft.access_key, access_key).await?;
    let secret_key = tx.sealed_after(place("s3_secret_key_sealed"), &draft.secret_key, secret_key).await?;
    execute!(
        tx,
        "UPDATE backup_destinations SET label = $1, search_label = $2, kind = $3, s3_bucket = $4, s3_region = $5,
             s3_endpoint = $6, s3_path_style = $7, s3_access_key_sealed = $8, s3_secret_key_sealed = $9,
             updated_at = $10
         WHERE id = $11 AND user_id = $12",
        &draft.label,
        search_form(&draft.label),
        draft.kind.as_str(),
        draft.s3.as_ref().map(|s3| s3.bucket.clone()),
        draft.s3.as_ref().map(|s3| s3.region.clone()),
        draft.s3.as_ref().and_then(|s3| s3.endpoint.clone()),
        draft.s3.as_ref().is_some_and(|s3| s3.path_style),
        access_key,
        secret_key,
        updated_at,
        id,
        owner.0
    )?;
    Ok(())
}

/// False when there is no such row; `InUse` when tasks store there.
pub async fn delete(tx: &mut Tx, owner: UserId, id: DestinationId) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM backup_destinations WHERE id = $1 AND user_id = $2", id.0, owner.0)? == 1)
}

/// What the last check found. `status` stays as it is when nothing could be found out.
pub async fn update_check(
    tx: &mut Tx,
    id: DestinationId,
    status: Option<&str>,
    error: Option<&str>,
    checked_at: Timestamp,
) -> Result<()> {
    execute!(
        tx,
        "UPDATE backup_destinations SET status = COALESCE($1, status), last_error = $2, last_checked_at = $3
         WHERE id = $4",
        status,
        error,
        At(checked_at),
        id.0
    )?;
    Ok(())
}

/// How many tasks store there.
pub async fn count_tasks(tx: &mut Tx, id: DestinationId) -> Result<i64> {
    fetch_scalar!(tx, i64, "SELECT COUNT(*) FROM backup_tasks WHERE backup_destination_id = $1", id.0)
}
