//! `cargo xtask bench growth`: every list over HTTP, and upkeep, with millions of runs and backups of one user, on the
//! built service and both databases.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

#[path = "served/service.rs"]
mod service;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_testkit::PostgresServer;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, SqliteConnection};

use crate::service::{EMAIL, Service, command, make_account};

const TASKS: i64 = 2000;
const REQUESTS: usize = 60;
const DAY: i64 = 86_400_000_000;
/// The settings for how long logs, removed backups and notices are kept.
const KEEP_LOGS_DAYS: i64 = 400;
const KEEP_REMOVED_DAYS: i64 = 90;
/// Nothing but what is measured: the backups are not there, and must not be missed.
const SETTINGS: &[(&str, &str)] = &[
    ("HOLDFAST_VERIFY_DAYS", "0"),
    ("HOLDFAST_INVENTORY_DAYS", "0"),
    ("HOLDFAST_RATE_PER_SECOND", "100000"),
    ("HOLDFAST_RATE_BURST", "100000"),
];

/// How much there is.
#[derive(Clone, Copy)]
struct Size {
    runs: i64,
    backups: i64,
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let binary = PathBuf::from(arguments.next().expect("the path of the built service"));
    let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("the numbers of runs and backups");
    let size = Size { runs: number(), backups: number() };
    let engines = arguments.next().unwrap_or_else(|| "both".to_owned());
    if engines != "postgres" {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let url = format!("sqlite://{}", folder.path().join("holdfast.db").display());
        measure("SQLite", &url, size, &binary).await;
    }
    if engines != "sqlite" {
        let server = PostgresServer::start(true);
        measure("PostgreSQL", &server.create_database().await, size, &binary).await;
    }
}

async fn measure(engine: &str, url: &str, size: Size, binary: &Path) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    make_account(binary, folder.path(), url);
    let mut database = Database::open(url).await;
    let started = Instant::now();
    fill(&mut database, size).await;
    println!(
        "\n{engine}: {} runs and {} backups filled in {:.0} s; {:.1} GB\n",
        size.runs,
        size.backups,
        started.elapsed().as_secs_f64(),
        database.bytes().await as f64 / 1e9
    );
    let token = command(binary, folder.path(), url)
        .args(["token", "create", "--user", EMAIL, "--name", "bench", "--all-scopes"])
        .output()
        .expect("the service is built");
    let token = String::from_utf8(token.stdout).expect("a token").trim().to_owned();

    let now = SystemClock.now().as_microsecond();
    let due = database.count_due(now).await;
    let started = Instant::now();
    let service = Service::start(binary, folder.path(), url, SETTINGS).await;
    upkeep(engine, &mut database, (due, now), started).await;
    lists(engine, &service, &token).await;
    println!("\n{engine}: {:.1} GB at the end", database.bytes().await as f64 / 1e9);
}

/// How long that may take before the benchmark goes on. Each pass of upkeep takes two seconds of a minute, and after a
/// start, it first passes the logs that stay with their backups.
const UPKEEP_LIMIT: Duration = Duration::from_secs(1800);

/// Waits until upkeep has deleted what a day leaves to delete.
async fn upkeep(engine: &str, database: &mut Database, (due, now): (i64, i64), started: Instant) {
    let deadline = started + UPKEEP_LIMIT;
    loop {
        let left = database.count_due(now).await;
        if left == 0 || Instant::now() > deadline {
            let took = started.elapsed().as_secs_f64();
            let state = if left == 0 { "holds" } else { "does not hold" };
            println!(
                "{engine}: a day's {due} rows were due; {} deleted after {took:.0} s ({:.0} a second; {:.2} a second fall due): \
                 the steady state {state}\n",
                due - left,
                (due - left) as f64 / took,
                due as f64 / 86_400.0
            );
            return;
        }
        // Counting reads millions of rows.
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

/// Every list of the API with its filters and orders, and every page that lists what grows.
async fn lists(engine: &str, service: &Service, token: &str) {
    const API: &[(&str, &str)] = &[
        ("logs", "/api/backup-task-logs"),
        ("logs, newest first", "/api/backup-task-logs?sort=-created_at"),
        ("logs, page 100", "/api/backup-task-logs?page=100"),
        ("logs, successful", "/api/backup-task-logs?status=successful"),
        ("logs, cancelled (none)", "/api/backup-task-logs?status=cancelled"),
        ("logs of a task", "/api/backup-tasks/7/logs"),
        ("logs of a task, failed", "/api/backup-task-logs?backup_task_id=7&status=failed"),
        ("logs of a task, newest first", "/api/backup-tasks/7/logs?sort=-created_at"),
        ("logs of the last hour", "/api/backup-task-logs?created_after={hour}"),
        ("logs changed in the last hour", "/api/backup-task-logs?updated_after={hour}"),
        ("runs of backups", "/api/runs"),
        ("runs of backups, restores (none)", "/api/runs?kind=restore"),
        ("runs of backups, failed", "/api/runs?status=failed"),
        ("runs of backups, verify, failed", "/api/runs?kind=verify&status=failed"),
        ("backups", "/api/backups"),
        ("backups, newest first", "/api/backups?sort=-id"),
        ("backups, with deleted ones", "/api/backups?deleted=true"),
        ("backups, verified", "/api/backups?status=verified"),
        ("backups, missing (none)", "/api/backups?status=missing"),
        ("backups of a task", "/api/backups?backup_task_id=7"),
        ("backups of the last hour", "/api/backups?created_after={hour}"),
        ("notices", "/api/notices"),
        ("notices, undelivered", "/api/notices?status=undelivered"),
        ("notices of a stream", "/api/notices?notification_stream_id=1"),
        ("audit events", "/api/audit-events"),
        ("audit events, newest first", "/api/audit-events?sort=-created_at"),
        ("tasks", "/api/backup-tasks"),
        ("upcoming", "/api/backup-tasks/upcoming"),
        ("user", "/api/user"),
    ];
    const PAGES: &[(&str, &str)] = &[
        ("overview", "/"),
        ("tasks", "/tasks"),
        ("one task", "/tasks/7"),
        ("runs", "/runs"),
        ("backups", "/backups"),
        ("notices", "/notices"),
        ("audit log", "/audit"),
    ];
    println!("| database | list | p50 ms | p95 ms | max ms | goal |\n|---|---|---|---|---|---|");
    let hour = jiff::Timestamp::from_microsecond(SystemClock.now().as_microsecond() - 2 * 3_600_000_000);
    let hour = hour.expect("a time").to_string();
    for (name, path) in API {
        let path = path.replace("{hour}", &hour);
        row(engine, &format!("API: {name}"), service.time_as(&path, Some(token), REQUESTS).await);
        // The next page by its cursor.
        if !path.contains('?') && path != "/api/user" && path != "/api/backup-tasks/upcoming" {
            let first: serde_json::Value = serde_json::from_str(&service.api(&path, token).await).expect("JSON");
            if let Some(cursor) = first["meta"]["next_cursor"].as_str() {
                let path = format!("{path}?cursor={cursor}");
                row(engine, &format!("API: {name}, by cursor"), service.time_as(&path, Some(token), REQUESTS).await);
            }
        }
    }
    for (name, path) in PAGES {
        row(engine, &format!("page: {name}"), service.time_as(path, None, REQUESTS).await);
    }
}

fn row(engine: &str, name: &str, times: service::Times) {
    println!("| {engine} | {name} | {:.1} | {:.1} | {:.1} | ≤ 30 ms |", times.p50, times.p95, times.max);
}

/// Fills the tables. Triggers and indexes come afterwards: what they do for each row takes hours otherwise.
async fn fill(database: &mut Database, size: Size) {
    let made = database.strip().await;
    for statement in statements(database, size) {
        database.execute(&statement).await;
    }
    for sql in made {
        database.execute(&sql).await;
    }
    for sql in TOTALS {
        database.execute(sql).await;
    }
    database.settle().await;
}

/// As the migration does it.
const TOTALS: &[&str] = &[
    "INSERT INTO totals (subject, user_id, kind, status, part, amount)
     SELECT 'run', user_id, kind, status, 0, COUNT(*) FROM runs GROUP BY 2, 3, 4",
    "INSERT INTO totals (subject, user_id, kind, status, part, amount)
     SELECT 'backup', user_id, CASE WHEN deleted_at IS NULL THEN 'stored' ELSE 'deleted' END, verification, 0, COUNT(*)
     FROM backups GROUP BY 2, 3, 4",
    "INSERT INTO totals (subject, user_id, kind, status, part, amount, bytes)
     SELECT 'copy', user_id, CASE WHEN remove_after IS NULL THEN 'stored' ELSE 'unwanted' END, 'first', 0, COUNT(*),
         SUM(size_bytes)
     FROM backup_copies GROUP BY 2, 3",
    "INSERT INTO totals (subject, user_id, kind, status, part, amount)
     SELECT 'notice', user_id, COALESCE(CAST(stream_id AS TEXT), ''), status, 0, COUNT(*) FROM notices GROUP BY 2, 3, 4",
];

/// One user's world. The oldest quarter of the backups is kept for ever, and their logs with them; all others are of the
/// time that logs are kept and one day more, so that one day's rows are due.
fn statements(database: &Database, Size { runs, backups }: Size) -> Vec<String> {
    let now = SystemClock.now().as_microsecond();
    let old = backups / 4;
    let step = (KEEP_LOGS_DAYS + 1) * DAY / (runs - old);
    let at =
        format!("({now} - 3600000000 - ({runs} - n) * {step} - CASE WHEN n <= {old} THEN {} ELSE 0 END)", 300 * DAY);
    let run = format!("CASE WHEN i <= {old} THEN i ELSE {runs} - ({backups} - i) END");
    let kept = (backups - old) * step - (KEEP_REMOVED_DAYS + 1) * DAY;
    let deleted = format!("CASE WHEN n > {old} AND {at} + {kept} < {now} THEN {at} + {kept} END");
    let (each_run, each_backup) = (database.series("n", runs), database.series("i", backups));
    let (tenth, verified) = (runs / 10, database.series("i", backups / 4));
    let (tasks, few) = (database.series("n", TASKS), database.series("n", tenth));
    vec![
        format!("INSERT INTO remote_servers (user_id, label, search_label, host, port, username, connectivity, created_at, updated_at)
            VALUES (1, 'web-1', 'web-1', '127.0.0.1', 22, 'x', 'online', {now}, {now})"),
        // Not known to be reachable, so that no catalogues are written.
        format!("INSERT INTO backup_destinations (user_id, label, search_label, kind, spec, status, created_at, updated_at)
            VALUES (1, 'disk', 'disk', 'local', '{{\"type\":\"local\"}}', 'unknown', {now}, {now})"),
        format!("INSERT INTO notification_streams (user_id, label, search_label, kind, value_sealed, on_success, on_failure,
            created_at, updated_at) VALUES (1, 'chat', 'chat', 'email', NULL, FALSE, TRUE, {now}, {now})"),
        format!(r#"INSERT INTO backup_tasks (user_id, remote_server_id, backup_destination_id, label, search_label, kind, spec,
            frequency, streams_count, tags_count,
            next_run_at, last_run_at, created_at, updated_at, last_status, last_error_code, last_success_at, proven_at)
            SELECT 1, 1, 1, 'task ' || n, 'task ' || n, 'files',
            '{{"type":"files","source_path":"/srv/' || n || '","frequency":"daily","time_to_run_at":"03:00","day_of_week":0,'
                || '"day_of_month":1,"maximum_backups_to_keep":5,"store_path":"/","format":"archive"}}', 'daily', 0, 0,
            {now} + {DAY} + n, {now}, {now}, {now}, 'successful', NULL, {now}, {now} FROM {tasks}"#),
        format!("INSERT INTO runs (id, user_id, kind, task_id, status, requested_by, attempt, lease_epoch, bytes_read, bytes_stored,
            files, warnings, created_at, started_at, finished_at, is_long, turn)
            SELECT n, 1, 'backup', 1 + n % {TASKS}, CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'successful' END, 'schedule', 1, 1,
            1000000, 500000, 100, 0, {at}, {at}, {at} + 1000000, TRUE, 0 FROM {each_run}"),
        format!("INSERT INTO run_lines (run_id, number, at, text)
            SELECT n, 1, {at}, 'Stored 100 files in 500000 bytes.' FROM {each_run}"),
        format!("INSERT INTO backups (id, user_id, task_id, run_id, task_label, source, content, format, plain_bytes, plain_sha256,
            entries, is_encrypted, verification, verified_at, created_at, deleted_at, deleted_reason, source_server)
            SELECT i, 1, 1 + n % {TASKS}, n, 'task', '/srv', 'files', 'archive', 1000000, 'x', 100, FALSE,
            CASE WHEN i % 1000 = 0 THEN 'corrupt' ELSE 'verified' END, {now}, {at},
            {deleted}, CASE WHEN {deleted} IS NULL THEN NULL ELSE 'retention' END, 'web-1'
            FROM (SELECT i, {run} AS n FROM {each_backup}) b"),
        "INSERT INTO backup_copies (user_id, backup_id, destination_id, position, locator, size_bytes, sha256, verification,
            verified_at, created_at, remove_attempts, remove_after, removed_at)
            SELECT 1, id, 1, 0, 'key-' || id, 500000 + id % 1000, 'x', verification, verified_at, created_at, 0, deleted_at,
            deleted_at FROM backups".to_owned(),
        format!("INSERT INTO runs (id, user_id, kind, backup_id, status, requested_by, attempt, lease_epoch, bytes_read, bytes_stored,
            files, warnings, created_at, started_at, finished_at, is_long, turn)
            SELECT {runs} + i, 1, 'verify', {backups} - i + 1, CASE WHEN i % 2000 = 0 THEN 'failed' ELSE 'successful' END, 'schedule',
            1, 1, 500000, 0, 1, 0, {now} - {DAY} - i, {now} - {DAY} - i, {now} - {DAY} - i, TRUE, 0 FROM {verified}"),
        format!("INSERT INTO notices (user_id, stream_id, task_id, recipient, kind, event, title, content, status, tries, is_held,
            claim, created_at, ended_at)
            SELECT 1, 1, 1 + n % {TASKS}, 'stream 1', 'failure', 'e' || n, 'Backup failed', '{{}}',
            CASE WHEN n % 1000 = 0 THEN 'undelivered' ELSE 'delivered' END, 1, FALSE, 1, {now} - n * {each}, {now} - n * {each}
            FROM {few}", each = (KEEP_REMOVED_DAYS + 1) * DAY / tenth),
        format!("INSERT INTO audit_events (at, user_id, actor, action, detail)
            SELECT {now} - n * {each}, 1, 'session', 'run.started', 'task ' || n FROM {few}",
            each = (KEEP_LOGS_DAYS + 1) * DAY / tenth),
    ]
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

    fn series(&self, name: &str, count: i64) -> String {
        match self {
            Self::Sqlite(_) => format!(
                "(WITH RECURSIVE s({name}) AS (SELECT 1 UNION ALL SELECT {name} + 1 FROM s WHERE {name} < {count})
                  SELECT {name} FROM s) s"
            ),
            Self::Postgres(_) => format!("generate_series(CAST(1 AS BIGINT), {count}) AS s({name})"),
        }
    }

    async fn execute(&mut self, sql: &str) {
        let done = match self {
            Self::Sqlite(connection) => {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(|done| done.rows_affected())
            }
            Self::Postgres(connection) => {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(|done| done.rows_affected())
            }
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

    /// Drops triggers and indexes, and returns the statements that make them again.
    async fn strip(&mut self) -> Vec<String> {
        match self {
            Self::Sqlite(connection) => {
                let rows = sqlx::query(
                    "SELECT type, name, sql FROM sqlite_master WHERE type IN ('trigger', 'index') AND sql IS NOT NULL",
                )
                .fetch_all(&mut *connection)
                .await
                .expect("the schema");
                let mut made = Vec::new();
                // Nobody else uses the database yet, and what a crash leaves would be thrown away.
                let mut sql = "PRAGMA journal_mode = DELETE; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
                    PRAGMA foreign_keys = OFF; PRAGMA cache_size = -1000000;"
                    .to_owned();
                for row in rows {
                    sql.push_str(&format!("DROP {} {};", row.get::<String, _>(0), row.get::<String, _>(1)));
                    made.push(row.get::<String, _>(2));
                }
                self.execute(&sql).await;
                made
            }
            Self::Postgres(connection) => {
                let made = sqlx::query(
                    "SELECT indexname::text, indexdef FROM pg_indexes WHERE schemaname = 'public'
                    AND tablename IN ('runs', 'backups', 'backup_copies', 'notices', 'audit_events', 'run_lines')
                    AND indexname NOT LIKE '%_pkey'",
                )
                .fetch_all(&mut *connection)
                .await
                .expect("the schema");
                let mut sql = "SET session_replication_role = replica; SET maintenance_work_mem = '512MB';".to_owned();
                for row in &made {
                    sql.push_str(&format!("DROP INDEX {};", row.get::<String, _>(0)));
                }
                self.execute(&sql).await;
                made.iter().map(|row| row.get::<String, _>(1)).collect()
            }
        }
    }

    /// As a database is after a while.
    async fn settle(&mut self) {
        match self {
            Self::Sqlite(_) => {
                self.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -2000").await;
            }
            Self::Postgres(_) => {
                for table in ["runs", "backups", "backup_copies", "notices", "audit_events"] {
                    self.execute(&format!(
                        "SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT MAX(id) FROM {table}) + 1)"
                    ))
                    .await;
                }
                self.execute("SET session_replication_role = DEFAULT").await;
                self.execute("VACUUM ANALYZE").await;
            }
        }
    }

    /// Rows that upkeep is to delete: old logs whose backup is gone, and old records of removed backups.
    /// What was due at this time and is still there.
    async fn count_due(&mut self, now: i64) -> i64 {
        let (logs, removed) = (now - KEEP_LOGS_DAYS * DAY, now - KEEP_REMOVED_DAYS * DAY);
        let due_logs = format!(
            "SELECT COUNT(*) FROM (SELECT id FROM runs WHERE is_long AND finished_at < {logs}
                 EXCEPT SELECT run_id FROM backups WHERE deleted_at IS NULL) due"
        );
        let due_backups = format!("SELECT COUNT(*) FROM backups WHERE deleted_at < {removed}");
        self.number(&due_logs).await + self.number(&due_backups).await
    }

    async fn bytes(&mut self) -> i64 {
        match self {
            Self::Sqlite(_) => {
                self.number("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()").await
            }
            Self::Postgres(_) => self.number("SELECT pg_database_size(current_database())").await,
        }
    }
}
