use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use holdfast_testkit::{Engine, SshServer};
use serde_json::json;

use crate::process::Installation;

/// Data of older versions: a data folder and, for PostgreSQL, a dump. Each has an account, a server, a destination and
/// two tasks with a backup each, one of them encrypted. They are kept for all later versions.
const STATES: &[&str] = &["v0.1.0-alpha.1"];
const PASSWORD: &str = "correct horse battery";

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An installation with the data of an older version.
async fn unpack(state: &str, engine: Engine) -> (Installation, String) {
    let installation = Installation::new(engine).await;
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{state}.tar.zst"));
    let (name, folder) = (if engine == Engine::Sqlite { "sqlite" } else { "postgres" }, installation.folder.path());
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--zstd", "--strip-components=1", "--file"]).arg(archive);
    run(tar.arg("--directory").arg(folder).arg(name));
    if let Some(url) = &installation.database_url {
        run(Command::new("psql")
            .args(["-q", "-v", "ON_ERROR_STOP=1", "-d", url, "-f"])
            .arg(folder.join("database.sql")));
    }
    let token = std::fs::read_to_string(folder.join("token")).unwrap().trim().to_owned();
    (installation, token)
}

async fn continue_from(state: &str, engine: Engine) {
    let (installation, token) = unpack(state, engine).await;
    let service = installation.serve(&[("ENABLE_DEVICE_AUTH_ENDPOINT", "true")]);
    let client = service.client().with_token(&token);
    let body = json!({"email": "ada@example.org", "password": PASSWORD, "device_name": "test"});
    service.client().post("/api/device-auth/token", body).await.expect(200);
    let ssh = SshServer::start();
    ssh.authorize(client.get("/api/ssh-key").await.data(200)["public_key"].as_str().unwrap());
    let server = json!({"label": "new", "ip_address": "127.0.0.1", "port": ssh.port(), "username": ssh.username()});
    let server = client.post("/api/remote-servers", server).await.id(201);

    let tasks = client.get("/api/backup-tasks").await.data(200);
    let labels: Vec<&str> = tasks.as_array().unwrap().iter().map(|task| task["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["plain", "sealed"]);
    assert_eq!((&tasks[0]["tag_ids"], &tasks[0]["notification_stream_ids"]), (&json!([1]), &json!([1])));
    assert_eq!(
        (&tasks[0]["schedule"]["scheduled_utc_time"], &tasks[0]["storage"]["max_backups"]),
        (&json!("03:00"), &json!(7))
    );
    let backups = client.get("/api/backups").await.data(200);
    assert_eq!(backups.as_array().unwrap().len(), 2);
    let work = tempfile::tempdir().unwrap();
    for backup in backups.as_array().unwrap() {
        let id = &backup["id"];
        let run = client.act(&format!("/api/backups/{id}/verify")).await.id(202);
        let run = client.wait_for(&format!("/api/runs/{run}"), |run| run["data"]["finished_at"].is_string()).await;
        assert_eq!(run["data"]["status"], "successful", "{run}");
        let target = work.path().join(id.to_string());
        let body = json!({"remote_server_id": server, "path": target});
        let run = client.post(&format!("/api/backups/{id}/restores"), body).await.id(202);
        let run = client.wait_for(&format!("/api/runs/{run}"), |run| run["data"]["finished_at"].is_string()).await;
        assert_eq!(run["data"]["status"], "successful", "{run}");
        let text = |name: &str| std::fs::read_to_string(target.join(name)).unwrap();
        assert_eq!((text("hello.txt").as_str(), text("docs/one").as_str()), ("hello from before\n", "one\n"));
        assert_eq!(text("docs/zeros"), "z".repeat(20_000));
        assert_eq!(std::fs::read_link(target.join("link")).unwrap(), Path::new("hello.txt"));
        assert_eq!(std::fs::metadata(target.join("docs/one")).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::metadata(target.join("hello.txt")).unwrap().mtime(), 1_577_934_245);
    }
    // The same task continues with the new server and its old password.
    let changes = json!({"remote_server_id": server, "source_path": work.path()});
    client.put("/api/backup-tasks/2", changes).await.expect(200);
    // A missed slot may be caught up first.
    client.wait_for("/api/backup-tasks/2/status", |status| status["data"]["status"] == "ready").await;
    client.run_task(2).await;
    let newest = client.get("/api/backups?backup_task_id=2").await.data(200);
    assert!(newest.as_array().unwrap().iter().all(|backup| backup["is_encrypted"] == true), "{newest}");
    let said = String::from_utf8(installation.run(&["doctor", "--offline"], "").stdout).unwrap();
    assert!(said.contains("ok       database") && said.contains("ok       secrets: all of 2 tasks"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_older_versions_wrote_is_migrated_and_restored_on_sqlite() {
    for state in STATES {
        continue_from(state, Engine::Sqlite).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_older_versions_wrote_is_migrated_and_restored_on_postgres() {
    for state in STATES {
        continue_from(state, Engine::Postgres).await;
    }
}

/// The copy from before a migration is the way back: a version that knows only the old schema finds everything in it.
#[tokio::test]
async fn a_database_is_copied_before_it_is_migrated() {
    for state in STATES {
        let (installation, _) = unpack(state, Engine::Sqlite).await;
        let database = installation.data_dir().join("holdfast.db");
        let before = content(&database).await;
        installation.succeed(&["migrate"], "");
        let copies = || {
            let entries = std::fs::read_dir(installation.data_dir()).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut copies: Vec<String> = names.filter(|name| name.contains(".before-")).collect();
            copies.sort();
            copies
        };
        let [copy] = &copies()[..] else { panic!("{:?}", copies()) };
        let copy = installation.data_dir().join(copy);
        assert_eq!(content(&copy).await, before);
        assert_ne!(content(&database).await, before, "it was migrated");
        assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
        // Put back and migrated again; only the newest copies are kept.
        std::fs::rename(&copy, &database).unwrap();
        for version in [2, 3] {
            std::fs::write(installation.data_dir().join(format!("holdfast.db.before-{version}")), "old").unwrap();
        }
        installation.succeed(&["migrate"], "");
        assert_eq!(copies().len(), 2, "{:?}", copies());
        assert!(copy.exists());
        installation.succeed(&["migrate"], "");
        assert_eq!(copies().len(), 2);
    }
}

/// The schema and the number of rows of each table.
async fn content(database: &Path) -> Vec<(String, i64)> {
    use sqlx::Connection as _;
    let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite://{}", database.display())).await.unwrap();
    let sql = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
    let tables: Vec<(String, String)> = sqlx::query_as(sql).fetch_all(&mut connection).await.unwrap();
    let mut found = Vec::new();
    for (name, sql) in tables {
        let count = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {name}"));
        found.push((sql, sqlx::query_scalar(count).fetch_one(&mut connection).await.unwrap()));
    }
    connection.close().await.unwrap();
    found
}
