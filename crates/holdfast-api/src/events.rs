//! `GET /api/events`: what happens to the caller's runs, backups and notices, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use holdfast_app::{AppError, Caller, Place, events};
use holdfast_core::clock::rfc3339;
use holdfast_store::events::{EventPosition, EventRow};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::call::Call;
use crate::error::ApiError;
use crate::state::Api;

/// How often the database is asked for events.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Proxies close connections that are idle for a minute.
const COMMENT_EVERY: Duration = Duration::from_secs(20);

/// The `data` of an event.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventResource {
    /// `run`, `backup` or `notice`, as in the `event` line.
    subject: String,
    /// The id of the run, backup or notice.
    id: i64,
    /// The kind of the run or notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    kind: Option<String>,
    /// The status after the event: of a run or notice, or of a backup's verification; `deleted` for a deleted backup.
    status: String,
    backup_task_id: Option<i64>,
    at: String,
}

/// Before everything, so that events are missing behind it.
const NOWHERE: EventPosition = EventPosition { position: i64::MIN, id: i64::MIN };

struct Following {
    api: Arc<Api>,
    caller: Caller,
    place: EventPosition,
    /// What is sent next, without looking for events.
    pending: Option<String>,
    commented: Instant,
    _slot: Place,
}

pub(crate) async fn follow_events(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    call: Call,
) -> Result<Response, ApiError> {
    let slot = api.app.open_stream(&call.caller).ok_or_else(|| AppError::busy("too many event streams"))?;
    // One that cannot be read is from another service: whatever it stands for, something is missing.
    let last = headers.get("last-event-id").map(|id| id.to_str().ok().and_then(read_place).unwrap_or(NOWHERE));
    let beginning = events::begin(&api.app, last).await?;
    let place = beginning.place;
    let reset = if beginning.has_gap { "event: reset\ndata: {}\n" } else { ":\n" };
    let pending = Some(format!("retry: 2000\nid: {}\n{reset}\n", write_place(place)));
    let following = Following { api, caller: call.caller, place, pending, commented: Instant::now(), _slot: slot };
    let body = Body::from_stream(Box::pin(stream::unfold(following, next)));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    // Otherwise nginx buffers the events.
    Ok((headers, [("x-accel-buffering", "no")], body).into_response())
}

async fn next(mut following: Following) -> Option<(Result<String, Infallible>, Following)> {
    if let Some(text) = following.pending.take() {
        return Some((Ok(text), following));
    }
    loop {
        let app = &following.api.app;
        // The client resumes elsewhere.
        if app.is_stopping() {
            return None;
        }
        match events::list(app, &following.caller, following.place).await {
            Ok(found) if !found.is_empty() => {
                following.place = found.last().map_or(following.place, EventRow::place);
                following.commented = Instant::now();
                return Some((Ok(found.iter().map(write).collect()), following));
            }
            Ok(_) => {}
            // Nothing is lost: the next look asks for the same events.
            Err(error) => tracing::debug!(reason = error.reason(), "could not look for events"),
        }
        if following.commented.elapsed() >= COMMENT_EVERY {
            following.commented = Instant::now();
            return Some((Ok(":\n\n".to_owned()), following));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn write(row: &EventRow) -> String {
    let data = EventResource {
        subject: row.subject.clone(),
        id: row.subject_id,
        kind: row.kind.clone(),
        status: row.status.clone(),
        backup_task_id: row.task_id,
        at: rfc3339(row.at.0),
    };
    format!("id: {}\nevent: {}\ndata: {}\n\n", write_place(row.place()), row.subject, serde_json::json!(data))
}

fn write_place(place: EventPosition) -> String {
    format!("{}-{}", place.position, place.id)
}

fn read_place(text: &str) -> Option<EventPosition> {
    let (position, id) = text.trim().split_once('-')?;
    Some(EventPosition { position: position.parse().ok()?, id: id.parse().ok()? })
}
