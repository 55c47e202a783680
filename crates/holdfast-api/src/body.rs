//! Request bodies: a JSON object, whatever the declared content type. Each field is validated separately.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use holdfast_core::input::{self, Errors, Input};
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::error::ApiError;
use crate::preferences::{KnownFields, TypedFields};

/// The largest accepted body: several times the size of the longest valid task.
pub(crate) const MAX_BYTES: usize = 256 * 1024;

/// How much of a body that is too large is read on.
const MOST_DROPPED: usize = 4 * 1024 * 1024;

/// How long a client may take to send a body: 256 KiB at 10 kB/s.
const READ_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);

/// The bytes of a body. The handler parses them after it has checked that the resource exists and who owns it.
pub(crate) struct Body {
    bytes: Bytes,
    /// What the fields must be, if the client wants others to be refused.
    known: Option<KnownFields>,
}

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (head, body) = request.into_parts();
        let bytes = read(&head.headers, body).await?;
        Ok(Self { bytes, known: head.extensions.get().cloned() })
    }
}

/// Reads a body, within the limits on its size and its time.
pub(crate) async fn read(headers: &HeaderMap, body: axum::body::Body) -> Result<Bytes, ApiError> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let is_too_large = declared.is_some_and(|bytes| bytes > MAX_BYTES);
    let read = tokio::time::timeout(READ_WITHIN, read_all(body, is_too_large)).await;
    read.unwrap_or_else(|_| Err(ApiError::BadRequest("The request body did not arrive in time.".to_owned())))
}

/// Reads a body to its end. What is too large is read on for a while and dropped: a client that is still sending when
/// the connection is closed does not see the response.
async fn read_all(mut body: axum::body::Body, mut is_too_large: bool) -> Result<Bytes, ApiError> {
    let (mut kept, mut dropped) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            // The client has disconnected, and will not see the response.
            tracing::debug!(%error, "could not read a request body");
            ApiError::BadRequest("The request body is incomplete.".to_owned())
        })?;
        let Ok(data) = frame.into_data() else { continue };
        is_too_large |= kept.len() + data.len() > MAX_BYTES;
        if is_too_large {
            dropped += data.len();
            if dropped > MOST_DROPPED {
                break;
            }
        } else {
            kept.extend_from_slice(&data);
        }
    }
    if is_too_large { Err(ApiError::TooLarge) } else { Ok(kept.into()) }
}

impl Body {
    /// For routes that do not require a body: an empty body is read as an empty object.
    pub(crate) fn optional_input(&self) -> Result<Input, ApiError> {
        if self.bytes.is_empty() { Ok(Input::default()) } else { self.input() }
    }

    /// The fields of the body, for validation. Unknown fields are ignored, unless the client wants them to be refused.
    pub(crate) fn input(&self) -> Result<Input, ApiError> {
        let input = self.fields()?;
        let mut errors = Errors::default();
        if let Some(known) = &self.known {
            known.check(&input, &mut errors);
        }
        if errors.is_empty() { Ok(input) } else { Err(errors.into()) }
    }

    /// Like `input`, for a resource that has a type. Fields of other types are ignored. If the client wants unknown
    /// fields to be refused, these are refused as well, unless they are null.
    pub(crate) fn typed_input(&self, kinds: &TypedFields) -> Result<Input, ApiError> {
        let input = self.input()?;
        let mut errors = Errors::default();
        if self.known.is_some() {
            kinds.check(&input, &mut errors);
        }
        if errors.is_empty() { Ok(input) } else { Err(errors.into()) }
    }

    fn fields(&self) -> Result<Input, ApiError> {
        match serde_json::from_slice(&self.bytes).map(value) {
            Ok(input::Value::Object(fields)) => Ok(fields),
            Ok(_) => Err(ApiError::BadRequest("The request body must be a JSON object.".to_owned())),
            Err(error) => Err(ApiError::BadRequest(format!(
                "The request body is not valid JSON (line {}, column {}).",
                error.line(),
                error.column()
            ))),
        }
    }
}

/// Converts a JSON value to the type that the validation rules take.
fn value(json: Value) -> input::Value {
    match json {
        Value::Null => input::Value::Null,
        Value::Bool(value) => input::Value::Bool(value),
        Value::Number(_) => whole_number(&json).map_or(input::Value::Other, input::Value::Integer),
        Value::String(text) => input::Value::Text(text),
        Value::Array(items) => input::Value::List(items.into_iter().map(value).collect()),
        Value::Object(fields) => {
            input::Value::Object(fields.into_iter().map(|(name, json)| (name, value(json))).collect())
        }
    }
}

/// JSON has only one number type, so `5.0` is accepted as the integer 5.
fn whole_number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let float = value.as_f64()?;
        let limit = 2f64.powi(53);
        (float.fract() == 0.0 && float.abs() <= limit).then_some(float as i64)
    })
}

#[cfg(test)]
mod tests {
    use holdfast_core::input::Field;

    use super::*;

    fn body(text: &'static str) -> Body {
        Body { bytes: text.into(), known: None }
    }

    fn object(text: &'static str) -> Input {
        body(text).input().unwrap()
    }

    #[test]
    fn each_field_is_absent_null_wrong_or_a_value() {
        let body = object(r#"{"a": "x", "b": null, "c": 5.0, "d": [1, "2"], "e": 1.5, "f": 9223372036854775808}"#);
        assert_eq!(body.text("a"), Field::Value("x".into()));
        assert_eq!(body.text("b"), Field::Null);
        assert_eq!(body.text("missing"), Field::Absent);
        assert_eq!(body.integer("a"), Field::WrongType);
        assert_eq!(body.integer("c"), Field::Value(5));
        assert_eq!(body.integer("e"), Field::WrongType);
        assert_eq!(body.integer("f"), Field::WrongType);
    }

    #[test]
    fn anything_but_an_object_is_a_bad_request() {
        for text in ["", "[]", "null", "\"x\"", "{", "{\"a\": \"\\ud800\"}"] {
            assert!(matches!(body(text).input(), Err(ApiError::BadRequest(_))), "{text}");
        }
    }
}
