//! Commands that do one thing and exit. All are safe beside a running service.

pub mod apply;
mod ask;
pub mod backup;
pub mod demo;
pub mod doctor;
pub mod moving;
pub mod remote;
mod table;
pub mod token;
pub mod user;
mod watch;

use holdfast_app::Origin;
use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_store::{Migrations, rotate};

use crate::failure::Failure;
use crate::settings::Settings;
use crate::wiring::open_app;

/// Who acts when a command does.
pub fn origin() -> Origin {
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
