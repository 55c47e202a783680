//! Request bodies: a JSON object, whatever the declared content type. Each field is validated separately.

use axum::extract::{FromRequest, Request};
use holdfast_core::input::{self, Input};
use serde_json::Value;

use crate::error::ApiError;

/// The largest accepted body: several times the size of the longest valid task.
pub(crate) const MAX_BYTES: usize = 256 * 1024;

/// How long a client may take to send a body: 256 KiB at 10 kB/s.
const READ_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);

/// The bytes of a body. The handler parses them after it has checked that the resource exists and who owns it.
pub(crate) struct Body(axum::body::Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let declared = request.headers().get(axum::http::header::CONTENT_LENGTH);
        let declared = declared.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if declared.is_some_and(|bytes| bytes > MAX_BYTES) {
            return Err(ApiError::TooLarge);
        }
        let read = tokio::time::timeout(READ_WITHIN, axum::body::to_bytes(request.into_body(), MAX_BYTES));
        match read.await {
            Ok(Ok(bytes)) => Ok(Self(bytes)),
            Ok(Err(error)) => {
                // Either the limit was exceeded or the client disconnected and will not see the response anyway.
                tracing::debug!(%error, "could not read a request body");
                Err(ApiError::TooLarge)
            }
            Err(_) => Err(ApiError::BadRequest("The request body did not arrive in time.".to_owned())),
        }
    }
}

impl Body {
    /// For routes that do not require a body: an empty body is read as an empty object.
    pub(crate) fn optional_input(&self) -> Result<Input, ApiError> {
        if self.0.is_empty() { Ok(Input::default()) } else { self.input() }
    }

    /// The fields of the body, for validation. Unknown fields are ignored.
    pub(crate) fn input(&self) -> Result<Input, ApiError> {
        match serde_json::from_slice(&self.0).map(value) {
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

    fn object(text: &'static str) -> Input {
        Body(text.into()).input().unwrap()
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
            assert!(matches!(Body(text.into()).input(), Err(ApiError::BadRequest(_))), "{text}");
        }
    }
}
