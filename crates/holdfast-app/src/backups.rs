//! Stored backups: list, browse, download, verify, restore and delete them.

use holdfast_core::audit::AuditAction;
use holdfast_core::backup::{DeletedReason, RestoreDraft, RestoreInput};
use holdfast_core::ids::BackupId;
use holdfast_core::input::Errors;
use holdfast_core::page::{Page, PageRequest, Position, SortKey};
use holdfast_core::refusal::Rule;
use holdfast_core::run::{RunSubject, Trigger};
use holdfast_store::backups::{self, BackupFilter, BackupRow};
use holdfast_store::runs::{self, NewRun, RunRow};
use holdfast_store::tasks::{self, Referenced};
use holdfast_store::{Listing, Tx, restores};

use crate::access::{owned, written};
use crate::backup_reader::{Download, EntryItem, Part};
use crate::refusal::Conflict;
use crate::{App, AppError, Caller, Result};

/// The most results of a search that are shown; beyond that, people search for something more precise.
const SEARCH_ENTRIES: usize = 500;

pub async fn list(app: &App, listing: &Listing, filter: &BackupFilter) -> Result<Page<BackupRow>> {
    Ok(backups::list(&mut app.store.read().await?, listing, filter).await?)
}

pub async fn show(app: &App, caller: &Caller, id: BackupId) -> Result<BackupRow> {
    owned(caller, backups::find(&mut app.store.read().await?, id).await?)
}

/// One page of the entries of a folder in the backup: those of its number, or those after the first `after`.
pub async fn entries(
    app: &App,
    caller: &Caller,
    id: BackupId,
    path: &str,
    request: PageRequest,
    after: Option<i64>,
) -> Result<Page<EntryItem>> {
    let backup = present(show(app, caller, id).await?)?;
    let first = after.unwrap_or(request.offset());
    let skip = usize::try_from(first).unwrap_or(usize::MAX);
    let count = usize::try_from(request.per_page).unwrap_or(0);
    let reading = app.ports.backup_reader.entries(caller, &backup, path.trim_matches('/'), skip, count);
    let (items, total) = while_waited_for(caller, reading).await?;
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    let end = first.saturating_add(items.len() as i64);
    let end = (end < total && !items.is_empty()).then_some(Position { key: SortKey::Id, id: end });
    Ok(Page { items, total, request, end })
}

/// Entries anywhere in the backup whose name contains the text, and whether there are more.
pub async fn search(app: &App, caller: &Caller, id: BackupId, text: &str) -> Result<(Vec<EntryItem>, bool)> {
    let backup = present(show(app, caller, id).await?)?;
    let reading = app.ports.backup_reader.search(caller, &backup, text, SEARCH_ENTRIES + 1);
    let mut found = while_waited_for(caller, reading).await?;
    let is_cut = found.len() > SEARCH_ENTRIES;
    found.truncate(SEARCH_ENTRIES);
    Ok((found, is_cut))
}

/// A folder of the backup as a tar archive.
pub async fn download_folder(app: &App, caller: &Caller, id: BackupId, path: &str) -> Result<Download> {
    let backup = present(show(app, caller, id).await?)?;
    let download = while_waited_for(caller, app.ports.backup_reader.download_folder(caller, &backup, path)).await?;
    note_download(app, caller, id, path).await?;
    Ok(download)
}

/// Stops reading when the client disconnects: reading a backup can take a while.
async fn while_waited_for<T>(caller: &Caller, reading: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        read = reading => read,
        () = caller.gone.cancelled() => Err(AppError::busy("the client disconnected")),
    }
}

async fn note_download(app: &App, caller: &Caller, id: BackupId, what: &str) -> Result<()> {
    let mut tx = app.store.begin().await?;
    app.audit(&mut tx, caller, AuditAction::BackupDownloaded, &format!("{id} {what}")).await?;
    Ok(tx.commit().await?)
}

pub async fn download(app: &App, caller: &Caller, id: BackupId, part: Part<'_>) -> Result<Download> {
    let backup = present(show(app, caller, id).await?)?;
    let what = match &part {
        Part::Whole => "whole".to_owned(),
        Part::Range(range) => format!("bytes {}-{}", range.start, range.end.saturating_sub(1)),
        Part::Entry(path) => (*path).to_owned(),
    };
    let download = while_waited_for(caller, app.ports.backup_reader.download(caller, &backup, part)).await?;
    note_download(app, caller, id, &what).await?;
    Ok(download)
}

/// Queues a full read of the backup; the result is recorded on it.
pub async fn request_verification(app: &App, caller: &Caller, id: BackupId) -> Result<RunRow> {
    app.limit_action(caller.limit_key)?;
    let mut tx = app.store.begin().await?;
    present(owned(caller, backups::find_locked(&mut tx, id).await?)?)?;
    app.audit(&mut tx, caller, AuditAction::BackupVerificationRequested, &id.to_string()).await?;
    let new = NewRun::new(caller.user, RunSubject::Verify(id), Trigger::Manual);
    queue(app, tx, &new, None).await
}

/// Checks a restore request without starting the restore.
pub async fn check_restore(app: &App, caller: &Caller, id: BackupId, input: &RestoreInput) -> Result<()> {
    let mut tx = app.store.read().await?;
    let backup = owned(caller, backups::find(&mut tx, id).await?)?;
    draft_restore(&mut tx, caller, backup, input).await.map(drop)
}

async fn draft_restore(tx: &mut Tx, caller: &Caller, backup: BackupRow, input: &RestoreInput) -> Result<RestoreDraft> {
    let mut errors = Errors::default();
    let draft = RestoreDraft::check(&mut errors, input, backup.content);
    if let Some(server) = input.remote_server_id.value().filter(|_| !errors.has("remote_server_id"))
        && tasks::count_owned(tx, Referenced::Server, caller.user, &[*server]).await? == 0
    {
        errors.add("remote_server_id", Rule::Choice);
    }
    let draft = draft.filter(|_| errors.is_empty()).ok_or(AppError::Invalid(errors))?;
    present(backup)?;
    Ok(draft)
}

pub async fn request_restore(app: &App, caller: &Caller, id: BackupId, input: &RestoreInput) -> Result<RunRow> {
    let mut tx = app.store.begin().await?;
    let backup = owned(caller, backups::find_locked(&mut tx, id).await?)?;
    let draft = draft_restore(&mut tx, caller, backup, input).await?;
    app.limit_action(caller.limit_key)?;
    let detail = format!("{id} to server {}", draft.describe());
    app.audit(&mut tx, caller, AuditAction::BackupRestoreRequested, &detail).await?;
    let new = NewRun {
        load_server: Some(draft.server),
        ..NewRun::new(caller.user, RunSubject::Restore(id), Trigger::Manual)
    };
    queue(app, tx, &new, Some(&draft)).await
}

/// Deletes a backup; a worker removes its object as soon as it can.
pub async fn delete(app: &App, caller: &Caller, id: BackupId) -> Result<()> {
    let mut tx = app.store.begin().await?;
    let backup = owned(caller, backups::find_locked(&mut tx, id).await?)?;
    if backups::is_in_use(&mut tx, id).await? {
        return Err(AppError::Conflict(Conflict::BackupInUse));
    }
    if !backups::mark_deleted(&mut tx, id, DeletedReason::User, app.now()).await? {
        return Err(gone());
    }
    app.audit(&mut tx, caller, AuditAction::BackupDeleted, &format!("{id} {}", backup.locator)).await?;
    tx.commit().await?;
    app.wake_worker();
    Ok(())
}

fn gone() -> AppError {
    AppError::Conflict(Conflict::BackupDeleted)
}

fn present(backup: BackupRow) -> Result<BackupRow> {
    if backup.deleted_at.is_some() { Err(gone()) } else { Ok(backup) }
}

async fn queue(app: &App, mut tx: Tx, new: &NewRun, restore: Option<&RestoreDraft>) -> Result<RunRow> {
    let id = written(app.queue_run(&mut tx, new).await?)?;
    if let Some(draft) = restore {
        restores::insert(&mut tx, id, draft).await?;
    }
    let run = written(runs::find(&mut tx, id).await?)?;
    tx.commit().await?;
    app.wake_worker();
    Ok(run)
}
