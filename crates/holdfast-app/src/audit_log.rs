//! The audit log: lists of it, and events of commands that change nothing else that a use case could record.

use std::time::Duration;

use holdfast_core::Timestamp;
use holdfast_core::audit::AuditAction;
use holdfast_core::clock::later;
use holdfast_core::page::Page;
use holdfast_store::audit::{self, EventRow};
use holdfast_store::{Listing, audit_export};
use tokio::time::Instant;

use crate::{App, AppError, Origin, Result};

/// Events that are read at a time, so that a long log need not be in memory.
const PIECE: i64 = 1000;

/// A page of the owner's events.
pub async fn list(app: &App, listing: &Listing) -> Result<Page<EventRow>> {
    Ok(audit::list_page(&mut app.store.read().await?, listing).await?)
}

/// Passes the events of all accounts to `take`, oldest first, for the operator of the machine.
pub async fn read_all(app: &App, since: Timestamp, mut take: impl FnMut(EventRow)) -> Result<()> {
    let mut after = i64::MIN;
    loop {
        let rows = audit::list_since(&mut app.store.read().await?, since, after, PIECE).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.id;
        rows.into_iter().for_each(&mut take);
    }
}

/// How long a process that exports events keeps others from doing so.
const CLAIM_SECS: i64 = 60;
/// How long an export waits for transactions that are writing events.
const SETTLE: Duration = Duration::from_secs(5);
const SETTLE_STEP: Duration = Duration::from_millis(20);

/// Events to be exported, and the last one that was exported before.
pub struct Waiting {
    pub after: i64,
    pub events: Vec<EventRow>,
}

/// The next events to be exported, oldest first; `None` if another process exports them.
pub async fn find_waiting(app: &App, name: &str, limit: i64) -> Result<Option<Waiting>> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    if !audit_export::claim(&mut tx, name, later(now, CLAIM_SECS), now).await? {
        return Ok(None);
    }
    tx.commit().await?;
    let settled = find_settled(app).await?;
    let mut tx = app.store.read().await?;
    let after = audit_export::find_after(&mut tx).await?;
    let events = audit_export::list(&mut tx, after, settled, limit).await?;
    Ok(Some(Waiting { after, events }))
}

/// Whether there is an event that was not exported.
pub async fn is_waiting(app: &App) -> Result<bool> {
    Ok(audit_export::find_oldest_waiting(&mut app.store.read().await?).await?.is_some())
}

/// An event before which none can appear any more.
async fn find_settled(app: &App) -> Result<i64> {
    let newest = audit_export::find_newest(&mut app.store.read().await?).await?;
    let mut writing = audit_export::list_writing(&mut app.store.read().await?).await?;
    let deadline = Instant::now() + SETTLE;
    while !writing.is_empty() {
        if Instant::now() >= deadline {
            return Err(AppError::busy("a transaction that writes to the audit log does not end"));
        }
        tokio::time::sleep(SETTLE_STEP).await;
        let still = audit_export::list_writing(&mut app.store.read().await?).await?;
        writing.retain(|id| still.contains(id));
    }
    Ok(newest)
}

/// Records that these events were exported. Returns false if another process has exported them, too.
pub async fn note_written(app: &App, waiting: &Waiting) -> Result<bool> {
    let Some(last) = waiting.events.last() else { return Ok(true) };
    let mut tx = app.store.begin().await?;
    let is_own = audit_export::advance(&mut tx, waiting.after, last.id).await?;
    if audit_export::find_problem(&mut tx).await?.is_some() {
        audit_export::write_problem(&mut tx, "").await?;
    }
    tx.commit().await?;
    Ok(is_own)
}

/// Records why events cannot be exported.
pub async fn note_problem(app: &App, problem: &str) -> Result<()> {
    let mut tx = app.store.begin().await?;
    audit_export::write_problem(&mut tx, problem).await?;
    Ok(tx.commit().await?)
}

/// Lets another process export at once.
pub async fn release(app: &App, name: &str) -> Result<()> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    audit_export::claim(&mut tx, name, now, now).await?;
    Ok(tx.commit().await?)
}

/// Why events cannot be exported, and for how many seconds the oldest has waited.
pub async fn find_state(app: &App) -> Result<(Option<String>, i64)> {
    let mut tx = app.store.read().await?;
    let oldest = audit_export::find_oldest_waiting(&mut tx).await?;
    let waits = oldest.map_or(0, |at| (app.now().as_second() - at.0.as_second()).max(0));
    Ok((audit_export::find_problem(&mut tx).await?, waits))
}

/// Records that somebody exported everything of this many accounts.
pub async fn note_export(app: &App, origin: &Origin, accounts: usize) -> Result<()> {
    note(app, origin, AuditAction::InstallationExported, &format!("{accounts} accounts")).await
}

/// Records that the master key was replaced, and how many secrets were sealed again.
pub async fn note_key_rotation(app: &App, origin: &Origin, resealed: u64) -> Result<()> {
    note(app, origin, AuditAction::MasterKeyRotated, &format!("{resealed} secrets")).await
}

async fn note(app: &App, origin: &Origin, action: AuditAction, detail: &str) -> Result<()> {
    let mut tx = app.store.begin().await?;
    app.audit_as(&mut tx, None, origin, action, detail).await?;
    Ok(tx.commit().await?)
}
