//! Tasks in a few words, and their ids in addresses.

use holdfast_app::{AppError, Resource};
use holdfast_core::ids::TaskId;
use holdfast_core::task::TaskKind;
use holdfast_store::tasks::TaskRow;

use crate::problem::PageError;
use crate::translator::Translator;

pub(crate) fn parse(id: &str) -> Result<TaskId, PageError> {
    let id: i64 = id.parse().map_err(|_| AppError::NotFound(Resource::BackupTask))?;
    Ok(TaskId(id))
}

/// What a task copies, in a few words.
pub(crate) fn source_words(t: Translator, row: &TaskRow) -> String {
    match (TaskKind::parse(&row.kind), &row.source_path, &row.database_name) {
        (Some(TaskKind::Database), _, Some(name)) => t.with("task-one-database", "name", name),
        (Some(TaskKind::Database), _, None) => t.say("task-all-databases"),
        (_, Some(path), _) => path.clone(),
        _ => kind_words(t, &row.kind),
    }
}

/// What a task copies, for lists of all kinds.
pub(crate) fn kind_words(t: Translator, kind: &str) -> String {
    match TaskKind::parse(kind) {
        Some(TaskKind::Database) => t.say("task-database"),
        _ => t.say("task-files"),
    }
}
