//! `holdfast user …`.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use holdfast_app::ownership::Preview;
use holdfast_app::refusal::Conflict;
use holdfast_app::{App, AppError, accounts, ownership, people, supervision, suspension, tokens, two_factor};
use holdfast_core::user::UserDraft;
use holdfast_store::Migrations;
use holdfast_store::destinations::StoredRow;
use holdfast_store::users::UserRow;
use serde_json::{Value, json};

use super::origin::origin;
use super::{ask, confirm};
use crate::cli::{Handover, PauseCommand, UserCommand};
use crate::failure::Failure;
use crate::output::{Printer, complain, say};
use crate::settings::Settings;
use crate::wiring::{open_app, refuse_lost_database};

/// A worker notices within a second that a run is cancelled, and then closes connections and removes what is half-written.
const RUNS_END_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How many labels a message lists.
const MOST_LABELS: usize = 20;

pub async fn run(settings: &Settings, command: UserCommand, printer: Printer) -> Result<(), Failure> {
    // Only the first account may be created before the first start; a mistyped folder must not become an installation.
    let migrations = match command {
        UserCommand::Create { .. } => Migrations::OnlyCreate,
        UserCommand::List
        | UserCommand::ResetPassword { .. }
        | UserCommand::EnableOtp { .. }
        | UserCommand::DisableOtp { .. }
        | UserCommand::MakeAdmin { .. }
        | UserCommand::Suspend { .. }
        | UserCommand::Resume { .. }
        | UserCommand::Delete { .. }
        | UserCommand::Transfer { .. } => Migrations::Never,
    };
    if migrations == Migrations::OnlyCreate {
        refuse_lost_database(settings).await?;
    }
    let app = open_app(settings, migrations).await?;
    match command {
        UserCommand::Create { email, name, timezone, admin } => {
            let draft = UserDraft::check(&name, &email, &timezone, admin).map_err(AppError::Invalid)?;
            let id = accounts::create(&app, &origin(), &draft, &ask::new_secret("New password", None)?).await?;
            let words = format!("Created account {id} for {}.", draft.email);
            printer.one(&json!({"id": id.0, "email": draft.email}), |_| words);
        }
        UserCommand::List => {
            let users = accounts::list(&app).await?;
            if printer.is_json {
                let users: Vec<_> = users.iter().map(account).collect();
                say!("{:#}", json!(users));
            } else {
                users.iter().for_each(tell);
            }
        }
        UserCommand::ResetPassword { email, keep } => {
            let user = tokens::user_by_email(&app, &email).await?;
            let ended = accounts::reset_password(
                &app,
                &origin(),
                user.user_id(),
                &ask::new_secret("New password", None)?,
                keep,
            )
            .await?;
            printer.done(&format!("Password of {} changed; {ended}.", user.email));
        }
        UserCommand::EnableOtp { email } => {
            let user = tokens::user_by_email(&app, &email).await?;
            let url = two_factor::enable(&app, &origin(), &user).await?;
            printer.one(&json!({"url": url.reveal()}), |_| url.reveal().to_owned());
        }
        UserCommand::DisableOtp { email } => {
            let user = tokens::user_by_email(&app, &email).await?;
            two_factor::disable(&app, &origin(), &user).await?;
            printer.done(&format!("Two-factor sign-in is off for {}.", user.email));
        }
        UserCommand::MakeAdmin { email } => {
            let user = tokens::user_by_email(&app, &email).await?;
            people::make_admin_as(&app, &origin(), &user).await?;
            printer.done(&format!("{} is an administrator.", user.email));
        }
        UserCommand::Suspend { email } => {
            let user = tokens::user_by_email(&app, &email).await?;
            let cancelled = suspension::suspend(&app, &origin(), &user).await?;
            let words = format!("{} is suspended; runs cancelled: {cancelled}. Backups and settings stay.", user.email);
            printer.done(&words);
        }
        UserCommand::Resume { email } => {
            let user = tokens::user_by_email(&app, &email).await?;
            suspension::resume(&app, &origin(), &user).await?;
            let words = "is active again. Tasks run at their next times; what was missed is not caught up.";
            printer.done(&format!("{} {words}", user.email));
        }
        UserCommand::Delete { email, yes, cancel_runs } => delete(&app, &email, yes, cancel_runs, printer).await?,
        UserCommand::Transfer { from, to, how } => transfer(&app, &from, &to, how, printer).await?,
    }
    app.store.close().await;
    Ok(())
}

fn tell(user: &UserRow) {
    let role = if user.is_admin { "admin" } else { "user" };
    let sign_in = match (&user.password_hash, &user.totp_sealed) {
        (_, Some(_)) => "two-factor",
        (Some(_), None) => "password",
        // Nobody has opened the link to it, or they sign in with another service.
        (None, None) => "no password",
    };
    let state = if user.suspended_at.is_some() { "\tsuspended" } else { "" };
    say!("{}\t{}\t{}\t{role}\t{sign_in}\t{}{state}", user.id, user.email, user.name, user.timezone);
}

fn account(user: &UserRow) -> Value {
    json!({"id": user.id.0, "email": user.email, "name": user.name, "is_admin": user.is_admin,
        "has_two_factor": user.totp_sealed.is_some(), "has_password": user.password_hash.is_some(), "timezone": user.timezone,
        "is_suspended": user.suspended_at.is_some()})
}

async fn delete(app: &App, email: &str, yes: bool, cancel_runs: bool, printer: Printer) -> Result<(), Failure> {
    let user = tokens::user_by_email(app, email).await?;
    let stored = supervision::list_stored(app, &user).await?;
    if !yes {
        stored.iter().for_each(|row| printer.remark(&stays(row)));
        confirm_deletion(&user)?;
    }
    if cancel_runs {
        end_runs(app, &user).await?;
    }
    accounts::delete(app, None, &origin(), &user).await?;
    printer.done(&format!("{} was deleted, with its tasks, servers, destinations and logs.", user.email));
    if yes {
        stored.iter().for_each(|row| printer.remark(&stays(row)));
    }
    Ok(())
}

async fn transfer(app: &App, from: &str, to: &str, how: Handover, printer: Printer) -> Result<(), Failure> {
    let (from, to) = (tokens::user_by_email(app, from).await?, tokens::user_by_email(app, to).await?);
    let preview = ownership::preview(app, &from, &to).await?;
    if !how.yes {
        if !std::io::stdin().is_terminal() {
            let text = "this gives everything to another account; say --yes if nobody can be asked";
            return Err(Failure::settings(text));
        }
        complain!("{}", would_move(&preview, &from, &to));
        confirm::typed(&from.email, "Nobody can undo this at once.")?;
    }
    if how.cancel_runs {
        end_runs(app, &from).await?;
    }
    let done = ownership::transfer(app, &origin(), &from, &to).await?;
    let figures = done.figures;
    let value = json!({"tasks": figures.tasks, "servers": figures.servers, "destinations": figures.destinations,
        "trigger_urls": done.triggers, "loses_private_networks": done.loses_private_networks,
        "shared_labels": preview.shared_labels.iter().map(|row| json!({"kind": row.kind, "label": row.label}))
            .collect::<Vec<_>>()});
    printer.one(&value, |_| {
        format!(
            "{} now has {} tasks, {} servers and {} destinations of {}, with their backups, logs, streams and tags.",
            to.email, figures.tasks, figures.servers, figures.destinations, from.email
        )
    });
    if done.triggers > 0 {
        let text = "trigger URLs still work for whoever knows them; create new ones to void them.";
        printer.remark(&format!("{} {text}", done.triggers));
    }
    if done.loses_private_networks {
        let text = "is no administrator: endpoints and webhooks in private networks are refused from now on.";
        printer.remark(&format!("{} {text}", to.email));
    }
    if how.yes && !preview.shared_labels.is_empty() {
        printer.remark(&shared(&preview, &to));
    }
    if how.cancel_runs {
        printer.remark(&format!("{} is suspended.", from.email));
    }
    Ok(())
}

/// What is about to change, for whoever confirms it.
fn would_move(preview: &Preview, from: &UserRow, to: &UserRow) -> String {
    let figures = &preview.figures;
    let mut lines = vec![
        format!(
            "{} gets {} tasks, {} servers, {} destinations, {} streams and {} tags of {}, with all backups and logs.",
            to.email, figures.tasks, figures.servers, figures.destinations, figures.streams, figures.tags, from.email
        ),
        "Its API tokens and sessions stay, but see none of that any more. Programs need tokens of the new owner."
            .to_owned(),
    ];
    if preview.triggers > 0 {
        lines.push(format!("{} trigger URLs go on working for whoever knows them.", preview.triggers));
    }
    if preview.loses_private_networks {
        lines.push(format!("{} is no administrator: endpoints in private networks are refused then.", to.email));
    }
    if !preview.shared_labels.is_empty() {
        lines.push(shared(preview, to));
    }
    lines.join("\n")
}

/// Labels that commands cannot tell apart after the transfer.
fn shared(preview: &Preview, to: &UserRow) -> String {
    let labels = preview.shared_labels.iter().take(MOST_LABELS);
    let labels: Vec<String> = labels.map(|row| format!("{} {:?}", row.kind, row.label)).collect();
    let more = match preview.shared_labels.len() - labels.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let consequence = "commands need their IDs, and `apply` refuses them until they are renamed";
    format!("{} has labels of its own that are the same: {}{more}; {consequence}.", to.email, labels.join(", "))
}

fn stays(row: &StoredRow) -> String {
    let size = holdfast_core::figures::size(row.bytes);
    format!("{} ({}): {} backups, {size}, stay there; nobody here will know of them.", row.label, row.kind, row.backups)
}

/// Whoever deletes an account types its address.
fn confirm_deletion(user: &UserRow) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::settings("this deletes the account; say --yes if nobody can be asked"));
    }
    complain!("Type {} to delete this account:", user.email);
    if holdfast_core::user::normal_email(&read_line()?) == user.email {
        return Ok(());
    }
    Err(Failure::settings("that is not its address; nothing was deleted"))
}

/// Suspends the account, so that nothing starts any more, and waits until what was running has ended.
async fn end_runs(app: &App, user: &UserRow) -> Result<(), Failure> {
    match suspension::suspend(app, &origin(), user).await {
        Ok(_) => {}
        Err(AppError::Conflict(Conflict::AccountSuspended)) => {
            supervision::cancel_all(app, &origin(), user).await?;
        }
        Err(error) => return Err(error.into()),
    }
    let deadline = Instant::now() + RUNS_END_WITHIN;
    while supervision::count_live_runs(app, user).await? > 0 {
        if Instant::now() >= deadline {
            let text = "its runs were told to end, but have not yet; the account is suspended, so try again later";
            return Err(Failure::other(text));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// `holdfast task pause --user …`, and the same with `resume`.
pub async fn pause(settings: &Settings, command: PauseCommand, printer: Printer) -> Result<(), Failure> {
    let PauseCommand { email, which, is_paused } = command;
    let app = open_app(settings, Migrations::Never).await?;
    let user = tokens::user_by_email(&app, &email).await?;
    let supervision::Paused { changed, stay } =
        supervision::set_paused(&app, &origin(), &user, &which, is_paused).await?;
    app.store.close().await;
    let what = if is_paused { "paused" } else { "resumed" };
    changed.iter().for_each(|label| printer.remark(&format!("{label} {what}")));
    let reason = "stays paused: it was not paused with --all; resume it by its label";
    stay.iter().for_each(|label| printer.remark(&format!("{label} {reason}")));
    let value = json!({ what: changed, "still_paused": stay });
    printer.one(&value, |_| format!("Tasks of {} that were {what}: {}.", user.email, changed.len()));
    Ok(())
}

/// The first line of standard input.
fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .map_err(|error| Failure::other(format!("cannot read standard input: {error}")))?;
    Ok(line)
}
