//! Trigger URLs: each task has its own secret, with which, for example, a build server can start it.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use holdfast_app::{AppError, Context, Resource, tasks};
use holdfast_core::Secret;
use holdfast_core::ids::TaskId;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, data, queued};
use crate::call::{Call, Query, parse_id};
use crate::state::Api;

const SECRET_HEADER: &str = "x-holdfast-secret";

#[derive(Serialize, ToSchema)]
pub(crate) struct TriggerResource {
    /// Send a `POST` with the secret in the `X-Holdfast-Secret` header or the `secret` query parameter.
    url: String,
    /// Shown only once. Valid until a new one is created, or until the account's password is changed without keeping
    /// its tokens.
    secret: String,
}

pub(crate) async fn rotate_trigger(call: Call) -> Answer {
    let id: TaskId = call.id(Resource::BackupTask)?;
    let secret = tasks::rotate_trigger(&call.app, &call.caller, id).await?;
    let url = format!("{}/webhooks/backup-tasks/{id}/run", call.context.base_url);
    data(StatusCode::OK, TriggerResource { url, secret: secret.reveal().to_owned() })
}

pub(crate) async fn trigger_run(
    State(api): State<Arc<Api>>,
    axum::Extension(context): axum::Extension<Context>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let query = Query::parse(query.as_deref().unwrap_or_default());
    let secret = headers.get(SECRET_HEADER).and_then(|value| value.to_str().ok()).or(query.get("secret"));
    let refused = || AppError::NotFound(Resource::BackupTask);
    let id = id.ok().and_then(|Path(id)| parse_id(&id)).ok_or_else(refused)?;
    let secret = Secret::new(secret.ok_or_else(refused)?);
    let run = tasks::trigger_run(&api.app, TaskId(id), &secret, &context.origin("webhook")).await?;
    queued("Backup task initiated successfully.", run)
}
