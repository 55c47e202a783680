//! Forms: their fields, and proof that they came from our own pages.

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use holdfast_app::Context;
use holdfast_core::random;

use crate::page::PageError;
use crate::session;

/// The largest form: the token form with every scope is under 1 KiB.
const MAX_BYTES: usize = 16 * 1024;

const READ_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);

/// The fields of a form that was sent from one of our pages: its origin is ours, and it carries the token that we put
/// into the page for this browser.
pub(crate) struct Form {
    fields: Vec<(String, String)>,
}

impl<S: Send + Sync> FromRequest<S> for Form {
    type Rejection = PageError;

    async fn from_request(request: Request, _: &S) -> Result<Self, PageError> {
        let headers = request.headers().clone();
        let base_url = request.extensions().get::<Context>().map(|context| context.base_url.clone());
        if !is_own_origin(&headers, base_url.as_deref()) {
            return Err(PageError::Forged);
        }
        let read = tokio::time::timeout(READ_WITHIN, axum::body::to_bytes(request.into_body(), MAX_BYTES)).await;
        let bytes = read.map_err(|_| PageError::Forged)?.map_err(|_| PageError::Forged)?;
        let form = Self { fields: url::form_urlencoded::parse(&bytes).into_owned().collect() };
        let expected = session::browser_secret(&headers).map(|secret| csrf_token(&secret));
        let given = form.text("csrf");
        if expected.is_none_or(|expected| !random::equal(expected.as_bytes(), given.as_bytes())) {
            return Err(PageError::Forged);
        }
        Ok(form)
    }
}

impl Form {
    pub(crate) fn text(&self, name: &str) -> String {
        self.texts(name).next().unwrap_or_default().to_owned()
    }

    pub(crate) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.fields.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What a page carries for the browser with this secret.
pub(crate) fn csrf_token(browser_secret: &str) -> String {
    random::hex(&random::digest(&format!("csrf {browser_secret}")))
}

/// Browsers send `Origin` with every form. It must be where people reach us, or name the host that was asked: a proxy
/// may change the one or the other.
fn is_own_origin(headers: &HeaderMap, base_url: Option<&str>) -> bool {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = text(header::ORIGIN) else { return true };
    if Some(origin) == base_url {
        return true;
    }
    let host = origin.split_once("://").map(|(_, host)| host);
    host.is_some() && host == text(header::HOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn forms_from_other_sites_are_told_from_our_own() {
        let is_own = |origin: &str, base_url: Option<&str>| {
            is_own_origin(&headers(&[("origin", origin), ("host", "127.0.0.1:8080")]), base_url)
        };
        assert!(is_own("http://127.0.0.1:8080", None));
        assert!(is_own("https://backup.example.org", Some("https://backup.example.org")));
        assert!(!is_own("http://evil.example", Some("https://backup.example.org")));
        assert!(!is_own("null", None));
    }
}
