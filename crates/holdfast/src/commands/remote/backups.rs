//! `holdfast backup …` on a service, and `holdfast run …`.

use std::path::PathBuf;

use holdfast_client::Client;
use holdfast_client::kinds::{SERVERS, TASKS};
use holdfast_client::resource::find;
use serde_json::{Value, json};

use super::download;
use super::follow::follow;
use crate::commands::table::{bytes, list, text};
use crate::commands::watch::Wait;
use crate::commands::{confirm, watch};
use crate::failure::Failure;
use crate::output::Printer;

const PATH: &str = "/api/backups";

pub enum BackupAction {
    List { task: Option<String> },
    Show { id: i64 },
    Entries { id: i64, path: String },
    Verify { id: i64, wait: Option<Wait> },
    Restore { id: i64, target: RestoreArguments, wait: Option<Wait> },
    Download { id: i64, entry: Option<String>, output: PathBuf },
    Delete { id: i64, yes: bool },
}

/// Where and how a backup is restored.
pub struct RestoreArguments {
    pub server: String,
    pub path: Option<String>,
    pub database: Option<String>,
    pub entries: Vec<String>,
    /// The switches of the request that are on.
    pub switches: Vec<&'static str>,
}

pub enum RunAction {
    List { backup: Option<String>, status: Option<String> },
    Show { id: i64 },
    Watch { id: i64, wait: Wait },
    Cancel { id: i64 },
}

pub async fn backups(client: &Client, action: BackupAction, printer: Printer) -> Result<(), Failure> {
    match action {
        BackupAction::List { task } => list_backups(client, task.as_deref(), printer).await,
        BackupAction::Show { id } => {
            let found = client.get(&format!("{PATH}/{id}")).await?;
            printer.one(&found, backup_words);
            Ok(())
        }
        BackupAction::Entries { id, path } => {
            let rows = client.list(&format!("{PATH}/{id}/entries"), &[("path", path.as_str())]).await?;
            list(printer, &rows, &["TYPE", "SIZE", "MODIFIED", "PATH"], |row| {
                vec![text(&row["type"]), bytes(&row["size"]), text(&row["modified_at"]), text(&row["path"])]
            });
            Ok(())
        }
        BackupAction::Verify { id, wait } => {
            let run = client.post(&format!("{PATH}/{id}/verify"), None).await?;
            follow(client, &run, wait, printer).await
        }
        BackupAction::Restore { id, target, wait } => {
            let body = restore_body(client, &target).await?;
            let run = client.post(&format!("{PATH}/{id}/restores"), Some(&body)).await?;
            follow(client, &run, wait, printer).await
        }
        BackupAction::Download { id, entry, output } => {
            let query = entry.as_deref().map(|entry| query(&[("entry", entry)])).unwrap_or_default();
            let path = format!("{PATH}/{id}/download?{query}");
            if output.as_os_str() == "-" {
                return download::to_stdout(client, &path).await;
            }
            let size = download::to_file(client, &path, &output, printer).await?;
            let file = output.display().to_string();
            let words = format!("Downloaded {file} ({size} bytes).");
            printer.one(&json!({"message": words, "file": file, "bytes": size}), |_| words.clone());
            Ok(())
        }
        BackupAction::Delete { id, yes } => {
            if !yes {
                confirm::typed(&id.to_string(), &format!("Backup {id} is deleted for good."))?;
            }
            let found = client.delete(&format!("{PATH}/{id}")).await?;
            printer.one(&found, |found| text(&found["message"]));
            Ok(())
        }
    }
}

async fn list_backups(client: &Client, task: Option<&str>, printer: Printer) -> Result<(), Failure> {
    let task = match task {
        Some(task) => Some(find(client, &TASKS, task).await?.to_string()),
        None => None,
    };
    let query: Vec<(&str, &str)> = task.iter().map(|task| ("backup_task_id", task.as_str())).collect();
    let rows = client.list(PATH, &query).await?;
    list(printer, &rows, &["ID", "TASK", "CREATED", "SIZE", "ENTRIES", "ENCRYPTED", "VERIFICATION"], |row| {
        vec![
            text(&row["id"]),
            text(&row["task_label"]),
            text(&row["created_at"]),
            bytes(&row["size_bytes"]),
            text(&row["entries"]),
            if row["is_encrypted"] == true { "yes" } else { "no" }.to_owned(),
            text(&row["verification"]["status"]),
        ]
    });
    Ok(())
}

fn backup_words(found: &Value) -> String {
    format!(
        "backup {} of {}\n  source       {}\n  created      {}\n  stored as    {}\n  size         {}\n  \
         entries      {}\n  verification {}\n  SHA-256      {}",
        text(&found["id"]),
        text(&found["task_label"]),
        text(&found["source"]),
        text(&found["created_at"]),
        text(&found["key"]),
        bytes(&found["size_bytes"]),
        text(&found["entries"]),
        text(&found["verification"]["status"]),
        text(&found["sha256"]),
    )
}

async fn restore_body(client: &Client, target: &RestoreArguments) -> Result<Value, Failure> {
    let server = find(client, &SERVERS, &target.server).await?;
    let mut body = json!({"remote_server_id": server});
    for switch in &target.switches {
        body[*switch] = json!(true);
    }
    if let Some(path) = &target.path {
        body["path"] = json!(path);
    }
    if let Some(database) = &target.database {
        body["database_name"] = json!(database);
    }
    if !target.entries.is_empty() {
        body["entries"] = json!(target.entries);
    }
    Ok(body)
}

fn query(pairs: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

pub async fn runs(client: &Client, action: RunAction, printer: Printer) -> Result<(), Failure> {
    const PATH: &str = "/api/runs";
    match action {
        RunAction::List { backup, status } => {
            let filters = [("backup_id", backup), ("status", status)];
            let query = filters.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
            let rows = client.list(PATH, &query.collect::<Vec<_>>()).await?;
            list(printer, &rows, &["ID", "KIND", "STATUS", "BACKUP", "STARTED", "ENDED", "ERROR"], |row| {
                let fields = ["id", "kind", "status", "backup_id", "started_at", "finished_at", "error_code"];
                fields.iter().map(|name| text(&row[*name])).collect()
            });
        }
        RunAction::Show { id } => {
            let found = client.get(&format!("{PATH}/{id}")).await?;
            printer.one(&found, |found| {
                let head = format!("run {id}: {} {}", text(&found["kind"]), text(&found["status"]));
                format!("{head}\n{}", text(&found["output"]).trim_end())
            });
        }
        RunAction::Watch { id, wait } => watch::run(client, id, wait, printer.is_json).await?,
        RunAction::Cancel { id } => {
            client.post(&format!("{PATH}/{id}/cancel"), None).await?;
            printer.done("The run is being cancelled.");
        }
    }
    Ok(())
}
