//! Notification streams.

use holdfast_core::audit::AuditAction;
use holdfast_core::changes::named;
use holdfast_core::ids::{RunId, StreamId};
use holdfast_core::input::Input;
use holdfast_core::page::Page;
use holdfast_core::run::{RunSubject, Trigger};
use holdfast_core::stream::StreamDraft;
use holdfast_store::labels::Labelled;
use holdfast_store::runs::NewRun;
use holdfast_store::streams::{self, StreamRow};
use holdfast_store::{Listing, Tx, notices};

use crate::access::{owned, written};
use crate::dry_run::{self, SecretPair};
use crate::{App, AppError, Caller, Result};

pub async fn list(app: &App, listing: &Listing) -> Result<Page<StreamRow>> {
    Ok(streams::list(&mut app.store.read().await?, listing).await?)
}

pub async fn show(app: &App, caller: &Caller, id: StreamId) -> Result<StreamRow> {
    owned(caller, streams::find(&mut app.store.read().await?, id).await?)
}

pub async fn create(app: &App, caller: &Caller, input: &Input) -> Result<StreamRow> {
    let draft = StreamDraft::check(input, None).map_err(AppError::Invalid)?;
    let mut tx = app.store.begin().await?;
    dry_run::check_label(&mut tx, caller, Labelled::Stream, &draft.label).await?;
    let id = streams::insert(&mut tx, caller.user, &draft, app.now()).await?;
    app.audit(&mut tx, caller, AuditAction::NotificationStreamCreated, &named(id, &draft.label)).await?;
    finish(app, caller, tx, id, &draft).await
}

pub async fn update(app: &App, caller: &Caller, id: StreamId, input: &Input) -> Result<StreamRow> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, streams::find_locked(&mut tx, id).await?)?;
    let draft = StreamDraft::check(input, Some(&row.current())).map_err(AppError::Invalid)?;
    let (subject, changes) = (named(id, &row.label), draft.changes(&row.current(), row.has_token));
    if caller.dry_run.is_some() {
        let value = SecretPair::new("value", &draft.value, streams::open_value(&mut tx, &row).await)?;
        let mut secrets = vec![value];
        if let Some(field) = draft.kind.token_field() {
            secrets.push(SecretPair::new(field, &draft.token, streams::open_token(&mut tx, &row).await)?);
        }
        dry_run::note_update(app, caller, &row, &changes, &secrets)?;
    }
    streams::update(&mut tx, &row, &draft, app.now()).await?;
    app.audit_changes(&mut tx, caller, AuditAction::NotificationStreamUpdated, &subject, &changes).await?;
    if draft.value.set().is_some() {
        notices::hurry(&mut tx, id, app.now()).await?;
    }
    let row = finish(app, caller, tx, id, &draft).await?;
    app.wake_dispatcher();
    Ok(row)
}

pub async fn delete(app: &App, caller: &Caller, id: StreamId) -> Result<()> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, streams::find_locked(&mut tx, id).await?)?;
    streams::delete(&mut tx, caller.user, id).await?;
    app.audit(&mut tx, caller, AuditAction::NotificationStreamDeleted, &named(id, &row.label)).await?;
    dry_run::note_deletion(caller, &row);
    dry_run::commit(tx, caller).await?;
    Ok(())
}

/// Queues a sample message; the channel's answer is recorded on the stream.
pub async fn request_test(app: &App, caller: &Caller, id: StreamId) -> Result<RunId> {
    app.limit_action(caller.limit_key)?;
    let mut tx = app.store.begin().await?;
    owned(caller, streams::find_locked(&mut tx, id).await?)?;
    app.queue_check(tx, &NewRun::new(caller.user, RunSubject::TestStream(id), Trigger::Manual)).await
}

async fn finish(app: &App, caller: &Caller, mut tx: Tx, id: StreamId, draft: &StreamDraft) -> Result<StreamRow> {
    if draft.value.set().or(draft.token.set()).is_some() {
        app.audit(&mut tx, caller, AuditAction::NotificationStreamCredentialsSet, &named(id, &draft.label)).await?;
    }
    let row = written(streams::find(&mut tx, id).await?)?;
    dry_run::commit(tx, caller).await?;
    Ok(row)
}
