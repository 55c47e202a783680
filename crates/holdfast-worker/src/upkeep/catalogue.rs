//! Keeps a sealed list at every destination of what its owner has, so that the bucket and the master key alone bring an
//! installation back.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use holdfast_app::{App, AppError, Result, transfer};
use holdfast_core::Timestamp;
use holdfast_core::backup::catalogue_key;
use holdfast_engine::sealed_document::Packer;
use holdfast_engine::{DestinationPlan, Engine};
use holdfast_store::catalogue::{self, DueRow, Written};

use crate::plans::Planner;
use holdfast_core::clock::later;

/// Taken in one look, one of each user, and written at once; the rest comes with the next.
const BATCH: i64 = 8;
/// Looks in one round, for users with several destinations.
const BATCHES: usize = 20;
const AT_ONCE: usize = 4;
/// What one may take: all of a look are done before the lease is over.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// How long nobody else writes to the same destination. A stray one does no harm: the newest name counts.
const LEASE_SECS: i64 = 15 * 60;
/// After a failure. The backups themselves tell of a destination that is away; this need not.
const RETRY_SECS: i64 = 15 * 60;
/// A small list is written with every change; a large one waits, so that writing it stays a small part of the traffic.
const LEAST_PAUSE_SECS: i64 = 5;
const MOST_PAUSE_SECS: i64 = 15 * 60;
const BYTES_PER_PAUSE_SEC: i64 = 20_000;
/// Where older ones cannot be removed, each stays for ever.
const PAUSE_WITHOUT_REMOVAL_SECS: i64 = 6 * 3600;

/// Writes the catalogues that are due. Destinations that failed last time are apart: whoever waits for them keeps nobody
/// else waiting.
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
        // From here on it is somebody's turn later, whatever goes wrong now.
        let mut writes = Vec::with_capacity(due.len());
        for row in &due {
            writes.push(write_one(app, engine, planner, row, lease));
        }
        stream::iter(writes).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    }
    Ok(())
}

async fn write_one(app: &App, engine: &Engine, planner: &Planner, due: &DueRow, lease: Timestamp) -> Result<()> {
    let silent = || AppError::Unavailable("It did not answer within five minutes.".to_owned());
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
        // Nobody has used this folder yet; the first who does marks it, and that is a change.
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
    // What a lost worker left goes before its name is forgotten.
    if let Some(left) = &due.pending {
        discard(engine, &destination, left).await;
    }
    let mut tx = app.store.begin().await?;
    if !catalogue::note(&mut tx, due, lease, &key).await? {
        return Ok(());
    }
    tx.commit().await?;
    let put = engine.put(&destination, &key, sealed.into()).await;
    put.map_err(|error| AppError::Unavailable(error.message))?;
    let pause = (bytes / BYTES_PER_PAUSE_SEC).clamp(LEAST_PAUSE_SECS, MOST_PAUSE_SECS);
    let written = Written { key: &key, bytes, at, next_at: later(app.now(), pause) };
    let mut tx = app.store.begin().await?;
    let is_noted = catalogue::finish(&mut tx, due, lease, &written).await?;
    tx.commit().await?;
    // Only what is on record goes, and only after what follows it is. When the claim was lost, what was written just now
    // is noted as pending, and whoever has it clears it away.
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

/// A bucket may forbid it: what is older is not read, and does no harm.
async fn remove(engine: &Engine, destination: &DestinationPlan, key: &str) -> bool {
    let removed = engine.remove(destination, key).await;
    removed.inspect_err(|error| tracing::debug!(key, error = error.message, "an older catalogue stays")).is_ok()
}

/// What somebody began and nobody ended, whole or in part.
async fn discard(engine: &Engine, destination: &DestinationPlan, key: &str) {
    if let Err(error) = engine.discard(destination, key, None).await {
        tracing::debug!(key, error = error.message, "a catalogue that nobody ended stays");
    }
}
