//! `holdfast user …`.

use holdfast_app::{accounts, tokens, two_factor};
use holdfast_core::Secret;
use holdfast_core::user::UserDraft;
use holdfast_store::Migrations;

use super::origin::origin;
use crate::cli::UserCommand;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::wiring::open_app;

pub async fn run(settings: &Settings, command: UserCommand) -> Result<(), Failure> {
    let app = open_app(settings, Migrations::OnlyCreate).await?;
    match command {
        UserCommand::Create { email, name, timezone, admin } => {
            let draft = UserDraft::check(&name, &email, &timezone, admin).map_err(holdfast_app::AppError::Invalid)?;
            let id = accounts::create(&app, &origin(), &draft, &read_password()?).await?;
            println!("Created account {id} for {}.", draft.email);
        }
        UserCommand::List => {
            for user in accounts::list(&app).await? {
                let role = if user.is_admin { "admin" } else { "user" };
                let otp = if user.totp_sealed.is_some() { "two-factor" } else { "password" };
                println!("{}\t{}\t{}\t{role}\t{otp}\t{}", user.id, user.email, user.name, user.timezone);
            }
        }
        UserCommand::ResetPassword { email, keep } => {
            let user = tokens::user_by_email(&app, &email).await?;
            let ended = accounts::reset_password(&app, &origin(), user.user_id(), &read_password()?, keep).await?;
            println!("Password of {} changed; {ended}.", user.email);
        }
        UserCommand::EnableOtp { email } => {
            let user = tokens::user_by_email(&app, &email).await?;
            let url = two_factor::enable(&app, &origin(), &user).await?;
            println!("{}", url.reveal());
        }
        UserCommand::DisableOtp { email } => {
            let user = tokens::user_by_email(&app, &email).await?;
            two_factor::disable(&app, &origin(), &user).await?;
            println!("Two-factor sign-in is off for {}.", user.email);
        }
    }
    app.store.close().await;
    Ok(())
}

/// The first line of standard input.
fn read_password() -> Result<Secret, Failure> {
    if std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        eprintln!("Type the password and press Enter (it is shown; pipe it in to avoid that):");
    }
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .map_err(|error| Failure::other(format!("cannot read the password from standard input: {error}")))?;
    Ok(Secret::new(line.trim_end_matches(['\r', '\n'])))
}
