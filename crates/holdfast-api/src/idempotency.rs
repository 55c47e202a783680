//! `Idempotency-Key`: a client that did not get the response to a `POST` sends it again with the same key, and it is
//! executed once.

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use holdfast_app::AppError;
use holdfast_app::idempotency::{self, Begun, Recorded};
use holdfast_core::ids::UserId;

use crate::body;
use crate::error::ApiError;
use crate::state::Api;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// As long as a label; a UUID has 36.
const LONGEST_KEY: usize = 255;
/// Responses to `POST` are single resources.
const LONGEST_RESPONSE: usize = 1 << 20;

/// Executes a request, unless it has a key and was executed before.
pub(crate) async fn once(api: &Api, caller: (UserId, &str), request: Request, next: Next) -> Response {
    match key(request.headers(), request.method()) {
        Ok(None) => next.run(request).await,
        Ok(Some(key)) => match with_key(api, caller, &scoped(caller.1, &request, &key), request, next).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        },
        Err(error) => error.into_response(),
    }
}

fn key(headers: &HeaderMap, method: &Method) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(KEY).iter().filter(|_| *method == Method::POST);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(ApiError::BadRequest("The header Idempotency-Key must be given once.".to_owned()));
    }
    let key = value.to_str().ok().map(str::trim).filter(|key| !key.is_empty() && key.len() <= LONGEST_KEY);
    let invalid = || ApiError::BadRequest("The Idempotency-Key must have 1 to 255 visible characters.".to_owned());
    key.map(|key| Some(key.to_owned())).ok_or_else(invalid)
}

/// Each token and route has its own keys.
fn scoped(actor: &str, request: &Request, key: &str) -> String {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    idempotency::request_id(&[actor.as_bytes(), route.as_bytes(), key.as_bytes()])
}

async fn with_key(
    api: &Api,
    caller: (UserId, &str),
    key: &str,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (head, content) = request.into_parts();
    let content = body::read(&head.headers, content).await?;
    let target = head.uri.path_and_query().map_or("", |target| target.as_str());
    let id = idempotency::request_id(&[head.method.as_str().as_bytes(), target.as_bytes(), &content]);
    let begun = match idempotency::begin(&api.app, caller, key, &id).await? {
        Begun::Again(recorded) => return Ok(replay(recorded)),
        Begun::First(begun) => begun,
    };
    let response = next.run(Request::from_parts(head, Body::from(content))).await;
    let status = response.status();
    if !status.is_success() {
        // Nothing was changed, unless the service itself failed: then nobody knows, and the key stays taken.
        if !status.is_server_error() {
            idempotency::forget(&api.app, begun).await?;
        }
        return Ok(response);
    }
    let (head, content) = response.into_parts();
    let content = axum::body::to_bytes(content, LONGEST_RESPONSE)
        .await
        .map_err(|error| AppError::Internal(format!("the response to a request with a key cannot be read: {error}")))?;
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (location, version) = (text(header::LOCATION), text(header::ETAG));
    let body = String::from_utf8_lossy(&content).into_owned();
    let recorded = Recorded { status: status.as_u16(), location, version, body };
    // It has taken effect, so it is answered even if the response cannot be recorded.
    if let Err(error) = idempotency::end(&api.app, caller.0, begun, &recorded).await {
        tracing::warn!(reason = error.reason(), "the response to a request with a key was not recorded");
    }
    Ok(Response::from_parts(head, Body::from(content)))
}

fn replay(recorded: Recorded) -> Response {
    let status = StatusCode::from_u16(recorded.status).unwrap_or(StatusCode::OK);
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], recorded.body).into_response();
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    for (name, value) in [(header::LOCATION, recorded.location), (header::ETAG, recorded.version)] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
