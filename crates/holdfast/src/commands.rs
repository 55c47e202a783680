//! Commands that do one thing and exit. All of them are safe to use while the service is running.

pub mod apply;
mod ask;
pub mod audit;
pub mod backup;
mod confirm;
mod connection;
pub mod demo;
pub mod doctor;
pub mod drain;
pub mod duration;
pub mod export_yaml;
pub mod maintenance;
pub mod origin;
pub mod remote;
pub mod shell;
mod table;
pub mod token;
pub mod transfer;
pub mod user;
pub mod watch;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_store::{Migrations, Rotated, rotate};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Printer, say};
use crate::settings::Settings;
use crate::wiring::{open_app, open_service};

/// Time limit of the health check, which is repeated often.
const HEALTH_LIMIT: Duration = Duration::from_secs(4);

pub async fn migrate(settings: &Settings, printer: Printer) -> Result<(), Failure> {
    let app = open_service(settings).await?.app;
    app.store.close().await;
    printer.done("The database is up to date.");
    Ok(())
}

pub fn openapi() -> Result<(), Failure> {
    let document = serde_json::to_string_pretty(&holdfast_api::document());
    say!("{}", document.map_err(|error| Failure::other(error.to_string()))?);
    Ok(())
}

/// A health check for environments without an HTTP client, such as our container image.
pub async fn health(settings: &Settings, printer: Printer) -> Result<(), Failure> {
    let mut address = settings.metrics_listen.unwrap_or(settings.listen);
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let away = |error: reqwest::Error| Failure::unreachable(format!("http://{address} does not respond: {error}"));
    let http = reqwest::Client::builder().timeout(HEALTH_LIMIT).no_proxy().build().map_err(away)?;
    let answer = http.get(format!("http://{address}/readyz")).send().await.map_err(away)?;
    let (status, text) = (answer.status(), answer.text().await.map_err(away)?);
    let is_ready = status.is_success();
    printer.one(&json!({"is_ready": is_ready, "message": text.trim()}), |_| text.clone());
    if status.is_success() { Ok(()) } else { Err(Failure::other("not ready")) }
}

pub async fn rotate_key(settings: &Settings, printer: Printer) -> Result<(), Failure> {
    let app = open_app(settings, Migrations::Never).await?;
    let Rotated { resealed, keeps_old_keys } = rotate(&app.store, SystemClock.now()).await?;
    holdfast_app::audit_log::note_key_rotation(&app, &origin::origin(), resealed).await?;
    app.store.close().await;
    let mut words =
        format!("The master key was replaced, and {resealed} secrets were re-encrypted. Keep a copy of the new key.");
    if keeps_old_keys {
        words +=
            "\nThe former keys are still in the mounted file or the variable, and open old copies only; remove them.";
    }
    printer.one(&json!({"re_encrypted": resealed, "keeps_former_keys": keeps_old_keys}), |_| words);
    Ok(())
}
