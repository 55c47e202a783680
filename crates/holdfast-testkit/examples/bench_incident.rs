//! `cargo xtask bench incident`: many servers go away and come back, each with one task; what users are told meanwhile,
//! and when. The servers are loopback addresses at which nothing listens, and later a forwarder to one sshd.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

#[path = "served/service.rs"]
mod service;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_testkit::{Client, PostgresServer, Receiver, SshServer, free_port};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use tokio::net::{TcpListener, TcpStream};

use crate::service::{EMAIL, Service, command, make_account};

/// Longer than anything here should take.
const LIMIT: Duration = Duration::from_secs(300);
const SETTINGS: &[(&str, &str)] =
    &[("HOLDFAST_RETRY_SECS", "10"), ("HOLDFAST_RATE_PER_SECOND", "100000"), ("HOLDFAST_RATE_BURST", "100000")];

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let binary = PathBuf::from(arguments.next().expect("the path of the built service"));
    let servers = arguments.next().and_then(|text| text.parse().ok()).expect("the number of servers");
    println!(
        "| database | servers | third failure to first message | messages while away | all have failed twice after | \
         messages when back | last success to last message | goal |\n|---|---|---|---|---|---|---|---|"
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sqlite = format!("sqlite://{}", folder.path().join("holdfast.db").display());
    measure("SQLite", &sqlite, servers, &binary).await;
    let server = PostgresServer::start(true);
    measure("PostgreSQL", &server.create_database().await, servers, &binary).await;
}

async fn measure(engine: &str, url: &str, servers: i64, binary: &Path) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    make_account(binary, folder.path(), url);
    let token = command(binary, folder.path(), url)
        .args(["token", "create", "--user", EMAIL, "--name", "bench", "--all-scopes"])
        .output()
        .expect("the service is built");
    let token = String::from_utf8(token.stdout).expect("a token").trim().to_owned();
    // Administrators may use loopback addresses.
    let mut database = Database::open(url).await;
    database.execute("UPDATE users SET is_admin = TRUE").await;
    let service = Service::start(binary, folder.path(), url, SETTINGS).await;
    let (ssh, hook) = (SshServer::start(), Receiver::start().await);
    let port = free_port();
    let client = Client::new(&service.base_url, Some(&token));
    make_tasks(&client, &ssh, &hook, port, servers, folder.path()).await;

    let begun = Instant::now();
    database.make_due().await;
    let failed = "SELECT COUNT(*) FROM runs WHERE status = 'failed'";
    let first = wait_for(async || hook.received().first().map(|_| now())).await;
    let third = database
        .number("SELECT finished_at FROM runs WHERE status = 'failed' ORDER BY finished_at LIMIT 1 OFFSET 2")
        .await;
    wait_for(async || (database.number(failed).await >= 2 * servers).then_some(())).await;
    let away = begun.elapsed().as_secs_f64();
    // Whatever else is to be said about the last failures.
    wait_for(async || {
        (database.number("SELECT COUNT(*) FROM notices WHERE status = 'pending'").await == 0).then_some(())
    })
    .await;
    let told = hook.take().len();

    let forwarder = tokio::spawn(forward(port, ssh.port()));
    database.make_due().await;
    let successful = "SELECT COUNT(DISTINCT task_id) FROM runs WHERE status = 'successful'";
    wait_for(async || (database.number(successful).await >= servers).then_some(())).await;
    let last = wait_for(async || {
        let is_over = |text: &str| text.contains("no longer fail");
        hook.received().iter().any(|message| is_over(&message.json().to_string())).then(now)
    })
    .await;
    let succeeded = database.number("SELECT MAX(finished_at) FROM runs WHERE status = 'successful'").await;
    let back = hook.take().len();
    forwarder.abort();
    println!(
        "| {engine} | {servers} | {:.1} s | {told} | {away:.0} s | {back} | {:.1} s | ≤ 30 s, 1, 1 |",
        (first - third) as f64 / 1e6,
        (last - succeeded) as f64 / 1e6
    );
}

async fn make_tasks(client: &Client, ssh: &SshServer, hook: &Receiver, port: u16, servers: i64, folder: &Path) {
    let source = folder.join("source");
    std::fs::create_dir(&source).expect("a folder of our own");
    std::fs::write(source.join("file"), "content").expect("a folder of our own");
    let key = client.get("/api/ssh-key").await.data(200);
    ssh.authorize(key["public_key"].as_str().expect("a key"));
    let notifications = json!({"on_success": false, "on_failure": true});
    let stream = json!({"label": "ops", "type": "slack", "value": hook.url("/hook"), "notifications": notifications});
    let stream = client.post("/api/notification-streams", stream).await.id(201);
    let destination = client.post("/api/backup-destinations", json!({"label": "disk", "type": "local"})).await.id(201);
    for number in 0..servers {
        let address = format!("127.0.{}.{}", 1 + number / 250, 1 + number % 250);
        let server =
            json!({"label": format!("web-{number}"), "ip_address": address, "port": port, "username": ssh.username()});
        let server = client.post("/api/remote-servers", server).await.id(201);
        let task = json!({
            "remote_server_id": server,
            "backup_destination_id": destination,
            "label": format!("task {number}"),
            "type": "files",
            "source_path": source,
            "frequency": "daily",
            "time_to_run_at": "03:00",
            "notification_stream_ids": [stream],
        });
        client.post("/api/backup-tasks", task).await.id(201);
    }
}

/// Lets all addresses of this machine lead to one server.
async fn forward(port: u16, to: u16) {
    let listener = TcpListener::bind(("0.0.0.0", port)).await.expect("nobody else uses the port");
    while let Ok((mut from, _)) = listener.accept().await {
        tokio::spawn(async move {
            if let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)).await {
                tokio::io::copy_bidirectional(&mut from, &mut server).await.ok();
            }
        });
    }
}

fn now() -> i64 {
    SystemClock.now().as_microsecond()
}

/// Asks until there is an answer.
async fn wait_for<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "this takes too long");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A connection to the database that the service uses as well.
enum Database {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Database {
    async fn open(url: &str) -> Self {
        match url.starts_with("sqlite") {
            true => Self::Sqlite(SqliteConnection::connect(url).await.expect("it is there")),
            false => Self::Postgres(PgConnection::connect(url).await.expect("it is there")),
        }
    }

    /// All tasks are due in a moment.
    async fn make_due(&mut self) {
        let at = now() + 2_000_000;
        self.execute(&format!("UPDATE backup_tasks SET next_run_at = {at}, retry_at = NULL")).await;
    }

    async fn execute(&mut self, sql: &str) {
        let done = match self {
            Self::Sqlite(connection) => sqlx::query(AssertSqlSafe(sql)).execute(connection).await.map(drop),
            Self::Postgres(connection) => sqlx::query(AssertSqlSafe(sql)).execute(connection).await.map(drop),
        };
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    async fn number(&mut self, sql: &str) -> i64 {
        match self {
            Self::Sqlite(connection) => sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await,
            Self::Postgres(connection) => sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await,
        }
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}
