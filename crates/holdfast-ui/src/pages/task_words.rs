//! Short descriptions of tasks, and the parsing of task ids in URLs.

use holdfast_app::{AppError, Resource};
use holdfast_core::ids::TaskId;
use holdfast_core::source::{SourceSpec, TaskKind};
use holdfast_store::tasks::TaskRow;

use crate::problem::PageError;
use crate::translator::Translator;

pub(crate) fn parse(id: &str) -> Result<TaskId, PageError> {
    let id: i64 = id.parse().map_err(|_| AppError::NotFound(Resource::BackupTask))?;
    Ok(TaskId(id))
}

/// A short description of what a task copies.
pub(crate) fn source_words(t: Translator, row: &TaskRow) -> String {
    match &row.spec.source {
        SourceSpec::Files(source) if source.path.is_empty() => kind_words(t, TaskKind::Files),
        SourceSpec::Files(source) => source.path.clone(),
        source @ SourceSpec::Database { .. } => match source.place() {
            Some(place) => t.with("task-one-database", "name", place),
            None => t.say("task-all-databases"),
        },
    }
}

/// The label of a task's type.
pub(crate) fn kind_words(t: Translator, kind: TaskKind) -> String {
    match kind {
        TaskKind::Files => t.say("task-files"),
        TaskKind::Database => t.say("task-database"),
    }
}
