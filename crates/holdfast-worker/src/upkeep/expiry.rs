//! What nobody asks for and everybody expects: what expired goes, old logs go, and every stored backup is read again
//! from time to time, since a backup that nobody reads may not be one any more.

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
/// How long before its end somebody hears of a token's.
const TOKEN_WARNING_DAYS: i64 = 7;
/// Tasks and tokens that are told of in one look.
const TOLD_AT_ONCE: i64 = 200;
/// Rows that go in one step, so that nobody waits for it.
const ROWS_AT_ONCE: i64 = 500;
/// Destinations that are queued for a look in one step.
const COUNTS_AT_ONCE: i64 = 20;
/// Backups that are read at once for this, over all workers; people's own verifications come on top.
const READS_AT_ONCE: i64 = 4;

/// `is_time_for_logs` is true now and then: to find old ones takes a while.
pub(crate) async fn tidy(services: &Services, is_time_for_logs: bool) -> Result<()> {
    let app = &services.app;
    let now = app.now();
    let days_ago = |days: i64| later(now, -days * DAY_SECS);
    let mut tx = app.store.begin().await?;
    sessions::delete_expired(&mut tx, now).await?;
    runs::delete_old_checks(&mut tx, days_ago(KEEP_CHECKS_DAYS), ROWS_AT_ONCE).await?;
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
    read_again(services).await?;
    count_again(services).await
}

/// Queues a look at every destination whose backups nobody has looked for in a while: what a rule of a bucket or a person
/// removed there is noticed before it is needed.
async fn count_again(services: &Services) -> Result<()> {
    let days = i64::from(services.settings.inventory_days);
    if days == 0 {
        return Ok(());
    }
    let app = &services.app;
    let now = app.now();
    let since = later(now, -days * DAY_SECS);
    let due = destinations::list_uncounted(&mut app.store.read().await?, since, COUNTS_AT_ONCE).await?;
    for (destination, owner) in due {
        let mut tx = app.store.begin().await?;
        if destinations::find_locked(&mut tx, destination).await?.is_none() {
            continue;
        }
        // Another process may have been faster.
        if !destinations::list_uncounted(&mut tx, since, COUNTS_AT_ONCE).await?.contains(&(destination, owner)) {
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

/// Queues the reading of backups whose time has come, as long as nothing more important of their owner waits. Started a
/// little early, so that none is late.
async fn read_again(services: &Services) -> Result<()> {
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
        // Another process may have been faster, and retention too.
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

/// Tells of tasks that have had no success for too long: whoever lives first says so.
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
