//! Response shapes that the handlers share.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use holdfast_app::{Owned, Resource, version};
use holdfast_core::ids::RunId;
use serde::Serialize;
use utoipa::ToSchema;

use crate::call::Call;
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

/// One resource with its `ETag`, the version that `If-Match` refers to.
pub(crate) fn resource<R: Owned, T: Serialize>(status: StatusCode, row: R, shape: impl FnOnce(R) -> T) -> Answer {
    let version = version(&row);
    versioned(status, &version, shape(row))
}

pub(crate) fn versioned<T: Serialize>(status: StatusCode, version: &str, resource: T) -> Answer {
    let mut response = data(status, resource)?;
    // Versions are digits and punctuation, which are always valid.
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{version}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

pub(crate) fn message(status: StatusCode, text: impl Into<String>) -> Answer {
    Ok(json(status, &Message { message: text.into() }))
}

/// Confirms that something was deleted, or, for a dry run, that it can be.
pub(crate) fn deleted(call: &Call, what: Resource) -> Answer {
    let is_dry_run = call.caller.dry_run.is_some();
    let done = if is_dry_run { "can be deleted; nothing was changed" } else { "successfully deleted" };
    message(StatusCode::OK, format!("{} {done}", what.name()))
}

/// What was queued.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueuedItem {
    /// The id of the run, or of the notice, that `Location` leads to.
    id: i64,
}

/// A confirmation that something was queued.
#[derive(Serialize, ToSchema)]
pub(crate) struct Queued {
    message: String,
    data: QueuedItem,
}

/// Confirms that a run was queued.
pub(crate) fn queued(text: &str, run: RunId) -> Answer {
    queued_in(text, RUNS, run.0)
}

pub(crate) fn queued_in(text: &str, list: &str, id: i64) -> Answer {
    let body = Queued { message: text.to_owned(), data: QueuedItem { id } };
    Ok(located(json(StatusCode::ACCEPTED, &body), list, id))
}

/// Confirms that a run was queued, and shows it.
pub(crate) fn queued_run<T: Serialize>(run: RunId, resource: T) -> Answer {
    Ok(located(data(StatusCode::ACCEPTED, resource)?, RUNS, run.0))
}

/// Where runs are shown.
const RUNS: &str = "/api/runs";

/// Says where the resource of a response is.
fn located(mut response: Response, list: &str, id: i64) -> Response {
    // Digits and slashes are always valid.
    if let Ok(path) = HeaderValue::from_str(&format!("{list}/{id}")) {
        response.headers_mut().insert(header::LOCATION, path);
    }
    response
}
