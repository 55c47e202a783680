//! Browser sessions: who is signed in where.

use holdfast_core::audit::AuditAction;
use holdfast_core::clock;
use holdfast_core::clock::later;
use holdfast_core::ids::UserId;
use holdfast_core::scope::ScopeSet;
use holdfast_core::{Secret, Timestamp, characters, limits, random};
use holdfast_store::Tx;
use holdfast_store::sessions::{self, NewSession, SessionRow};
use holdfast_store::users::{self, UserRow};
use tokio_util::sync::CancellationToken;

use crate::caller::{Expected, LimitKey};
use crate::refusal::{Conflict, Missing};
use crate::{App, AppError, Caller, Origin, Result};

/// Sessions last a month; signing out or a new password ends them sooner.
const SESSION_HOURS: i64 = 24 * 30;
/// The last use of a session is written at most this often.
const SEEN_EVERY_SECS: i64 = 300;

/// A browser that is signed in.
pub struct Session {
    pub row: SessionRow,
    /// Whether it is the session that asks.
    pub is_own: bool,
}

pub(crate) async fn start(app: &App, tx: &mut Tx, user: UserId, device: &str, origin: &Origin) -> Result<Secret> {
    if users::is_suspended(tx, user).await? {
        return Err(AppError::Conflict(Conflict::AccountSuspended));
    }
    let (secret, now) = (random::token(""), app.now());
    let device: String = characters::stored_line(device).chars().take(limits::TEXT_CHARS).collect();
    let new = NewSession {
        user,
        digest: random::digest(secret.reveal()),
        device: &device,
        address: origin.address.as_deref(),
        expires_at: later(now, SESSION_HOURS * 3600),
    };
    sessions::insert(tx, &new, now).await?;
    app.audit_as(tx, Some(user), origin, AuditAction::UserSignedIn, "").await?;
    Ok(secret)
}

/// The user that a browser session belongs to, with every scope.
pub async fn caller(app: &App, session: &str, origin: Origin) -> Result<(Caller, UserRow)> {
    let (digest, now) = (random::digest(session), app.now());
    let mut tx = app.store.read().await?;
    let (row, seen) = find_user(&mut tx, &digest, now).await?.ok_or(AppError::Unauthenticated)?;
    let user = row.id;
    drop(tx);
    if now.as_second() - seen.as_second() >= SEEN_EVERY_SECS {
        // A database that cannot be written to must not keep anybody from reading.
        if let Err(error) = note_seen(app, &digest, &origin).await {
            tracing::warn!(%error, "failed to record the use of a session");
        }
    }
    let caller = Caller {
        user,
        is_admin: row.is_admin,
        scopes: ScopeSet::all(),
        zone: clock::zone_or_utc(&row.timezone),
        origin: Origin { actor: "session".to_owned(), ..origin },
        gone: CancellationToken::new(),
        expected: Expected::Any,
        dry_run: None,
        limit_key: LimitKey::Session(user.0),
    };
    Ok((caller, row))
}

/// The user who is signed in with this session, and when it was last used.
async fn find_user(tx: &mut Tx, digest: &[u8; 32], now: Timestamp) -> Result<Option<(UserRow, Timestamp)>> {
    let Some((user, seen)) = sessions::find_user(tx, digest, now).await? else { return Ok(None) };
    let row = users::find(tx, user).await?.filter(|row| row.suspended_at.is_none());
    Ok(row.map(|row| (row, seen)))
}

/// Whether somebody is still signed in with this session.
pub(crate) async fn is_valid(app: &App, digest: &[u8; 32]) -> Result<bool> {
    Ok(find_user(&mut app.store.read().await?, digest, app.now()).await?.is_some())
}

async fn note_seen(app: &App, digest: &[u8; 32], origin: &Origin) -> Result<()> {
    let mut tx = app.store.begin().await?;
    sessions::update_seen(&mut tx, digest, origin.address.as_deref(), app.now()).await?;
    Ok(tx.commit().await?)
}

pub async fn list(app: &App, caller: &Caller, session: &str) -> Result<Vec<Session>> {
    let own = random::digest(session);
    let rows = sessions::list(&mut app.store.read().await?, caller.user, app.now()).await?;
    Ok(rows.into_iter().map(|row| Session { is_own: row.digest == own, row }).collect())
}

/// Ends one of the caller's sessions.
pub async fn revoke(app: &App, caller: &Caller, id: i64) -> Result<()> {
    let mut tx = app.store.begin().await?;
    if !sessions::delete_one(&mut tx, caller.user, id).await? {
        return Err(AppError::Missing(Missing::Session));
    }
    app.audit(&mut tx, caller, AuditAction::SessionRevoked, &id.to_string()).await?;
    Ok(tx.commit().await?)
}

pub async fn sign_out(app: &App, caller: &Caller, session: &str) -> Result<()> {
    let mut tx = app.store.begin().await?;
    sessions::delete(&mut tx, &random::digest(session)).await?;
    app.audit(&mut tx, caller, AuditAction::UserSignedOut, "").await?;
    Ok(tx.commit().await?)
}
