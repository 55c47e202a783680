//! The audit log: lists of it, and events of commands that change nothing else that a use case could record.

use holdfast_core::Timestamp;
use holdfast_core::audit::AuditAction;
use holdfast_core::page::Page;
use holdfast_store::Listing;
use holdfast_store::audit::{self, EventRow};

use crate::{App, Origin, Result};

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
