//! Deletes what has expired, and old logs.

use holdfast_app::Result;
use holdfast_core::clock::later;
use holdfast_store::{DbTime, audit, idempotency, notices, runs, sessions, tokens};

use crate::services::Services;

const DAY_SECS: i64 = 86_400;
/// Long enough to look back at what went wrong last month, and at a year of who did what.
const KEEP_CHECKS_DAYS: i64 = 30;
const KEEP_EXPIRED_TOKENS_DAYS: i64 = 30;
const KEEP_AUDIT_DAYS: i64 = 400;
const KEEP_NOTICES_DAYS: i64 = 90;
/// Clients repeat a request within minutes.
const KEEP_KEYS_DAYS: i64 = 1;
/// How many rows are deleted at a time, so that nobody has to wait for it.
const ROWS_AT_ONCE: i64 = 500;

/// `is_time_for_logs` is true only now and then, because finding old logs takes a while.
pub(crate) async fn delete(services: &Services, is_time_for_logs: bool) -> Result<()> {
    let app = &services.app;
    let now = app.now();
    let days_ago = |days: i64| later(now, -days * DAY_SECS);
    let mut tx = app.store.begin().await?;
    sessions::delete_expired(&mut tx, now).await?;
    runs::delete_old_checks_and_inventories(&mut tx, days_ago(KEEP_CHECKS_DAYS), ROWS_AT_ONCE).await?;
    tokens::delete_expired(&mut tx, days_ago(KEEP_EXPIRED_TOKENS_DAYS)).await?;
    audit::delete_before(&mut tx, DbTime(days_ago(KEEP_AUDIT_DAYS)), ROWS_AT_ONCE).await?;
    notices::delete_before(&mut tx, days_ago(KEEP_NOTICES_DAYS), ROWS_AT_ONCE).await?;
    idempotency::delete_before(&mut tx, days_ago(KEEP_KEYS_DAYS), ROWS_AT_ONCE).await?;
    tx.commit().await?;
    let keep = services.settings.keep_logs_days;
    if keep > 0 && is_time_for_logs {
        let mut tx = app.store.begin().await?;
        let gone = runs::delete_old_logs(&mut tx, days_ago(keep.into()), ROWS_AT_ONCE).await?;
        tx.commit().await?;
        if gone > 0 {
            tracing::info!(logs = gone, "old logs were deleted");
        }
    }
    Ok(())
}
