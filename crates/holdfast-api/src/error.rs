//! How errors become responses.
//!
//! | status | error | when |
//! |---|---|---|
//! | 400 | Bad Request | the body is not a JSON object |
//! | 401 | – | no valid token; the body is only a `message`, as the API document requires |
//! | 403 | Forbidden | the token lacks the scope, or the resource belongs to somebody else |
//! | 404 | Not Found | no such path or resource |
//! | 405 | Method Not Allowed | with `Allow` |
//! | 409 | Conflict | the resource's state does not allow it now |
//! | 412 | Precondition Failed | `If-Match` names another version, or `If-None-Match` a label that is in use |
//! | 413 | Payload Too Large | over the body limit |
//! | 414 | URI Too Long | over the limit of addresses |
//! | 416 | Range Not Satisfiable | a `Range` that lies outside of a download |
//! | 422 | Validation Error | invalid fields, each with its errors |
//! | 429 | Too Many Requests | with `Retry-After` |
//! | 500 | Internal Server Error | a bug; logged |
//! | 503 | Service Unavailable | with `Retry-After` |

use std::collections::BTreeMap;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use holdfast_app::refusal::Conflict;
use holdfast_app::{AppError, Outage};
use holdfast_core::input::Errors;
use serde::Serialize;

use crate::json::{Message, json};

/// What a handler can fail with: an error of a use case, or a problem with the request itself.
#[derive(Debug)]
pub(crate) enum ApiError {
    App(AppError),
    BadRequest(String),
    TooLarge,
    LongUri,
    /// The requested part lies outside of this many bytes.
    NoSuchRange {
        size: u64,
    },
    UnknownPath,
    MethodNotAllowed,
}

impl From<AppError> for ApiError {
    fn from(error: AppError) -> Self {
        Self::App(error)
    }
}

impl From<Errors> for ApiError {
    fn from(errors: Errors) -> Self {
        Self::App(AppError::Invalid(errors))
    }
}

/// The body of every error except 401.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ErrorBody {
    pub error: &'static str,
    pub message: String,
}

/// The body of a 422.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ValidationBody {
    pub error: &'static str,
    pub message: String,
    /// The errors of each field.
    pub errors: BTreeMap<String, Vec<String>>,
}

/// The number of requests that can be made at once.
pub(crate) const RATE_LIMIT: &str = "x-ratelimit-limit";
pub(crate) const RATE_REMAINING: &str = "x-ratelimit-remaining";
/// The `Retry-After` of a 503: how long a client should wait when the database or a destination is unavailable.
const UNAVAILABLE_RETRY_SECS: u64 = 5;

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = match self {
            Self::BadRequest(message) => return error(StatusCode::BAD_REQUEST, message),
            Self::TooLarge => {
                return error(StatusCode::PAYLOAD_TOO_LARGE, "The request body must not be greater than 256 KiB.");
            }
            Self::LongUri => {
                return error(StatusCode::URI_TOO_LONG, "The address of this request must not have more than 16 KiB.");
            }
            Self::NoSuchRange { size } => {
                let text = format!("The requested range is outside of the {size} bytes.");
                let mut response = error(StatusCode::RANGE_NOT_SATISFIABLE, text);
                if let Ok(range) = HeaderValue::from_str(&format!("bytes */{size}")) {
                    response.headers_mut().insert(header::CONTENT_RANGE, range);
                }
                return response;
            }
            Self::UnknownPath => return error(StatusCode::NOT_FOUND, "The requested path does not exist."),
            Self::MethodNotAllowed => {
                return error(StatusCode::METHOD_NOT_ALLOWED, "This path does not support the request's method.");
            }
            Self::App(error) => error,
        };
        let message = error.to_string();
        match error {
            AppError::Unauthenticated => {
                let mut response = json(StatusCode::UNAUTHORIZED, &Message { message });
                let scheme = HeaderValue::from_static("Bearer realm=\"Holdfast\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
                response
            }
            AppError::TooManyRequests { limit, retry_after_secs } => {
                let mut response = self::error(StatusCode::TOO_MANY_REQUESTS, message);
                response.headers_mut().insert(RATE_LIMIT, limit.into());
                response.headers_mut().insert(RATE_REMAINING, HeaderValue::from_static("0"));
                with_retry(response, retry_after_secs)
            }
            AppError::MissingScope(_) | AppError::Forbidden(_) => self::error(StatusCode::FORBIDDEN, message),
            AppError::NotFound(_) | AppError::Missing(_) => self::error(StatusCode::NOT_FOUND, message),
            AppError::Invalid(errors) => invalid(message, &errors),
            AppError::Conflict(Conflict::Outdated | Conflict::LabelTaken) => {
                self::error(StatusCode::PRECONDITION_FAILED, message)
            }
            AppError::Conflict(_) => self::error(StatusCode::CONFLICT, message),
            AppError::Unavailable(Outage { reason, .. }) | AppError::DestinationAway(reason) => {
                tracing::warn!(reason, "service unavailable");
                with_retry(self::error(StatusCode::SERVICE_UNAVAILABLE, message), UNAVAILABLE_RETRY_SECS)
            }
            AppError::Internal(reason) => {
                tracing::error!(reason, "internal error");
                self::error(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        }
    }
}

fn error(status: StatusCode, message: impl Into<String>) -> Response {
    json(status, &ErrorBody { error: status.canonical_reason().unwrap_or("Error"), message: message.into() })
}

fn invalid(message: String, errors: &Errors) -> Response {
    let errors = errors.english().map(|(field, texts)| (field.to_owned(), texts)).collect();
    json(StatusCode::UNPROCESSABLE_ENTITY, &ValidationBody { error: "Validation Error", message, errors })
}

fn with_retry(mut response: Response, seconds: u64) -> Response {
    response.headers_mut().insert(header::RETRY_AFTER, seconds.max(1).into());
    response
}

pub(crate) async fn unknown_path() -> ApiError {
    ApiError::UnknownPath
}

pub(crate) async fn method_not_allowed() -> ApiError {
    ApiError::MethodNotAllowed
}
