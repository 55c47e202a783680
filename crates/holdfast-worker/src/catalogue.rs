//! Keeps a sealed list at every destination of what its owner has, so that the bucket and the master key alone bring an
//! installation back.

use holdfast_app::{App, AppError, Result, portable};
use holdfast_core::Timestamp;
use holdfast_core::backup::catalogue_key;
use holdfast_core::ids::{DestinationId, UserId};
use holdfast_engine::{DestinationSpec, Engine, letter};
use holdfast_store::catalogue::{self, DueRow, Written};

use crate::plans::Planner;
use crate::scheduler::later;

/// Written in one look; the rest comes with the next.
const BATCH: i64 = 20;
/// How long nobody else writes to the same destination. A stray one does no harm: the newest name counts.
const LEASE_SECS: i64 = 15 * 60;
/// After a failure. The backups themselves tell of a destination that is away; this need not.
const RETRY_SECS: i64 = 15 * 60;
/// A small list is written with every change; a large one waits, so that writing it stays a small part of the traffic.
const LEAST_PAUSE_SECS: i64 = 5;
const MOST_PAUSE_SECS: i64 = 15 * 60;
const BYTES_PER_PAUSE_SEC: i64 = 20_000;

/// Writes the catalogues that are due.
pub(crate) async fn write_due(app: &App, engine: &Engine, planner: &Planner) -> Result<()> {
    let now = app.now();
    let lease = later(now, LEASE_SECS);
    let mut tx = app.store.begin().await?;
    catalogue::settle_wishes(&mut tx, now).await?;
    let due = catalogue::claim(&mut tx, BATCH, lease, now).await?;
    tx.commit().await?;
    for row in due {
        // From here on it is somebody's turn later, whatever goes wrong now.
        if let Err(error) = write(app, engine, planner, &row, lease).await {
            tracing::warn!(destination = row.id, %error, "a catalogue was not written; trying again later");
            let text: String = error.to_string().chars().take(500).collect();
            let mut tx = app.store.begin().await?;
            catalogue::fail(&mut tx, &row, lease, &text, later(app.now(), RETRY_SECS)).await?;
            tx.commit().await?;
        }
    }
    Ok(())
}

async fn write(app: &App, engine: &Engine, planner: &Planner, due: &DueRow, lease: Timestamp) -> Result<()> {
    let destination = planner.destination(&mut app.store.read().await?, DestinationId(due.id)).await?;
    if matches!(&destination, DestinationSpec::Local { marker: None, .. }) {
        // Nobody has used this folder yet; the first who does marks it, and that is a change.
        let mut tx = app.store.begin().await?;
        catalogue::put_off(&mut tx, due, lease).await?;
        return Ok(tx.commit().await?);
    }
    let owner = UserId(due.user_id);
    let at = app.now();
    let key = catalogue_key(&portable::folder(app, owner).await?, at);
    let document = portable::export(app, Some(owner)).await?;
    let packed = tokio::task::spawn_blocking(move || {
        let plain = document.to_bytes()?;
        letter::compress(&plain).map_err(|error| AppError::Internal(error.message))
    });
    let packed = packed.await.map_err(|error| AppError::Internal(error.to_string()))??;
    let sealed = app.store.read().await?.seal_file(&packed)?;
    let bytes = i64::try_from(sealed.len()).unwrap_or(i64::MAX);
    // What a lost worker left goes before its name is forgotten.
    if let Some(left) = &due.pending {
        remove(engine, &destination, left).await;
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
        remove(engine, &destination, old).await;
    }
    tracing::debug!(destination = due.id, bytes, "wrote a catalogue");
    Ok(())
}

/// A bucket may forbid it: what is older is not read, and does no harm.
async fn remove(engine: &Engine, destination: &DestinationSpec, key: &str) {
    if let Err(error) = engine.remove(destination, key).await {
        tracing::debug!(key, error = error.message, "an older catalogue stays");
    }
}
