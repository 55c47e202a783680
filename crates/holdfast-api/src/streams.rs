//! `/api/notification-streams`.

use axum::http::StatusCode;
use holdfast_app::{Resource, streams};
use holdfast_core::clock::rfc3339;
use holdfast_core::fields::FieldSpec;
use holdfast_core::ids::StreamId;
use holdfast_core::limits;
use holdfast_core::stream::StreamKind;
use holdfast_store::streams::StreamRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, deleted, queued, resource};
use crate::body::Body;
use crate::call::Call;
use crate::list;
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

/// The fields of a notification stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub(crate) struct StreamBody {
    #[schema(min_length = 1, max_length = 255)]
    label: String,
    /// `discord_webhook`, `slack_webhook` and `teams_webhook` are accepted as aliases.
    r#type: String,
    /// An email address, a webhook URL or a Pushover user key. Never returned.
    #[schema(min_length = 1, max_length = 2048, write_only)]
    value: String,
    /// A Pushover application token to use instead of the service's own. Never returned.
    #[schema(pattern = "^[A-Za-z0-9]{30}$", write_only)]
    pushover_token: Option<String>,
    #[schema(required = false)]
    notifications: NotificationFlagsBody,
}

/// Only failures are sent by default.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub(crate) struct NotificationFlagsBody {
    #[schema(required = false, default = false)]
    on_success: bool,
    #[schema(required = false, default = true)]
    on_failure: bool,
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
        has_pushover_token: row.has_pushover_token,
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

/// The fields of a stream that only some types have.
const TOKEN: FieldSpec = FieldSpec::secret("pushover_token", limits::TEXT_CHARS).only_if("type", &["pushover"]);

fn typed(current: Option<StreamKind>) -> TypedFields {
    TypedFields {
        fields: vec![&TOKEN],
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
