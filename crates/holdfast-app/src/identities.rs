//! External accounts that users sign in with. Such an account belongs to an account here only after the owner, while
//! signed in, has linked it.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use holdfast_core::audit::AuditAction;
use holdfast_core::{Secret, characters, limits, random};
use holdfast_store::identities::{self, IdentityRow};
use sha2::{Digest as _, Sha256};

pub use crate::identity_providers::{
    AuthorizationRequest, AuthorizationResponse, Identity, IdentityProviders, Provider,
};
use crate::refusal::{Conflict, Missing};
use crate::{App, AppError, Caller, Origin, Result, accounts, sessions};

pub fn list_providers(app: &App) -> Vec<Provider> {
    app.ports.providers.list()
}

/// A round trip to a provider, bound to the browser by a secret that only the browser has. All other values are derived
/// from that secret.
pub struct SignInAttempt<'a> {
    pub provider: &'a str,
    pub secret: &'a str,
    /// The URL at which users reach the service.
    pub base_url: &'a str,
}

impl SignInAttempt<'_> {
    fn part(&self, what: &str) -> String {
        random::hex(&random::digest(&format!("{what} {} {}", self.provider, self.secret)))
    }

    fn key(&self, app: &App) -> Result<String> {
        let known = app.ports.providers.list().into_iter().find(|known| known.id == self.provider);
        known.map(|known| known.key).ok_or(AppError::Missing(Missing::Page))
    }

    fn redirect_uri(&self) -> String {
        format!("{}/sign-in/{}/back", self.base_url, self.provider)
    }

    /// The URL that the user is sent to.
    pub async fn authorization_url(&self, app: &App, origin: &Origin) -> Result<String> {
        accounts::limit_address(app, origin)?;
        let verifier = self.part("verifier");
        let request = AuthorizationRequest {
            redirect_uri: self.redirect_uri(),
            state: self.part("state"),
            nonce: self.part("nonce"),
            challenge: BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)),
        };
        app.ports.providers.authorization_url(self.provider, &request).await
    }

    async fn identify(&self, app: &App, state: &str, code: &str, origin: &Origin) -> Result<Identity> {
        accounts::limit_address(app, origin)?;
        if !random::equal(state.as_bytes(), self.part("state").as_bytes()) || code.is_empty() {
            return Err(AppError::Conflict(Conflict::SignInNotBegun));
        }
        let back = AuthorizationResponse {
            redirect_uri: self.redirect_uri(),
            code: code.to_owned(),
            nonce: self.part("nonce"),
            verifier: Secret::new(self.part("verifier")),
            now: app.now(),
        };
        app.ports.providers.identify(self.provider, &back).await
    }

    /// Signs in the user who linked this external account.
    pub async fn sign_in(&self, app: &App, state: &str, code: &str, device: &str, origin: &Origin) -> Result<Secret> {
        let (key, identity) = (self.key(app)?, self.identify(app, state, code, origin).await?);
        let mut tx = app.store.begin().await?;
        let Some(user) = identities::find_user(&mut tx, &key, &identity.subject).await? else {
            app.audit_as(&mut tx, None, origin, AuditAction::SignInRefused, &self.told(&identity)).await?;
            tx.commit().await?;
            return Err(AppError::Conflict(Conflict::NotLinked));
        };
        let secret = sessions::start(app, &mut tx, user, device, origin).await?;
        tx.commit().await?;
        Ok(secret)
    }

    /// Links the external account to the caller's account.
    pub async fn link(&self, app: &App, caller: &Caller, state: &str, code: &str) -> Result<()> {
        let (key, identity) = (self.key(app)?, self.identify(app, state, code, &caller.origin).await?);
        let mut tx = app.store.begin().await?;
        let owner = identities::find_user(&mut tx, &key, &identity.subject).await?;
        if owner == Some(caller.user) {
            return Ok(());
        }
        if owner.is_some() {
            return Err(AppError::Conflict(Conflict::LinkedElsewhere));
        }
        identities::delete(&mut tx, caller.user, &key).await?;
        let name: String = characters::stored_line(&identity.name).chars().take(limits::TEXT_CHARS).collect();
        identities::insert(&mut tx, caller.user, &key, &identity.subject, &name, app.now()).await?;
        app.audit(&mut tx, caller, AuditAction::IdentityLinked, &self.told(&identity)).await?;
        Ok(tx.commit().await?)
    }

    fn told(&self, identity: &Identity) -> String {
        let name: String = characters::stored_line(&identity.name).chars().take(limits::TEXT_CHARS).collect();
        format!("{} {name}", self.provider)
    }
}

pub async fn list(app: &App, caller: &Caller) -> Result<Vec<IdentityRow>> {
    Ok(identities::list(&mut app.store.read().await?, caller.user).await?)
}

pub async fn unlink(app: &App, caller: &Caller, provider: &str) -> Result<()> {
    let key = SignInAttempt { provider, secret: "", base_url: "" }.key(app)?;
    let mut tx = app.store.begin().await?;
    if !identities::delete(&mut tx, caller.user, &key).await? {
        return Err(AppError::Missing(Missing::Account));
    }
    app.audit(&mut tx, caller, AuditAction::IdentityUnlinked, provider).await?;
    Ok(tx.commit().await?)
}

/// Whether the caller can sign in with this provider: it is configured, and they have linked it.
pub async fn is_linked(app: &App, caller: &Caller, provider: &str) -> Result<bool> {
    let known = app.ports.providers.list().into_iter().find(|known| known.id == provider);
    let Some(known) = known else { return Ok(false) };
    Ok(list(app, caller).await?.iter().any(|row| row.provider == known.key))
}
