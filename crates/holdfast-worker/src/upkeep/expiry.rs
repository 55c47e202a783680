//! Deletes what has expired: old logs, records of removed backups, notices, audit events and so on.

use std::time::Duration;

use holdfast_app::Result;
use holdfast_core::Timestamp;
use holdfast_core::clock::later;
use holdfast_store::{DbTime, StoreError, Tx, audit, backups, events, idempotency, notices, runs, sessions, tokens};
use tokio::time::Instant;

use crate::services::Services;
use crate::settings::Settings;

const DAY_SECS: i64 = 86_400;
const KEEP_EXPIRED_TOKENS_DAYS: u32 = 30;
/// Clients repeat a request within minutes.
const KEEP_KEYS_DAYS: u32 = 1;
/// A client that was away for longer reads the lists again.
const KEEP_EVENTS_DAYS: u32 = 1;
/// How many rows are deleted at a time, so that nobody has to wait for it.
const ROWS_AT_ONCE: i64 = 500;
/// How long one pass may take. There is a pass every minute, so this keeps pace with millions of rows a day.
const BUDGET: Duration = Duration::from_secs(2);

/// What expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expiring {
    Sessions,
    Tokens,
    IdempotencyKeys,
    Events,
    Checks,
    AuditEvents,
    Notices,
    RemovedBackups,
    Logs,
}

impl Expiring {
    const ALL: [Self; 9] = [
        Self::Sessions,
        Self::Tokens,
        Self::IdempotencyKeys,
        Self::Events,
        Self::Checks,
        Self::AuditEvents,
        Self::Notices,
        Self::RemovedBackups,
        Self::Logs,
    ];

    /// For how many days it is kept; zero keeps it forever.
    fn days(self, settings: &Settings) -> u32 {
        match self {
            Self::Sessions => 0,
            Self::Tokens => KEEP_EXPIRED_TOKENS_DAYS,
            Self::IdempotencyKeys => KEEP_KEYS_DAYS,
            Self::Events => KEEP_EVENTS_DAYS,
            Self::Checks => settings.keep_checks_days,
            Self::AuditEvents => settings.keep_audit_days,
            Self::Notices => settings.keep_notices_days,
            Self::RemovedBackups => settings.keep_removed_days,
            Self::Logs => settings.keep_logs_days,
        }
    }

    /// Sessions have their own time of expiry.
    fn is_kept_forever(self, settings: &Settings) -> bool {
        self != Self::Sessions && self.days(settings) == 0
    }

    /// Deletes a batch, and returns how many rows that were.
    async fn delete(self, tx: &mut Tx, before: Timestamp) -> std::result::Result<u64, StoreError> {
        match self {
            Self::Sessions => sessions::delete_expired(tx, before).await.map(|_| 0),
            Self::Tokens => tokens::delete_expired(tx, before).await.map(|_| 0),
            Self::IdempotencyKeys => idempotency::delete_before(tx, before, ROWS_AT_ONCE).await,
            Self::Events => events::delete_before(tx, before, ROWS_AT_ONCE).await,
            Self::Checks => runs::delete_old_checks_and_inventories(tx, before, ROWS_AT_ONCE).await,
            Self::AuditEvents => audit::delete_before(tx, DbTime(before), ROWS_AT_ONCE).await,
            Self::Notices => notices::delete_before(tx, before, ROWS_AT_ONCE).await,
            Self::RemovedBackups => backups::delete_removed(tx, before, ROWS_AT_ONCE).await,
            Self::Logs => runs::delete_old_logs(tx, before, ROWS_AT_ONCE).await,
        }
    }
}

/// Deletes what has expired, as far as there is time. Old logs are looked for only if `is_time_for_logs`, because
/// finding them takes a while. Returns whether there are more of them.
pub(crate) async fn delete(services: &Services, is_time_for_logs: bool) -> Result<bool> {
    let (app, settings) = (&services.app, &services.settings);
    let now = app.now();
    let deadline = Instant::now() + BUDGET;
    let mut has_more_logs = false;
    for what in Expiring::ALL {
        if what.is_kept_forever(settings) || what == Expiring::Logs && !is_time_for_logs {
            continue;
        }
        let before = later(now, -i64::from(what.days(settings)) * DAY_SECS);
        let mut total = 0;
        // At least one batch of each, however long the others take.
        loop {
            let mut tx = app.store.begin().await?;
            let gone = what.delete(&mut tx, before).await?;
            tx.commit().await?;
            total += gone;
            let is_batch_full = gone >= ROWS_AT_ONCE.unsigned_abs();
            if what == Expiring::Logs {
                has_more_logs = is_batch_full;
            }
            if !is_batch_full || Instant::now() >= deadline {
                break;
            }
        }
        if total > 0 {
            tracing::info!(?what, rows = total, "deleted what has expired");
        }
    }
    loop {
        let mut tx = app.store.begin().await?;
        let has_more = holdfast_store::shrink(&mut tx).await?;
        tx.commit().await?;
        if !has_more || Instant::now() >= deadline {
            break;
        }
    }
    Ok(has_more_logs)
}
