//! JSON bodies.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// `{message: …}`, the form of every confirmation.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Message {
    pub message: String,
}

/// Room for a page of 15 tasks, so that writing one does not copy it over and over as it grows.
const TYPICAL_BYTES: usize = 16 * 1024;

pub(crate) fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    let mut bytes = Vec::with_capacity(TYPICAL_BYTES);
    match serde_json::to_writer(&mut bytes, body) {
        Ok(()) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
