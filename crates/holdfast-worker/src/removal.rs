//! Takes away what is not wanted any more: objects of deleted backups, and what lost or failed runs left behind. By
//! exact key, only what is on record as ours, again and again until it is gone.

use std::collections::{BTreeMap, HashSet};

use futures_util::{StreamExt as _, stream};
use holdfast_app::{App, AppError, Result};
use holdfast_core::ids::{BackupId, DestinationId, RunId};
use holdfast_engine::{DestinationSpec, Engine};
use holdfast_store::backups::{self, BackupRow};
use holdfast_store::uploads::{self, AbandonedRow};
use tokio::time::Instant;

use crate::Settings;
use crate::execute::Executor;
use crate::plans::Planner;
use crate::scheduler::later;

/// Looked at in one go.
const BATCH: i64 = 50;
/// And so often in one round, so that very many at a destination that is away are soon out of the way of all others.
const BATCHES: usize = 100;
/// Destinations that are asked at once.
const AT_ONCE: usize = 4;
/// The first wait after a removal that failed; it doubles up to a few hours.
const FIRST_WAIT_SECS: i64 = 60;
const LONGEST_WAIT_SECS: i64 = 4 * 3600;
/// Between two tries to clear away an upload, in leases.
const UPLOAD_WAIT: i64 = 5;
/// A worker that does not know yet that it lost its run has stopped writing by then: its lease, its retries, and some.
const LATE_WORKER: i64 = 10;

/// Removes the objects of deleted backups that are due.
pub(crate) async fn remove_deleted(executor: &Executor) -> Result<()> {
    clear(executor, Kind::Objects).await
}

/// Clears away uploads whose runs ended without a backup.
pub(crate) async fn clear_uploads(executor: &Executor) -> Result<()> {
    clear(executor, Kind::Uploads).await
}

#[derive(Clone, Copy)]
enum Kind {
    Objects,
    Uploads,
}

/// Something at a destination that is to go.
enum Leftover {
    Object(Box<BackupRow>),
    Upload(AbandonedRow),
}

/// Each destination by itself, and no longer than is fair: one that does not answer is not asked again in this round, so
/// that it holds up nobody else's.
async fn clear(executor: &Executor, kind: Kind) -> Result<()> {
    let mut away: HashSet<i64> = HashSet::new();
    for _ in 0..BATCHES {
        let due = list(&executor.app, kind).await?;
        let is_last = (due.len() as i64) < BATCH;
        let mut lanes: BTreeMap<i64, Vec<Leftover>> = BTreeMap::new();
        for leftover in due {
            if away.contains(&leftover.destination()) {
                leftover.claim(executor).await?;
            } else {
                lanes.entry(leftover.destination()).or_default().push(leftover);
            }
        }
        let mut clearing = Vec::with_capacity(lanes.len());
        for (destination, leftovers) in lanes {
            clearing.push(clear_destination(executor, destination, leftovers));
        }
        let mut cleared = stream::iter(clearing).buffer_unordered(AT_ONCE);
        while let Some(lane) = cleared.next().await {
            away.extend(lane?);
        }
        if is_last {
            break;
        }
    }
    Ok(())
}

async fn list(app: &App, kind: Kind) -> Result<Vec<Leftover>> {
    let mut tx = app.store.read().await?;
    if matches!(kind, Kind::Uploads) {
        let abandoned = uploads::list_abandoned(&mut tx, app.now(), BATCH).await?;
        return Ok(abandoned.into_iter().map(Leftover::Upload).collect());
    }
    let mut due = Vec::new();
    for id in backups::list_to_remove(&mut tx, app.now(), BATCH).await? {
        due.extend(backups::find(&mut tx, id).await?.map(|backup| Leftover::Object(Box::new(backup))));
    }
    Ok(due)
}

/// Gives the destination when it is better left alone for a while.
async fn clear_destination(executor: &Executor, id: i64, leftovers: Vec<Leftover>) -> Result<Option<i64>> {
    let (limit, begun, mut is_away) = (executor.settings.removal_limit, Instant::now(), false);
    for leftover in leftovers {
        // From here on it is somebody's turn later, whatever goes wrong now.
        if !leftover.claim(executor).await? || is_away {
            continue;
        }
        let silent = || AppError::Unavailable("It did not answer in time.".to_owned());
        let removed = tokio::time::timeout(limit, leftover.remove(executor)).await.unwrap_or_else(|_| Err(silent()));
        match &removed {
            Ok(()) => leftover.note_removed(executor).await?,
            Err(error) => {
                let (key, reason) = (leftover.key(), error.reason());
                tracing::warn!(destination = id, key, reason, "an object was not removed; trying again later");
            }
        }
        is_away = removed.is_err() || begun.elapsed() > limit;
    }
    Ok(is_away.then_some(id))
}

fn lease_secs(settings: &Settings) -> i64 {
    i64::try_from(settings.lease.as_secs()).unwrap_or(i64::MAX / 100_000_000)
}

async fn destination(app: &App, planner: &Planner, id: i64) -> Result<DestinationSpec> {
    planner.destination(&mut app.store.read().await?, DestinationId(id)).await
}

impl Leftover {
    fn destination(&self) -> i64 {
        match self {
            Self::Object(backup) => backup.destination_id,
            Self::Upload(upload) => upload.destination_id,
        }
    }

    fn key(&self) -> &str {
        match self {
            Self::Object(backup) => &backup.object_key,
            Self::Upload(upload) => &upload.object_key,
        }
    }

    /// Puts off the next try; false when somebody else has it.
    async fn claim(&self, executor: &Executor) -> Result<bool> {
        let app = &executor.app;
        let now = app.now();
        let mut tx = app.store.begin().await?;
        let is_claimed = match self {
            Self::Object(backup) => {
                let wait = (FIRST_WAIT_SECS << backup.remove_attempts.clamp(0, 16)).min(LONGEST_WAIT_SECS);
                backups::claim_removal(&mut tx, BackupId(backup.id), now, later(now, wait)).await?
            }
            Self::Upload(upload) => {
                let wait = UPLOAD_WAIT * lease_secs(&executor.settings);
                uploads::claim(&mut tx, RunId(upload.run_id), now, later(now, wait)).await?
            }
        };
        tx.commit().await?;
        Ok(is_claimed)
    }

    async fn remove(&self, executor: &Executor) -> Result<()> {
        let Executor { app, engine, planner, .. } = executor;
        let engine: &Engine = engine;
        let destination = destination(app, planner, self.destination()).await?;
        let removed = match self {
            Self::Object(backup) => engine.remove(&destination, &backup.object_key).await,
            Self::Upload(upload) => engine.discard(&destination, &upload.object_key, upload.upload_id.as_deref()).await,
        };
        removed.map_err(|error| AppError::Unavailable(error.message))
    }

    async fn note_removed(&self, executor: &Executor) -> Result<()> {
        let now = executor.app.now();
        let mut tx = executor.app.store.begin().await?;
        match self {
            Self::Object(backup) => {
                backups::update_removed(&mut tx, BackupId(backup.id), now).await?;
                tx.commit().await?;
                tracing::info!(backup = backup.id, key = backup.object_key, "removed");
            }
            Self::Upload(upload) => {
                // A worker that lost its run may wake up and still write, and a store may still be joining parts: it is
                // cleared after again for a while.
                let lease = lease_secs(&executor.settings);
                let is_over = upload.cleared_at.is_some_and(|first| now >= later(first.0, LATE_WORKER * lease));
                let run = RunId(upload.run_id);
                if !is_over {
                    uploads::update_cleared(&mut tx, run, now).await?;
                    return Ok(tx.commit().await?);
                }
                uploads::delete(&mut tx, run).await?;
                tx.commit().await?;
                tracing::info!(run = run.0, key = upload.object_key, "cleared away what an unfinished run left");
            }
        }
        Ok(())
    }
}
