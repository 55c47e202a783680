//! `cargo xtask bench pages`: how long the overview takes with 10,000 tasks and 1,000,000 runs of one user, on the built
//! service and both databases, beside a page that asks the database for nothing; and what a first visit has to load.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

#[path = "served/service.rs"]
mod service;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::clock::{Clock as _, SharedClock, SystemClock};
use holdfast_store::master_key::MasterKeySource;
use holdfast_store::{Migrations, Options, Store};
use holdfast_testkit::PostgresServer;

use crate::service::{Service, make_account};

const TASKS: i64 = 10_000;
const RUNS: i64 = 1_000_000;
const BACKUPS: i64 = 50_000;

#[tokio::main]
async fn main() {
    let binary = PathBuf::from(std::env::args().nth(1).expect("the path of the built service"));
    println!(
        "| database | page | p50 ms | p95 ms | max ms | of the sign-in page | goal |\n|---|---|---|---|---|---|---|"
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sqlite = format!("sqlite://{}", folder.path().join("holdfast.db").display());
    measure("SQLite", &sqlite, &binary).await;
    measure("PostgreSQL", &PostgresServer::shared().create_database().await, &binary).await;
}

async fn measure(engine: &str, url: &str, binary: &Path) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let key = folder.path().join("master.key");
    make_account(binary, folder.path(), url);
    seed(url, &key).await;
    let service = Service::start(binary, folder.path(), url, &[]).await;
    // The days of the month are counted once after a start, beside the requests.
    while !service.text("/").await.contains("successful") {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let yardstick = service.time("/sign-in").await;
    let paths =
        [("overview", "/", "≤ 20 ms"), ("tasks", "/tasks", ""), ("task", "/tasks/5000", ""), ("runs", "/runs", "")];
    for (name, path, goal) in paths {
        let times = service.time(path).await;
        let ratio = times.p50 / yardstick.p50;
        println!(
            "| {engine} | {name} | {:.1} | {:.1} | {:.1} | {ratio:.1} × | {goal} |",
            times.p50, times.p95, times.max
        );
    }
    println!(
        "| {engine} | a first visit loads {:.1} kB compressed | | | | | ≤ 150 kB |",
        first_visit(&service).await / 1000.0
    );
}

/// One user's world, written straight into the tables.
async fn seed(url: &str, key: &Path) {
    let options = Options {
        url: url.to_owned(),
        max_connections: 2,
        acquire_timeout: Duration::from_secs(20),
        master_key: MasterKeySource::File(key.to_owned()),
        migrations: Migrations::Apply,
    };
    let clock: SharedClock = Arc::new(SystemClock);
    drop(Store::open(&options, &clock).await.expect("the database opens"));
    let now = SystemClock.now().as_microsecond();
    let series = |count: i64| match url.starts_with("sqlite") {
        true => format!(
            "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s) s"
        ),
        false => format!("generate_series(CAST(1 AS BIGINT), {count}) AS s(n)"),
    };
    // A run every 2.6 seconds for a month; one in fifty failed.
    let statements = [
        format!("INSERT INTO remote_servers (user_id, label, search_label, host, port, username, connectivity, created_at, updated_at)
            VALUES (1, 'web-1', 'web-1', '127.0.0.1', 22, 'x', 'online', {now}, {now})"),
        format!("INSERT INTO backup_destinations (user_id, label, search_label, kind, spec, status, created_at, updated_at)
            VALUES (1, 'disk', 'disk', 'local', '{{\"type\":\"local\"}}', 'reachable', {now}, {now})"),
        format!(r#"INSERT INTO backup_tasks (user_id, remote_server_id, backup_destination_id, label, search_label, kind, spec,
            frequency, streams_count, tags_count,
            next_run_at, last_run_at, created_at, updated_at, last_status, last_error_code, last_success_at, proven_at)
            SELECT 1, 1, 1, 'task ' || n, 'task ' || n, 'files',
            '{{"type":"files","source_path":"/srv/' || n || '","frequency":"daily","time_to_run_at":"03:00","day_of_week":0,'
                || '"day_of_month":1,"maximum_backups_to_keep":5,"store_path":"/","format":"archive"}}', 'daily', 0, 0,
            {now} + 3600000000 + n, {now}, {now}, {now}, CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'successful' END,
            CASE WHEN n % 50 = 0 THEN 'connect' END, {now}, CASE WHEN n % 3 = 0 THEN {now} END FROM {}"#, series(TASKS)),
        format!("INSERT INTO runs (user_id, kind, task_id, status, requested_by, attempt, lease_epoch, bytes_read, bytes_stored, files,
            warnings, created_at, started_at, finished_at)
            SELECT 1, 'backup', 1 + n % {TASKS}, CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'successful' END, 'schedule', 1, 1, 1000000,
            500000, 100, 0, {now} - n * 2592000, {now} - n * 2592000, {now} - n * 2592000 + 1000000 FROM {}", series(RUNS)),
        format!("INSERT INTO backups (user_id, task_id, task_label, source, content, format, plain_bytes, plain_sha256, entries,
            is_encrypted, verification, verified_at, created_at)
            SELECT 1, 1 + n % {TASKS}, 'task', '/srv', 'files', 'archive', 1000000, 'x', 100, FALSE, 'verified', {now}, {now}
            FROM {}", series(BACKUPS)),
        format!("INSERT INTO backup_copies (user_id, backup_id, destination_id, position, locator, size_bytes, sha256, verification,
            verified_at, created_at, remove_attempts)
            SELECT 1, id, 1, 0, 'key-' || id, 500000 + id, 'x', 'verified', {now}, {now}, 0 FROM backups"),
    ];
    if url.starts_with("sqlite") {
        use sqlx::Connection as _;
        let mut connection = sqlx::SqliteConnection::connect(url).await.expect("it is there");
        for statement in statements {
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.expect("a row");
        }
        sqlx::query("ANALYZE").execute(&mut connection).await.expect("figures");
    } else {
        use sqlx::Connection as _;
        let mut connection = sqlx::PgConnection::connect(url).await.expect("it is there");
        for statement in statements {
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.expect("a row");
        }
        sqlx::query("VACUUM ANALYZE").execute(&mut connection).await.expect("figures");
    }
}

/// The overview with everything that it loads, as it goes over the line.
async fn first_visit(service: &Service) -> f64 {
    let page = service.text("/").await;
    let assets = page.split('"').filter(|part| part.starts_with("/assets/"));
    let mut bytes = service.get("/").send().await.expect("an answer").bytes().await.expect("a page").len();
    for asset in assets {
        bytes += service.get(asset).send().await.expect("an answer").bytes().await.expect("a file").len();
    }
    bytes as f64
}
