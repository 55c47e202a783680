//! The one SSH key pair of each user. The private half is sealed, and only the engine uses it.

use holdfast_core::ids::UserId;
use holdfast_core::{Secret, Timestamp};

use crate::{DbTime, Result, SealContext, Tx};

fn place(user: UserId) -> SealContext {
    SealContext { table: "ssh_keys", column: "private_sealed", row: user.0, user }
}

/// The raw public half.
pub async fn find_public(tx: &mut Tx, user: UserId) -> Result<Option<Vec<u8>>> {
    let row = fetch_optional!(tx, (Vec<u8>,), "SELECT public_key FROM ssh_keys WHERE user_id = $1", user.0)?;
    Ok(row.map(|(key,)| key))
}

/// The private half, as it was given to `insert`.
pub async fn find_private(tx: &mut Tx, user: UserId) -> Result<Option<Secret>> {
    let row = fetch_optional!(tx, (Vec<u8>,), "SELECT private_sealed FROM ssh_keys WHERE user_id = $1", user.0)?;
    match row {
        Some((sealed,)) => tx.open(place(user), &sealed).await.map(Some),
        None => Ok(None),
    }
}

/// Gives a user's pair to another user, who has none.
pub async fn give(tx: &mut Tx, from: UserId, to: UserId) -> Result<()> {
    let Some(private) = find_private(tx, from).await? else { return Ok(()) };
    let sealed = tx.seal(place(to), &private).await?;
    let sql = "UPDATE ssh_keys SET user_id = $1, private_sealed = $2 WHERE user_id = $3";
    execute!(tx, sql, to.0, sealed, from.0)?;
    Ok(())
}

/// Stores the pair, unless the user already has one.
pub async fn insert(tx: &mut Tx, user: UserId, public: &[u8], private: &Secret, now: Timestamp) -> Result<()> {
    let sealed = tx.seal(place(user), private).await?;
    execute!(
        tx,
        "INSERT INTO ssh_keys (user_id, public_key, private_sealed, created_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT DO NOTHING",
        user.0,
        public,
        sealed,
        DbTime(now)
    )?;
    Ok(())
}
