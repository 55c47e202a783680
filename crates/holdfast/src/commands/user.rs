//! `holdfast user …`.

use holdfast_app::{accounts, tokens, two_factor};
use holdfast_core::Secret;
use holdfast_core::user::UserDraft;
use holdfast_store::Migrations;
use holdfast_store::users::UserRow;
use serde_json::{Value, json};

use super::origin::origin;
use crate::cli::UserCommand;
use crate::failure::Failure;
use crate::output::{Printer, complain, say};
use crate::settings::Settings;
use crate::wiring::{open_app, refuse_lost_database};

pub async fn run(settings: &Settings, command: UserCommand, printer: Printer) -> Result<(), Failure> {
    // Only the first account may be created before the first start; a mistyped folder must not become an installation.
    let migrations = match command {
        UserCommand::Create { .. } => Migrations::OnlyCreate,
        UserCommand::List
        | UserCommand::ResetPassword { .. }
        | UserCommand::EnableOtp { .. }
        | UserCommand::DisableOtp { .. } => Migrations::Never,
    };
    if migrations == Migrations::OnlyCreate {
        refuse_lost_database(settings).await?;
    }
    let app = open_app(settings, migrations).await?;
    match command {
        UserCommand::Create { email, name, timezone, admin } => {
            let draft = UserDraft::check(&name, &email, &timezone, admin).map_err(holdfast_app::AppError::Invalid)?;
            let id = accounts::create(&app, &origin(), &draft, &read_password()?).await?;
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
            let ended = accounts::reset_password(&app, &origin(), user.user_id(), &read_password()?, keep).await?;
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
    }
    app.store.close().await;
    Ok(())
}

fn tell(user: &UserRow) {
    let role = if user.is_admin { "admin" } else { "user" };
    let otp = if user.totp_sealed.is_some() { "two-factor" } else { "password" };
    say!("{}\t{}\t{}\t{role}\t{otp}\t{}", user.id, user.email, user.name, user.timezone);
}

fn account(user: &UserRow) -> Value {
    json!({"id": user.id.0, "email": user.email, "name": user.name, "is_admin": user.is_admin,
        "has_two_factor": user.totp_sealed.is_some(), "timezone": user.timezone})
}

/// The first line of standard input.
fn read_password() -> Result<Secret, Failure> {
    if std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        complain!("Type the password and press Enter (it is shown; pipe it in to avoid that):");
    }
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .map_err(|error| Failure::other(format!("cannot read the password from standard input: {error}")))?;
    Ok(Secret::new(line.trim_end_matches(['\r', '\n'])))
}
