//! `cargo xtask bench scheduler`: 100,000 tasks, of which 10,000 come due at one moment; one process on SQLite, four on
//! PostgreSQL. The runs connect to a port where nobody listens: everything of a run but the copying.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_testkit::{PostgresServer, free_port};
use sqlx::Connection as _;

const DUE: i64 = 10_000;
const SPREAD: i64 = 300;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let binary = arguments.next().expect("the path of the built service");
    let support = arguments.next().expect("the path of the seeding program");
    println!(
        "| database | processes | idle CPU | CPU a tick | {DUE} slots queued after | runs ended a second | twice | slot to start p50 / p99 |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite://{}", folder.path().join("holdfast.db").display());
    measure("SQLite", &url, 1, folder.path(), &binary, &support).await;
    let (server, folder) = (PostgresServer::start(true), tempfile::tempdir().expect("a temporary folder"));
    let url = server.create_database().await;
    measure("PostgreSQL", &url, 4, folder.path(), &binary, &support).await;
}

/// The built binary in one of its roles; asked to end when dropped.
struct Process(Child);

impl Process {
    fn start(binary: &Path, role: &str, url: &str, folder: &Path) -> Self {
        let mut command = Command::new(binary);
        command
            .arg(role)
            .env("HOLDFAST_DATA_DIR", folder)
            .env("HOLDFAST_DATABASE_URL", url)
            .env("HOLDFAST_LOG", "error");
        command.env("HOLDFAST_LISTEN", format!("127.0.0.1:{}", free_port())).env("HOLDFAST_RUNS_AT_ONCE", "16");
        command.env("HOLDFAST_RETRY_SECS", "0").stdout(Stdio::piped());
        let mut child = command.spawn().expect("the built service");
        let mut greeting = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert!(greeting.next().is_some(), "it greets");
        // Somebody has to read the rest.
        std::thread::spawn(move || greeting.for_each(drop));
        Self(child)
    }

    /// Linux counts processor time in hundredths of a second.
    fn cpu_ms(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("Linux");
        let (_, rest) = stat.rsplit_once(") ").expect("a name in parentheses");
        let fields: Vec<u64> = rest.split(' ').map(|text| text.parse().unwrap_or(0)).collect();
        (fields[11] + fields[12]) * 10
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        assert!(asked.is_ok() && self.0.wait().is_ok(), "the process ends");
    }
}

async fn measure(name: &str, url: &str, processes: usize, folder: &Path, binary: &Path, support: &Path) {
    let seeded =
        Command::new(support).args(["seed", url]).arg(folder.join("master.key")).args(["1000", "100"]).output();
    assert!(seeded.is_ok_and(|output| output.status.success()), "the database is filled");
    let roles = std::iter::once("serve").chain(std::iter::repeat_n("worker", processes - 1));
    let running: Vec<Process> = roles.map(|role| Process::start(binary, role, url, folder)).collect();
    tokio::time::sleep(Duration::from_secs(2)).await;

    const IDLE: u64 = 20;
    let cpu = || running.iter().map(Process::cpu_ms).sum::<u64>();
    let before = cpu();
    tokio::time::sleep(Duration::from_secs(IDLE)).await;
    let idle_ms = (cpu() - before) as f64 / IDLE as f64 / processes as f64;

    // All at one moment, some seconds from now.
    let mut database = Database::connect(url).await;
    let at = now_micros() / 1_000_000 * 1_000_000 + 4_000_000;
    database.execute(&format!("UPDATE backup_tasks SET next_run_at = {at} WHERE id % 10 = 0")).await;
    let deadline = Instant::now() + Duration::from_secs(300);
    let ended = format!("SELECT COUNT(*) FROM runs WHERE slot_at = {at} AND finished_at IS NOT NULL");
    while database.number(&ended).await < DUE {
        assert!(Instant::now() < deadline, "the runs do not end");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let queued = database.number(&format!("SELECT MAX(created_at) - {at} FROM runs WHERE slot_at = {at}")).await;
    let took = database.number("SELECT MAX(finished_at) - MIN(started_at) FROM runs").await;
    let count = database.number("SELECT COUNT(*) FROM runs").await;
    let twice = database.number("SELECT COUNT(*) FROM runs WHERE lease_epoch <> 1").await + (count - DUE);

    // One after the other, with workers that have nothing else to do.
    let at = now_micros() + 4_000_000;
    let (first, last) = (database.number("SELECT MIN(id) FROM backup_tasks").await, SPREAD);
    let spread = format!(
        "UPDATE backup_tasks SET next_run_at = {at} + (id - {first}) * 100000 WHERE id >= {first} AND id < {first} + {last}"
    );
    database.execute(&spread).await;
    let ended = format!("SELECT COUNT(*) FROM runs WHERE slot_at >= {at} AND finished_at IS NOT NULL");
    while database.number(&ended).await < SPREAD {
        assert!(Instant::now() < deadline, "the runs do not end");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let waited = database
        .numbers(&format!("SELECT started_at - slot_at FROM runs WHERE slot_at >= {at} ORDER BY started_at - slot_at"))
        .await;
    let at = |share: f64| waited[((waited.len() - 1) as f64 * share) as usize] as f64 / 1e6;
    println!(
        "| {name} | {processes} | {:.2} % | {idle_ms:.1} ms | {:.1} s | {:.0} | {twice} | {:.2} / {:.2} s |",
        idle_ms / 10.0,
        queued as f64 / 1e6,
        DUE as f64 / (took as f64 / 1e6),
        at(0.5),
        at(0.99)
    );
}

#[expect(clippy::disallowed_methods, reason = "the service's processes read the same clock")]
fn now_micros() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_micros()).expect("before the year 294000")
}

enum Database {
    Sqlite(sqlx::SqliteConnection),
    Postgres(sqlx::PgConnection),
}

impl Database {
    async fn connect(url: &str) -> Self {
        if url.starts_with("sqlite:") {
            return Self::Sqlite(sqlx::SqliteConnection::connect(url).await.expect("the database"));
        }
        Self::Postgres(sqlx::PgConnection::connect(url).await.expect("the database"))
    }

    async fn execute(&mut self, sql: &str) {
        let query = sqlx::AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(connection) => sqlx::query(query).execute(connection).await.map(drop).expect("a statement"),
            Self::Postgres(connection) => sqlx::query(query).execute(connection).await.map(drop).expect("a statement"),
        }
    }

    async fn numbers(&mut self, sql: &str) -> Vec<i64> {
        let query = sqlx::AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(connection) => sqlx::query_scalar(query).fetch_all(connection).await.expect("numbers"),
            Self::Postgres(connection) => sqlx::query_scalar(query).fetch_all(connection).await.expect("numbers"),
        }
    }

    async fn number(&mut self, sql: &str) -> i64 {
        self.numbers(sql).await[0]
    }
}
