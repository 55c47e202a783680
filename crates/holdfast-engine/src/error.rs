//! What can go wrong in the data plane: a class that programs rely on and a sentence for a person.

use std::io;

use holdfast_core::run::FailureCode;

pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// The class says whether trying again can help; the message never holds a secret.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct EngineError {
    pub code: FailureCode,
    pub message: String,
}

impl EngineError {
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(FailureCode::Internal, message.to_string())
    }

    pub fn cancelled() -> Self {
        Self::new(FailureCode::Cancelled, "The run was cancelled.")
    }

    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(FailureCode::Corrupt, message)
    }

    pub fn incomplete(message: impl Into<String>) -> Self {
        Self::new(FailureCode::Incomplete, message)
    }
}

/// Readers and writers between our stages speak `io::Error`; ours travels inside and comes out whole.
impl From<EngineError> for io::Error {
    fn from(error: EngineError) -> Self {
        Self::other(error)
    }
}

/// The error that one of our own stages put into an `io::Error`, however often a library wrapped it.
pub(crate) fn carried(error: &io::Error) -> Option<EngineError> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|inner| inner as _);
    while let Some(inner) = source {
        if let Some(ours) = inner.downcast_ref::<EngineError>() {
            return Some(ours.clone());
        }
        source = match inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(nested) => Some(nested),
            None => inner.source(),
        };
    }
    None
}

/// What a failed read or write means: our own error if it carries one, else what `code` says.
pub(crate) fn classify(error: &io::Error, code: FailureCode, doing: &str) -> EngineError {
    carried(error).unwrap_or_else(|| EngineError::new(code, format!("{doing}: {error}")))
}
