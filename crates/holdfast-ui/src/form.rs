//! Submitted forms: their fields, and protection against cross-site request forgery.

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use holdfast_app::Context;
use holdfast_core::fields::{FieldKind, FieldSpec};
use holdfast_core::input::{Field, Input, Value};
use holdfast_core::random;

use crate::cookies::browser_secret;
use crate::problem::PageError;

/// The largest accepted form: a task with the maximum of excluded paths, each character percent-encoded.
const MAX_BYTES: usize = 1024 * 1024;

const READ_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);

/// The fields of a form that was sent from one of our pages: its origin is ours, and it carries the CSRF token that we
/// put into the page for this browser.
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
        let bytes = read.map_err(|_| PageError::Forged)?.map_err(|_| PageError::TooLarge)?;
        let form = Self { fields: url::form_urlencoded::parse(&bytes).into_owned().collect() };
        let secret = browser_secret(&headers);
        if !secret.is_some_and(|secret| is_own_token(&secret, &form.text("csrf"))) {
            return Err(PageError::Forged);
        }
        Ok(form)
    }
}

impl Form {
    /// The query of a URL as a form.
    pub(crate) fn of_query(query: Option<&str>) -> Self {
        // PostgreSQL rejects NUL characters in text. Replaced, a search for one finds nothing on every database.
        let visible = |text: String| text.replace('\0', "\u{fffd}");
        let fields = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned();
        Self { fields: fields.map(|(name, value)| (visible(name), visible(value))).collect() }
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.texts(name).next().unwrap_or_default().to_owned()
    }

    pub(crate) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.fields.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.texts(name).any(|value| value == "on")
    }

    /// The input for a use case: each of the listed fields with its value in the form. A field that does not apply is
    /// null, or `false`.
    pub(crate) fn input(&self, fields: impl Iterator<Item = &'static FieldSpec>) -> Input {
        let mut input = Input::default();
        for field in fields {
            let applies = field.applies(|name| self.text(name));
            match self.value(field) {
                Some(Value::Bool(is_on)) => input.set(field.name, applies && is_on),
                Some(_) if !applies => input.set(field.name, Value::Null),
                Some(value) => input.set(field.name, value),
                None => {}
            }
        }
        input
    }

    /// `None` if the form does not have the field or leaves a secret unchanged.
    fn value(&self, field: &FieldSpec) -> Option<Value> {
        let name = field.name;
        let typed = self.texts(name).next();
        match field.kind {
            FieldKind::Switch => Some(Value::Bool(self.is_on(name))),
            FieldKind::Ids { .. } => Some(Value::from(self.numbers(name))),
            FieldKind::Lines { .. } => {
                let lines = typed?.lines().map(str::trim).filter(|line| !line.is_empty());
                Some(Value::from(lines.collect::<Vec<_>>()))
            }
            FieldKind::Id | FieldKind::Integer { .. } => match typed?.trim() {
                "" => Some(Value::Null),
                text => Some(text.parse::<i64>().map_or(Value::Other, Value::Integer)),
            },
            FieldKind::Secret { .. } => match self.secret(name) {
                Field::Value(text) => Some(Value::from(text)),
                Field::Null => Some(Value::Null),
                Field::Absent | Field::WrongType => None,
            },
            FieldKind::Line { .. } | FieldKind::Paragraph { .. } | FieldKind::Choice(_) => match typed? {
                "" if field.is_nullable => Some(Value::Null),
                text => Some(Value::from(text)),
            },
        }
    }

    /// An optional field; null if it is empty.
    pub(crate) fn optional(&self, name: &str) -> Field<String> {
        match self.texts(name).next() {
            Some("") => Field::Null,
            Some(text) => Field::Value(text.to_owned()),
            None => Field::Absent,
        }
    }

    /// A required field. The use case rejects it if it is empty.
    pub(crate) fn required(&self, name: &str) -> Field<String> {
        self.texts(name).next().map_or(Field::Absent, |text| Field::Value(text.to_owned()))
    }

    /// A secret: unchanged if the field is empty, unless its removal was requested. What was typed is never lost.
    pub(crate) fn secret(&self, name: &str) -> Field<String> {
        match self.texts(name).next() {
            None | Some("") if self.is_on(&format!("remove_{name}")) => Field::Null,
            None | Some("") => Field::Absent,
            Some(text) => Field::Value(text.to_owned()),
        }
    }

    pub(crate) fn number(&self, name: &str) -> Field<i64> {
        match self.texts(name).next().map(str::trim) {
            None => Field::Absent,
            Some("") => Field::Null,
            Some(text) => text.parse().map_or(Field::WrongType, Field::Value),
        }
    }

    /// The values of all selected checkboxes.
    pub(crate) fn numbers(&self, name: &str) -> Vec<i64> {
        self.texts(name).filter_map(|text| text.parse().ok()).collect()
    }
}

/// The CSRF token of a page for the browser with this secret. A new mask each time prevents attacks that infer the
/// token from the length of the compressed page (BREACH).
pub(crate) fn csrf_token(browser_secret: &str) -> String {
    let mask = random::bytes::<32>();
    let masked = mixed(&digest(browser_secret), &mask);
    format!("{}{}", random::hex(&mask), random::hex(&masked))
}

fn is_own_token(browser_secret: &str, given: &str) -> bool {
    let Some((mask, masked)) = given.split_at_checked(64) else { return false };
    let (Some(mask), Some(masked)) = (unhex(mask), unhex(masked)) else { return false };
    random::equal(&mixed(&mask, &masked), &digest(browser_secret))
}

fn digest(browser_secret: &str) -> [u8; 32] {
    random::digest(&format!("csrf {browser_secret}"))
}

fn mixed(a: &[u8; 32], b: &[u8; 32]) -> [u8; 32] {
    std::array::from_fn(|place| a[place] ^ b[place])
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    random::from_hex(text)?.try_into().ok()
}

/// Browsers send `Origin` with every form. It must match either the base URL or the `Host` header, because a proxy may
/// change one of them.
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
    fn forms_from_other_sites_are_recognized() {
        let is_own = |origin: &str, base_url: Option<&str>| {
            is_own_origin(&headers(&[("origin", origin), ("host", "127.0.0.1:8080")]), base_url)
        };
        assert!(is_own("http://127.0.0.1:8080", None));
        assert!(is_own("https://backup.example.org", Some("https://backup.example.org")));
        assert!(!is_own("http://evil.example", Some("https://backup.example.org")));
        assert!(!is_own("null", None));
    }

    #[test]
    fn a_token_is_for_one_browser_and_never_the_same_twice() {
        let (first, second) = (csrf_token("a"), csrf_token("a"));
        assert_ne!(first, second);
        assert!(is_own_token("a", &first) && is_own_token("a", &second));
        for wrong in ["", "00", &csrf_token("b"), &first[1..], &format!("{first}0"), "ü"] {
            assert!(!is_own_token("a", wrong), "{wrong}");
        }
    }

    #[test]
    fn empty_fields_are_null_and_empty_secrets_are_unchanged() {
        let form = Form::of_query(Some("a=&b=x&n=7&bad=x&remove_s=on&t=&remove_b=on"));
        assert!(matches!(form.optional("a"), Field::Null) && matches!(form.optional("c"), Field::Absent));
        assert!(matches!(form.number("n"), Field::Value(7)) && matches!(form.number("bad"), Field::WrongType));
        assert!(matches!(form.secret("s"), Field::Null) && matches!(form.secret("t"), Field::Absent));
        assert!(matches!(form.secret("b"), Field::Value(_)));
    }
}
