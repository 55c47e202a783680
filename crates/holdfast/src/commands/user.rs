//! `holdfast user …`.

use holdfast_app::{accounts, suspension, tokens, two_factor};
use holdfast_core::Secret;
use holdfast_core::user::UserDraft;
use holdfast_store::Migrations;

use super::origin::origin;
use crate::cli::UserCommand;
use crate::failure::Failure;
use crate::output::{complain, say};
use crate::settings::Settings;
use crate::wiring::{open_app, refuse_lost_database};

pub async fn run(settings: &Settings, command: UserCommand) -> Result<(), Failure> {
    // Only the first account may be created before the first start; a mistyped folder must not become an installation.
    let migrations = match command {
        UserCommand::Create { .. } => Migrations::OnlyCreate,
        UserCommand::List
        | UserCommand::ResetPassword { .. }
        | UserCommand::EnableOtp { .. }
        | UserCommand::DisableOtp { .. }
        | UserCommand::Suspend { .. }
        | UserCommand::Resume { .. } => Migrations::Never,
    };
    if migrations == Migrations::OnlyCreate {
        refuse_lost_database(settings).await?;
    }
    let app = open_app(settings, migrations).await?;
    match command {
        UserCommand::Create { email, name, timezone, admin } => {
            let draft = UserDraft::check(&name, &email, &timezone, admin).map_err(holdfast_app::AppError::Invalid)?;
            let id = accounts::create(&app, &origin(), &draft, &read_password()?).await?;
            say!("Created account {id} for {}.", draft.email);
        }
        UserCommand::List => {
            for user in accounts::list(&app).await? {
                let role = if user.is_admin { "admin" } else { "user" };
                let state = if user.suspended_at.is_some() { "\tsuspended" } else { "" };
                let otp = if user.totp_sealed.is_some() { "two-factor" } else { "password" };
                say!("{}\t{}\t{}\t{role}\t{otp}\t{}{state}", user.id, user.email, user.name, user.timezone);
            }
        }
        UserCommand::ResetPassword { email, keep } => {
            let user = tokens::user_by_email(&app, &email).await?;
            let ended = accounts::reset_password(&app, &origin(), user.user_id(), &read_password()?, keep).await?;
            say!("Password of {} changed; {ended}.", user.email);
        }
        UserCommand::EnableOtp { email } => {
            let user = tokens::user_by_email(&app, &email).await?;
            let url = two_factor::enable(&app, &origin(), &user).await?;
            say!("{}", url.reveal());
        }
        UserCommand::DisableOtp { email } => {
            let user = tokens::user_by_email(&app, &email).await?;
            two_factor::disable(&app, &origin(), &user).await?;
            say!("Two-factor sign-in is off for {}.", user.email);
        }
        UserCommand::Suspend { email } => {
            let user = tokens::user_by_email(&app, &email).await?;
            let cancelled = suspension::suspend(&app, &origin(), &user).await?;
            say!("{} is suspended; runs cancelled: {cancelled}. Backups and settings stay.", user.email);
        }
        UserCommand::Resume { email } => {
            let user = tokens::user_by_email(&app, &email).await?;
            suspension::resume(&app, &origin(), &user).await?;
            say!("{} is active again. Tasks run at their next times; what was missed is not caught up.", user.email);
        }
    }
    app.store.close().await;
    Ok(())
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
