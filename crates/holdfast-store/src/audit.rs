//! Audit events: who did what, from where. Written in the same transaction as the change; they never contain a secret.

use holdfast_core::audit::AuditAction;
use holdfast_core::ids::UserId;

use crate::{DbTime, Result, Tx};

/// Who performed an action; stored with every event.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// `token 7`, `session`, `command line`, `system`.
    pub actor: String,
    pub address: Option<String>,
    pub request_id: Option<String>,
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct EventRow {
    pub id: i64,
    pub at: DbTime,
    pub user_id: Option<i64>,
    pub actor: String,
    /// The word of an `AuditAction`, or of one that only an earlier release recorded.
    pub action: String,
    pub detail: String,
    pub address: Option<String>,
    pub request_id: Option<String>,
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

/// Deletes up to `limit` events from before `before`.
pub async fn delete_before(tx: &mut Tx, before: DbTime, limit: i64) -> Result<u64> {
    let sql = "DELETE FROM audit_events WHERE id IN (SELECT id FROM audit_events WHERE at < $1 LIMIT $2)";
    execute!(tx, sql, before, limit)
}

/// The events of one user, or of all users, with ids below `before`; newest first.
pub async fn list(tx: &mut Tx, user: Option<UserId>, before: Option<i64>, limit: i64) -> Result<Vec<EventRow>> {
    let before = before.unwrap_or(i64::MAX);
    match user {
        Some(user) => fetch_all!(
            tx,
            EventRow,
            "SELECT id, at, user_id, actor, action, detail, address, request_id FROM audit_events
             WHERE user_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
            user.0,
            before,
            limit
        ),
        None => fetch_all!(
            tx,
            EventRow,
            "SELECT id, at, user_id, actor, action, detail, address, request_id FROM audit_events
             WHERE id < $1 ORDER BY id DESC LIMIT $2",
            before,
            limit
        ),
    }
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
