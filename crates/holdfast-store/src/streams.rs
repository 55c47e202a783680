//! Notification streams.

use holdfast_core::Secret;
use holdfast_core::Timestamp;
use holdfast_core::ids::{StreamId, UserId};
use holdfast_core::page::Page;
use holdfast_core::rules::search_form;
use holdfast_core::stream::{CurrentStream, StreamDraft, StreamKind};

use crate::{At, Listing, Place, Result, StoreError, Tx};

macro_rules! columns {
    () => {
        "s.id, s.user_id, s.label, s.kind, s.value_sealed, s.pushover_token_sealed, s.on_success, s.on_failure, \
         s.last_test_succeeded, s.last_test_message, s.last_tested_at, s.created_at, s.updated_at"
    };
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct StreamRow {
    pub id: i64,
    pub user_id: i64,
    pub label: String,
    pub kind: String,
    pub value_sealed: Option<Vec<u8>>,
    pub pushover_token_sealed: Option<Vec<u8>>,
    pub on_success: bool,
    pub on_failure: bool,
    pub last_test_succeeded: Option<bool>,
    pub last_test_message: Option<String>,
    pub last_tested_at: Option<At>,
    pub created_at: At,
    pub updated_at: At,
}

impl StreamRow {
    pub fn kind(&self) -> Result<StreamKind> {
        StreamKind::parse(&self.kind).ok_or_else(|| StoreError::Broken(format!("stream type {}", self.kind)))
    }

    /// What an update starts from.
    pub fn current(&self) -> Result<CurrentStream> {
        Ok(CurrentStream {
            label: self.label.clone(),
            kind: self.kind()?,
            on_success: self.on_success,
            on_failure: self.on_failure,
        })
    }
}

fn place(column: &'static str, row: i64, user: i64) -> Place {
    Place { table: "notification_streams", column, row, user: UserId(user) }
}

pub async fn find(tx: &mut Tx, id: StreamId) -> Result<Option<StreamRow>> {
    fetch_optional!(tx, StreamRow, concat!("SELECT ", columns!(), " FROM notification_streams s WHERE s.id = $1"), id.0)
}

/// Finds the row and keeps others from changing it until the transaction ends.
pub async fn find_locked(tx: &mut Tx, id: StreamId) -> Result<Option<StreamRow>> {
    execute!(tx, "UPDATE notification_streams SET updated_at = updated_at WHERE id = $1", id.0)?;
    find(tx, id).await
}

/// Where the stream delivers to.
pub async fn open_value(tx: &mut Tx, row: &StreamRow) -> Result<Option<Secret>> {
    match &row.value_sealed {
        Some(sealed) => tx.open(place("value_sealed", row.id, row.user_id), sealed).await.map(Some),
        None => Ok(None),
    }
}

pub async fn list(tx: &mut Tx, listing: &Listing) -> Result<Page<StreamRow>> {
    list_page!(tx, listing, StreamRow, "notification_streams" as "s", columns!(), label_matches!("s"))
}

pub async fn insert(tx: &mut Tx, owner: UserId, draft: &StreamDraft, now: Timestamp) -> Result<StreamId> {
    let id = fetch_scalar!(
        tx,
        i64,
        "INSERT INTO notification_streams (user_id, label, search_label, kind, on_success, on_failure, created_at,
             updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7) RETURNING id",
        owner.0,
        &draft.label,
        search_form(&draft.label),
        draft.kind.as_str(),
        draft.on_success,
        draft.on_failure,
        At(now)
    )?;
    write_secrets(tx, id, owner.0, draft, None, None).await?;
    Ok(StreamId(id))
}

pub async fn update(tx: &mut Tx, row: &StreamRow, draft: &StreamDraft, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE notification_streams SET label = $1, search_label = $2, kind = $3, on_success = $4, on_failure = $5,
             updated_at = $6
         WHERE id = $7 AND user_id = $8",
        &draft.label,
        search_form(&draft.label),
        draft.kind.as_str(),
        draft.on_success,
        draft.on_failure,
        row.updated_at.moved_on(now),
        row.id,
        row.user_id
    )?;
    write_secrets(tx, row.id, row.user_id, draft, row.value_sealed.clone(), row.pushover_token_sealed.clone()).await
}

/// Secrets are bound to their row, so they are written once its id is known.
async fn write_secrets(
    tx: &mut Tx,
    id: i64,
    user: i64,
    draft: &StreamDraft,
    value: Option<Vec<u8>>,
    token: Option<Vec<u8>>,
) -> Result<()> {
    let value = tx.sealed_after(place("value_sealed", id, user), &draft.value, value).await?;
    let token = tx.sealed_after(place("pushover_token_sealed", id, user), &draft.pushover_token, token).await?;
    execute!(
        tx,
        "UPDATE notification_streams SET value_sealed = $1, pushover_token_sealed = $2 WHERE id = $3 AND user_id = $4",
        value,
        token,
        id,
        user
    )?;
    Ok(())
}

pub async fn delete(tx: &mut Tx, owner: UserId, id: StreamId) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM notification_streams WHERE id = $1 AND user_id = $2", id.0, owner.0)? == 1)
}

/// What the last test message met.
pub async fn update_test(tx: &mut Tx, id: StreamId, succeeded: bool, message: &str, at: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE notification_streams SET last_test_succeeded = $1, last_test_message = $2, last_tested_at = $3
         WHERE id = $4",
        succeeded,
        message,
        At(at),
        id.0
    )?;
    Ok(())
}
