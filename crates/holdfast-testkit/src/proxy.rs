//! A TCP proxy with faults that can be switched while it runs: distance, narrow lines, cuts, silence, refusal.
//!
//! It has a runtime of its own, so it works under any runtime of a test, or none.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;

/// The most one read takes.
const CHUNK: usize = 256 * 1024;
/// Shorter reads are copied, so that a slow line's small pieces do not each hold a whole buffer.
const SMALL: usize = 16 * 1024;
/// What may be under way in one direction of one connection: 1 GB/s over a quarter of a second.
const IN_FLIGHT: usize = 256 * 1024 * 1024;

/// What the line does to traffic, apart from the budget.
#[derive(Clone, Copy, Default, PartialEq)]
struct Line {
    delay: Duration,
    bytes_per_second: Option<u64>,
    silent: bool,
    refusing: bool,
    /// Counts cuts: a connection ends when this changes.
    cuts: u64,
}

#[derive(Clone, Copy)]
enum Fault {
    Cut,
    Silence,
}

/// Bytes that may still pass from server to client before a fault.
struct Budget {
    left: u64,
    /// Being written at this moment: the fault comes when all of it has left.
    reserved: u64,
    fault: Fault,
    /// Tells it from an earlier one, under which a write may have begun.
    number: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    ToServer,
    ToClient,
}

struct Shared {
    clock: Clock,
    line: watch::Sender<Line>,
    budget: Mutex<Option<Budget>>,
    /// For each direction, when the narrow line is free again: all connections share it.
    free_at: [Mutex<Option<Instant>>; 2],
    listening: AtomicBool,
    accepted: AtomicUsize,
    open: AtomicUsize,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

/// Stands between a client and a server on this machine. Dropping it resets its connections.
pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl FaultProxy {
    /// A proxy before `127.0.0.1:target_port`, without faults.
    pub fn start(target_port: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("threads can be started");
        // Bound for as long as we live, never listening: while we refuse, nobody else can get the port.
        let (holder, address) = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("loopback has free ports");
        let shared = Arc::new(Shared {
            clock: Clock::start(),
            line: watch::Sender::new(Line::default()),
            budget: Mutex::new(None),
            free_at: [Mutex::new(None), Mutex::new(None)],
            listening: AtomicBool::new(true),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            to_server: AtomicU64::new(0),
            to_client: AtomicU64::new(0),
        });
        let listener = {
            let _context = runtime.enter();
            listen(address).expect("the port is ours")
        };
        runtime.spawn(accept(holder, listener, address, target_port, Arc::clone(&shared)));
        Self { port: address.port(), shared, runtime: Some(runtime) }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Latency of one direction, so half of a round trip; it does not limit throughput. Opening a connection costs
    /// what it does on a real line: its first bytes come as late as after a handshake at that distance.
    pub fn delay(&self, one_way: Duration) {
        self.shared.line.send_modify(|line| line.delay = one_way);
    }

    /// What all connections together can carry in each direction.
    pub fn throttle(&self, bytes_per_second: u64) {
        assert!(bytes_per_second > 0, "nothing at all is silence_after(0)");
        self.shared.line.send_modify(|line| line.bytes_per_second = Some(bytes_per_second));
    }

    /// Resets every connection once this many more bytes, over all connections, went from server to client. Then the
    /// fault is over: connections made later are left alone. A client may get to see fewer bytes: a reset drops what
    /// still lies in the kernel.
    pub fn cut_after(&self, bytes: u64) {
        self.set_budget(bytes, Fault::Cut);
    }

    /// Forwards nothing more, in either direction, once this many more bytes went from server to client. Connections
    /// stay open, new ones are taken, and all of them go on after `heal`.
    pub fn silence_after(&self, bytes: u64) {
        self.set_budget(bytes, Fault::Silence);
    }

    /// Refuses new connections, as a port without a server does. Those that are open live on.
    pub fn refuse(&self) {
        self.shared.line.send_modify(|line| line.refusing = true);
        self.wait_until_listening(false);
    }

    /// Ends all faults, and the distance.
    pub fn heal(&self) {
        *lock(&self.shared.budget) = None;
        self.shared.free_at.iter().for_each(|free_at| *lock(free_at) = None);
        self.shared.line.send_modify(|line| *line = Line { cuts: line.cuts, ..Line::default() });
        self.wait_until_listening(true);
    }

    /// The listener is the runtime's, so a caller's next connection could come before the change.
    fn wait_until_listening(&self, expected: bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.shared.listening.load(Ordering::SeqCst) != expected {
            assert!(Instant::now() < deadline, "the listener did not change");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Connections taken so far.
    pub fn connections(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Bytes forwarded so far in both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes_to_server() + self.bytes_to_client()
    }

    pub fn bytes_to_server(&self) -> u64 {
        self.shared.to_server.load(Ordering::SeqCst)
    }

    pub fn bytes_to_client(&self) -> u64 {
        self.shared.to_client.load(Ordering::SeqCst)
    }

    fn set_budget(&self, left: u64, fault: Fault) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut budget = lock(&self.shared.budget);
        *budget = Some(Budget { left, reserved: 0, fault, number: NEXT.fetch_add(1, Ordering::SeqCst) });
        self.shared.strike_if_spent(&mut budget);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.line.send_modify(|line| line.cuts += 1);
        if let Some(runtime) = self.runtime.take() {
            // Not waiting: we may be inside another runtime, which forbids it.
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    /// Writes what may pass, and counts it.
    fn write(&self, direction: Direction, to: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        if direction == Direction::ToServer {
            let written = to.try_write(bytes)?;
            self.to_server.fetch_add(written as u64, Ordering::SeqCst);
            return Ok(written);
        }
        // Reserved before and settled after, instead of a lock around: connections do not wait for each other.
        let mut reservation = None;
        let mut allowed = bytes.len();
        if let Some(budget) = &mut *lock(&self.budget) {
            allowed = allowed.min(usize::try_from(budget.left).unwrap_or(usize::MAX));
            budget.left -= allowed as u64;
            budget.reserved += allowed as u64;
            reservation = Some(budget.number);
        }
        let written = if allowed == 0 { Ok(0) } else { to.try_write(&bytes[..allowed]) };
        let count = *written.as_ref().unwrap_or(&0) as u64;
        self.to_client.fetch_add(count, Ordering::SeqCst);
        if let Some(number) = reservation {
            let mut budget = lock(&self.budget);
            if let Some(open) = budget.as_mut().filter(|open| open.number == number) {
                open.reserved -= allowed as u64;
                open.left += allowed as u64 - count;
            }
            self.strike_if_spent(&mut budget);
        }
        written
    }

    fn strike_if_spent(&self, budget: &mut Option<Budget>) {
        let Some(Budget { left: 0, reserved: 0, fault, .. }) = budget else { return };
        match fault {
            Fault::Cut => self.line.send_modify(|line| line.cuts += 1),
            Fault::Silence => self.line.send_modify(|line| line.silent = true),
        }
        *budget = None;
    }

    /// Takes the narrow line for some bytes; gives the moment when the last of them has left.
    fn occupy(&self, direction: Direction, now: Instant, bytes: usize, bytes_per_second: u64) -> Instant {
        let mut free_at = lock(&self.free_at[direction as usize]);
        let start = free_at.map_or(now, |at| at.max(now));
        let end = start + Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64);
        *free_at = Some(end);
        end
    }
}

/// Wakes tasks at a moment. Tokio's own timer counts in milliseconds, and rounds up: at 10 ms that is a tenth.
struct Clock {
    requests: mpsc::Sender<Alarm>,
}

struct Alarm {
    at: Instant,
    wake: oneshot::Sender<()>,
}

impl Clock {
    /// What a wake-up costs: less than that is not worth one.
    const TOLERANCE: Duration = Duration::from_micros(50);

    fn start() -> Self {
        let (requests, incoming) = mpsc::channel();
        // Ends when its proxy, and all tasks of it, are gone.
        std::thread::spawn(move || Self::run(&incoming));
        Self { requests }
    }

    fn run(incoming: &mpsc::Receiver<Alarm>) {
        let mut alarms: BTreeMap<(Instant, u64), oneshot::Sender<()>> = BTreeMap::new();
        let mut number = 0;
        loop {
            let now = Instant::now();
            while let Some(next) = alarms.first_entry().filter(|next| next.key().0 <= now + Self::TOLERANCE) {
                // Nobody waits any more when the connection is gone.
                let _gone = next.remove().send(());
            }
            let received = match alarms.first_key_value() {
                Some(((at, _), _)) => incoming.recv_timeout(*at - now),
                None => incoming.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            };
            match received {
                Ok(Alarm { at, wake }) => {
                    number += 1;
                    alarms.insert((at, number), wake);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    async fn sleep_until(&self, at: Instant) {
        if at <= Instant::now() + Self::TOLERANCE {
            return;
        }
        let (wake, woken) = oneshot::channel();
        self.requests.send(Alarm { at, wake }).expect("the clock runs as long as we do");
        woken.await.expect("the clock runs as long as we do");
    }
}

/// Bytes on their way, with the moment they arrive; none at all is the end of the stream.
struct Piece {
    due: Instant,
    /// A whole buffer, of which the first `length` bytes count: shortening it would mean to clear it again.
    bytes: Vec<u8>,
    length: usize,
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// Emptied buffers, to be filled again: fresh ones of this size cost a page fault for each page.
    spare: Vec<Vec<u8>>,
}

/// One direction of one connection.
struct Pipe {
    direction: Direction,
    /// The cuts before the connection was made.
    cuts: u64,
    queue: Mutex<Queue>,
    filled: Notify,
    drained: Notify,
    shared: Arc<Shared>,
}

impl Pipe {
    fn new(direction: Direction, cuts: u64, shared: &Arc<Shared>) -> Arc<Self> {
        let (queue, filled, drained) = (Mutex::default(), Notify::new(), Notify::new());
        Arc::new(Self { direction, cuts, queue, filled, drained, shared: Arc::clone(shared) })
    }

    /// Reads until the end of the stream, and says when each piece arrives.
    async fn fill(&self, from: &TcpStream) -> io::Result<()> {
        let mut line = self.shared.line.subscribe();
        loop {
            while lock(&self.queue).bytes >= IN_FLIGHT {
                self.drained.notified().await;
            }
            from.readable().await?;
            // A sender is to notice silence by its own full buffers.
            audible(&mut line).await;
            let Line { delay, bytes_per_second, .. } = *line.borrow();
            // A fiftieth of a second at once makes a narrow line smooth.
            let limit =
                bytes_per_second.map_or(CHUNK, |rate| usize::try_from(rate / 50).unwrap_or(CHUNK).clamp(1, CHUNK));
            let mut buffer = lock(&self.queue).spare.pop().unwrap_or_default();
            if buffer.is_empty() {
                buffer = vec![0; CHUNK];
            }
            let read = match from.try_read(&mut buffer[..limit]) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    lock(&self.queue).spare.push(buffer);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let now = Instant::now();
            let left = bytes_per_second.map_or(now, |rate| self.shared.occupy(self.direction, now, read, rate));
            {
                let mut queue = lock(&self.queue);
                let mut bytes = buffer;
                if read < SMALL {
                    let copy = bytes[..read].to_vec();
                    queue.spare.push(std::mem::replace(&mut bytes, copy));
                }
                queue.bytes += read;
                queue.pieces.push_back(Piece { due: left + delay, bytes, length: read });
            }
            self.filled.notify_one();
            if read == 0 {
                return Ok(());
            }
            if left > now {
                // What does not fit on the line stays with its sender.
                self.shared.clock.sleep_until(left).await;
            }
        }
    }

    /// Hands on what has arrived, until the end of the stream.
    async fn drain(&self, to: &TcpStream) -> io::Result<()> {
        let mut line = self.shared.line.subscribe();
        loop {
            let piece = lock(&self.queue).pieces.pop_front();
            let Some(Piece { due, bytes, length }) = piece else {
                self.filled.notified().await;
                continue;
            };
            self.shared.clock.sleep_until(due).await;
            if length == 0 {
                audible(&mut line).await;
                return shutdown(to);
            }
            let mut written = 0;
            while written < length {
                audible(&mut line).await;
                if line.borrow().cuts != self.cuts {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                let rest = &bytes[written..length];
                match self.shared.write(self.direction, to, rest) {
                    // Another connection is spending the rest of the budget.
                    Ok(0) => tokio::task::yield_now().await,
                    Ok(count) => written += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
                    Err(error) => return Err(error),
                }
            }
            let mut queue = lock(&self.queue);
            queue.bytes -= length;
            if bytes.len() == CHUNK {
                queue.spare.push(bytes);
            }
            drop(queue);
            self.drained.notify_one();
        }
    }
}

/// Waits for the end of silence.
async fn audible(line: &mut watch::Receiver<Line>) {
    if line.wait_for(|line| !line.silent).await.is_err() {
        pending::<()>().await;
    }
}

async fn accept(_holder: TcpSocket, listener: TcpListener, address: SocketAddr, target_port: u16, shared: Arc<Shared>) {
    let mut line = shared.line.subscribe();
    let mut listener = Some(listener);
    loop {
        if line.borrow_and_update().refusing {
            listener = None;
        } else if listener.is_none() {
            listener = Some(listen(address).expect("the port is held for us"));
        }
        shared.listening.store(listener.is_some(), Ordering::SeqCst);
        let next = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = line.changed() => if changed.is_err() { return },
            accepted = next => if let Ok((client, _)) = accepted {
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                shared.open.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    carry(client, target_port, &shared).await;
                    shared.open.fetch_sub(1, Ordering::SeqCst);
                });
            },
        }
    }
}

/// A task that ends with the one that waits for it.
struct Task(JoinHandle<io::Result<()>>);

impl Task {
    fn spawn(future: impl Future<Output = io::Result<()>> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }

    async fn end(&mut self) -> io::Result<()> {
        (&mut self.0).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One connection, until both sides have said all, or one of them or a cut breaks it.
async fn carry(client: TcpStream, target_port: u16, shared: &Arc<Shared>) {
    let accepted = Instant::now();
    let mut line = shared.line.subscribe();
    let Line { delay, cuts, .. } = *line.borrow_and_update();
    let client = Arc::new(client);
    let mut server = None;
    let whole = async {
        client.set_nodelay(true)?;
        let (up, down) = (Pipe::new(Direction::ToServer, cuts, shared), Pipe::new(Direction::ToClient, cuts, shared));
        let mut up_fill = Task::spawn({
            let (up, client) = (Arc::clone(&up), Arc::clone(&client));
            async move { up.fill(&client).await }
        });
        // The kernel took the connection at once. On a real line the server has it after three passages.
        shared.clock.sleep_until(accepted + delay * 3).await;
        audible(&mut shared.line.subscribe()).await;
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, target_port)).await?;
        stream.set_nodelay(true)?;
        let stream = server.insert(Arc::new(stream));
        // Each direction reads and writes in one task: its bytes stay in one processor's cache.
        let mut up_drain = Task::spawn({
            let (up, server) = (Arc::clone(&up), Arc::clone(stream));
            async move { up.drain(&server).await }
        });
        let mut both_down = Task::spawn({
            let (down, server, client) = (down, Arc::clone(stream), Arc::clone(&client));
            async move { tokio::try_join!(down.fill(&server), down.drain(&client)).map(drop) }
        });
        tokio::try_join!(up_fill.end(), up_drain.end(), both_down.end()).map(drop)
    };
    let broken = tokio::select! {
        ended = whole => ended.is_err(),
        _cut = line.wait_for(|line| line.cuts != cuts) => true,
    };
    if broken {
        // Closing then sends a reset instead of an orderly end.
        let _gone = client.set_zero_linger();
        if let Some(server) = &server {
            let _gone = server.set_zero_linger();
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bind(address)?.0.listen(1024)
}

/// Ends one direction; tokio can do that only to a stream that is not shared.
fn shutdown(stream: &TcpStream) -> io::Result<()> {
    let stream = std::net::TcpStream::from(stream.as_fd().try_clone_to_owned()?);
    stream.shutdown(Shutdown::Write)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
