//! An API client with one token, and replies that print their body when an assertion fails.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::Value;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base_url: String,
    token: Option<String>,
}

/// The response to a request.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
    /// Null when the body is not JSON.
    pub body: Value,
}

impl Client {
    pub fn new(base_url: &str, token: Option<&str>) -> Self {
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
        let http = http.expect("a client without TLS");
        Self { http, base_url: base_url.to_owned(), token: token.map(str::to_owned) }
    }

    /// A client with another source address; all of 127.0.0.0/8 is loopback.
    #[must_use]
    pub fn from_address(&self, address: std::net::Ipv4Addr) -> Self {
        let http =
            reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).local_address(Some(address.into()));
        Self { http: http.build().expect("a client without TLS"), ..self.clone() }
    }

    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    #[must_use]
    pub fn without_token(&self) -> Self {
        Self { token: None, ..self.clone() }
    }

    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    pub fn token(&self) -> &str {
        self.token.as_deref().unwrap_or_default()
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(Method::POST, path, Some(body.to_string())).await
    }

    /// A POST without a body, for actions.
    pub async fn act(&self, path: &str) -> Reply {
        self.send(Method::POST, path, None).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Reply {
        self.send(Method::PUT, path, Some(body.to_string())).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, None).await
    }

    pub async fn send(&self, method: Method, path: &str, body: Option<String>) -> Reply {
        let mut request = self.http.request(method, format!("{}{path}", self.base_url));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        self.finish(request).await
    }

    /// Polls until the response satisfies the condition; panics when it takes too long.
    pub async fn wait_for(&self, path: &str, mut is_wanted: impl FnMut(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path).await.expect(200);
            if is_wanted(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{path} is still {answer}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Runs a task now, waits until it succeeds, and returns its log.
    pub async fn run_task(&self, task: i64) -> Value {
        self.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        let path = format!("/api/backup-tasks/{task}/latest-log");
        let log = self.wait_for(&path, |log| log["data"]["finished_at"].is_string()).await["data"].clone();
        assert_eq!(log["status"], "successful", "{log}");
        log
    }

    /// A request builder for the same service, without the token.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base_url))
    }

    /// A request to any URL, as a browser makes when it follows a redirect.
    pub fn absolute(&self, method: Method, url: &str) -> reqwest::RequestBuilder {
        self.http.request(method, url)
    }

    pub async fn finish(&self, request: reqwest::RequestBuilder) -> Reply {
        let mut response = request.send().await.expect("the service answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = if headers.get("content-type").is_some_and(|kind| kind == "text/event-stream") {
            // It does not end by itself.
            let first = response.chunk().await.expect("the beginning of an answer").unwrap_or_default();
            String::from_utf8_lossy(&first).into_owned()
        } else {
            response.text().await.expect("a whole answer")
        };
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Reply { status, headers, text, body }
    }
}

impl Reply {
    /// The body of a response, which must have the given status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    /// The `data` of a response, which must have the given status.
    #[track_caller]
    pub fn data(self, status: u16) -> Value {
        self.expect(status)["data"].clone()
    }

    #[track_caller]
    pub fn id(self, status: u16) -> i64 {
        let data = self.data(status);
        data["id"].as_i64().unwrap_or_else(|| panic!("no id in {data}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The first error of a field in a 422 response.
    #[track_caller]
    pub fn error_of(self, field: &str) -> String {
        let body = self.expect(422);
        assert_eq!(body["error"], "Validation Error");
        assert_eq!(body["message"], "The given data was invalid.");
        let text = body["errors"][field][0].as_str();
        text.unwrap_or_else(|| panic!("no error under {field}: {body}")).to_owned()
    }
}
