//! What restores of databases tell people in the same words, whatever the engine.

use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;

use crate::error::EngineError;

/// The message about tables that are lost when a database is replaced.
pub(super) fn tables_lost(tables: &[String], verb: &str) -> String {
    const NAMED: usize = 20;
    let names: Vec<String> = tables.iter().take(NAMED).map(|name| name_text(name.as_bytes())).collect();
    let more = match tables.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("These tables are not in the backup and {verb} gone: {}{more}.", names.join(", "))
}

/// The error for a database that is not in a backup of a whole server.
pub(super) fn not_held(name: &str) -> EngineError {
    let message = format!("There is no database {} in this backup; nothing was restored.", name_text(name.as_bytes()));
    EngineError::new(FailureCode::EntryMissing, message)
}

pub(super) fn not_empty(name: &str) -> EngineError {
    EngineError::new(FailureCode::TargetNotEmpty, format!("The database {name} is not empty; nothing was changed."))
}

/// The error for a database that the server itself needs, and that a restore would break.
pub(crate) fn is_of_the_server(name: &str) -> EngineError {
    let message = format!(
        "{} belongs to the database server itself, so it is not replaced. Choose another name, or restore other databases \
         of this backup one by one. Nothing was changed.",
        name_text(name.as_bytes())
    );
    EngineError::new(FailureCode::NotSupported, message)
}

/// The error for a name that the server would refuse or, worse, cut.
pub(crate) fn name_too_long(name: &str, longest: &str) -> EngineError {
    let message = format!("The name {} is longer than {longest}. Nothing was changed.", name_text(name.as_bytes()));
    EngineError::new(FailureCode::NotSupported, message)
}
