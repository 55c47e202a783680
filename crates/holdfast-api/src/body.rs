//! Reading request bodies: JSON whatever the declared type, an object at the root, each field judged on its own.

use axum::extract::{FromRequest, Request};
use holdfast_core::input::{self, Field, Input};
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The largest body that is read: room for the longest valid task several times over.
pub(crate) const MAX_BYTES: usize = 256 * 1024;

/// How long a client may take to send it: 256 KiB at 10 kB/s.
const READ_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);

/// The bytes of a body. They are parsed by the handler once it knows that the resource exists and whose it is.
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
                // Either the limit, or a client that went away; the latter hears no answer anyway.
                tracing::debug!(%error, "reading a body");
                Err(ApiError::TooLarge)
            }
            Err(_) => Err(ApiError::BadRequest("The request body did not arrive in time.".to_owned())),
        }
    }
}

impl Body {
    /// For routes that need none: nothing at all is an empty object.
    pub(crate) fn optional_object(&self) -> Result<Object, ApiError> {
        if self.0.is_empty() { Ok(Object::default()) } else { self.object() }
    }

    /// All fields of an object, for the checks to look into.
    pub(crate) fn input(&self) -> Result<Input, ApiError> {
        let Object(fields) = self.object()?;
        Ok(fields.into_iter().map(|(name, json)| (name, value(json))).collect())
    }

    pub(crate) fn object(&self) -> Result<Object, ApiError> {
        match serde_json::from_slice(&self.0) {
            Ok(Value::Object(fields)) => Ok(Object(fields)),
            Ok(_) => Err(ApiError::BadRequest("The request body must be a JSON object.".to_owned())),
            Err(error) => Err(ApiError::BadRequest(format!(
                "The request body is not valid JSON (line {}, column {}).",
                error.line(),
                error.column()
            ))),
        }
    }
}

/// A JSON value as the checks take it. JSON has one kind of number: `5.0` is the integer 5.
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

/// A JSON object whose fields are taken out by name. Those nobody asks for are ignored.
#[derive(Default)]
pub(crate) struct Object(Map<String, Value>);

impl Object {
    pub(crate) fn text(&self, name: &str) -> Field<String> {
        self.field(name, |value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn integer(&self, name: &str) -> Field<i64> {
        self.field(name, whole_number)
    }

    pub(crate) fn boolean(&self, name: &str) -> Field<bool> {
        self.field(name, Value::as_bool)
    }

    pub(crate) fn texts(&self, name: &str) -> Field<Vec<String>> {
        self.field(name, |value| value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect())
    }

    /// A nested object; `None` when something else stands there.
    pub(crate) fn object(&self, name: &str) -> Option<Object> {
        match self.0.get(name) {
            None => Some(Object::default()),
            Some(Value::Object(fields)) => Some(Object(fields.clone())),
            Some(_) => None,
        }
    }

    /// A nested object that may be absent, null, or something else.
    pub(crate) fn nested(&self, name: &str) -> Field<Object> {
        self.field(name, |value| value.as_object().cloned().map(Object))
    }

    fn field<T>(&self, name: &str, read: impl FnOnce(&Value) -> Option<T>) -> Field<T> {
        match self.0.get(name) {
            None => Field::Absent,
            Some(Value::Null) => Field::Null,
            Some(value) => read(value).map_or(Field::WrongType, Field::Value),
        }
    }
}

/// JSON has one kind of number: `5.0` is the integer 5.
fn whole_number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let float = value.as_f64()?;
        let limit = 2f64.powi(53);
        (float.fract() == 0.0 && float.abs() <= limit).then_some(float as i64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &'static str) -> Object {
        Body(text.into()).object().unwrap()
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
            assert!(matches!(Body(text.into()).object(), Err(ApiError::BadRequest(_))), "{text}");
        }
    }
}
