//! A TCP proxy with faults that can be changed while it runs: latency, limited bandwidth, resets, silence, refusal.
//!
//! It has its own runtime, so a test needs none.

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

/// The largest read.
const CHUNK: usize = 256 * 1024;
/// Shorter reads are copied, so that the small pieces of a slow line do not each hold a whole buffer.
const SMALL: usize = 16 * 1024;
/// The most bytes in flight in one direction of one connection: 1 GB/s with a latency of a quarter of a second.
const IN_FLIGHT: usize = 256 * 1024 * 1024;

/// The current faults, except for the budget.
#[derive(Clone, Copy, Default, PartialEq)]
struct Line {
    delay: Duration,
    bytes_per_second: Option<u64>,
    silent: bool,
    refusing: bool,
    /// The number of cuts: a connection is reset when this changes.
    cuts: u64,
}

#[derive(Clone, Copy)]
enum Fault {
    Cut,
    Silence,
}

/// How many bytes may still pass from server to client before a fault.
struct Budget {
    left: u64,
    /// Bytes being written now: the fault occurs when all of them are sent.
    reserved: u64,
    fault: Fault,
    /// Distinguishes it from an earlier budget, which a write may have started under.
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
    /// For each direction, when the throttled line, which all connections share, is free again.
    free_at: [Mutex<Option<Instant>>; 2],
    listening: AtomicBool,
    accepted: AtomicUsize,
    open: AtomicUsize,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

/// A proxy between a client and a server on this machine. Dropping it resets its connections.
pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl FaultProxy {
    /// Starts a proxy in front of `127.0.0.1:target_port`, without faults.
    pub fn start(target_port: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("threads can be started");
        // Bound but never listening: it keeps the port reserved while the proxy refuses connections.
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

    /// Sets the latency of one direction, which is half a round trip; it does not limit throughput. The first bytes of
    /// a connection are also delayed by the time that a handshake with this latency takes.
    pub fn delay(&self, one_way: Duration) {
        self.shared.line.send_modify(|line| line.delay = one_way);
    }

    /// Limits the bandwidth of all connections together, in each direction.
    pub fn throttle(&self, bytes_per_second: u64) {
        assert!(bytes_per_second > 0, "use silence_after(0) to stop all traffic");
        self.shared.line.send_modify(|line| line.bytes_per_second = Some(bytes_per_second));
    }

    /// Resets every connection once this many more bytes, over all connections, have gone from server to client. Then
    /// the fault is over: later connections are not affected. A client may see fewer bytes, because a reset discards
    /// what the kernel has not delivered yet.
    pub fn cut_after(&self, bytes: u64) {
        self.set_budget(bytes, Fault::Cut);
    }

    /// Stops forwarding in both directions once this many more bytes have gone from server to client. Connections stay
    /// open, new ones are accepted, and all of them continue after `heal`.
    pub fn silence_after(&self, bytes: u64) {
        self.set_budget(bytes, Fault::Silence);
    }

    /// Refuses new connections, like a port without a server. Open connections are not affected.
    pub fn refuse(&self) {
        self.shared.line.send_modify(|line| line.refusing = true);
        self.wait_until_listening(false);
    }

    /// Ends all faults, including latency.
    pub fn heal(&self) {
        *lock(&self.shared.budget) = None;
        self.shared.free_at.iter().for_each(|free_at| *lock(free_at) = None);
        self.shared.line.send_modify(|line| *line = Line { cuts: line.cuts, ..Line::default() });
        self.wait_until_listening(true);
    }

    /// The runtime changes the listener asynchronously: without waiting, the caller might connect before the change.
    fn wait_until_listening(&self, expected: bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.shared.listening.load(Ordering::SeqCst) != expected {
            assert!(Instant::now() < deadline, "the listener did not change");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Connections accepted so far.
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
            // Without waiting: blocking is forbidden inside another runtime.
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    /// Writes as much as the budget allows, and counts it.
    fn write(&self, direction: Direction, to: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        if direction == Direction::ToServer {
            let written = to.try_write(bytes)?;
            self.to_server.fetch_add(written as u64, Ordering::SeqCst);
            return Ok(written);
        }
        // Reserved before the write and settled after it, without holding the lock, so that connections do not block.
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

    /// Reserves the throttled line for some bytes; returns when the last of them is sent.
    fn occupy(&self, direction: Direction, now: Instant, bytes: usize, bytes_per_second: u64) -> Instant {
        let mut free_at = lock(&self.free_at[direction as usize]);
        let start = free_at.map_or(now, |at| at.max(now));
        let end = start + Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64);
        *free_at = Some(end);
        end
    }
}

/// A precise timer. The one of tokio rounds up to milliseconds, which is an error of up to 10 % at 10 ms.
struct Clock {
    requests: mpsc::Sender<Alarm>,
}

struct Alarm {
    at: Instant,
    wake: oneshot::Sender<()>,
}

impl Clock {
    /// About the cost of a wake-up: shorter waits are skipped.
    const TOLERANCE: Duration = Duration::from_micros(50);

    fn start() -> Self {
        let (requests, incoming) = mpsc::channel();
        // The thread ends when the proxy and all of its tasks are gone.
        std::thread::spawn(move || Self::run(&incoming));
        Self { requests }
    }

    fn run(incoming: &mpsc::Receiver<Alarm>) {
        let mut alarms: BTreeMap<(Instant, u64), oneshot::Sender<()>> = BTreeMap::new();
        let mut number = 0;
        loop {
            let now = Instant::now();
            while let Some(next) = alarms.first_entry().filter(|next| next.key().0 <= now + Self::TOLERANCE) {
                // Fails when the connection, and so the waiting task, is gone.
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

/// Bytes in flight, with their time of arrival; an empty piece is the end of the stream.
struct Piece {
    due: Instant,
    /// A full-size buffer with `length` valid bytes: a truncated one would have to be zeroed again for reuse.
    bytes: Vec<u8>,
    length: usize,
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// Buffers for reuse: new ones of this size cost a page fault for each page.
    spare: Vec<Vec<u8>>,
}

/// One direction of one connection.
struct Pipe {
    direction: Direction,
    /// The number of cuts before the connection was made.
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

    /// Reads until the end of the stream, and sets the time of arrival of each piece.
    async fn fill(&self, from: &TcpStream) -> io::Result<()> {
        let mut line = self.shared.line.subscribe();
        loop {
            while lock(&self.queue).bytes >= IN_FLIGHT {
                self.drained.notified().await;
            }
            from.readable().await?;
            // While silent, nothing is read, so that the buffers of the sender fill up.
            audible(&mut line).await;
            let Line { delay, bytes_per_second, .. } = *line.borrow();
            // Pieces of a fiftieth of a second make a throttled line smooth.
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
                // What exceeds the bandwidth stays in the buffers of the sender.
                self.shared.clock.sleep_until(left).await;
            }
        }
    }

    /// Forwards pieces when they arrive, until the end of the stream.
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

/// A task that is aborted when dropped.
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

/// Forwards one connection until both sides have closed it, or an error or a cut breaks it.
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
        // The kernel accepted the connection at once. On a real line that takes three one-way trips.
        shared.clock.sleep_until(accepted + delay * 3).await;
        audible(&mut shared.line.subscribe()).await;
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, target_port)).await?;
        stream.set_nodelay(true)?;
        let stream = server.insert(Arc::new(stream));
        // Reading and writing in one task keeps the bytes in the cache of one processor.
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
        // Closing then sends a reset instead of an orderly shutdown.
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

/// Shuts down one direction; tokio requires exclusive access for that.
fn shutdown(stream: &TcpStream) -> io::Result<()> {
    let stream = std::net::TcpStream::from(stream.as_fd().try_clone_to_owned()?);
    stream.shutdown(Shutdown::Write)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
