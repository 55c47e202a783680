//! Errors that are shown instead of a page.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use holdfast_app::AppError;

#[derive(Debug)]
pub(crate) enum PageError {
    App(AppError),
    /// The user must sign in first, and then returns to this address.
    SignIn {
        then: Option<String>,
    },
    /// The form was not sent from one of our pages, or did not arrive in time.
    Forged,
    /// The form exceeds the size limit.
    TooLarge,
}

impl From<AppError> for PageError {
    fn from(error: AppError) -> Self {
        Self::App(error)
    }
}

pub(crate) type PageResult = Result<Response, PageError>;

impl IntoResponse for PageError {
    /// Only marks the response: the error page needs the reader's language, so `finish` renders it.
    fn into_response(self) -> Response {
        let (status, key) = match &self {
            // Event streams must not be redirected to a page.
            Self::SignIn { then: Some(then) } if then == "/live" => return StatusCode::UNAUTHORIZED.into_response(),
            Self::SignIn { then } => return Redirect::to(&sign_in_address(then.as_deref())).into_response(),
            Self::Forged => (StatusCode::FORBIDDEN, "problem-forged"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "problem-too-large"),
            Self::App(error) => match error {
                AppError::Unauthenticated => return Redirect::to("/sign-in").into_response(),
                AppError::TooManyRequests { .. } => (StatusCode::TOO_MANY_REQUESTS, "problem-too-many"),
                AppError::MissingScope(_) | AppError::Forbidden(_) => (StatusCode::FORBIDDEN, "problem-forbidden"),
                AppError::NotFound(_) | AppError::Missing(_) => (StatusCode::NOT_FOUND, "problem-missing"),
                AppError::Conflict(_) => (StatusCode::CONFLICT, "problem-conflict"),
                AppError::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "problem-invalid"),
                AppError::Unavailable(outage) => {
                    tracing::warn!(reason = outage.reason, "service unavailable");
                    (StatusCode::SERVICE_UNAVAILABLE, "problem-unavailable")
                }
                AppError::DestinationAway(reason) => {
                    tracing::warn!(reason, "a destination does not respond");
                    (StatusCode::SERVICE_UNAVAILABLE, "problem-destination-away")
                }
                AppError::Internal(reason) => {
                    tracing::error!(reason, "internal error");
                    (StatusCode::INTERNAL_SERVER_ERROR, "problem-internal")
                }
            },
        };
        let error = match self {
            Self::App(error) => Some(Arc::new(error)),
            Self::Forged | Self::TooLarge | Self::SignIn { .. } => None,
        };
        let mut response = status.into_response();
        response.extensions_mut().insert(Problem { key, error });
        response
    }
}

pub(crate) fn sign_in_address(then: Option<&str>) -> String {
    match then {
        None | Some("/") => "/sign-in".to_owned(),
        Some(then) => {
            let query: String = url::form_urlencoded::Serializer::new(String::new()).append_pair("then", then).finish();
            format!("/sign-in?{query}")
        }
    }
}

/// What an error page shows.
#[derive(Clone)]
pub(crate) struct Problem {
    pub key: &'static str,
    pub error: Option<Arc<AppError>>,
}
