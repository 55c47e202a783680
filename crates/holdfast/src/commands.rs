//! Commands that do one thing and exit. All are safe beside a running service.

pub mod apply;
mod ask;
pub mod backup;
pub mod demo;
pub mod moving;
pub mod remote;
mod table;
pub mod token;
pub mod user;
mod watch;

use std::os::unix::fs::PermissionsExt as _;

use holdfast_app::Origin;
use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_store::master_key::MasterKeySource;
use holdfast_store::{Migrations, rotate};

use crate::failure::Failure;
use crate::settings::Settings;
use crate::wiring::open_app;

/// Who acts when a command does.
fn origin() -> Origin {
    Origin { actor: "command line".to_owned(), ..Origin::default() }
}

pub async fn migrate(settings: &Settings) -> Result<(), Failure> {
    let app = open_app(settings, Migrations::Apply).await?;
    app.store.close().await;
    println!("The database is up to date.");
    Ok(())
}

pub fn openapi() -> Result<(), Failure> {
    let document = serde_json::to_string_pretty(&holdfast_api::document());
    println!("{}", document.map_err(|error| Failure::other(error.to_string()))?);
    Ok(())
}

pub async fn rotate_key(settings: &Settings) -> Result<(), Failure> {
    let app = open_app(settings, Migrations::OnlyCreate).await?;
    let resealed = rotate(&app.store, SystemClock.now()).await?;
    app.store.close().await;
    println!("The master key is new, and {resealed} secrets are sealed anew. Keep a copy of the key file.");
    Ok(())
}

/// Looks at everything that can be looked at without changing it.
pub async fn doctor(settings: &Settings) -> Result<(), Failure> {
    let mut problems = 0;
    let mut tell = |what: &str, found: Result<String, String>| match found {
        Ok(text) => println!("ok       {what}: {text}"),
        Err(text) => {
            problems += 1;
            println!("PROBLEM  {what}: {text}");
        }
    };
    tell("data folder", check_private(&settings.data_dir, "chmod 700"));
    match &settings.master_key {
        MasterKeySource::File(path) => tell("master key", check_private(path, "chmod 600")),
        MasterKeySource::Given(_) => tell("master key", Ok("from HOLDFAST_MASTER_KEY".to_owned())),
    }
    let exists = settings.database_url.reveal().starts_with("postgres") || settings.data_dir.exists();
    if exists {
        match open_app(settings, Migrations::OnlyCreate).await {
            Ok(app) => {
                let users = holdfast_app::accounts::list(&app).await?;
                let kind = if app.store.is_sqlite() { "SQLite" } else { "PostgreSQL" };
                tell("database", Ok(format!("{kind} answers and the master key opens it")));
                let found = if users.iter().any(|user| user.password_hash.is_some()) {
                    Ok(format!("{} in all", users.len()))
                } else {
                    Err("nobody can sign in yet; start `holdfast serve` and open the link it prints".to_owned())
                };
                tell("accounts", found);
                app.store.close().await;
            }
            Err(failure) => tell("database", Err(failure.message)),
        }
    }
    match problems {
        0 => Ok(()),
        1 => Err(Failure::other("1 problem found")),
        many => Err(Failure::other(format!("{many} problems found"))),
    }
}

/// Present, and readable by its owner alone.
fn check_private(path: &std::path::Path, remedy: &str) -> Result<String, String> {
    let shown = path.display();
    let meta = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{shown} is not there yet; `holdfast serve` creates it"),
        _ => format!("cannot look at {shown}: {error}"),
    })?;
    if meta.permissions().mode() & 0o077 != 0 {
        return Err(format!("others can read {shown}; run {remedy} {shown}"));
    }
    Ok(shown.to_string())
}
