//! The service that is measured: the built binary with a data folder of its own, whose runs go into repositories.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdfast_testkit::{Client, S3Server, SshServer, free_port};
use serde_json::{Value, json};

use crate::measuring::{self, Cost, cpu_of_tree, run};

pub const PASSWORD: &str = "correct horse battery";
const PAUSE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub struct Service {
    child: Child,
    client: Client,
    data: PathBuf,
    shows_logs: bool,
}

/// Where its backups go.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    Folder,
    Bucket(&'a S3Server, &'a str),
}

impl Service {
    pub async fn start(binary: &Path, data: PathBuf, ssh: &SshServer, shows_logs: bool) -> Self {
        let holdfast = || {
            let mut command = Command::new(binary);
            command.env("HOLDFAST_DATA_DIR", &data);
            command
        };
        // From the command line: hashing a password in the service would take memory that is not a backup's.
        let mut create = holdfast();
        create.args(["user", "create", "--email", "bench@example.org", "--name", "Bench", "--admin"]);
        let mut creating = create.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the built service");
        let typed = creating.stdin.take().expect("a pipe").write_all(format!("{PASSWORD}\n").as_bytes());
        assert!(typed.is_ok() && creating.wait().is_ok_and(|status| status.success()), "an account is made");
        let token = ["token", "create", "--user", "bench@example.org", "--name", "bench", "--all-scopes"];
        let token = run(holdfast().args(token));

        let address = format!("127.0.0.1:{}", free_port());
        let limits = ["HOLDFAST_RATE_PER_SECOND", "HOLDFAST_RUNS_PER_MINUTE"].map(|name| (name, "1000000"));
        let mut serve = holdfast();
        serve.arg("serve").env("HOLDFAST_LISTEN", &address).env("HOLDFAST_LOG", "warn").envs(limits);
        let mut child = serve.stdout(Stdio::piped()).spawn().expect("the built service");
        let mut greeting = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert!(greeting.next().is_some(), "the service greets");
        // Somebody has to read the rest.
        std::thread::spawn(move || greeting.for_each(drop));
        let client = Client::new(&format!("http://{address}"), Some(token.trim()));
        let key = client.get("/api/ssh-key").await.data(200);
        ssh.authorize(key["public_key"].as_str().expect("a key"));
        Self { child, client, data, shows_logs }
    }

    pub async fn add_server(&self, ssh: &SshServer, port: u16) -> i64 {
        let body = json!({"label": "source", "ip_address": "127.0.0.1", "port": port, "username": ssh.username()});
        self.client.post("/api/remote-servers", body).await.id(201)
    }

    pub async fn add_destination(&self, target: Target<'_>) -> i64 {
        let body = match target {
            Target::Folder => json!({"label": "folder", "type": "local"}),
            Target::Bucket(server, bucket) => json!({"label": "bucket", "type": "custom_s3",
                "s3_access_key": S3Server::ACCESS_KEY, "s3_secret_key": S3Server::SECRET_KEY,
                "s3_bucket_name": bucket, "custom_s3_endpoint": server.endpoint(), "path_style_endpoint": true}),
        };
        self.client.post("/api/backup-destinations", body).await.id(201)
    }

    /// A task with a repository of its own, of which nothing is removed.
    pub async fn add_task(&self, server: i64, destination: i64, source: &Path) -> i64 {
        let body = json!({"label": "bench", "type": "files", "format": "repository", "encryption_password": PASSWORD,
            "remote_server_id": server, "backup_destination_id": destination, "source_path": source,
            "frequency": "monthly", "time_to_run_at": "03:00", "day_of_month": 1, "maximum_backups_to_keep": 1000});
        self.client.post("/api/backup-tasks", body).await.id(201)
    }

    /// Runs a task; its own time counts, not that of the requests.
    pub async fn back_up(&self, task: i64) -> Cost {
        // Lets the run before end its threads, so that a run's memory is its own.
        tokio::time::sleep(PAUSE).await;
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").expect("our own process");
        let before = cpu_of_tree(self.child.id());
        self.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        let log = loop {
            let log = self.client.get(&format!("/api/backup-tasks/{task}/latest-log")).await.data(200);
            match log["status"].as_str() {
                Some("successful") => break log,
                Some("queued" | "running") => tokio::time::sleep(LOOK_EVERY).await,
                _ => panic!("{}", log["output"].as_str().unwrap_or_default()),
            }
        };
        if self.shows_logs {
            println!("{}", log["output"].as_str().expect("a log"));
        }
        Cost {
            wall: log["duration_ms"].as_f64().expect("a duration") / 1e3,
            cpu: cpu_of_tree(self.child.id()) - before,
            peak_mib: measuring::memory_mib(self.child.id(), "VmHWM"),
            ..Cost::default()
        }
    }

    /// The folder of a task's repository, or `None` before its first backup.
    pub async fn repository(&self, task: i64, target: Target<'_>) -> Option<PathBuf> {
        let found = self.client.get(&format!("/api/backup-tasks/{task}/repository")).await;
        if found.status == 404 {
            return None;
        }
        let found = found.data(200);
        let folder = found["folder"].as_str().expect("a folder");
        Some(match target {
            Target::Folder => {
                let user = self.client.get("/api/user").await.data(200);
                let owner = self.data.join("destinations").join(text(&user["id"]));
                owner.join(text(&found["backup_destination_id"])).join(folder)
            }
            Target::Bucket(server, bucket) => server.root().join(bucket).join(folder),
        })
    }

    pub fn memory_mib(&self) -> f64 {
        measuring::memory_mib(self.child.id(), "VmRSS")
    }
}

fn text(id: &Value) -> String {
    id.as_i64().expect("an id").to_string()
}

impl Drop for Service {
    fn drop(&mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(asked.is_ok() && self.child.wait().is_ok(), "the service ends");
        let _gone = std::fs::remove_dir_all(&self.data);
    }
}
