//! `/api/runs`: runs of every kind.

use axum::http::StatusCode;
use holdfast_app::runs::{Outlook, WaitsFor};
use holdfast_app::{App, Resource, runs, version};
use holdfast_core::backup::{RestoreDraft, RestoreOptions, RestoreTarget};
use holdfast_core::clock::rfc3339;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::RunId;
use holdfast_core::input::Errors;
use holdfast_core::run::{RunKind, RunStatus};
use holdfast_store::runs::{RunFilter, RunRow};
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, message, versioned};
use crate::call::Call;
use crate::error::ApiError;
use crate::list;
use crate::logs::{Progress, duration_ms};

/// A run of any kind, such as a backup, a restore or a check.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunResource {
    id: i64,
    kind: &'static str,
    /// The backup that is restored or verified, or that a backup run has made.
    backup_id: Option<i64>,
    backup_task_id: Option<i64>,
    /// The server that is checked.
    remote_server_id: Option<i64>,
    /// The destination that is checked or compared with the records.
    backup_destination_id: Option<i64>,
    /// The stream that is tested.
    notification_stream_id: Option<i64>,
    /// The repository that is pruned or checked.
    repository_id: Option<i64>,
    output: String,
    status: &'static str,
    created_at: String,
    started_at: Option<String>,
    finished_at: Option<String>,
    bytes_read: i64,
    bytes_stored: i64,
    files: i64,
    duration_ms: Option<i64>,
    warnings: i64,
    error_code: Option<&'static str>,
    /// Null unless the run is in progress.
    progress: Option<Progress>,
    /// 2 if it repeats a run that failed for a temporary reason.
    attempt: i64,
    /// Shown for a single run: when a failed backup will be tried once more.
    retry_at: Option<String>,
    /// Shown for a single run: the run that tries the failed backup once more.
    retry_run_id: Option<i64>,
    /// Shown for a single run: why it does not start, if not because of other runs.
    waiting_for: Option<&'static str>,
    /// What a restore was asked to do; null for other runs.
    restore: Option<RestoreResource>,
}

/// The request of a restore.
#[derive(Serialize, ToSchema)]
pub(crate) struct RestoreResource {
    remote_server_id: i64,
    /// Null for a database.
    path: Option<String>,
    /// Null for files, and if all databases of a server are restored.
    database_name: Option<String>,
    /// Only these files and folders are restored; all if empty.
    entries: Vec<String>,
    overwrite: bool,
    no_owner: bool,
    numeric_owner: bool,
    restore_devices: bool,
    dry_run: bool,
}

fn shape_restore(draft: RestoreDraft) -> RestoreResource {
    let (path, entries, database_name) = match draft.target {
        RestoreTarget::Path { path, entries } => (Some(path), entries, None),
        RestoreTarget::Database { name } => (None, Vec::new(), name),
    };
    let RestoreOptions { no_owner, numeric_owner, restore_devices, dry_run } = draft.options;
    RestoreResource {
        remote_server_id: draft.server.0,
        path,
        database_name,
        entries,
        overwrite: draft.overwrite,
        no_owner,
        numeric_owner,
        restore_devices,
        dry_run,
    }
}

/// A run with what it was asked to restore.
pub(crate) async fn shape_with_restore(app: &App, run: &RunRow, output: String) -> Result<RunResource, ApiError> {
    let restore = runs::restores(app, &[run.id]).await?.pop();
    Ok(RunResource { restore: restore.map(|(_, draft)| shape_restore(draft)), ..shape(run, output) })
}

fn shape(run: &RunRow, output: String) -> RunResource {
    RunResource {
        duration_ms: duration_ms(run),
        progress: Progress::of(run),
        id: run.id.0,
        kind: run.kind().as_str(),
        backup_id: run.subject.backup().or(run.made_backup).map(|id| id.0),
        backup_task_id: run.subject.task().map(|id| id.0),
        remote_server_id: run.subject.server().map(|id| id.0),
        backup_destination_id: run.subject.destination().map(|id| id.0),
        notification_stream_id: run.subject.stream().map(|id| id.0),
        repository_id: run.subject.repository().map(|id| id.0),
        output,
        status: run.status.as_str(),
        created_at: rfc3339(run.created_at.0),
        started_at: run.started_at.map(|at| rfc3339(at.0)),
        finished_at: run.finished_at.map(|at| rfc3339(at.0)),
        bytes_read: run.bytes_read,
        bytes_stored: run.bytes_stored,
        files: run.files,
        warnings: run.warnings,
        error_code: run.error_code.map(FailureCode::as_str),
        attempt: run.attempt,
        retry_at: None,
        retry_run_id: None,
        waiting_for: None,
        restore: None,
    }
}

fn with_outlook(run: RunResource, outlook: &Outlook) -> RunResource {
    RunResource {
        retry_at: outlook.retry_at.map(|at| rfc3339(at.0)),
        retry_run_id: outlook.retried_by.map(|id| id.0),
        waiting_for: outlook.waits_for.map(|what| match what {
            WaitsFor::Worker => "worker",
            WaitsFor::DrainEnd => "drain",
            WaitsFor::MaintenanceEnd => "maintenance",
        }),
        ..run
    }
}

/// Whether a list of runs may be narrowed to this kind. Those of repositories are listed only then.
pub(crate) fn is_listed(kind: RunKind) -> bool {
    kind.reads_stored_backup() || kind.is_of_repository()
}

pub(crate) async fn list_runs(call: Call) -> Answer {
    let listing = call.listing_without_labels()?;
    let mut errors = Errors::default();
    let filter = RunFilter {
        backup: call.query.id_filter(&mut errors, "backup_id"),
        kind: call.query.word_filter(&mut errors, "kind", |text| RunKind::parse(text).filter(|kind| is_listed(*kind))),
        status: call.query.word_filter(&mut errors, "status", RunStatus::parse),
    };
    if !errors.is_empty() {
        return Err(ApiError::from(errors));
    }
    let page = runs::list_runs_of_stored_backups(&call.app, &listing, &filter).await?;
    let ids: Vec<RunId> = page.items.iter().map(|(run, _)| run.id).collect();
    let mut restores = runs::restores(&call.app, &ids).await?;
    list::page(&call, page, |(run, output)| {
        let own = restores.iter().position(|(id, _)| *id == run.id.0).map(|place| restores.swap_remove(place));
        RunResource { restore: own.map(|(_, draft)| shape_restore(draft)), ..shape(&run, output) }
    })
}

pub(crate) async fn show_run(call: Call) -> Answer {
    let (run, output) = runs::show(&call.app, &call.caller, call.id(Resource::Run)?).await?;
    let outlook = runs::outlook(&call.app, &run).await?;
    let shown = shape_with_restore(&call.app, &run, output).await?;
    versioned(StatusCode::OK, &version(&run), with_outlook(shown, &outlook))
}

pub(crate) async fn cancel_run(call: Call) -> Answer {
    runs::cancel(&call.app, &call.caller, call.id(Resource::Run)?).await?;
    message(StatusCode::OK, "Run cancelled successfully.")
}
