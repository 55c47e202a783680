//! Removes objects of deleted backups, and what lost or failed runs left behind: by exact key, only what is on record
//! as ours, and repeatedly until it is gone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use holdfast_app::{App, AppError, Result};
use holdfast_core::ids::DestinationId;
use holdfast_engine::{DestinationPlan, Engine};
use holdfast_store::copies::{self, DueRow};
use holdfast_store::uploads::{self, AbandonedRow};
use tokio::time::Instant;

use crate::plans::Planner;
use crate::services::Services;
use crate::settings::Settings;
use holdfast_core::clock::later;

/// How many objects are listed per batch.
const BATCH: i64 = 50;
/// Batches per round, so that very many objects at an unavailable destination are soon out of the way of the others.
const BATCHES: usize = 100;
/// How many users' destinations are contacted at once.
const AT_ONCE: usize = 4;
/// How long one user's destinations may take in a round, in multiples of the limit for one object.
const USER_SHARE: u32 = 3;
/// The first wait after a removal that failed; it doubles up to a few hours.
const FIRST_WAIT_SECS: i64 = 60;
const LONGEST_WAIT_SECS: i64 = 4 * 3600;
/// The time between two attempts to clear an upload, in leases.
const UPLOAD_WAIT: i64 = 5;
/// The time, in leases, after which a worker that lost its run without knowing it has stopped writing, with a margin
/// for its retries.
const LATE_WORKER: i64 = 10;

/// Removes the copies of deleted backups that are due.
pub(crate) async fn remove_deleted(services: &Services) -> Result<()> {
    clear(services, LeftoverKind::Copies).await
}

/// Clears uploads whose runs ended without a backup.
pub(crate) async fn clear_uploads(services: &Services) -> Result<()> {
    clear(services, LeftoverKind::Uploads).await
}

#[derive(Clone, Copy)]
enum LeftoverKind {
    Copies,
    Uploads,
}

/// Something at a destination that is to be removed.
enum Leftover {
    Copy(DueRow),
    Upload(AbandonedRow),
}

/// Handles each user separately and for a limited time, so that one user's destinations do not delay another's. A
/// destination that does not answer is not contacted again in this round.
async fn clear(services: &Services, kind: LeftoverKind) -> Result<()> {
    let mut rounds: HashMap<i64, UserRound> = HashMap::new();
    for _ in 0..BATCHES {
        let due = list(&services.app, kind).await?;
        let is_last = (due.len() as i64) < BATCH;
        let mut users: BTreeMap<i64, Vec<Leftover>> = BTreeMap::new();
        for leftover in due {
            users.entry(leftover.user()).or_default().push(leftover);
        }
        let mut clearing = Vec::with_capacity(users.len());
        for (user, leftovers) in users {
            let round = rounds.remove(&user).unwrap_or_default();
            clearing.push(async move { Ok::<_, AppError>((user, round.clear(services, leftovers).await?)) });
        }
        let mut cleared = stream::iter(clearing).buffer_unordered(AT_ONCE);
        while let Some(cleared) = cleared.next().await {
            rounds.extend([cleared?]);
        }
        if is_last {
            break;
        }
    }
    Ok(())
}

async fn list(app: &App, kind: LeftoverKind) -> Result<Vec<Leftover>> {
    let mut tx = app.store.read().await?;
    if matches!(kind, LeftoverKind::Uploads) {
        let abandoned = uploads::list_abandoned(&mut tx, app.now(), BATCH).await?;
        return Ok(abandoned.into_iter().map(Leftover::Upload).collect());
    }
    let due = copies::list_to_remove(&mut tx, app.now(), BATCH).await?;
    Ok(due.into_iter().map(Leftover::Copy).collect())
}

/// One user's part of a round.
#[derive(Default)]
struct UserRound {
    /// How long their destinations have taken in this round.
    spent: Duration,
    /// Destinations at which a removal failed.
    away: HashSet<i64>,
}

impl UserRound {
    async fn clear(mut self, services: &Services, leftovers: Vec<Leftover>) -> Result<Self> {
        let limit = services.settings.removal_limit;
        for leftover in leftovers {
            let (id, is_over) = (leftover.destination(), self.spent > limit * USER_SHARE);
            // From here on it will be tried again later, whatever goes wrong now.
            let is_claimed = leftover.claim(services, !is_over).await?;
            if !is_claimed || is_over || self.away.contains(&id) {
                continue;
            }
            let begun = Instant::now();
            let silent = || AppError::busy("It did not answer in time.");
            let removing = tokio::time::timeout(limit, leftover.remove(services));
            let removed = removing.await.unwrap_or_else(|_| Err(silent()));
            self.spent += begun.elapsed();
            match removed {
                Ok(()) => leftover.note_removed(services).await?,
                Err(error) => {
                    self.away.insert(id);
                    let (key, reason) = (leftover.key(), error.reason());
                    tracing::warn!(destination = id, key, reason, "an object was not removed; trying again later");
                }
            }
        }
        Ok(self)
    }
}

fn lease_secs(settings: &Settings) -> i64 {
    i64::try_from(settings.lease.as_secs()).unwrap_or(i64::MAX / 100_000_000)
}

async fn destination(app: &App, planner: &Planner, id: i64) -> Result<DestinationPlan> {
    planner.destination(&mut app.store.read().await?, DestinationId(id)).await
}

impl Leftover {
    fn user(&self) -> i64 {
        match self {
            Self::Copy(copy) => copy.user_id.0,
            Self::Upload(upload) => upload.user_id.0,
        }
    }

    fn destination(&self) -> i64 {
        match self {
            Self::Copy(copy) => copy.destination_id.0,
            Self::Upload(upload) => upload.destination_id.0,
        }
    }

    fn key(&self) -> &str {
        match self {
            Self::Copy(copy) => &copy.locator,
            Self::Upload(upload) => &upload.object_key,
        }
    }

    /// Claims it by postponing the next attempt. Returns false if somebody else has it. The wait of a copy grows with
    /// each attempt that counts.
    async fn claim(&self, services: &Services, is_try: bool) -> Result<bool> {
        let app = &services.app;
        let now = app.now();
        let mut tx = app.store.begin().await?;
        let is_claimed = match self {
            Self::Copy(copy) => {
                let doubled = if is_try { copy.remove_attempts.clamp(0, 16) } else { 0 };
                let wait = (FIRST_WAIT_SECS << doubled).min(LONGEST_WAIT_SECS);
                copies::claim_removal(&mut tx, copy.id, now, later(now, wait), is_try).await?
            }
            Self::Upload(upload) => {
                let wait = UPLOAD_WAIT * lease_secs(&services.settings);
                uploads::claim(&mut tx, upload.run_id, now, later(now, wait)).await?
            }
        };
        tx.commit().await?;
        Ok(is_claimed)
    }

    async fn remove(&self, services: &Services) -> Result<()> {
        let Services { app, engine, planner, .. } = services;
        let engine: &Engine = engine;
        let destination = destination(app, planner, self.destination()).await?;
        let removed = match self {
            Self::Copy(copy) => engine.remove(copy.format, &destination, &copy.locator).await,
            Self::Upload(upload) => {
                engine.discard_upload(&destination, &upload.object_key, upload.upload_id.as_deref()).await
            }
        };
        removed.map_err(|error| AppError::busy(error.message))
    }

    async fn note_removed(&self, services: &Services) -> Result<()> {
        let now = services.app.now();
        let mut tx = services.app.store.begin().await?;
        match self {
            Self::Copy(copy) => {
                copies::update_removed(&mut tx, copy, now).await?;
                tx.commit().await?;
                tracing::info!(backup = copy.backup_id.0, key = copy.locator, "removed");
            }
            Self::Upload(upload) => {
                // A worker that lost its run may wake up and still write, and a store may still be joining parts, so
                // the upload is cleared repeatedly for a while.
                let lease = lease_secs(&services.settings);
                let is_over = upload.cleared_at.is_some_and(|first| now >= later(first.0, LATE_WORKER * lease));
                let run = upload.run_id;
                if !is_over {
                    uploads::update_cleared(&mut tx, run, now).await?;
                    return Ok(tx.commit().await?);
                }
                uploads::delete(&mut tx, run).await?;
                tx.commit().await?;
                tracing::info!(run = run.0, key = upload.object_key, "cleared what an unfinished run left behind");
            }
        }
        Ok(())
    }
}
