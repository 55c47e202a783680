//! What nobody asks for and everybody expects: what expired goes, old logs go, and every stored backup is read again
//! from time to time, since a backup that nobody reads may not be one any more.

use holdfast_app::Result;
use holdfast_core::run::Trigger;
use holdfast_store::runs::{self, NewRun, Subject};
use holdfast_store::{At, audit, backups, sessions, tokens};

use crate::execute::Executor;
use crate::scheduler::later;

const DAY_SECS: i64 = 86_400;
/// Long enough to look back at what went wrong last month, and at a year of who did what.
const KEEP_CHECKS_DAYS: i64 = 30;
const KEEP_EXPIRED_TOKENS_DAYS: i64 = 30;
const KEEP_AUDIT_DAYS: i64 = 400;
/// Logs that go in one step, so that nobody waits for it.
const LOGS_AT_ONCE: i64 = 500;
/// Backups that are sent to be read in one step.
const READS_AT_ONCE: i64 = 10;

pub(crate) async fn tidy(executor: &Executor) -> Result<()> {
    let app = &executor.app;
    let now = app.now();
    let days_ago = |days: i64| later(now, -days * DAY_SECS);
    let mut tx = app.store.begin().await?;
    sessions::delete_expired(&mut tx, now).await?;
    runs::delete_old_checks(&mut tx, days_ago(KEEP_CHECKS_DAYS)).await?;
    tokens::delete_expired(&mut tx, days_ago(KEEP_EXPIRED_TOKENS_DAYS)).await?;
    audit::delete_before(&mut tx, At(days_ago(KEEP_AUDIT_DAYS))).await?;
    let keep = executor.settings.keep_logs_days;
    if keep > 0 {
        let gone = runs::delete_old_logs(&mut tx, days_ago(keep.into()), LOGS_AT_ONCE).await?;
        if gone > 0 {
            tracing::info!(logs = gone, "old logs were deleted");
        }
    }
    tx.commit().await?;
    read_again(executor).await
}

/// Queues the reading of backups whose time has come. Started a little early, so that none is late.
async fn read_again(executor: &Executor) -> Result<()> {
    let days = i64::from(executor.settings.verify_days);
    if days == 0 {
        return Ok(());
    }
    let app = &executor.app;
    let now = app.now();
    let before = later(now, -(days * DAY_SECS * 9 / 10));
    let mut tx = app.store.begin().await?;
    let mut owners = Vec::new();
    for (backup, owner) in backups::list_unread(&mut tx, before, READS_AT_ONCE).await? {
        if !owners.contains(&owner) {
            owners.push(owner);
            let new = NewRun::asked_for(owner, Subject::Verify(backup), Trigger::Schedule);
            runs::insert(&mut tx, &new, now).await?;
        }
    }
    if !owners.is_empty() {
        runs::announce(&mut tx).await?;
    }
    tx.commit().await?;
    app.wake_worker();
    Ok(())
}
