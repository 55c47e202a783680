//! `holdfast maintenance …`: workers start nothing until a time, for upgrades of servers or storage.

use holdfast_app::maintenance;
use holdfast_core::Timestamp;
use holdfast_core::clock::{self, rfc3339};
use holdfast_store::Migrations;
use serde_json::{Value, json};

use super::duration;
use super::origin::origin;
use crate::cli::MaintenanceCommand;
use crate::failure::Failure;
use crate::output::Printer;
use crate::settings::Settings;
use crate::wiring::open_app;

/// So that it is not forgotten.
const LONGEST_MICROS: i64 = 7 * 86_400_000_000;

pub async fn run(settings: &Settings, command: MaintenanceCommand, printer: Printer) -> Result<(), Failure> {
    let app = open_app(settings, Migrations::Never).await?;
    match command {
        MaintenanceCommand::On { lasts } => {
            let micros = duration::parse("--for", &lasts)?;
            if micros > LONGEST_MICROS {
                return Err(Failure::settings("--for must be at most 7d; it can be extended later"));
            }
            let until = clock::from_micros(app.now().as_microsecond().saturating_add(micros));
            maintenance::begin(&app, &origin(), until).await?;
            let text = "Runs that are in progress finish; what is due is queued.";
            printer.one(&state(Some(until)), |_| format!("No run starts until {}. {text}", rfc3339(until)));
        }
        MaintenanceCommand::Off => {
            maintenance::end(&app, &origin()).await?;
            printer.one(&state(None), |_| "Maintenance has ended; queued runs start.".to_owned());
        }
        MaintenanceCommand::Show => {
            let until = maintenance::until(&app).await?;
            printer.one(&state(until), |_| match until {
                Some(until) => format!("No run starts until {}.", rfc3339(until)),
                None => "There is no maintenance.".to_owned(),
            });
        }
    }
    app.store.close().await;
    Ok(())
}

fn state(until: Option<Timestamp>) -> Value {
    json!({"until": until.map(rfc3339)})
}
