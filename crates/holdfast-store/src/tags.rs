//! Tags.

use holdfast_core::Timestamp;
use holdfast_core::ids::{TagId, UserId};
use holdfast_core::page::Page;
use holdfast_core::rules::search_form;
use holdfast_core::tag::TagDraft;

use crate::{DbTime, Listing, Result, Tx};

row_type! {
    pub struct TagRow {
        id: TagId = "g.id",
        user_id: UserId = "g.user_id",
        label: String = "g.label",
        description: Option<String> = "g.description",
        colour: Option<String> = "g.colour",
        created_at: DbTime = "g.created_at",
        updated_at: DbTime = "g.updated_at",
    }
}

impl TagRow {
    /// What an update starts from.
    pub fn current(&self) -> TagDraft {
        TagDraft { label: self.label.clone(), description: self.description.clone(), colour: self.colour.clone() }
    }
}

pub async fn find(tx: &mut Tx, id: TagId) -> Result<Option<TagRow>> {
    find_row!(tx, "FROM tags g WHERE g.id = $1", id.0)
}

/// Finds the row and keeps others from changing it until the transaction ends.
pub async fn find_locked(tx: &mut Tx, id: TagId) -> Result<Option<TagRow>> {
    execute!(tx, "UPDATE tags SET updated_at = updated_at WHERE id = $1", id.0)?;
    find(tx, id).await
}

pub async fn list(tx: &mut Tx, listing: &Listing) -> Result<Page<TagRow>> {
    list_page!(tx, listing, "tags" as "g")
}

pub async fn insert(tx: &mut Tx, owner: UserId, draft: &TagDraft, now: Timestamp) -> Result<TagId> {
    let id = fetch_scalar!(
        tx,
        i64,
        "INSERT INTO tags (user_id, label, search_label, description, colour, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $6) RETURNING id",
        owner.0,
        &draft.label,
        search_form(&draft.label),
        &draft.description,
        &draft.colour,
        DbTime(now)
    )?;
    Ok(TagId(id))
}

pub async fn update(tx: &mut Tx, row: &TagRow, draft: &TagDraft, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE tags SET label = $1, search_label = $2, description = $3, colour = $4, updated_at = $5
         WHERE id = $6 AND user_id = $7",
        &draft.label,
        search_form(&draft.label),
        &draft.description,
        &draft.colour,
        row.updated_at.moved_on(now),
        row.id.0,
        row.user_id.0
    )?;
    Ok(())
}

/// Deletes a tag and updates the counts of the tasks it was attached to.
pub async fn delete(tx: &mut Tx, owner: UserId, id: TagId) -> Result<bool> {
    crate::tasks::lock_attachments(tx).await?;
    execute!(
        tx,
        "UPDATE backup_tasks SET tags_count = tags_count - 1
         WHERE id IN (SELECT task_id FROM task_tags WHERE tag_id = $1)",
        id.0
    )?;
    Ok(execute!(tx, "DELETE FROM tags WHERE id = $1 AND user_id = $2", id.0, owner.0)? == 1)
}
