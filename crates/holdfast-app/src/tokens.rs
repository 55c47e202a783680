//! API tokens: created by a user, shown once, revoked at any time.

use holdfast_core::audit::AuditAction;
use holdfast_core::ids::{TokenId, UserId};
use holdfast_core::input::Errors;
use holdfast_core::refusal::Rule;
use holdfast_core::scope::ScopeSet;
use holdfast_core::{Secret, Timestamp, limits, random, rules};
use holdfast_store::tokens::{self, NewToken, TokenRow};
use holdfast_store::{Tx, users};

use crate::refusal::Missing;
use crate::{App, AppError, Origin, Result};

/// What tokens begin with, so that people and secret scanners recognise them.
pub const PREFIX: &str = "hf_";

/// A request for a new token.
#[derive(Debug, Clone)]
pub struct TokenRequest {
    pub name: String,
    pub scopes: ScopeSet,
    pub expires_at: Option<Timestamp>,
}

pub async fn list(app: &App, user: UserId) -> Result<Vec<TokenRow>> {
    Ok(tokens::list(&mut app.store.read().await?, user).await?)
}

pub async fn create(app: &App, user: UserId, origin: &Origin, request: &TokenRequest) -> Result<Secret> {
    let mut errors = Errors::default();
    let name = rules::label(&mut errors, "name", &request.name, limits::TEXT_CHARS);
    if request.scopes.is_empty() {
        errors.add("scopes", Rule::NoItems);
    }
    if request.expires_at.is_some_and(|at| at <= app.now()) {
        errors.add("expires_at", Rule::Future);
    }
    let name = name.filter(|_| errors.is_empty()).ok_or(AppError::Invalid(errors))?;
    let mut tx = app.store.begin().await?;
    let secret = issue(app, &mut tx, user, origin, &TokenRequest { name, ..request.clone() }).await?;
    tx.commit().await?;
    Ok(secret)
}

/// Revokes a token: at once in this process, within a second in others.
pub async fn revoke(app: &App, user: UserId, origin: &Origin, id: TokenId) -> Result<()> {
    let mut tx = app.store.begin().await?;
    if !tokens::delete(&mut tx, user, id).await? {
        return Err(AppError::Missing(Missing::Token));
    }
    app.audit_as(&mut tx, Some(user), origin, AuditAction::TokenRevoked, &id.to_string()).await?;
    tx.commit().await?;
    app.tokens.clear();
    Ok(())
}

/// The account that a command specifies by its email address.
pub async fn user_by_email(app: &App, email: &str) -> Result<users::UserRow> {
    let email = holdfast_core::user::normal_email(email);
    let user = users::find_by_email(&mut app.store.read().await?, &email).await?;
    user.ok_or(AppError::Missing(Missing::AccountOfEmail))
}

/// Creates a token within a transaction; only its digest is stored.
pub(crate) async fn issue(
    app: &App,
    tx: &mut Tx,
    user: UserId,
    origin: &Origin,
    request: &TokenRequest,
) -> Result<Secret> {
    let secret = random::token(PREFIX);
    let new = NewToken {
        user,
        name: &request.name,
        digest: random::digest(secret.reveal()),
        scopes: request.scopes,
        expires_at: request.expires_at,
    };
    let id = tokens::insert(tx, &new, app.now()).await?;
    app.audit_as(tx, Some(user), origin, AuditAction::TokenCreated, &format!("{id} {}", request.scopes.to_text()))
        .await?;
    Ok(secret)
}
