//! JSON response bodies.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// `{message: …}`, the form of every confirmation.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Message {
    pub message: String,
}

/// Initial buffer size: enough for a page of 15 tasks without reallocating.
const TYPICAL_BYTES: usize = 16 * 1024;

pub(crate) fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    let mut bytes = Vec::with_capacity(TYPICAL_BYTES);
    match serde_json::to_writer(&mut bytes, body) {
        Ok(()) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "could not serialize a response as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
