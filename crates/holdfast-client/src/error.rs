//! Why a call failed, sorted by what to do about it.

use std::collections::BTreeMap;

use reqwest::StatusCode;
use serde_json::Value;

#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    #[error("{0}")]
    Settings(String),
    #[error("cannot reach {url}: {reason}")]
    Unreachable { url: String, reason: String },
    /// A change may have been made: its response was lost, also when it was sent again.
    #[error("{0}")]
    Uncertain(String),
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Missing(String),
    /// Several resources have the label that was given.
    #[error("{0}")]
    Ambiguous(String),
    /// The state of the resource does not allow it now.
    #[error("{0}")]
    Conflict(String),
    /// It is not in the version that the request was about, or its label is in use by now.
    #[error("{0}")]
    Outdated(String),
    /// Fields are invalid: their errors by name.
    #[error("{message}")]
    Invalid { message: String, errors: BTreeMap<String, Vec<String>> },
    /// The limit on requests was still exceeded after several waits.
    #[error("{0}")]
    TooManyRequests(String),
    /// The service understood the request and refused it for another reason.
    #[error("{0}")]
    Refused(String),
    #[error("the service has trouble of its own ({status}): {text}")]
    Broken { status: u16, text: String },
}

impl ClientError {
    /// Whether the service refused a request because of what it has: after a change by somebody else, another request may
    /// be right.
    pub fn is_about_state(&self) -> bool {
        matches!(self, Self::Outdated(_) | Self::Missing(_) | Self::Conflict(_) | Self::Invalid { .. })
    }

    /// The same error, with what it is about before the service's message.
    #[must_use]
    pub fn about(self, what: &str) -> Self {
        let of = |text: String| format!("{what}: {text}");
        match self {
            Self::Settings(text) => Self::Settings(of(text)),
            Self::Denied(text) => Self::Denied(of(text)),
            Self::Uncertain(text) => Self::Uncertain(of(text)),
            Self::Missing(text) => Self::Missing(of(text)),
            Self::Ambiguous(text) => Self::Ambiguous(of(text)),
            Self::Conflict(text) => Self::Conflict(of(text)),
            Self::Outdated(text) => Self::Outdated(of(text)),
            Self::Invalid { message, errors } => Self::Invalid { message: of(message), errors },
            Self::TooManyRequests(text) => Self::TooManyRequests(of(text)),
            Self::Refused(text) => Self::Refused(of(text)),
            Self::Broken { status, text } => Self::Broken { status, text: of(text) },
            Self::Unreachable { url, reason } => Self::Unreachable { url, reason },
        }
    }

    /// Invalid fields, with all that is wrong in one line.
    pub(crate) fn invalid(errors: BTreeMap<String, Vec<String>>) -> Self {
        let message = errors.values().flatten().map(String::as_str).collect::<Vec<_>>().join(" ");
        Self::Invalid { message, errors }
    }

    /// The error of a response, with its message in one line.
    pub(crate) fn of_response(status: StatusCode, text: &str) -> Self {
        let body: Value = serde_json::from_str(text).unwrap_or(Value::Null);
        let said = body["message"].as_str().unwrap_or(text.lines().next().unwrap_or_default()).to_owned();
        let errors = errors_of(&body);
        let message = if errors.is_empty() {
            said
        } else {
            errors.values().flatten().map(String::as_str).collect::<Vec<_>>().join(" ")
        };
        match status {
            StatusCode::UNAUTHORIZED => Self::Denied(format!("the token is not accepted: {message}")),
            StatusCode::FORBIDDEN => Self::Denied(message),
            StatusCode::NOT_FOUND => Self::Missing(message),
            StatusCode::CONFLICT => Self::Conflict(message),
            StatusCode::PRECONDITION_FAILED => Self::Outdated(message),
            StatusCode::UNPROCESSABLE_ENTITY => Self::Invalid { message, errors },
            StatusCode::TOO_MANY_REQUESTS => Self::TooManyRequests(message),
            status if status.is_server_error() => Self::Broken { status: status.as_u16(), text: message },
            status if status.is_redirection() => {
                Self::Settings(format!("the service answers with a redirect ({status}); use its exact address"))
            }
            _ => Self::Refused(message),
        }
    }
}

fn errors_of(body: &Value) -> BTreeMap<String, Vec<String>> {
    let texts = |texts: &Value| {
        texts.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let fields = body["errors"].as_object().into_iter().flatten();
    fields.map(|(field, errors)| (field.clone(), texts(errors))).filter(|(_, texts)| !texts.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_one_line() {
        let errors = r#"{"message": "Invalid.", "errors": {"label": ["Too long."], "port": ["No number."]}}"#;
        let refused = ClientError::of_response(StatusCode::UNPROCESSABLE_ENTITY, errors);
        assert_eq!(refused.to_string(), "Too long. No number.");
        let refused = refused.about("task \"a\"");
        assert_eq!(refused.to_string(), "task \"a\": Too long. No number.");
        let ClientError::Invalid { errors, .. } = refused else { panic!("{refused:?}") };
        assert_eq!(errors["port"], ["No number."]);
        assert!(matches!(ClientError::of_response(StatusCode::NOT_FOUND, "<html>"), ClientError::Missing(_)));
        assert!(matches!(
            ClientError::of_response(StatusCode::BAD_GATEWAY, "x\ny"),
            ClientError::Broken { status: 502, text } if text == "x"
        ));
    }
}
