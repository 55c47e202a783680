//! Notification streams.

use holdfast_core::Secret;
use holdfast_core::Timestamp;
use holdfast_core::characters;
use holdfast_core::ids::{StreamId, UserId};
use holdfast_core::page::Page;
use holdfast_core::rules::search_form;
use holdfast_core::stream::{CurrentStream, StreamDraft, StreamKind};

use crate::{DbTime, Listing, Result, Tx};

row_type! {
    pub struct StreamRow {
        id: StreamId = "s.id",
        user_id: UserId = "s.user_id",
        label: String = "s.label",
        kind: StreamKind = "s.kind",
        on_success: bool = "s.on_success",
        on_failure: bool = "s.on_failure",
        has_token: bool = "(s.pushover_token_sealed IS NOT NULL)",
        last_test_succeeded: Option<bool> = "s.last_test_succeeded",
        last_test_message: Option<String> = "s.last_test_message",
        last_tested_at: Option<DbTime> = "s.last_tested_at",
        last_delivery_succeeded: Option<bool> = "s.last_delivery_succeeded",
        last_delivery_message: Option<String> = "s.last_delivery_message",
        last_delivery_at: Option<DbTime> = "s.last_delivery_at",
        created_at: DbTime = "s.created_at",
        updated_at: DbTime = "s.updated_at",
    }
}

impl StreamRow {
    /// What an update starts from.
    pub fn current(&self) -> CurrentStream {
        CurrentStream {
            label: self.label.clone(),
            kind: self.kind,
            on_success: self.on_success,
            on_failure: self.on_failure,
        }
    }
}

pub async fn find(tx: &mut Tx, id: StreamId) -> Result<Option<StreamRow>> {
    find_row!(tx, "FROM notification_streams s WHERE s.id = $1", id.0)
}

/// Finds the row and keeps others from changing it until the transaction ends.
pub async fn find_locked(tx: &mut Tx, id: StreamId) -> Result<Option<StreamRow>> {
    execute!(tx, "UPDATE notification_streams SET updated_at = updated_at WHERE id = $1", id.0)?;
    find(tx, id).await
}

/// The address that the stream delivers to.
pub async fn open_value(tx: &mut Tx, row: &StreamRow) -> Result<Option<Secret>> {
    read_secret!(tx, "notification_streams", "value_sealed", row.id.0, row.user_id)
}

/// The second secret of a type that may have one. A secret is bound to the name of its column, which is that of the first
/// such type.
pub async fn open_token(tx: &mut Tx, row: &StreamRow) -> Result<Option<Secret>> {
    read_secret!(tx, "notification_streams", "pushover_token_sealed", row.id.0, row.user_id)
}

pub async fn list(tx: &mut Tx, listing: &Listing) -> Result<Page<StreamRow>> {
    list_page!(tx, listing, "notification_streams" as "s")
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
        DbTime(now)
    )?;
    write_secrets(tx, id, owner, draft).await?;
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
        row.id.0,
        row.user_id.0
    )?;
    write_secrets(tx, row.id.0, row.user_id, draft).await
}

async fn write_secrets(tx: &mut Tx, id: i64, owner: UserId, draft: &StreamDraft) -> Result<()> {
    write_secret!(tx, "notification_streams", "value_sealed", id, owner, &draft.value);
    write_secret!(tx, "notification_streams", "pushover_token_sealed", id, owner, &draft.token);
    Ok(())
}

/// Deletes a stream and updates the counts of the tasks it was attached to.
pub async fn delete(tx: &mut Tx, owner: UserId, id: StreamId) -> Result<bool> {
    crate::tasks::lock_attachments(tx).await?;
    execute!(
        tx,
        "UPDATE backup_tasks SET streams_count = streams_count - 1
         WHERE id IN (SELECT task_id FROM task_streams WHERE stream_id = $1)",
        id.0
    )?;
    Ok(execute!(tx, "DELETE FROM notification_streams WHERE id = $1 AND user_id = $2", id.0, owner.0)? == 1)
}

/// Records the result of the last delivery.
pub async fn update_delivery(tx: &mut Tx, id: StreamId, succeeded: bool, message: &str, at: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE notification_streams SET last_delivery_succeeded = $1, last_delivery_message = $2, last_delivery_at = $3
         WHERE id = $4",
        succeeded,
        characters::stored_line(message),
        DbTime(at),
        id.0
    )?;
    Ok(())
}

/// Records the result of the last test message.
pub async fn update_test(tx: &mut Tx, id: StreamId, succeeded: bool, message: &str, at: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE notification_streams SET last_test_succeeded = $1, last_test_message = $2, last_tested_at = $3
         WHERE id = $4",
        succeeded,
        characters::stored_line(message),
        DbTime(at),
        id.0
    )?;
    Ok(())
}
