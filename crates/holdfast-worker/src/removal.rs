//! Takes away what is not wanted any more: objects of deleted backups, and what lost or failed runs left behind. By
//! exact key, only what is on record as ours, again and again until it is gone.

use holdfast_app::{App, AppError, Result};
use holdfast_core::ids::{BackupId, DestinationId, RunId};
use holdfast_engine::Engine;
use holdfast_store::backups::{self, BackupRow};
use holdfast_store::uploads::{self, AbandonedRow};

use crate::Settings;
use crate::plans::Planner;
use crate::scheduler::later;

/// Looked at per round.
const BATCH: i64 = 50;
/// The first wait after a removal that failed; it doubles up to a few hours.
const FIRST_WAIT_SECS: i64 = 60;
const LONGEST_WAIT_SECS: i64 = 4 * 3600;
/// Between two tries to clear away an upload, in leases.
const UPLOAD_WAIT: i64 = 5;
/// A worker that does not know yet that it lost its run has stopped writing by then: its lease, its retries, and some.
const LATE_WORKER: i64 = 10;

/// Removes the objects of deleted backups that are due.
pub(crate) async fn remove_deleted(app: &App, engine: &Engine, planner: &Planner) -> Result<()> {
    let due = backups::list_to_remove(&mut app.store.read().await?, app.now(), BATCH).await?;
    for id in due {
        let now = app.now();
        let mut tx = app.store.begin().await?;
        let Some(backup) = backups::find(&mut tx, id).await? else { continue };
        let wait = (FIRST_WAIT_SECS << backup.remove_attempts.clamp(0, 16)).min(LONGEST_WAIT_SECS);
        if !backups::claim_removal(&mut tx, id, now, later(now, wait)).await? {
            continue;
        }
        tx.commit().await?;
        // From here on it is somebody's turn later, whatever goes wrong now.
        if let Err(error) = remove_object(app, engine, planner, &backup).await {
            tracing::warn!(backup = id.0, %error, "an object was not removed; trying again later");
            continue;
        }
        note_removed(app, id, &backup.object_key).await?;
    }
    Ok(())
}

async fn remove_object(app: &App, engine: &Engine, planner: &Planner, backup: &BackupRow) -> Result<()> {
    let mut tx = app.store.read().await?;
    let destination = planner.destination(&mut tx, DestinationId(backup.destination_id)).await?;
    drop(tx);
    engine.remove(&destination, &backup.object_key).await.map_err(|error| AppError::Unavailable(error.message))
}

async fn note_removed(app: &App, id: BackupId, key: &str) -> Result<()> {
    let mut tx = app.store.begin().await?;
    backups::update_removed(&mut tx, id, app.now()).await?;
    tx.commit().await?;
    tracing::info!(backup = id.0, key, "removed");
    Ok(())
}

async fn discard(app: &App, engine: &Engine, planner: &Planner, upload: &AbandonedRow) -> Result<()> {
    let mut tx = app.store.read().await?;
    let destination = planner.destination(&mut tx, DestinationId(upload.destination_id)).await?;
    drop(tx);
    let discarded = engine.discard(&destination, &upload.object_key, upload.upload_id.as_deref()).await;
    discarded.map_err(|error| AppError::Unavailable(error.message))
}

/// Clears away uploads whose runs ended without a backup.
pub(crate) async fn clear_uploads(app: &App, engine: &Engine, planner: &Planner, settings: &Settings) -> Result<()> {
    let lease = i64::try_from(settings.lease.as_secs()).unwrap_or(i64::MAX / 100_000_000);
    let abandoned = uploads::list_abandoned(&mut app.store.read().await?, app.now(), BATCH).await?;
    for upload in abandoned {
        let (now, run) = (app.now(), RunId(upload.run_id));
        let mut tx = app.store.begin().await?;
        if !uploads::claim(&mut tx, run, now, later(now, UPLOAD_WAIT * lease)).await? {
            continue;
        }
        tx.commit().await?;
        if let Err(error) = discard(app, engine, planner, &upload).await {
            tracing::warn!(run = run.0, %error, "an unfinished upload is still there; trying again later");
            continue;
        }
        // A worker that lost its run may wake up and still write, and a store may still be joining parts: it is cleared
        // after again for a while.
        let is_over = upload.cleared_at.is_some_and(|first| now >= later(first.0, LATE_WORKER * lease));
        let mut tx = app.store.begin().await?;
        if is_over {
            uploads::delete(&mut tx, run).await?;
        } else {
            uploads::update_cleared(&mut tx, run, now).await?;
        }
        tx.commit().await?;
        if !is_over {
            continue;
        }
        tracing::info!(run = run.0, key = upload.object_key, "cleared away what an unfinished run left");
    }
    Ok(())
}
