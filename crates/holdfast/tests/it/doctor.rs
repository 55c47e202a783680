use std::os::unix::fs::PermissionsExt as _;

use holdfast_testkit::{Engine, S3Server, SshServer, free_port};
use serde_json::json;
use sqlx::{Connection as _, SqliteConnection};

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

/// The rehearsal of a recovery in the handbook: nothing runs there, and that is no problem.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rehearsal_of_a_recovery_finds_no_problem() {
    let installation = Installation::new(Engine::Sqlite).await;
    installation
        .succeed(&["user", "create", "--email", "ada@example.org", "--name", "Ada", "--admin"], "correct horse\n");
    let token = ["token", "create", "--user", "ada@example.org", "--name", "t", "--all-scopes"];
    let token = installation.succeed(&token, "");
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    let ssh = SshServer::start();
    ssh.authorize(client.get("/api/ssh-key").await.data(200)["public_key"].as_str().unwrap());
    let server = json!({"label": "web", "ip_address": "127.0.0.1", "port": ssh.port(), "username": ssh.username()});
    let server = client.post("/api/remote-servers", server).await.id(201);
    let s3 = S3Server::start(&["backups"]).await.unwrap();
    let bucket = json!({"label": "bucket", "type": "custom_s3", "s3_access_key": S3Server::ACCESS_KEY,
        "s3_secret_key": S3Server::SECRET_KEY, "s3_bucket_name": "backups", "custom_s3_endpoint": s3.endpoint(),
        "path_style_endpoint": true});
    let destination = client.post("/api/backup-destinations", bucket).await.id(201);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "content").unwrap();
    let task = json!({"label": "files", "type": "files", "source_path": folder.path(), "remote_server_id": server,
        "backup_destination_id": destination, "frequency": "daily", "time_to_run_at": "03:00"});
    let task = client.post("/api/backup-tasks", task).await.id(201);
    client.run_task(task).await;
    let (file, passphrase) = (folder.path().join("export.age"), folder.path().join("passphrase"));
    std::fs::write(&passphrase, "correct horse battery staple\n").unwrap();
    let [file, passphrase] = [file, passphrase].map(|path| path.to_str().unwrap().to_owned());
    installation.succeed(&["export", "--output", &file, "--passphrase-file", &passphrase], "");
    let spare = Installation::new(Engine::Sqlite).await;
    spare.succeed(&["import", &file, "--paused", "--passphrase-file", &passphrase], "");
    for command in [&["doctor", "--offline"][..], &["doctor"]] {
        let said = spare.succeed(command, "");
        for name in ["scheduler", "workers"] {
            let expected = format!("ok       {name}: not running: no service works on this database at the moment");
            assert!(said.contains(&expected), "{said}");
        }
        assert!(said.contains("ok       secrets: all of 1 tasks, 1 servers and 1 destinations readable"), "{said}");
    }
    // A service that should run, and does not, leaves slots behind.
    drop(service);
    let path = installation.data_dir().join("holdfast.db");
    let mut connection = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    for sql in ["DELETE FROM workers", "UPDATE backup_tasks SET next_run_at = 1"] {
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    }
    let output = installation.run(&["doctor", "--offline"], "");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("PROBLEM  scheduler: a slot has waited for"), "{said}");
}

#[tokio::test]
async fn a_master_key_that_disappears_is_named_and_not_a_bug() {
    let installation = Installation::new(Engine::Sqlite).await;
    installation
        .succeed(&["user", "create", "--email", "ada@example.org", "--name", "Ada", "--admin"], "correct horse\n");
    let token = ["token", "create", "--user", "ada@example.org", "--name", "t", "--all-scopes"];
    let token = installation.succeed(&token, "");
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    let key = installation.data_dir().join("master.key");
    let away = key.with_extension("away");
    std::fs::rename(&key, &away).unwrap();
    // The first secret that the process seals.
    let refused = client.get("/api/ssh-key").await.expect(503);
    let text = refused["message"].as_str().unwrap();
    assert!(text.contains("master key is missing") && text.contains("put it back"), "{text}");
    let ready = client.get("/readyz").await;
    assert!(ready.status == 503 && ready.text.contains("the master key is missing"), "{}", ready.text);
    let output = installation.run(&["doctor", "--offline"], "");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find(|line| line.starts_with("PROBLEM  master key")).unwrap_or_default();
    assert!(line.contains("master.key is missing") && line.contains("put back the copy"), "{said}");
    std::fs::rename(&away, &key).unwrap();
    client.get("/api/ssh-key").await.expect(200);
}
