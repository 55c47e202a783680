//! API tokens. Only the digest of a token is stored.

use holdfast_core::Timestamp;
use holdfast_core::ids::{TokenId, UserId};
use holdfast_core::scope::ScopeSet;

use crate::{DbTime, Result, Tx};

named_row! {
    #[derive(Debug, Clone)]
    pub struct TokenRow {
        pub id: TokenId,
        pub user_id: UserId,
        pub name: String,
        pub scopes: String,
        pub expires_at: Option<DbTime>,
        pub last_used_at: Option<DbTime>,
        pub created_at: DbTime,
    }
}

named_row! {
    /// Everything a request with a token needs, in one row.
    #[derive(Debug, Clone)]
    pub struct CallerRow {
        pub token_id: TokenId,
        pub user_id: UserId,
        pub scopes: String,
        pub expires_at: Option<DbTime>,
        pub timezone: String,
        pub is_admin: bool,
    }
}

pub struct NewToken<'a> {
    pub user: UserId,
    pub name: &'a str,
    pub digest: [u8; 32],
    pub scopes: ScopeSet,
    pub expires_at: Option<Timestamp>,
}

pub async fn insert(tx: &mut Tx, token: &NewToken<'_>, now: Timestamp) -> Result<TokenId> {
    let id = fetch_scalar!(
        tx,
        i64,
        "INSERT INTO api_tokens (user_id, name, digest, scopes, expires_at, created_at)
         VALUES ($1, $2, $3, $4, $5, $6) RETURNING id",
        token.user.0,
        token.name,
        token.digest.to_vec(),
        token.scopes.to_text(),
        token.expires_at.map(DbTime),
        DbTime(now)
    )?;
    Ok(TokenId(id))
}

pub async fn find_caller(tx: &mut Tx, digest: &[u8; 32]) -> Result<Option<CallerRow>> {
    fetch_optional!(
        tx,
        CallerRow,
        "SELECT t.id AS token_id, t.user_id, t.scopes, t.expires_at, u.timezone, u.is_admin
         FROM api_tokens t JOIN users u ON u.id = t.user_id WHERE t.digest = $1 AND u.suspended_at IS NULL",
        digest.to_vec()
    )
}

pub async fn list(tx: &mut Tx, user: UserId) -> Result<Vec<TokenRow>> {
    fetch_all!(
        tx,
        TokenRow,
        "SELECT id, user_id, name, scopes, expires_at, last_used_at, created_at FROM api_tokens
         WHERE user_id = $1 ORDER BY id",
        user.0
    )
}

/// Revokes one of the user's tokens. Returns false if they have no such token.
pub async fn delete(tx: &mut Tx, user: UserId, id: TokenId) -> Result<bool> {
    let deleted = execute!(tx, "DELETE FROM api_tokens WHERE id = $1 AND user_id = $2", id.0, user.0)? == 1;
    bump_epoch(tx).await?;
    Ok(deleted)
}

/// Revokes all of the user's tokens. Returns how many there were.
pub async fn delete_all(tx: &mut Tx, user: UserId) -> Result<u64> {
    let deleted = execute!(tx, "DELETE FROM api_tokens WHERE user_id = $1", user.0)?;
    bump_epoch(tx).await?;
    Ok(deleted)
}

/// A number that increases with every change that revokes a token or alters its user.
pub async fn find_epoch(tx: &mut Tx) -> Result<i64> {
    fetch_scalar!(tx, i64, "SELECT epoch FROM token_epoch")
}

pub(crate) async fn bump_epoch(tx: &mut Tx) -> Result<()> {
    execute!(tx, "UPDATE token_epoch SET epoch = epoch + 1")?;
    Ok(())
}

/// Deletes tokens that expired before `before`.
pub async fn delete_expired(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    execute!(tx, "DELETE FROM api_tokens WHERE expires_at < $1", DbTime(before))
}

pub async fn update_last_used(tx: &mut Tx, id: TokenId, at: Timestamp) -> Result<()> {
    execute!(tx, "UPDATE api_tokens SET last_used_at = $1 WHERE id = $2", DbTime(at), id.0)?;
    Ok(())
}
