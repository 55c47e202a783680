//! Accounts: the first administrator, passwords, one-time links and device tokens.

use std::fmt;
use std::sync::Arc;

use holdfast_core::audit::AuditAction;
use holdfast_core::changes::Changes;
use holdfast_core::clock::later;
use holdfast_core::ids::UserId;
use holdfast_core::input::{Errors, Field, Input};
use holdfast_core::network::ClientKey;
use holdfast_core::rate::Quota;
use holdfast_core::refusal::Rule;
use holdfast_core::scope::ScopeSet;
use holdfast_core::user::{self, LinkPurpose, UserDraft};
use holdfast_core::{Secret, characters, limits, random, rules};
use holdfast_store::users::{self, UserRow};
use holdfast_store::{Tx, audit, identities, sessions as links, settings, tasks, tokens as api_tokens};

use crate::mailer::Mail;
use crate::refusal::{Conflict, Missing};
use crate::tokens::{self, TokenRequest};
use crate::{App, AppError, Caller, Origin, Result, ownership, sessions, two_factor};

/// The email address of the account that is created on the first start, until its owner sets their own.
pub const PLACEHOLDER_EMAIL: &str = "admin@localhost";
const LINK_HOURS: i64 = 24;
/// Long enough for people who read their mail once a week.
const INVITATION_HOURS: i64 = 24 * 7;
/// Short, because people who forgot their password are waiting for the link.
const RESET_HOURS: i64 = 1;
/// The setting that allows people to register.
pub(crate) const REGISTRATION: &str = "registration";
pub(crate) const OPEN: &str = "open";
/// Attempts are limited per email and client address. This factor gives the wider limits for one client address across
/// all emails and for one email from all addresses, so that spreading the guesses does not help.
const WIDE_SIGN_IN_FACTOR: u32 = 6;

/// From how many of their latest addresses users can still sign in while strangers are guessing their password.
const KNOWN_ADDRESSES: i64 = 50;

/// What the first start found.
pub enum FirstStart {
    /// Somebody can sign in already.
    Ready,
    /// The administrator was created from the settings.
    AdminCreated,
    /// Nobody has signed in yet: this secret opens the set-up page, once.
    Link(Secret),
}

/// Creates the administrator if there is none: from the settings, or else as an account that a link claims. Safe to run
/// on several nodes at once: the email address is unique.
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
    let is_active = |user: &UserRow| user.is_admin && user.suspended_at.is_none();
    if unclaimed.is_none() && users::list(&mut tx).await?.iter().any(is_active) {
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
        app.audit_as(&mut tx, Some(id), &system, AuditAction::UserCreated, "administrator from the settings").await?;
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
    let secret = write_link(app, &mut tx, id, LinkPurpose::SetUp).await?;
    app.audit_as(&mut tx, Some(id), &system, AuditAction::SignInLinkCreated, "first start").await?;
    tx.commit().await?;
    Ok(FirstStart::Link(secret))
}

pub async fn create(app: &App, origin: &Origin, draft: &UserDraft, password: &Secret) -> Result<UserId> {
    user::check_password(password).map_err(AppError::Invalid)?;
    let hash = app.hasher.hash(password).await?;
    let mut tx = app.store.begin().await?;
    check_free(&mut tx, &draft.email, None).await?;
    let id = users::insert(&mut tx, draft, Some(hash), app.now()).await?;
    app.audit_as(&mut tx, Some(id), origin, AuditAction::UserCreated, &draft.email).await?;
    tx.commit().await?;
    Ok(id)
}

pub async fn list(app: &App) -> Result<Vec<UserRow>> {
    Ok(users::list(&mut app.store.read().await?).await?)
}

/// Other ways into an account that the user chooses to keep when the password changes. None by default: whoever needs a
/// new password because someone else got in wants them locked out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keep {
    /// API tokens, and the trigger URLs of tasks, which start a task without a token.
    pub tokens: bool,
    /// External accounts that are linked to this one.
    pub identities: bool,
}

/// What was revoked by a new password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub sessions: u64,
    /// `None` when they were kept.
    pub tokens: Option<u64>,
    /// Trigger URLs of tasks; kept together with the tokens.
    pub triggers: Option<u64>,
    /// `None` when they were kept.
    pub identities: Option<u64>,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sessions ended: {}", self.sessions)?;
        match self.identities {
            Some(count) => write!(f, ", linked accounts removed: {count}")?,
            None => write!(f, ", linked accounts kept")?,
        }
        match self.tokens {
            Some(count) => write!(f, ", API tokens revoked: {count}")?,
            None => write!(f, ", API tokens kept")?,
        }
        match self.triggers {
            Some(count) => write!(f, ", trigger URLs removed: {count}"),
            None => write!(f, ", trigger URLs kept"),
        }
    }
}

/// Stores a new password and revokes every other way into the account, except the given session and what is kept.
async fn write_password(
    app: &App,
    tx: &mut Tx,
    user: UserId,
    hash: &str,
    session: Option<&str>,
    keep: Keep,
) -> Result<Ended> {
    // Tasks before their user, the order in which everything else writes them.
    let triggers = if keep.tokens { None } else { Some(tasks::delete_trigger_secrets(tx, user).await?) };
    users::update_password(tx, user, hash, app.now()).await?;
    links::delete_links(tx, user).await?;
    let sessions = match session {
        Some(session) => links::delete_others(tx, user, &random::digest(session)).await?,
        None => links::delete_all(tx, user).await?,
    };
    let identities = if keep.identities { None } else { Some(identities::delete_all(tx, user).await?) };
    let tokens = if keep.tokens { None } else { Some(api_tokens::delete_all(tx, user).await?) };
    Ok(Ended { sessions, tokens, triggers, identities })
}

/// Sets a new password, ends every session and revokes what is not kept.
pub async fn reset_password(app: &App, origin: &Origin, user: UserId, password: &Secret, keep: Keep) -> Result<Ended> {
    user::check_password(password).map_err(AppError::Invalid)?;
    let hash = app.hasher.hash(password).await?;
    let mut tx = app.store.begin().await?;
    let ended = write_password(app, &mut tx, user, &hash, None, keep).await?;
    app.audit_as(&mut tx, Some(user), origin, AuditAction::UserPasswordReset, &ended.to_string()).await?;
    tx.commit().await?;
    app.tokens.clear();
    Ok(ended)
}

/// The credentials of a sign-in, as they were sent.
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
    let name = rules::required_label(&mut errors, "device_name", &input.device_name, limits::TEXT_CHARS, None);
    let (mut tx, user) = check_credentials(app, &input.credentials, errors, origin).await?;
    let origin = Origin { actor: "device".to_owned(), ..origin.clone() };
    let request = TokenRequest { name: name.unwrap_or_default(), scopes: ScopeSet::all(), expires_at: None };
    let secret = tokens::issue(app, &mut tx, user.user_id(), &origin, &request).await?;
    tx.commit().await?;
    Ok(secret)
}

/// Starts a browser session.
pub async fn sign_in(app: &App, credentials: &Credentials, device: &str, origin: &Origin) -> Result<Secret> {
    let (mut tx, user) = check_credentials(app, credentials, Errors::default(), origin).await?;
    let secret = sessions::start(app, &mut tx, user.user_id(), device, origin).await?;
    tx.commit().await?;
    Ok(secret)
}

/// The owner and the purpose of a one-time link that is still valid. Looking it up does not use it.
pub async fn find_link(app: &App, link: &str) -> Result<Option<(UserRow, LinkPurpose)>> {
    let mut tx = app.store.read().await?;
    let Some((user, purpose)) = links::find_link(&mut tx, &random::digest(link), app.now()).await? else {
        return Ok(None);
    };
    Ok(users::find(&mut tx, user).await?.map(|row| (row, purpose)))
}

/// Claims an account: sets its profile and password, and starts a session. The link is used up.
pub async fn claim(
    app: &App,
    link: &str,
    draft: &UserDraft,
    password: &Secret,
    device: &str,
    origin: &Origin,
) -> Result<Secret> {
    user::check_password(password).map_err(AppError::Invalid)?;
    let hash = app.hasher.hash(password).await?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let (user, purpose) = take_link(app, &mut tx, link).await?;
    // Only an account without an owner can be claimed.
    let has_owner = users::find(&mut tx, user).await?.is_none_or(|row| row.password_hash.is_some());
    if purpose == LinkPurpose::Reset || has_owner {
        return Err(used_up());
    }
    check_free(&mut tx, &draft.email, Some(user)).await?;
    users::update_profile(&mut tx, user, draft, now).await?;
    users::update_password(&mut tx, user, &hash, now).await?;
    app.audit_as(&mut tx, Some(user), origin, AuditAction::UserClaimed, &draft.email).await?;
    let secret = sessions::start(app, &mut tx, user, device, origin).await?;
    tx.commit().await?;
    Ok(secret)
}

async fn take_link(app: &App, tx: &mut Tx, link: &str) -> Result<(UserId, LinkPurpose)> {
    let taken = links::take_link(tx, &random::digest(link), app.now()).await?;
    taken.ok_or_else(used_up)
}

fn used_up() -> AppError {
    AppError::Missing(Missing::Link)
}

/// Sends a link for setting a new password. Whoever asks does not learn whether the account exists: the response is
/// always the same, and the mail is sent after it.
pub async fn request_reset(app: &Arc<App>, email: &str, origin: &Origin) -> Result<()> {
    let email = user::normal_email(email);
    limit_address(app, origin)?;
    limit_account(app, "reset", &email, origin)?;
    let (app, origin) = (app.clone(), origin.clone());
    tokio::spawn(async move {
        if let Err(error) = send_reset(&app, &email, &origin).await {
            tracing::warn!(?error, "failed to send a link for a new password");
        }
    });
    Ok(())
}

async fn send_reset(app: &App, email: &str, origin: &Origin) -> Result<()> {
    // Without mail the link could not be sent, and it would void one that an administrator created.
    if !app.can_mail() {
        return Ok(());
    }
    let found = users::find_by_email(&mut app.store.read().await?, email).await?;
    let Some(user) = found.filter(|user| user.password_hash.is_some() && user.suspended_at.is_none()) else {
        return Ok(());
    };
    let secret = make_link(app, user.user_id(), LinkPurpose::Reset, origin, "reset").await?;
    let mail = Mail {
        to: user.email.clone(),
        subject: "A new password for Holdfast".to_owned(),
        text:
            "Somebody, probably you, asked for a new password. Open the link to choose one; it works once, and for an \
               hour. If it was not you, do nothing: your password stays as it is."
                .to_owned(),
        link: format!("{}/set-up/{}", app.ports.mailer.base_url(), secret.reveal()),
    };
    app.ports.mailer.send(mail).await.map_err(AppError::busy)
}

/// Creates a one-time link; the user's earlier ones become invalid.
pub(crate) async fn make_link(
    app: &App,
    user: UserId,
    purpose: LinkPurpose,
    origin: &Origin,
    detail: &str,
) -> Result<Secret> {
    let mut tx = app.store.begin().await?;
    let secret = write_link(app, &mut tx, user, purpose).await?;
    app.audit_as(&mut tx, Some(user), origin, AuditAction::SignInLinkCreated, detail).await?;
    tx.commit().await?;
    Ok(secret)
}

pub(crate) async fn write_link(app: &App, tx: &mut Tx, user: UserId, purpose: LinkPurpose) -> Result<Secret> {
    let hours = match purpose {
        LinkPurpose::SetUp => LINK_HOURS,
        LinkPurpose::Invitation => INVITATION_HOURS,
        LinkPurpose::Reset => RESET_HOURS,
    };
    let (secret, now) = (random::token(""), app.now());
    let digest = random::digest(secret.reveal());
    links::replace_link(tx, user, purpose, &digest, later(now, hours * 3600), now).await?;
    Ok(secret)
}

/// Sets a new password through a link, ends every session and revokes what is not kept. Two-factor authentication stays
/// on, so this does not sign the user in.
pub async fn reset_by_link(app: &App, link: &str, password: &Secret, keep: Keep, origin: &Origin) -> Result<()> {
    user::check_password(password).map_err(AppError::Invalid)?;
    let hash = app.hasher.hash(password).await?;
    let mut tx = app.store.begin().await?;
    let (user, purpose) = take_link(app, &mut tx, link).await?;
    if purpose != LinkPurpose::Reset {
        return Err(used_up());
    }
    let ended = write_password(app, &mut tx, user, &hash, None, keep).await?;
    app.audit_as(&mut tx, Some(user), origin, AuditAction::UserPasswordReset, &format!("by link, {ended}")).await?;
    tx.commit().await?;
    app.tokens.clear();
    Ok(())
}

/// Whether people may register; an administrator decides.
pub async fn is_registration_open(app: &App) -> Result<bool> {
    let value = settings::find(&mut app.store.read().await?, REGISTRATION).await?;
    Ok(value.as_deref() == Some(OPEN))
}

/// Registers a new user, if that is allowed, and starts a session.
pub async fn register(
    app: &App,
    draft: &UserDraft,
    password: &Secret,
    device: &str,
    origin: &Origin,
) -> Result<Secret> {
    if !is_registration_open(app).await? {
        return Err(AppError::Missing(Missing::Registration));
    }
    limit_address(app, origin)?;
    limit_account(app, "register", &draft.email, origin)?;
    let draft = UserDraft { is_admin: false, ..draft.clone() };
    let id = create(app, origin, &draft, password).await?;
    let mut tx = app.store.begin().await?;
    let secret = sessions::start(app, &mut tx, id, device, origin).await?;
    tx.commit().await?;
    Ok(secret)
}

/// Checks the password of a signed-in user again, before a sensitive action.
pub async fn confirm_password(app: &App, caller: &Caller, password: &str, field: &str) -> Result<UserRow> {
    let user = users::find(&mut app.store.read().await?, caller.user).await?.ok_or(AppError::Unauthenticated)?;
    limit_address(app, &caller.origin)?;
    limit_account(app, "confirm", &user.email, &caller.origin)?;
    if app.hasher.verify(&Secret::new(password), user.password_hash.clone()).await? {
        return Ok(user);
    }
    Err(AppError::Invalid(Errors::one(field, Rule::Password)))
}

/// Changes the caller's own password. The current session stays, every other one ends, and what is not kept is revoked.
pub async fn change_password(
    app: &App,
    caller: &Caller,
    session: &str,
    current: &str,
    password: &Secret,
    keep: Keep,
) -> Result<()> {
    confirm_password(app, caller, current, "current_password").await?;
    user::check_password(password).map_err(AppError::Invalid)?;
    let hash = app.hasher.hash(password).await?;
    let mut tx = app.store.begin().await?;
    let ended = write_password(app, &mut tx, caller.user, &hash, Some(session), keep).await?;
    app.audit(&mut tx, caller, AuditAction::UserPasswordChanged, &ended.to_string()).await?;
    tx.commit().await?;
    app.tokens.clear();
    Ok(())
}

/// Updates the caller's profile. A new email address requires the password: whoever has the address can ask for a new
/// password.
pub async fn update_profile(
    app: &App,
    caller: &Caller,
    draft: &UserDraft,
    language: &str,
    password: &str,
) -> Result<()> {
    let current = users::find(&mut app.store.read().await?, caller.user).await?.ok_or(AppError::Unauthenticated)?;
    if current.email != draft.email {
        confirm_password(app, caller, password, "current_password").await?;
    }
    let now = app.now();
    let mut tx = app.store.begin().await?;
    check_free(&mut tx, &draft.email, Some(caller.user)).await?;
    users::update_profile(&mut tx, caller.user, draft, now).await?;
    users::update_language(&mut tx, caller.user, language, now).await?;
    if current.email != draft.email {
        let detail = format!("{} → {}", current.email, draft.email);
        app.audit(&mut tx, caller, AuditAction::UserEmailChanged, &detail).await?;
    }
    let before = profile(&current.name, &current.timezone, &current.language);
    let changes = Changes::between(&before, &profile(&draft.name, &draft.timezone, language));
    app.audit_changes(&mut tx, caller, AuditAction::UserProfileUpdated, &draft.email, &changes).await?;
    tx.commit().await?;
    app.tokens.clear();
    Ok(())
}

/// A profile as the audit log compares it.
fn profile(name: &str, timezone: &str, language: &str) -> Input {
    Input::default().with("name", name).with("timezone", timezone).with("language", language)
}

/// Deletes the caller's account with everything in it. Stored backups stay at their destinations.
pub async fn delete_own(app: &App, caller: &Caller, email: &str, password: &str) -> Result<()> {
    let user = confirm_password(app, caller, password, "password").await?;
    if user::normal_email(email) != user.email {
        return Err(AppError::Invalid(Errors::one("email", Rule::OwnEmail)));
    }
    delete(app, Some(caller.user), &caller.origin, &user).await
}

/// Deletes an account with everything in it; refused for the only administrator, and while runs are live.
pub async fn delete(app: &App, by: Option<UserId>, origin: &Origin, user: &UserRow) -> Result<()> {
    check_deletable(app, user).await?;
    // Few enough at a time that nobody else has to wait.
    const RUNS_AT_ONCE: i64 = 500;
    loop {
        let mut tx = app.store.begin().await?;
        let gone = users::delete_runs(&mut tx, user.user_id(), RUNS_AT_ONCE).await?;
        tx.commit().await?;
        if gone == 0 {
            break;
        }
    }
    let mut tx = app.store.begin().await?;
    users::lock_admins(&mut tx).await?;
    refuse_deletion(&mut tx, user).await?;
    let ids = ownership::describe_ids(&mut tx, user.id).await?;
    users::delete(&mut tx, user.user_id()).await?;
    let whose = format!("{} {}", user.id, user.email);
    let details = ids.iter().map(|what| format!("{whose}: {what}"));
    for detail in std::iter::once(whose.clone()).chain(details) {
        app.audit_as(&mut tx, by, origin, AuditAction::UserDeleted, &detail).await?;
    }
    tx.commit().await?;
    app.tokens.clear();
    Ok(())
}

async fn check_deletable(app: &App, user: &UserRow) -> Result<()> {
    refuse_deletion(&mut app.store.read().await?, user).await
}

/// Whether this is the only administrator who can sign in.
pub(crate) async fn is_last_admin(tx: &mut Tx, user: &UserRow) -> Result<bool> {
    let is_one = user.is_admin && user.password_hash.is_some() && user.suspended_at.is_none();
    Ok(is_one && users::count_admins(tx).await? <= 1)
}

/// Refuses to delete the only administrator, or an account with live runs.
async fn refuse_deletion(tx: &mut Tx, user: &UserRow) -> Result<()> {
    if is_last_admin(tx, user).await? {
        return Err(AppError::Conflict(Conflict::OnlyAdministrator));
    }
    if users::count_live_runs(tx, user.user_id()).await? > 0 {
        return Err(AppError::Conflict(Conflict::AccountBusy));
    }
    Ok(())
}

pub(crate) async fn check_free(tx: &mut Tx, email: &str, except: Option<UserId>) -> Result<()> {
    match users::find_by_email(tx, email).await? {
        Some(row) if Some(row.user_id()) != except => Err(AppError::Invalid(Errors::one("email", Rule::EmailTaken))),
        _ => Ok(()),
    }
}

/// Checks email, password and one-time code. Every wrong pair of email and password gets the same response in the
/// same time. On success the transaction that used up the code is returned, so that a later failure rolls that back.
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
    limit_address(app, origin)?;
    let user = users::find_by_email(&mut app.store.read().await?, &email).await?;
    limit_sign_in(app, &email, user.as_ref(), origin).await?;
    let hash = user.as_ref().and_then(|user| user.password_hash.clone());
    let matches = app.hasher.verify(&Secret::new(password), hash).await?;
    let Some(user) = user.filter(|_| matches) else {
        let mut tx = app.store.begin().await?;
        let email: String = characters::stored_line(&email).chars().take(limits::TEXT_CHARS).collect();
        app.audit_as(&mut tx, None, origin, AuditAction::SignInRefused, &email).await?;
        tx.commit().await?;
        return Err(AppError::Invalid(Errors::one("email", Rule::Credentials)));
    };
    let mut tx = app.store.begin().await?;
    // Said only to somebody who knows the password.
    if user.suspended_at.is_some() {
        app.audit_as(&mut tx, Some(user.user_id()), origin, AuditAction::SignInRefused, "suspended").await?;
        tx.commit().await?;
        return Err(AppError::Invalid(Errors::one("email", Rule::Suspended)));
    }
    if let Err(error) = two_factor::check(app, &mut tx, &user, &credentials.otp).await {
        app.audit_as(&mut tx, Some(user.user_id()), origin, AuditAction::SignInRefused, "one-time code").await?;
        tx.commit().await?;
        return Err(error);
    }
    Ok((tx, user))
}

fn required(errors: &mut Errors, field: &str, input: &Field<String>) -> Option<String> {
    match input {
        Field::Value(text) if text.is_empty() => rules::required(errors, field),
        Field::Value(text) if text.chars().count() > limits::SECRET_CHARS => {
            errors.add(field, Rule::MaxChars { max: limits::SECRET_CHARS });
        }
        Field::Value(text) => return Some(text.replace('\0', "\u{fffd}")),
        Field::Absent | Field::Null => rules::required(errors, field),
        Field::WrongType => errors.add(field, Rule::Text),
    }
    None
}

/// Counts an attempt from this client address.
pub(crate) fn limit_address(app: &App, origin: &Origin) -> Result<()> {
    take_sign_in(app, &format!("\n{}", client_of(origin)), wide(app))
}

/// Counts an attempt of one kind for an account: few from one client address, a few more from all of them together.
/// Each kind is counted separately, so that guessing passwords does not keep the owner from asking for a new one.
fn limit_account(app: &App, kind: &str, email: &str, origin: &Origin) -> Result<()> {
    take_sign_in(app, &format!("{kind}\n{email}\n{}", client_of(origin)), app.limits.sign_ins)?;
    take_sign_in(app, &format!("{kind}\n{email}\n"), wide(app))
}

/// Counts a sign-in attempt. Attempts by strangers lock nobody out: from an address where the user has signed in
/// before, only the attempts from there count.
async fn limit_sign_in(app: &App, email: &str, user: Option<&UserRow>, origin: &Origin) -> Result<()> {
    let client = client_of(origin);
    take_sign_in(app, &format!("sign-in\n{email}\n{client}"), app.limits.sign_ins)?;
    let Err(error) = take_sign_in(app, &format!("sign-in\n{email}\n"), wide(app)) else { return Ok(()) };
    let Some(user) = user.filter(|_| !client.is_empty()) else { return Err(error) };
    let known = audit::list_sign_in_addresses(&mut app.store.read().await?, user.user_id(), KNOWN_ADDRESSES).await?;
    if known.iter().any(|address| client_key(address) == client) { Ok(()) } else { Err(error) }
}

fn wide(app: &App) -> Quota {
    let narrow = app.limits.sign_ins;
    Quota {
        burst: narrow.burst.saturating_mul(WIDE_SIGN_IN_FACTOR),
        per_period: narrow.per_period.saturating_mul(WIDE_SIGN_IN_FACTOR),
        ..narrow
    }
}

fn take_sign_in(app: &App, key: &str, quota: Quota) -> Result<()> {
    let decision = app.sign_ins.take(random::digest(key), quota, app.now());
    if decision.allowed {
        return Ok(());
    }
    Err(AppError::TooManyRequests { limit: decision.limit, retry_after_secs: decision.retry_after_secs })
}

/// The client that attempts from an address count for; all unknown addresses share one.
fn client_of(origin: &Origin) -> String {
    client_key(origin.address.as_deref().unwrap_or_default())
}

fn client_key(address: &str) -> String {
    address.parse().map_or_else(|_| address.to_owned(), |address| ClientKey::of(address).to_string())
}
