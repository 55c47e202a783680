//! Accounts at external identity providers that users sign in with.

use holdfast_core::Timestamp;
use holdfast_core::ids::UserId;

use crate::{DbTime, Result, Tx};

named_row! {
    #[derive(Debug, Clone)]
    pub struct IdentityRow {
        pub id: i64,
        /// Which provider, and where: the same account at another address is somebody else's.
        pub provider: String,
        /// The provider's name for the account; for display only.
        pub name: String,
        pub created_at: DbTime,
    }
}

/// Fails with `Conflict` if the account is already linked to a user, or the user already has one of this provider.
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

/// Unlinks all of a user's accounts, for example because somebody else may have linked one.
pub async fn delete_all(tx: &mut Tx, user: UserId) -> Result<u64> {
    execute!(tx, "DELETE FROM identities WHERE user_id = $1", user.0)
}

pub async fn delete(tx: &mut Tx, user: UserId, provider: &str) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM identities WHERE user_id = $1 AND provider = $2", user.0, provider)? == 1)
}
