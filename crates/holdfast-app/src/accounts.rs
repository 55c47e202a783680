//! Accounts: the first administrator, passwords, two-factor codes, sessions, and tokens for devices.

use holdfast_core::clock;
use holdfast_core::ids::UserId;
use holdfast_core::input::{Errors, Field};
use holdfast_core::rate::Quota;
use holdfast_core::scope::ScopeSet;
use holdfast_core::user::{self, UserDraft};
use holdfast_core::{Secret, Timestamp, limits, random, rules, run};
use holdfast_store::users::{self, UserRow};
use holdfast_store::{Tx, sessions};
use totp_rs::{Algorithm, Builder, Totp};

use crate::caller::LimitKey;
use crate::tokens::{self, TokenRequest};
use crate::{App, AppError, Caller, Origin, Result};

/// The address of the account that the first start makes, until its owner sets their own.
pub const PLACEHOLDER_EMAIL: &str = "admin@localhost";
const LINK_HOURS: i64 = 24;
/// Sessions last a month; signing out or a new password ends them sooner.
const SESSION_HOURS: i64 = 24 * 30;
/// Beside the limit on one e-mail from one address: what one address may try over all e-mails, and one e-mail from all
/// addresses, so that spreading the guesses does not help.
const WIDE_SIGN_IN_FACTOR: u32 = 6;

/// What the first start found.
pub enum FirstStart {
    /// Somebody can sign in already.
    Ready,
    /// The administrator was made from the settings.
    AdminCreated,
    /// Nobody has signed in yet: this secret opens the set-up page, once.
    Link(Secret),
}

/// Makes the administrator where there is none: from the settings, else one that a link claims. Safe to run on
/// several nodes at once: the e-mail is unique.
pub async fn ensure_admin(app: &App, given: Option<(&str, &Secret)>) -> Result<FirstStart> {
    match make_admin(app, given).await {
        // Another node was a moment faster.
        Err(AppError::Conflict(_)) => Ok(FirstStart::Ready),
        made => made,
    }
}

async fn make_admin(app: &App, given: Option<(&str, &Secret)>) -> Result<FirstStart> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let unclaimed = users::find_unclaimed_admin(&mut tx).await?;
    if unclaimed.is_none() && users::count(&mut tx).await? > 0 {
        return Ok(FirstStart::Ready);
    }
    let system = Origin { actor: "system".to_owned(), ..Origin::default() };
    if let Some((email, password)) = given {
        let draft = UserDraft::check("Administrator", email, "UTC", true).map_err(AppError::Invalid)?;
        user::check_password(password).map_err(AppError::Invalid)?;
        let hash = app.hasher.hash(password).await?;
        let id = match unclaimed {
            Some(row) => {
                users::update_profile(&mut tx, row.user_id(), &draft, now).await?;
                users::update_password(&mut tx, row.user_id(), &hash, now).await?;
                row.user_id()
            }
            None => users::insert(&mut tx, &draft, Some(hash), now).await?,
        };
        app.audit_as(&mut tx, Some(id), &system, "user.created", "administrator from the settings").await?;
        tx.commit().await?;
        return Ok(FirstStart::AdminCreated);
    }
    let id = match unclaimed {
        Some(row) => row.user_id(),
        None => {
            let draft = UserDraft::check("Administrator", PLACEHOLDER_EMAIL, "UTC", true).map_err(AppError::Invalid)?;
            users::insert(&mut tx, &draft, None, now).await?
        }
    };
    let secret = random::token("");
    let expires_at = hours_after(now, LINK_HOURS);
    sessions::replace_link(&mut tx, id, &random::digest(secret.reveal()), expires_at, now).await?;
    app.audit_as(&mut tx, Some(id), &system, "sign_in_link.created", "first start").await?;
    tx.commit().await?;
    Ok(FirstStart::Link(secret))
}

pub async fn create(app: &App, origin: &Origin, draft: &UserDraft, password: &Secret) -> Result<UserId> {
    user::check_password(password).map_err(AppError::Invalid)?;
    let hash = app.hasher.hash(password).await?;
    let mut tx = app.store.begin().await?;
    if users::find_by_email(&mut tx, &draft.email).await?.is_some() {
        return Err(AppError::Invalid(Errors::one("email", "The email has already been taken.")));
    }
    let id = users::insert(&mut tx, draft, Some(hash), app.now()).await?;
    app.audit_as(&mut tx, Some(id), origin, "user.created", &draft.email).await?;
    tx.commit().await?;
    Ok(id)
}

pub async fn list(app: &App) -> Result<Vec<UserRow>> {
    Ok(users::list(&mut app.store.read().await?).await?)
}

/// Sets a new password and signs the user out everywhere.
pub async fn reset_password(app: &App, origin: &Origin, user: UserId, password: &Secret) -> Result<()> {
    user::check_password(password).map_err(AppError::Invalid)?;
    let hash = app.hasher.hash(password).await?;
    let mut tx = app.store.begin().await?;
    users::update_password(&mut tx, user, &hash, app.now()).await?;
    sessions::delete_all(&mut tx, user).await?;
    app.audit_as(&mut tx, Some(user), origin, "user.password_reset", "").await?;
    Ok(tx.commit().await?)
}

/// Turns two-factor on and gives the `otpauth://` address for an authenticator.
pub async fn enable_otp(app: &App, origin: &Origin, user: &UserRow) -> Result<Secret> {
    let secret = totp_rs::Secret::from(random::bytes::<20>().to_vec());
    let encoded = Secret::new(secret.to_base32());
    let url = totp(&encoded, &user.email)?.to_url().map_err(|error| AppError::Internal(error.to_string()))?;
    let mut tx = app.store.begin().await?;
    users::update_totp(&mut tx, user, Some(&encoded), app.now()).await?;
    app.audit_as(&mut tx, Some(user.user_id()), origin, "user.otp_enabled", "").await?;
    tx.commit().await?;
    Ok(Secret::new(url))
}

pub async fn disable_otp(app: &App, origin: &Origin, user: &UserRow) -> Result<()> {
    let mut tx = app.store.begin().await?;
    users::update_totp(&mut tx, user, None, app.now()).await?;
    app.audit_as(&mut tx, Some(user.user_id()), origin, "user.otp_disabled", "").await?;
    Ok(tx.commit().await?)
}

/// What somebody presents to sign in, as it was sent.
#[derive(Debug, Default)]
pub struct Credentials {
    pub email: Field<String>,
    pub password: Field<String>,
    pub otp: Field<String>,
}

/// The body of the device-token endpoint.
#[derive(Debug, Default)]
pub struct DeviceInput {
    pub credentials: Credentials,
    pub device_name: Field<String>,
}

/// Gives a device a token with every scope, in exchange for the user's own credentials.
pub async fn issue_device_token(app: &App, input: &DeviceInput, origin: &Origin) -> Result<Secret> {
    let mut errors = Errors::default();
    let name = rules::required_line(&mut errors, "device_name", &input.device_name, limits::TEXT_CHARS, None);
    let (mut tx, user) = check_credentials(app, &input.credentials, errors, origin).await?;
    let origin = Origin { actor: "device".to_owned(), ..origin.clone() };
    let request = TokenRequest { name: name.unwrap_or_default(), scopes: ScopeSet::all(), expires_at: None };
    let secret = tokens::issue(app, &mut tx, user.user_id(), &origin, &request).await?;
    tx.commit().await?;
    Ok(secret)
}

/// Starts a browser session.
pub async fn sign_in(app: &App, credentials: &Credentials, origin: &Origin) -> Result<Secret> {
    let (mut tx, user) = check_credentials(app, credentials, Errors::default(), origin).await?;
    let secret = start_session(app, &mut tx, user.user_id(), origin).await?;
    tx.commit().await?;
    Ok(secret)
}

/// True while a one-time link can still be used. Looking does not use it up.
pub async fn is_link_valid(app: &App, link: &str) -> Result<bool> {
    let mut tx = app.store.read().await?;
    Ok(sessions::find_link(&mut tx, &random::digest(link), app.now()).await?.is_some())
}

/// Claims the first account: sets who it belongs to and its password, and starts a session. The link is used up.
pub async fn claim(app: &App, link: &str, draft: &UserDraft, password: &Secret, origin: &Origin) -> Result<Secret> {
    user::check_password(password).map_err(AppError::Invalid)?;
    let hash = app.hasher.hash(password).await?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let user = sessions::take_link(&mut tx, &random::digest(link), now).await?;
    let user = user.ok_or(AppError::Missing("This link has expired or was used before."))?;
    users::update_profile(&mut tx, user, draft, now).await?;
    users::update_password(&mut tx, user, &hash, now).await?;
    app.audit_as(&mut tx, Some(user), origin, "user.claimed", &draft.email).await?;
    let secret = start_session(app, &mut tx, user, origin).await?;
    tx.commit().await?;
    Ok(secret)
}

/// Who a browser's session belongs to, with every scope of their own.
pub async fn session_caller(app: &App, session: &str, origin: Origin) -> Result<(Caller, UserRow)> {
    let mut tx = app.store.read().await?;
    let user = sessions::find_user(&mut tx, &random::digest(session), app.now()).await?;
    let user = user.ok_or(AppError::Unauthenticated)?;
    let row = users::find(&mut tx, user).await?.ok_or(AppError::Unauthenticated)?;
    let caller = Caller {
        user,
        is_admin: row.is_admin,
        scopes: ScopeSet::all(),
        zone: clock::zone_or_utc(&row.timezone),
        origin: Origin { actor: "session".to_owned(), ..origin },
        limit_key: LimitKey::Session(user.0),
    };
    Ok((caller, row))
}

pub async fn sign_out(app: &App, session: &str, caller: &Caller) -> Result<()> {
    let mut tx = app.store.begin().await?;
    sessions::delete(&mut tx, &random::digest(session)).await?;
    app.audit(&mut tx, caller, "user.signed_out", "").await?;
    Ok(tx.commit().await?)
}

async fn start_session(app: &App, tx: &mut Tx, user: UserId, origin: &Origin) -> Result<Secret> {
    let secret = random::token("");
    let now = app.now();
    sessions::insert(tx, user, &random::digest(secret.reveal()), hours_after(now, SESSION_HOURS), now).await?;
    app.audit_as(tx, Some(user), origin, "user.signed_in", "").await?;
    Ok(secret)
}

fn hours_after(now: Timestamp, hours: i64) -> Timestamp {
    clock::from_micros(now.as_microsecond() + hours * 3_600_000_000)
}

/// Checks e-mail, password and one-time code. Every refusal of a pair of e-mail and password looks and takes the
/// same. On success the transaction that used up the code is handed on, so that a failure after it gives it back.
async fn check_credentials(
    app: &App,
    credentials: &Credentials,
    mut errors: Errors,
    origin: &Origin,
) -> Result<(Tx, UserRow)> {
    let email = required(&mut errors, "email", &credentials.email);
    let password = required(&mut errors, "password", &credentials.password);
    let (Some(email), Some(password)) = (email, password) else { return Err(AppError::Invalid(errors)) };
    if !errors.is_empty() {
        return Err(AppError::Invalid(errors));
    }
    let email = user::normal_email(&email);
    limit_sign_in(app, &email, origin)?;
    let user = users::find_by_email(&mut app.store.read().await?, &email).await?;
    let hash = user.as_ref().and_then(|user| user.password_hash.clone());
    let matches = app.hasher.verify(&Secret::new(password), hash).await?;
    let Some(user) = user.filter(|_| matches) else {
        let mut tx = app.store.begin().await?;
        let email: String = run::stored_line(&email).chars().take(limits::TEXT_CHARS).collect();
        app.audit_as(&mut tx, None, origin, "sign_in.refused", &email).await?;
        tx.commit().await?;
        return Err(AppError::Invalid(Errors::one("email", "The provided credentials are incorrect.")));
    };
    let mut tx = app.store.begin().await?;
    if let Err(error) = check_otp(app, &mut tx, &user, &credentials.otp).await {
        app.audit_as(&mut tx, Some(user.user_id()), origin, "sign_in.refused", "one-time code").await?;
        tx.commit().await?;
        return Err(error);
    }
    Ok((tx, user))
}

fn required(errors: &mut Errors, field: &str, input: &Field<String>) -> Option<String> {
    match input {
        Field::Value(text) if text.is_empty() => rules::required(errors, field),
        Field::Value(text) if text.chars().count() > limits::SECRET_CHARS => {
            rules::too_long(errors, field, limits::SECRET_CHARS);
        }
        Field::Value(text) => return Some(text.replace('\0', "\u{fffd}")),
        Field::Absent | Field::Null => rules::required(errors, field),
        Field::WrongType => rules::wrong_type(errors, field, "a string"),
    }
    None
}

fn limit_sign_in(app: &App, email: &str, origin: &Origin) -> Result<()> {
    let address = network_of(origin.address.as_deref().unwrap_or_default());
    let narrow = app.limits.sign_ins;
    let wide = Quota {
        burst: narrow.burst.saturating_mul(WIDE_SIGN_IN_FACTOR),
        per_period: narrow.per_period.saturating_mul(WIDE_SIGN_IN_FACTOR),
        ..narrow
    };
    // The address first: one that tries too much cannot fill our memory with e-mails.
    let buckets =
        [(format!("\n{address}"), wide), (format!("{email}\n{address}"), narrow), (format!("{email}\n"), wide)];
    for (key, quota) in buckets {
        let decision = app.sign_ins.take(random::digest(&key), quota, app.now());
        if !decision.allowed {
            let retry_after_secs = decision.retry_after_secs;
            return Err(AppError::TooManyRequests { limit: decision.limit, retry_after_secs });
        }
    }
    Ok(())
}

/// Who holds one IPv6 address holds at least the 64 bits behind it.
fn network_of(address: &str) -> String {
    match address.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("{:x?}", &address.segments()[..4]),
        Err(_) => address.to_owned(),
    }
}

fn totp(secret: &Secret, email: &str) -> Result<Totp> {
    let internal = |text: String| AppError::Internal(text);
    let secret = totp_rs::Secret::try_from_base32(secret.reveal()).map_err(|error| internal(format!("{error:?}")))?;
    Builder::new()
        .with_algorithm(Algorithm::SHA1)
        .with_digits(6)
        .with_skew(1)
        .with_step_duration(30)
        .with_secret(secret)
        .with_account_name(email)
        .with_issuer(Some("Holdfast"))
        .build()
        .map_err(|error| internal(error.to_string()))
}

/// With two-factor on, a code is needed, and each code works once.
async fn check_otp(app: &App, tx: &mut Tx, user: &UserRow, otp: &Field<String>) -> Result<()> {
    let Some(sealed) = &user.totp_sealed else { return Ok(()) };
    let secret = tx.open(user.totp_place(), sealed).await?;
    let code = match otp {
        Field::Value(code) => code,
        Field::WrongType => return Err(AppError::Invalid(Errors::one("otp", "The otp field must be a string."))),
        Field::Absent | Field::Null => {
            return Err(AppError::Invalid(Errors::one("otp", "The otp field is required.")));
        }
    };
    let seconds = u64::try_from(app.now().as_second()).unwrap_or(0);
    let step = totp(&secret, &user.email)?.check(code.trim(), seconds);
    let fresh = match step {
        Some(step) => users::use_totp_step(tx, user.user_id(), i64::try_from(step).unwrap_or(i64::MAX)).await?,
        None => false,
    };
    if fresh { Ok(()) } else { Err(AppError::Invalid(Errors::one("otp", "The otp field is incorrect."))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6238's test vector for SHA-1 at 59 seconds, cut to six digits.
    #[test]
    fn one_time_codes_follow_the_rfc() {
        let secret = totp_rs::Secret::from(b"12345678901234567890".to_vec());
        let totp = totp(&Secret::new(secret.to_base32()), "a@example.org").unwrap();
        assert_eq!(totp.check("287082", 59), Some(1));
        assert_eq!(totp.check("287082", 59 + 120), None);
    }
}
