use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_testkit::{Answer, Client, Engine, Receiver, SshServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Installation, Service};

const EMAIL: &str = "ada@example.org";
const PASSWORD: &str = "correct horse battery";

/// A running service with one account, and what its clients need: servers to read from and restore to, a webhook that
/// refuses every message, and the situations that a client cannot bring about by itself.
pub struct Stage {
    pub installation: Installation,
    /// What the clients are told, as JSON.
    pub told: Value,
    _service: Service,
    _servers: [SshServer; 2],
    _hook: Receiver,
    _files: TempDir,
}

impl Stage {
    pub async fn new() -> Self {
        let installation = Installation::new(Engine::Sqlite).await;
        let add = ["user", "create", "--email", EMAIL, "--name", "Ada Lovelace", "--admin"];
        installation.succeed(&add, &format!("{PASSWORD}\n"));
        let make = ["token", "create", "--user", EMAIL, "--name", "client", "--all-scopes"];
        let token = installation.succeed(&make, "");
        let service = installation.serve(&[
            ("ENABLE_DEVICE_AUTH_ENDPOINT", "true"),
            ("HOLDFAST_EGRESS_ALLOW", "127.0.0.0/8"),
            ("HOLDFAST_RATE_PER_SECOND", "100000"),
            ("HOLDFAST_RATE_BURST", "1000000"),
            ("HOLDFAST_RUNS_PER_MINUTE", "100000"),
        ]);
        let client = service.client().with_token(&token);
        let files = tempfile::tempdir().unwrap();
        let folder = |name: &str| folder(files.path(), name);
        let server = SshServer::builder().with_path_shims(&tar_that_sends_holes(&folder("bin"))).start();
        let mut reinstalled = SshServer::start();
        let key = client.get("/api/ssh-key").await.data(200)["public_key"].clone();
        for server in [&server, &reinstalled] {
            server.authorize(key.as_str().unwrap());
        }
        let (source, endless) = (folder("source"), folder("endless"));
        std::fs::create_dir(files.path().join("source/pictures")).unwrap();
        std::fs::write(files.path().join("source/index.html"), "<h1>Hello</h1>").unwrap();
        std::fs::write(files.path().join("source/pictures/cat.txt"), "meow").unwrap();
        // Nothing but holes: only cancelling ends its backup.
        std::fs::File::create(files.path().join("endless/big")).unwrap().set_len(1 << 42).unwrap();
        let hook = Receiver::start().await;
        hook.answer(Answer::Says(404, "no_service".into()));
        let told = json!({
            "url": service.base_url, "token": token, "email": EMAIL, "password": PASSWORD,
            "port": server.port(), "username": server.username(),
            "source": source, "endless": endless, "target": files.path().join("restored"),
            "hook": hook.url("/hook"),
            "reinstalled_server": present_another_key(&client, &mut reinstalled).await,
            "held_task": hold_retention(&client, &server, files.path()).await,
        });
        Self { installation, told, _service: service, _servers: [server, reinstalled], _hook: hook, _files: files }
    }
}

/// Creates a folder, and returns its path.
fn folder(parent: &Path, name: &str) -> String {
    let path = parent.join(name);
    std::fs::create_dir(&path).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A `tar` that does not look for holes in files; returns its folder.
fn tar_that_sends_holes(folder: &str) -> PathBuf {
    let program = Path::new(folder).join("tar");
    let script = "for a; do shift; [ \"$a\" = --sparse ] || set -- \"$@\" \"$a\"; done; exec /usr/bin/tar \"$@\"";
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder.into()
}

async fn add_server(client: &Client, label: &str, ssh: &SshServer) -> i64 {
    let server = json!({"label": label, "ip_address": "127.0.0.1", "port": ssh.port(), "username": ssh.username()});
    client.post("/api/remote-servers", server).await.id(201)
}

/// A server that presents another host key than the one that was pinned.
async fn present_another_key(client: &Client, ssh: &mut SshServer) -> i64 {
    let server = add_server(client, "reinstalled", ssh).await;
    let path = format!("/api/remote-servers/{server}");
    client.act(&format!("{path}/check")).await.expect(202);
    client.wait_for(&path, |server| server["data"]["status"]["connectivity"] == "online").await;
    ssh.rekey_host();
    client.act(&format!("{path}/check")).await.expect(202);
    let is_offered = |server: &Value| server["data"]["connection"]["offered_host_key_fingerprint"].is_string();
    client.wait_for(&path, is_offered).await;
    server
}

/// A task whose newest backup looks suspicious.
async fn hold_retention(client: &Client, ssh: &SshServer, files: &Path) -> i64 {
    let source = folder(files, "emptied");
    for number in 0..20 {
        std::fs::write(Path::new(&source).join(number.to_string()), vec![b'x'; 2000]).unwrap();
    }
    let server = add_server(client, "emptied", ssh).await;
    let destination = client.post("/api/backup-destinations", json!({"label": "d", "type": "local"})).await.id(201);
    let task = json!({"label": "emptied", "type": "files", "source_path": source, "remote_server_id": server,
        "backup_destination_id": destination, "frequency": "monthly", "time_to_run_at": "03:00"});
    let task = client.post("/api/backup-tasks", task).await.id(201);
    client.run_task(task).await;
    for file in std::fs::read_dir(&source).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    client.run_task(task).await;
    let shown = client.get(&format!("/api/backup-tasks/{task}")).await.data(200);
    assert_eq!(shown["protection"]["retention_held"], true, "{shown}");
    task
}
