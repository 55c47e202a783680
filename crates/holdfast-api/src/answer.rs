//! Response shapes that the handlers share.

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use crate::error::ApiError;
use crate::json::{Message, json};

/// What every handler returns.
pub(crate) type Answer = Result<Response, ApiError>;

/// `{data: …}`, the form of every single resource.
#[derive(Serialize)]
struct Data<T> {
    data: T,
}

pub(crate) fn data<T: Serialize>(status: StatusCode, resource: T) -> Answer {
    Ok(json(status, &Data { data: resource }))
}

pub(crate) fn message(status: StatusCode, text: impl Into<String>) -> Answer {
    Ok(json(status, &Message { message: text.into() }))
}
