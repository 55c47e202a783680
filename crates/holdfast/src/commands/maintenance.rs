//! `holdfast maintenance …`: workers start nothing until a time, for upgrades of servers or storage.

use holdfast_app::maintenance;
use holdfast_core::clock::{self, rfc3339};
use holdfast_store::Migrations;

use super::duration;
use super::origin::origin;
use crate::cli::MaintenanceCommand;
use crate::failure::Failure;
use crate::output::say;
use crate::settings::Settings;
use crate::wiring::open_app;

/// So that it is not forgotten.
const LONGEST_MICROS: i64 = 7 * 86_400_000_000;

pub async fn run(settings: &Settings, command: MaintenanceCommand) -> Result<(), Failure> {
    let app = open_app(settings, Migrations::Never).await?;
    match command {
        MaintenanceCommand::On { lasts } => {
            let micros = duration::parse("--for", &lasts)?;
            if micros > LONGEST_MICROS {
                return Err(Failure::settings("--for must be at most 7d; it can be extended later"));
            }
            let until = clock::from_micros(app.now().as_microsecond().saturating_add(micros));
            maintenance::begin(&app, &origin(), until).await?;
            say!("No run starts until {}. Runs that are in progress finish; what is due is queued.", rfc3339(until));
        }
        MaintenanceCommand::Off => {
            maintenance::end(&app, &origin()).await?;
            say!("Maintenance has ended; queued runs start.");
        }
        MaintenanceCommand::Show => match maintenance::until(&app).await? {
            Some(until) => say!("No run starts until {}.", rfc3339(until)),
            None => say!("There is no maintenance."),
        },
    }
    app.store.close().await;
    Ok(())
}
