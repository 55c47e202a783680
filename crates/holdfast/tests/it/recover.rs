use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::{
    Client, Engine, Fingerprint, Ignore, MariaDbServer, PostgresServer, SampleTree, SshServer, assert_same,
    assert_same_but,
};
use serde_json::{Value, json};

use crate::process::{Installation, run};

const PASSWORD: &str = "correct horse battery";

/// The commands of docs/recover.md, by heading.
fn page() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recover.md")).unwrap();
    let (mut blocks, mut heading, mut block) = (BTreeMap::<String, Vec<String>>::new(), String::new(), None::<String>);
    for line in text.lines() {
        match &mut block {
            Some(_) if line == "```" => blocks.entry(heading.clone()).or_default().extend(block.take()),
            Some(commands) => *commands += &format!("{line}\n"),
            None if line == "```sh" => block = Some("set -euo pipefail\n".to_owned()),
            None => heading = line.strip_prefix("## ").map_or(heading, str::to_owned),
        }
    }
    blocks
}

fn follow(commands: &str, environment: &[(&str, &str)]) {
    let output = Command::new("bash").args(["-c", commands]).envs(environment.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{commands}{}", String::from_utf8_lossy(&output.stderr));
}

/// `age` reads passwords only from a terminal, so this provides one.
fn follow_on_terminal(commands: &str, environment: &[(&str, &str)]) {
    let typed = format!(
        "(sleep 0.5; printf '%s\\n' '{PASSWORD}') | script --quiet --return --command \"bash -c \\\"\\$COMMANDS\\\"\" /dev/null"
    );
    let mut all = environment.to_vec();
    all.push(("COMMANDS", commands));
    follow(&typed, &all);
}

fn text_of(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

struct Place {
    client: Client,
    installation: Installation,
    server: i64,
    destination: i64,
}

impl Place {
    async fn back_up(&self, changes: Value) -> PathBuf {
        let mut body = json!({"remote_server_id": self.server, "backup_destination_id": self.destination,
            "label": "recover", "frequency": "daily", "time_to_run_at": "03:00"});
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let task = self.client.post("/api/backup-tasks", body).await.id(201);
        self.client.run_task(task).await;
        let backup =
            self.client.get(&format!("/api/backups?backup_task_id={task}")).await.expect(200)["data"][0].clone();
        let folder = self.installation.data_dir().join("destinations").join(backup["user_id"].to_string());
        folder.join(self.destination.to_string()).join(backup["key"].as_str().unwrap())
    }
}

/// Runs the commands of the page without the service, its database and its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_recovery_page_work() {
    let installation = Installation::new(Engine::Sqlite).await;
    let environment = [
        ("HOLDFAST_ADMIN_EMAIL", "root@example.org"),
        ("HOLDFAST_ADMIN_PASSWORD", PASSWORD),
        ("ENABLE_DEVICE_AUTH_ENDPOINT", "true"),
    ];
    let service = installation.serve(&environment);
    let body = json!({"email": "root@example.org", "password": PASSWORD, "device_name": "test"});
    let token = service.client().post("/api/device-auth/token", body).await.expect(200);
    let client = service.client().with_token(token["token"].as_str().unwrap());
    let (postgres, mariadb) = (PostgresServer::shared(), MariaDbServer::shared());
    let home = tempfile::tempdir().unwrap();
    let options = format!("[client]\nsocket={}\nuser=root\n", mariadb.socket().display());
    std::fs::write(home.path().join(".my.cnf"), options).unwrap();
    let (port, home) = (postgres.port().to_string(), home.path().to_str().unwrap());
    let database = [("PGHOST", "127.0.0.1"), ("PGPORT", &*port), ("PGUSER", "holdfast"), ("HOME", home)];
    let ssh = database.iter().fold(SshServer::builder(), |ssh, (name, value)| ssh.set_env(name, value)).start();
    ssh.authorize(client.get("/api/ssh-key").await.data(200)["public_key"].as_str().unwrap());
    let body = json!({"label": "s", "ip_address": "127.0.0.1", "port": ssh.port(), "username": ssh.username()});
    let server = client.post("/api/remote-servers", body).await.id(201);
    let destination = client.post("/api/backup-destinations", json!({"label": "d", "type": "local"})).await.id(201);
    let place = Place { client, installation, server, destination };

    let work = tempfile::tempdir().unwrap();
    let source = work.path().join("source");
    std::fs::create_dir(&source).unwrap();
    SampleTree::create(&source);
    std::fs::create_dir(source.join("docs")).unwrap();
    std::fs::write(source.join("docs/one"), "one").unwrap();
    let url = postgres.create_database().await;
    let name = url.rsplit('/').next().unwrap();
    follow(&format!("psql -q -d {name} -c 'CREATE TABLE t AS SELECT generate_series(1, 1000) AS a'"), &database);
    let shop = mariadb.create_database();
    mariadb.sql(&shop, "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)");
    let files = place.back_up(json!({"type": "files", "source_path": source, "encryption_password": PASSWORD})).await;
    let pg = place.back_up(json!({"type": "database", "database_engine": "postgresql", "database_name": name})).await;
    let my = place.back_up(json!({"type": "database", "database_engine": "mysql", "database_name": shop})).await;
    let all = place.back_up(json!({"type": "database", "database_engine": "mysql"})).await;
    let notes = text_of(&work.path().join("notes.db"));
    follow("sqlite3 \"$NOTES\" 'CREATE TABLE t (a); INSERT INTO t VALUES (7)'", &[("NOTES", &notes)]);
    let lite = place.back_up(json!({"type": "database", "database_engine": "sqlite", "source_path": notes})).await;
    let kept = json!({"type": "files", "source_path": source, "encryption_password": PASSWORD, "format": "repository"});
    let kept = place.back_up(kept).await;
    let dumped = json!({"type": "database", "database_engine": "sqlite", "source_path": notes,
        "encryption_password": PASSWORD, "format": "repository"});
    let dumped = place.back_up(dumped).await;
    drop(service);
    for gone in ["holdfast.db", "master.key"] {
        std::fs::remove_file(place.installation.data_dir().join(gone)).unwrap();
    }

    let page = page();
    let block = |heading: &str, number: usize| page[heading][number].as_str();
    let text = text_of;
    let sealed = text(&files);
    follow_on_terminal(block("Decrypt", 0), &[("BACKUP", &sealed)]);
    let opened = sealed.strip_suffix(".age").unwrap().to_owned();
    follow(block("Files", 0), &[("BACKUP", &opened)]);
    let whole = work.path().join("whole");
    follow(block("Files", 1), &[("BACKUP", &opened), ("TARGET", &text(&whole))]);
    assert_same(&Fingerprint::of(&source), &Fingerprint::of(&whole));
    let part = work.path().join("part");
    follow(block("Files", 2), &[("BACKUP", &opened), ("TARGET", &text(&part)), ("ENTRY", "docs")]);
    assert_eq!(std::fs::read_to_string(part.join("docs/one")).unwrap(), "one");
    assert_eq!(std::fs::read_dir(&part).unwrap().count(), 1);

    let password = text(&work.path().join("password"));
    std::fs::write(&password, PASSWORD).unwrap();
    let repository = |snapshot: &Path| text(snapshot.parent().unwrap().parent().unwrap());
    let (kept, dumped, target) = (repository(&kept), repository(&dumped), text(&work.path().join("by restic")));
    let opened = [("REPOSITORY", &*kept), ("RESTIC_PASSWORD_FILE", &password), ("TARGET", &target), ("HOME", home)];
    follow(block("A repository", 0), &opened);
    follow(block("A repository", 1), &opened);
    let restored = work.path().join("by restic").join(source.strip_prefix("/").unwrap());
    let ignored = Ignore { holes: true, link_times: true, ..Ignore::default() };
    let mut expected = Fingerprint::of(&source);
    expected.0.retain(|name, facts| format!("{:?}", facts.kind) != "Socket" && !name.starts_with(b"times/"));
    let mut found = Fingerprint::of(&restored);
    found.0.retain(|name, _| !name.starts_with(b"times/"));
    assert_same_but(&expected, &found, ignored);
    let part = text(&work.path().join("one by restic"));
    let entry = text(&source.join("docs"));
    let opened = [("REPOSITORY", &*kept), ("RESTIC_PASSWORD_FILE", &password), ("TARGET", &part), ("ENTRY", &entry)];
    follow(block("A repository", 2), &[&opened[..], &[("HOME", home)]].concat());
    let one = Path::new(&part).join(entry.trim_start_matches('/')).join("one");
    assert_eq!(std::fs::read_to_string(one).unwrap(), "one");
    let dump = text(&work.path().join("dump.sqlite3"));
    let opened = [("REPOSITORY", &*dumped), ("RESTIC_PASSWORD_FILE", &password), ("DUMP", "/dump.sqlite3")];
    follow(block("A repository", 3), &[&opened[..], &[("TARGET", &*dump), ("HOME", home)]].concat());
    follow("test \"$(sqlite3 \"$DUMP\" 'SELECT a FROM t')\" = 7", &[("DUMP", &dump)]);

    let with = |backup: &Path, target: &str| {
        let mut environment: Vec<(String, String)> = Vec::new();
        environment.extend(database.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        environment.extend([("BACKUP".to_owned(), text(backup)), ("DATABASE".to_owned(), target.to_owned())]);
        environment
    };
    let follow_with = |commands: &str, environment: &[(String, String)]| {
        let borrowed: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
        follow(commands, &borrowed);
    };
    follow_with(block("A PostgreSQL database", 0), &with(&pg, "recovered"));
    follow("[ \"$(psql -XAt -d recovered -c 'SELECT sum(a) FROM t')\" = 500500 ]", &database);
    let recovered = text(&work.path().join("recovered.db"));
    follow(block("An SQLite database", 0), &[("BACKUP", &text(&lite)), ("TARGET", &recovered)]);
    follow("[ \"$(sqlite3 \"$TARGET\" 'SELECT a FROM t')\" = 7 ]", &[("TARGET", &recovered)]);
    follow_with(block("A MySQL or MariaDB database", 0), &with(&my, "recovered"));
    assert_eq!(mariadb.sql("recovered", "SELECT SUM(a) FROM t").trim(), "3");
    mariadb.sql("", &format!("DROP DATABASE {shop}"));
    let mut environment = with(&all, &shop);
    environment.push(("TARGET".to_owned(), text(&work.path().join("server"))));
    follow_with(block("All databases of a MySQL or MariaDB server", 0), &environment);
    assert_eq!(mariadb.sql(&shop, "SELECT SUM(a) FROM t").trim(), "3");

    // With only the binary.
    let bin = Path::new(env!("CARGO_BIN_EXE_holdfast")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let password_file = work.path().join("password");
    std::fs::write(&password_file, format!("{PASSWORD}\n")).unwrap();
    let (extracted, plain) = (work.path().join("extracted"), work.path().join("plain.tar"));
    let environment = [
        ("PATH", &*path),
        ("BACKUP", &*sealed),
        ("TARGET", extracted.to_str().unwrap()),
        ("PLAIN", plain.to_str().unwrap()),
        ("PASSWORD_FILE", password_file.to_str().unwrap()),
    ];
    follow(block("With Holdfast's binary alone", 0), &environment);
    // The binary creates neither pipes nor holes, and the index of an archive stores microseconds.
    std::fs::remove_file(source.join("fifo")).ok();
    let ignore = Ignore { holes: true, link_times: true, nanoseconds: true, folder_times: true, ..Ignore::default() };
    assert_same_but(&without_pipes(&source), &Fingerprint::of(&extracted), ignore);
    follow(block("With Holdfast's binary alone", 1), &environment);
    follow("tar --list --file \"$PLAIN\" > /dev/null", &environment);

    // A wrong password is reported, and leaves no file.
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    let missing = work.path().join("missing");
    wrong.args(["backup", "decrypt", &sealed, "--output"]).arg(&missing).env_clear();
    let output = run(&mut wrong, "wrong\n");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("does not open this backup"));
    assert!(!missing.exists() && !work.path().join("missing.part").exists());
}

fn without_pipes(folder: &Path) -> Fingerprint {
    let mut all = Fingerprint::of(folder);
    all.0.retain(|_, facts| !format!("{:?}", facts.kind).contains("Fifo"));
    all
}

#[test]
fn the_demo_backs_up_and_restores_and_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    demo.args(["demo", "--no-stay", "--listen", "127.0.0.1:0"]).env_clear();
    demo.env("PATH", std::env::var("PATH").unwrap()).env("TMPDIR", temporary.path());
    let output = run(&mut demo, "");
    let (shown, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{shown}{said}");
    for expected in ["Back up", "Verify", "Restore", "MB/s", "came back identical"] {
        assert!(shown.contains(expected), "{shown}");
    }
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
}
