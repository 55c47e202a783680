//! Requests to providers: through the guarded client, within limits, and without following redirects.

use std::sync::Arc;
use std::time::Duration;

use holdfast_app::refusal::Conflict;
use holdfast_app::{AppError, Result};
use holdfast_core::network::Network;
use holdfast_engine::Egress;
use holdfast_engine::egress::{self, Limits};
use reqwest::RequestBuilder;
use serde_json::Value;
use url::Url;

/// Short, because a user is waiting for the page.
const LIMITS: Limits = Limits { connect: Duration::from_secs(10), total: Duration::from_secs(15) };
/// Far longer than any response about one user.
const ANSWER_BYTES: usize = 256 * 1024;

pub(crate) struct Web {
    egress: Arc<Egress>,
    ca_pem: Option<Vec<u8>>,
}

impl Web {
    pub(crate) fn new(allow: Vec<Network>, ca_pem: Option<Vec<u8>>) -> Self {
        // Private addresses are allowed: the operator configures where providers are.
        Self { egress: Arc::new(Egress { allow_private: true, allowed: allow }), ca_pem }
    }

    /// A client for this address, and the address itself.
    pub(crate) fn at(&self, address: &str) -> Result<(reqwest::Client, Url)> {
        let url = parse(address)?;
        let client = egress::client(&url, &self.egress, self.ca_pem.as_deref(), LIMITS);
        Ok((client.map_err(|error| unavailable(error.message))?, url))
    }
}

/// Unencrypted only on this machine: whoever could change a response could impersonate any user.
pub(crate) fn parse(address: &str) -> Result<Url> {
    let url = Url::parse(address).map_err(|_| unavailable(format!("{address} is not a URL")))?;
    let is_local = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    if url.scheme() != "https" && !is_local {
        return Err(unavailable(format!("{address} is not https")));
    }
    Ok(url)
}

/// Sends the fields as a form in the body.
pub(crate) fn form(request: RequestBuilder, fields: &[(&str, &str)]) -> RequestBuilder {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    request.header("content-type", "application/x-www-form-urlencoded").body(body)
}

/// Sends the request and returns the response as JSON; any status but success is a refusal.
pub(crate) async fn json(request: RequestBuilder) -> Result<Value> {
    let answer = request.header("accept", "application/json").send().await;
    let mut answer = answer.map_err(|error| unavailable(error.without_url().to_string()))?;
    let status = answer.status();
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| unavailable(error.without_url().to_string()))? {
        if bytes.len() + chunk.len() > ANSWER_BYTES {
            return Err(unavailable("the response is too long"));
        }
        bytes.extend_from_slice(&chunk);
    }
    if !status.is_success() {
        // The provider's message holds no secret of ours, so it is logged, but it is not shown to users.
        let said = String::from_utf8_lossy(&bytes).chars().take(200).collect::<String>();
        tracing::warn!(%status, said, "a sign-in provider refused");
        return Err(refused());
    }
    serde_json::from_slice(&bytes).map_err(|_| unavailable("the response is not JSON"))
}

pub(crate) fn unavailable(reason: impl std::fmt::Display) -> AppError {
    AppError::busy(format!("sign-in provider: {reason}"))
}

/// The provider did not confirm who the user is.
pub(crate) fn refused() -> AppError {
    AppError::Conflict(Conflict::SignInNotConfirmed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_called_over_https() {
        assert!(parse("https://id.example.org/x").is_ok() && parse("http://127.0.0.1:1/x").is_ok());
        assert!(parse("http://id.example.org").is_err() && parse("rubbish").is_err());
    }
}
