use std::path::PathBuf;
use std::process::Command;

use holdfast_testkit::{Client, Engine, SampleTree, SshServer};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Installation, Service, run};

/// A service, a server with files, and the command line of a remote user.
pub struct Elsewhere {
    pub service: Service,
    pub installation: Installation,
    pub client: Client,
    pub ssh: SshServer,
    pub files: TempDir,
}

impl Elsewhere {
    pub async fn new() -> Self {
        Self::on(Engine::Sqlite).await
    }

    pub async fn on(engine: Engine) -> Self {
        Self::with(engine, &[]).await
    }

    /// With settings of the service.
    pub async fn with(engine: Engine, environment: &[(&str, &str)]) -> Self {
        let installation = Installation::new(engine).await;
        installation
            .succeed(&["user", "create", "--email", "ada@example.org", "--name", "Ada"], "correct horse battery\n");
        let token = ["token", "create", "--user", "ada@example.org", "--name", "cli", "--all-scopes"];
        let token = installation.succeed(&token, "");
        let service = installation.serve(environment);
        let client = service.client().with_token(&token);
        let ssh = SshServer::start();
        ssh.authorize(client.get("/api/ssh-key").await.data(200)["public_key"].as_str().unwrap());
        let files = tempfile::tempdir().unwrap();
        std::fs::create_dir(files.path().join("source")).unwrap();
        SampleTree::create(&files.path().join("source"));
        std::fs::write(files.path().join("source/hello"), "hello").unwrap();
        std::fs::write(files.path().join("source/\u{1b}[2Jinvoice\u{202e}fdp.sh\nfile 1"), "").unwrap();
        std::fs::create_dir(files.path().join("source/many")).unwrap();
        for number in 0..130 {
            std::fs::write(files.path().join(format!("source/many/{number}")), "").unwrap();
        }
        std::fs::write(files.path().join("token"), format!("{token}\n")).unwrap();
        Self { service, installation, client, ssh, files }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The command line, with only the URL and a token.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments).env_clear();
        command.env("HOLDFAST_URL", &self.service.base_url).env("HOLDFAST_TOKEN_FILE", self.path("token"));
        command.env("HOME", "/nonexistent");
        command
    }

    /// The exit code and all output.
    pub fn try_run(&self, arguments: &[&str]) -> (i32, String) {
        let output = run(&mut self.command(arguments), "");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    #[track_caller]
    pub fn succeed(&self, arguments: &[&str]) -> String {
        let output = run(&mut self.command(arguments), "");
        let (said, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{arguments:?}: {said}{errors}");
        said
    }

    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let said = self.succeed(&[arguments, &["--json"]].concat());
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}"))
    }

    /// Writes the file that describes all resources.
    pub fn describe(&self, keep: u32, more: &str) -> String {
        std::fs::write(self.path("password"), "correct horse battery\n").unwrap();
        let text = format!(
            r##"
tags:
  - label: important
    colour: "#0b5cad"
notification_streams:
  - label: me
    type: email
    value: ada@example.org
    notifications: {{on_failure: true}}
remote_servers:
  - label: web-1
    host: 127.0.0.1
    port: {}
    username: {}
    database_password_env: DATABASE_PASSWORD
backup_destinations:
  - label: this machine
    type: local
backup_tasks:
  - label: " web files"
    description: |
      What the shop shows.
    type: files
    source_path: {}
    excluded_paths: ["*.tmp"]
    remote_server: web-1
    backup_destination: this machine
    frequency: daily
    time_to_run_at: "03:00"
    maximum_backups_to_keep: {keep}
    store_path: /web/
    notification_streams: [me]
    tags: [important]
    encryption_password_file: password
{more}
"##,
            self.ssh.port(),
            self.ssh.username(),
            self.text("source"),
        );
        std::fs::write(self.path("holdfast.yaml"), text).unwrap();
        self.text("holdfast.yaml")
    }

    pub fn apply(&self, more: &[&str]) -> (i32, String) {
        let file = self.text("holdfast.yaml");
        let arguments = [&["apply", "-f", &file], more].concat();
        let output = run(self.command(&arguments).env("DATABASE_PASSWORD", "secret"), "");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }
}
