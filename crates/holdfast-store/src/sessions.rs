//! Browser sessions and one-time sign-in links. Of both only digests are kept.

use holdfast_core::Timestamp;
use holdfast_core::ids::UserId;

use crate::{At, Result, Tx};

pub async fn insert(tx: &mut Tx, user: UserId, digest: &[u8; 32], expires_at: Timestamp, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO sessions (user_id, digest, expires_at, created_at) VALUES ($1, $2, $3, $4)",
        user.0,
        digest.to_vec(),
        At(expires_at),
        At(now)
    )?;
    Ok(())
}

/// The user of a session that has not expired.
pub async fn find_user(tx: &mut Tx, digest: &[u8; 32], now: Timestamp) -> Result<Option<UserId>> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "SELECT user_id FROM sessions WHERE digest = $1 AND expires_at > $2",
        digest.to_vec(),
        At(now)
    )?;
    Ok(row.map(|(id,)| UserId(id)))
}

pub async fn delete(tx: &mut Tx, digest: &[u8; 32]) -> Result<()> {
    execute!(tx, "DELETE FROM sessions WHERE digest = $1", digest.to_vec())?;
    Ok(())
}

/// Signs a user out everywhere.
pub async fn delete_all(tx: &mut Tx, user: UserId) -> Result<()> {
    execute!(tx, "DELETE FROM sessions WHERE user_id = $1", user.0)?;
    Ok(())
}

/// A new link makes the user's earlier ones void.
pub async fn replace_link(
    tx: &mut Tx,
    user: UserId,
    digest: &[u8; 32],
    expires_at: Timestamp,
    now: Timestamp,
) -> Result<()> {
    execute!(tx, "DELETE FROM sign_in_links WHERE user_id = $1", user.0)?;
    execute!(
        tx,
        "INSERT INTO sign_in_links (digest, user_id, expires_at, created_at) VALUES ($1, $2, $3, $4)",
        digest.to_vec(),
        user.0,
        At(expires_at),
        At(now)
    )?;
    Ok(())
}

pub async fn find_link(tx: &mut Tx, digest: &[u8; 32], now: Timestamp) -> Result<Option<UserId>> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "SELECT user_id FROM sign_in_links WHERE digest = $1 AND expires_at > $2",
        digest.to_vec(),
        At(now)
    )?;
    Ok(row.map(|(id,)| UserId(id)))
}

/// Uses a link up. Of two at once, one gets the user.
pub async fn take_link(tx: &mut Tx, digest: &[u8; 32], now: Timestamp) -> Result<Option<UserId>> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "DELETE FROM sign_in_links WHERE digest = $1 AND expires_at > $2 RETURNING user_id",
        digest.to_vec(),
        At(now)
    )?;
    Ok(row.map(|(id,)| UserId(id)))
}

/// Forgets what has expired.
pub async fn delete_expired(tx: &mut Tx, now: Timestamp) -> Result<u64> {
    let sessions = execute!(tx, "DELETE FROM sessions WHERE expires_at <= $1", At(now))?;
    let links = execute!(tx, "DELETE FROM sign_in_links WHERE expires_at <= $1", At(now))?;
    Ok(sessions + links)
}
