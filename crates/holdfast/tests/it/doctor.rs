use std::os::unix::fs::PermissionsExt as _;

use std::time::{Duration, Instant};

use holdfast_testkit::{Engine, S3Server, SmallDisk, SshServer, free_port};
use serde_json::json;
use sqlx::{Connection as _, SqliteConnection};

use crate::process::Installation;

/// What `doctor` says, and whether it has found a problem.
fn doctor(installation: &Installation) -> (String, bool) {
    let output = installation.run(&["doctor", "--offline"], "");
    (String::from_utf8(output.stdout).unwrap(), output.status.code() == Some(1))
}

fn create_admin(installation: &Installation) -> String {
    let create = ["user", "create", "--email", "ada@example.org", "--name", "Ada", "--admin"];
    installation.succeed(&create, "correct horse\n");
    installation.succeed(&["token", "create", "--user", "ada@example.org", "--name", "t", "--all-scopes"], "")
}

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
            let expected = format!("ok       {name}: not running: no worker works on this database at the moment");
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

#[tokio::test]
async fn a_service_that_was_killed_is_not_reported_as_running() {
    let installation = Installation::new(Engine::Sqlite).await;
    create_admin(&installation);
    let service = installation.serve(&[]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !doctor(&installation).0.contains("ok       workers: 1 running, last heard from") {
        assert!(Instant::now() < deadline, "no worker has reported: {}", doctor(&installation).0);
    }
    let (said, _) = doctor(&installation);
    assert!(said.contains("ok       scheduler: running, last heard from"), "{said}");
    drop(service);
    // As if a minute had passed.
    let path = installation.data_dir().join("holdfast.db");
    let mut connection = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    sqlx::raw_sql("UPDATE workers SET seen_at = seen_at - 60000000").execute(&mut connection).await.unwrap();
    let (said, has_problem) = doctor(&installation);
    for name in ["scheduler", "workers"] {
        assert!(has_problem && said.contains(&format!("PROBLEM  {name}: no worker has reported for ")), "{said}");
    }
    let shown = installation.succeed(&["drain", "show"], "");
    assert!(shown.contains("does not respond"), "{shown}");
}

#[tokio::test]
async fn an_installation_without_an_administrator_is_named() {
    let installation = Installation::new(Engine::Sqlite).await;
    installation.succeed(&["user", "create", "--email", "ada@example.org", "--name", "Ada"], "correct horse\n");
    let (said, has_problem) = doctor(&installation);
    assert!(has_problem && said.contains("PROBLEM  accounts: no administrator can sign in"), "{said}");
    installation.succeed(&["user", "make-admin", "ada@example.org"], "");
    assert!(installation.succeed(&["user", "list"], "").contains("ada@example.org\tAda\tadmin"));
    let (said, _) = doctor(&installation);
    assert!(said.contains("ok       accounts: 1 in all"), "{said}");
    let log = installation.succeed(&["audit", "export"], "");
    assert!(log.contains("\"action\":\"user.made_administrator\""), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_destination_that_is_almost_full_is_named_and_measured() {
    let installation = Installation::new(Engine::Sqlite).await;
    let token = create_admin(&installation);
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    let destination = client.post("/api/backup-destinations", json!({"label": "disk", "type": "local"})).await.id(201);
    let metric = async || {
        let text = service.client().get("/metrics").await.text;
        let name = format!("holdfast_destination_free_bytes{{destination=\"{destination}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok())
    };
    assert_eq!(metric().await, None, "not used yet");
    let folder = installation.data_dir().join("destinations/1").join(destination.to_string());
    let Some(disk) = SmallDisk::mount(&folder, "2g") else {
        eprintln!("skipped: this user may not mount; `cargo xtask test` as root runs it");
        return;
    };
    let run = client.post(&format!("/api/backup-destinations/{destination}/check"), json!({})).await.id(202);
    client.wait_for(&format!("/api/runs/{run}"), |run| run["data"]["status"] == "successful").await;
    assert!(metric().await.unwrap() > 1 << 30);
    let line = || {
        let said = String::from_utf8(installation.run(&["doctor"], "").stdout).unwrap();
        said.lines().find(|line| line.contains("destination \"disk\"")).unwrap().to_owned()
    };
    assert!(line().starts_with("ok "), "{}", line());
    disk.remount("size=64m");
    assert!(metric().await.unwrap() <= 64 << 20);
    // A probe still fits.
    let said = line();
    assert!(said.starts_with("PROBLEM") && said.contains("left on the file system of"), "{said}");
    drop(disk);
    assert_eq!(metric().await, None, "not the space of the disk below");
}
