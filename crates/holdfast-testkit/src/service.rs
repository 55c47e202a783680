//! Private servers for tests: started on loopback in a temporary folder, and ended with the process that started them.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The variable that marks what a server started: `sshd` hands it to the commands it runs, wherever they end up.
pub const MARK: &str = "HOLDFAST_TEST_SERVICE";

const START_LIMIT: Duration = Duration::from_secs(60);

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    listener.local_addr().expect("a bound address").port()
}

/// How a server is asked to end.
#[derive(Clone, Copy)]
pub enum StopSignal {
    /// PostgreSQL's fast shutdown, which does not wait for its clients.
    Interrupt,
    /// For those that leave SIGINT ignored, as a shell's background job inherits it (`sshd`, `mariadbd`); also ends
    /// the sessions, and every process that carries the mark.
    Terminate,
}

/// A server under a small shell that ends it, and removes its folder, as soon as our end of the pipe closes: also when
/// the tests are killed.
pub struct Service {
    keeper: Child,
    folder: PathBuf,
}

impl Service {
    /// Runs `command` in `folder` as the given user, and owns both from here on.
    pub fn start(folder: &Path, user: Option<(u32, u32)>, command: &[&str]) -> Self {
        Self::start_ended_by(StopSignal::Interrupt, folder, user, command)
    }

    pub fn start_ended_by(ending: StopSignal, folder: &Path, user: Option<(u32, u32)>, command: &[&str]) -> Self {
        // The sessions are looked up before the server ends: after it they would have another parent.
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
        // Out of our process group: Ctrl-C must reach the keeper's cleanup through the pipe alone.
        keeper.process_group(0);
        Self { keeper: keeper.spawn().expect("sh is installed"), folder: folder.to_owned() }
    }

    /// Ends the server, and leaves its folder for another start.
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

    /// The same; false when the server ended before, or takes too long.
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

    /// Waits until the log, from byte `from` on, has the given text; false when the server ended before.
    pub fn wait_for_log(&mut self, from: usize, text: &str) -> bool {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            // Asked before the log is read, so that a last line is not missed.
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

    /// The keeper lives on when its server does not, so the server itself is looked at.
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
            eprintln!("a test server did not end: {error}");
        }
    }
}
