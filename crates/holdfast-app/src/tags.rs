//! Tags.

use holdfast_core::audit::AuditAction;
use holdfast_core::changes::named;
use holdfast_core::ids::TagId;
use holdfast_core::input::Input;
use holdfast_core::page::Page;
use holdfast_core::tag::TagDraft;
use holdfast_store::tags::{self, TagRow};
use holdfast_store::{Listing, Tx};

use crate::access::{owned, written};
use crate::{App, AppError, Caller, Result};

pub async fn list(app: &App, listing: &Listing) -> Result<Page<TagRow>> {
    Ok(tags::list(&mut app.store.read().await?, listing).await?)
}

pub async fn show(app: &App, caller: &Caller, id: TagId) -> Result<TagRow> {
    owned(caller, tags::find(&mut app.store.read().await?, id).await?)
}

pub async fn create(app: &App, caller: &Caller, input: &Input) -> Result<TagRow> {
    let draft = TagDraft::check(input, None).map_err(AppError::Invalid)?;
    let mut tx = app.store.begin().await?;
    let id = tags::insert(&mut tx, caller.user, &draft, app.now()).await?;
    app.audit(&mut tx, caller, AuditAction::TagCreated, &named(id, &draft.label)).await?;
    finish(tx, id).await
}

pub async fn update(app: &App, caller: &Caller, id: TagId, input: &Input) -> Result<TagRow> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, tags::find_locked(&mut tx, id).await?)?;
    let draft = TagDraft::check(input, Some(&row.current())).map_err(AppError::Invalid)?;
    tags::update(&mut tx, &row, &draft, app.now()).await?;
    let (subject, changes) = (named(id, &row.label), draft.changes(&row.current()));
    app.audit_changes(&mut tx, caller, AuditAction::TagUpdated, &subject, &changes).await?;
    finish(tx, id).await
}

pub async fn delete(app: &App, caller: &Caller, id: TagId) -> Result<()> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, tags::find_locked(&mut tx, id).await?)?;
    tags::delete(&mut tx, caller.user, id).await?;
    app.audit(&mut tx, caller, AuditAction::TagDeleted, &named(id, &row.label)).await?;
    Ok(tx.commit().await?)
}

async fn finish(mut tx: Tx, id: TagId) -> Result<TagRow> {
    let row = written(tags::find(&mut tx, id).await?)?;
    tx.commit().await?;
    Ok(row)
}
