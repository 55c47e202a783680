//! API calls: they wait when the service limits their rate, and their errors are sorted by what to do about them.

use std::time::Duration;

use reqwest::{Method, Response, StatusCode, header};
use serde_json::Value;
use url::Url;

/// The time limit of a call; of a download, for each read.
const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(10);
/// Rows per page of a list: the most that the service returns.
const PER_PAGE: i64 = 100;
/// How many times a call waits and tries again after "too many requests".
const MOST_WAITS: usize = 5;
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Why a call failed, sorted by what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0}")]
    Settings(String),
    #[error("cannot reach {url}: {reason}")]
    Unreachable { url: String, reason: String },
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Missing(String),
    /// The service understood the request and refused it.
    #[error("{0}")]
    Refused(String),
    #[error("the service has trouble of its own ({status}): {text}")]
    Broken { status: u16, text: String },
}

pub type Result<T, E = ClientError> = std::result::Result<T, E>;

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: String,
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

    /// All pages of a list, up to `most` rows.
    pub async fn list(&self, path: &str, query: &[(&str, &str)], most: usize) -> Result<Vec<Value>> {
        let mut rows = Vec::new();
        for page in 1_i64.. {
            let mut pairs = url::form_urlencoded::Serializer::new(String::new());
            pairs.extend_pairs(query).append_pair("page", &page.to_string());
            pairs.append_pair("per_page", &PER_PAGE.to_string());
            let answer = self.call(Method::GET, &format!("{path}?{}", pairs.finish()), None).await?;
            let found = answer["data"].as_array().cloned().unwrap_or_default();
            let is_last = answer["meta"]["last_page"].as_i64().is_none_or(|last| page >= last) || found.is_empty();
            rows.extend(found);
            if is_last || rows.len() >= most {
                break;
            }
        }
        rows.truncate(most);
        Ok(rows)
    }

    /// Starts a download; the caller reads its bytes.
    pub async fn download(&self, path: &str) -> Result<Response> {
        let request = self.http.get(self.url(path)).bearer_auth(&self.token);
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        Err(explain(status, &response.text().await.unwrap_or_default()))
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        for attempt in 0.. {
            let mut request = self.http.request(method.clone(), self.url(path)).bearer_auth(&self.token);
            request = request.timeout(TIMEOUT).header(header::ACCEPT, "application/json");
            if let Some(body) = body {
                request = request.json(body);
            }
            let response = request.send().await.map_err(|error| self.unreachable(&error))?;
            let status = response.status();
            if status == StatusCode::TOO_MANY_REQUESTS && attempt < MOST_WAITS {
                tokio::time::sleep(wait_of(&response)).await;
                continue;
            }
            let text = response.text().await.map_err(|error| self.unreachable(&error))?;
            if !status.is_success() {
                return Err(explain(status, &text));
            }
            let odd = || ClientError::Refused(format!("{} does not answer like a Holdfast service", self.base));
            return if text.is_empty() { Ok(Value::Null) } else { serde_json::from_str(&text).map_err(|_| odd()) };
        }
        Ok(Value::Null)
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

/// The error of a response, with its message in one line.
fn explain(status: StatusCode, text: &str) -> ClientError {
    let body: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let mut said = body["message"].as_str().unwrap_or(text.lines().next().unwrap_or_default()).to_owned();
    if let Some(errors) = body["errors"].as_object() {
        let texts = errors.values().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
        said = texts.collect::<Vec<_>>().join(" ");
    }
    match status {
        StatusCode::UNAUTHORIZED => ClientError::Denied(format!("the token is not accepted: {said}")),
        StatusCode::FORBIDDEN => ClientError::Denied(said),
        StatusCode::NOT_FOUND => ClientError::Missing(said),
        status if status.is_server_error() => ClientError::Broken { status: status.as_u16(), text: said },
        status if status.is_redirection() => {
            ClientError::Settings(format!("the service answers with a redirect ({status}); use its exact address"))
        }
        _ => ClientError::Refused(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_one_line() {
        let errors = r#"{"message": "Invalid.", "errors": {"label": ["Too long."], "port": ["No number."]}}"#;
        let refused = explain(StatusCode::UNPROCESSABLE_ENTITY, errors);
        assert_eq!(refused.to_string(), "Too long. No number.");
        assert!(matches!(explain(StatusCode::NOT_FOUND, "<html>"), ClientError::Missing(_)));
        assert!(
            matches!(explain(StatusCode::BAD_GATEWAY, "x\ny"), ClientError::Broken { status: 502, text } if text == "x")
        );
    }

    #[test]
    fn invalid_urls_are_refused() {
        for wrong in ["", "backup.example.org", "ftp://backup.example.org"] {
            assert!(matches!(Client::new(wrong, "t", None), Err(ClientError::Settings(_))), "{wrong}");
        }
    }
}
