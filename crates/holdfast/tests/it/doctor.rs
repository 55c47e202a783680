use std::os::unix::fs::PermissionsExt as _;

use holdfast_testkit::{Engine, S3Server, SshServer, free_port};
use serde_json::json;

use crate::process::Installation;

/// Each problem has its own line with advice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_finds_what_is_wrong_and_says_what_to_do() {
    let installation = Installation::new(Engine::Sqlite).await;
    installation
        .succeed(&["user", "create", "--email", "ada@example.org", "--name", "Ada", "--admin"], "correct horse\n");
    let token = ["token", "create", "--user", "ada@example.org", "--name", "t", "--all-scopes"];
    let token = installation.succeed(&token, "");
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    // A server without database programs, and an unreachable one.
    let programs = tempfile::tempdir().unwrap();
    for program in ["sh", "tar", "find", "uname"] {
        let found = std::path::Path::new("/bin").join(program);
        std::os::unix::fs::symlink(found, programs.path().join(program)).unwrap();
    }
    let ssh = SshServer::builder().set_env("PATH", programs.path().to_str().unwrap()).start();
    ssh.authorize(client.get("/api/ssh-key").await.data(200)["public_key"].as_str().unwrap());
    let server = |label: &str, port: u16| json!({"label": label, "ip_address": "127.0.0.1", "port": port, "username": ssh.username()});
    let good = client.post("/api/remote-servers", server("bare", ssh.port())).await.id(201);
    client.post("/api/remote-servers", server("gone", free_port())).await.expect(201);
    let local = client.post("/api/backup-destinations", json!({"label": "disk", "type": "local"})).await.id(201);
    let s3 = S3Server::start(&["backups"]).await.unwrap();
    let bucket = json!({"label": "bucket", "type": "custom_s3", "s3_access_key": S3Server::ACCESS_KEY,
        "s3_secret_key": "wrong wrong wrong", "s3_bucket_name": "backups", "custom_s3_endpoint": s3.endpoint(),
        "path_style_endpoint": true});
    client.post("/api/backup-destinations", bucket).await.expect(201);
    let task = |changes: serde_json::Value| {
        let mut body = json!({"remote_server_id": good, "backup_destination_id": local, "frequency": "daily",
            "time_to_run_at": "03:00"});
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        body
    };
    let files = json!({"label": "files", "type": "files", "source_path": "/etc"});
    client.post("/api/backup-tasks", task(files)).await.expect(201);
    let dump = json!({"label": "shop", "type": "database", "database_engine": "postgresql", "database_name": "shop"});
    client.post("/api/backup-tasks", task(dump)).await.expect(201);
    let key = installation.data_dir().join("master.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();

    let output = installation.run(&["doctor"], "");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let line = |expected: &str| {
        let found = said.lines().find(|line| line.contains(expected));
        found.unwrap_or_else(|| panic!("nothing about {expected}: {said}")).to_owned()
    };
    assert!(line("PROBLEM  master key").contains("run chmod 600"));
    assert!(line("server \"gone\" of ada@example.org").starts_with("PROBLEM"));
    let bare = line("server \"bare\"");
    assert!(
        bare.starts_with("PROBLEM") && bare.contains("task \"shop\" needs pg_dump (install postgresql-client)"),
        "{bare}"
    );
    assert!(!bare.contains("files"), "tar is there: {bare}");
    assert!(line("destination \"bucket\"").starts_with("PROBLEM"));
    assert!(line("destination \"disk\"").starts_with("ok"));
    for fine in ["database", "clock", "accounts", "secrets", "workers", "scheduler", "messages", "free space"] {
        assert!(line(&format!(" {fine}:")).starts_with("ok"), "{said}");
    }
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().last(), Some("holdfast: 4 problems found"));

    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let said = installation.succeed(&["doctor", "--offline"], "");
    assert!(!said.contains("PROBLEM") && !said.contains("server \""), "{said}");
    drop(service);
    let output = installation.run(&["doctor", "--offline"], "");
    let said = String::from_utf8(output.stdout).unwrap();
    // A killed service is reported after a minute; there are no other problems yet.
    assert_eq!(said.matches("PROBLEM").count(), usize::from(!output.status.success()), "{said}");
}
