use std::path::{Path, PathBuf};

use holdfast_testkit::{Chromium, Client, Engine, SshServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Installation, Service};

pub const PASSWORD: &str = "correct horse battery";
pub const EMAIL: &str = "ada@example.org";

/// A service with an administrator, a server with files on it, and a browser.
pub struct Stage {
    pub browser: Chromium,
    pub service: Service,
    pub installation: Installation,
    pub ssh: SshServer,
    /// The files on the server.
    pub files: TempDir,
    axe: Option<String>,
}

impl Stage {
    /// A new service, without an account.
    pub async fn empty() -> Self {
        let installation = Installation::new(Engine::Sqlite).await;
        // Tests sign in more often than the limit allows.
        let service = installation.serve(&[("HOLDFAST_SIGN_INS_PER_MINUTE", "1000")]);
        let files = tempfile::Builder::new().prefix("www-").rand_bytes(4).tempdir().unwrap();
        let site = files.path().join("site");
        std::fs::create_dir_all(site.join("pictures")).unwrap();
        std::fs::write(site.join("index.html"), "<h1>Hello</h1>").unwrap();
        std::fs::write(site.join("pictures/cat.txt"), "meow").unwrap();
        std::fs::write(site.join("debug.log"), "noise").unwrap();
        let axe = std::env::var("TEST_AXE").ok().map(|path| read(Path::new(&path)));
        if axe.is_none() {
            eprintln!("TEST_AXE is not set, so nobody looks at accessibility; cargo xtask test sets it");
        }
        Self { browser: Chromium::start().await, service, installation, ssh: SshServer::start(), files, axe }
    }

    /// A new service, with Ada signed in.
    pub async fn signed_in() -> Self {
        let stage = Self::empty().await;
        stage.claim().await;
        stage
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.service.base_url)
    }

    pub async fn open(&self, path: &str) {
        self.browser.open(&self.url(path)).await;
    }

    /// The folder that is backed up.
    pub fn site(&self) -> PathBuf {
        self.files.path().join("site")
    }

    /// Opens the link of the first start and creates the account.
    pub async fn claim(&self) {
        let link = self.service.greeting.split_whitespace().find(|word| word.contains("/set-up/")).unwrap();
        self.browser.open(link).await;
        self.assert_accessible("the first page").await;
        self.browser.fill("name", "Ada Lovelace").await;
        self.browser.fill("email", EMAIL).await;
        self.browser.fill("password", PASSWORD).await;
        self.browser.press("Create account").await;
        self.browser.wait_for("location.pathname === '/'").await;
    }

    /// The problems that axe finds on the current page, in both themes. Empty when axe is not available.
    pub async fn look(&self, name: &str) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(axe) = &self.axe {
            for is_dark in [false, true] {
                self.browser.set_dark(is_dark).await;
                let found = self.browser.accessibility_problems(axe).await;
                problems.extend(found.iter().map(|problem| format!("{name} (dark: {is_dark}): {problem}")));
            }
        }
        problems
    }

    /// Asserts that the current page has no accessibility problems.
    pub async fn assert_accessible(&self, name: &str) {
        assert_eq!(self.look(name).await, Vec::<String>::new());
    }

    pub async fn sign_in(&self, email: &str) {
        self.open("/sign-in").await;
        self.browser.fill("email", email).await;
        self.browser.fill("password", PASSWORD).await;
        self.browser.press("Sign in").await;
    }

    /// An API client with a token of Ada.
    pub fn client(&self) -> Client {
        let arguments = ["token", "create", "--user", EMAIL, "--name", "test", "--all-scopes"];
        let token = self.installation.succeed(&arguments, "");
        self.service.client().with_token(&token)
    }

    /// Authorizes Ada's key on the server.
    pub async fn authorize(&self, client: &Client) {
        let key = client.get("/api/ssh-key").await.data(200);
        self.ssh.authorize(key["public_key"].as_str().unwrap());
    }

    pub fn server_body(&self) -> Value {
        json!({"label": "web-1", "ip_address": "127.0.0.1", "port": self.ssh.port(), "username": self.ssh.username()})
    }

    /// Creates a server, a destination and a task with a backup through the API. Returns the task.
    pub async fn backed_up(&self, client: &Client) -> i64 {
        self.authorize(client).await;
        let server = client.post("/api/remote-servers", self.server_body()).await.id(201);
        let destination =
            client.post("/api/backup-destinations", json!({"label": "disk", "type": "local"})).await.id(201);
        let body = json!({
            "remote_server_id": server, "backup_destination_id": destination, "label": "web files", "type": "files",
            "source_path": self.site(), "frequency": "daily", "time_to_run_at": "03:00", "excluded_paths": ["*.log"],
        });
        let task = client.post("/api/backup-tasks", body).await.id(201);
        client.run_task(task).await;
        task
    }

    pub async fn wait_until_ready(&self, client: &Client, task: i64) {
        for _ in 0..600 {
            let status = client.get(&format!("/api/backup-tasks/{task}/status")).await.data(200);
            if status["status"] == "ready" {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("the run did not end");
    }
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
