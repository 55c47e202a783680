//! An HTTP receiver for webhooks on loopback: records requests, and responds as configured.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Status(u16),
    /// A status with a body.
    Says(u16, String),
    /// A status with a `Retry-After` header.
    Later(u16, String),
    /// A redirect to this URL.
    Redirect(String),
    /// Sends this status and the beginning of a body, and never the rest.
    HangsAfter(u16),
    /// Reads the request and never responds.
    Hang,
    /// Closes the connection.
    Close,
}

/// A request as it was received.
#[derive(Debug, Clone)]
pub struct Received {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Received {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

#[derive(Default)]
struct State {
    received: Vec<Received>,
    next: VecDeque<Answer>,
    usual: Option<Answer>,
}

pub struct Receiver {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Receiver {
    /// Responds with 204 until configured otherwise; must be called inside a tokio runtime.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
        let address = listener.local_addr().expect("a bound address");
        let state: Arc<Mutex<State>> = Arc::default();
        let task = tokio::spawn(accept(listener, state.clone()));
        Self { address, state, task }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets the response to all further requests.
    pub fn answer(&self, answer: Answer) {
        self.state().usual = Some(answer);
    }

    /// Queues a response for one request; queued responses come first.
    pub fn answer_once(&self, answer: Answer) {
        self.state().next.push_back(answer);
    }

    pub fn received(&self) -> Vec<Received> {
        self.state().received.clone()
    }

    /// The requests received since the last call.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut self.state().received)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    // Dropped with this task, which also closes the connections.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let state = state.clone();
        connections.spawn(async move {
            let serve = service_fn(move |request| take(request, state.clone()));
            let http = auto::Builder::new(TokioExecutor::new()).http1_only();
            // Expected: a connection that the receiver closes ends with an error.
            let _ = http.serve_connection(TokioIo::new(socket), serve).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn take(
    request: http::Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<http::Response<BoxBody<Bytes, Infallible>>, io::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let received = Received {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: parts.headers.iter().map(header).collect(),
        body,
    };
    let answer = {
        let mut state = state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.received.push(received);
        state.next.pop_front().or_else(|| state.usual.clone()).unwrap_or(Answer::Status(204))
    };
    let answered = |status: u16| http::Response::builder().status(status);
    let (answered, body) = match answer {
        Answer::Status(status) => (answered(status), String::new()),
        Answer::Says(status, text) => (answered(status), text),
        Answer::Later(status, after) => (answered(status).header("retry-after", after), String::new()),
        Answer::Redirect(to) => (answered(302).header("location", to), String::new()),
        Answer::HangsAfter(status) => {
            let never = futures_util::stream::pending::<Result<hyper::body::Frame<Bytes>, Infallible>>();
            return answered(status).body(BoxBody::new(StreamBody::new(never))).map_err(io::Error::other);
        }
        Answer::Hang => return Ok(hang().await),
        Answer::Close => return Err(io::ErrorKind::ConnectionReset.into()),
    };
    answered.body(BoxBody::new(Full::new(Bytes::from(body)))).map_err(io::Error::other)
}

async fn hang() -> http::Response<BoxBody<Bytes, Infallible>> {
    let never: Infallible = std::future::pending().await;
    match never {}
}
