//! Private servers for tests: started on loopback in a temporary folder, and stopped with the test process.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The environment variable that marks the processes of a server: `sshd` passes it to the commands that it runs.
pub const MARK: &str = "HOLDFAST_TEST_SERVICE";

const START_LIMIT: Duration = Duration::from_secs(60);

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    listener.local_addr().expect("a bound address").port()
}

/// The signal that stops a server.
#[derive(Clone, Copy)]
pub enum StopSignal {
    /// PostgreSQL's fast shutdown, which does not wait for its clients.
    Interrupt,
    /// For servers that keep SIGINT ignored, which background jobs of a shell inherit (`sshd`, `mariadbd`). Also ends
    /// the sessions, and every process with the mark.
    Terminate,
}

/// A server under a keeper: a small shell script that stops it and removes its folder as soon as the pipe from the
/// tests closes, also when the tests are killed.
pub struct Service {
    keeper: Child,
    folder: PathBuf,
}

impl Service {
    /// Runs `command` in `folder` as the given user; takes ownership of both.
    pub fn start(folder: &Path, user: Option<(u32, u32)>, command: &[&str]) -> Self {
        Self::start_ended_by(StopSignal::Interrupt, folder, user, command)
    }

    pub fn start_ended_by(ending: StopSignal, folder: &Path, user: Option<(u32, u32)>, command: &[&str]) -> Self {
        // The sessions are looked up before the server stops: afterwards they would have another parent.
        const KEEP: &str = r#"
            signal=$1; folder=$2; shift 2
            "$@" >>"$folder/log" 2>&1 &
            server=$!
            echo "$server" >"$folder/pid.new" && mv "$folder/pid.new" "$folder/pid"
            read -r word
            sessions=
            if [ "$signal" = TERM ]; then
                for status in $(grep -ls "^PPid:[[:space:]]*$server\$" /proc/[0-9]*/status); do
                    status=${status%/status}; sessions="$sessions ${status#/proc/}"
                done
            fi
            kill "-$signal" "$server" $sessions 2>/dev/null
            wait "$server"
            if [ "$signal" = TERM ]; then
                for environ in $(grep -lszxF "HOLDFAST_TEST_SERVICE=$folder" /proc/[0-9]*/environ); do
                    environ=${environ%/environ}; kill -KILL "${environ#/proc/}" 2>/dev/null
                done
            fi
            rm -f "$folder/pid"
            [ "$word" = keep ] || rm -rf "$folder"
        "#;
        let signal = match ending {
            StopSignal::Interrupt => "INT",
            StopSignal::Terminate => "TERM",
        };
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEP, "keeper", signal]).arg(folder).args(command).current_dir(folder);
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = user {
            keeper.uid(uid).gid(gid);
        }
        // In its own process group: Ctrl-C must not kill the keeper, which cleans up when the pipe closes.
        keeper.process_group(0);
        Self { keeper: keeper.spawn().expect("sh is installed"), folder: folder.to_owned() }
    }

    /// Stops the server, and keeps its folder for another start.
    pub fn stop_keeping_folder(mut self) {
        let mut pipe = self.keeper.stdin.take().expect("the pipe is open until the end");
        pipe.write_all(b"keep\n").expect("the keeper reads");
        // Dropping waits for the keeper.
    }

    /// Waits until something listens on a loopback port.
    pub fn wait_for_port(&mut self, port: u16, log: &Path) {
        let shown = || std::fs::read_to_string(log).unwrap_or_default();
        assert!(self.listens(port), "the server did not start:\n{}", shown());
    }

    /// The same; returns false when the server exits first or takes too long.
    pub fn listens(&mut self, port: u16) -> bool {
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if !self.is_running() || Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Waits until the log contains the text after byte `from`; returns false when the server exits first.
    pub fn wait_for_log(&mut self, from: usize, text: &str) -> bool {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            // Checked before the log is read, so that the last line is not missed.
            let running = self.is_running();
            let log = self.log();
            if log.get(from..).is_some_and(|log| log.contains(text)) {
                return true;
            }
            if !running {
                return false;
            }
            assert!(Instant::now() < deadline, "the server did not start:\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn log(&self) -> String {
        let log = std::fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The keeper outlives the server, so this checks the server itself.
    fn is_running(&mut self) -> bool {
        if self.keeper.try_wait().expect("the keeper can be asked").is_some() {
            return false;
        }
        let Ok(pid) = std::fs::read_to_string(self.folder.join("pid")) else {
            return true;
        };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        if let Err(error) = self.keeper.wait() {
            eprintln!("a test server did not stop: {error}");
        }
    }
}
