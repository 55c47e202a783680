//! What stops a page from being shown.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use holdfast_app::AppError;

#[derive(Debug)]
pub(crate) enum PageError {
    App(AppError),
    /// Somebody must sign in first, and comes back here afterwards.
    SignIn {
        then: Option<String>,
    },
    /// The form did not come from our own page.
    Forged,
    /// The form is longer than any of ours.
    TooLarge,
}

impl From<AppError> for PageError {
    fn from(error: AppError) -> Self {
        Self::App(error)
    }
}

pub(crate) type PageResult = Result<Response, PageError>;

impl IntoResponse for PageError {
    /// The page around it needs the reader's language, which `finish` knows.
    fn into_response(self) -> Response {
        let (status, key) = match &self {
            // Streams follow no redirect to a page.
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
                AppError::Unavailable(reason) => {
                    tracing::warn!(reason, "unavailable");
                    (StatusCode::SERVICE_UNAVAILABLE, "problem-unavailable")
                }
                AppError::DestinationAway(reason) => {
                    tracing::warn!(reason, "a destination does not answer");
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

/// What a page about a problem will say.
#[derive(Clone)]
pub(crate) struct Problem {
    pub key: &'static str,
    pub error: Option<Arc<AppError>>,
}
