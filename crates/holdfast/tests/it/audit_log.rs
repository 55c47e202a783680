use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use holdfast_testkit::{Client, Engine, SmallDisk, free_port};
use serde_json::{Value, json};

use crate::process::{Installation, run};

const PATIENCE: Duration = Duration::from_secs(40);

async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ids(events: &[Value]) -> Vec<i64> {
    events.iter().map(|event| event["id"].as_i64().unwrap()).collect()
}

/// What the database has, oldest first.
fn recorded(installation: &Installation) -> Vec<i64> {
    let lines = installation.succeed(&["audit", "export"], "");
    ids(&lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>())
}

fn token(installation: &Installation) -> String {
    let user = ["user", "create", "--email", "ada@example.org", "--name", "Ada", "--admin"];
    installation.succeed(&user, "correct horse\n");
    installation.succeed(&["token", "create", "--user", "ada@example.org", "--name", "t", "--all-scopes"], "")
}

async fn make_tag(client: &Client, label: &str) {
    client.post("/api/tags", json!({"label": label})).await.expect(201);
}

async fn every_event_reaches_the_file(engine: Engine) {
    let installation = Installation::new(engine).await;
    let token = token(&installation);
    let path = installation.folder.path().join("audit.jsonl");
    let setting = [("HOLDFAST_AUDIT_LOG", path.to_str().unwrap())];
    let service = installation.serve(&setting);
    let client = service.client().with_token(&token);
    make_tag(&client, "first").await;
    wait_until("the first events are written", async || ids(&events(&path)) == recorded(&installation)).await;
    assert_eq!(events(&path).last().unwrap()["action"], "tag.created");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // Rotated like any log.
    let old = path.with_extension("1");
    std::fs::rename(&path, &old).unwrap();
    make_tag(&client, "second").await;
    wait_until("the new file is written", async || events(&path).len() == 1).await;
    service.signal("TERM");
    assert_eq!(service.wait(), Some(0));
    // While no service runs.
    installation.succeed(&["user", "create", "--email", "eve@example.org", "--name", "Eve"], "correct horse\n");
    let service = installation.serve(&setting);
    let all = async || [ids(&events(&old)), ids(&events(&path))].concat() == recorded(&installation);
    wait_until("what happened meanwhile is written, and nothing twice", all).await;
    drop(service);
}

#[tokio::test]
async fn every_event_reaches_the_file_sqlite() {
    every_event_reaches_the_file(Engine::Sqlite).await;
}

#[tokio::test]
async fn every_event_reaches_the_file_postgres() {
    every_event_reaches_the_file(Engine::Postgres).await;
}

#[tokio::test]
async fn one_of_several_processes_writes_and_another_takes_over() {
    let installation = Installation::new(Engine::Postgres).await;
    let token = token(&installation);
    let path = installation.folder.path().join("audit.jsonl");
    let setting = [("HOLDFAST_AUDIT_LOG", path.to_str().unwrap())];
    let services = [installation.serve(&setting), installation.serve(&setting)];
    let clients = services.each_ref().map(|service| service.client().with_token(&token));
    // Ids are not given out in the order in which these transactions end.
    let making = (0..40).map(|number| {
        let client = &clients[number % 2];
        async move { make_tag(client, &format!("tag {number}")).await }
    });
    futures_util::future::join_all(making).await;
    wait_until("all events are written", async || ids(&events(&path)) == recorded(&installation)).await;
    let [first, second] = services;
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0));
    make_tag(&clients[1], "afterwards").await;
    wait_until("the other process goes on", async || ids(&events(&path)) == recorded(&installation)).await;
    drop(second);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_named_and_nothing_is_lost() {
    let installation = Installation::new(Engine::Sqlite).await;
    let token = token(&installation);
    let folder = installation.folder.path().join("logs");
    let path = folder.join("audit.jsonl");
    let setting = [("HOLDFAST_AUDIT_LOG", path.to_str().unwrap())];
    let service = installation.serve(&setting);
    let client = service.client().with_token(&token);
    make_tag(&client, "kept").await;
    let doctor = || {
        let mut command = installation.command(&["doctor", "--offline"]);
        let output = run(command.envs(setting), "");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    wait_until("the doctor names the problem", async || {
        let said = doctor();
        let line = said.lines().find(|line| line.starts_with("PROBLEM  audit log: ")).unwrap_or_default();
        line.contains("audit.jsonl cannot be written: No such file or directory")
    })
    .await;
    let lag = async || {
        let text = client.get("/metrics").await.text;
        text.lines().find_map(|line| line.strip_prefix("holdfast_audit_log_lag_seconds ")?.parse::<i64>().ok()).unwrap()
    };
    wait_until("the metric shows that events wait", async || lag().await > 0).await;
    assert!(service.log.lock().unwrap().contains("events of the audit log wait"));
    std::fs::create_dir(&folder).unwrap();
    wait_until("everything is written", async || ids(&events(&path)) == recorded(&installation)).await;
    wait_until("nothing waits", async || lag().await == 0).await;
    let said = doctor();
    assert!(said.contains("ok       audit log: everything is written to"), "{said}");
}

#[tokio::test]
async fn every_line_is_complete_after_the_disk_was_full() {
    let installation = Installation::new(Engine::Sqlite).await;
    let token = token(&installation);
    let folder = installation.folder.path().join("logs");
    let Some(disk) = SmallDisk::mount(&folder, "64k") else {
        eprintln!("skipped: this user may not mount; `cargo xtask test` as root runs it");
        return;
    };
    let path = folder.join("audit.jsonl");
    let service = installation.serve(&[("HOLDFAST_AUDIT_LOG", path.to_str().unwrap())]);
    let client = service.client().with_token(&token);
    wait_until("the first events are written", async || ids(&events(&path)) == recorded(&installation)).await;
    // What still fits is not a multiple of the length of a line.
    let filler = disk.fill();
    for number in 0..40 {
        make_tag(&client, &format!("{number}{}", "x".repeat(200))).await;
    }
    wait_until("the problem is named", async || service.log.lock().unwrap().contains("events of the audit log wait"))
        .await;
    wait_until("only whole lines are left", async || {
        let text = std::fs::read_to_string(&path).unwrap();
        text.ends_with('\n') && text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok())
    })
    .await;
    std::fs::remove_file(filler).unwrap();
    let all = async || std::fs::read_to_string(&path).unwrap().lines().count() == recorded(&installation).len();
    wait_until("everything is written", all).await;
    assert_eq!(ids(&events(&path)), recorded(&installation), "nothing twice");
}

#[tokio::test]
async fn events_go_to_the_system_log_and_to_standard_output() {
    let installation = Installation::new(Engine::Sqlite).await;
    token(&installation);
    let socket = installation.folder.path().join("log.socket");
    let syslog = UnixDatagram::bind(&socket).unwrap();
    syslog.set_read_timeout(Some(PATIENCE)).unwrap();
    let setting = format!("syslog:{}", socket.display());
    let service = installation.serve(&[("HOLDFAST_AUDIT_LOG", &setting)]);
    let mut got = Vec::new();
    for _ in recorded(&installation) {
        let mut buffer = [0; 8192];
        let length = syslog.recv(&mut buffer).unwrap();
        let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
        assert!(message.starts_with("<86>"), "{message}");
        let (_, event) = message.split_once(&format!(" holdfast[{}]: ", service.id())).unwrap();
        got.push(serde_json::from_str::<Value>(event).unwrap());
    }
    assert_eq!(ids(&got), recorded(&installation));
    // Killed, it would keep others from writing for a while.
    service.signal("TERM");
    assert_eq!(service.wait(), Some(0));
    let out = installation.folder.path().join("out");
    let mut command = installation.command(&["serve"]);
    command.envs([("HOLDFAST_AUDIT_LOG", "-"), ("HOLDFAST_LISTEN", &format!("127.0.0.1:{}", free_port()))]);
    let mut service = command.stdout(File::create(&out).unwrap()).stderr(Stdio::null()).spawn().unwrap();
    installation.succeed(&["token", "create", "--user", "ada@example.org", "--name", "u", "--all-scopes"], "");
    wait_until("the event is printed", async || {
        let text = std::fs::read_to_string(&out).unwrap();
        text.lines().any(|line| line.starts_with('{') && line.contains("\"action\":\"token.created\""))
    })
    .await;
    service.kill().unwrap();
    service.wait().unwrap();
}

#[tokio::test]
async fn a_destination_that_is_no_path_is_refused() {
    let installation = Installation::new(Engine::Sqlite).await;
    let mut command = installation.command(&["serve"]);
    let output = run(command.env("HOLDFAST_AUDIT_LOG", "audit.jsonl"), "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("HOLDFAST_AUDIT_LOG must be an absolute path, - for standard output, syslog:"), "{said}");
}
