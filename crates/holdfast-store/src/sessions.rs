//! Browser sessions and one-time sign-in links. Only digests of either are stored.

use holdfast_core::Timestamp;
use holdfast_core::ids::UserId;
use holdfast_core::user::LinkPurpose;

use crate::{DbTime, Result, Tx};

/// A browser that signs in.
pub struct NewSession<'a> {
    pub user: UserId,
    pub digest: [u8; 32],
    /// What the browser identifies itself as.
    pub device: &'a str,
    pub address: Option<&'a str>,
    pub expires_at: Timestamp,
}

named_row! {
    #[derive(Debug, Clone)]
    pub struct SessionRow {
        pub id: i64,
        pub digest: Vec<u8>,
        pub device: String,
        pub address: Option<String>,
        pub seen_at: DbTime,
        pub created_at: DbTime,
    }
}

pub async fn insert(tx: &mut Tx, new: &NewSession<'_>, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO sessions (user_id, digest, device, address, expires_at, created_at, seen_at)
         VALUES ($1, $2, $3, $4, $5, $6, $6)",
        new.user.0,
        new.digest.to_vec(),
        new.device,
        new.address,
        DbTime(new.expires_at),
        DbTime(now)
    )?;
    Ok(())
}

/// A user's sessions, most recently seen first.
pub async fn list(tx: &mut Tx, user: UserId, now: Timestamp) -> Result<Vec<SessionRow>> {
    fetch_all!(
        tx,
        SessionRow,
        "SELECT id, digest, device, address, seen_at, created_at FROM sessions
         WHERE user_id = $1 AND expires_at > $2 ORDER BY seen_at DESC, id DESC",
        user.0,
        DbTime(now)
    )
}

/// Records that a session is in use; not needed for every request.
pub async fn update_seen(tx: &mut Tx, digest: &[u8; 32], address: Option<&str>, now: Timestamp) -> Result<()> {
    let sql = "UPDATE sessions SET seen_at = $1, address = $2 WHERE digest = $3";
    execute!(tx, sql, DbTime(now), address, digest.to_vec())?;
    Ok(())
}

pub async fn delete_one(tx: &mut Tx, user: UserId, id: i64) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM sessions WHERE id = $1 AND user_id = $2", id, user.0)? == 1)
}

/// Signs a user out everywhere except in this session.
pub async fn delete_others(tx: &mut Tx, user: UserId, digest: &[u8; 32]) -> Result<u64> {
    execute!(tx, "DELETE FROM sessions WHERE user_id = $1 AND digest <> $2", user.0, digest.to_vec())
}

/// The user of a session that has not expired, and when it was last seen.
pub async fn find_user(tx: &mut Tx, digest: &[u8; 32], now: Timestamp) -> Result<Option<(UserId, Timestamp)>> {
    let row = fetch_optional!(
        tx,
        (i64, DbTime),
        "SELECT user_id, seen_at FROM sessions WHERE digest = $1 AND expires_at > $2",
        digest.to_vec(),
        DbTime(now)
    )?;
    Ok(row.map(|(id, seen_at)| (UserId(id), seen_at.0)))
}

/// Invalidates all sign-in links that were sent to a user.
pub async fn delete_links(tx: &mut Tx, user: UserId) -> Result<()> {
    execute!(tx, "DELETE FROM sign_in_links WHERE user_id = $1", user.0)?;
    Ok(())
}

pub async fn delete(tx: &mut Tx, digest: &[u8; 32]) -> Result<()> {
    execute!(tx, "DELETE FROM sessions WHERE digest = $1", digest.to_vec())?;
    Ok(())
}

/// Signs a user out everywhere.
pub async fn delete_all(tx: &mut Tx, user: UserId) -> Result<u64> {
    execute!(tx, "DELETE FROM sessions WHERE user_id = $1", user.0)
}

/// Stores a new link and invalidates the user's earlier ones.
pub async fn replace_link(
    tx: &mut Tx,
    user: UserId,
    purpose: LinkPurpose,
    digest: &[u8; 32],
    expires_at: Timestamp,
    now: Timestamp,
) -> Result<()> {
    execute!(tx, "DELETE FROM sign_in_links WHERE user_id = $1", user.0)?;
    execute!(
        tx,
        "INSERT INTO sign_in_links (digest, user_id, purpose, expires_at, created_at) VALUES ($1, $2, $3, $4, $5)",
        digest.to_vec(),
        user.0,
        purpose.as_str(),
        DbTime(expires_at),
        DbTime(now)
    )?;
    Ok(())
}

/// The user and the purpose of a link that has not expired.
pub async fn find_link(tx: &mut Tx, digest: &[u8; 32], now: Timestamp) -> Result<Option<(UserId, LinkPurpose)>> {
    let row = fetch_optional!(
        tx,
        (i64, String),
        "SELECT user_id, purpose FROM sign_in_links WHERE digest = $1 AND expires_at > $2",
        digest.to_vec(),
        DbTime(now)
    )?;
    Ok(row.and_then(|(id, purpose)| Some((UserId(id), LinkPurpose::parse(&purpose)?))))
}

/// Uses up a link. Of two concurrent calls, only one gets the user.
pub async fn take_link(tx: &mut Tx, digest: &[u8; 32], now: Timestamp) -> Result<Option<(UserId, LinkPurpose)>> {
    let row = fetch_optional!(
        tx,
        (i64, String),
        "DELETE FROM sign_in_links WHERE digest = $1 AND expires_at > $2 RETURNING user_id, purpose",
        digest.to_vec(),
        DbTime(now)
    )?;
    Ok(row.and_then(|(id, purpose)| Some((UserId(id), LinkPurpose::parse(&purpose)?))))
}

/// Deletes expired sessions and links.
pub async fn delete_expired(tx: &mut Tx, now: Timestamp) -> Result<u64> {
    let sessions = execute!(tx, "DELETE FROM sessions WHERE expires_at <= $1", DbTime(now))?;
    let links = execute!(tx, "DELETE FROM sign_in_links WHERE expires_at <= $1", DbTime(now))?;
    Ok(sessions + links)
}
