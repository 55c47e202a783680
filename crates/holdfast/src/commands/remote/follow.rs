//! Runs that a command has started.

use holdfast_client::Client;
use serde_json::Value;

use crate::commands::watch::{self, Wait};
use crate::failure::Failure;
use crate::output::Printer;

/// Waits for the run to finish, or only prints its id.
pub async fn follow(client: &Client, run: &Value, wait: Option<Wait>, printer: Printer) -> Result<(), Failure> {
    let id = run["id"].as_i64().ok_or_else(|| Failure::other("the service did not return the id of the run"))?;
    if let Some(wait) = wait {
        // It was started, whatever becomes of the waiting.
        return watch::run(client, id, wait, printer.is_json)
            .await
            .map_err(|failure| failure.about(&format!("run {id}")));
    }
    printer.one(run, |_| format!("Run {id} is queued; follow it with `holdfast run watch {id}`."));
    Ok(())
}
