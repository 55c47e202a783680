//! Private servers for tests: started on loopback in a temporary folder, and ended with the process that started them.

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    listener.local_addr().expect("a bound address").port()
}

/// A server under a small shell that ends it, and removes its folder, as soon as our end of the pipe closes: also when
/// the tests are killed.
pub struct Service {
    keeper: Child,
}

impl Service {
    /// Runs `command` in `folder` as the given user, and owns both from here on.
    pub fn start(folder: &Path, user: Option<(u32, u32)>, command: &[&str]) -> Self {
        const KEEP: &str = r#"
            folder=$1; shift
            "$@" >"$folder/log" 2>&1 &
            server=$!
            read -r _ignored
            kill -INT "$server" 2>/dev/null
            wait "$server"
            rm -rf "$folder"
        "#;
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEP, "keeper"]).arg(folder).args(command).current_dir(folder);
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = user {
            keeper.uid(uid).gid(gid);
        }
        // Out of our process group: Ctrl-C must reach the keeper's cleanup through the pipe alone.
        keeper.process_group(0);
        Self { keeper: keeper.spawn().expect("sh is installed") }
    }

    /// Waits until something listens on a loopback port.
    pub fn wait_for_port(&mut self, port: u16, log: &Path) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = self.keeper.try_wait().expect("the keeper can be asked");
            let shown = || std::fs::read_to_string(log).unwrap_or_default();
            assert!(ended.is_none() && Instant::now() < deadline, "the server did not start:\n{}", shown());
            std::thread::sleep(Duration::from_millis(20));
        }
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
