//! `holdfast drain …`: single workers start no further runs, for example before their machine is restarted.

use holdfast_app::draining;
use holdfast_core::Timestamp;
use holdfast_core::clock::rfc3339;
use holdfast_core::lease::is_silent;
use holdfast_store::Migrations;
use holdfast_store::workers::WorkerRow;
use serde_json::{Value, json};

use super::origin::origin;
use crate::cli::DrainCommand;
use crate::failure::Failure;
use crate::output::Printer;
use crate::settings::Settings;
use crate::wiring::open_app;

pub async fn run(settings: &Settings, command: DrainCommand, printer: Printer) -> Result<(), Failure> {
    let app = open_app(settings, Migrations::Never).await?;
    let (name, is_draining) = match command {
        DrainCommand::On { name } => (name, true),
        DrainCommand::Off { name } => (name, false),
        DrainCommand::Show => {
            let workers = draining::list(&app).await?;
            app.store.close().await;
            let now = app.now();
            let shown: Vec<Value> = workers.iter().map(|worker| shape(worker, now)).collect();
            printer.one(&json!({"workers": shown}), |_| words(&workers, now));
            return Ok(());
        }
    };
    let told = draining::set(&app, &origin(), &name, is_draining).await?;
    app.store.close().await;
    if told.is_empty() {
        return Err(Failure::settings(format!("no worker is called {name}; `holdfast drain show` lists them")));
    }
    let names = told.join(", ");
    printer.one(&json!({"workers": told, "draining": is_draining}), |_| match is_draining {
        true => format!("No run starts on {names}. Runs that are in progress finish."),
        false => format!("Runs start again on {names}."),
    });
    Ok(())
}

fn shape(worker: &WorkerRow, now: Timestamp) -> Value {
    json!({
        "name": worker.name,
        "version": worker.version,
        "seen_at": rfc3339(worker.seen_at.0),
        "running": !is_silent(worker.seen_at.0, now),
        "draining": worker.is_draining,
    })
}

fn words(workers: &[WorkerRow], now: Timestamp) -> String {
    if workers.is_empty() {
        return "No worker is running.".to_owned();
    }
    let line = |worker: &WorkerRow| {
        let state = match (is_silent(worker.seen_at.0, now), worker.is_draining) {
            (true, _) => "does not respond",
            (false, true) => "starts no runs",
            (false, false) => "starts runs",
        };
        format!("{}  {state}  version {}, seen {}", worker.name, worker.version, rfc3339(worker.seen_at.0))
    };
    workers.iter().map(line).collect::<Vec<_>>().join("\n")
}
