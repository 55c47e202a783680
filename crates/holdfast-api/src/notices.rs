//! `/api/notices` and `/api/notification-settings`.

use axum::http::StatusCode;
use holdfast_app::Resource;
use holdfast_app::notices::{self, NotificationSettings, NotificationSettingsInput, QuietInput};
use holdfast_core::clock::rfc3339;
use holdfast_core::ids::NoticeId;
use holdfast_core::input::Errors;
use holdfast_core::input::Input;
use holdfast_core::notice::NoticeStatus;
use holdfast_store::notices::{NoticeFilter, NoticeRow};
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, queued_in, resource, versioned};
use crate::body::Body;
use crate::call::Call;
use crate::error::ApiError;
use crate::list;

#[derive(Serialize, ToSchema)]
pub(crate) struct NoticeResource {
    id: i64,
    /// Null for heartbeats and for mails to the user's own address.
    notification_stream_id: Option<i64>,
    backup_task_id: Option<i64>,
    /// The kind of event, e.g. `failure`, `recovered` or `overdue`.
    kind: &'static str,
    /// Identifies the event. All notices about the same event share it, and every message includes it.
    event: String,
    title: String,
    status: &'static str,
    tries: i64,
    /// Null if no further delivery attempt is planned.
    next_try_at: Option<String>,
    /// The last response of the channel.
    answer: Option<String>,
    created_at: String,
    ended_at: Option<String>,
}

fn shape(row: NoticeRow) -> NoticeResource {
    NoticeResource {
        id: row.id.0,
        notification_stream_id: row.stream_id.map(|id| id.0),
        backup_task_id: row.task_id.map(|id| id.0),
        kind: row.kind.as_str(),
        event: row.event,
        title: row.title,
        status: row.status.as_str(),
        tries: row.tries,
        next_try_at: row.next_try_at.map(|at| rfc3339(at.0)),
        answer: row.answer,
        created_at: rfc3339(row.created_at.0),
        ended_at: row.ended_at.map(|at| rfc3339(at.0)),
    }
}

pub(crate) async fn list_notices(call: Call) -> Answer {
    let mut errors = Errors::default();
    let listing = call.listing_without_labels()?;
    let filter = NoticeFilter {
        status: call.query.word_filter(&mut errors, "status", NoticeStatus::parse),
        stream: call.query.id_filter(&mut errors, "notification_stream_id"),
    };
    if !errors.is_empty() {
        return Err(ApiError::from(errors));
    }
    let page = notices::list(&call.app, &listing, &filter).await?;
    list::page(&call, page, shape)
}

pub(crate) async fn retry_notice(call: Call) -> Answer {
    let id: NoticeId = call.id(Resource::Notice)?;
    notices::retry(&call.app, &call.caller, id).await?;
    queued_in("The notice will be sent again.", "/api/notices", id.0)
}

pub(crate) async fn show_notice(call: Call) -> Answer {
    let row = notices::show(&call.app, &call.caller, call.id(Resource::Notice)?).await?;
    resource(StatusCode::OK, row, shape)
}

/// The user's notification settings.
#[derive(Serialize, ToSchema)]
pub(crate) struct NotificationSettingsResource {
    weekly_summary_enabled: bool,
    quiet_hours: Option<QuietHoursResource>,
}

/// In the user's time zone. Notifications of this period are sent as one message when it ends.
#[derive(Serialize, ToSchema)]
pub(crate) struct QuietHoursResource {
    #[schema(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    from: String,
    #[schema(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    until: String,
}

/// Omitted fields keep their values; `quiet_hours: null` turns quiet hours off.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub(crate) struct NotificationSettingsBody {
    #[schema(required = false)]
    weekly_summary_enabled: bool,
    quiet_hours: Option<QuietHoursResource>,
}

fn shape_settings(settings: NotificationSettings) -> NotificationSettingsResource {
    NotificationSettingsResource {
        weekly_summary_enabled: settings.weekly_summary,
        quiet_hours: settings
            .quiet_hours
            .map(|quiet| QuietHoursResource { from: quiet.from.to_string(), until: quiet.until.to_string() }),
    }
}

fn read_settings(body: &Input) -> NotificationSettingsInput {
    NotificationSettingsInput {
        weekly_summary: body.boolean("weekly_summary_enabled"),
        quiet_hours: body
            .object("quiet_hours")
            .map(|quiet| QuietInput { from: quiet.text("from"), until: quiet.text("until") }),
    }
}

pub(crate) async fn show_notification_settings(call: Call) -> Answer {
    settings(notices::show_notification_settings(&call.app, &call.caller).await?)
}

pub(crate) async fn update_notification_settings(call: Call, body: Body) -> Answer {
    settings(notices::update_notification_settings(&call.app, &call.caller, &read_settings(&body.input()?)).await?)
}

fn settings(settings: NotificationSettings) -> Answer {
    versioned(StatusCode::OK, &settings.version(), shape_settings(settings))
}
