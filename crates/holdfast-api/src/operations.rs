//! Endpoints for operators and their tools.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use holdfast_app::{Context, health};
use serde_json::json;

use crate::answer::{Answer, message};
use crate::error::ApiError;
use crate::state::Api;

/// Served next to the API; metrics are restricted to clients on this machine.
pub(crate) fn router() -> Router<Arc<Api>> {
    probes().route("/metrics", get(metrics_for_neighbours))
}

/// Served on a separate address; metrics are available to every client that can reach it.
pub fn operations_router(api: Arc<Api>) -> Router {
    probes().route("/metrics", get(metrics)).with_state(api)
}

fn probes() -> Router<Arc<Api>> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready))
}

/// Liveness: the process responds.
async fn alive() -> Answer {
    message(StatusCode::OK, "alive")
}

/// Readiness: database, master key, scheduler and workers are available.
async fn ready(State(api): State<Arc<Api>>) -> Response {
    let checks = health::check(&api.app).await;
    let is_ready = checks.iter().all(|check| check.problem.is_none());
    let told = checks.iter().map(|check| {
        let text = check.problem.as_deref().or(check.note.as_deref()).unwrap_or("ok");
        (check.name.to_owned(), json!(text))
    });
    let (status, word) =
        if is_ready { (StatusCode::OK, "ready") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready") };
    let body = json!({"message": word, "checks": told.collect::<serde_json::Map<_, _>>()});
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// Metrics reveal how much is stored and how well it works, so only local clients get them, and nobody through a proxy.
async fn metrics_for_neighbours(
    State(api): State<Arc<Api>>,
    Extension(context): Extension<Context>,
    request: Request,
) -> Response {
    let marks = ["x-forwarded-for", "forwarded", "x-real-ip"];
    let is_forwarded = marks.iter().any(|name| request.headers().contains_key(*name));
    if is_forwarded || !context.address.is_some_and(|address| address.is_loopback()) {
        return ApiError::UnknownPath.into_response();
    }
    metrics(State(api)).await
}

async fn metrics(State(api): State<Arc<Api>>) -> Response {
    let Some(render) = &api.metrics else { return ApiError::UnknownPath.into_response() };
    let text = render() + &health::render_figures(&api.app).await;
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
