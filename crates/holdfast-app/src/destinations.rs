//! Backup destinations.

use holdfast_core::audit::AuditAction;
use holdfast_core::changes::named;
use holdfast_core::destination::DestinationDraft;
use holdfast_core::ids::{DestinationId, RunId};
use holdfast_core::input::Input;
use holdfast_core::page::Page;
use holdfast_core::run::{RunSubject, Trigger};
use holdfast_store::destinations::{self, DestinationRow};
use holdfast_store::labels::Labelled;
use holdfast_store::runs::NewRun;
use holdfast_store::{DbTime, Listing, StoreError, Tx, catalogue, copies};

use crate::access::{owned, written};
use crate::dry_run::{self, SecretPair};
use crate::refusal::{self, Conflict};
use crate::{App, AppError, Caller, Result};

pub async fn list(app: &App, listing: &Listing) -> Result<Page<DestinationRow>> {
    Ok(destinations::list(&mut app.store.read().await?, listing).await?)
}

pub async fn show(app: &App, caller: &Caller, id: DestinationId) -> Result<DestinationRow> {
    owned(caller, destinations::find(&mut app.store.read().await?, id).await?)
}

/// When its sealed catalogue was last written, and why it could not be written since.
pub async fn catalogue(app: &App, caller: &Caller, id: DestinationId) -> Result<(Option<DbTime>, Option<String>)> {
    show(app, caller, id).await?;
    Ok(catalogue::find(&mut app.store.read().await?, id.0).await?.unwrap_or_default())
}

pub async fn create(app: &App, caller: &Caller, input: &Input) -> Result<DestinationRow> {
    let draft = DestinationDraft::check(input, None).map_err(AppError::Invalid)?;
    let mut tx = app.store.begin().await?;
    dry_run::check_label(&mut tx, caller, Labelled::Destination, &draft.label).await?;
    let id = destinations::insert(&mut tx, caller.user, &draft, app.now()).await?;
    app.audit(&mut tx, caller, AuditAction::BackupDestinationCreated, &named(id, &draft.label)).await?;
    finish(app, caller, tx, id, &draft).await
}

pub async fn update(app: &App, caller: &Caller, id: DestinationId, input: &Input) -> Result<DestinationRow> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, destinations::find_locked(&mut tx, id).await?)?;
    let draft = DestinationDraft::check(input, Some(&row.current())).map_err(AppError::Invalid)?;
    let backups = destinations::count_backups(&mut tx, id).await?;
    if backups > 0 && !row.spec.is_same_destination(&draft.spec) {
        return Err(AppError::Conflict(Conflict::DestinationMoves { backups: refusal::backups(backups) }));
    }
    // A backup that is being written must not be recorded at another place than the one it was written to.
    if row.spec != draft.spec && destinations::is_in_use(&mut tx, id).await? {
        return Err(AppError::Conflict(Conflict::DestinationBusy));
    }
    let (subject, changes) = (named(id, &row.label), draft.changes(&row.current()));
    if caller.dry_run.is_some() {
        let pairs = secret_pairs(&mut tx, &row, &draft).await?;
        dry_run::note_update(app, caller, &row, &changes, &pairs)?;
    }
    destinations::update(&mut tx, &row, &draft, backups == 0, app.now()).await?;
    app.audit_changes(&mut tx, caller, AuditAction::BackupDestinationUpdated, &subject, &changes).await?;
    if row.spec != draft.spec {
        let detail = format!("{id} {} to {}", row.spec.place(), draft.spec.place());
        app.audit(&mut tx, caller, AuditAction::BackupDestinationMoved, &detail).await?;
    }
    finish(app, caller, tx, id, &draft).await
}

async fn secret_pairs<'a>(
    tx: &mut Tx,
    row: &DestinationRow,
    draft: &'a DestinationDraft,
) -> Result<[SecretPair<'a>; 2]> {
    let (access, secret) = match destinations::open_keys(tx, row).await {
        Ok((access, secret)) => (Ok(access), Ok(secret)),
        Err(StoreError::Sealed(_)) => (Ok(None), Ok(None)),
        Err(error) => return Err(error.into()),
    };
    let [access_field, secret_field] = draft.secret_fields();
    Ok([
        SecretPair::new(access_field, &draft.keys.access_key, access)?,
        SecretPair::new(secret_field, &draft.keys.secret_key, secret)?,
    ])
}

/// Refused while tasks use the destination or it holds backups.
pub async fn delete(app: &App, caller: &Caller, id: DestinationId) -> Result<()> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, destinations::find_locked(&mut tx, id).await?)?;
    let tasks = destinations::count_tasks(&mut tx, id).await?;
    if tasks > 0 {
        return Err(AppError::Conflict(Conflict::DestinationInUse { tasks: refusal::tasks(tasks) }));
    }
    let backups = destinations::count_backups(&mut tx, id).await?;
    if backups > 0 {
        return Err(AppError::Conflict(Conflict::DestinationHolds { backups: refusal::backups(backups) }));
    }
    destinations::delete(&mut tx, caller.user, id).await?;
    app.audit(&mut tx, caller, AuditAction::BackupDestinationDeleted, &named(id, &row.label)).await?;
    dry_run::note_deletion(caller, &row);
    dry_run::commit(tx, caller).await?;
    Ok(())
}

/// Queues a check; the result is recorded on the destination.
pub async fn request_check(app: &App, caller: &Caller, id: DestinationId) -> Result<RunId> {
    app.limit_action(caller.limit_key)?;
    let mut tx = app.store.begin().await?;
    owned(caller, destinations::find_locked(&mut tx, id).await?)?;
    app.queue_check(tx, &NewRun::new(caller.user, RunSubject::CheckDestination(id), Trigger::Manual)).await
}

/// Queues a check that everything on record is there; the result is recorded on the backups.
pub async fn request_inventory(app: &App, caller: &Caller, id: DestinationId) -> Result<RunId> {
    app.limit_action(caller.limit_key)?;
    let mut tx = app.store.begin().await?;
    let row = owned(caller, destinations::find_locked(&mut tx, id).await?)?;
    app.audit(&mut tx, caller, AuditAction::BackupDestinationInventoryRequested, &named(id, &row.label)).await?;
    app.queue_check(tx, &NewRun::new(caller.user, RunSubject::Inventory(id), Trigger::Manual)).await
}

/// When the last inventory of a destination ended, and how many of its backups are missing or damaged.
pub async fn last_inventory(app: &App, caller: &Caller, id: DestinationId) -> Result<(Option<DbTime>, i64)> {
    let mut tx = app.store.read().await?;
    owned(caller, destinations::find(&mut tx, id).await?)?;
    Ok((destinations::last_inventory(&mut tx, id).await?, copies::count_damaged(&mut tx, id).await?))
}

async fn finish(
    app: &App,
    caller: &Caller,
    mut tx: Tx,
    id: DestinationId,
    draft: &DestinationDraft,
) -> Result<DestinationRow> {
    if draft.keys.has_new() {
        app.audit(&mut tx, caller, AuditAction::BackupDestinationCredentialsSet, &named(id, &draft.label)).await?;
    }
    let row = written(destinations::find(&mut tx, id).await?)?;
    dry_run::commit(tx, caller).await?;
    Ok(row)
}
