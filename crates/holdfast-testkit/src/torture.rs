//! Real processes under real faults: they are killed, suspended and resumed, their database restarts and their network
//! fails, while a client records every response. Then the faults end, and the database and stored objects are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{Connection as _, Row as _};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::{
    Engine, Fault, FaultProxy, Fingerprint, Ignore, PostgresServer, S3Server, SshServer, assert_same_but, free_port,
    random,
};

const BUCKET: &str = "torture";
/// Short, so that leases expire within a test.
const LEASE_SECS: u64 = 5;
/// Everything must have settled by then: leases, retries and clean-up, also on a slow machine.
const SETTLE_LIMIT: Duration = Duration::from_secs(300);
const TASKS: usize = 8;
/// The first of the tasks that store in a repository.
const REPOSITORIES: usize = 6;
const PASSWORD: &str = "correct horse battery";
/// The exit code when the database cannot be reached at start-up.
const NO_DATABASE: i32 = 4;

pub struct Plan {
    pub binary: PathBuf,
    pub engine: Engine,
    pub seed: u64,
    /// The number of faults that kill or suspend a process.
    pub kills: usize,
}

/// Counts of what happened.
#[derive(Debug, Default)]
pub struct Report {
    pub kills: usize,
    pub naps: usize,
    pub restarts: usize,
    pub network_faults: usize,
    pub acknowledged: usize,
    pub refused: usize,
    pub runs: BTreeMap<String, i64>,
    pub slots: i64,
    pub backups: usize,
    pub seconds: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs: Vec<String> = self.runs.iter().map(|(end, count)| format!("{count} {end}")).collect();
        write!(
            f,
            "{} kills, {} naps, {} database restarts, {} network faults in {} s; {} answers acknowledged, {} not; runs: {}; \
             {} slots; {} backups kept and read back",
            self.kills,
            self.naps,
            self.restarts,
            self.network_faults,
            self.seconds,
            self.acknowledged,
            self.refused,
            runs.join(", "),
            self.slots,
            self.backups
        )
    }
}

/// A deterministic random number generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// A process of the service.
struct Process {
    role: &'static str,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    fn signal(&self, name: &str) {
        if let Some(child) = &self.child {
            let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
            assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("our own process");
            child.wait().expect("our own process");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Torture {
    /// The first field, so that the processes are dropped before everything that they use.
    processes: Vec<Process>,
    plan: Plan,
    dice: Dice,
    folder: TempDir,
    ssh: SshServer,
    network: FaultProxy,
    s3: S3Server,
    postgres: Option<(PostgresServer, FaultProxy)>,
    database_url: String,
    listen: String,
    token: String,
    tasks: Vec<i64>,
    report: Report,
}

/// Runs a plan. Panics when a guarantee is broken; the logs of all processes are kept then.
pub async fn run(plan: Plan) -> Report {
    let begun = Instant::now();
    let mut torture = Torture::start(plan).await;
    torture.set_up().await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(write_all_the_time(torture.client(), torture.tasks.clone(), stop.clone()));
    torture.inject_fault().await;
    stop.store(true, Ordering::SeqCst);
    let written = writer.await.expect("the client does not panic");
    torture.heal();
    torture.settle().await;
    torture.check(&written).await;
    torture.report.acknowledged = written.acknowledged;
    torture.report.refused = written.refused;
    torture.report.seconds = begun.elapsed().as_secs();
    torture.processes.clear();
    torture.report
}

impl Torture {
    async fn start(plan: Plan) -> Self {
        let folder = tempfile::Builder::new().prefix("holdfast-torture-").tempdir().expect("a temporary folder");
        let ssh = SshServer::start();
        let network = FaultProxy::start(ssh.port());
        let s3 = S3Server::start(&[BUCKET]).await.expect("an S3 server");
        let (postgres, database_url) = match plan.engine {
            Engine::Sqlite => (None, format!("sqlite://{}", folder.path().join("holdfast.db").display())),
            Engine::Postgres => {
                let server = PostgresServer::start(true);
                let url = server.create_database().await;
                let proxy = FaultProxy::start(server.port());
                let url = url.replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port()));
                (Some((server, proxy)), url)
            }
        };
        let dice = Dice(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let listen = format!("127.0.0.1:{}", free_port());
        let roles: &[&'static str] =
            if postgres.is_some() { &["serve", "worker", "worker", "worker"] } else { &["serve"] };
        let log = |number: usize| folder.path().join(format!("process-{number}.log"));
        let processes = roles.iter().enumerate().map(|(number, role)| Process { role, log: log(number), child: None });
        let processes = processes.collect();
        let (token, tasks, report) = (String::new(), Vec::new(), Report::default());
        Self { plan, dice, folder, ssh, network, s3, postgres, database_url, listen, token, processes, tasks, report }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.plan.binary);
        command.args(arguments).env_clear().env("HOLDFAST_DATA_DIR", self.folder.path().join("data"));
        command.env("HOLDFAST_DATABASE_URL", &self.database_url).env("HOLDFAST_LISTEN", &self.listen);
        for (name, value) in [
            ("HOLDFAST_LEASE_SECS", LEASE_SECS.to_string().as_str()),
            ("HOLDFAST_RETRY_SECS", "2"),
            ("HOLDFAST_CONNECT_SECS", "4"),
            ("HOLDFAST_STALL_SECS", "6"),
            ("HOLDFAST_DESTINATION_RETRY_SECS", "8"),
            ("HOLDFAST_RUNS_PER_SERVER", "4"),
            ("HOLDFAST_RUNS_PER_USER", "8"),
            ("HOLDFAST_RUNS_PER_MINUTE", "100000"),
            ("HOLDFAST_RATE_PER_SECOND", "100000"),
            ("HOLDFAST_RATE_BURST", "100000"),
            ("HOLDFAST_LOG", "info"),
        ] {
            command.env(name, value);
        }
        command.env("HOLDFAST_WORKERS", if self.postgres.is_some() { "0" } else { "1" });
        command
    }

    fn start_process(&mut self, number: usize) {
        let Process { role, log, .. } = &self.processes[number];
        let log = std::fs::File::options().create(true).append(true).open(log).expect("our own folder");
        let mut command = self.command(&[role]);
        command.stdout(Stdio::null()).stderr(log).stdin(Stdio::null());
        self.processes[number].child = Some(command.spawn().expect("the binary"));
    }

    fn client(&self) -> Caller {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(8)).build().expect("a client without TLS");
        Caller { http, base: format!("http://{}", self.listen), token: self.token.clone() }
    }

    /// Creates the account, the server, the destinations and the tasks before the faults begin.
    async fn set_up(&mut self) {
        let printed = |command: &mut Command, input: &str| {
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary");
            std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), input.as_bytes()).expect("it reads");
            let output = child.wait_with_output().expect("its output");
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).expect("text").trim().to_owned()
        };
        let user = ["user", "create", "--email", "ada@example.org", "--name", "Ada", "--admin"];
        printed(&mut self.command(&user), "correct horse battery\n");
        let token = ["token", "create", "--user", "ada@example.org", "--name", "torture", "--all-scopes"];
        self.token = printed(&mut self.command(&token), "");
        for number in 0..self.processes.len() {
            self.start_process(number);
        }
        let client = self.client();
        let key = client.until_answered("/api/ssh-key").await;
        self.ssh.authorize(key["data"]["public_key"].as_str().expect("a key"));
        let create = async |path: &str, body: Value| {
            let (status, body) = client.send("POST", path, Some(&body)).await.expect("all is well");
            assert_eq!(status, 201, "{body}");
            body["data"]["id"].as_i64().expect("an id")
        };
        let server = json!({"label": "web", "ip_address": "127.0.0.1", "port": self.network.port(),
            "username": self.ssh.username()});
        let server = create("/api/remote-servers", server).await;
        let local = create("/api/backup-destinations", json!({"label": "disk", "type": "local"})).await;
        let bucket = json!({"label": "bucket", "type": "custom_s3", "s3_access_key": S3Server::ACCESS_KEY,
            "s3_secret_key": S3Server::SECRET_KEY, "s3_bucket_name": BUCKET, "custom_s3_endpoint": self.s3.endpoint()});
        let bucket = create("/api/backup-destinations", bucket).await;
        for number in 0..TASKS {
            let source = self.source(number);
            std::fs::create_dir_all(source.join("sub")).expect("our own folder");
            // Some are uploaded in one request, some in parts.
            let size = if number % 3 == 2 { 14_000_000 } else { 200_000 * (number + 1) };
            std::fs::write(source.join("file"), random(number as u64 + 1, size)).expect("our own folder");
            std::fs::write(source.join("sub/text"), format!("task {number}\n").repeat(500)).expect("our own folder");
            let task = json!({"label": format!("task {number}"), "type": "files", "remote_server_id": server,
                "backup_destination_id": if number % 2 == 0 { local } else { bucket }, "source_path": source,
                "custom_cron": "* * * * *", "maximum_backups_to_keep": 1 + number % 3,
                "encryption_password": (number == 1 || number >= REPOSITORIES).then_some(PASSWORD),
                "format": if number >= REPOSITORIES { "repository" } else { "archive" }});
            let id = create("/api/backup-tasks", task).await;
            self.tasks.push(id);
        }
    }

    fn source(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("source-{number}"))
    }

    /// Injects faults until there are as many as planned.
    async fn inject_fault(&mut self) {
        while self.report.kills + self.report.naps < self.plan.kills {
            let wait = 300 + self.dice.roll(2500);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let number = self.dice.roll(self.processes.len() as u64) as usize;
            self.change_repositories().await;
            match self.dice.roll(10) {
                0..4 => {
                    self.processes[number].kill();
                    self.report.kills += 1;
                    let down = self.dice.roll(2000);
                    tokio::time::sleep(Duration::from_millis(down)).await;
                    self.start_process(number);
                }
                4 if self.processes.len() > 1 => {
                    // All processes at once.
                    self.processes.iter_mut().for_each(Process::kill);
                    self.report.kills += self.processes.len();
                    (0..self.processes.len()).for_each(|number| self.start_process(number));
                }
                4..6 => {
                    // Shorter and longer than a lease.
                    let nap = [500, 2000, 9000][self.dice.roll(3) as usize];
                    self.processes[number].signal("STOP");
                    tokio::time::sleep(Duration::from_millis(nap)).await;
                    self.processes[number].signal("CONT");
                    self.report.naps += 1;
                }
                6 => {
                    if let Some((server, proxy)) = &mut self.postgres {
                        if self.dice.roll(2) == 0 {
                            server.stop();
                            tokio::time::sleep(Duration::from_millis(self.dice.roll(1500))).await;
                            server.start_again();
                            self.report.restarts += 1;
                        } else {
                            proxy.cut_after(self.dice.roll(20_000));
                            self.report.network_faults += 1;
                        }
                    }
                }
                7 => {
                    // S3 fails one in three requests, in one of two ways.
                    let count = AtomicUsize::new(0);
                    self.s3.set_hook(move |_, _, _| match count.fetch_add(1, Ordering::SeqCst) % 6 {
                        0 => Some(Fault::Status(503, "SlowDown")),
                        3 => Some(Fault::ApplyThenReset),
                        _ => None,
                    });
                    self.report.network_faults += 1;
                    tokio::time::sleep(Duration::from_millis(self.dice.roll(4000))).await;
                    self.s3.clear_hook();
                }
                _ => {
                    let bytes = self.dice.roll(20_000_000);
                    match self.dice.roll(4) {
                        0 => self.network.cut_after(bytes),
                        1 => self.network.silence_after(bytes / 4),
                        2 => self.network.refuse(),
                        _ => self.network.delay(Duration::from_millis(self.dice.roll(30))),
                    }
                    self.report.network_faults += 1;
                    tokio::time::sleep(Duration::from_millis(self.dice.roll(9000))).await;
                    self.network.heal();
                }
            }
        }
    }

    /// Gives the tasks with repositories something to store, and has one of these pruned or checked. Whether that is
    /// possible right now does not matter.
    async fn change_repositories(&mut self) {
        for number in REPOSITORIES..TASKS {
            let seed = self.dice.roll(1_000_000);
            std::fs::write(self.source(number).join("changing"), random(seed, 600_000)).expect("our own folder");
        }
        let task = self.tasks[REPOSITORIES + self.dice.roll((TASKS - REPOSITORIES) as u64) as usize];
        let what = if self.dice.roll(3) == 0 { "check" } else { "prune" };
        let path = format!("/api/backup-tasks/{task}/repository/{what}");
        drop(self.client().send("POST", &path, None).await);
    }

    fn heal(&mut self) {
        self.network.heal();
        if let Some((_, proxy)) = &self.postgres {
            proxy.heal();
        }
        for number in 0..self.processes.len() {
            let ended = match &mut self.processes[number].child {
                Some(child) => child.try_wait().expect("our own process"),
                None => None,
            };
            if let Some(status) = ended {
                // A process that starts without a reachable database exits with this code; no other exits on its own.
                assert_eq!(status.code(), Some(NO_DATABASE), "a process exited on its own\n{}", self.keep_logs());
                self.start_process(number);
            }
        }
    }

    /// Pauses all tasks and waits until no run is live and there is nothing left to clean up.
    async fn settle(&mut self) {
        let client = self.client();
        let deadline = Instant::now() + SETTLE_LIMIT;
        for task in self.tasks.clone() {
            client.until(deadline, "POST", &format!("/api/backup-tasks/{task}/pause"), 200).await;
        }
        loop {
            let states = [
                ("live runs", "SELECT COUNT(*) FROM runs WHERE status IN ('queued', 'running')"),
                ("uploads", "SELECT COUNT(*) FROM uploads"),
                (
                    "objects to remove",
                    "SELECT COUNT(*) FROM backup_copies WHERE remove_after IS NOT NULL AND removed_at IS NULL",
                ),
            ];
            let mut left = Vec::new();
            for (what, sql) in states {
                let count = self.count(sql).await;
                if count > 0 {
                    left.push(format!("{count} {what}"));
                }
            }
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "stuck: {}\n{}", left.join(", "), self.keep_logs());
            self.heal();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn rows(&self, sql: &'static str) -> Vec<Vec<String>> {
        // Bypasses the proxies: the checks must not be affected by the faults.
        let url = match &self.postgres {
            Some((server, proxy)) => {
                self.database_url.replace(&format!(":{}/", proxy.port()), &format!(":{}/", server.port()))
            }
            None => self.database_url.clone(),
        };
        if self.postgres.is_some() {
            let mut connection = sqlx::PgConnection::connect(&url).await.expect("the database");
            let rows = sqlx::query(sql).fetch_all(&mut connection).await.expect(sql);
            rows.iter().map(|row| (0..row.len()).map(|at| row.get::<String, _>(at)).collect()).collect()
        } else {
            let mut connection = sqlx::SqliteConnection::connect(&url).await.expect("the database");
            let rows = sqlx::query(sql).fetch_all(&mut connection).await.expect(sql);
            rows.iter().map(|row| (0..row.len()).map(|at| row.get::<String, _>(at)).collect()).collect()
        }
    }

    async fn count(&self, sql: &'static str) -> i64 {
        if self.postgres.is_none() {
            let mut connection = sqlx::SqliteConnection::connect(&self.database_url).await.expect("the database");
            return sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect(sql);
        }
        let (server, proxy) = self.postgres.as_ref().expect("PostgreSQL");
        let url = self.database_url.replace(&format!(":{}/", proxy.port()), &format!(":{}/", server.port()));
        let mut connection = sqlx::PgConnection::connect(&url).await.expect("the database");
        sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect(sql)
    }

    async fn check(&mut self, written: &Written) {
        self.check_written(written).await;
        self.check_slots().await;
        self.check_objects().await;
        self.check_promises().await;
        self.check_backups().await;
        for process in &self.processes {
            let log = std::fs::read_to_string(&process.log).unwrap_or_default();
            assert!(!log.contains("panicked"), "a process panicked\n{}", self.keep_logs());
        }
        if self.postgres.is_none() {
            let found = self.rows("SELECT integrity_check FROM pragma_integrity_check").await;
            assert_eq!(found, [["ok"]], "the database is whole");
        }
    }

    /// Every acknowledged write is in the database.
    async fn check_written(&self, written: &Written) {
        assert!(written.strange.is_empty(), "{:?}\n{}", written.strange, self.keep_logs());
        let rows = self.rows("SELECT label FROM tags").await;
        let tags: BTreeSet<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        let lost: Vec<&String> = written.tags.iter().filter(|label| !tags.contains(label.as_str())).collect();
        assert!(lost.is_empty(), "acknowledged, but missing: {lost:?}\n{}", self.keep_logs());
        for (task, values) in &written.descriptions {
            let rows = self.rows("SELECT CAST(id AS TEXT), COALESCE(description, '') FROM backup_tasks").await;
            let shown = rows.iter().find(|row| row[0] == task.to_string()).map(|row| row[1].clone());
            let shown = shown.unwrap_or_else(|| panic!("task {task} is gone\n{}", self.keep_logs()));
            assert!(values.contains(&shown), "task {task} says {shown:?}, not one of {values:?}\n{}", self.keep_logs());
        }
        let manual = self
            .count("SELECT COUNT(*) FROM runs WHERE requested_by = 'manual' AND kind = 'backup' AND retry_of IS NULL")
            .await;
        assert!(
            manual >= written.runs,
            "{} runs were acknowledged, {manual} exist\n{}",
            written.runs,
            self.keep_logs()
        );
    }

    /// Each slot has exactly one run.
    async fn check_slots(&mut self) {
        let twice = self
            .count("SELECT COUNT(*) FROM (SELECT 1 FROM runs WHERE slot_at IS NOT NULL GROUP BY task_id, slot_at HAVING COUNT(*) > 1) t")
            .await;
        assert_eq!(twice, 0, "a slot has two runs");
        let gaps = self
            .rows(
                "SELECT CAST(task_id AS TEXT), CAST(COUNT(*) AS TEXT), CAST((MAX(slot_at) - MIN(slot_at)) / 60000000 + 1 AS TEXT)
                 FROM runs WHERE slot_at IS NOT NULL GROUP BY task_id",
            )
            .await;
        for row in &gaps {
            assert_eq!(row[1], row[2], "task {} has slots without a run\n{}", row[0], self.keep_logs());
        }
        self.report.slots = self.count("SELECT COUNT(*) FROM runs WHERE slot_at IS NOT NULL").await;
        let ends = self
            .rows(
                "SELECT CASE WHEN error_code IS NULL THEN status ELSE error_code END, CAST(COUNT(*) AS TEXT) FROM runs
                 WHERE kind = 'backup' GROUP BY 1 ORDER BY 1",
            )
            .await;
        self.report.runs = ends.into_iter().map(|row| (row[0].clone(), row[1].parse().expect("a count"))).collect();
    }

    /// The database and the destinations list the same objects.
    async fn check_objects(&self) {
        let rows = self.rows("SELECT locator FROM backup_copies WHERE remove_after IS NULL").await;
        let name = |locator: &str| locator.rsplit('/').next().unwrap_or_default().to_owned();
        let recorded: BTreeSet<String> = rows.iter().map(|row| name(&row[0])).collect();
        let mut found = BTreeSet::new();
        collect(&self.folder.path().join("data/destinations"), &mut found);
        collect(&self.s3.root().join(BUCKET), &mut found);
        found.remove(".holdfast-destination");
        let names = self
            .rows("SELECT COALESCE(catalogue_key, ''), COALESCE(catalogue_pending, '') FROM backup_destinations")
            .await;
        let names: BTreeSet<String> =
            names.into_iter().flatten().filter_map(|key| Some(key.rsplit_once('/')?.1.to_owned())).collect();
        let stray: Vec<&String> =
            found.iter().filter(|name| name.ends_with(".sealed") && !names.contains(*name)).collect();
        assert!(stray.is_empty(), "unknown catalogues: {stray:?}\n{}", self.keep_logs());
        found.retain(|name| !name.ends_with(".sealed"));
        // A repository has more files than its snapshots; restic looks at them.
        for (folder, prefix) in self.repositories().await {
            check_repository(&folder).await;
            let mut inside = BTreeSet::new();
            collect(&folder, &mut inside);
            let snapshots: BTreeSet<String> =
                rows.iter().filter(|row| row[0].starts_with(&prefix)).map(|row| name(&row[0])).collect();
            inside.retain(|name| !snapshots.contains(name));
            found.retain(|name| !inside.contains(name));
        }
        assert_eq!(found, recorded, "the destinations and the database differ\n{}", self.keep_logs());
        let unfinished = std::fs::read_dir(self.s3.root()).into_iter().flatten().flatten();
        let unfinished = unfinished.filter(|entry| entry.file_name().to_string_lossy().starts_with(".upload-"));
        // Uploads whose process was killed before recording them; the lifecycle rules of a bucket remove these.
        let lost = self.report.runs.get("worker_lost").copied().unwrap_or(0);
        let count = i64::try_from(unfinished.count()).unwrap_or(i64::MAX);
        assert!(count <= lost, "{count} unfinished uploads, {lost} lost workers\n{}", self.keep_logs());
    }

    /// The folders of the repositories, and how the locators of their backups begin.
    async fn repositories(&self) -> Vec<(PathBuf, String)> {
        let rows = self.rows("SELECT p.folder, CAST(p.destination_id AS TEXT) FROM repositories p").await;
        let local = self.folder.path().join("data/destinations/1");
        let places = rows.into_iter().map(|row| {
            let in_folder = local.join(&row[1]).join(&row[0]);
            let folder = if in_folder.exists() { in_folder } else { self.s3.root().join(BUCKET).join(&row[0]) };
            (folder, format!("{}/", row[0]))
        });
        places.collect()
    }

    /// Every successful run made a backup, as many backups are kept as configured, and every task still works.
    async fn check_promises(&self) {
        let empty = self
            .count("SELECT COUNT(*) FROM runs r WHERE r.kind = 'backup' AND r.status = 'successful' AND NOT EXISTS (SELECT 1 FROM backups b WHERE b.run_id = r.id)")
            .await;
        assert_eq!(empty, 0, "a run is successful without a backup\n{}", self.keep_logs());
        let kept = self
            .rows(
                "SELECT CAST(t.id AS TEXT), t.spec,
                     CAST((SELECT COUNT(*) FROM runs r WHERE r.task_id = t.id AND r.status = 'successful') AS TEXT),
                     CAST((SELECT COUNT(*) FROM backups b WHERE b.task_id = t.id AND b.deleted_at IS NULL) AS TEXT)
                 FROM backup_tasks t",
            )
            .await;
        for row in kept {
            let number = |at: usize| row[at].parse::<i64>().expect("a number");
            let spec: Value = serde_json::from_str(&row[1]).expect("a stored specification");
            let kept = spec["maximum_backups_to_keep"].as_i64().expect("a number");
            assert_eq!(number(3), kept.min(number(2)), "backups of task {}\n{}", row[0], self.keep_logs());
        }
        let client = self.client();
        let deadline = Instant::now() + SETTLE_LIMIT;
        for task in &self.tasks {
            let path = format!("/api/backup-tasks/{task}");
            client.until(deadline, "POST", &format!("{path}/resume"), 200).await;
            client.until(deadline, "POST", &format!("{path}/run"), 202).await;
            client.until(deadline, "POST", &format!("{path}/pause"), 200).await;
            loop {
                let log = client.until_answered(&format!("{path}/latest-log")).await;
                match log["data"]["status"].as_str() {
                    Some("successful") => break,
                    Some("queued" | "running") => tokio::time::sleep(Duration::from_millis(50)).await,
                    // The machine may have been slow for a moment; try again.
                    _ if is_slowness(&log["data"]) => {
                        client.until(deadline, "POST", &format!("{path}/resume"), 200).await;
                        client.until(deadline, "POST", &format!("{path}/run"), 202).await;
                        client.until(deadline, "POST", &format!("{path}/pause"), 200).await;
                    }
                    _ => panic!("task {task} no longer works: {log}\n{}", self.keep_logs()),
                }
                assert!(Instant::now() < deadline, "task {task} does not end\n{}", self.keep_logs());
            }
        }
    }

    /// Every backup can be read back, and the newest of each task restores to what was backed up.
    async fn check_backups(&mut self) {
        let client = self.client();
        let listed = client.until_answered("/api/backups?per_page=100").await;
        let backups = listed["data"].as_array().expect("a list").clone();
        self.report.backups = backups.len();
        for backup in &backups {
            self.finish_run(&client, &format!("/api/backups/{}/verify", backup["id"]), None).await;
        }
        let servers = client.until_answered("/api/remote-servers").await;
        for (number, task) in self.tasks.iter().enumerate() {
            let own = backups.iter().filter(|backup| backup["backup_task_id"] == json!(task));
            let newest = own.max_by_key(|backup| backup["id"].as_i64());
            let newest = newest.unwrap_or_else(|| panic!("task {task} has no backup\n{}", self.keep_logs()));
            let target = self.folder.path().join(format!("restored-{number}"));
            let body = json!({"remote_server_id": servers["data"][0]["id"], "path": target});
            self.finish_run(&client, &format!("/api/backups/{}/restores", newest["id"]), Some(&body)).await;
            let (source, restored) = (Fingerprint::of(&self.source(number)), Fingerprint::of(&target));
            // A repository does not keep where files have holes.
            let ignored = Ignore { holes: number >= REPOSITORIES, ..Ignore::default() };
            assert_same_but(&source, &restored, ignored);
        }
    }

    /// Requests a run that must succeed, and waits until it ends.
    async fn finish_run(&self, client: &Caller, path: &str, body: Option<&Value>) {
        let deadline = Instant::now() + SETTLE_LIMIT;
        let ask = async || {
            let (status, asked) = client.send("POST", path, body).await.expect("all is well again");
            assert_eq!(status, 202, "{asked}");
            asked
        };
        let mut asked = ask().await;
        loop {
            let run = client.until_answered(&format!("/api/runs/{}", asked["data"]["id"])).await;
            match run["data"]["status"].as_str() {
                Some("successful") => return,
                Some("queued" | "running") => tokio::time::sleep(Duration::from_millis(50)).await,
                _ if is_slowness(&run["data"]) => asked = ask().await,
                _ => panic!("{path}: {run}\n{}", self.keep_logs()),
            }
            assert!(Instant::now() < deadline, "{path} does not end\n{}", self.keep_logs());
        }
    }

    /// Copies the logs to a folder that is kept, and returns where they are.
    fn keep_logs(&self) -> String {
        let kept = std::env::temp_dir().join(format!("holdfast-torture-failed-{}", self.plan.seed));
        std::fs::create_dir_all(&kept).ok();
        for process in &self.processes {
            let name = process.log.file_name().unwrap_or_default();
            std::fs::copy(&process.log, kept.join(name)).ok();
        }
        format!("seed {}; logs are in {}", self.plan.seed, kept.display())
    }
}

/// Has restic check a repository, with all data. An unused blob is no error, nor is a lock that was left behind.
async fn check_repository(folder: &Path) {
    let mut restic = tokio::process::Command::new("restic");
    restic.args(["--no-cache", "--no-lock", "--repo"]).arg(folder).args(["check", "--read-data"]);
    let checked = restic.env("RESTIC_PASSWORD", PASSWORD).output().await.expect("restic is installed");
    let said = String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{}: {said}", folder.display());
}

/// Whether a run failed because the short timeouts of this test are too short for a busy machine.
fn is_slowness(run: &Value) -> bool {
    matches!(
        run["error_code"].as_str(),
        Some("worker_lost" | "database_away" | "timeout" | "connect" | "stalled" | "locked")
    )
}

fn collect(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            collect(&entry.path(), found);
        } else {
            found.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
}

/// A client that expects requests to fail.
#[derive(Clone)]
struct Caller {
    http: reqwest::Client,
    base: String,
    token: String,
}

impl Caller {
    /// Status and body; `None` when there was no response.
    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, serde_json::from_str(&answer.text().await.ok()?).unwrap_or(Value::Null)))
    }

    async fn until(&self, deadline: Instant, method: &str, path: &str, wanted: u16) -> Value {
        loop {
            match self.send(method, path, None).await {
                Some((status, body)) if status == wanted => return body,
                answer => assert!(Instant::now() < deadline, "{method} {path}: {answer:?}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn until_answered(&self, path: &str) -> Value {
        self.until(Instant::now() + Duration::from_secs(60), "GET", path, 200).await
    }
}

/// What the client wrote, according to the responses.
#[derive(Default)]
struct Written {
    acknowledged: usize,
    refused: usize,
    /// Responses that the faults do not explain.
    strange: Vec<String>,
    tags: Vec<String>,
    runs: i64,
    /// The possible descriptions of each task: first the last acknowledged one, then all those without a response,
    /// which may have been applied at any time.
    descriptions: BTreeMap<i64, Vec<String>>,
}

async fn write_all_the_time(client: Caller, tasks: Vec<i64>, stop: Arc<AtomicBool>) -> Written {
    let written = Arc::new(Mutex::new(Written::default()));
    let mut writers = Vec::new();
    for writer in 0..2_usize {
        let (client, tasks, stop, written) = (client.clone(), tasks.clone(), stop.clone(), written.clone());
        writers.push(tokio::spawn(async move {
            let mut number = 0_usize;
            while !stop.load(Ordering::SeqCst) {
                number += 1;
                let label = format!("w{writer}-{number}");
                let answer = client.send("POST", "/api/tags", Some(&json!({"label": label}))).await;
                let is_written = matches!(answer, Some((201, _)));
                // Each task has a single writer, so that the order of its writes is known.
                let task = tasks[(number * 2 + writer) % tasks.len()];
                let path = format!("/api/backup-tasks/{task}");
                let changed = client.send("PUT", &path, Some(&json!({"description": label}))).await;
                let ran = if number.is_multiple_of(7) {
                    client.send("POST", &format!("{path}/run"), None).await
                } else {
                    None
                };
                let mut written = written.lock().await;
                if is_written {
                    written.tags.push(label.clone());
                }
                let values = written.descriptions.entry(task).or_insert_with(|| vec![String::new()]);
                if matches!(changed, Some((200, _))) {
                    values[0] = label;
                } else {
                    values.push(label);
                }
                written.runs += i64::from(matches!(ran, Some((202, _))));
                for (good, answer) in [(201, &answer), (200, &changed)] {
                    match answer {
                        Some((status, _)) if *status == good => written.acknowledged += 1,
                        // Unavailable, or no response; nothing else is acceptable.
                        Some((503, _)) | None => written.refused += 1,
                        Some((status, body)) => written.strange.push(format!("{status} {body}")),
                    }
                }
                drop(written);
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
        }));
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    Arc::into_inner(written).expect("the writers have ended").into_inner()
}
