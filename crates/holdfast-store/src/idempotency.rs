//! Responses to requests that a client may send again, by the key that the client chose.

use holdfast_core::ids::UserId;
use holdfast_core::{Secret, Timestamp};

use crate::{DbTime, Result, SealContext, Tx};

named_row! {
    /// A request that was sent with a key.
    #[derive(Debug, Clone)]
    pub struct KeyRow {
        pub id: i64,
        /// What identifies the request.
        pub request: String,
        /// The status of the response; `None` until the request has ended.
        pub status: Option<i64>,
        pub location: Option<String>,
        pub version: Option<String>,
    }
}

/// What is recorded of a response, besides its body.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'a> {
    pub status: i64,
    pub location: Option<&'a str>,
    pub version: Option<&'a str>,
}

/// Forgets a key that was used before `before`.
pub async fn delete_expired(tx: &mut Tx, user: UserId, key: &str, before: Timestamp) -> Result<()> {
    let sql = "DELETE FROM idempotency_keys WHERE user_id = $1 AND key = $2 AND created_at < $3";
    execute!(tx, sql, user.0, key, DbTime(before)).map(drop)
}

/// Records a key, and who used it. Returns `None` if it was used before.
pub async fn insert(
    tx: &mut Tx,
    (user, actor): (UserId, &str),
    key: &str,
    request: &str,
    now: Timestamp,
) -> Result<Option<i64>> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "INSERT INTO idempotency_keys (user_id, key, request, created_at, actor) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (user_id, key) DO NOTHING RETURNING id",
        user.0,
        key,
        request,
        DbTime(now),
        actor
    )?;
    Ok(row.map(|(id,)| id))
}

pub async fn find(tx: &mut Tx, user: UserId, key: &str) -> Result<Option<KeyRow>> {
    fetch_optional!(
        tx,
        KeyRow,
        "SELECT id, request, status, location, version FROM idempotency_keys WHERE user_id = $1 AND key = $2",
        user.0,
        key
    )
}

pub async fn count(tx: &mut Tx, (user, actor): (UserId, &str)) -> Result<i64> {
    let sql = "SELECT COUNT(*) FROM idempotency_keys WHERE user_id = $1 AND actor = $2";
    fetch_scalar!(tx, i64, sql, user.0, actor)
}

/// Records the response. It is sealed, because some responses hold secrets.
pub async fn update_response(tx: &mut Tx, user: UserId, id: i64, head: ResponseHead<'_>, body: &str) -> Result<()> {
    let sealed = tx.seal(place(user, id), &Secret::new(body.to_owned())).await?;
    execute!(
        tx,
        "UPDATE idempotency_keys SET status = $1, location = $2, version = $3, response_sealed = $4 WHERE id = $5",
        head.status,
        head.location,
        head.version,
        sealed,
        id
    )?;
    Ok(())
}

pub async fn open_response(tx: &mut Tx, user: UserId, id: i64) -> Result<Option<Secret>> {
    read_secret!(tx, "idempotency_keys", "response_sealed", id, user)
}

pub async fn delete(tx: &mut Tx, id: i64) -> Result<()> {
    execute!(tx, "DELETE FROM idempotency_keys WHERE id = $1", id)?;
    Ok(())
}

pub async fn delete_before(tx: &mut Tx, before: Timestamp, limit: i64) -> Result<u64> {
    execute!(
        tx,
        "DELETE FROM idempotency_keys WHERE id IN
             (SELECT id FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2)",
        DbTime(before),
        limit
    )
}

fn place(user: UserId, id: i64) -> SealContext {
    SealContext { table: "idempotency_keys", column: "response_sealed", row: id, user }
}
