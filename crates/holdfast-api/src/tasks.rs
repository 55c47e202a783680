//! `/api/backup-tasks`.

use axum::http::StatusCode;
use holdfast_app::tasks::{self, Task};
use holdfast_app::{Resource, version};
use holdfast_core::clock::{self, Zone, rfc3339};
use holdfast_core::database::DatabaseEngine;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{BackupId, TaskId};
use holdfast_core::input::Errors;
use holdfast_core::page::positive;
use holdfast_core::rules;
use holdfast_core::run::TaskStatus;
use holdfast_core::schedule::{Frequency, Schedule, Spread};
use holdfast_core::source::{DatabaseSource, SourceSpec, TaskKind};
use holdfast_core::storage::Storage;
use holdfast_core::task;
use holdfast_core::{Timestamp, limits};
use holdfast_store::tasks::TaskFilter;
use holdfast_store::upcoming::UpcomingRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, data, deleted, message, queued, resource, versioned};
use crate::body::Body;
use crate::call::Call;
use crate::error::ApiError;
use crate::openapi::doc::SchemaDoc;
use crate::preferences::TypedFields;
use crate::{list, logs};

#[derive(Serialize, ToSchema)]
pub(crate) struct TaskResource {
    id: i64,
    user_id: i64,
    remote_server_id: i64,
    backup_destination_id: i64,
    label: String,
    description: Option<String>,
    source: SourceResource,
    schedule: ScheduleResource,
    storage: StorageResource,
    notification_streams_count: i64,
    notification_stream_ids: Vec<i64>,
    tag_ids: Vec<i64>,
    status: &'static str,
    has_encryption_password: bool,
    has_heartbeat_url: bool,
    /// `YYYY-MM-DD HH:MM:SS` in the user's time zone.
    last_run_local_time: Option<String>,
    last_run_utc_time: Option<String>,
    last_run: Option<LastRunResource>,
    paused_at: Option<String>,
    protection: ProtectionResource,
    created_at: String,
    updated_at: String,
}

/// How the last run of the task ended. Cancelled runs do not count, and imports bring no runs.
#[derive(Serialize, ToSchema)]
pub(crate) struct LastRunResource {
    /// The log of the run, which may have been deleted since.
    id: i64,
    status: &'static str,
    error_code: Option<&'static str>,
    warnings: i64,
}

/// The evidence that the task's backups are good.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProtectionResource {
    /// When a backup that is still stored was last proven to be good.
    last_proven_at: Option<String>,
    proven_by: Option<&'static str>,
    last_drill_id: Option<i64>,
    /// The newest backup looks suspicious, so old ones are not removed; see `POST …/release-retention`.
    retention_held: bool,
    held_reason: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct SourceResource {
    path: String,
    r#type: &'static str,
    database_name: Option<String>,
    database_engine: Option<&'static str>,
    /// Comma-separated table names.
    excluded_tables: Option<String>,
    excluded_paths: Vec<String>,
    /// Do not descend into other file systems mounted below the path.
    one_file_system: bool,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ScheduleResource {
    frequency: &'static str,
    /// `HH:MM` in UTC. For a task with a time zone or a cron expression, the time of the next run.
    #[schema(pattern = "^[0-2][0-9]:[0-5][0-9]$")]
    scheduled_utc_time: String,
    /// The same time in the user's time zone, using its current UTC offset.
    #[schema(pattern = "^[0-2][0-9]:[0-5][0-9]$")]
    scheduled_local_time: String,
    custom_cron: Option<String>,
    /// Only for weekly tasks; 0 is Sunday.
    day_of_week: Option<i64>,
    /// Only for monthly tasks.
    day_of_month: Option<i64>,
    /// The time as it was set, in `timezone`.
    time_to_run_at: Option<String>,
    /// The time zone of `time_to_run_at` and `custom_cron`; null means UTC.
    timezone: Option<String>,
    /// By how many minutes runs may be earlier or later than that.
    spread_minutes: i64,
    /// `HH:MM` in `timezone`: scheduled runs start only between this time and `window_end`; null means at any time.
    window_start: Option<String>,
    window_end: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct StorageResource {
    max_backups: i64,
    appended_filename: Option<String>,
    path: String,
    format: &'static str,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct StatusResource {
    id: i64,
    status: &'static str,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct UpcomingResource {
    backup_task_id: String,
    label: String,
    r#type: &'static str,
    next_run: String,
    next_run_human: String,
}

/// The body of a create or update request.
pub(crate) fn task_body() -> SchemaDoc {
    SchemaDoc::of_fields("TaskBody", "The fields of a backup task.", task::request_fields())
}

/// The caller's time zone and the current time, computed once for all tasks of a response.
struct Viewer<'a> {
    zone: &'a Zone,
    offset_secs: i32,
    now: Timestamp,
}

impl<'a> Viewer<'a> {
    fn of(call: &'a Call) -> Self {
        let now = call.now();
        Self { zone: &call.caller.zone, offset_secs: clock::offset_secs(now, &call.caller.zone), now }
    }
}

fn source(spec: &SourceSpec) -> SourceResource {
    let (files, database) = (spec.files(), spec.database());
    SourceResource {
        path: files
            .map(|files| files.path.clone())
            .or(database.and_then(|database| database.path.clone()))
            .unwrap_or_default(),
        r#type: spec.kind().as_str(),
        database_name: database.and_then(|database| database.name.clone()),
        database_engine: spec.engine().map(DatabaseEngine::as_str),
        excluded_tables: database.and_then(DatabaseSource::excluded_tables_text),
        excluded_paths: files.map(|files| files.excluded.clone()).unwrap_or_default(),
        one_file_system: files.is_some_and(|files| files.one_file_system),
    }
}

fn schedule(schedule: &Schedule, viewer: &Viewer<'_>) -> ScheduleResource {
    let utc_time = schedule.utc_time(viewer.now);
    let is = |frequency: Frequency| schedule.frequency == frequency && schedule.cron.is_none();
    ScheduleResource {
        frequency: schedule.frequency.as_str(),
        scheduled_utc_time: utc_time.to_string(),
        scheduled_local_time: utc_time.shifted(viewer.offset_secs).to_string(),
        custom_cron: schedule.cron.as_ref().map(|cron| cron.as_str().to_owned()),
        day_of_week: is(Frequency::Weekly).then_some(schedule.day_of_week),
        day_of_month: is(Frequency::Monthly).then_some(schedule.day_of_month),
        time_to_run_at: schedule.time.map(|time| time.to_string()),
        timezone: schedule.zone.as_ref().map(|zone| zone.name().to_owned()),
        spread_minutes: schedule.spread.map_or(0, Spread::minutes),
        window_start: schedule.window.map(|window| window.start().to_string()),
        window_end: schedule.window.map(|window| window.end().to_string()),
    }
}

fn storage(storage: Storage) -> StorageResource {
    StorageResource {
        max_backups: storage.retention.number(),
        appended_filename: storage.appended_filename,
        path: storage.path,
        format: storage.format.as_str(),
    }
}

fn shape(task: Task, viewer: &Viewer<'_>) -> TaskResource {
    let Task { row, stream_ids, tag_ids } = task;
    let last_run = row.last_run_id.zip(row.last_status).map(|(id, status)| LastRunResource {
        id: id.0,
        status: status.as_str(),
        error_code: row.last_error_code.map(FailureCode::as_str),
        warnings: row.last_warnings,
    });
    TaskResource {
        last_run,
        id: row.id.0,
        user_id: row.user_id.0,
        remote_server_id: row.remote_server_id.0,
        backup_destination_id: row.backup_destination_id.0,
        status: row.status().as_str(),
        label: row.label,
        description: row.description,
        source: source(&row.spec.source),
        schedule: schedule(&row.spec.schedule, viewer),
        storage: storage(row.spec.storage),
        notification_streams_count: row.streams_count,
        notification_stream_ids: stream_ids,
        tag_ids,
        has_encryption_password: row.has_encryption_password,
        has_heartbeat_url: row.has_heartbeat,
        last_run_local_time: row.last_run_at.map(|at| clock::local_date_time(at.0, viewer.zone)),
        last_run_utc_time: row.last_run_at.map(|at| rfc3339(at.0)),
        paused_at: row.paused_at.map(|at| rfc3339(at.0)),
        protection: ProtectionResource {
            last_proven_at: row.proven_at.map(|at| rfc3339(at.0)),
            proven_by: row.proven_at.map(|_| "verify"),
            last_drill_id: None,
            retention_held: row.retention_held_at.is_some(),
            held_reason: row.held_reason,
        },
        created_at: rfc3339(row.created_at.0),
        updated_at: rfc3339(row.updated_at.0),
    }
}

fn answer(call: &Call, status: StatusCode, task: Task) -> Answer {
    resource(status, task, |task| shape(task, &Viewer::of(call)))
}

pub(crate) async fn list_tasks(call: Call) -> Answer {
    let listing = call.listing()?;
    let mut errors = Errors::default();
    let filter = TaskFilter {
        status: call.query.word_filter(&mut errors, "status", TaskStatus::parse),
        kind: call.query.word_filter(&mut errors, "type", TaskKind::parse),
        tag: call.query.id_filter(&mut errors, "tag_id"),
        server: call.query.id_filter(&mut errors, "remote_server_id"),
        destination: call.query.id_filter(&mut errors, "backup_destination_id"),
        health: None,
    };
    if !errors.is_empty() {
        return Err(errors.into());
    }
    let page = tasks::list(&call.app, &listing, &filter).await?;
    let viewer = Viewer::of(&call);
    list::page(&call, page, |task| shape(task, &viewer))
}

pub(crate) async fn list_upcoming(call: Call) -> Answer {
    let mut errors = Errors::default();
    let limit = positive(&mut errors, "limit", call.query.get("limit"), limits::UPCOMING_DEFAULT);
    if !errors.is_empty() {
        return Err(errors.into());
    }
    let rows = tasks::list_upcoming(&call.app, &call.caller, limit.min(limits::UPCOMING_MAX)).await?;
    let items: Vec<_> = rows.into_iter().map(|row| upcoming(row, &call.caller.zone)).collect();
    data(StatusCode::OK, items)
}

fn upcoming(row: UpcomingRow, zone: &Zone) -> UpcomingResource {
    UpcomingResource {
        backup_task_id: row.id.to_string(),
        label: row.label,
        r#type: row.kind.human(),
        next_run: rfc3339(row.next_run_at.0),
        next_run_human: clock::human_date_time(row.next_run_at.0, zone),
    }
}

fn typed(current: Option<TaskKind>) -> TypedFields {
    TypedFields {
        fields: task::request_fields().collect(),
        kind: |word| TaskKind::parse(word).map(TaskKind::as_str),
        current: current.map(TaskKind::as_str),
    }
}

pub(crate) async fn create_task(call: Call, body: Body) -> Answer {
    let task = tasks::create(&call.app, &call.caller, &body.typed_input(&typed(None))?).await?;
    answer(&call, StatusCode::CREATED, task)
}

pub(crate) async fn show_task(call: Call) -> Answer {
    let task = tasks::show(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    answer(&call, StatusCode::OK, task)
}

pub(crate) async fn update_task(call: Call, body: Body) -> Answer {
    let id: TaskId = call.id(Resource::BackupTask)?;
    let current = tasks::show(&call.app, &call.caller, id).await?;
    let input = body.typed_input(&typed(Some(current.row.spec.source.kind())))?;
    let task = tasks::update(&call.app, &call.caller, id, &input).await?;
    answer(&call, StatusCode::OK, task)
}

pub(crate) async fn delete_task(call: Call) -> Answer {
    let id: TaskId = call.id(Resource::BackupTask)?;
    tasks::show(&call.app, &call.caller, id).await?;
    let mut errors = Errors::default();
    let with_backups = call.query.switch(&mut errors, "delete_backups");
    if !errors.is_empty() {
        return Err(ApiError::from(errors));
    }
    tasks::delete(&call.app, &call.caller, id, with_backups).await?;
    deleted(&call, Resource::BackupTask)
}

pub(crate) async fn show_status(call: Call) -> Answer {
    let task = tasks::show(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    data(StatusCode::OK, StatusResource { id: task.row.id.0, status: task.row.status().as_str() })
}

pub(crate) async fn show_latest_log(call: Call) -> Answer {
    let (run, output) = tasks::latest_log(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    versioned(StatusCode::OK, &version(&run), logs::shape(&run, output)?)
}

pub(crate) async fn run_task(call: Call) -> Answer {
    let run = tasks::request_run(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    queued("Backup task initiated successfully.", run)
}

pub(crate) async fn cancel_task(call: Call) -> Answer {
    tasks::cancel(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    message(StatusCode::OK, "Backup task cancellation requested successfully.")
}

pub(crate) async fn pause_task(call: Call) -> Answer {
    let task = tasks::pause(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    answer(&call, StatusCode::OK, task)
}

pub(crate) async fn resume_task(call: Call) -> Answer {
    let task = tasks::resume(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    answer(&call, StatusCode::OK, task)
}

/// Which backup was reviewed.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub(crate) struct ReleaseRetentionBody {
    /// The backup that you reviewed. If it is no longer the task's newest backup, the request fails with 409. If
    /// omitted, the newest backup counts as reviewed.
    #[schema(required = false, nullable = false, minimum = 1)]
    backup_id: Option<i64>,
}

pub(crate) async fn release_retention(call: Call, body: Body) -> Answer {
    let id: TaskId = call.id(Resource::BackupTask)?;
    tasks::show(&call.app, &call.caller, id).await?;
    let (mut errors, given) = (Errors::default(), body.optional_input()?.integer("backup_id"));
    let seen = rules::optional_id(&mut errors, "backup_id", &given).map(BackupId);
    if !errors.is_empty() {
        return Err(ApiError::from(errors));
    }
    let task = tasks::release_retention(&call.app, &call.caller, id, seen).await?;
    answer(&call, StatusCode::OK, task)
}
