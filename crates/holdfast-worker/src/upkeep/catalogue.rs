//! Keeps a catalogue, a sealed list of what its owner has, at every destination, so that the destination and the master
//! key alone are enough to recover an installation.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use holdfast_app::{App, AppError, Result, transfer};
use holdfast_core::Timestamp;
use holdfast_core::backup::catalogue_key;
use holdfast_engine::sealed_document::Packer;
use holdfast_engine::{DestinationPlan, Engine};
use holdfast_store::catalogue::{self, DueRow, WrittenCatalogue};

use crate::plans::Planner;
use holdfast_core::clock::later;

/// How many are claimed per batch, one per user; the rest follow in the next.
const BATCH: i64 = 8;
/// Batches per round, for users with several destinations.
const BATCHES: usize = 20;
const AT_ONCE: usize = 4;
/// How long one may take: all of a batch are done before the lease expires.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// How long nobody else writes to the same destination. An overlapping write does no harm: the newest name counts.
const LEASE_SECS: i64 = 15 * 60;
/// The pause after a failure. Backup runs report an unavailable destination, so this need not.
const RETRY_SECS: i64 = 15 * 60;
/// A small catalogue is written with every change; a large one waits, so that it remains a small part of the traffic.
const LEAST_PAUSE_SECS: i64 = 5;
const MOST_PAUSE_SECS: i64 = 15 * 60;
const BYTES_PER_PAUSE_SEC: i64 = 20_000;
/// The pause where older catalogues cannot be removed, and each stays for ever.
const PAUSE_WITHOUT_REMOVAL_SECS: i64 = 6 * 3600;

/// Writes the catalogues that are due. Destinations that failed last time are handled separately, so that waiting for
/// them does not delay the others.
pub(crate) async fn write_due(app: &App, engine: &Engine, planner: &Planner) -> Result<()> {
    let mut tx = app.store.begin().await?;
    catalogue::settle_wishes(&mut tx, app.now()).await?;
    tx.commit().await?;
    let (good, failed) = (write_lane(app, engine, planner, false), write_lane(app, engine, planner, true));
    tokio::try_join!(Box::pin(good), Box::pin(failed)).map(drop)
}

async fn write_lane(app: &App, engine: &Engine, planner: &Planner, has_failed: bool) -> Result<()> {
    for _ in 0..BATCHES {
        let now = app.now();
        let lease = later(now, LEASE_SECS);
        let mut tx = app.store.begin().await?;
        let due = catalogue::claim(&mut tx, has_failed, BATCH, lease, now).await?;
        tx.commit().await?;
        if due.is_empty() {
            break;
        }
        // From here on they will be tried again later, whatever goes wrong now.
        let mut writes = Vec::with_capacity(due.len());
        for row in &due {
            writes.push(write_one(app, engine, planner, row, lease));
        }
        stream::iter(writes).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    }
    Ok(())
}

async fn write_one(app: &App, engine: &Engine, planner: &Planner, due: &DueRow, lease: Timestamp) -> Result<()> {
    let silent = || AppError::busy("It did not answer within five minutes.");
    let written = tokio::time::timeout(PATIENCE, write(app, engine, planner, due, lease)).await;
    let Err(error) = written.unwrap_or_else(|_| Err(silent())) else { return Ok(()) };
    let reason: String = error.reason().chars().take(500).collect();
    tracing::warn!(destination = due.id.0, reason, "a catalogue was not written; trying again later");
    let mut tx = app.store.begin().await?;
    catalogue::fail(&mut tx, due, lease, &reason, later(app.now(), RETRY_SECS)).await?;
    Ok(tx.commit().await?)
}

async fn write(app: &App, engine: &Engine, planner: &Planner, due: &DueRow, lease: Timestamp) -> Result<()> {
    let destination = planner.destination(&mut app.store.read().await?, due.id).await?;
    if destination.is_untouched() {
        // This folder has not been used yet. Its first use marks it, and that change makes a catalogue due.
        let mut tx = app.store.begin().await?;
        catalogue::put_off(&mut tx, due, lease).await?;
        return Ok(tx.commit().await?);
    }
    let owner = due.user_id;
    let at = app.now();
    let key = catalogue_key(&transfer::folder(app, owner).await?, at);
    let broken = |error: holdfast_engine::EngineError| AppError::Internal(error.message);
    let mut packer = Packer::new().map_err(broken)?;
    transfer::export(app, Some(owner), &mut packer).await?;
    let packed = packer.finish().map_err(broken)?;
    let sealed = app.store.read().await?.seal_file(&packed)?;
    let bytes = i64::try_from(sealed.len()).unwrap_or(i64::MAX);
    // What a lost worker left behind is removed before its key is overwritten.
    if let Some(left) = &due.pending {
        discard(engine, &destination, left).await;
    }
    let mut tx = app.store.begin().await?;
    if !catalogue::note(&mut tx, due, lease, &key).await? {
        return Ok(());
    }
    tx.commit().await?;
    let put = engine.put_object(&destination, &key, sealed.into()).await;
    put.map_err(|error| AppError::busy(error.message))?;
    let pause = (bytes / BYTES_PER_PAUSE_SEC).clamp(LEAST_PAUSE_SECS, MOST_PAUSE_SECS);
    let written = WrittenCatalogue { key: &key, bytes, at, next_at: later(app.now(), pause) };
    let mut tx = app.store.begin().await?;
    let is_noted = catalogue::finish(&mut tx, due, lease, &written).await?;
    tx.commit().await?;
    // The previous catalogue is removed only once the new one is on record. If the claim was lost, the one just written
    // is recorded as pending, and whoever has the claim removes it.
    if let Some(old) = due.key.as_deref().filter(|_| is_noted) {
        let is_removed = remove(engine, &destination, old).await;
        let mut tx = app.store.begin().await?;
        if is_removed {
            catalogue::note_removed(&mut tx, due, old).await?;
        } else {
            let next = later(app.now(), PAUSE_WITHOUT_REMOVAL_SECS);
            catalogue::wait_until(&mut tx, due, written.next_at, next).await?;
        }
        tx.commit().await?;
    }
    tracing::debug!(destination = due.id.0, bytes, "wrote a catalogue");
    Ok(())
}

/// Removes an older catalogue. A bucket may forbid that, which does no harm: older ones are not read.
async fn remove(engine: &Engine, destination: &DestinationPlan, key: &str) -> bool {
    let removed = engine.remove_object(destination, key).await;
    removed.inspect_err(|error| tracing::debug!(key, error = error.message, "keeping an older catalogue")).is_ok()
}

/// Removes a catalogue that was begun but not recorded as finished, whole or in part.
async fn discard(engine: &Engine, destination: &DestinationPlan, key: &str) {
    if let Err(error) = engine.discard_upload(destination, key, None).await {
        tracing::debug!(key, error = error.message, "an unfinished catalogue could not be removed");
    }
}
