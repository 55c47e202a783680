//! Endpoints for operators and their tools.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use holdfast_app::AppError;

use crate::Api;
use crate::answer::{Answer, message};
use crate::error::ApiError;

/// Renders the current metrics in Prometheus' text format.
pub type MetricsRenderer = Arc<dyn Fn() -> String + Send + Sync>;

pub(crate) fn router() -> Router<Arc<Api>> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready)).route("/metrics", get(metrics))
}

/// The process answers.
async fn alive() -> Answer {
    message(StatusCode::OK, "alive")
}

/// The process can do its work: the database answers.
async fn ready(State(api): State<Arc<Api>>) -> Answer {
    api.app.store.ping().await.map_err(AppError::from)?;
    message(StatusCode::OK, "ready")
}

async fn metrics(State(api): State<Arc<Api>>) -> Response {
    match &api.metrics {
        Some(render) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], render()).into_response(),
        None => ApiError::UnknownPath.into_response(),
    }
}
