use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use holdfast_testkit::{Engine, SmallDisk, free_port};
use serde_json::json;
use sqlx::{Connection as _, Executor as _, SqliteConnection};

use super::{assert_doctor, assert_refused, token, wait_for};
use crate::process::{Installation, Service, run};

#[tokio::test]
async fn a_full_disk_is_named_and_the_service_recovers() {
    let installation = Installation::new(Engine::Sqlite).await;
    let Some(disk) = SmallDisk::mount(&installation.data_dir(), "64m") else {
        eprintln!("skipped: this user may not mount; `cargo xtask test` as root runs it");
        return;
    };
    let token = token(&installation);
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    wait_for(&client, 200, "ok").await;
    let filler = disk.fill();
    wait_for(&client, 503, "the disk of the database is full").await;
    let metrics = client.get("/metrics").await.text;
    assert!(metrics.contains("\nholdfast_database_up 1\n"), "{metrics}");
    assert!(metrics.contains("\nholdfast_database_writable 0\n"), "{metrics}");
    // SQLite may have room for some writes in its log.
    while client.post("/api/tags", json!({"label": format!("{:?}", Instant::now())})).await.status == 201 {}
    assert_refused(&client, "the disk of Holdfast's database is full").await;
    assert_doctor(&installation, "full");
    std::fs::remove_file(filler).unwrap();
    wait_for(&client, 200, "ok").await;
    assert!(client.get("/metrics").await.text.contains("\nholdfast_database_writable 1\n"));
    client.post("/api/tags", json!({"label": "new"})).await.expect(201);
    drop(service);
}

/// With a service and without one: without one, SQLite has no room for the files that it needs next to the database.
#[tokio::test]
async fn commands_that_only_read_work_on_a_full_disk() {
    let installation = Installation::new(Engine::Sqlite).await;
    let Some(disk) = SmallDisk::mount(&installation.data_dir(), "64m") else {
        eprintln!("skipped: this user may not mount; `cargo xtask test` as root runs it");
        return;
    };
    token(&installation);
    let passphrase = installation.folder.path().join("passphrase");
    std::fs::write(&passphrase, "correct horse battery staple\n").unwrap();
    let service = installation.serve(&[]);
    wait_for(&service.client(), 200, "ok").await;
    disk.fill();
    let assert_readable = |name: &str| {
        let file = installation.folder.path().join(name).display().to_string();
        let passphrase = passphrase.display().to_string();
        assert!(installation.succeed(&["audit", "export"], "").contains("\"action\":\"token.created\""));
        assert!(installation.succeed(&["user", "list"], "").contains("ada@example.org"));
        assert!(installation.succeed(&["token", "list", "--user", "ada@example.org"], "").contains("\tt\t"));
        installation.succeed(&["export", "--output", &file, "--passphrase-file", &passphrase], "");
        let output = installation.run(&["doctor", "--offline"], "");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("PROBLEM  database: the disk of the database is full"), "{said}");
        assert!(said.contains("ok       database content") && said.contains("ok       secrets"), "{said}");
    };
    assert_readable("with-a-service.age");
    service.signal("TERM");
    service.wait();
    assert_readable("without-a-service.age");
    let refused =
        installation.run(&["token", "create", "--user", "ada@example.org", "--name", "u", "--all-scopes"], "");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("full"), "{said}");
}

#[tokio::test]
async fn a_damaged_database_is_named() {
    let installation = Installation::new(Engine::Sqlite).await;
    let token = token(&installation);
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    for number in 0..400 {
        client.post("/api/tags", json!({"label": format!("tag {number}")})).await.expect(201);
    }
    service.signal("TERM");
    assert_eq!(service.wait(), Some(0));
    let path = installation.data_dir().join("holdfast.db");
    let intact = std::fs::read(&path).unwrap();
    // The root page of the table lists pages that hold its rows.
    let mut connection = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    let sql = "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_schema WHERE name = 'tags'";
    let (page, size): (i64, i64) = sqlx::query_as(sql).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let mut file = std::fs::File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(u64::try_from((page - 1) * size).unwrap())).unwrap();
    file.write_all(&[0xff; 512]).unwrap();
    drop(file);
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    wait_for(&client, 503, "the database is damaged").await;
    let body = client.get("/api/tags").await.expect(503);
    assert!(body["message"].as_str().unwrap().contains("damaged"), "{body}");
    let metrics = client.get("/metrics").await.text;
    assert!(metrics.contains("holdfast_database_damaged 1"), "{metrics}");
    assert_doctor(&installation, "damaged");
    drop(service);
    std::fs::write(&path, intact).unwrap();
    for end in ["-wal", "-shm"] {
        // Of the damaged one; there may be none.
        std::fs::remove_file(format!("{}{end}", path.display())).ok();
    }
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    wait_for(&client, 200, "ok").await;
    assert_eq!(client.get("/api/tags").await.expect(200)["meta"]["total"], 400);
    drop(service);
    std::fs::write(&path, [7; 8192]).unwrap();
    assert_doctor(&installation, "is damaged, or is not a SQLite database");
}

async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap()
}

#[tokio::test]
async fn damage_to_the_file_of_a_running_service_is_named_and_the_service_recovers() {
    let installation = Installation::new(Engine::Sqlite).await;
    let token = token(&installation);
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    for number in 0..400 {
        client.post("/api/tags", json!({"label": format!("tag {number}")})).await.expect(201);
    }
    wait_for(&client, 200, "ok").await;
    let path = installation.data_dir().join("holdfast.db");
    let mut connection = connect(&path).await;
    // Until then, the pages are in the log.
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").await.unwrap();
    let sql = "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_schema WHERE name = 'tags'";
    let (page, size): (i64, i64) = sqlx::query_as(sql).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let at = u64::try_from((page - 1) * size).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut intact = [0; 512];
    file.read_exact_at(&mut intact, at).unwrap();
    file.write_all_at(&[0xff; 512], at).unwrap();
    // The pages that a connection has read are read again after somebody has written.
    let deadline = Instant::now() + super::WITHIN;
    while client.get("/api/tags").await.status != 503 {
        assert!(Instant::now() < deadline, "the damaged page is not read");
        client.get("/readyz").await;
    }
    wait_for(&client, 503, "the database is damaged").await;
    assert_doctor(&installation, "damaged");
    file.write_all_at(&intact, at).unwrap();
    wait_for(&client, 200, "ok").await;
    assert_eq!(client.get("/api/tags").await.expect(200)["meta"]["total"], 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_moved_away_is_named_and_nothing_takes_its_place() {
    let installation = Installation::new(Engine::Sqlite).await;
    let token = token(&installation);
    let mut service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    client.post("/api/tags", json!({"label": "kept"})).await.expect(201);
    let path = installation.data_dir().join("holdfast.db");
    std::fs::rename(&path, path.with_extension("moved")).unwrap();
    // More at once than there are open connections.
    let requests = (0..40).map(|_| client.get("/api/tags"));
    futures_util::future::join_all(requests).await;
    wait_for(&service.client(), 503, "moved or deleted").await;
    assert_doctor(&installation, "does not exist");
    assert!(!path.exists(), "no empty database was created in its place");
    std::fs::rename(path.with_extension("moved"), &path).unwrap();
    wait_for(&service.client(), 200, "ok").await;
    drop(service);
    service = installation.serve(&[]);
    let tags = service.client().with_token(&token).get("/api/tags").await.data(200);
    assert_eq!(tags[0]["label"], "kept");
}

#[tokio::test]
async fn a_database_that_another_process_has_locked_is_named_and_the_service_recovers() {
    let installation = Installation::new(Engine::Sqlite).await;
    let service = installation.serve(&[]);
    wait_for(&service.client(), 200, "ok").await;
    // This test is the other process.
    let mut connection = connect(&installation.data_dir().join("holdfast.db")).await;
    connection.execute("BEGIN IMMEDIATE").await.unwrap();
    wait_for(&service.client(), 503, "the database is locked by another process").await;
    assert_doctor(&installation, &format!("process {} (", std::process::id()));
    connection.execute("ROLLBACK").await.unwrap();
    wait_for(&service.client(), 200, "ok").await;
}

#[tokio::test]
async fn a_database_file_that_cannot_be_written_is_named() {
    let installation = Installation::new(Engine::Sqlite).await;
    drop(installation.serve(&[]));
    let path = installation.data_dir().join("holdfast.db");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    let mut command = installation.command(&["serve"]);
    // Root may write everywhere.
    if rustix::process::geteuid().is_root() {
        let mut give = Command::new("chown");
        assert!(give.args(["-R", "65534:65534"]).arg(installation.folder.path()).status().unwrap().success());
        command.uid(65_534).gid(65_534);
    }
    let output = run(command.env("HOLDFAST_LISTEN", "127.0.0.1:0"), "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("read-only") || said.contains("cannot be written"), "{said}");
}

#[tokio::test]
async fn a_database_file_that_becomes_read_only_is_named_and_the_service_recovers() {
    let installation = Installation::new(Engine::Sqlite).await;
    // Created before it is given to another user.
    token(&installation);
    let path = installation.data_dir().join("holdfast.db");
    let as_user = |command: &mut Command| {
        // Root may write everywhere.
        if rustix::process::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
    };
    if rustix::process::geteuid().is_root() {
        let mut give = Command::new("chown");
        assert!(give.args(["-R", "65534:65534"]).arg(installation.folder.path()).status().unwrap().success());
    }
    let mut command = installation.command(&["serve"]);
    as_user(&mut command);
    let service = Service::launch(&mut command, free_port());
    wait_for(&service.client(), 200, "ok").await;
    let set = |mode: u32| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o400);
    wait_for(&service.client(), 503, "the database is read-only").await;
    let mut doctor = installation.command(&["doctor", "--offline"]);
    as_user(&mut doctor);
    let output = run(&mut doctor, "");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("PROBLEM  database: ") && said.contains("the database is read-only; make it writable again"),
        "{said}"
    );
    set(0o600);
    wait_for(&service.client(), 200, "ok").await;
}

#[tokio::test]
async fn a_mount_that_becomes_read_only_is_named_and_the_service_recovers() {
    let installation = Installation::new(Engine::Sqlite).await;
    let service = installation.serve(&[]);
    wait_for(&service.client(), 200, "ok").await;
    let folder = installation.data_dir();
    let mount = |arguments: &[&str]| Command::new("mount").args(arguments).arg(&folder).output().unwrap();
    let shown = folder.display().to_string();
    if !mount(&["--bind", &shown]).status.success() {
        eprintln!("skipped: this user may not mount; `cargo xtask test` as root runs it");
        return;
    }
    assert!(mount(&["-o", "remount,bind,ro"]).status.success());
    wait_for(&service.client(), 503, "the database is read-only").await;
    assert_doctor(&installation, "the database is read-only; make it writable again");
    assert!(Command::new("umount").arg(&folder).status().unwrap().success());
    wait_for(&service.client(), 200, "ok").await;
}

#[tokio::test]
async fn a_database_whose_files_cannot_be_written_is_named_and_the_service_recovers() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let installation = Installation::new(Engine::Sqlite).await;
    // The kernel ends a process that exceeds its file size, unless it ignores that.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" serve", env!("CARGO_BIN_EXE_holdfast")]);
    command.env_clear().env("HOLDFAST_DATA_DIR", installation.data_dir());
    let service = Service::launch(&mut command, free_port());
    let client = service.client();
    wait_for(&client, 200, "ok").await;
    let pid = Pid::from_raw(i32::try_from(service.id()).unwrap());
    let set = |bytes: Option<u64>| prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    set(Some(1));
    wait_for(&client, 503, "the database cannot be read or written").await;
    set(None);
    wait_for(&client, 200, "ok").await;
}
