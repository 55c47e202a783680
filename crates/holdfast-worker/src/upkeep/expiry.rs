//! Deletes what has expired: old logs, records of removed backups, notices, audit events and so on.

use std::time::Duration;

use holdfast_app::Result;
use holdfast_core::Timestamp;
use holdfast_core::clock::later;
use holdfast_store::runs::{EndedPosition, LogSearch};
use holdfast_store::{
    DbTime, StoreError, Tx, audit, audit_export, backups, events, idempotency, notices, repositories, runs, sessions,
    tokens, totals,
};
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
    RemovedRepositories,
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
        Self::RemovedRepositories,
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
            Self::RemovedBackups | Self::RemovedRepositories => settings.keep_removed_days,
        }
    }

    /// Sessions have their own time of expiry.
    fn is_kept_forever(self, settings: &Settings) -> bool {
        self != Self::Sessions && self.days(settings) == 0
    }

    /// Deletes a batch, and returns how many rows that were.
    async fn delete(self, tx: &mut Tx, before: Timestamp, now: Timestamp) -> std::result::Result<u64, StoreError> {
        match self {
            Self::Sessions => sessions::delete_expired(tx, before).await.map(|_| 0),
            Self::Tokens => tokens::delete_expired(tx, before).await.map(|_| 0),
            Self::IdempotencyKeys => idempotency::delete_before(tx, before, ROWS_AT_ONCE).await,
            Self::Events => events::delete_before(tx, before, ROWS_AT_ONCE).await,
            Self::Checks => runs::delete_old_checks(tx, before, ROWS_AT_ONCE).await,
            Self::AuditEvents => {
                let last = audit_export::find_deletable(tx, now).await?;
                audit::delete_before(tx, DbTime(before), last, ROWS_AT_ONCE).await
            }
            Self::Notices => notices::delete_before(tx, before, ROWS_AT_ONCE).await,
            Self::RemovedBackups => backups::delete_removed(tx, before, ROWS_AT_ONCE).await,
            Self::RemovedRepositories => repositories::delete_removed(tx, before, ROWS_AT_ONCE).await,
        }
    }
}

/// Where the search for old logs stands; `None` if there is none.
pub(crate) type LogPosition = Option<EndedPosition>;

/// Deletes what has expired, as far as there is time. Old logs are searched from `logs` on; returns where to continue.
pub(crate) async fn delete(services: &Services, logs: LogPosition) -> Result<LogPosition> {
    let (app, settings) = (&services.app, &services.settings);
    let now = app.now();
    let deadline = Instant::now() + BUDGET;
    for what in Expiring::ALL {
        if what.is_kept_forever(settings) {
            continue;
        }
        let before = later(now, -i64::from(what.days(settings)) * DAY_SECS);
        let mut total = 0;
        // At least one batch of each, however long the others take.
        loop {
            let mut tx = app.store.begin().await?;
            tx.plan_for_values().await?;
            let gone = what.delete(&mut tx, before, now).await?;
            tx.commit().await?;
            total += gone;
            if gone < ROWS_AT_ONCE.unsigned_abs() || Instant::now() >= deadline {
                break;
            }
        }
        if total > 0 {
            tracing::info!(?what, rows = total, "deleted what has expired");
        }
    }
    let logs = delete_logs(services, logs, deadline).await?;
    loop {
        let mut tx = app.store.begin().await?;
        let has_more = holdfast_store::shrink(&mut tx).await?;
        tx.commit().await?;
        if !has_more || Instant::now() >= deadline {
            break;
        }
    }
    Ok(logs)
}

/// Deletes old logs from a position on, until there is no more time or no more of them.
async fn delete_logs(services: &Services, mut position: LogPosition, deadline: Instant) -> Result<LogPosition> {
    let (app, days) = (&services.app, services.settings.keep_logs_days);
    if days == 0 {
        return Ok(None);
    }
    let before = later(app.now(), -i64::from(days) * DAY_SECS);
    let mut total = 0;
    while let Some(from) = position {
        let mut tx = app.store.begin().await?;
        tx.plan_for_values().await?;
        let LogSearch { deleted, next } = runs::delete_old_logs(&mut tx, before, from, ROWS_AT_ONCE).await?;
        tx.commit().await?;
        total += deleted;
        position = next;
        if Instant::now() >= deadline {
            break;
        }
    }
    if total > 0 {
        tracing::info!(rows = total, "deleted old logs");
    }
    Ok(position)
}

/// Adds up what has changed since the last time, so that reading totals stays quick.
pub(crate) async fn fold_totals(services: &Services) -> Result<()> {
    let mut tx = services.app.store.begin().await?;
    totals::fold(&mut tx).await?;
    Ok(tx.commit().await?)
}
