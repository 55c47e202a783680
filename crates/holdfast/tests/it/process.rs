use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdfast_testkit::{Client, Engine, PostgresServer, free_port};
use tempfile::TempDir;

/// A data folder, and how to run the binary on it.
pub struct Installation {
    pub folder: TempDir,
    pub database_url: Option<String>,
}

impl Installation {
    pub async fn new(engine: Engine) -> Self {
        let database_url = match engine {
            Engine::Sqlite => None,
            Engine::Postgres => Some(PostgresServer::shared().create_database().await),
        };
        Self { folder: tempfile::tempdir().unwrap(), database_url }
    }

    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The binary, without the environment of the tests.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments).env_clear().env("HOLDFAST_DATA_DIR", self.data_dir());
        if let Some(url) = &self.database_url {
            command.env("HOLDFAST_DATABASE_URL", url);
        }
        command
    }

    pub fn run(&self, arguments: &[&str], input: &str) -> Output {
        run(&mut self.command(arguments), input)
    }

    /// Runs a command, which must succeed, and returns its output.
    #[track_caller]
    pub fn succeed(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub fn serve(&self, environment: &[(&str, &str)]) -> Service {
        Service::start(self, environment)
    }
}

pub fn run(command: &mut Command, input: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// A running `holdfast serve`; killed when dropped.
pub struct Service {
    child: Child,
    pub base_url: String,
    pub greeting: String,
    /// Its standard error so far.
    pub log: Arc<Mutex<String>>,
}

/// Starts the service with this home folder and no settings except the port.
pub fn start_in(home: &Path, port: u16) -> Service {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.env_clear().env("HOME", home);
    Service::launch(&mut command, port)
}

impl Service {
    fn start(installation: &Installation, environment: &[(&str, &str)]) -> Self {
        let mut command = installation.command(&["serve"]);
        Self::launch(command.envs(environment.iter().copied()), free_port())
    }

    pub fn launch(command: &mut Command, port: u16) -> Self {
        let address = format!("127.0.0.1:{port}");
        command.env("HOLDFAST_LISTEN", &address);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (copy, mut stderr) = (log.clone(), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                copy.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        let mut greeting = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        while !greeting.contains("Stop with Ctrl-C") {
            let count = stdout.read_line(&mut greeting).unwrap();
            assert!(count > 0, "the service ended: {}", log.lock().unwrap());
        }
        Self { child, base_url: format!("http://{address}"), greeting, log }
    }

    /// Starts the service with other places for its output, and waits until it answers.
    pub async fn start_with(installation: &Installation, log: &str, stdout: Stdio, stderr: Stdio) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = installation.command(&["serve"]);
        command.envs([("HOLDFAST_LISTEN", address.as_str()), ("HOLDFAST_LOG", log)]);
        let child = command.stdout(stdout).stderr(stderr).spawn().unwrap();
        let base_url = format!("http://{address}");
        let mut service = Self { child, base_url, greeting: String::new(), log: Arc::default() };
        while tokio::net::TcpStream::connect(&address).await.is_err() {
            assert_eq!(service.child.try_wait().unwrap(), None, "the service ended");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        service
    }

    pub fn client(&self) -> Client {
        Client::new(&self.base_url, None)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until it exits and returns its exit code; `None` when a signal ended it.
    pub fn wait(mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(40);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it did not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Errors are ignored: it may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Every byte below a folder.
pub fn all_bytes(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            bytes.extend(all_bytes(&entry.path()));
        } else {
            bytes.extend(std::fs::read(entry.path()).unwrap());
        }
    }
    bytes
}
