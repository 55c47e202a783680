//! `/api/user`.

use axum::http::StatusCode;
use holdfast_app::{identities, profile};
use holdfast_core::clock::rfc3339;
use holdfast_core::user::{avatar_url, first_and_last_name};
use holdfast_store::users::{Statistics, UserRow};
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, data};
use crate::call::Call;

#[derive(Serialize, ToSchema)]
pub(crate) struct UserResource {
    id: i64,
    personal_info: PersonalInfo,
    account_settings: AccountSettings,
    backup_tasks: TaskFigures,
    related_entities: RelatedEntities,
    timestamps: UserTimestamps,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct PersonalInfo {
    name: String,
    first_name: String,
    last_name: String,
    email: String,
    avatar_url: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct AccountSettings {
    timezone: String,
    language: String,
    is_admin: bool,
    github_login_enabled: bool,
    weekly_summary_enabled: bool,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct TaskFigures {
    total: i64,
    /// Tasks with the status `ready`.
    active: i64,
    logs: LogFigures,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct LogFigures {
    total: i64,
    /// Since midnight in the user's time zone.
    today: i64,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct RelatedEntities {
    remote_servers: i64,
    backup_destinations: i64,
    tags: i64,
    notification_streams: i64,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct UserTimestamps {
    account_created: String,
}

fn shape(user: UserRow, figures: &Statistics, github_login_enabled: bool) -> UserResource {
    let (first_name, last_name) = first_and_last_name(&user.name);
    UserResource {
        id: user.id.0,
        personal_info: PersonalInfo {
            first_name: first_name.to_owned(),
            last_name: last_name.to_owned(),
            avatar_url: avatar_url(&user.email),
            name: user.name,
            email: user.email,
        },
        account_settings: AccountSettings {
            timezone: user.timezone,
            language: user.language,
            is_admin: user.is_admin,
            github_login_enabled,
            weekly_summary_enabled: user.weekly_summary_enabled,
        },
        backup_tasks: TaskFigures {
            total: figures.tasks,
            active: figures.tasks - figures.running_tasks,
            logs: LogFigures { total: figures.logs, today: figures.logs_today },
        },
        related_entities: RelatedEntities {
            remote_servers: figures.servers,
            backup_destinations: figures.destinations,
            tags: figures.tags,
            notification_streams: figures.streams,
        },
        timestamps: UserTimestamps { account_created: rfc3339(user.created_at.0) },
    }
}

pub(crate) async fn show_user(call: Call) -> Answer {
    let (user, figures) = profile::show(&call.app, &call.caller).await?;
    let has_github = identities::is_linked(&call.app, &call.caller, "github").await?;
    data(StatusCode::OK, shape(user, &figures, has_github))
}
