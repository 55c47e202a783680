//! Accounts elsewhere that users sign in with.

use holdfast_core::Timestamp;
use holdfast_core::ids::UserId;

use crate::{DbTime, Result, Tx};

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct IdentityRow {
    pub id: i64,
    /// Which one, and where: the same name elsewhere is somebody else.
    pub provider: String,
    /// What the provider calls the account; for people.
    pub name: String,
    pub created_at: DbTime,
}

/// `Conflict` when the account belongs to somebody, or the user has one of this provider.
pub async fn insert(
    tx: &mut Tx,
    user: UserId,
    provider: &str,
    subject: &str,
    name: &str,
    now: Timestamp,
) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO identities (user_id, provider, subject, name, created_at) VALUES ($1, $2, $3, $4, $5)",
        user.0,
        provider,
        subject,
        name,
        DbTime(now)
    )?;
    Ok(())
}

pub async fn find_user(tx: &mut Tx, provider: &str, subject: &str) -> Result<Option<UserId>> {
    let sql = "SELECT user_id FROM identities WHERE provider = $1 AND subject = $2";
    let row = fetch_optional!(tx, (i64,), sql, provider, subject)?;
    Ok(row.map(|(id,)| UserId(id)))
}

pub async fn list(tx: &mut Tx, user: UserId) -> Result<Vec<IdentityRow>> {
    fetch_all!(
        tx,
        IdentityRow,
        "SELECT id, provider, name, created_at FROM identities WHERE user_id = $1 ORDER BY provider",
        user.0
    )
}

/// Unlinks everything, as when somebody else may have linked it.
pub async fn delete_all(tx: &mut Tx, user: UserId) -> Result<u64> {
    execute!(tx, "DELETE FROM identities WHERE user_id = $1", user.0)
}

pub async fn delete(tx: &mut Tx, user: UserId, provider: &str) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM identities WHERE user_id = $1 AND provider = $2", user.0, provider)? == 1)
}
