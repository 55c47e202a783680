//! `/api/notification-streams`.

use axum::http::StatusCode;
use holdfast_app::{Resource, streams};
use holdfast_core::clock::rfc3339;
use holdfast_core::ids::StreamId;
use holdfast_core::stream::{self, StreamKind};
use holdfast_store::streams::StreamRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, deleted, queued, resource};
use crate::body::Body;
use crate::call::Call;
use crate::list;
use crate::openapi::doc::SchemaDoc;
use crate::preferences::TypedFields;

#[derive(Serialize, ToSchema)]
pub(crate) struct StreamResource {
    id: i64,
    user_id: i64,
    label: String,
    r#type: &'static str,
    type_human: &'static str,
    notifications: NotificationFlags,
    /// Whether a Pushover stream has an application token of its own.
    has_pushover_token: bool,
    last_test: Option<TestResult>,
    last_delivery: Option<DeliveryResult>,
    created_at: String,
    updated_at: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct NotificationFlags {
    on_success: bool,
    on_failure: bool,
}

/// The result of the last test message.
#[derive(Serialize, ToSchema)]
pub(crate) struct TestResult {
    succeeded: bool,
    message: String,
    tested_at: String,
}

/// The result of the last notice sent through this stream.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeliveryResult {
    succeeded: bool,
    message: String,
    at: String,
}

/// The body of a create or update request.
pub(crate) fn stream_body() -> SchemaDoc {
    let (flags, own): (Vec<_>, Vec<_>) = stream::fields().partition(|field| field.inner_name() != field.name);
    let flags = SchemaDoc::of_fields("NotificationFlagsBody", "Only failures are sent by default.", flags.into_iter());
    SchemaDoc::of_fields("StreamBody", "The fields of a notification stream.", own.into_iter())
        .with_object(stream::FLAGS, flags)
}

fn shape(row: StreamRow) -> StreamResource {
    let last_test = match (row.last_test_succeeded, row.last_tested_at) {
        (Some(succeeded), Some(at)) => {
            Some(TestResult { succeeded, message: row.last_test_message.unwrap_or_default(), tested_at: rfc3339(at.0) })
        }
        _ => None,
    };
    let last_delivery = match (row.last_delivery_succeeded, row.last_delivery_at) {
        (Some(succeeded), Some(at)) => Some(DeliveryResult {
            succeeded,
            message: row.last_delivery_message.unwrap_or_default(),
            at: rfc3339(at.0),
        }),
        _ => None,
    };
    StreamResource {
        id: row.id.0,
        user_id: row.user_id.0,
        label: row.label,
        r#type: row.kind.as_str(),
        type_human: row.kind.human(),
        notifications: NotificationFlags { on_success: row.on_success, on_failure: row.on_failure },
        has_pushover_token: row.kind == StreamKind::Pushover && row.has_token,
        last_test,
        last_delivery,
        created_at: rfc3339(row.created_at.0),
        updated_at: rfc3339(row.updated_at.0),
    }
}

pub(crate) async fn list_streams(call: Call) -> Answer {
    let page = streams::list(&call.app, &call.listing()?).await?;
    list::page(&call, page, shape)
}

fn typed(current: Option<StreamKind>) -> TypedFields {
    TypedFields {
        fields: stream::fields().collect(),
        kind: |word| StreamKind::parse_input(word).map(StreamKind::as_str),
        current: current.map(StreamKind::as_str),
    }
}

pub(crate) async fn create_stream(call: Call, body: Body) -> Answer {
    let row = streams::create(&call.app, &call.caller, &body.typed_input(&typed(None))?).await?;
    resource(StatusCode::CREATED, row, shape)
}

pub(crate) async fn show_stream(call: Call) -> Answer {
    let row = streams::show(&call.app, &call.caller, call.id(Resource::NotificationStream)?).await?;
    resource(StatusCode::OK, row, shape)
}

pub(crate) async fn update_stream(call: Call, body: Body) -> Answer {
    let id: StreamId = call.id(Resource::NotificationStream)?;
    let row = streams::show(&call.app, &call.caller, id).await?;
    let input = body.typed_input(&typed(Some(row.kind)))?;
    let row = streams::update(&call.app, &call.caller, id, &input).await?;
    resource(StatusCode::OK, row, shape)
}

pub(crate) async fn delete_stream(call: Call) -> Answer {
    streams::delete(&call.app, &call.caller, call.id(Resource::NotificationStream)?).await?;
    deleted(&call, Resource::NotificationStream)
}

pub(crate) async fn test_stream(call: Call) -> Answer {
    let run = streams::request_test(&call.app, &call.caller, call.id(Resource::NotificationStream)?).await?;
    queued("Notification stream test initiated successfully.", run)
}
