//! Tags.

use holdfast_core::audit::AuditAction;
use holdfast_core::changes::named;
use holdfast_core::ids::TagId;
use holdfast_core::input::Input;
use holdfast_core::page::Page;
use holdfast_core::tag::TagDraft;
use holdfast_store::labels::Labelled;
use holdfast_store::tags::{self, TagRow};
use holdfast_store::{Listing, Tx};

use crate::access::{owned, written};
use crate::{App, AppError, Caller, Result, dry_run};

pub async fn list(app: &App, listing: &Listing) -> Result<Page<TagRow>> {
    Ok(tags::list(&mut app.store.read().await?, listing).await?)
}

pub async fn show(app: &App, caller: &Caller, id: TagId) -> Result<TagRow> {
    owned(caller, tags::find(&mut app.store.read().await?, id).await?)
}

pub async fn create(app: &App, caller: &Caller, input: &Input) -> Result<TagRow> {
    let draft = TagDraft::check(input, None).map_err(AppError::Invalid)?;
    let mut tx = app.store.begin().await?;
    dry_run::check_label(&mut tx, caller, Labelled::Tag, &draft.label).await?;
    let id = tags::insert(&mut tx, caller.user, &draft, app.now()).await?;
    app.audit(&mut tx, caller, AuditAction::TagCreated, &named(id, &draft.label)).await?;
    finish(caller, tx, id).await
}

pub async fn update(app: &App, caller: &Caller, id: TagId, input: &Input) -> Result<TagRow> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, tags::find_locked(&mut tx, id).await?)?;
    let draft = TagDraft::check(input, Some(&row.current())).map_err(AppError::Invalid)?;
    let (subject, changes) = (named(id, &row.label), draft.changes(&row.current()));
    dry_run::note_update(app, caller, &row, &changes, &[])?;
    tags::update(&mut tx, &row, &draft, app.now()).await?;
    app.audit_changes(&mut tx, caller, AuditAction::TagUpdated, &subject, &changes).await?;
    finish(caller, tx, id).await
}

pub async fn delete(app: &App, caller: &Caller, id: TagId) -> Result<()> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, tags::find_locked(&mut tx, id).await?)?;
    tags::delete(&mut tx, caller.user, id).await?;
    app.audit(&mut tx, caller, AuditAction::TagDeleted, &named(id, &row.label)).await?;
    dry_run::note_deletion(caller, &row);
    dry_run::commit(tx, caller).await?;
    Ok(())
}

async fn finish(caller: &Caller, mut tx: Tx, id: TagId) -> Result<TagRow> {
    let row = written(tags::find(&mut tx, id).await?)?;
    dry_run::commit(tx, caller).await?;
    Ok(row)
}
