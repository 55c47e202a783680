//! Connections over a real socket: what each limit does to slow, idle and ordinary clients.

use axum::routing::{get, post};
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use holdfast_core::rate::MinimumRate;

use super::*;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

fn limits() -> Limits {
    Limits {
        total: 1000,
        per_client: 1000,
        headers: Duration::from_secs(60),
        idle: Duration::from_secs(60),
        least_rate: MinimumRate { bytes_per_second: 1000, window: Duration::from_secs(60) },
        proxies: Vec::new(),
    }
}

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    /// `/wait` responds once it gets one of these.
    permits: Arc<Semaphore>,
    /// One permit per request that has reached `/wait`.
    waiting: Arc<Semaphore>,
    /// One permit per `/endless` response that was dropped.
    ended: Arc<Semaphore>,
}

struct Ended(Arc<Semaphore>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

async fn start(limits: Limits) -> Server {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let [permits, waiting, ended] = std::array::from_fn(|_| Arc::new(Semaphore::new(0)));
    let (may_answer, waits, drops) = (permits.clone(), waiting.clone(), ended.clone());
    let wait = async move || {
        waits.add_permits(1);
        may_answer.acquire().await.unwrap().forget();
        "waited"
    };
    let endless = async move || {
        let guard = Ended(drops);
        let pieces = futures_util::stream::repeat_with(move || {
            let _guard = &guard;
            Ok::<_, Infallible>(vec![7_u8; 16 * 1024])
        });
        Body::from_stream(pieces.boxed())
    };
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route("/body", post(async |body: axum::body::Bytes| body.len().to_string()))
        .route("/wait", get(wait))
        .route("/endless", get(endless));
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, router, limits, stop.clone()));
    Server { address, stop, serving, permits, waiting, ended }
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn connect_from(&self, address: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// Starts a request that is being processed until it gets a permit.
    async fn begin_to_wait(&self) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        self.waiting.acquire().await.unwrap().forget();
        stream
    }
}

/// Reads until the connection ends, even with an error.
async fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    drop(stream.read_to_end(&mut bytes).await);
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(REQUEST).await.unwrap();
    let mut bytes = vec![0; 4096];
    let count = stream.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

/// Sends single bytes slowly until the connection is closed, and returns what was received.
async fn drip(stream: TcpStream) -> String {
    let (mut reading, mut writing) = stream.into_split();
    let dripping = tokio::spawn(async move {
        let mut every = tokio::time::interval(Duration::from_millis(50));
        while writing.write_all(b"x").await.is_ok() {
            every.tick().await;
        }
    });
    let mut bytes = Vec::new();
    drop(reading.read_to_end(&mut bytes).await);
    dripping.abort();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn headers_have_a_time_limit_however_they_arrive() {
    let server = start(Limits { headers: Duration::from_secs(1), ..limits() }).await;
    let silent = server.connect().await;
    let mut half = server.connect().await;
    half.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n").await.unwrap();
    let mut dripping = server.connect().await;
    dripping.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx: ").await.unwrap();
    let mut second = server.connect().await;
    assert!(ask(&mut second).await.ends_with("hello"));
    second.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let (silent, half, second) = (rest(silent), rest(half), rest(second));
    let (silent, half, second, dripping) = tokio::join!(silent, half, second, drip(dripping));
    for answer in [silent, half, second] {
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer:?}");
    }
    // Bytes that arrive while the connection is closed cause a reset, which may overtake the response.
    assert!(dripping.is_empty() || dripping.starts_with("HTTP/1.1 408"), "{dripping:?}");
}

#[tokio::test]
async fn a_connection_without_requests_is_closed_after_a_while() {
    let server = start(Limits { idle: Duration::from_secs(1), ..limits() }).await;
    let mut stream = server.connect().await;
    assert!(ask(&mut stream).await.ends_with("hello"));
    assert_eq!(rest(stream).await, "", "closed without a response");
}

#[tokio::test]
async fn a_body_that_arrives_too_slowly_is_refused() {
    let least_rate = MinimumRate { bytes_per_second: 1000, window: Duration::from_secs(1) };
    let server = start(Limits { least_rate, ..limits() }).await;
    let mut stream = server.connect().await;
    stream.write_all(b"POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n").await.unwrap();
    let answer = drip(stream).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer:?}");
    let mut whole = server.connect().await;
    let head = b"POST /body HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 5000\r\n\r\n";
    whole.write_all(head).await.unwrap();
    whole.write_all(&[7; 5000]).await.unwrap();
    assert!(rest(whole).await.ends_with("5000"));
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_dropped_and_a_slow_one_is_served() {
    let least_rate = MinimumRate { bytes_per_second: 20_000, window: Duration::from_secs(2) };
    let server = start(Limits { least_rate, ..limits() }).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect().await;
        stream.write_all(b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        streams.push(stream);
    }
    let mut slow = streams.pop().unwrap();
    let (mut bytes, mut every) = (vec![0; 16 * 1024], tokio::time::interval(Duration::from_millis(100)));
    // Read 160 kB per second until the client that reads nothing is dropped.
    let until_dropped = server.ended.acquire();
    tokio::pin!(until_dropped);
    let mut permit = None;
    while permit.is_none() {
        tokio::select! {
            ended = &mut until_dropped => permit = Some(ended.unwrap()),
            _ = every.tick() => drop(slow.read_exact(&mut bytes).await.unwrap()),
        }
    }
    for _ in 0..60 {
        every.tick().await;
        slow.read_exact(&mut bytes).await.expect("served for three more windows");
    }
    assert_eq!(server.ended.available_permits(), 0, "only the other one was dropped");
}

#[tokio::test]
async fn connections_that_wait_for_their_client_are_closed_for_new_requests() {
    let openings: [&[u8]; 4] = [
        b"",
        b"GET / HTTP/1.1\r\nhost: a\r\nx: ",
        b"POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n",
        b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n",
    ];
    for limits in [Limits { total: 16, ..limits() }, Limits { per_client: 16, ..limits() }] {
        let server = start(limits).await;
        for opening in openings {
            let mut slow = Vec::new();
            for _ in 0..50 {
                let mut stream = server.connect().await;
                stream.write_all(opening).await.unwrap();
                slow.push(stream);
            }
            for _ in 0..20 {
                assert!(ask(&mut server.connect().await).await.ends_with("hello"), "{opening:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_client_at_its_limit_is_refused_and_others_are_not() {
    let proxies = vec!["127.0.0.3".parse().unwrap()];
    let server = start(Limits { per_client: 3, proxies, ..limits() }).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(server.begin_to_wait().await);
    }
    let refused = rest(server.connect().await).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after"), "{refused:?}");
    assert!(ask(&mut server.connect_from("127.0.0.2").await).await.ends_with("hello"));
    let mut through_proxy = Vec::new();
    for _ in 0..10 {
        let mut stream = server.connect_from("127.0.0.3").await;
        assert!(ask(&mut stream).await.ends_with("hello"));
        through_proxy.push(stream);
    }
    server.permits.add_permits(1);
    let mut bytes = [0; 12];
    waiting[0].read_exact(&mut bytes).await.unwrap();
    assert!(ask(&mut server.connect().await).await.ends_with("hello"), "the one that was answered makes room");
}

#[tokio::test]
async fn the_total_number_of_connections_is_limited() {
    let server = start(Limits { total: 2, ..limits() }).await;
    let _waiting = [server.begin_to_wait().await, server.begin_to_wait().await];
    let refused = rest(server.connect_from("127.0.0.2").await).await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused:?}");
}

#[tokio::test]
async fn shutdown_waits_only_for_requests_in_progress() {
    let server = start(limits()).await;
    let mut idle = server.connect().await;
    assert!(ask(&mut idle).await.ends_with("hello"));
    let silent = server.connect().await;
    let asked = server.begin_to_wait().await;
    server.stop.cancel();
    assert_eq!(rest(idle).await, "");
    drop(rest(silent).await);
    assert!(!server.serving.is_finished());
    server.permits.add_permits(1);
    assert!(rest(asked).await.ends_with("waited"));
    server.serving.await.unwrap();
}
