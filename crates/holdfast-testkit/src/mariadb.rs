//! A private MariaDB server: one per test process, with one database per test.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::service::{Service, StopSignal, free_port};

pub struct MariaDbServer {
    port: u16,
    socket: PathBuf,
    /// Stops the server when dropped.
    _service: Service,
}

impl MariaDbServer {
    /// The server that all tests of this process share. It stops when the process exits.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<MariaDbServer> = OnceLock::new();
        SERVER.get_or_init(Self::start)
    }

    /// Without durable writes, which tests do not need. `root` has no password.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server that reports a version of MySQL, which can prepare fewer kinds of statements.
    pub fn like_mysql() -> Self {
        Self::start_with(&["--version=8.0.36"])
    }

    /// A server that ignores case in names.
    pub fn folding_names() -> Self {
        Self::start_with(&["--lower-case-table-names=1"])
    }

    fn start_with(options: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("holdfast-my-").tempdir().expect("a temporary folder").keep();
        let user = unprivileged_user();
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&folder, Some(uid), Some(gid)).expect("root can give folders away");
        }
        // Accessible to all, as the socket's folder usually is: the tests may run as a different user than the server.
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("our own folder");
        let data = folder.join("data").display().to_string();
        let mut install = Command::new("mariadb-install-db");
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.args(["--skip-name-resolve", "--innodb-log-file-size=8M", "--innodb-flush-method=nosync"]);
        // Its own temporary folder: the server's user may have no access to ours.
        let said_temporary = format!("--tmpdir={}", folder.display());
        install.arg(format!("--datadir={data}")).arg(&said_temporary).current_dir(&folder);
        if let Some((uid, gid)) = user {
            install.uid(uid).gid(gid);
        }
        let made = install.output().expect("mariadb-install-db can be run; `cargo xtask test` installs it");
        assert!(made.status.success(), "mariadb-install-db: {}", String::from_utf8_lossy(&made.stderr));
        let socket = folder.join("socket");
        let (server, said_socket) = (find_server(), format!("--socket={}", socket.display()));
        let (said_data, pid_file) = (format!("--datadir={data}"), format!("--pid-file={data}/pid"));
        // Another process can take the port before the server binds it.
        for _ in 0..10 {
            let port = free_port();
            let said_port = format!("--port={port}");
            let mut command = vec![server.as_str(), "--no-defaults", &said_data, &said_socket, &pid_file, &said_port];
            command.extend(["--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=300"]);
            command.extend(["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--skip-log-bin"]);
            command.extend(["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--innodb-doublewrite=OFF"]);
            command.extend(["--performance-schema=OFF", "--innodb-fast-shutdown=2", &said_temporary]);
            command.extend(options);
            let from = std::fs::read_to_string(folder.join("log")).map_or(0, |log| log.len());
            let mut service = Service::start_ended_by(StopSignal::Terminate, &folder, user, &command);
            if service.wait_for_log(from, "ready for connections") {
                let server = Self { port, socket, _service: service };
                // An anonymous user at `localhost` would take precedence over a named user at `%`.
                server.sql("mysql", "DELETE FROM global_priv WHERE user = ''; FLUSH PRIVILEGES;");
                return server;
            }
            let said = service.log();
            assert!(said[from..].contains("Address already in use"), "MariaDB did not start:\n{}", &said[from..]);
            service.stop_keeping_folder();
        }
        panic!("no free port for MariaDB");
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs statements as `root`; returns the rows, with tabs between columns and no headings.
    pub fn sql(&self, database: &str, text: &str) -> String {
        let said = self.statements("root", database, ";", text.as_bytes());
        String::from_utf8(said).expect("the server sends UTF-8")
    }

    /// Runs statements, separated by the delimiter, as a user without a password. They may contain any bytes.
    pub fn statements(&self, user: &str, database: &str, delimiter: &str, text: &[u8]) -> Vec<u8> {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--batch", "--skip-column-names", "--default-character-set=utf8mb4"]);
        client.args(["--comments", "--binary-mode"]).arg(format!("--delimiter={delimiter}"));
        client.arg(format!("--user={user}")).arg(format!("--socket={}", self.socket.display())).arg(database);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = client.spawn().expect("the mariadb client can be run");
        let mut input = client.stdin.take().expect("a pipe");
        let text = text.to_owned();
        // On its own thread: with long input and long output, both processes would block.
        let writer = std::thread::spawn(move || input.write_all(&text));
        let done = client.wait_with_output().expect("the client ends");
        assert!(done.status.success(), "mariadb: {}", String::from_utf8_lossy(&done.stderr));
        writer.join().expect("no panic").expect("the client read all statements");
        done.stdout
    }

    /// Creates an empty database and returns its name.
    pub fn create_database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::SeqCst));
        self.sql("mysql", &format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"));
        name
    }

    /// Creates a user with all rights to one database, by socket and by TCP; `*` stands for all databases.
    pub fn create_user(&self, name: &str, password: &str, database: &str) {
        let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
        let (user, password) = (quoted(name), quoted(password));
        let database = if database == "*" { "*".to_owned() } else { format!("`{database}`") };
        self.sql(
            "mysql",
            &format!(
                "CREATE USER {user}@'%' IDENTIFIED BY {password}; \
                 GRANT ALL PRIVILEGES ON {database}.* TO {user}@'%' WITH GRANT OPTION;"
            ),
        );
    }
}

/// Debian keeps the server off the path of users other than root.
fn find_server() -> String {
    let places = ["/usr/sbin/mariadbd", "/usr/bin/mariadbd", "/usr/libexec/mariadbd"];
    let found = places.into_iter().find(|path| Path::new(path).exists());
    found.expect("MariaDB is installed; `cargo xtask test` does that").to_owned()
}

/// MariaDB refuses to run as root, so tests that do run as root start it as its own user.
fn unprivileged_user() -> Option<(u32, u32)> {
    let own = std::fs::metadata("/proc/self").expect("Linux").uid();
    if own != 0 {
        return None;
    }
    let users = std::fs::read_to_string(Path::new("/etc/passwd")).expect("a user list");
    let line = users.lines().find(|line| line.starts_with("mysql:"));
    let mut fields = line.expect("the mariadb-server package made its user").split(':').skip(2);
    let mut number = || fields.next().and_then(|text| text.parse().ok()).expect("numbers in /etc/passwd");
    Some((number(), number()))
}
