//! `cargo xtask bench slow-clients`: measures ordinary requests while other clients send and read very slowly.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::bench::{Running, free_port, wait_until_ready};
use crate::commands::{Result, cargo, root, step};

const PER_SECOND: u32 = 200;
/// Ordinary clients; each sends ten requests a second.
const THREADS: u32 = 20;
const GOAL_MS: f64 = 50.0;
/// A request that takes longer counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);
const EMAIL: &str = "bench@example.org";

pub fn run(arguments: &[&str]) -> Result<()> {
    let (mut clients, mut seconds, mut profile) = (1000, 20, "release");
    for pair in arguments.chunks(2) {
        let number = pair.get(1).and_then(|text| text.parse::<u32>().ok()).filter(|number| *number > 0);
        match (pair, number) {
            (["--clients", _], Some(number)) => clients = number as usize,
            (["--seconds", _], Some(number)) => seconds = number,
            (["--profile", name], _) => profile = name,
            _ => return Err("bench slow-clients takes --clients N, --seconds N and --profile NAME".to_owned()),
        }
    }
    let build = ["build", "--profile", profile, "--locked", "--package", "holdfast"];
    step("build the service", &mut cargo(&build))?;
    let binary = root().join("target").join(profile).join("holdfast");
    println!("| slow clients | requests | failed | p50 ms | p99 ms | max ms | goal |\n|---|---|---|---|---|---|---|");
    let mut is_met = true;
    for from in [From::Nowhere, From::Elsewhere, From::SameAddress] {
        is_met &= measure(&binary, from, clients, seconds)?;
    }
    if is_met { Ok(()) } else { Err(format!("the goal of {GOAL_MS} ms was missed")) }
}

/// The addresses of the slow clients, as seen by the service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// There are no slow clients.
    Nowhere,
    /// Addresses other than that of the ordinary clients, each within its connection limit.
    Elsewhere,
    /// The same address as the ordinary clients, as behind a NAT router.
    SameAddress,
}

fn measure(binary: &Path, from: From, clients: usize, seconds: u32) -> Result<bool> {
    let service = Service::start(binary)?;
    let ending = Arc::new(AtomicBool::new(false));
    let dripping = match from {
        From::Nowhere => None,
        From::Elsewhere | From::SameAddress => {
            let attack = Attack::new(&service, from, clients, ending.clone());
            let open = attack.open.clone();
            let dripping = std::thread::spawn(move || attack.run());
            let deadline = Instant::now() + Duration::from_secs(30);
            while open.load(Ordering::Relaxed) < clients && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            Some(dripping)
        }
    };
    let measured = load(&service, seconds);
    let counted = service.counted()?;
    ending.store(true, Ordering::Relaxed);
    let reconnects = dripping.map(|thread| thread.join().unwrap_or_default());
    let name = match from {
        From::Nowhere => "none".to_owned(),
        From::Elsewhere => format!("{clients} at other addresses"),
        From::SameAddress => format!("{clients} at the same address"),
    };
    let Measured { requests, failed, p50_ms, p99_ms, max_ms } = measured;
    println!("| {name} | {requests} | {failed} | {p50_ms:.2} | {p99_ms:.2} | {max_ms:.1} | p99 ≤ {GOAL_MS} ms |");
    if let Some(reconnects) = reconnects {
        println!("| the slow clients reconnected {reconnects} times; the service counted {counted} |");
    }
    Ok(failed == 0 && p99_ms <= GOAL_MS)
}

struct Service {
    running: Running,
    address: SocketAddr,
    token: String,
    _folder: tempfile::TempDir,
}

impl Service {
    fn start(binary: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let data: PathBuf = folder.path().join("data");
        let command = |arguments: &[&str]| {
            let mut command = Command::new(binary);
            command.args(arguments).env("HOLDFAST_DATA_DIR", &data);
            command
        };
        give(&mut command(&["user", "create", "--email", EMAIL, "--name", "Bench"]), "correct horse\n")?;
        let token = give(&mut command(&["token", "create", "--user", EMAIL, "--name", "x", "--all-scopes"]), "")?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut serve = command(&["serve"]);
        serve.env("HOLDFAST_LISTEN", &address).env("HOLDFAST_LOG", "error");
        serve.env("HOLDFAST_RATE_PER_SECOND", "1000000").env("HOLDFAST_RATE_BURST", "1000000");
        let running = Running::start(&mut serve)?;
        wait_until_ready(&address)?;
        let address = address.parse().map_err(|_| "the address cannot be parsed")?;
        Ok(Self { running, address, token: token.trim().to_owned(), _folder: folder })
    }

    /// The connection metrics of the service that are not 0.
    fn counted(&self) -> Result<String> {
        let mut client = Client::new(self.address, "/metrics", &self.token, false);
        let text = client.ask().map_err(|error| format!("{}: {error}", self.running.id()))?;
        let lines = text.lines().filter(|line| line.starts_with("holdfast_connections"));
        let lines = lines.filter(|line| !line.ends_with(" 0")).map(|line| line.trim_start_matches("holdfast_"));
        Ok(lines.collect::<Vec<_>>().join(", "))
    }
}

fn give(command: &mut Command, input: &str) -> Result<String> {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let given = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    match given {
        Some(Ok(())) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        _ => Err(format!("{command:?} failed")),
    }
}

/// An ordinary client.
struct Client {
    address: SocketAddr,
    request: String,
    is_kept: bool,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    fn new(address: SocketAddr, path: &str, token: &str, is_kept: bool) -> Self {
        let connection = if is_kept { "keep-alive" } else { "close" };
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: {connection}\r\n\r\n"
        );
        Self { address, request, is_kept, stream: None }
    }

    /// Sends one request; retries it once if a kept connection turns out to be closed, as every client does.
    fn ask(&mut self) -> std::io::Result<String> {
        let has_stream = self.stream.is_some();
        match self.try_ask() {
            Err(_) if has_stream => {
                self.stream = None;
                self.try_ask()
            }
            answered => answered,
        }
    }

    fn try_ask(&mut self) -> std::io::Result<String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                BufReader::new(stream)
            }
        };
        stream.get_mut().write_all(self.request.as_bytes())?;
        let (mut line, mut length) = (String::new(), None);
        stream.read_line(&mut line)?;
        if !line.contains(" 200 ") {
            return Err(std::io::Error::other(line));
        }
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse::<usize>().ok();
            }
        }
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body)?;
        if self.is_kept {
            self.stream = Some(stream);
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

struct Measured {
    requests: usize,
    failed: usize,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// Sends requests on a fixed schedule and measures from the scheduled time; half of the clients reconnect every time.
fn load(service: &Service, seconds: u32) -> Measured {
    let started = Instant::now();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let mut client = Client::new(service.address, "/api/backup-tasks", &service.token, number % 2 == 0);
            std::thread::spawn(move || {
                let every = Duration::from_secs(1) * THREADS / PER_SECOND;
                let offset = every * number / THREADS;
                let (mut took, mut failed) = (Vec::new(), 0);
                for slot in 0..seconds * PER_SECOND / THREADS {
                    let due = started + offset + every * slot;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    match client.ask() {
                        Ok(_) => took.push(due.elapsed().as_secs_f64() * 1000.0),
                        Err(_) => failed += 1,
                    }
                }
                (took, failed)
            })
        })
        .collect();
    let (mut took, mut failed) = (Vec::new(), 0);
    for thread in threads {
        let (own, own_failed) = thread.join().unwrap_or_default();
        took.extend(own);
        failed += own_failed;
    }
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took.get(((took.len() as f64 * share) as usize).min(took.len().saturating_sub(1))).copied();
    Measured {
        requests: took.len() + failed,
        failed,
        p50_ms: at(0.5).unwrap_or(f64::NAN),
        p99_ms: at(0.99).unwrap_or(f64::NAN),
        max_ms: took.last().copied().unwrap_or(f64::NAN),
    }
}

/// Clients of three kinds: they send headers byte by byte, send bodies byte by byte, or never read the responses. A
/// client whose connection is closed reconnects.
struct Attack {
    address: SocketAddr,
    from: From,
    openings: [String; 3],
    clients: usize,
    open: Arc<AtomicUsize>,
    ending: Arc<AtomicBool>,
}

impl Attack {
    fn new(service: &Service, from: From, clients: usize, ending: Arc<AtomicBool>) -> Self {
        let token = &service.token;
        let headers = "GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: ".to_owned();
        let body = format!(
            "POST /api/tags HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-length: 1000\r\n\r\n"
        );
        let unread = "GET /api/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(50);
        Self {
            address: service.address,
            from,
            openings: [headers, body, unread],
            clients,
            open: Arc::default(),
            ending,
        }
    }

    /// Returns how many times clients reconnected.
    fn run(self) -> usize {
        let mut streams: Vec<Option<Socket>> = (0..self.clients).map(|_| None).collect();
        let mut connects = 0;
        while !self.ending.load(Ordering::Relaxed) {
            let round = Instant::now();
            for (number, stream) in streams.iter_mut().enumerate() {
                let is_open = stream.as_ref().is_some_and(|stream| self.drip(number, stream));
                if !is_open {
                    *stream = self.connect(number).ok();
                    connects += 1;
                }
            }
            self.open.store(streams.iter().flatten().count(), Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(1).saturating_sub(round.elapsed()));
        }
        connects - self.clients.min(connects)
    }

    fn connect(&self, number: usize) -> std::io::Result<Socket> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        if self.from == From::Elsewhere {
            let own = IpAddr::from([127, 0, 1, 1 + (number % 8) as u8]);
            socket.bind(&SocketAddr::new(own, 0).into())?;
        }
        socket.connect_timeout(&self.address.into(), PATIENCE)?;
        socket.set_nonblocking(true)?;
        let opening = &self.openings[number % self.openings.len()];
        (&socket).write_all(opening.as_bytes())?;
        Ok(socket)
    }

    /// Sends one more byte of a header or a body; returns whether the connection is still open.
    fn drip(&self, number: usize, mut stream: &Socket) -> bool {
        if number % self.openings.len() == 2 {
            // It reads nothing, so it only notices a closed connection when it writes.
            return !matches!(stream.write(b"\r\n"), Err(error) if error.kind() != ErrorKind::WouldBlock);
        }
        if matches!(stream.write(b"a"), Err(error) if error.kind() != ErrorKind::WouldBlock) {
            return false;
        }
        let mut buffer = [0; 1024];
        // Any response, or end of file, means that the service has given up on this client.
        let answered = stream.read(&mut buffer).map(|bytes| bytes > 0);
        answered.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}
