//! Remote servers.

use holdfast_core::audit::AuditAction;
use holdfast_core::changes::named;
use holdfast_core::ids::{RunId, ServerId};
use holdfast_core::input::{Errors, Input};
use holdfast_core::page::Page;
use holdfast_core::refusal::Rule;
use holdfast_core::run::{RunSubject, Trigger};
use holdfast_core::secret::SecretChange;
use holdfast_core::server::{self, ServerDraft};
use holdfast_store::labels::Labelled;
use holdfast_store::runs::NewRun;
use holdfast_store::servers::{self, ServerRow};
use holdfast_store::{Listing, Tx};

use crate::access::{owned, written};
use crate::dry_run::{self, SecretPair};
use crate::refusal::{self, Conflict};
use crate::{App, AppError, Caller, Result};

pub async fn list(app: &App, listing: &Listing) -> Result<Page<ServerRow>> {
    Ok(servers::list(&mut app.store.read().await?, listing).await?)
}

pub async fn show(app: &App, caller: &Caller, id: ServerId) -> Result<ServerRow> {
    owned(caller, servers::find(&mut app.store.read().await?, id).await?)
}

pub async fn create(app: &App, caller: &Caller, input: &Input) -> Result<ServerRow> {
    let draft = ServerDraft::check(input, None).map_err(AppError::Invalid)?;
    let mut tx = app.store.begin().await?;
    check_jump(&mut tx, caller, None, &draft).await?;
    dry_run::check_label(&mut tx, caller, Labelled::Server, &draft.label).await?;
    let id = servers::insert(&mut tx, caller.user, &draft, app.now()).await?;
    app.audit(&mut tx, caller, AuditAction::RemoteServerCreated, &named(id, &draft.label)).await?;
    finish(app, caller, tx, id, &draft).await
}

pub async fn update(app: &App, caller: &Caller, id: ServerId, input: &Input) -> Result<ServerRow> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, servers::find_locked(&mut tx, id).await?)?;
    let draft = ServerDraft::check(input, Some(&row.current())).map_err(AppError::Invalid)?;
    check_jump(&mut tx, caller, Some(id), &draft).await?;
    let changes = draft.changes(&row.current(), row.has_database_password);
    if caller.dry_run.is_some() {
        let stored = servers::open_database_password(&mut tx, &row).await;
        let password = SecretPair::new(server::DATABASE_PASSWORD.name, &draft.database_password, stored)?;
        let host_key = if draft.moves(&row.current()) { None } else { row.host_key.clone() };
        let changes =
            changes.clone().with_field("host_key_fingerprint", &row.host_key.clone().into(), &host_key.into());
        dry_run::note_update(app, caller, &row, &changes, &[password])?;
    }
    servers::update(&mut tx, &row, &draft, app.now()).await?;
    app.audit_changes(&mut tx, caller, AuditAction::RemoteServerUpdated, &named(id, &row.label), &changes).await?;
    if draft.changes_reader(&row.current()) {
        note_move(app, caller, &mut tx, &row, &draft).await?;
    }
    finish(app, caller, tx, id, &draft).await
}

/// Records in the audit log that a server moved: from where to where, and which secrets were removed. Servers behind it
/// are now reached through another machine, so their passwords are removed too; their host keys stay pinned.
async fn note_move(app: &App, caller: &Caller, tx: &mut Tx, row: &ServerRow, draft: &ServerDraft) -> Result<()> {
    let mut detail = format!(
        "{} {}@{}:{} to {}@{}:{}",
        row.id, row.username, row.host, row.port, draft.username, draft.host, draft.port
    );
    let mut add = |what: &str| {
        detail.push_str(", ");
        detail.push_str(what);
    };
    if row.jump_server_id != draft.jump_server {
        add("another jump host");
    }
    if row.has_database_password && matches!(draft.database_password, SecretChange::Clear) {
        add("database password removed");
    }
    if draft.moves(&row.current()) {
        if row.host_key.is_some() {
            add("host key forgotten");
        }
        let behind = servers::clear_passwords_behind(tx, row, app.now()).await?;
        if !behind.is_empty() {
            add(&format!("database passwords removed from servers behind it: {}", behind.len()));
        }
        dry_run::note_elsewhere(caller, behind);
    }
    app.audit(tx, caller, AuditAction::RemoteServerMoved, &detail).await
}

/// A jump host must be another server of the caller's that is itself reached directly.
async fn check_jump(tx: &mut Tx, caller: &Caller, id: Option<ServerId>, draft: &ServerDraft) -> Result<()> {
    let Some(jump) = draft.jump_server else { return Ok(()) };
    let mut errors = Errors::default();
    let row = servers::find(tx, jump).await?.filter(|row| row.user_id == caller.user);
    let is_behind = match id {
        Some(id) => id == jump || servers::count_behind(tx, id).await? > 0,
        None => false,
    };
    if row.is_none() || is_behind || row.is_some_and(|row| row.jump_server_id.is_some()) {
        errors.add("jump_server_id", Rule::Choice);
        return Err(AppError::Invalid(errors));
    }
    Ok(())
}

/// Refused while tasks, restores or other servers use it.
pub async fn delete(app: &App, caller: &Caller, id: ServerId) -> Result<()> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, servers::find_locked(&mut tx, id).await?)?;
    let tasks = servers::count_tasks(&mut tx, id).await?;
    if tasks > 0 {
        return Err(AppError::Conflict(Conflict::ServerInUse { tasks: refusal::tasks(tasks) }));
    }
    if servers::count_restores(&mut tx, id).await? > 0 {
        return Err(AppError::Conflict(Conflict::ServerRestored));
    }
    if servers::count_behind(&mut tx, id).await? > 0 {
        return Err(AppError::Conflict(Conflict::ServerIsJump));
    }
    servers::delete(&mut tx, caller.user, id).await?;
    app.audit(&mut tx, caller, AuditAction::RemoteServerDeleted, &named(id, &row.label)).await?;
    dry_run::note_deletion(caller, &row);
    dry_run::commit(tx, caller).await?;
    Ok(())
}

/// Queues a connection check; the result is recorded on the server.
pub async fn request_check(app: &App, caller: &Caller, id: ServerId) -> Result<RunId> {
    app.limit_action(caller.limit_key)?;
    let mut tx = app.store.begin().await?;
    owned(caller, servers::find_locked(&mut tx, id).await?)?;
    app.queue_check(tx, &NewRun::new(caller.user, RunSubject::CheckServer(id), Trigger::Manual)).await
}

/// Replaces the pinned host key with the one that the server presented. If `seen` is given, only that key is accepted.
pub async fn accept_host_key(app: &App, caller: &Caller, id: ServerId, seen: Option<&str>) -> Result<ServerRow> {
    let mut tx = app.store.begin().await?;
    let row = owned(caller, servers::find_locked(&mut tx, id).await?)?;
    if seen.is_some_and(|seen| row.offered_host_key.as_deref() != Some(seen)) {
        return Err(AppError::Conflict(Conflict::OtherHostKey));
    }
    if !servers::accept_host_key(&mut tx, &row, app.now()).await? {
        return Err(AppError::Conflict(Conflict::NoHostKey));
    }
    let detail = format!("{id} {}", row.offered_host_key.as_deref().unwrap_or_default());
    app.audit(&mut tx, caller, AuditAction::RemoteServerHostKeyAccepted, &detail).await?;
    let row = written(servers::find(&mut tx, id).await?)?;
    tx.commit().await?;
    Ok(row)
}

async fn finish(app: &App, caller: &Caller, mut tx: Tx, id: ServerId, draft: &ServerDraft) -> Result<ServerRow> {
    if draft.database_password.set().is_some() {
        app.audit(&mut tx, caller, AuditAction::RemoteServerCredentialsSet, &named(id, &draft.label)).await?;
    }
    let row = written(servers::find(&mut tx, id).await?)?;
    dry_run::commit(tx, caller).await?;
    Ok(row)
}
