//! Queues what is due for stored backups: verifications of backups that have not been read for a long time, which may
//! have become unreadable, inventories of destinations, and checks and prunes of repositories.

use holdfast_app::Result;
use holdfast_core::clock::later;
use holdfast_core::ids::UserId;
use holdfast_core::run::{RunSubject, Trigger};
use holdfast_store::repositories::DueLimits;
use holdfast_store::runs::{self, NewRun};
use holdfast_store::{backups, destinations, repositories};

use crate::runs::PARTS;
use crate::services::Services;

const DAY_SECS: i64 = 86_400;
/// How many inventories are queued at a time.
const INVENTORIES_AT_ONCE: i64 = 20;
/// How many prunes and checks of repositories are queued at a time.
const PRUNES_AT_ONCE: i64 = 20;
const CHECKS_AT_ONCE: i64 = 4;
/// A repository is pruned at once if removed backups have left more than this share of it.
const MOST_GARBAGE_PERCENT: i64 = 20;
/// The wait after a prune, whether it succeeded or not.
const PRUNE_AGAIN_SECS: i64 = DAY_SECS;
/// How many scheduled verifications run at once across all workers; those that users request come on top.
const VERIFICATIONS_AT_ONCE: i64 = 4;

pub(crate) async fn queue(services: &Services) -> Result<()> {
    queue_verifications(services).await?;
    queue_inventories(services).await?;
    queue_prunes(services).await?;
    queue_repository_checks(services).await
}

/// Queues a prune of every repository in which something may be needed by no snapshot for long, or much of it.
async fn queue_prunes(services: &Services) -> Result<()> {
    let days = i64::from(services.settings.prune_days);
    if days == 0 {
        return Ok(());
    }
    let now = services.app.now();
    let due = DueLimits {
        garbage_before: later(now, -days * DAY_SECS),
        garbage_percent: MOST_GARBAGE_PERCENT,
        tried_before: later(now, -PRUNE_AGAIN_SECS),
        limit: PRUNES_AT_ONCE,
    };
    let found = repositories::list_to_prune(&mut services.app.store.read().await?, due).await?;
    for (repository, owner) in found {
        queue_maintenance(services, owner, RunSubject::Prune(repository)).await?;
    }
    Ok(())
}

/// Queues a check of every repository, so that all packs have been read within the time for verifications.
async fn queue_repository_checks(services: &Services) -> Result<()> {
    let days = i64::from(services.settings.verify_days);
    if days == 0 {
        return Ok(());
    }
    let now = services.app.now();
    let before = later(now, -(days * DAY_SECS * 9 / 10 / i64::from(PARTS)));
    let found = repositories::list_to_check(&mut services.app.store.read().await?, before, CHECKS_AT_ONCE).await?;
    for (repository, owner) in found {
        queue_maintenance(services, owner, RunSubject::CheckRepository(repository)).await?;
    }
    Ok(())
}

async fn queue_maintenance(services: &Services, owner: UserId, subject: RunSubject) -> Result<()> {
    let app = &services.app;
    let mut tx = app.store.begin().await?;
    let Some(id) = subject.repository() else { return Ok(()) };
    // Another process may have been faster.
    if repositories::find_locked(&mut tx, id).await?.is_none() || repositories::is_in_maintenance(&mut tx, id).await? {
        return Ok(());
    }
    repositories::note_tried(&mut tx, id, matches!(subject, RunSubject::Prune(_)), app.now()).await?;
    runs::insert(&mut tx, &NewRun::new(owner, subject, Trigger::Schedule), app.now()).await?;
    runs::announce(&mut tx).await?;
    tx.commit().await?;
    app.wake_worker();
    Ok(())
}

/// Queues an inventory of every destination that has had none for a while, so that what a bucket's rule or a person
/// removed there is noticed before it is needed.
async fn queue_inventories(services: &Services) -> Result<()> {
    let days = i64::from(services.settings.inventory_days);
    if days == 0 {
        return Ok(());
    }
    let app = &services.app;
    let now = app.now();
    let since = later(now, -days * DAY_SECS);
    let due = destinations::list_inventory_due(&mut app.store.read().await?, since, INVENTORIES_AT_ONCE).await?;
    for (destination, owner) in due {
        let mut tx = app.store.begin().await?;
        if destinations::find_locked(&mut tx, destination).await?.is_none() {
            continue;
        }
        // Another process may have been faster.
        if !destinations::list_inventory_due(&mut tx, since, INVENTORIES_AT_ONCE).await?.contains(&(destination, owner))
        {
            continue;
        }
        let new = NewRun::new(owner, RunSubject::Inventory(destination), Trigger::Schedule);
        runs::insert(&mut tx, &new, now).await?;
        runs::announce(&mut tx).await?;
        tx.commit().await?;
        app.wake_worker();
    }
    Ok(())
}

/// Queues the verification of backups that are due, unless other runs of their owner are waiting. Starts a little
/// early, so that none is late.
async fn queue_verifications(services: &Services) -> Result<()> {
    let days = i64::from(services.settings.verify_days);
    if days == 0 {
        return Ok(());
    }
    let app = &services.app;
    let now = app.now();
    let mut tx = app.store.read().await?;
    let room = VERIFICATIONS_AT_ONCE - runs::count_verifying(&mut tx).await?;
    if room <= 0 {
        return Ok(());
    }
    let before = later(now, -(days * DAY_SECS * 9 / 10));
    let unread = backups::list_unread(&mut tx, before, later(now, -DAY_SECS), room).await?;
    drop(tx);
    for (backup, owner) in unread {
        let mut tx = app.store.begin().await?;
        // Another process, or retention, may have been faster.
        let found = backups::find_locked(&mut tx, backup).await?.filter(|row| row.deleted_at.is_none());
        if found.is_none() || backups::is_in_use(&mut tx, backup).await? {
            continue;
        }
        let new = NewRun::new(owner, RunSubject::Verify(backup), Trigger::Schedule);
        runs::insert(&mut tx, &new, now).await?;
        runs::announce(&mut tx).await?;
        tx.commit().await?;
        app.wake_worker();
    }
    Ok(())
}
