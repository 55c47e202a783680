//! Administration: accounts, invitations, registration and the state of the installation.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::Secret;
use holdfast_core::audit::AuditAction;
use holdfast_core::ids::UserId;
use holdfast_core::user::{LinkPurpose, UserDraft};
use holdfast_store::audit::{self, EventRow};
use holdfast_store::users::{self, UserRow};
use holdfast_store::workers::{self, LeaseRow, WorkerRow};
use holdfast_store::{DbTime, settings};

use crate::accounts::{self, OPEN, REGISTRATION};
use crate::mailer::Mail;
use crate::ownership::Preview;
use crate::refusal::{Conflict, Missing};
use crate::{App, AppError, Caller, Origin, Resource, Result, ownership, suspension, tokens};

/// The most leases that are shown.
const LEASES: i64 = 100;
/// Audit events per page.
pub const EVENTS: i64 = 50;

pub(crate) fn administrator(caller: &Caller) -> Result<()> {
    if caller.is_admin { Ok(()) } else { Err(AppError::Forbidden(Resource::Administration)) }
}

/// An account, and what it has stored.
pub struct Person {
    pub user: UserRow,
    pub backups: i64,
    pub bytes: i64,
}

pub struct Installation {
    pub people: Vec<Person>,
    pub is_registration_open: bool,
    pub can_mail: bool,
    pub database: &'static str,
    pub workers: Vec<WorkerRow>,
    pub leases: Vec<LeaseRow>,
    pub queued: i64,
    pub queued_since: Option<DbTime>,
}

pub async fn show(app: &App, caller: &Caller) -> Result<Installation> {
    administrator(caller)?;
    let mut tx = app.store.read().await?;
    let storage = workers::list_storage(&mut tx).await?;
    let person = |user: UserRow| {
        let stored = storage.iter().find(|(id, ..)| *id == user.id.0);
        let (backups, bytes) = stored.map_or((0, 0), |(_, backups, bytes)| (*backups, *bytes));
        Person { user, backups, bytes }
    };
    let people = users::list(&mut tx).await?.into_iter().map(person).collect();
    let (queued, queued_since) = workers::find_queue(&mut tx).await?;
    let (workers, leases) = (workers::list(&mut tx).await?, workers::list_leases(&mut tx, LEASES).await?);
    drop(tx);
    Ok(Installation {
        people,
        is_registration_open: accounts::is_registration_open(app).await?,
        can_mail: app.ports.mailer.is_set_up(),
        database: if app.store.is_sqlite() { "SQLite" } else { "PostgreSQL" },
        workers,
        leases,
        queued,
        queued_since,
    })
}

pub async fn set_registration(app: &App, caller: &Caller, is_open: bool) -> Result<()> {
    administrator(caller)?;
    let mut tx = app.store.begin().await?;
    settings::write(&mut tx, REGISTRATION, if is_open { OPEN } else { "closed" }).await?;
    app.audit(&mut tx, caller, AuditAction::RegistrationChanged, if is_open { OPEN } else { "closed" }).await?;
    Ok(tx.commit().await?)
}

/// A link that claims a new account.
pub struct Invitation {
    pub link: Secret,
    /// Whether it was sent by mail; if that failed, the log says why.
    pub is_sent: bool,
}

/// Creates an account without a password, and the link that claims it.
pub async fn invite(app: &App, caller: &Caller, draft: &UserDraft, base_url: &str) -> Result<Invitation> {
    administrator(caller)?;
    let secret = make_invited(app, Some(caller.user), &caller.origin, draft).await?;
    Ok(deliver(app, &draft.email, &secret, base_url).await)
}

/// Like `invite`, for the operator of the machine, who passes on the link.
pub async fn invite_as(app: &App, origin: &Origin, draft: &UserDraft) -> Result<Secret> {
    make_invited(app, None, origin, draft).await
}

async fn make_invited(app: &App, by: Option<UserId>, origin: &Origin, draft: &UserDraft) -> Result<Secret> {
    let mut tx = app.store.begin().await?;
    accounts::check_free(&mut tx, &draft.email, None).await?;
    let id = users::insert(&mut tx, draft, None, app.now()).await?;
    let secret = accounts::write_link(app, &mut tx, id, LinkPurpose::Invitation).await?;
    app.audit_as(&mut tx, by, origin, AuditAction::UserInvited, &draft.email).await?;
    tx.commit().await?;
    Ok(secret)
}

/// A new link for a user who has not claimed their account yet, or who lost their password.
pub async fn renew_link(app: &App, caller: &Caller, id: UserId, base_url: &str) -> Result<Invitation> {
    administrator(caller)?;
    let user = find(app, id).await?;
    let purpose = if user.password_hash.is_some() { LinkPurpose::Reset } else { LinkPurpose::Invitation };
    let mut tx = app.store.begin().await?;
    let secret = accounts::write_link(app, &mut tx, id, purpose).await?;
    app.audit(&mut tx, caller, AuditAction::SignInLinkCreated, &user.email).await?;
    tx.commit().await?;
    Ok(deliver(app, &user.email, &secret, base_url).await)
}

async fn deliver(app: &App, to: &str, secret: &Secret, base_url: &str) -> Invitation {
    let link = Secret::new(format!("{base_url}/set-up/{}", secret.reveal()));
    if !app.ports.mailer.is_set_up() {
        return Invitation { link, is_sent: false };
    }
    let mail = Mail {
        to: to.to_owned(),
        subject: "Your account at Holdfast".to_owned(),
        text: "An administrator of this Holdfast sent you a link to your account. It works once.".to_owned(),
        link: format!("{}/set-up/{}", app.ports.mailer.base_url(), secret.reveal()),
    };
    let sent = app.ports.mailer.send(mail).await;
    if let Err(reason) = &sent {
        tracing::warn!(reason, "failed to send a link");
    }
    Invitation { link, is_sent: sent.is_ok() }
}

pub async fn set_admin(app: &App, caller: &Caller, id: UserId, is_admin: bool) -> Result<()> {
    administrator(caller)?;
    let user = find(app, id).await?;
    write_admin(app, Some(caller.user), &caller.origin, &user, is_admin).await
}

/// Makes an account an administrator, for the operator of the machine: after a recovery there may be none.
pub async fn make_admin_as(app: &App, origin: &Origin, user: &UserRow) -> Result<()> {
    write_admin(app, Some(user.id), origin, user, true).await
}

async fn write_admin(app: &App, by: Option<UserId>, origin: &Origin, user: &UserRow, is_admin: bool) -> Result<()> {
    let mut tx = app.store.begin().await?;
    users::lock_admins(&mut tx).await?;
    if !is_admin && accounts::is_last_admin(&mut tx, user).await? {
        return Err(AppError::Conflict(Conflict::NoAdministrator));
    }
    users::update_admin(&mut tx, user.id, is_admin, app.now()).await?;
    let action = if is_admin { AuditAction::UserMadeAdministrator } else { AuditAction::UserMadeOrdinary };
    app.audit_as(&mut tx, by, origin, action, &user.email).await?;
    tx.commit().await?;
    app.tokens.clear();
    Ok(())
}

/// Whether an administrator can sign in.
pub async fn has_administrator(app: &App) -> Result<bool> {
    Ok(users::count_admins(&mut app.store.read().await?).await? > 0)
}

/// The caller as the audit log names them when they act for somebody else.
pub(crate) async fn administrator_origin(app: &App, caller: &Caller) -> Result<Origin> {
    administrator(caller)?;
    let known = find(app, caller.user).await?;
    let actor = format!("administrator {} ({})", known.email, caller.origin.actor);
    Ok(Origin { actor, ..caller.origin.clone() })
}

pub async fn suspend(app: &App, caller: &Caller, id: UserId) -> Result<()> {
    let origin = administrator_origin(app, caller).await?;
    if id == caller.user {
        return Err(AppError::Conflict(Conflict::OwnSuspension));
    }
    suspension::suspend(app, &origin, &find(app, id).await?).await.map(drop)
}

pub async fn resume(app: &App, caller: &Caller, id: UserId) -> Result<()> {
    let origin = administrator_origin(app, caller).await?;
    suspension::resume(app, &origin, &find(app, id).await?).await
}

/// What a transfer to this account would do, and to whom it would go.
pub async fn preview_transfer(app: &App, caller: &Caller, id: UserId, email: &str) -> Result<(UserRow, Preview)> {
    administrator(caller)?;
    let (from, to) = (find(app, id).await?, tokens::user_by_email(app, email).await?);
    let preview = ownership::preview(app, &from, &to).await?;
    Ok((to, preview))
}

/// Transfers everything of a person to another account. Returns whose it is now.
pub async fn transfer(app: &App, caller: &Caller, id: UserId, email: &str) -> Result<UserId> {
    let origin = administrator_origin(app, caller).await?;
    let (from, to) = (find(app, id).await?, tokens::user_by_email(app, email).await?);
    ownership::transfer(app, &origin, &from, &to).await?;
    Ok(to.id)
}

/// Deletes a user's account. Stored backups stay at their destinations.
pub async fn delete(app: &App, caller: &Caller, id: UserId) -> Result<()> {
    administrator(caller)?;
    if id == caller.user {
        return Err(AppError::Conflict(Conflict::OwnAccount));
    }
    let user = find(app, id).await?;
    accounts::delete(app, Some(caller.user), &caller.origin, &user).await
}

pub async fn show_person(app: &App, caller: &Caller, id: UserId) -> Result<UserRow> {
    administrator(caller)?;
    find(app, id).await
}

async fn find(app: &App, id: UserId) -> Result<UserRow> {
    let found = users::find(&mut app.store.read().await?, id).await?;
    found.ok_or(AppError::Missing(Missing::Account))
}

/// The addresses of the accounts that these events belong to, without those that are gone.
pub async fn list_emails(app: &App, caller: &Caller, events: &[EventRow]) -> Result<BTreeMap<UserId, String>> {
    administrator(caller)?;
    let ids: BTreeSet<UserId> = events.iter().filter_map(|event| event.user_id.map(UserId)).collect();
    let mut tx = app.store.read().await?;
    let mut emails = BTreeMap::new();
    for id in ids {
        if let Some(user) = users::find(&mut tx, id).await? {
            emails.insert(id, user.email);
        }
    }
    Ok(emails)
}

/// The audit log: the caller's own events, or everybody's if an administrator asks for them.
pub async fn list_events(app: &App, caller: &Caller, all: bool, before: Option<i64>) -> Result<Vec<EventRow>> {
    if all {
        administrator(caller)?;
    }
    let user = (!all).then_some(caller.user);
    Ok(audit::list(&mut app.store.read().await?, user, before, EVENTS + 1).await?)
}
