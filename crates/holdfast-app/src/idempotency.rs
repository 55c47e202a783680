//! Requests that a client may send again: with the same key, the second one gets the response of the first.

use holdfast_core::clock::later;
use holdfast_core::ids::UserId;
use holdfast_core::random;
use holdfast_store::idempotency::{self, ResponseHead};
use sha2::{Digest as _, Sha256};

use crate::refusal::Conflict;
use crate::{App, AppError, Result};

/// How many keys a token may have used within the time that they are kept: far more than scripts need, and a bound for
/// the table.
const MOST_KEYS: i64 = 10_000;

/// How long a key is remembered; clients repeat a request within minutes.
const KEPT_SECS: i64 = 86_400;

/// A response that can be given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub status: u16,
    pub location: Option<String>,
    /// The `ETag`.
    pub version: Option<String>,
    pub body: String,
}

/// What to do with a request that has a key.
#[derive(Debug)]
pub enum Begun {
    /// Execute it, and then `end` it with this id.
    First(i64),
    /// It was executed before.
    Again(Recorded),
}

/// The identity of a request. The parts are prefixed by their lengths, so that none can pass for another.
pub fn request_id(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    random::hex(&hash.finalize())
}

/// Records the key of a request, and who uses it, before the request is executed.
pub async fn begin(app: &App, (user, actor): (UserId, &str), key: &str, request: &str) -> Result<Begun> {
    let mut tx = app.store.begin().await?;
    idempotency::delete_expired(&mut tx, user, key, later(app.now(), -KEPT_SECS)).await?;
    if let Some(id) = idempotency::insert(&mut tx, (user, actor), key, request, app.now()).await? {
        if idempotency::count(&mut tx, (user, actor)).await? > MOST_KEYS {
            return Err(AppError::Conflict(Conflict::TooManyKeys));
        }
        tx.commit().await?;
        return Ok(Begun::First(id));
    }
    let row = idempotency::find(&mut tx, user, key).await?.ok_or(AppError::Conflict(Conflict::Changed))?;
    if row.request != request {
        return Err(AppError::Conflict(Conflict::OtherRequest));
    }
    let status = row.status.and_then(|status| u16::try_from(status).ok());
    let body = idempotency::open_response(&mut tx, user, row.id).await?;
    match (status, body) {
        (Some(status), Some(body)) => {
            let body = body.reveal().to_owned();
            Ok(Begun::Again(Recorded { status, location: row.location, version: row.version, body }))
        }
        (None, _) | (_, None) => Err(AppError::Conflict(Conflict::RequestUnfinished)),
    }
}

/// Records the response of a request that has taken effect.
pub async fn end(app: &App, user: UserId, id: i64, response: &Recorded) -> Result<()> {
    let mut tx = app.store.begin().await?;
    let (location, version) = (response.location.as_deref(), response.version.as_deref());
    let head = ResponseHead { status: i64::from(response.status), location, version };
    idempotency::update_response(&mut tx, user, id, head, &response.body).await?;
    Ok(tx.commit().await?)
}

/// Forgets the key of a request that was refused: it may be sent again.
pub async fn forget(app: &App, id: i64) -> Result<()> {
    let mut tx = app.store.begin().await?;
    idempotency::delete(&mut tx, id).await?;
    Ok(tx.commit().await?)
}
