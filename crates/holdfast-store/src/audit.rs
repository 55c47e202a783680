//! Audit events: who did what, from where. Written in the same transaction as the change; they never contain a secret.

use holdfast_core::Timestamp;
use holdfast_core::audit::AuditAction;
use holdfast_core::ids::UserId;
use holdfast_core::page::Page;

use crate::{DbTime, Listing, Result, Tx};

/// Who performed an action; stored with every event.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// `token 7`, `session`, `command line`, `system`.
    pub actor: String,
    pub address: Option<String>,
    pub request_id: Option<String>,
}

row_type! {
    pub struct EventRow {
        id: i64 = "e.id",
        at: DbTime = "e.at",
        /// The account that it concerns. It may have been deleted since.
        user_id: Option<i64> = "e.user_id",
        actor: String = "e.actor",
        /// The word of an `AuditAction`, or of one that only an earlier release recorded.
        action: String = "e.action",
        detail: String = "e.detail",
        address: Option<String> = "e.address",
        request_id: Option<String> = "e.request_id",
    }
}

pub async fn insert(
    tx: &mut Tx,
    at: DbTime,
    user: Option<UserId>,
    origin: &Origin,
    action: AuditAction,
    detail: &str,
) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO audit_events (at, user_id, actor, action, detail, address, request_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        at,
        user.map(|user| user.0),
        &origin.actor,
        action.as_str(),
        detail,
        &origin.address,
        &origin.request_id
    )?;
    Ok(())
}

/// Deletes up to `limit` events from before `before`, but none with an id above `last`.
pub async fn delete_before(tx: &mut Tx, before: DbTime, last: i64, limit: i64) -> Result<u64> {
    let sql = "DELETE FROM audit_events WHERE id IN (SELECT id FROM audit_events WHERE at < $1 AND id <= $2 LIMIT $3)";
    execute!(tx, sql, before, last, limit)
}

/// The events of one user, or of all users, with ids below `before`; newest first.
pub async fn list(tx: &mut Tx, user: Option<UserId>, before: Option<i64>, limit: i64) -> Result<Vec<EventRow>> {
    let before = before.unwrap_or(i64::MAX);
    match user {
        Some(user) => fetch_all!(
            tx,
            EventRow,
            concat!(
                "SELECT ",
                columns!(),
                " FROM audit_events e WHERE e.user_id = $1 AND e.id < $2 ORDER BY e.id DESC LIMIT $3"
            ),
            user.0,
            before,
            limit
        ),
        None => fetch_all!(
            tx,
            EventRow,
            concat!("SELECT ", columns!(), " FROM audit_events e WHERE e.id < $1 ORDER BY e.id DESC LIMIT $2"),
            before,
            limit
        ),
    }
}

/// One page of a user's events.
pub async fn list_page(tx: &mut Tx, listing: &Listing) -> Result<Page<EventRow>> {
    list_page!(
        tx,
        listing,
        "audit_events" as "e" with "", created "e.at", changed "e.at", total Some("subject = 'event'"), ""
    )
}

/// The events of all users from `since` on, with ids above `after`; oldest first.
pub async fn list_since(tx: &mut Tx, since: Timestamp, after: i64, limit: i64) -> Result<Vec<EventRow>> {
    fetch_all!(
        tx,
        EventRow,
        concat!("SELECT ", columns!(), " FROM audit_events e WHERE e.at >= $1 AND e.id > $2 ORDER BY e.id LIMIT $3"),
        DbTime(since),
        after,
        limit
    )
}

/// The addresses a user signed in from, each once, most recent first.
pub async fn list_sign_in_addresses(tx: &mut Tx, user: UserId, limit: i64) -> Result<Vec<String>> {
    let rows = fetch_all!(
        tx,
        (String,),
        "SELECT address FROM audit_events
         WHERE user_id = $1 AND action IN ($2, $3) AND address IS NOT NULL
         GROUP BY address ORDER BY MAX(id) DESC LIMIT $4",
        user.0,
        AuditAction::UserSignedIn.as_str(),
        AuditAction::TokenCreated.as_str(),
        limit
    )?;
    Ok(rows.into_iter().map(|(address,)| address).collect())
}
