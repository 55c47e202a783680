//! API calls: they wait when the service limits their rate, and requests whose response was lost are sent again.

use std::time::Duration;

use holdfast_core::random;
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use serde_json::Value;
use url::Url;

use crate::error::ClientError;

/// The time limit of a call; of a download, for each read.
const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(10);
/// Rows per page of a list: the most that the service returns.
const PER_PAGE: i64 = 100;
/// How many times a call waits and tries again after "too many requests".
const MOST_WAITS: usize = 5;
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How many times a POST is sent again after its response was lost: long enough for a service to restart.
const MOST_REPEATS: u32 = 4;
/// The wait before it is sent again; it doubles each time.
const FIRST_REPEAT: Duration = Duration::from_millis(500);
/// The service executes requests with the same key only once.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

pub type Result<T, E = ClientError> = std::result::Result<T, E>;

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: String,
}

/// What happens to the caller's runs, backups and notices.
pub struct Events(Response);

impl Events {
    /// Waits until something has happened. Returns false if the stream has ended.
    pub async fn wait(&mut self) -> bool {
        loop {
            match self.0.chunk().await {
                // Comments keep the connection alive.
                Ok(Some(piece)) if piece.starts_with(b":") => {}
                Ok(Some(_)) => return true,
                Ok(None) | Err(_) => return false,
            }
        }
    }
}

impl Client {
    /// `ca_pem` is trusted in addition to the system's certificates.
    pub fn new(url: &str, token: &str, ca_pem: Option<&[u8]>) -> Result<Self> {
        let wrong = |text: String| ClientError::Settings(text);
        let base = Url::parse(url).map_err(|error| wrong(format!("{url} is not a URL: {error}")))?;
        if !["http", "https"].contains(&base.scheme()) {
            return Err(wrong(format!("{url} must begin with https:// or http://")));
        }
        // A redirect could send the token to someone else.
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("holdfast/", env!("CARGO_PKG_VERSION")));
        if let Some(pem) = ca_pem {
            let found = reqwest::Certificate::from_pem_bundle(pem).map_err(|error| wrong(error.to_string()))?;
            builder = found.into_iter().fold(builder, reqwest::ClientBuilder::add_root_certificate);
        }
        let http = builder.build().map_err(|error| wrong(error.to_string()))?;
        Ok(Self { http, base, token: token.to_owned() })
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base.as_str().trim_end_matches('/'))
    }

    /// The `data` of the response, or the whole response if it has none.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.call(Method::GET, path, None).await.map(data)
    }

    pub async fn post(&self, path: &str, body: Option<&Value>) -> Result<Value> {
        self.call(Method::POST, path, body).await.map(data)
    }

    pub async fn put(&self, path: &str, body: &Value) -> Result<Value> {
        self.call(Method::PUT, path, Some(body)).await.map(data)
    }

    pub async fn delete(&self, path: &str) -> Result<Value> {
        self.call(Method::DELETE, path, None).await.map(data)
    }

    /// All rows of a list: from cursor to cursor if the service offers them, because pages shift while rows are
    /// deleted; else page by page.
    pub async fn list(&self, path: &str, query: &[(&str, &str)]) -> Result<Vec<Value>> {
        let (mut rows, mut next) = (Vec::new(), Next::First);
        loop {
            let mut pairs = url::form_urlencoded::Serializer::new(String::new());
            pairs.extend_pairs(query).append_pair("per_page", &PER_PAGE.to_string());
            match &next {
                Next::First => {}
                Next::Page(page) => drop(pairs.append_pair("page", &page.to_string())),
                Next::Cursor(cursor) => drop(pairs.append_pair("cursor", cursor)),
                Next::End => return Ok(rows),
            }
            let mut answer = self.call(Method::GET, &format!("{path}?{}", pairs.finish()), None).await?;
            let Value::Array(found) = answer["data"].take() else { return Err(self.odd()) };
            let after = next.after(&answer["meta"], found.is_empty());
            rows.extend(found);
            if matches!(&after, Next::Cursor(_)) && after == next {
                return Err(self.odd());
            }
            next = after;
        }
    }

    /// Starts a download; the caller reads its bytes.
    pub async fn download(&self, path: &str) -> Result<Response> {
        let request = self.http.get(self.url(path)).bearer_auth(&self.token);
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        Err(ClientError::of_response(status, &response.text().await.unwrap_or_default()))
    }

    /// Opens the stream of the caller's events.
    pub async fn events(&self) -> Result<Events> {
        Ok(Events(self.download("/api/events").await?))
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let key = (method == Method::POST).then(|| random::hex(&random::bytes::<16>()));
        let (mut waits, mut repeats) = (0, 0);
        loop {
            let mut request = self.http.request(method.clone(), self.url(path)).bearer_auth(&self.token);
            request = request.timeout(TIMEOUT).header(header::ACCEPT, "application/json");
            if let Some(key) = &key {
                request = request.header(IDEMPOTENCY_KEY, key);
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            let sent = send(request).await;
            if key.is_some() && repeats < MOST_REPEATS && is_lost(&sent, repeats > 0) {
                tokio::time::sleep(FIRST_REPEAT * 2_u32.pow(repeats)).await;
                repeats += 1;
                continue;
            }
            let Reply { status, text, wait } = sent.map_err(|error| self.unreachable(&error))?;
            if status == StatusCode::TOO_MANY_REQUESTS && waits < MOST_WAITS {
                tokio::time::sleep(wait).await;
                waits += 1;
                continue;
            }
            if !status.is_success() {
                return Err(ClientError::of_response(status, &text));
            }
            return if text.is_empty() { Ok(Value::Null) } else { serde_json::from_str(&text).map_err(|_| self.odd()) };
        }
    }

    fn odd(&self) -> ClientError {
        ClientError::Refused(format!("{} does not answer like a Holdfast service", self.base))
    }

    fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        // The innermost error is the most specific one.
        let mut reason: &dyn std::error::Error = error;
        while let Some(source) = reason.source() {
            reason = source;
        }
        ClientError::Unreachable { url: self.base.to_string(), reason: reason.to_string() }
    }
}

/// Which rows of a list are requested next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    First,
    Page(i64),
    Cursor(String),
    End,
}

impl Next {
    fn after(&self, meta: &Value, is_empty: bool) -> Self {
        let page = match (self, &meta["next_cursor"]) {
            (_, Value::String(cursor)) => return Self::Cursor(cursor.clone()),
            (Self::Cursor(_) | Self::End, _) => return Self::End,
            (Self::First, _) => 1,
            (Self::Page(page), _) => *page,
        };
        let has_more = meta["last_page"].as_i64().is_some_and(|last| page < last) && !is_empty;
        if has_more { Self::Page(page + 1) } else { Self::End }
    }
}

struct Reply {
    status: StatusCode,
    text: String,
    /// How long the service asks to wait.
    wait: Duration,
}

async fn send(request: RequestBuilder) -> reqwest::Result<Reply> {
    let response = request.send().await?;
    let (status, wait) = (response.status(), wait_of(&response));
    Ok(Reply { status, text: response.text().await?, wait })
}

/// Whether the request may have been executed without its response arriving. Once that has happened, the service may
/// still be busy with it, or be down.
fn is_lost(sent: &reqwest::Result<Reply>, is_repeated: bool) -> bool {
    match sent {
        Err(error) => is_repeated || !(error.is_connect() || error.is_builder()),
        Ok(reply) => match reply.status {
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => true,
            StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE => is_repeated,
            _ => false,
        },
    }
}

fn data(mut answer: Value) -> Value {
    match answer.get_mut("data") {
        Some(data) => data.take(),
        None => answer,
    }
}

fn wait_of(response: &Response) -> Duration {
    let text = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let seconds = text.and_then(|text| text.parse().ok()).unwrap_or(1);
    Duration::from_secs(seconds).clamp(Duration::from_secs(1), LONGEST_WAIT)
}

#[cfg(test)]
mod tests;
