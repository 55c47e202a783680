//! `Holdfast-Dry-Run: true`: the request is checked and carried out in its transaction, which is then rolled back. The
//! response is that of the request, marked with the same header.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use holdfast_app::{DryRun, DryRunReport};
use holdfast_core::server::DATABASE_PASSWORD;

use crate::error::ApiError;

const DRY_RUN: HeaderName = HeaderName::from_static("holdfast-dry-run");
/// The fields that an update would change.
const CHANGES: HeaderName = HeaderName::from_static("holdfast-changes");

/// Fields of other resources that it would clear.
const ELSEWHERE: HeaderName = HeaderName::from_static("holdfast-changes-elsewhere");

/// Whether a request asks for a dry run. One that cannot be a dry run is refused: whoever asked expects that nothing
/// happens. What only reads is the same in both, so that a client can find out whether the service knows the header.
pub(crate) fn is_asked(headers: &HeaderMap, method: &Method, is_possible: bool) -> Result<bool, ApiError> {
    let mut values = headers.get_all(&DRY_RUN).iter();
    let Some(value) = values.next() else { return Ok(false) };
    if value != "true" || values.next().is_some() {
        let text = "The header Holdfast-Dry-Run must be true, or be omitted. Nothing was done.";
        return Err(ApiError::BadRequest(text.to_owned()));
    }
    if !is_possible && method != Method::GET && method != Method::HEAD {
        let text = "There is no dry run of this request. Nothing was done.";
        return Err(ApiError::BadRequest(text.to_owned()));
    }
    Ok(true)
}

/// Marks the response to any request that asked for a dry run.
pub(crate) fn mark(response: &mut Response) {
    response.headers_mut().insert(DRY_RUN, HeaderValue::from_static("true"));
}

/// Adds to the response of a use case what its dry run found. Nothing was created, and the only version there is, is
/// the one before the change.
pub(crate) fn describe(response: &mut Response, dry_run: &DryRun) {
    if !response.status().is_success() {
        return;
    }
    let DryRunReport { version, changed, passwords_behind, may_be_guessing: _ } = dry_run.report();
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.remove(header::ETAG);
    // Versions and the names of fields are always valid.
    if let Some(tag) = version.and_then(|version| HeaderValue::from_str(&format!("\"{version}\"")).ok()) {
        headers.insert(header::ETAG, tag);
    }
    if let Some(names) = changed.and_then(|names| HeaderValue::from_str(&names.join(", ")).ok()) {
        headers.insert(CHANGES, names);
    }
    let elsewhere = passwords_behind.iter().map(|id| format!("/api/remote-servers/{id}#{}", DATABASE_PASSWORD.name));
    let elsewhere: Vec<String> = elsewhere.collect();
    if let Some(names) = HeaderValue::from_str(&elsewhere.join(", ")).ok().filter(|names| !names.is_empty()) {
        headers.insert(ELSEWHERE, names);
    }
}
