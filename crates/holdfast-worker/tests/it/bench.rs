use std::path::{Path, PathBuf};

use holdfast_testkit::{Reply, SshServer, TestApp, TestUser};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A user with a server, a local destination, and folders to back up from and restore to.
pub struct Bench {
    pub app: TestApp,
    pub user: TestUser,
    pub ssh: SshServer,
    pub server: i64,
    pub destination: i64,
    pub folder: TempDir,
}

impl Bench {
    pub async fn new(app: TestApp) -> Self {
        Self::with(app, SshServer::start()).await
    }

    pub async fn with(app: TestApp, ssh: SshServer) -> Self {
        let user = app.user("ada").await;
        Self::of(app, ssh, user).await
    }

    pub async fn of(app: TestApp, ssh: SshServer, user: TestUser) -> Self {
        let key = user.client.get("/api/ssh-key").await.data(200);
        ssh.authorize(key["public_key"].as_str().unwrap());
        let body = json!({"label": "web", "ip_address": "127.0.0.1", "port": ssh.port(), "username": ssh.username()});
        let server = user.client.post("/api/remote-servers", body).await.id(201);
        let destination = user.destination().await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("source")).unwrap();
        Self { app, user, ssh, server, destination, folder }
    }

    pub fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    pub fn target(&self) -> PathBuf {
        self.folder.path().join("target")
    }

    /// Creates a task with these changes to the default settings.
    pub async fn task(&self, changes: Value) -> i64 {
        let mut body = json!({
            "remote_server_id": self.server,
            "backup_destination_id": self.destination,
            "label": "Web files",
            "type": "files",
            "source_path": self.source(),
            "frequency": "daily",
            "time_to_run_at": "03:00",
        });
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        self.user.client.post("/api/backup-tasks", body).await.id(201)
    }

    /// Runs a task to completion and returns its log.
    pub async fn run(&self, task: i64) -> Value {
        self.user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        self.app.run_until_idle().await;
        self.latest_log(task).await
    }

    pub async fn latest_log(&self, task: i64) -> Value {
        self.user.client.get(&format!("/api/backup-tasks/{task}/latest-log")).await.data(200)
    }

    /// Runs a task, which must succeed, and returns its backup.
    pub async fn back_up(&self, task: i64) -> Value {
        let log = self.run(task).await;
        assert_eq!(log["status"], "successful", "{}", log["output"].as_str().unwrap());
        let backups = self.backups(task).await;
        let own = backups.iter().find(|backup| backup["run_id"] == log["id"]);
        own.unwrap_or_else(|| panic!("no backup of this run in {backups:?}")).clone()
    }

    pub async fn backups(&self, task: i64) -> Vec<Value> {
        let body = self.user.client.get(&format!("/api/backups?per_page=100&backup_task_id={task}")).await.expect(200);
        body["data"].as_array().unwrap().clone()
    }

    pub async fn ask_restore(&self, backup: &Value, body: Value) -> Reply {
        self.user.client.post(&format!("/api/backups/{}/restores", backup["id"]), body).await
    }

    /// Restores and returns the finished run.
    pub async fn restore(&self, backup: &Value, changes: Value) -> Value {
        let mut body = json!({"remote_server_id": self.server});
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let run = self.ask_restore(backup, body).await.data(202);
        self.app.run_until_idle().await;
        self.show_run(&run).await
    }

    /// Restores everything to the target folder, which must succeed.
    pub async fn restore_all(&self, backup: &Value) -> PathBuf {
        let run = self.restore(backup, json!({"path": self.target()})).await;
        assert_eq!(run["status"], "successful", "{}", run["output"].as_str().unwrap());
        self.target()
    }

    pub async fn verify(&self, backup: &Value) -> Value {
        let run = self.user.client.act(&format!("/api/backups/{}/verify", backup["id"])).await.data(202);
        self.app.run_until_idle().await;
        self.show_run(&run).await
    }

    pub async fn show_run(&self, run: &Value) -> Value {
        self.user.client.get(&format!("/api/runs/{}", run["id"])).await.data(200)
    }

    pub async fn show(&self, backup: &Value) -> Value {
        self.user.client.get(&format!("/api/backups/{}", backup["id"])).await.data(200)
    }

    /// The folder of the local destination.
    pub fn stored_folder(&self) -> PathBuf {
        self.app.destinations().join(self.user.id.to_string()).join(self.destination.to_string())
    }

    pub fn stored_file(&self, backup: &Value) -> PathBuf {
        self.stored_folder().join(backup["key"].as_str().unwrap())
    }

    /// All objects at the destination, including hidden ones, except the marker and the catalogue.
    pub fn stored_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        collect(&self.stored_folder(), &mut names);
        names.retain(|name| name != ".holdfast-destination");
        names.sort();
        names
    }
}

fn collect(folder: &Path, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            if entry.file_name() != "holdfast-catalogue" {
                collect(&entry.path(), names);
            }
        } else {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
}

/// Asserts that a run failed with this error code.
pub fn assert_failed(log: &Value, code: &str) {
    let output = log["output"].as_str().unwrap();
    assert_eq!((log["status"].as_str(), log["error_code"].as_str()), (Some("failed"), Some(code)), "{output}");
}

/// Percent-encodes a query parameter.
pub fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Another server that the same user may restore to.
pub async fn add_server(bench: &Bench, ssh: &SshServer, login: Value) -> i64 {
    let key = bench.user.client.get("/api/ssh-key").await.data(200);
    ssh.authorize(key["public_key"].as_str().unwrap());
    let mut body =
        json!({"label": "second", "ip_address": "127.0.0.1", "port": ssh.port(), "username": ssh.username()});
    body.as_object_mut().unwrap().extend(login.as_object().unwrap().clone());
    bench.user.client.post("/api/remote-servers", body).await.id(201)
}

pub fn output(run: &Value) -> &str {
    run["output"].as_str().unwrap()
}

pub fn assert_successful(run: &Value) {
    assert_eq!(run["status"], "successful", "{}", output(run));
}
