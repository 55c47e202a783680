//! `/api/backup-tasks`.

use axum::http::StatusCode;
use holdfast_app::tasks::{self, Task};
use holdfast_app::{AppError, Resource};
use holdfast_core::clock::{self, Zone, rfc3339};
use holdfast_core::ids::{BackupId, TaskId};
use holdfast_core::input::Errors;
use holdfast_core::page::positive;
use holdfast_core::rules;
use holdfast_core::run::TaskStatus;
use holdfast_core::schedule::Frequency;
use holdfast_core::task::{FORMAT_ARCHIVE, TaskInput, TaskKind};
use holdfast_core::{Timestamp, limits};
use holdfast_store::tasks::TaskFilter;
use holdfast_store::upcoming::UpcomingRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, data, message};
use crate::body::{Body, Object};
use crate::call::Call;
use crate::error::ApiError;
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
    #[schema(pattern = "^(ready|running)$")]
    status: &'static str,
    has_encryption_password: bool,
    has_heartbeat_url: bool,
    /// `YYYY-MM-DD HH:MM:SS` in the user's zone.
    last_run_local_time: Option<String>,
    last_run_utc_time: Option<String>,
    paused_at: Option<String>,
    protection: ProtectionResource,
    created_at: String,
    updated_at: String,
}

/// How far the task's backups are known to be good.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProtectionResource {
    /// When a backup that is still stored was last proven to be good.
    last_proven_at: Option<String>,
    #[schema(pattern = "^(drill|verify)$")]
    proven_by: Option<&'static str>,
    last_drill_id: Option<i64>,
    /// The newest backup looks wrong, so old ones are not removed; see `POST …/release-retention`.
    retention_held: bool,
    held_reason: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct SourceResource {
    path: String,
    #[schema(pattern = "^(files|database)$")]
    r#type: String,
    database_name: Option<String>,
    database_engine: Option<String>,
    /// Comma-separated table names.
    excluded_tables: Option<String>,
    excluded_paths: Vec<String>,
    /// Leave out what is mounted below the path.
    one_file_system: bool,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ScheduleResource {
    #[schema(pattern = "^(hourly|daily|weekly|monthly|custom)$")]
    frequency: String,
    /// `HH:MM` in UTC.
    #[schema(pattern = "^[0-2][0-9]:[0-5][0-9]$")]
    scheduled_utc_time: String,
    /// The same time in the user's zone, with today's offset.
    #[schema(pattern = "^[0-2][0-9]:[0-5][0-9]$")]
    scheduled_local_time: String,
    custom_cron: Option<String>,
    /// 0 is Sunday; of weekly tasks.
    day_of_week: Option<i64>,
    /// Of monthly tasks.
    day_of_month: Option<i64>,
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
    #[schema(pattern = "^(ready|running)$")]
    status: &'static str,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct UpcomingResource {
    backup_task_id: String,
    label: String,
    #[schema(pattern = "^(Files|Database)$")]
    r#type: &'static str,
    next_run: String,
    next_run_human: String,
}

/// What a task is made of; see `TaskInput`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub(crate) struct TaskBody {
    remote_server_id: i64,
    backup_destination_id: i64,
    #[schema(min_length = 1, max_length = 255)]
    label: String,
    #[schema(max_length = 255)]
    description: Option<String>,
    /// Needed for `files`.
    #[schema(max_length = 4096)]
    source_path: Option<String>,
    #[schema(pattern = "^(files|database)$")]
    r#type: String,
    /// Left out on a `database` task: every database of the server.
    #[schema(max_length = 255)]
    database_name: Option<String>,
    #[schema(pattern = "^(mysql|postgresql)$")]
    database_engine: Option<String>,
    /// Comma-separated.
    #[schema(max_length = 10000)]
    excluded_tables: Option<String>,
    /// The same as `excluded_tables`.
    #[schema(max_length = 10000)]
    excluded_database_tables: Option<String>,
    #[schema(max_items = 100)]
    excluded_paths: Option<Vec<String>>,
    /// Leave out what is mounted below the path.
    #[schema(nullable = false, default = false)]
    one_file_system: Option<bool>,
    /// Needed unless `custom_cron` is set.
    #[schema(nullable = false, pattern = "^(hourly|daily|weekly|monthly)$")]
    frequency: Option<String>,
    /// `HH:MM` in UTC; needed for daily, weekly and monthly tasks.
    #[schema(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    time_to_run_at: Option<String>,
    /// 0 is Sunday; of weekly tasks, the weekday of creation unless said otherwise.
    #[schema(minimum = 0, maximum = 6)]
    day_of_week: Option<i64>,
    /// Of monthly tasks, the day of creation unless said otherwise.
    #[schema(minimum = 1, maximum = 28)]
    day_of_month: Option<i64>,
    /// Five fields, in UTC.
    #[schema(max_length = 255)]
    custom_cron: Option<String>,
    /// The same as `custom_cron`.
    #[schema(max_length = 255)]
    custom_cron_expression: Option<String>,
    /// 0 keeps all.
    #[schema(minimum = 0, maximum = 1000, default = 5)]
    maximum_backups_to_keep: Option<i64>,
    /// A folder below the destination's root.
    #[schema(max_length = 255, default = "/")]
    store_path: Option<String>,
    #[schema(pattern = "^[A-Za-z0-9._-]{1,100}$")]
    appended_filename: Option<String>,
    /// The same as `appended_filename`.
    #[schema(pattern = "^[A-Za-z0-9._-]{1,100}$")]
    appended_file_name: Option<String>,
    /// Never returned; null removes it.
    #[schema(max_length = 1024, write_only)]
    encryption_password: Option<String>,
    /// Asked when a run starts (`/start` added to its path), succeeds (as it is) or fails (`/fail`). Never returned.
    #[schema(max_length = 1024, write_only)]
    heartbeat_url: Option<String>,
    #[schema(pattern = "^archive$", default = "archive")]
    format: Option<String>,
    #[schema(max_items = 50)]
    notification_stream_ids: Option<Vec<i64>>,
    #[schema(max_items = 50)]
    tag_ids: Option<Vec<i64>>,
}

/// What all tasks of an answer are shown with; worked out once.
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

fn shape(task: Task, viewer: &Viewer<'_>) -> Result<TaskResource, AppError> {
    let Task { row, stream_ids, tag_ids } = task;
    let schedule = row.schedule()?;
    let utc_time = schedule.utc_time(viewer.now);
    let is = |frequency: Frequency| schedule.frequency == frequency && schedule.cron.is_none();
    Ok(TaskResource {
        id: row.id,
        user_id: row.user_id,
        remote_server_id: row.remote_server_id,
        backup_destination_id: row.backup_destination_id,
        status: row.status().as_str(),
        label: row.label,
        description: row.description,
        source: SourceResource {
            path: row.source_path.unwrap_or_default(),
            r#type: row.kind,
            database_name: row.database_name,
            database_engine: row.database_engine,
            excluded_tables: row.excluded_tables,
            excluded_paths: row.excluded_paths.lines().map(str::to_owned).collect(),
            one_file_system: row.one_file_system,
        },
        schedule: ScheduleResource {
            frequency: row.frequency,
            scheduled_utc_time: utc_time.to_string(),
            scheduled_local_time: utc_time.shifted(viewer.offset_secs).to_string(),
            custom_cron: row.custom_cron,
            day_of_week: is(Frequency::Weekly).then_some(row.day_of_week),
            day_of_month: is(Frequency::Monthly).then_some(row.day_of_month),
        },
        storage: StorageResource {
            max_backups: row.max_backups,
            appended_filename: row.appended_filename,
            path: row.store_path,
            format: FORMAT_ARCHIVE,
        },
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
    })
}

fn read(body: &Object) -> TaskInput {
    TaskInput {
        remote_server_id: body.integer("remote_server_id"),
        backup_destination_id: body.integer("backup_destination_id"),
        label: body.text("label"),
        description: body.text("description"),
        source_path: body.text("source_path"),
        kind: body.text("type"),
        database_name: body.text("database_name"),
        database_engine: body.text("database_engine"),
        excluded_tables: body.text("excluded_tables").or(body.text("excluded_database_tables")),
        excluded_paths: body.texts("excluded_paths"),
        one_file_system: body.boolean("one_file_system"),
        frequency: body.text("frequency"),
        time_to_run_at: body.text("time_to_run_at"),
        day_of_week: body.integer("day_of_week"),
        day_of_month: body.integer("day_of_month"),
        custom_cron: body.text("custom_cron").or(body.text("custom_cron_expression")),
        maximum_backups_to_keep: body.integer("maximum_backups_to_keep"),
        store_path: body.text("store_path"),
        appended_filename: body.text("appended_filename").or(body.text("appended_file_name")),
        encryption_password: body.text("encryption_password"),
        heartbeat_url: body.text("heartbeat_url"),
        format: body.text("format"),
        notification_stream_ids: body.integers("notification_stream_ids"),
        tag_ids: body.integers("tag_ids"),
    }
}

fn answer(call: &Call, status: StatusCode, task: Task) -> Answer {
    data(status, shape(task, &Viewer::of(call))?)
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
    list::try_page(&call, page, |task| shape(task, &viewer))
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
        r#type: TaskKind::parse(&row.kind).unwrap_or(TaskKind::Files).human(),
        next_run: rfc3339(row.next_run_at.0),
        next_run_human: clock::human_date_time(row.next_run_at.0, zone),
    }
}

pub(crate) async fn create_task(call: Call, body: Body) -> Answer {
    let task = tasks::create(&call.app, &call.caller, &read(&body.object()?)).await?;
    answer(&call, StatusCode::CREATED, task)
}

pub(crate) async fn show_task(call: Call) -> Answer {
    let task = tasks::show(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    answer(&call, StatusCode::OK, task)
}

pub(crate) async fn update_task(call: Call, body: Body) -> Answer {
    let id: TaskId = call.id(Resource::BackupTask)?;
    tasks::show(&call.app, &call.caller, id).await?;
    let task = tasks::update(&call.app, &call.caller, id, &read(&body.object()?)).await?;
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
    message(StatusCode::OK, "Backup task successfully deleted")
}

pub(crate) async fn show_status(call: Call) -> Answer {
    let task = tasks::show(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    data(StatusCode::OK, StatusResource { id: task.row.id, status: task.row.status().as_str() })
}

pub(crate) async fn show_latest_log(call: Call) -> Answer {
    let (run, output) = tasks::latest_log(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    data(StatusCode::OK, logs::shape(&run, output)?)
}

pub(crate) async fn run_task(call: Call) -> Answer {
    tasks::request_run(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    message(StatusCode::ACCEPTED, "Backup task initiated successfully.")
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

/// Which backup was looked at.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub(crate) struct ReleaseRetentionBody {
    /// The backup that you looked at. When the task's newest backup is another one by now, the answer is 409. Without it
    /// the newest backup counts as looked at.
    #[schema(required = false, nullable = false, minimum = 1)]
    backup_id: Option<i64>,
}

pub(crate) async fn release_retention(call: Call, body: Body) -> Answer {
    let id: TaskId = call.id(Resource::BackupTask)?;
    tasks::show(&call.app, &call.caller, id).await?;
    let (mut errors, given) = (Errors::default(), body.optional_object()?.integer("backup_id"));
    let seen = rules::integer(&mut errors, "backup_id", &given, 1..=i64::MAX, 0);
    if !errors.is_empty() {
        return Err(ApiError::from(errors));
    }
    let seen = (seen > 0).then_some(BackupId(seen));
    let task = tasks::release_retention(&call.app, &call.caller, id, seen).await?;
    answer(&call, StatusCode::OK, task)
}
