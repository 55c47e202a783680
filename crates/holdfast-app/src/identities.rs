//! Accounts elsewhere that people sign in with. They belong to an account here only after its owner, signed in, linked
//! them.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use holdfast_core::{Secret, limits, random, run};
use holdfast_store::identities::{self, IdentityRow};
use sha2::{Digest as _, Sha256};

pub use crate::identity_providers::{Identity, IdentityProviders, Leave, Provider, Return};
use crate::refusal::{Conflict, Missing};
use crate::{App, AppError, Caller, Origin, Result, accounts, sessions};

pub fn list_providers(app: &App) -> Vec<Provider> {
    app.ports.providers.list()
}

/// One way to a provider and back, bound to the browser by a secret that only it has. Everything else follows from it.
pub struct Trip<'a> {
    pub provider: &'a str,
    pub secret: &'a str,
    /// Where people reach the service.
    pub base_url: &'a str,
}

impl Trip<'_> {
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

    /// The address that somebody is sent to.
    pub async fn leave(&self, app: &App, origin: &Origin) -> Result<String> {
        accounts::limit_address(app, origin)?;
        let verifier = self.part("verifier");
        let leave = Leave {
            redirect_uri: self.redirect_uri(),
            state: self.part("state"),
            nonce: self.part("nonce"),
            challenge: BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)),
        };
        app.ports.providers.leave(self.provider, &leave).await
    }

    async fn identify(&self, app: &App, state: &str, code: &str, origin: &Origin) -> Result<Identity> {
        accounts::limit_address(app, origin)?;
        if !random::equal(state.as_bytes(), self.part("state").as_bytes()) || code.is_empty() {
            return Err(AppError::Conflict(Conflict::SignInNotBegun));
        }
        let back = Return {
            redirect_uri: self.redirect_uri(),
            code: code.to_owned(),
            nonce: self.part("nonce"),
            verifier: Secret::new(self.part("verifier")),
            now: app.now(),
        };
        app.ports.providers.return_(self.provider, &back).await
    }

    /// Signs in whoever linked this account before.
    pub async fn sign_in(&self, app: &App, state: &str, code: &str, device: &str, origin: &Origin) -> Result<Secret> {
        let (key, identity) = (self.key(app)?, self.identify(app, state, code, origin).await?);
        let mut tx = app.store.begin().await?;
        let Some(user) = identities::find_user(&mut tx, &key, &identity.subject).await? else {
            app.audit_as(&mut tx, None, origin, "sign_in.refused", &self.told(&identity)).await?;
            tx.commit().await?;
            return Err(AppError::Conflict(Conflict::NotLinked));
        };
        let secret = sessions::start(app, &mut tx, user, device, origin).await?;
        tx.commit().await?;
        Ok(secret)
    }

    /// Links the account to the caller's own.
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
        let name: String = run::stored_line(&identity.name).chars().take(limits::TEXT_CHARS).collect();
        identities::insert(&mut tx, caller.user, &key, &identity.subject, &name, app.now()).await?;
        app.audit(&mut tx, caller, "identity.linked", &self.told(&identity)).await?;
        Ok(tx.commit().await?)
    }

    fn told(&self, identity: &Identity) -> String {
        let name: String = run::stored_line(&identity.name).chars().take(limits::TEXT_CHARS).collect();
        format!("{} {name}", self.provider)
    }
}

pub async fn list(app: &App, caller: &Caller) -> Result<Vec<IdentityRow>> {
    Ok(identities::list(&mut app.store.read().await?, caller.user).await?)
}

pub async fn unlink(app: &App, caller: &Caller, provider: &str) -> Result<()> {
    let key = Trip { provider, secret: "", base_url: "" }.key(app)?;
    let mut tx = app.store.begin().await?;
    if !identities::delete(&mut tx, caller.user, &key).await? {
        return Err(AppError::Missing(Missing::Account));
    }
    app.audit(&mut tx, caller, "identity.unlinked", provider).await?;
    Ok(tx.commit().await?)
}

/// Whether somebody can sign in with this provider: it is set up, and they linked it.
pub async fn is_linked(app: &App, caller: &Caller, provider: &str) -> Result<bool> {
    let known = app.ports.providers.list().into_iter().find(|known| known.id == provider);
    let Some(known) = known else { return Ok(false) };
    Ok(list(app, caller).await?.iter().any(|row| row.provider == known.key))
}
