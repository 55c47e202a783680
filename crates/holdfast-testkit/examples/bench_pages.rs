//! `cargo xtask bench pages`: how long the overview takes with 10,000 tasks and 1,000,000 runs of one user, on the built
//! service and both databases, beside a page that asks the database for nothing; and what a first visit has to load.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_core::clock::{Clock as _, SharedClock, SystemClock};
use holdfast_store::master_key::MasterKeySource;
use holdfast_store::{Migrations, Options, Store};
use holdfast_testkit::{PostgresServer, free_port};
use reqwest::header;

const TASKS: i64 = 10_000;
const RUNS: i64 = 1_000_000;
const BACKUPS: i64 = 50_000;
const REQUESTS: usize = 300;
const EMAIL: &str = "ada@example.org";
const PASSWORD: &str = "correct horse battery";

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
    let service = Service::start(binary, folder.path(), url).await;
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
        service.first_visit().await / 1000.0
    );
}

fn command(binary: &Path, folder: &Path, url: &str) -> Command {
    let mut command = Command::new(binary);
    command.env("HOLDFAST_DATA_DIR", folder).env("HOLDFAST_DATABASE_URL", url).env("HOLDFAST_LOG", "error");
    command
}

fn make_account(binary: &Path, folder: &Path, url: &str) {
    use std::io::Write as _;
    let mut create = command(binary, folder, url);
    create.args(["user", "create", "--email", EMAIL, "--name", "Ada"]).stdin(Stdio::piped());
    let mut child = create.spawn().expect("the service is built");
    child.stdin.take().expect("piped").write_all(PASSWORD.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success());
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

struct Times {
    p50: f64,
    p95: f64,
    max: f64,
}

struct Service {
    child: Child,
    base_url: String,
    http: reqwest::Client,
    cookie: String,
}

impl Service {
    async fn start(binary: &Path, folder: &Path, url: &str) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let mut serve = command(binary, folder, url);
        let child =
            serve.arg("serve").env("HOLDFAST_LISTEN", &address).stdout(Stdio::null()).spawn().expect("it starts");
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
        let base_url = format!("http://{address}");
        while http.get(format!("{base_url}/readyz")).send().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut service = Self { child, base_url, http, cookie: String::new() };
        service.sign_in().await;
        // The days of the month are counted once after a start, beside the requests.
        while !service.text("/").await.contains("successful") {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        service
    }

    async fn sign_in(&mut self) {
        let page = self.http.get(format!("{}/sign-in", self.base_url)).send().await.expect("an answer");
        let visitor = cookie_of(&page);
        let text = page.text().await.expect("a page");
        let csrf = text.split("name=\"csrf\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a form");
        let body = format!("csrf={csrf}&email={EMAIL}&password={}", PASSWORD.replace(' ', "+"));
        let sent = self
            .http
            .post(format!("{}/sign-in", self.base_url))
            .header(header::COOKIE, visitor)
            .body(body)
            .send()
            .await;
        self.cookie = cookie_of(&sent.expect("an answer"));
        assert!(self.cookie.contains("session"), "signed in");
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.get(format!("{}{path}", self.base_url));
        request.header(header::COOKIE, &self.cookie).header(header::ACCEPT_ENCODING, "gzip")
    }

    async fn text(&self, path: &str) -> String {
        let request = self.http.get(format!("{}{path}", self.base_url)).header(header::COOKIE, &self.cookie);
        request.send().await.expect("an answer").text().await.expect("a page")
    }

    async fn time(&self, path: &str) -> Times {
        let mut times = Vec::with_capacity(REQUESTS);
        for _ in 0..REQUESTS {
            let started = Instant::now();
            let answer = self.get(path).send().await.expect("an answer");
            assert!(answer.status().is_success(), "{path}: {}", answer.status());
            answer.bytes().await.expect("a whole answer");
            times.push(started.elapsed().as_secs_f64() * 1000.0);
        }
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        Times { p50: at(0.5), p95: at(0.95), max: at(1.0) }
    }

    /// The overview with everything that it loads, as it goes over the line.
    async fn first_visit(&self) -> f64 {
        let page = self.text("/").await;
        let assets = page.split('"').filter(|part| part.starts_with("/assets/"));
        let mut bytes = self.get("/").send().await.expect("an answer").bytes().await.expect("a page").len();
        for asset in assets {
            bytes += self.get(asset).send().await.expect("an answer").bytes().await.expect("a file").len();
        }
        bytes as f64
    }
}

fn cookie_of(answer: &reqwest::Response) -> String {
    let set = answer.headers().get_all(header::SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
    set.filter_map(|cookie| cookie.split(';').next()).collect::<Vec<_>>().join("; ")
}

impl Drop for Service {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
