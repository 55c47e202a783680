use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use holdfast_testkit::{Client, Engine, FaultProxy, PostgresServer, SmallDisk, free_port};
use serde_json::json;
use sqlx::{Connection as _, Executor as _};

use crate::process::{Installation, Service, run};

/// An orchestrator asks about this often.
const WITHIN: Duration = Duration::from_secs(10);

/// Waits until readiness names this state of the database, which must happen soon.
async fn wait_for(client: &Client, status: u16, expected: &str) {
    let deadline = Instant::now() + WITHIN;
    loop {
        let reply = client.get("/readyz").await;
        let checks = reply.body["checks"].clone();
        let told = |name: &str| checks[name].as_str().unwrap_or_default().to_owned();
        if reply.status == status && told("database").contains(expected) {
            for name in ["scheduler", "workers"] {
                let is_blamed = told(name) != "ok" && !told(name).contains(expected);
                assert!(!is_blamed, "{name} is not to blame: {checks}");
            }
            return;
        }
        assert!(Instant::now() < deadline, "{expected:?} is not named: {}", reply.text);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[track_caller]
fn assert_doctor(installation: &Installation, expected: &str) {
    let output = installation.run(&["doctor", "--offline"], "");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let problem = said.lines().find(|line| line.starts_with("PROBLEM  database")).unwrap_or_default();
    assert!(problem.contains(expected), "{expected:?} is not named: {said}");
}

fn token(installation: &Installation) -> String {
    let user = ["user", "create", "--email", "ada@example.org", "--name", "Ada", "--admin"];
    installation.succeed(&user, "correct horse\n");
    installation.succeed(&["token", "create", "--user", "ada@example.org", "--name", "t", "--all-scopes"], "")
}

/// Nothing can be stored, and the response says why.
async fn assert_refused(client: &Client, expected: &str) {
    let body = client.post("/api/tags", json!({"label": "new"})).await.expect(503);
    assert!(body["message"].as_str().unwrap().contains(expected), "{body}");
}

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
    let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
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

#[tokio::test]
async fn a_database_that_was_moved_away_is_named() {
    let installation = Installation::new(Engine::Sqlite).await;
    let service = installation.serve(&[]);
    let path = installation.data_dir().join("holdfast.db");
    std::fs::rename(&path, path.with_extension("moved")).unwrap();
    wait_for(&service.client(), 503, "moved or deleted").await;
    std::fs::rename(path.with_extension("moved"), &path).unwrap();
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
        let mut give = std::process::Command::new("chown");
        assert!(give.args(["-R", "65534:65534"]).arg(installation.folder.path()).status().unwrap().success());
        command.uid(65_534).gid(65_534);
    }
    let output = run(command.env("HOLDFAST_LISTEN", "127.0.0.1:0"), "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("read-only") || said.contains("cannot be written"), "{said}");
}

#[tokio::test]
async fn a_read_only_postgresql_is_named_and_the_service_recovers() {
    let installation = Installation::new(Engine::Postgres).await;
    let token = token(&installation);
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    wait_for(&client, 200, "ok").await;
    let url = installation.database_url.clone().unwrap();
    let name = url.rsplit('/').next().unwrap().to_owned();
    let set = async |value: &str| {
        let mut connection = sqlx::PgConnection::connect(&PostgresServer::shared().url("postgres")).await.unwrap();
        let sql = format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}");
        connection.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
        let sql = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        connection.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    };
    set("on").await;
    wait_for(&client, 503, "the database is read-only").await;
    assert!(client.get("/metrics").await.text.contains("\nholdfast_database_writable 0\n"));
    assert_refused(&client, "Holdfast's database is read-only").await;
    assert_doctor(&installation, "read-only");
    set("off").await;
    wait_for(&client, 200, "ok").await;
    client.post("/api/tags", json!({"label": "new"})).await.expect(201);
}

#[tokio::test]
async fn a_postgresql_that_hangs_or_is_away_is_named_and_the_service_recovers() {
    let mut installation = Installation::new(Engine::Postgres).await;
    let direct = installation.database_url.clone().unwrap();
    let server = PostgresServer::shared();
    let proxy = FaultProxy::start(server.port());
    let through = direct.replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port()));
    installation.database_url = Some(through);
    let service = installation.serve(&[]);
    let client = service.client();
    wait_for(&client, 200, "ok").await;
    proxy.silence_after(0);
    wait_for(&client, 503, "the database does not answer").await;
    proxy.heal();
    wait_for(&client, 200, "ok").await;
    // Metrics do not wait for ever, even if a connection that has just been used hangs.
    proxy.silence_after(0);
    let metrics = client.get("/metrics").await.text;
    assert!(metrics.contains("\nholdfast_database_up 0\n"), "{metrics}");
    proxy.heal();
    wait_for(&client, 200, "ok").await;
    proxy.refuse();
    proxy.cut_after(0);
    wait_for(&client, 503, "the database does not answer").await;
    assert_doctor(&installation, "cannot reach PostgreSQL");
    proxy.heal();
    wait_for(&client, 200, "ok").await;
}

/// Executes a statement as an administrator of PostgreSQL, after ending all connections of a database.
async fn administer(name: &str, sql: String) {
    let mut connection = sqlx::PgConnection::connect(&PostgresServer::shared().url("postgres")).await.unwrap();
    // Others may connect again at any moment.
    loop {
        let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        connection.execute(sqlx::AssertSqlSafe(end)).await.unwrap();
        match connection.execute(sqlx::AssertSqlSafe(sql.clone())).await {
            Ok(_) => return,
            Err(error) => {
                let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
                assert_eq!(code.as_deref(), Some("55006"), "in use is all that may be wrong: {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_postgresql_that_refuses_connections_is_named_and_the_service_recovers() {
    let installation = Installation::new(Engine::Postgres).await;
    let mut with_user = Installation::new(Engine::Postgres).await;
    let service = installation.serve(&[]);
    let client = service.client();
    wait_for(&client, 200, "ok").await;
    let url = installation.database_url.clone().unwrap();
    let name = url.rsplit('/').next().unwrap();
    administer(name, format!("ALTER DATABASE {name} RENAME TO {name}_away")).await;
    wait_for(&client, 503, "PostgreSQL does not have the database").await;
    assert_doctor(&installation, "PostgreSQL does not have the database");
    administer(&format!("{name}_away"), format!("ALTER DATABASE {name}_away RENAME TO {name}")).await;
    wait_for(&client, 200, "ok").await;
    // Any password is right on this server, but not any user.
    let url = with_user.database_url.take().unwrap();
    with_user.database_url = Some(url.replace("holdfast@", "nobody@"));
    assert_doctor(&with_user, "does not accept the user or the password");
}

#[tokio::test]
async fn a_database_whose_files_cannot_be_written_is_named_and_the_service_recovers() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let installation = Installation::new(Engine::Sqlite).await;
    // The kernel ends a process that exceeds its file size, unless it ignores that.
    let mut command = std::process::Command::new("sh");
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
