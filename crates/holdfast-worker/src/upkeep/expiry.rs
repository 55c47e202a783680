//! Regular upkeep: deletes what has expired and old logs, queues inventories, and verifies every stored backup from
//! time to time, since one that is never read may have become unreadable.

use holdfast_app::Result;
use holdfast_core::run::{RunSubject, Trigger};
use holdfast_store::runs::{self, NewRun};
use holdfast_store::{DbTime, audit, backups, destinations, notices, sessions, tokens};

use crate::services::Services;
use holdfast_core::clock::later;

const DAY_SECS: i64 = 86_400;
/// Long enough to look back at what went wrong last month, and at a year of who did what.
const KEEP_CHECKS_DAYS: i64 = 30;
const KEEP_EXPIRED_TOKENS_DAYS: i64 = 30;
const KEEP_AUDIT_DAYS: i64 = 400;
const KEEP_NOTICES_DAYS: i64 = 90;
/// How long before a token expires its owner is told.
const TOKEN_WARNING_DAYS: i64 = 7;
/// How many tasks or tokens are reported at a time.
const TOLD_AT_ONCE: i64 = 200;
/// How many rows are deleted at a time, so that nobody has to wait for it.
const ROWS_AT_ONCE: i64 = 500;
/// How many inventories are queued at a time.
const COUNTS_AT_ONCE: i64 = 20;
/// How many scheduled verifications run at once across all workers; those that users request come on top.
const READS_AT_ONCE: i64 = 4;

/// `is_time_for_logs` is true only now and then, because finding old logs takes a while.
pub(crate) async fn tidy(services: &Services, is_time_for_logs: bool) -> Result<()> {
    let app = &services.app;
    let now = app.now();
    let days_ago = |days: i64| later(now, -days * DAY_SECS);
    let mut tx = app.store.begin().await?;
    sessions::delete_expired(&mut tx, now).await?;
    runs::delete_old_checks_and_inventories(&mut tx, days_ago(KEEP_CHECKS_DAYS), ROWS_AT_ONCE).await?;
    tokens::delete_expired(&mut tx, days_ago(KEEP_EXPIRED_TOKENS_DAYS)).await?;
    audit::delete_before(&mut tx, DbTime(days_ago(KEEP_AUDIT_DAYS)), ROWS_AT_ONCE).await?;
    notices::delete_before(&mut tx, days_ago(KEEP_NOTICES_DAYS), ROWS_AT_ONCE).await?;
    tx.commit().await?;
    tell_of_tokens(services).await?;
    let keep = services.settings.keep_logs_days;
    if keep > 0 && is_time_for_logs {
        let mut tx = app.store.begin().await?;
        let gone = runs::delete_old_logs(&mut tx, days_ago(keep.into()), ROWS_AT_ONCE).await?;
        tx.commit().await?;
        if gone > 0 {
            tracing::info!(logs = gone, "old logs were deleted");
        }
    }
    queue_verifications(services).await?;
    queue_inventories(services).await
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
    let due = destinations::list_inventory_due(&mut app.store.read().await?, since, COUNTS_AT_ONCE).await?;
    for (destination, owner) in due {
        let mut tx = app.store.begin().await?;
        if destinations::find_locked(&mut tx, destination).await?.is_none() {
            continue;
        }
        // Another process may have been faster.
        if !destinations::list_inventory_due(&mut tx, since, COUNTS_AT_ONCE).await?.contains(&(destination, owner)) {
            continue;
        }
        let new = NewRun::asked_for(owner, RunSubject::Inventory(destination), Trigger::Schedule);
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
    let room = READS_AT_ONCE - runs::count_verifying(&mut tx).await?;
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
        let new = NewRun::asked_for(owner, RunSubject::Verify(backup), Trigger::Schedule);
        runs::insert(&mut tx, &new, now).await?;
        runs::announce(&mut tx).await?;
        tx.commit().await?;
        app.wake_worker();
    }
    Ok(())
}

/// Reports tasks that have had no success for too long; of several processes, the first one to look does so.
pub(crate) async fn tell_of_overdue(services: &Services) -> Result<()> {
    let app = &services.app;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    for row in notices::list_overdue(&mut tx, now, TOLD_AT_ONCE).await? {
        services.outbox.overdue(&mut tx, &row, now).await?;
    }
    tx.commit().await?;
    app.wake_dispatcher();
    Ok(())
}

async fn tell_of_tokens(services: &Services) -> Result<()> {
    let app = &services.app;
    let now = app.now();
    let before = later(now, TOKEN_WARNING_DAYS * DAY_SECS);
    let expiring = notices::list_expiring_tokens(&mut app.store.read().await?, now, before, TOLD_AT_ONCE).await?;
    for token in expiring {
        let mut tx = app.store.begin().await?;
        services.outbox.token_expires(&mut tx, &token, now).await?;
        tx.commit().await?;
        app.wake_dispatcher();
    }
    Ok(())
}
