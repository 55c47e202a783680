//! The service against hostile servers. Real workers back up real OpenSSH servers whose `tar` and dump tools print
//! hostile streams; accepted backups are restored with the genuine tools. After each stream, nothing may have been
//! written outside the target or executed, every run must have ended, and memory must have stayed within its limit.

mod streams;

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdfast_core::rate::Quota;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use self::streams::{Aim, FILLER, FILLER_LENGTH, Kind, Stream, Tail};
use crate::{Engine, Fingerprint, Ignore, MariaDbServer, PostgresServer, Settings, SshServer, TestApp, TestUser};

/// The memory limit of the whole process, including this harness and its copies of the streams. An ordinary backup
/// needs only a part of it; an unbounded buffer would exceed it with an endless stream.
pub const MEMORY_BYTES: u64 = 512 * 1024 * 1024;
/// Every run must end within this time, also on a busy machine.
const LONGEST_RUN: Duration = Duration::from_secs(90);
/// How long an endless stream runs before its run is cancelled.
const ENDLESS_FOR: Duration = Duration::from_millis(1500);
/// A run fails after this long without data.
const STALL: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Stop after this many: more would add nothing new.
const MOST_FAILURES: usize = 20;
/// With at most this many streams, the output of their runs is shown.
const SHOWN_WHOLE: u64 = 5;
/// The content of a private file of the SSH user on the server where dumps are restored.
const SECRET: &str = "canary of the ssh user";
const TENANT_PASSWORD: &str = "tenant of hostile";
/// Files that would appear if absolute names from the generators were used unchanged.
const ABSOLUTE: &[&str] = &["/etc/x", "/x", "/evil", "/nowhere"];

pub struct Plan {
    pub seed: u64,
    /// The number of the first stream.
    pub first: u64,
    pub streams: u64,
    /// How many servers are backed up at the same time.
    pub at_once: usize,
    /// How many dumps of each kind are loaded into a real database.
    pub loaded: u64,
}

#[derive(Debug, Default, Clone)]
pub struct Counts {
    pub streams: u64,
    pub accepted: u64,
    pub restored: u64,
    /// Restores that were refused or failed.
    pub not_restored: u64,
    pub longest: Duration,
    /// For each outcome of runs: how many, and the number of the first stream.
    pub ends: BTreeMap<String, (u64, u64)>,
}

impl Counts {
    fn note_end(&mut self, end: &str, count: u64, number: u64) {
        let (counted, first) = self.ends.entry(end.to_owned()).or_insert((0, number));
        (*counted, *first) = (*counted + count, number.min(*first));
    }
}

#[derive(Debug, Default)]
pub struct Report {
    pub seed: u64,
    pub families: BTreeMap<&'static str, Counts>,
    pub failures: Vec<String>,
    pub peak_bytes: u64,
    pub took: Duration,
}

impl Report {
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        for counts in self.families.values() {
            total.streams += counts.streams;
            total.accepted += counts.accepted;
            total.restored += counts.restored;
            total.not_restored += counts.not_restored;
            total.longest = total.longest.max(counts.longest);
            for (end, (count, first)) in &counts.ends {
                total.note_end(end, *count, *first);
            }
        }
        total
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, counts: &Counts| {
            let Counts { streams, accepted, restored, not_restored, longest, .. } = counts;
            let (refused, seconds) = (streams - accepted, longest.as_secs_f64());
            writeln!(
                f,
                "{name:<20} {streams:>8} {accepted:>9} {refused:>8} {restored:>9} {not_restored:>13} {seconds:>9.1}"
            )
        };
        let heads = ["streams", "accepted", "refused", "restored", "not restored", "longest/s"];
        let [streams, accepted, refused, restored, not_restored, longest] = heads;
        writeln!(
            f,
            "{:<20} {streams:>8} {accepted:>9} {refused:>8} {restored:>9} {not_restored:>13} {longest:>9}",
            "family"
        )?;
        for (name, counts) in &self.families {
            line(f, name, counts)?;
        }
        let total = self.total();
        line(f, "all", &total)?;
        for (end, (count, first)) in &total.ends {
            writeln!(f, "{count:>8} {end}, first in stream {first}")?;
        }
        let (peak, limit) = (self.peak_bytes >> 20, MEMORY_BYTES >> 20);
        write!(f, "seed {}, {} s, at most {peak} MiB of {limit}", self.seed, self.took.as_secs())?;
        self.failures.iter().try_for_each(|failure| write!(f, "\nBROKEN: {failure}"))
    }
}

/// Sends the streams through a new service. `tell` is called with progress messages.
pub async fn run(plan: &Plan, tell: impl Fn(&str) + Send + Sync + 'static) -> Report {
    let started = Instant::now();
    let panics = Panics::watch();
    let bench = Arc::new(Bench::start(plan).await);
    let stop = CancellationToken::new();
    let worker = bench.app.worker();
    let stopped = stop.clone();
    let working = tokio::spawn(async move { worker.run(stopped).await });
    let clock = (bench.app.clock.clone(), stop.clone());
    let ticking = tokio::spawn(async move {
        let (clock, stop) = clock;
        while tokio::time::timeout(Duration::from_secs(1), stop.cancelled()).await.is_err() {
            clock.advance_secs(1);
        }
    });
    let books = Arc::new(Books {
        report: Mutex::default(),
        next: AtomicU64::new(plan.first),
        shows_runs: plan.streams <= SHOWN_WHOLE,
        tell: Box::new(tell),
    });
    let end = plan.first + plan.streams;
    let mut slots = Vec::new();
    for number in 0..plan.at_once {
        slots.push(Slot::start(&bench, number).await);
    }
    let seed = plan.seed;
    let slots: Vec<_> = slots
        .into_iter()
        .map(|mut slot| {
            let books = books.clone();
            tokio::spawn(async move {
                slot.work(seed, end, &books).await;
                slot
            })
        })
        .collect();
    // Kept until after the checks: stopping a server would also stop its programs.
    let mut done = Vec::new();
    for slot in slots {
        match slot.await {
            Ok(slot) => done.push(slot),
            Err(error) => books.fail(format!("the harness failed: {error}")),
        }
    }
    for failure in bench.look_around().await.into_iter().chain(panics.seen()) {
        books.fail(failure);
    }
    drop(done);
    stop.cancel();
    let ended = tokio::time::timeout(LONGEST_RUN, async { tokio::join!(working, ticking) }).await;
    if ended.is_err() {
        books.fail("the worker does not stop".to_owned());
    }
    let mut report = std::mem::take(&mut *books.report.lock().expect("nobody panics with it"));
    (report.seed, report.took, report.peak_bytes) = (plan.seed, started.elapsed(), peak_bytes());
    if report.peak_bytes > MEMORY_BYTES {
        report.failures.push(format!("the service used {} MiB", report.peak_bytes >> 20));
    }
    report
}

/// The peak memory use of this process.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|text| text.parse::<u64>().ok());
    kib.expect("a figure of the kernel") * 1024
}

/// The results so far, shared by all slots.
struct Books {
    report: Mutex<Report>,
    next: AtomicU64,
    shows_runs: bool,
    tell: Box<dyn Fn(&str) + Send + Sync>,
}

impl Books {
    fn fail(&self, failure: String) {
        (self.tell)(&format!("BROKEN: {failure}"));
        self.report.lock().expect("nobody panics with it").failures.push(failure);
    }

    fn is_over(&self) -> bool {
        self.report.lock().expect("nobody panics with it").failures.len() >= MOST_FAILURES
    }

    fn note(&self, family: &'static str, note: impl FnOnce(&mut Counts)) {
        note(self.report.lock().expect("nobody panics with it").families.entry(family).or_default());
    }

    fn show(&self, run: &Value) {
        if self.shows_runs {
            (self.tell)(run["output"].as_str().unwrap_or_default());
        }
    }

    /// Reports progress after every hundred streams.
    fn progress(&self, number: u64) {
        if number.is_multiple_of(100) && number > 0 {
            let total = self.report.lock().expect("nobody panics with it").total();
            let Counts { streams, accepted, restored, .. } = total;
            let peak = peak_bytes() >> 20;
            (self.tell)(&format!("{streams} streams, {accepted} accepted, {restored} restored, {peak} MiB"));
        }
    }
}

/// Records all panics in the process, including those that are caught.
struct Panics(Arc<Mutex<Vec<String>>>);

impl Panics {
    fn watch() -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (writer, before) = (seen.clone(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |info| {
            if let Ok(mut seen) = writer.lock() {
                seen.push(format!("a panic: {info}"));
            }
            before(info);
        }));
        Self(seen)
    }

    fn seen(&self) -> Vec<String> {
        self.0.lock().map(|mut seen| std::mem::take(&mut *seen)).unwrap_or_default()
    }
}

/// The service, and the databases that dumps are loaded into.
struct Bench {
    app: TestApp,
    user: TestUser,
    destination: i64,
    folder: TempDir,
    pg_dump: Vec<u8>,
    postgres: PostgresServer,
    mariadb: MariaDbServer,
    /// How many more dumps of each kind are to be loaded.
    left: BTreeMap<Kind, AtomicU64>,
    /// Restores of a whole PostgreSQL server run one at a time.
    whole_server: tokio::sync::Mutex<()>,
}

impl Bench {
    async fn start(plan: &Plan) -> Self {
        let mut settings = Settings::default();
        // The clock advances in whole seconds, so the rate limit needs a large burst.
        settings.limits.requests = Quota::per_second(1_000, 1_000_000);
        settings.engine.remote.stall = STALL;
        settings.engine.remote.finish = LONGEST_RUN / 3;
        settings.work.runs_at_once = plan.at_once;
        settings.work.at_once.per_user = plan.at_once;
        let app = TestApp::start_with(Engine::Sqlite, settings).await;
        let user = app.user("ada").await;
        let destination = user.destination().await;
        let folder = tempfile::Builder::new().prefix("hostile-").tempdir().expect("a temporary folder");
        open(folder.path(), 0o755);
        let postgres = tokio::task::spawn_blocking(|| {
            let postgres = PostgresServer::start(false);
            let dump = prepare_postgres(&postgres);
            (postgres, dump)
        });
        let mariadb = tokio::task::spawn_blocking(|| {
            let mariadb = MariaDbServer::start();
            prepare_mariadb(&mariadb);
            mariadb
        });
        let ((postgres, pg_dump), mariadb) = tokio::try_join!(postgres, mariadb).expect("both servers start");
        let shims = folder.path().join("bin");
        std::fs::create_dir(&shims).expect("our own folder");
        write_shims(&shims);
        let left = Kind::ALL.map(|kind| (kind, AtomicU64::new(plan.loaded))).into();
        let whole_server = tokio::sync::Mutex::new(());
        Self { app, user, destination, folder, pg_dump, postgres, mariadb, left, whole_server }
    }

    /// Checks what must hold after all streams.
    async fn look_around(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let asked = "SELECT count(*) FROM pg_roles WHERE rolname = 'evil' OR (rolname = 'tenant' AND rolsuper)";
        if psql(&self.postgres, "postgres", asked) != "0" {
            failures.push("a dump made itself a superuser of PostgreSQL".to_owned());
        }
        if self.mariadb.sql("shop", "SELECT a FROM canary").trim() != "untouched" {
            failures.push("a dump changed another database of MariaDB".to_owned());
        }
        for (list, status) in ["runs", "backup-task-logs"].iter().flat_map(|list| [(list, "queued"), (list, "running")])
        {
            let runs = self.user.client.get(&format!("/api/{list}?status={status}&per_page=100")).await.expect(200);
            let left = runs["data"].as_array().map_or(0, Vec::len);
            if left > 0 {
                failures.push(format!("{left} of /api/{list} are still {status}"));
            }
        }
        let mark = format!("HOSTILE={}/", self.folder.path().display()).into_bytes();
        let deadline = Instant::now() + LONGEST_RUN;
        while has_process(&mark) && Instant::now() < deadline {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        if has_process(&mark) {
            failures.push("programs on a server still run after their runs have ended".to_owned());
        }
        failures
    }
}

/// Whether any process has an environment variable that starts with this text.
fn has_process(mark: &[u8]) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut variables = processes.filter_map(|process| std::fs::read(process.path().join("environ")).ok());
    variables.any(|variables| variables.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark)))
}

fn open(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("our own file");
}

fn psql(postgres: &PostgresServer, database: &str, sql: &str) -> String {
    let mut command = Command::new("psql");
    command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &postgres.url(database), "-c", sql]);
    let output = command.output().expect("psql can be run");
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Creates a role that may only create databases, and returns a genuine dump with room for a payload.
fn prepare_postgres(postgres: &PostgresServer) -> Vec<u8> {
    wait_until(|| {
        let asked = Command::new("psql").args(["-XAtq", "-d", &postgres.url("postgres"), "-c", "SELECT 1"]).output();
        asked.is_ok_and(|asked| asked.status.success())
    });
    psql(postgres, "postgres", "CREATE ROLE tenant LOGIN CREATEDB");
    psql(postgres, "postgres", "CREATE DATABASE shop");
    // The statement has the length of the filler, including the quote and the semicolon at its end.
    let comment = "x".repeat(FILLER_LENGTH - FILLER.len() - 2);
    psql(
        postgres,
        "shop",
        &format!("CREATE TABLE t (a text); INSERT INTO t VALUES ('x'); COMMENT ON TABLE t IS '{comment}'"),
    );
    let mut command = Command::new("pg_dump");
    command.args(["--format=custom", "--compress=0", "--no-password", "-d", &postgres.url("shop")]);
    let dump = command.output().expect("pg_dump can be run");
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    dump.stdout
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONGEST_RUN;
    while !is_so() {
        assert!(Instant::now() < deadline, "it did not happen");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Enables `local_infile` on the server, so that only the client prevents it.
fn prepare_mariadb(mariadb: &MariaDbServer) {
    mariadb.sql(
        "mysql",
        &format!(
            "SET GLOBAL local_infile = ON; CREATE DATABASE shop; CREATE TABLE shop.canary (a text); \
             INSERT INTO shop.canary VALUES ('untouched'); CREATE USER tenant@'%' IDENTIFIED BY '{TENANT_PASSWORD}'; \
             GRANT ALL ON `restored\\_%`.* TO tenant@'%';"
        ),
    );
}

/// Whether a table contains the content of the private file of the SSH user.
fn has_secret(mariadb: &MariaDbServer, database: &str, table: &str) -> bool {
    let column = format!(
        "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = '{database}' AND table_name = '{table}' \
         AND column_name = 'a'"
    );
    let rows = format!("SELECT COUNT(*) FROM {database}.{table} WHERE a LIKE '%{SECRET}%'");
    mariadb.sql("mysql", &column).trim() == "1" && mariadb.sql("mysql", &rows).trim() != "0"
}

/// Programs of a hostile server: they play the files in the folder given by `HOSTILE` in their environment.
fn write_shims(folder: &Path) {
    const PLAY: &str = r#"
cat "$HOSTILE/stream"
case $(cat "$HOSTILE/tail") in
endless) while cat "$HOSTILE/again"; do :; done ;;
drip) while sleep 1; do printf x || exit; done ;;
silent) exec sleep 600 ;;
shout) while echo "tar: this is no end of words" >&2; do :; done ;;
killed) kill -9 $$ ;;
fail) echo "tar: ./x: Cannot open: Permission denied" >&2; exit 2 ;;
esac
"#;
    let tar = format!("case $1 in --version) exec /usr/bin/tar --version;; esac\n{PLAY}");
    let dump = format!("case $2 in --help) exit 0;; esac\n{PLAY}");
    let client = r#"
if [ -e "$HOSTILE/answer" ]; then
  case "$*" in *has_table_privilege*) echo t ;; *) cat "$HOSTILE/answer" ;; esac
  exit 0
fi
"#;
    let psql = format!("{client}exec /usr/bin/psql \"$@\"\n");
    let scripts = [
        ("tar", tar.as_str()),
        ("pg_dump", &dump),
        ("pg_dumpall", &dump),
        ("mysqldump", &dump),
        ("mariadb-dump", &dump),
        ("psql", &psql),
        ("mysql", client),
        ("mariadb", client),
    ];
    for (name, script) in scripts {
        std::fs::write(folder.join(name), format!("#!/bin/sh\n{script}")).expect("our own folder");
        open(&folder.join(name), 0o755);
    }
}

/// A hostile server, an honest one, and the files that must not change.
struct Slot {
    bench: Arc<Bench>,
    folder: PathBuf,
    aim: Aim,
    tasks: BTreeMap<Kind, i64>,
    /// The honest server, with a database account that has few rights.
    tenant: i64,
    /// The same server with a superuser, which restores of a whole PostgreSQL server need.
    superuser: i64,
    before: Fingerprint,
    _servers: [SshServer; 2],
}

impl Slot {
    async fn start(bench: &Arc<Bench>, number: usize) -> Self {
        let folder = bench.folder.path().join(format!("slot-{number}"));
        let world = folder.join("world");
        for path in ["hostile/home", "source", "targets", "markers", "world/outside", "world/home/.ssh"] {
            std::fs::create_dir_all(folder.join(path)).expect("our own folder");
        }
        let markers = folder.join("markers");
        // Database servers may run as other users; a payload that runs there must be detected, too.
        open(&folder, 0o755);
        open(&markers, 0o777);
        let marker = format!("{}/sourced", markers.display());
        let mysql = format!("[client]\nsocket={}\n", bench.mariadb.socket().display());
        let files = [
            ("hostile/home/.bashrc", "[ ! -e \"$HOSTILE/greeting\" ] || cat \"$HOSTILE/greeting\"\n".to_owned()),
            ("world/outside/canary", "untouched\n".to_owned()),
            ("world/outside/evil.sql", format!("system touch {marker}\n\\! touch {marker}\n")),
            ("world/home/.ssh/authorized_keys", "nobody\n".to_owned()),
            ("world/home/.ssh/secret", format!("{SECRET}\n")),
            ("world/home/.bashrc", String::new()),
            ("world/home/.my.cnf", mysql),
        ];
        for (name, text) in files {
            std::fs::write(folder.join(name), text).expect("our own folder");
        }
        let hostile = folder.join("hostile").display().to_string();
        let port = bench.postgres.port().to_string();
        let builder = |home: PathBuf| {
            let home = home.display().to_string();
            SshServer::builder().set_env("HOME", &home).set_env("PGHOST", "127.0.0.1").set_env("PGPORT", &port)
        };
        let liar = builder(folder.join("hostile/home")).with_path_shims(&bench.folder.path().join("bin"));
        let liar = liar.set_env("HOSTILE", &hostile).start();
        let honest = builder(world.join("home")).start();
        let client = &bench.user.client;
        let key = client.get("/api/ssh-key").await.data(200);
        let mut servers = Vec::new();
        for (ssh, user) in [(&liar, "holdfast"), (&honest, "tenant"), (&honest, "holdfast")] {
            ssh.authorize(key["public_key"].as_str().expect("a key"));
            let body = json!({
                "label": "web", "ip_address": "127.0.0.1", "port": ssh.port(), "username": ssh.username(),
                "database_username": user, "database_password": TENANT_PASSWORD,
            });
            servers.push(client.post("/api/remote-servers", body).await.id(201));
        }
        let mut tasks = BTreeMap::new();
        for kind in Kind::ALL {
            let body = task_body(kind, servers[0], bench.destination, &folder.join("source"));
            tasks.insert(kind, client.post("/api/backup-tasks", body).await.id(201));
        }
        let (pg_dump, markers) = (bench.pg_dump.clone(), markers.display().to_string());
        let aim = Aim { world: world.display().to_string(), markers, pg_dump };
        let before = Fingerprint::of(&world);
        let (tenant, superuser) = (servers[1], servers[2]);
        Self { bench: bench.clone(), folder, aim, tasks, tenant, superuser, before, _servers: [liar, honest] }
    }

    async fn work(&mut self, seed: u64, end: u64, books: &Books) {
        loop {
            let number = books.next.fetch_add(1, Ordering::SeqCst);
            if number >= end || books.is_over() {
                return;
            }
            let (family, stream) = streams::make(seed, number, &self.aim);
            let (name, kind) = (family.name, family.kind);
            let pushed = self.push(name, kind, number, &stream, books).await;
            let mut broken: Vec<String> = pushed.err().into_iter().collect();
            broken.extend(self.look_around());
            for rule in broken {
                books.fail(format!("seed {seed}, stream {number} ({name}): {rule}"));
            }
            books.progress(number);
        }
    }

    /// Backs up one stream, and restores it if it was accepted. An error means that a rule was broken.
    async fn push(
        &self,
        name: &'static str,
        kind: Kind,
        number: u64,
        stream: &Stream,
        books: &Books,
    ) -> Result<(), String> {
        self.lay_out(stream);
        books.note(name, |counts| counts.streams += 1);
        let client = &self.bench.user.client;
        let task = self.tasks[&kind];
        let started = Instant::now();
        client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        let is_endless = stream.tail == Tail::Endless;
        let path = format!("/api/backup-tasks/{task}/latest-log");
        let cancel = is_endless.then(|| format!("/api/backup-tasks/{task}/cancel"));
        let log = self.ended(&path, cancel.as_deref(), started).await?;
        let end = how(&log)?;
        books.note(name, |counts| {
            counts.longest = counts.longest.max(started.elapsed());
            counts.note_end(&end, 1, number);
        });
        books.show(&log);
        if end != "successful" {
            return Ok(());
        }
        if is_endless {
            return Err("an endless stream was accepted as a backup".to_owned());
        }
        books.note(name, |counts| counts.accepted += 1);
        let backups = client.get(&format!("/api/backups?per_page=100&backup_task_id={task}")).await.expect(200);
        let own = backups["data"].as_array().and_then(|all| all.iter().find(|backup| backup["run_id"] == log["id"]));
        let own = own.ok_or_else(|| format!("run {} is successful but has no backup", log["id"]))?;
        let restored = self.restore(kind, number, own).await?;
        // Keeps the list short: retention is on hold when a backup looks suspicious next to earlier ones.
        let deleted = client.delete(&format!("/api/backups/{}", own["id"])).await;
        if deleted.status >= 300 {
            return Err(format!("the backup cannot be deleted: {}", deleted.text));
        }
        let Some(run) = restored else { return Ok(()) };
        let end = how(&run)?;
        books.show(&run);
        books.note(name, |counts| {
            counts.restored += u64::from(end == "successful");
            counts.not_restored += u64::from(end != "successful");
            counts.note_end(&format!("restore {end}"), 1, number);
        });
        Ok(())
    }

    fn lay_out(&self, stream: &Stream) {
        let folder = self.folder.join("hostile");
        let write = |name: &str, bytes: Option<&[u8]>| match bytes {
            Some(bytes) => std::fs::write(folder.join(name), bytes).expect("our own folder"),
            None => {
                let _absent = std::fs::remove_file(folder.join(name));
            }
        };
        write("stream", Some(&stream.bytes));
        write("tail", Some(stream.tail.word().as_bytes()));
        write("again", (!stream.again.is_empty()).then_some(&stream.again));
        write("answer", stream.answer.as_deref());
        write("greeting", (!stream.greeting.is_empty()).then_some(&stream.greeting));
    }

    /// Waits until a run ends; `cancel` is the path that cancels an endless one.
    async fn ended(&self, path: &str, cancel: Option<&str>, started: Instant) -> Result<Value, String> {
        let client = &self.bench.user.client;
        let mut cancel = cancel;
        loop {
            let run = client.get(path).await.data(200);
            if run["finished_at"].is_string() {
                return Ok(run);
            }
            if let Some(path) = cancel.take_if(|_| started.elapsed() > ENDLESS_FOR) {
                // Responds with 409 if the run has just ended.
                let _either = client.act(path).await;
            }
            if started.elapsed() > LONGEST_RUN {
                return Err(format!("a run does not end: {run}"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Restores with the genuine tools; returns `None` when enough dumps of this kind have been loaded.
    async fn restore(&self, kind: Kind, number: u64, backup: &Value) -> Result<Option<Value>, String> {
        let bench = &self.bench;
        let left = &bench.left[&kind];
        let take = |left: u64| left.checked_sub(1);
        if kind != Kind::Files && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
            return Ok(None);
        }
        let database = format!("restored_{number}");
        let target = self.folder.join("targets").join(number.to_string());
        let body = match kind {
            Kind::Files => json!({"remote_server_id": self.tenant, "path": target}),
            Kind::Postgres => {
                json!({"remote_server_id": self.tenant, "database_name": database, "no_owner": true})
            }
            Kind::Mysql => json!({"remote_server_id": self.tenant, "database_name": database}),
            Kind::PostgresServer => json!({"remote_server_id": self.superuser, "overwrite": true}),
            Kind::MysqlServer => json!({"remote_server_id": self.tenant, "overwrite": true}),
        };
        let _alone = match kind {
            Kind::PostgresServer => Some(bench.whole_server.lock().await),
            _ => None,
        };
        let started = Instant::now();
        let run = bench.user.client.post(&format!("/api/backups/{}/restores", backup["id"]), body).await.data(202);
        let run = self.ended(&format!("/api/runs/{}", run["id"]), None, started).await?;
        match kind {
            Kind::Files => look_into(&target)?,
            Kind::Postgres => {
                // A dump may declare its database a template, which cannot be dropped.
                let plain = format!("UPDATE pg_database SET datistemplate = false WHERE datname = '{database}'");
                psql(&bench.postgres, "postgres", &plain);
                psql(&bench.postgres, "postgres", &format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)"));
            }
            Kind::Mysql => {
                let has_loot = ["t", "loot"].iter().any(|table| has_secret(&bench.mariadb, &database, table));
                bench.mariadb.sql("mysql", &format!("DROP DATABASE IF EXISTS {database}"));
                if has_loot {
                    return Err("a dump read a private file".to_owned());
                }
            }
            Kind::PostgresServer | Kind::MysqlServer => {}
        }
        Ok(Some(run))
    }

    /// Checks that nothing was written or run where it must not. Violations are removed, so that each is reported once.
    fn look_around(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        let targets = self.folder.join("targets");
        let names = |folder: &Path| -> Vec<PathBuf> {
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        };
        for path in names(&targets) {
            let is_target = path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
            if !is_target {
                failures.push(format!("{} was written next to the target", path.display()));
            }
            remove(&path);
        }
        for path in names(&self.folder) {
            let is_ours = ["hostile", "source", "targets", "markers", "world"].iter().any(|name| path.ends_with(name));
            if !is_ours {
                failures.push(format!("{} was written outside the target", path.display()));
                remove(&path);
            }
        }
        let now = Fingerprint::of(Path::new(&self.aim.world));
        let changes = self.before.differences(&now, Ignore::default());
        if !changes.is_empty() {
            failures.push(format!("protected files changed: {}", changes.join("; ")));
            self.before = now;
        }
        for path in names(Path::new(&self.aim.markers)) {
            failures.push(format!("something ran or wrote {}", path.display()));
            remove(&path);
        }
        let absolute = ABSOLUTE.iter().filter(|path| std::fs::symlink_metadata(path).is_ok());
        failures.extend(absolute.map(|path| format!("{path} was written")));
        let peak = peak_bytes();
        if peak > MEMORY_BYTES {
            failures.push(format!("peak memory use reached {} MiB", peak >> 20));
        }
        failures
    }
}

fn task_body(kind: Kind, server: i64, destination: i64, source: &Path) -> Value {
    let mut body = json!({
        "remote_server_id": server, "backup_destination_id": destination, "label": "hostile", "frequency": "daily",
        "time_to_run_at": "03:00", "maximum_backups_to_keep": 5, "type": "database",
    });
    let more = match kind {
        Kind::Files => json!({"type": "files", "source_path": source}),
        Kind::Postgres => json!({"database_engine": "postgresql", "database_name": "shop"}),
        Kind::PostgresServer => json!({"database_engine": "postgresql"}),
        Kind::Mysql => json!({"database_engine": "mysql", "database_name": "shop"}),
        Kind::MysqlServer => json!({"database_engine": "mysql"}),
    };
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    body
}

/// `successful`, `cancelled` or the error code. An internal error is a broken rule.
fn how(run: &Value) -> Result<String, String> {
    let status = run["status"].as_str().unwrap_or_default();
    let code = run["error_code"].as_str();
    match (status, code) {
        ("successful" | "cancelled", _) => Ok(status.to_owned()),
        (_, Some(code)) if code != "internal" => Ok(code.to_owned()),
        _ => Err(format!("a run failed with an internal error: {run}")),
    }
}

/// Checks that there are no devices: they are restored only on request.
fn look_into(folder: &Path) -> Result<(), String> {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let kind = entry.file_type().map_err(|error| error.to_string())?;
        if kind.is_block_device() || kind.is_char_device() {
            return Err(format!("{} is a device, which was not requested", entry.path().display()));
        }
        if kind.is_dir() {
            look_into(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a file or a folder, also one without permissions.
fn remove(path: &Path) {
    let _either = std::fs::remove_file(path);
    let mut command = Command::new("sh");
    command.args(["-c", "chmod -R u+rwx -- \"$1\" && rm -rf -- \"$1\"", "sh"]).arg(path);
    if std::fs::symlink_metadata(path).is_ok() {
        let removed = std::fs::remove_dir_all(path).is_ok() || command.status().is_ok_and(|status| status.success());
        assert!(removed, "{} cannot be removed", path.display());
    }
}
