//! The repository of a task.

use holdfast_app::Resource;
use holdfast_app::repositories::{self, Repository};
use holdfast_core::clock::rfc3339;
use serde::Serialize;
use utoipa::ToSchema;

use axum::http::StatusCode;

use crate::answer::{Answer, data, queued_run};
use crate::call::Call;
use crate::runs;

/// A repository in the restic format, into which a task stores its backups.
#[derive(Serialize, ToSchema)]
pub(crate) struct RepositoryResource {
    id: i64,
    backup_task_id: Option<i64>,
    backup_destination_id: i64,
    /// Its folder at the destination; empty for the root of that.
    folder: String,
    /// How many backups are in it.
    backups: i64,
    /// What these backups hold together, as it was read from the server.
    plain_bytes: i64,
    /// What the repository takes up at the destination. Null until the first backup.
    stored_bytes: Option<i64>,
    /// An estimate of what removed backups have left since the last prune: what each of them had added.
    garbage_bytes: i64,
    /// What the last prune left unused, because removing it would have cost too much.
    unused_bytes: i64,
    pruned_at: Option<String>,
    /// When all of it was last found to be sound: its structure and every pack.
    checked_at: Option<String>,
    /// Why the last check failed, or else the last prune.
    error_code: Option<&'static str>,
    error: Option<String>,
    /// The newest prune or check, also one that is queued or running.
    last_run_id: Option<i64>,
    created_at: String,
}

fn shape(repository: Repository) -> RepositoryResource {
    let Repository { row, backups, plain_bytes, newest_run } = repository;
    let trouble = row.trouble().map(|(code, reason)| (code, reason.to_owned()));
    RepositoryResource {
        id: row.id.0,
        backup_task_id: row.task_id.map(|id| id.0),
        backup_destination_id: row.destination_id.0,
        folder: row.folder,
        backups,
        plain_bytes,
        stored_bytes: row.stored_bytes,
        garbage_bytes: row.garbage_bytes.min(row.stored_bytes.unwrap_or(0)),
        unused_bytes: row.unused_bytes,
        pruned_at: row.pruned_at.map(|at| rfc3339(at.0)),
        checked_at: row.checked_at.map(|at| rfc3339(at.0)),
        error_code: trouble.as_ref().map(|(code, _)| code.as_str()),
        error: trouble.map(|(_, reason)| reason),
        last_run_id: newest_run.map(|run| run.id.0),
        created_at: rfc3339(row.created_at.0),
    }
}

pub(crate) async fn show_repository(call: Call) -> Answer {
    let found = repositories::show(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    data(StatusCode::OK, shape(found))
}

pub(crate) async fn prune_repository(call: Call) -> Answer {
    let run = repositories::request_prune(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    queued_run(run.id, runs::shape_with_restore(&call.app, &run, String::new()).await?)
}

pub(crate) async fn check_repository(call: Call) -> Answer {
    let run = repositories::request_check(&call.app, &call.caller, call.id(Resource::BackupTask)?).await?;
    queued_run(run.id, runs::shape_with_restore(&call.app, &run, String::new()).await?)
}
