//! Tags.

use holdfast_core::Timestamp;
use holdfast_core::ids::{TagId, UserId};
use holdfast_core::page::Page;
use holdfast_core::rules::search_form;
use holdfast_core::tag::TagDraft;

use crate::{At, Listing, Result, Tx};

macro_rules! columns {
    () => {
        "g.id, g.user_id, g.label, g.description, g.colour, g.created_at, g.updated_at"
    };
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct TagRow {
    pub id: i64,
    pub user_id: i64,
    pub label: String,
    pub description: Option<String>,
    pub colour: Option<String>,
    pub created_at: At,
    pub updated_at: At,
}

impl TagRow {
    /// What an update starts from.
    pub fn current(&self) -> TagDraft {
        TagDraft { label: self.label.clone(), description: self.description.clone(), colour: self.colour.clone() }
    }
}

pub async fn find(tx: &mut Tx, id: TagId) -> Result<Option<TagRow>> {
    fetch_optional!(tx, TagRow, concat!("SELECT ", columns!(), " FROM tags g WHERE g.id = $1"), id.0)
}

/// Finds the row and keeps others from changing it until the transaction ends.
pub async fn find_locked(tx: &mut Tx, id: TagId) -> Result<Option<TagRow>> {
    execute!(tx, "UPDATE tags SET updated_at = updated_at WHERE id = $1", id.0)?;
    find(tx, id).await
}

pub async fn list(tx: &mut Tx, listing: &Listing) -> Result<Page<TagRow>> {
    list_page!(tx, listing, TagRow, "tags" as "g", columns!(), label_matches!("g"))
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
        At(now)
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
        row.id,
        row.user_id
    )?;
    Ok(())
}

pub async fn delete(tx: &mut Tx, owner: UserId, id: TagId) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM tags WHERE id = $1 AND user_id = $2", id.0, owner.0)? == 1)
}
