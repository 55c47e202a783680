//! `/api/notices` and `/api/notification-settings`.

use axum::http::StatusCode;
use holdfast_app::Resource;
use holdfast_app::notices::{self, Hearing, HearingInput, QuietInput};
use holdfast_core::clock::rfc3339;
use holdfast_core::input::Errors;
use holdfast_core::input::Input;
use holdfast_core::notice::NoticeStatus;
use holdfast_store::notices::{NoticeFilter, NoticeRow};
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, data, message};
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
    /// What it is about, e.g. `failure`, `recovered` or `overdue`.
    kind: &'static str,
    /// The same for everybody who is told of the same thing; every message carries it.
    event: String,
    title: String,
    status: &'static str,
    tries: i64,
    /// Null once it is settled.
    next_try_at: Option<String>,
    /// What the channel answered last.
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
    let mut listing = call.listing()?;
    listing.search = None;
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
    notices::retry(&call.app, &call.caller, call.id(Resource::Notice)?).await?;
    message(StatusCode::ACCEPTED, "The notice will be tried again.")
}

/// How the user wants to hear.
#[derive(Serialize, ToSchema)]
pub(crate) struct HearingResource {
    weekly_summary_enabled: bool,
    quiet_hours: Option<QuietHoursResource>,
}

/// In the user's own zone. What happens then is told at their end, as one message.
#[derive(Serialize, ToSchema)]
pub(crate) struct QuietHoursResource {
    #[schema(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    from: String,
    #[schema(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    until: String,
}

/// What is left out stays as it is; `quiet_hours: null` ends them.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub(crate) struct HearingBody {
    #[schema(required = false)]
    weekly_summary_enabled: bool,
    quiet_hours: Option<QuietHoursResource>,
}

fn shape_hearing(hearing: Hearing) -> HearingResource {
    HearingResource {
        weekly_summary_enabled: hearing.weekly_summary,
        quiet_hours: hearing
            .quiet_hours
            .map(|quiet| QuietHoursResource { from: quiet.from.to_string(), until: quiet.until.to_string() }),
    }
}

fn read_hearing(body: &Input) -> HearingInput {
    HearingInput {
        weekly_summary: body.boolean("weekly_summary_enabled"),
        quiet_hours: body
            .object("quiet_hours")
            .map(|quiet| QuietInput { from: quiet.text("from"), until: quiet.text("until") }),
    }
}

pub(crate) async fn show_hearing(call: Call) -> Answer {
    data(StatusCode::OK, shape_hearing(notices::show_hearing(&call.app, &call.caller).await?))
}

pub(crate) async fn update_hearing(call: Call, body: Body) -> Answer {
    let hearing = notices::update_hearing(&call.app, &call.caller, &read_hearing(&body.input()?)).await?;
    data(StatusCode::OK, shape_hearing(hearing))
}
