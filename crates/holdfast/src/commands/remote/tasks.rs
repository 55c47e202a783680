//! `holdfast task …`, apart from what all resources have.

use holdfast_client::kinds::TASKS;
use holdfast_client::resource::find;
use holdfast_client::{Client, ClientError};
use serde_json::{Value, json};

use super::follow::follow;
use crate::commands::table::{bytes, list, text};
use crate::commands::watch::Wait;
use crate::failure::Failure;
use crate::output::Printer;

pub enum TaskAction {
    Run { task: String, wait: Option<Wait> },
    Pause { task: String },
    Resume { task: String },
    Cancel { task: String },
    Log { task: String },
    Logs { task: String, status: Option<String> },
    Repository { task: String },
    Maintain { task: String, what: Maintenance, wait: Option<Wait> },
    Upcoming,
    ReleaseRetention { task: String, backup: Option<i64> },
}

/// What can be requested for a repository.
#[derive(Clone, Copy)]
pub enum Maintenance {
    Prune,
    Check,
}

pub async fn run(client: &Client, action: TaskAction, printer: Printer) -> Result<(), Failure> {
    let path = async |task: &str| Ok::<_, ClientError>(format!("{}/{}", TASKS.path, find(client, &TASKS, task).await?));
    match action {
        TaskAction::Run { task, wait } => {
            // Asks for nothing that a token which may only run tasks could not get.
            let run = client.post(&format!("{}/run", path(&task).await?), None).await?;
            follow(client, &run, wait, printer).await?;
        }
        TaskAction::Pause { task } => {
            client.post(&format!("{}/pause", path(&task).await?), None).await?;
            printer.done("The task is paused.");
        }
        TaskAction::Resume { task } => {
            client.post(&format!("{}/resume", path(&task).await?), None).await?;
            printer.done("The task is resumed. It will run at its next scheduled time.");
        }
        TaskAction::Cancel { task } => {
            client.post(&format!("{}/cancel", path(&task).await?), None).await?;
            printer.done("The run is being cancelled.");
        }
        TaskAction::Log { task } => {
            let found = client.get(&format!("{}/latest-log", path(&task).await?)).await?;
            printer.one(&found, |found| format!("{}\n{}", text(&found["status"]), text(&found["output"]).trim_end()));
        }
        TaskAction::Logs { task, status } => {
            let query: Vec<(&str, &str)> = status.iter().map(|status| ("status", status.as_str())).collect();
            let rows = client.list(&format!("{}/logs", path(&task).await?), &query).await?;
            list(printer, &rows, &["ID", "STATUS", "TRIGGER", "STARTED", "ENDED", "FILES", "STORED", "ERROR"], log);
        }
        TaskAction::Repository { task } => {
            let found = client.get(&format!("{}/repository", path(&task).await?)).await?;
            printer.one(&found, repository);
        }
        TaskAction::Maintain { task, what, wait } => {
            let action = match what {
                Maintenance::Prune => "prune",
                Maintenance::Check => "check",
            };
            let run = client.post(&format!("{}/repository/{action}", path(&task).await?), None).await?;
            follow(client, &run, wait, printer).await?;
        }
        TaskAction::Upcoming => {
            let found = client.get(&format!("{}/upcoming?limit=100", TASKS.path)).await?;
            let rows = found.as_array().cloned().unwrap_or_default();
            let fields = ["backup_task_id", "label", "type", "next_run"];
            list(printer, &rows, &["ID", "LABEL", "TYPE", "NEXT RUN"], |row| {
                fields.iter().map(|name| text(&row[*name])).collect()
            });
        }
        TaskAction::ReleaseRetention { task, backup } => {
            let body = backup.map(|backup| json!({"backup_id": backup}));
            let path = format!("{}/release-retention", path(&task).await?);
            let found = client.post(&path, body.as_ref()).await?;
            printer.one(&found, |_| "Old backups are removed again after the next successful run.".to_owned());
        }
    }
    Ok(())
}

fn repository(found: &Value) -> String {
    let or_never = |name: &str| if found[name].is_null() { "never".to_owned() } else { text(&found[name]) };
    let mut lines = vec![
        format!("Folder: /{}", text(&found["folder"])),
        format!("Backups: {}, which hold {}", text(&found["backups"]), bytes(&found["plain_bytes"])),
        format!("Stored: {}", bytes(&found["stored_bytes"])),
        format!("Left by removed backups: at most {}", bytes(&found["garbage_bytes"])),
        format!("Pruned: {}", or_never("pruned_at")),
        format!("Checked completely: {}", or_never("checked_at")),
    ];
    if !found["error"].is_null() {
        lines.push(format!("The last maintenance failed: {}", text(&found["error"])));
    }
    lines.join("\n")
}

fn log(row: &Value) -> Vec<String> {
    let fields = ["id", "status", "trigger", "started_at", "finished_at", "files"];
    let mut cells: Vec<String> = fields.iter().map(|name| text(&row[*name])).collect();
    cells.push(bytes(&row["bytes_stored"]));
    cells.push(text(&row["error_code"]));
    cells
}
