//! API calls: they wait when the service limits their rate, and changes whose response was lost are sent again.

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
/// How many times a change is sent again after its response was lost: long enough for a service to restart.
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

/// Marks a request that is to have no effect, and the response to it.
const DRY_RUN: &str = "holdfast-dry-run";
/// The fields that an update would change.
const CHANGES: &str = "holdfast-changes";
/// The fields of other resources that it would clear.
const ELSEWHERE: &str = "holdfast-changes-elsewhere";

/// What a request is conditional on.
#[derive(Debug, Clone, Copy, Default)]
pub enum Condition<'a> {
    #[default]
    None,
    /// The resource is in this version.
    Version(&'a str),
    /// Nothing else of the kind has the label of what is created.
    NewLabel,
}

/// A change of a resource.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    pub method: Method,
    pub path: &'a str,
    pub body: Option<&'a Value>,
    pub condition: Condition<'a>,
}

/// What a dry run found.
#[derive(Debug, Clone, Default)]
pub struct Tried {
    /// The version that would be changed or deleted.
    pub version: Option<String>,
    /// The fields that an update would change.
    pub changed: Vec<String>,
    /// The resource as it would be.
    pub after: Value,
    /// Fields of other resources that would be cleared: the path of each resource, and the name of the field.
    pub elsewhere: Vec<(String, String)>,
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
        if base.path() != "/" || base.query().is_some() || base.fragment().is_some() {
            return Err(wrong(format!("{url} must end after the name or port: the service adds /api itself")));
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

    /// A resource, and its version if it has one.
    pub async fn get_versioned(&self, path: &str) -> Result<(Value, Option<String>)> {
        let reply = self.send(&Request::new(Method::GET, path)).await?;
        let version = reply.header(header::ETAG.as_str());
        Ok((data(self.read(&reply)?), version))
    }

    /// Whether the service can carry out changes without effect. It marks the response to any request that asks for it;
    /// an earlier version would ignore the header, and change something.
    pub async fn has_dry_runs(&self) -> Result<bool> {
        let headers = vec![(DRY_RUN, "true".to_owned())];
        let reply = self.send(&Request { headers, ..Request::new(Method::GET, "/api/user") }).await?;
        Ok(reply.header(DRY_RUN).is_some())
    }

    /// Makes a change. Returns the `data` of the response.
    pub async fn change(&self, change: &Change<'_>) -> Result<Value> {
        let request = Request::of(change, false);
        let (sent, is_repeated) = self.exchange(&request).await;
        match self.outcome(&request, sent, is_repeated) {
            // The attempt whose response was lost may have made the version that the repetition found.
            Err(ClientError::Outdated(_))
                if is_repeated && change.method == Method::PUT && self.is_made(change).await =>
            {
                self.get(change.path).await
            }
            outcome => Ok(data(self.read(&outcome?)?)),
        }
    }

    /// Whether the resource is as an update makes it: then a dry run of the update finds nothing to change.
    async fn is_made(&self, change: &Change<'_>) -> bool {
        let again = Change { condition: Condition::None, ..change.clone() };
        matches!(self.has_dry_runs().await, Ok(true))
            && matches!(self.try_out(&again).await, Ok(tried) if tried.changed.is_empty())
    }

    /// Asks what a change would do. Only for services that have dry runs.
    pub async fn try_out(&self, change: &Change<'_>) -> Result<Tried> {
        let reply = self.send(&Request::of(change, true)).await?;
        let Some(_) = reply.header(DRY_RUN) else { return Err(self.odd()) };
        let names = reply.header(CHANGES).unwrap_or_default();
        let changed = names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let elsewhere = reply.header(ELSEWHERE).unwrap_or_default();
        let elsewhere = elsewhere.split(',').filter_map(|field| field.trim().split_once('#'));
        let elsewhere = elsewhere.map(|(path, name)| (path.to_owned(), name.to_owned())).collect();
        let after = data(self.read(&reply)?);
        Ok(Tried { version: reply.header(header::ETAG.as_str()), changed, after, elsewhere })
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
        self.open(self.http.get(self.url(path))).await
    }

    /// Continues a download from this byte on, if it is still of this version; else the response is the whole.
    pub async fn download_rest(&self, path: &str, from: u64, version: &str) -> Result<Response> {
        let request = self.http.get(self.url(path)).header(header::RANGE, format!("bytes={from}-"));
        self.open(request.header(header::IF_RANGE, version)).await
    }

    async fn open(&self, request: RequestBuilder) -> Result<Response> {
        let request = request.bearer_auth(&self.token);
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
        let reply = self.send(&Request { body, ..Request::new(method, path) }).await?;
        self.read(&reply)
    }

    fn read(&self, reply: &Reply) -> Result<Value> {
        if reply.text.is_empty() { Ok(Value::Null) } else { serde_json::from_str(&reply.text).map_err(|_| self.odd()) }
    }

    async fn send(&self, asked: &Request<'_>) -> Result<Reply> {
        let (sent, is_repeated) = self.exchange(asked).await;
        self.outcome(asked, sent, is_repeated)
    }

    /// Sends a request until there is a response to it. A change is sent again if its response was lost: the service
    /// executes a POST only once, because it has a key, and the others have the same effect twice as once. Returns
    /// whether an earlier attempt may have been executed, too.
    async fn exchange(&self, asked: &Request<'_>) -> (reqwest::Result<Reply>, bool) {
        let key = (asked.method == Method::POST).then(|| random::hex(&random::bytes::<16>()));
        let (mut waits, mut repeats) = (0, 0);
        loop {
            let sent = receive(self.build(asked, key.as_deref())).await;
            let is_repeated = repeats > 0;
            if asked.method != Method::GET && repeats < MOST_REPEATS && is_lost(&sent, is_repeated, key.is_some()) {
                tokio::time::sleep(FIRST_REPEAT * 2_u32.pow(repeats)).await;
                repeats += 1;
                continue;
            }
            match &sent {
                Ok(reply) if reply.status == StatusCode::TOO_MANY_REQUESTS && waits < MOST_WAITS => {
                    tokio::time::sleep(reply.wait()).await;
                    waits += 1;
                }
                _ => return (sent, is_repeated),
            }
        }
    }

    fn build(&self, asked: &Request<'_>, key: Option<&str>) -> RequestBuilder {
        let mut request = self.http.request(asked.method.clone(), self.url(asked.path)).bearer_auth(&self.token);
        request = request.timeout(TIMEOUT).header(header::ACCEPT, "application/json");
        for (name, value) in &asked.headers {
            request = request.header(*name, value);
        }
        if let Some(key) = key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        match asked.body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    /// What has become of a request, as far as that is known.
    fn outcome(&self, asked: &Request<'_>, sent: reqwest::Result<Reply>, is_repeated: bool) -> Result<Reply> {
        let is_unknown = asked.may_change() && is_unknown(&sent, is_repeated);
        let error = match sent {
            Ok(reply) if reply.status.is_success() => return Ok(reply),
            // The attempt whose response was lost has deleted it.
            Ok(reply) if is_repeated && asked.method == Method::DELETE && reply.status == StatusCode::NOT_FOUND => {
                return Ok(Reply { text: r#"{"message": "It is deleted."}"#.to_owned(), ..reply });
            }
            Ok(reply) => ClientError::of_response(reply.status, &reply.text),
            Err(error) => self.unreachable(&error),
        };
        let unknown = || ClientError::Uncertain(format!("it is unknown whether this took effect: {error}"));
        Err(if is_unknown { unknown() } else { error })
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

struct Request<'a> {
    method: Method,
    path: &'a str,
    body: Option<&'a Value>,
    headers: Vec<(&'static str, String)>,
}

impl<'a> Request<'a> {
    fn new(method: Method, path: &'a str) -> Self {
        Self { method, path, body: None, headers: Vec::new() }
    }

    fn of(change: &Change<'a>, is_dry_run: bool) -> Self {
        let condition = match change.condition {
            Condition::None => None,
            Condition::Version(version) => Some(("if-match", version.to_owned())),
            Condition::NewLabel => Some(("if-none-match", "*".to_owned())),
        };
        let dry_run = is_dry_run.then(|| (DRY_RUN, "true".to_owned()));
        let headers = condition.into_iter().chain(dry_run).collect();
        Self { method: change.method.clone(), path: change.path, body: change.body, headers }
    }

    fn may_change(&self) -> bool {
        self.method != Method::GET && self.headers.iter().all(|(name, _)| *name != DRY_RUN)
    }
}

struct Reply {
    status: StatusCode,
    headers: header::HeaderMap,
    text: String,
}

impl Reply {
    fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    }

    /// How long the service asks to wait.
    fn wait(&self) -> Duration {
        let seconds = self.header(header::RETRY_AFTER.as_str()).and_then(|text| text.parse().ok()).unwrap_or(1);
        Duration::from_secs(seconds).clamp(Duration::from_secs(1), LONGEST_WAIT)
    }
}

async fn receive(request: RequestBuilder) -> reqwest::Result<Reply> {
    let response = request.send().await?;
    let (status, headers) = (response.status(), response.headers().clone());
    Ok(Reply { status, headers, text: response.text().await? })
}

/// Whether the request may have been executed without its response arriving. Once that has happened, the service may
/// still be busy with it, or be down. With a key, it says so by a conflict.
fn is_lost(sent: &reqwest::Result<Reply>, is_repeated: bool, has_key: bool) -> bool {
    match sent {
        Err(error) => is_repeated || !is_unsent(error),
        Ok(reply) => match reply.status {
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => true,
            StatusCode::CONFLICT => is_repeated && has_key,
            StatusCode::SERVICE_UNAVAILABLE => is_repeated,
            _ => false,
        },
    }
}

/// Whether nobody can tell if a change was made. What the service refuses after it has looked at the resource was not
/// made by an earlier attempt either.
fn is_unknown(sent: &reqwest::Result<Reply>, is_repeated: bool) -> bool {
    match sent {
        Err(error) => is_repeated || !is_unsent(error),
        Ok(reply) => match reply.status {
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE => is_repeated,
            status => status.is_server_error(),
        },
    }
}

/// Whether the service cannot have received the request.
fn is_unsent(error: &reqwest::Error) -> bool {
    error.is_connect() || error.is_builder()
}

fn data(mut answer: Value) -> Value {
    match answer.get_mut("data") {
        Some(data) => data.take(),
        None => answer,
    }
}

#[cfg(test)]
mod tests;
