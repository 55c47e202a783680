//! `holdfast task|backup|run|server …`: use a service over its API, with its URL and a token.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use holdfast_client::{Client, ClientError};
use serde_json::{Value, json};

use super::table::{Table, bytes, text};
use super::watch;
use crate::failure::Failure;
use crate::output::{self, complain, say};
use crate::settings::ClientSettings;

/// The maximum number of rows that a command lists.
const MOST: usize = 10_000;

pub enum Remote {
    Tasks(TaskAction),
    Backups(BackupAction),
    Runs(RunAction),
    Servers(ServerAction),
}

pub enum TaskAction {
    List { search: Option<String> },
    Show { task: String },
    Run { task: String, wait: bool },
    Pause { task: String },
    Resume { task: String },
    Cancel { task: String },
    Log { task: String },
}

pub enum BackupAction {
    List { task: Option<String> },
    Show { id: i64 },
    Entries { id: i64, path: String },
    Verify { id: i64, wait: bool },
    Restore { id: i64, target: RestoreArguments, wait: bool },
    Download { id: i64, entry: Option<String>, output: PathBuf },
}

/// Where and how a backup is restored.
pub struct RestoreArguments {
    pub server: String,
    pub path: Option<String>,
    pub database: Option<String>,
    pub entries: Vec<String>,
    pub overwrite: bool,
}

pub enum RunAction {
    List,
    Show { id: i64 },
    Watch { id: i64 },
    Cancel { id: i64 },
}

pub enum ServerAction {
    List { search: Option<String> },
    Show { server: String },
    Check { server: String, wait: bool },
    Key,
}

/// The output format of a command: human-readable, or the JSON of the API.
#[derive(Clone, Copy)]
pub struct Printer {
    pub is_json: bool,
}

impl Printer {
    fn one(self, value: &Value, words: impl FnOnce(&Value) -> String) {
        if self.is_json {
            say!("{value:#}");
        } else {
            say!("{}", words(value));
        }
    }

    fn list(self, rows: &[Value], columns: &[&str], row: impl Fn(&Value) -> Vec<String>) {
        if self.is_json {
            say!("{:#}", Value::Array(rows.to_vec()));
            return;
        }
        let mut table = Table::new(columns);
        rows.iter().for_each(|found| table.push(row(found)));
        output::print(format_args!("{table}"));
    }

    fn done(self, words: &str) {
        if self.is_json {
            say!("{:#}", json!({"message": words}));
        } else {
            say!("{words}");
        }
    }
}

pub fn client(settings: &ClientSettings) -> Result<Client, Failure> {
    let url = settings.url.as_deref().ok_or_else(|| {
        Failure::settings("set HOLDFAST_URL (or --url) to the service, for example https://backup.example.org")
    })?;
    let token = settings.token.as_ref().ok_or_else(|| {
        Failure::settings("set HOLDFAST_TOKEN or HOLDFAST_TOKEN_FILE to a token from your account page")
    })?;
    Ok(Client::new(url, token.reveal(), settings.ca_pem.as_deref())?)
}

pub async fn run(settings: &ClientSettings, command: Remote, printer: Printer) -> Result<(), Failure> {
    let client = client(settings)?;
    match command {
        Remote::Tasks(action) => tasks(&client, action, printer).await,
        Remote::Backups(action) => backups(&client, action, printer).await,
        Remote::Runs(action) => runs(&client, action, printer).await,
        Remote::Servers(action) => servers(&client, action, printer).await,
    }
}

/// The rows of a list, and a warning if there are more than are shown.
async fn list(client: &Client, path: &str, query: &[(&str, &str)]) -> Result<Vec<Value>, Failure> {
    let mut rows = client.list(path, query, MOST + 1).await?;
    if rows.len() > MOST {
        rows.truncate(MOST);
        complain!("holdfast: there are more; only the first {MOST} are listed");
    }
    Ok(rows)
}

/// The id of a resource that was given by its id or its exact label.
async fn find(client: &Client, path: &str, what: &str, name: &str) -> Result<i64, Failure> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let found = list(client, path, &[("search", name)]).await?;
    let exact: Vec<i64> =
        found.iter().filter(|row| row["label"] == name).filter_map(|row| row["id"].as_i64()).collect();
    match exact.as_slice() {
        [id] => Ok(*id),
        [] => Err(ClientError::Missing(format!("there is no {what} called {name:?}")).into()),
        several => {
            let ids: Vec<String> = several.iter().map(i64::to_string).collect();
            let text = format!("several {what}s are called {name:?}: use one of the IDs {}", ids.join(", "));
            Err(Failure::settings(text))
        }
    }
}

async fn tasks(client: &Client, action: TaskAction, printer: Printer) -> Result<(), Failure> {
    const PATH: &str = "/api/backup-tasks";
    let id = async |name: &str| find(client, PATH, "task", name).await;
    match action {
        TaskAction::List { search } => {
            let rows = list(client, PATH, &search_of(search.as_deref())).await?;
            printer.list(&rows, &["ID", "LABEL", "SOURCE", "SCHEDULE", "STATUS", "LAST RUN (UTC)"], |row| {
                vec![
                    text(&row["id"]),
                    text(&row["label"]),
                    source(&row["source"]),
                    schedule(&row["schedule"]),
                    if row["paused_at"].is_null() { text(&row["status"]) } else { "paused".to_owned() },
                    text(&row["last_run_utc_time"]),
                ]
            });
        }
        TaskAction::Show { task } => {
            let found = client.get(&format!("{PATH}/{}", id(&task).await?)).await?;
            printer.one(&found, |found| {
                format!(
                    "{} (task {})\n  source       {}\n  schedule     {}\n  keeps        {}\n  encrypted    {}\n  \
                     status       {}\n  last run     {}",
                    text(&found["label"]),
                    text(&found["id"]),
                    source(&found["source"]),
                    schedule(&found["schedule"]),
                    text(&found["storage"]["max_backups"]),
                    if found["has_encryption_password"] == true { "yes" } else { "no" },
                    if found["paused_at"].is_null() { text(&found["status"]) } else { "paused".to_owned() },
                    text(&found["last_run_utc_time"]),
                )
            });
        }
        TaskAction::Run { task, wait } => {
            // Asks for nothing that a token which may only run tasks could not get.
            let run = client.post(&format!("{PATH}/{}/run", id(&task).await?), None).await?;
            follow(client, &run, wait, printer).await?;
        }
        TaskAction::Pause { task } => {
            client.post(&format!("{PATH}/{}/pause", id(&task).await?), None).await?;
            printer.done("The task is paused.");
        }
        TaskAction::Resume { task } => {
            client.post(&format!("{PATH}/{}/resume", id(&task).await?), None).await?;
            printer.done("The task is resumed. It will run at its next scheduled time.");
        }
        TaskAction::Cancel { task } => {
            client.post(&format!("{PATH}/{}/cancel", id(&task).await?), None).await?;
            printer.done("The run is being cancelled.");
        }
        TaskAction::Log { task } => {
            let found = client.get(&format!("{PATH}/{}/latest-log", id(&task).await?)).await?;
            printer.one(&found, |found| format!("{}\n{}", text(&found["status"]), text(&found["output"]).trim_end()));
        }
    }
    Ok(())
}

fn search_of(search: Option<&str>) -> Vec<(&str, &str)> {
    search.map(|text| ("search", text)).into_iter().collect()
}

fn source(found: &Value) -> String {
    match found["type"].as_str() {
        Some("database") => {
            let place = found["path"].as_str().or(found["database_name"].as_str());
            let name = place.unwrap_or("all databases");
            format!("{} {name}", text(&found["database_engine"]))
        }
        _ => text(&found["path"]),
    }
}

fn schedule(found: &Value) -> String {
    let zone = found["timezone"].as_str().unwrap_or("UTC");
    match found["custom_cron"].as_str() {
        Some(cron) => format!("{cron} {zone}"),
        None => {
            let time = found["time_to_run_at"].as_str().map(|time| format!("{time} {zone}")).unwrap_or_default();
            format!("{} {time}", text(&found["frequency"])).trim().to_owned()
        }
    }
}

async fn backups(client: &Client, action: BackupAction, printer: Printer) -> Result<(), Failure> {
    const PATH: &str = "/api/backups";
    match action {
        BackupAction::List { task } => {
            let task = match task {
                Some(task) => Some(find(client, "/api/backup-tasks", "task", &task).await?.to_string()),
                None => None,
            };
            let query: Vec<(&str, &str)> = task.iter().map(|task| ("backup_task_id", task.as_str())).collect();
            let rows = list(client, PATH, &query).await?;
            printer.list(&rows, &["ID", "TASK", "CREATED", "SIZE", "ENTRIES", "ENCRYPTED", "VERIFICATION"], |row| {
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
        }
        BackupAction::Show { id } => {
            let found = client.get(&format!("{PATH}/{id}")).await?;
            printer.one(&found, |found| {
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
            });
        }
        BackupAction::Entries { id, path } => {
            let rows = list(client, &format!("{PATH}/{id}/entries"), &[("path", path.as_str())]).await?;
            printer.list(&rows, &["TYPE", "SIZE", "MODIFIED", "PATH"], |row| {
                vec![text(&row["type"]), bytes(&row["size"]), text(&row["modified_at"]), text(&row["path"])]
            });
        }
        BackupAction::Verify { id, wait } => {
            let run = client.post(&format!("{PATH}/{id}/verify"), None).await?;
            follow(client, &run, wait, printer).await?;
        }
        BackupAction::Restore { id, target, wait } => {
            let server = find(client, "/api/remote-servers", "server", &target.server).await?;
            let mut body = json!({"remote_server_id": server, "overwrite": target.overwrite});
            if let Some(path) = &target.path {
                body["path"] = json!(path);
            }
            if let Some(database) = &target.database {
                body["database_name"] = json!(database);
            }
            if !target.entries.is_empty() {
                body["entries"] = json!(target.entries);
            }
            let run = client.post(&format!("{PATH}/{id}/restores"), Some(&body)).await?;
            follow(client, &run, wait, printer).await?;
        }
        BackupAction::Download { id, entry, output } => {
            let query = entry.as_deref().map(|entry| query(&[("entry", entry)])).unwrap_or_default();
            let path = format!("{PATH}/{id}/download?{query}");
            if output.as_os_str() == "-" {
                return download_to_stdout(client, &path).await;
            }
            let size = download(client, &path, &output).await?;
            printer.done(&format!("Downloaded {} ({size} bytes).", output.display()));
        }
    }
    Ok(())
}

fn query(pairs: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// Waits for the run to finish, or only prints its id.
async fn follow(client: &Client, run: &Value, wait: bool, printer: Printer) -> Result<(), Failure> {
    let id = run["id"].as_i64().ok_or_else(|| Failure::other("the service did not return the id of the run"))?;
    if wait {
        return watch::run(client, id, printer.is_json).await;
    }
    printer.one(run, |_| format!("Run {id} is queued; follow it with `holdfast run watch {id}`."));
    Ok(())
}

/// Downloads to a file, which gets its final name only when it is complete.
async fn download(client: &Client, path: &str, output: &Path) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| Failure::io(&error, output);
    if output.exists() {
        return Err(Failure::settings(format!("{} already exists; choose another file", output.display())));
    }
    let mut name = output.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let response = client.download(path).await?;
    let total = response.content_length();
    // Overwrite what an earlier attempt left behind.
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&part);
    let mut file = file.map_err(|error| Failure::io(&error, &part))?;
    let bar = watch::Bar::new("Downloading");
    let (mut pieces, mut size) = (response.bytes_stream(), 0);
    let copied: Result<(), Failure> = async {
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| Failure::unreachable(format!("the download failed: {error}")))?;
            file.write_all(&piece).map_err(failed)?;
            size += piece.len() as u64;
            bar.show(size, total);
        }
        if total.is_some_and(|total| total != size) {
            return Err(Failure::unreachable("the download ended before it was complete"));
        }
        file.sync_all().and_then(|()| std::fs::rename(&part, output)).map_err(failed)
    }
    .await;
    bar.end();
    if copied.is_err()
        && let Err(error) = std::fs::remove_file(&part)
    {
        complain!("holdfast: could not remove {}: {error}", part.display());
    }
    copied.map(|()| size)
}

/// Downloads to standard output, for example into a pipe. A reader that stops early makes the download incomplete.
async fn download_to_stdout(client: &Client, path: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(&error, Path::new("standard output"));
    let response = client.download(path).await?;
    let total = response.content_length();
    let (mut pieces, mut size) = (response.bytes_stream(), 0);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| Failure::unreachable(format!("the download failed: {error}")))?;
        std::io::stdout().write_all(&piece).map_err(failed)?;
        size += piece.len() as u64;
    }
    if total.is_some_and(|total| total != size) {
        return Err(Failure::unreachable("the download ended before it was complete"));
    }
    std::io::stdout().flush().map_err(failed)
}

async fn runs(client: &Client, action: RunAction, printer: Printer) -> Result<(), Failure> {
    const PATH: &str = "/api/runs";
    match action {
        RunAction::List => {
            let rows = list(client, PATH, &[]).await?;
            printer.list(&rows, &["ID", "KIND", "STATUS", "BACKUP", "STARTED", "ENDED", "ERROR"], |row| {
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
        RunAction::Watch { id } => watch::run(client, id, printer.is_json).await?,
        RunAction::Cancel { id } => {
            client.post(&format!("{PATH}/{id}/cancel"), None).await?;
            printer.done("The run is being cancelled.");
        }
    }
    Ok(())
}

async fn servers(client: &Client, action: ServerAction, printer: Printer) -> Result<(), Failure> {
    const PATH: &str = "/api/remote-servers";
    let id = async |name: &str| find(client, PATH, "server", name).await;
    match action {
        ServerAction::List { search } => {
            let rows = list(client, PATH, &search_of(search.as_deref())).await?;
            printer.list(&rows, &["ID", "LABEL", "ADDRESS", "STATUS", "LAST CONTACT"], |row| {
                let connection = &row["connection"];
                let address =
                    format!("{}@{}:{}", text(&connection["username"]), text(&connection["host"]), connection["port"]);
                let status = &row["status"];
                vec![
                    text(&row["id"]),
                    text(&row["label"]),
                    address,
                    text(&status["connectivity"]),
                    text(&status["last_connected_at"]),
                ]
            });
        }
        ServerAction::Key => {
            let found = client.get("/api/ssh-key").await?;
            printer.one(&found, |found| text(&found["public_key"]));
        }
        ServerAction::Show { server } => {
            let found = client.get(&format!("{PATH}/{}", id(&server).await?)).await?;
            printer.one(&found, server_words);
        }
        ServerAction::Check { server, wait } => {
            let path = format!("{PATH}/{}", id(&server).await?);
            let before = client.get(&path).await?["status"]["last_checked_at"].take();
            client.post(&format!("{path}/check"), None).await?;
            if !wait {
                printer.done("The server is being checked.");
                return Ok(());
            }
            let found = watch::until_some(async || {
                let found = client.get(&path).await?;
                Ok(Some(found).filter(|found| found["status"]["last_checked_at"] != before))
            })
            .await?;
            printer.one(&found, server_words);
            if found["status"]["connectivity"] != "online" {
                return Err(Failure::run_failed(format!("{server} is {}", text(&found["status"]["connectivity"]))));
            }
        }
    }
    Ok(())
}

fn server_words(found: &Value) -> String {
    let (connection, status) = (&found["connection"], &found["status"]);
    let mut words = format!(
        "{} (server {})\n  address      {}@{}:{}\n  status       {}\n  last contact {}\n  host key     {}",
        text(&found["label"]),
        text(&found["id"]),
        text(&connection["username"]),
        text(&connection["host"]),
        connection["port"],
        text(&status["connectivity"]),
        text(&status["last_connected_at"]),
        text(&connection["host_key_fingerprint"]),
    );
    if !status["last_error"].is_null() {
        words += &format!("\n  error        {}", text(&status["last_error"]));
    }
    for tool in status["tools"].as_array().into_iter().flatten() {
        words += &format!("\n  {:<12} {}", text(&tool["name"]), text(&tool["version"]));
    }
    words
}
