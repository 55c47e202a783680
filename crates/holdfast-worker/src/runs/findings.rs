//! Records what runs find out about servers, destinations and stored backups in the course of their work.

use holdfast_app::Origin;
use holdfast_core::Timestamp;
use holdfast_core::audit::AuditAction;
use holdfast_core::backup::Verification;
use holdfast_core::destination::{DestinationIdentity, DestinationSpec};
use holdfast_core::failure::{Blame, FailureCode};
use holdfast_core::ids::{BackupId, DestinationId};
use holdfast_engine::EngineError;
use holdfast_store::{DbTime, StoreError, Tx, audit, backups, copies, destinations, servers};

use super::job::Ending;

/// Whether the failure of a run that contacts nothing but a destination says that the destination cannot be used.
pub(super) fn is_lost_destination(code: FailureCode) -> bool {
    match code.blames() {
        Blame::Destination | Blame::Transfer => true,
        Blame::Connection
        | Blame::Server
        | Blame::Backup
        | Blame::Content
        | Blame::Request
        | Blame::Channel
        | Blame::Service => false,
    }
}

pub(super) async fn note_destination(
    tx: &mut Tx,
    destination: DestinationId,
    used: &DestinationSpec,
    identity: &DestinationIdentity,
    now: Timestamp,
) -> Result<(), StoreError> {
    destinations::update_identity(tx, destination, used, identity).await?;
    destinations::update_check(tx, destination, None, now).await
}

/// Records that a destination failed, and reports it only if the destination was fine before.
pub(super) async fn note_lost_destination(
    tx: &mut Tx,
    ending: &Ending<'_>,
    destination: DestinationId,
    error: &EngineError,
) -> Result<(), StoreError> {
    let found = (error.code, error.message.as_str());
    let before = destinations::find(tx, destination).await?;
    destinations::update_check(tx, destination, Some(found), ending.now).await?;
    if before.is_some_and(|row| row.last_error_code.is_some()) {
        return Ok(());
    }
    ending.services.outbox.destination_lost(tx, destination, ending.run.id, found, ending.now).await
}

/// Records that the destination of a backup is reachable, because something was read from it.
pub(super) async fn note_readable(tx: &mut Tx, ending: &Ending<'_>, backup: BackupId) -> Result<(), StoreError> {
    match backups::find(tx, backup).await? {
        Some(backup) => destinations::update_check(tx, backup.destination_id, None, ending.now).await,
        None => Ok(()),
    }
}

/// Records what a failure to read a stored backup says about the backup, or else about its destination.
pub(super) async fn note_unreadable(
    tx: &mut Tx,
    ending: &Ending<'_>,
    backup: BackupId,
    error: &EngineError,
) -> Result<(), StoreError> {
    match error.code.blames() {
        Blame::Backup => {
            let is_gone = error.code == FailureCode::Missing;
            let found = if is_gone { Verification::Missing } else { Verification::Corrupt };
            note_damaged(tx, ending, backup, found, error).await
        }
        Blame::Destination => note_lost_destination_of(tx, ending, backup, error).await,
        // A restore also transfers data to a server, which may be the one that was too slow.
        Blame::Transfer if ending.contacted.server.is_none() => {
            note_lost_destination_of(tx, ending, backup, error).await
        }
        Blame::Transfer
        | Blame::Connection
        | Blame::Server
        | Blame::Content
        | Blame::Request
        | Blame::Channel
        | Blame::Service => Ok(()),
    }
}

async fn note_lost_destination_of(
    tx: &mut Tx,
    ending: &Ending<'_>,
    backup: BackupId,
    error: &EngineError,
) -> Result<(), StoreError> {
    match backups::find(tx, backup).await? {
        Some(row) => note_lost_destination(tx, ending, row.destination_id, error).await,
        None => Ok(()),
    }
}

async fn note_damaged(
    tx: &mut Tx,
    ending: &Ending<'_>,
    backup: BackupId,
    found: Verification,
    error: &EngineError,
) -> Result<(), StoreError> {
    tell_damaged(tx, ending, backup, &error.message).await?;
    let Some(row) = backups::find(tx, backup).await? else { return Ok(()) };
    note_state(tx, ending, (backup, row.destination_id), found).await
}

/// Records that a backup cannot be restored from its copy at this destination.
pub(super) async fn note_state(
    tx: &mut Tx,
    ending: &Ending<'_>,
    (backup, destination): (BackupId, DestinationId),
    found: Verification,
) -> Result<(), StoreError> {
    tracing::error!(backup = backup.0, found = found.as_str(), "a stored backup cannot be restored");
    metrics::counter!("holdfast_backups_damaged_total").increment(1);
    let (owner, detail) = (Some(ending.run.user_id), format!("{backup} {}", found.as_str()));
    audit::insert(tx, DbTime(ending.now), owner, &Origin::default(), AuditAction::BackupFoundDamaged, &detail).await?;
    copies::update_verification(tx, backup, destination, found, ending.now).await
}

/// Reports to users that a backup cannot be restored.
pub(super) async fn tell_damaged(
    tx: &mut Tx,
    ending: &Ending<'_>,
    backup: BackupId,
    reason: &str,
) -> Result<(), StoreError> {
    ending.services.outbox.damaged(tx, backup, ending.run.id, reason, ending.now).await
}

/// Records what was found about the copy that was read.
pub(super) async fn note_verification(
    tx: &mut Tx,
    ending: &Ending<'_>,
    backup: BackupId,
    found: Verification,
) -> Result<(), StoreError> {
    let Some(row) = backups::find(tx, backup).await? else { return Ok(()) };
    copies::update_verification(tx, backup, row.destination_id, found, ending.now).await
}

/// Pins host keys on first contact, and records whether the server is online.
pub(super) async fn note_contact(
    tx: &mut Tx,
    ending: &Ending<'_>,
    error: Option<&EngineError>,
    is_told: bool,
) -> Result<(), StoreError> {
    let Some(server) = &ending.contacted.server else { return Ok(()) };
    if !servers::is_at(tx, server.id, &server.host, server.port).await? {
        return Ok(());
    }
    let findings = ending.context.server_findings();
    let seen = [
        (Some(server), &findings.host_key, &findings.changed_host_key),
        (ending.contacted.jump.as_ref(), &findings.jump_host_key, &findings.changed_jump_host_key),
    ];
    for (server, key, changed) in seen.into_iter().filter_map(|(server, key, changed)| Some((server?, key, changed))) {
        if !servers::is_at(tx, server.id, &server.host, server.port).await? {
            continue;
        }
        if let Some(key) = key {
            servers::pin_host_key(tx, server.id, key).await?;
        }
        if let Some(changed) = changed {
            servers::update_offered_host_key(tx, server.id, changed).await?;
        }
    }
    match error {
        _ if findings.host_key.is_some() => {
            let latency = findings.latency_micros.and_then(|micros| i64::try_from(micros).ok());
            servers::update_online(tx, server.id, latency, ending.now).await
        }
        Some(error) if error.code.blames() == Blame::Connection => {
            let before = servers::find(tx, server.id).await?;
            let was_known = before.is_some_and(|row| row.last_error_code == Some(error.code));
            servers::update_offline(tx, server.id, error.code, &error.message, ending.now).await?;
            if was_known || is_told {
                return Ok(());
            }
            let found = (error.code, error.message.as_str());
            ending.services.outbox.server_lost(tx, server.id, ending.run.id, found, ending.now).await
        }
        Some(_) | None => Ok(()),
    }
}
