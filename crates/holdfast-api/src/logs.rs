//! `/api/backup-task-logs` and the logs of one task.

use axum::http::StatusCode;
use holdfast_app::{AppError, Resource, logs, tasks, version};
use holdfast_core::clock::rfc3339;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::TaskId;
use holdfast_core::input::Errors;
use holdfast_core::run::RunStatus;
use holdfast_store::runs::{LogFilter, RunRow};
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, message, versioned};
use crate::call::Call;
use crate::error::ApiError;
use crate::list;

#[derive(Serialize, ToSchema)]
pub(crate) struct LogResource {
    id: i64,
    backup_task_id: i64,
    /// The backup that was made; null if there is none.
    backup_id: Option<i64>,
    output: String,
    /// Null until the run has ended.
    finished_at: Option<String>,
    status: &'static str,
    created_at: String,
    started_at: Option<String>,
    trigger: &'static str,
    attempt: i64,
    bytes_read: i64,
    bytes_stored: i64,
    files: i64,
    duration_ms: Option<i64>,
    warnings: i64,
    error_code: Option<&'static str>,
    /// Null unless the run is in progress.
    progress: Option<Progress>,
}

/// The progress of a run. Totals are estimates; null if unknown.
#[derive(Serialize, ToSchema)]
pub(crate) struct Progress {
    bytes: i64,
    files: i64,
    bytes_total: Option<i64>,
    files_total: Option<i64>,
    bytes_per_second: i64,
    seconds_left: Option<i64>,
}

impl Progress {
    pub(crate) fn of(run: &RunRow) -> Option<Self> {
        if run.status != RunStatus::Running {
            return None;
        }
        let known = |total: i64| (total > 0).then_some(total);
        let left = known(run.bytes_total).map(|total| (total - run.bytes_read).max(0));
        Some(Self {
            bytes: run.bytes_read,
            files: run.files,
            bytes_total: known(run.bytes_total),
            files_total: known(run.files_total),
            bytes_per_second: run.bytes_per_second,
            seconds_left: left.and_then(|left| left.checked_div(run.bytes_per_second)),
        })
    }
}

pub(crate) fn duration_ms(run: &RunRow) -> Option<i64> {
    match (run.started_at, run.finished_at) {
        (Some(start), Some(end)) => Some((end.0.as_microsecond() - start.0.as_microsecond()) / 1000),
        _ => None,
    }
}

pub(crate) fn shape(run: &RunRow, output: String) -> Result<LogResource, AppError> {
    let task = run.subject.task().ok_or_else(|| AppError::Internal(format!("run {} is not of a task", run.id)))?;
    Ok(LogResource {
        duration_ms: duration_ms(run),
        progress: Progress::of(run),
        id: run.id.0,
        backup_task_id: task.0,
        backup_id: run.made_backup.map(|id| id.0),
        output,
        finished_at: run.finished_at.map(|at| rfc3339(at.0)),
        status: run.status.as_str(),
        created_at: rfc3339(run.created_at.0),
        started_at: run.started_at.map(|at| rfc3339(at.0)),
        trigger: run.requested_by.as_str(),
        attempt: run.attempt,
        bytes_read: run.bytes_read,
        bytes_stored: run.bytes_stored,
        files: run.files,
        warnings: run.warnings,
        error_code: run.error_code.map(FailureCode::as_str),
    })
}

pub(crate) async fn list_logs(call: Call) -> Answer {
    let mut errors = Errors::default();
    let task = call.query.id_filter(&mut errors, "backup_task_id");
    list_filtered(&call, task, errors).await
}

pub(crate) async fn list_task_logs(call: Call) -> Answer {
    let id: TaskId = call.id(Resource::BackupTask)?;
    tasks::show(&call.app, &call.caller, id).await?;
    list_filtered(&call, Some(id.0), Errors::default()).await
}

async fn list_filtered(call: &Call, task: Option<i64>, mut errors: Errors) -> Answer {
    let listing = call.listing_without_labels()?;
    let status = call.query.word_filter(&mut errors, "status", RunStatus::parse);
    if !errors.is_empty() {
        return Err(ApiError::from(errors));
    }
    let page = logs::list(&call.app, &listing, &LogFilter { task, status }).await?;
    list::try_page(call, page, |(run, output)| shape(&run, output))
}

pub(crate) async fn show_log(call: Call) -> Answer {
    let (run, output) = logs::show(&call.app, &call.caller, call.id(Resource::BackupTaskLog)?).await?;
    versioned(StatusCode::OK, &version(&run), shape(&run, output)?)
}

pub(crate) async fn delete_log(call: Call) -> Answer {
    logs::delete(&call.app, &call.caller, call.id(Resource::BackupTaskLog)?).await?;
    message(StatusCode::OK, "Backup task log successfully deleted")
}
