//! Authentication of bearer tokens, and the check of their scopes.

use holdfast_core::audit::AuditAction;
use holdfast_core::random;
use holdfast_core::rate::{Decision, Quota};
use holdfast_core::scope::Scope;
use holdfast_store::tokens;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::caller::{Caller, Credential, Expected, LimitKey, Origin};
use crate::error::AppError;
use crate::{Result, sessions};

/// Turns a bearer token into its caller, and counts the request against the token's rate limit.
pub async fn authenticate(app: &App, token: &str, origin: Origin) -> Result<(Caller, Decision)> {
    let known = app.tokens.look_up(&app.store, random::digest(token)).await?;
    let now = app.now();
    if known.expires_at.is_some_and(|expires_at| expires_at <= now) {
        return Err(AppError::Unauthenticated);
    }
    app.tokens.note_use(known.id, now);
    let decision = app.requests.take(known.id.0, app.limits.requests, now);
    let caller = Caller {
        user: known.user,
        is_admin: known.is_admin,
        scopes: known.scopes,
        zone: known.zone.clone(),
        origin: Origin { actor: format!("token {}", known.id), ..origin },
        gone: CancellationToken::new(),
        expected: Expected::Any,
        dry_run: None,
        limit_key: LimitKey::Token(known.id.0),
    };
    Ok((caller, decision))
}

/// Whether a client would still be let in, for what goes on after its request was accepted.
pub async fn is_accepted(app: &App, credential: &Credential) -> bool {
    let found = match credential {
        Credential::Token(digest) => {
            let known = app.tokens.look_up(&app.store, *digest).await;
            known.map(|known| known.expires_at.is_none_or(|expires_at| expires_at > app.now()))
        }
        Credential::Session(digest) => sessions::is_valid(app, digest).await,
    };
    // A database that is away is no reason to end what was accepted.
    found.unwrap_or_else(|error| !matches!(error, AppError::Unauthenticated))
}

/// Refuses a caller whose token lacks the scope, and records the attempt.
pub async fn require_scope(app: &App, caller: &Caller, scope: Scope) -> Result<()> {
    if caller.scopes.contains(scope) {
        return Ok(());
    }
    // Once a minute is often enough to be noticed, and too rare to fill a disk.
    if app.denials.take((caller.limit_key, scope), Quota::per_minute(1), app.now()).allowed {
        let mut tx = app.store.begin().await?;
        app.audit(&mut tx, caller, AuditAction::ScopeDenied, scope.as_str()).await?;
        tx.commit().await?;
    }
    Err(AppError::MissingScope(scope))
}

impl App {
    /// Stores when tokens were last used. Called every few seconds and before shutdown.
    pub async fn flush_token_use(&self) -> Result<()> {
        let unwritten = self.tokens.take_unwritten(self.now());
        if unwritten.is_empty() {
            return Ok(());
        }
        let mut tx = self.store.begin().await?;
        for (id, at) in unwritten {
            tokens::update_last_used(&mut tx, id, at).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}
