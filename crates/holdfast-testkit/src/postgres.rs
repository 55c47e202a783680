//! A private PostgreSQL server: one per test process, with one database per test.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::service::{Service, free_port};

pub struct PostgresServer {
    port: u16,
    folder: PathBuf,
    command: Vec<String>,
    user: Option<(u32, u32)>,
    /// `None` while it is stopped.
    service: Option<Service>,
}

impl PostgresServer {
    /// The server that all tests of this process share. It stops when the process exits.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<PostgresServer> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(false))
    }

    /// With `durable`, `fsync` is on as in production; most tests do not need that.
    pub fn start(durable: bool) -> Self {
        Self::create(durable, &[])
    }

    /// Its data has checksums, so that it notices damaged pages.
    pub fn start_with_checksums() -> Self {
        Self::create(false, &["--data-checksums"])
    }

    fn create(durable: bool, options: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("holdfast-pg-").tempdir().expect("a temporary folder").keep();
        let bin = find_bin();
        let user = unprivileged_user();
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&folder, Some(uid), Some(gid)).expect("root can give folders away");
        }
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).expect("our own folder");
        let data = folder.join("data");
        let mut initdb = Command::new(bin.join("initdb"));
        initdb.args(["--no-sync", "--auth=trust", "--username=holdfast", "--encoding=UTF8", "--no-locale", "-D"]);
        initdb.arg(&data).args(options).current_dir(&folder);
        if let Some((uid, gid)) = user {
            initdb.uid(uid).gid(gid);
        }
        let made = initdb.output().expect("initdb can be run");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let port = free_port();
        let text = |path: &Path| path.display().to_string();
        let fsync = if durable { "fsync=on" } else { "fsync=off" };
        let mut command = vec![text(&bin.join("postgres")), "-D".into(), text(&data), "-k".into(), text(&folder)];
        command.extend(["-p", &port.to_string(), "-h", "127.0.0.1", "-c", "max_connections=300"].map(str::to_owned));
        command.extend(["-c", fsync].map(str::to_owned));
        let mut server = Self { port, folder, command, user, service: None };
        server.start_again();
        server
    }

    /// Shuts the server down and closes the connections of its clients, as an administrator would.
    pub fn stop(&mut self) {
        if let Some(service) = self.service.take() {
            service.stop_keeping_folder();
        }
    }

    pub fn start_again(&mut self) {
        let command: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let mut service = Service::start(&self.folder, self.user, &command);
        service.wait_for_port(self.port, &self.folder.join("log"));
        // The port opens a moment before the server accepts connections.
        let port = self.port.to_string();
        let deadline = Instant::now() + Duration::from_secs(60);
        let is_ready = || {
            let mut asking = Command::new(find_bin().join("pg_isready"));
            asking.args(["--quiet", "--host=127.0.0.1", "--port", &port]).status().is_ok_and(|status| status.success())
        };
        while !is_ready() {
            assert!(Instant::now() < deadline, "PostgreSQL does not accept connections");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.service = Some(service);
    }

    /// Stops the server and the processes of its connections until the result is dropped: whoever connects gets no
    /// answer.
    pub fn pause(&self) -> PausedPostgres {
        let main = std::fs::read_to_string(self.folder.join("pid")).expect("it is running");
        let main = main.trim().to_owned();
        signal("STOP", std::slice::from_ref(&main));
        // It cannot start further ones now.
        let children = std::fs::read_to_string(format!("/proc/{main}/task/{main}/children")).expect("Linux");
        let mut processes = vec![main];
        processes.extend(children.split_whitespace().map(str::to_owned));
        signal("STOP", &processes);
        PausedPostgres(processes)
    }

    /// The folder with its data, while it is stopped.
    pub fn data_folder(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Makes the user of the server the owner of a folder.
    pub fn give(&self, folder: &Path) {
        if let Some((uid, gid)) = self.user {
            std::os::unix::fs::chown(folder, Some(uid), Some(gid)).expect("root can give folders away");
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://holdfast@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates an empty database and returns its URL.
    pub async fn create_database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::SeqCst));
        let mut connection = PgConnection::connect(&self.url("postgres")).await.expect("PostgreSQL answers");
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
        connection.execute(create).await.expect("a new database");
        self.url(&name)
    }
}

/// The processes of a paused server, which continue when it is dropped.
pub struct PausedPostgres(Vec<String>);

impl Drop for PausedPostgres {
    fn drop(&mut self) {
        // Errors are ignored: this may be the end of a test that failed.
        Command::new("kill").arg("-CONT").args(&self.0).status().ok();
    }
}

fn signal(name: &str, processes: &[String]) {
    let sent = Command::new("kill").arg(format!("-{name}")).args(processes).status();
    assert!(sent.is_ok_and(|status| status.success()), "a process of PostgreSQL is gone");
}

/// The binaries of the newest installed PostgreSQL; Debian keeps them off the path.
fn find_bin() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut bins: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    bins.retain(|bin| bin.join("postgres").exists());
    bins.sort();
    bins.pop().expect("PostgreSQL is installed; `cargo xtask test` does that")
}

/// PostgreSQL refuses to run as root, so tests that do run as root start it as its own user.
fn unprivileged_user() -> Option<(u32, u32)> {
    let own = std::fs::metadata("/proc/self").expect("Linux").uid();
    if own != 0 {
        return None;
    }
    let users = std::fs::read_to_string(Path::new("/etc/passwd")).expect("a user list");
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let mut fields = line.expect("the postgresql package made its user").split(':').skip(2);
    let mut number = || fields.next().and_then(|text| text.parse().ok()).expect("numbers in /etc/passwd");
    Some((number(), number()))
}
