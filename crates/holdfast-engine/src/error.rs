//! Errors of the data plane: a code for programs and a message for people.

use std::io;

use holdfast_core::failure::FailureCode;

pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// The code determines whether a retry can help; the message never contains a secret.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct EngineError {
    pub code: FailureCode,
    pub message: String,
    /// The number of the error that a database client reported, if its engine numbers them.
    pub number: Option<u16>,
    /// Whether a server's output exceeded the limit.
    pub is_too_long: bool,
}

impl EngineError {
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), number: None, is_too_long: false }
    }

    /// The same error with a different message.
    #[must_use]
    pub fn reworded(&self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self.clone() }
    }

    /// Whether a database client reported one of these errors. The message is never searched for the number: it contains
    /// names, which anybody can choose.
    pub(crate) fn has_number(&self, numbers: &[u16]) -> bool {
        self.number.is_some_and(|number| numbers.contains(&number))
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

/// Readers and writers between our stages use `io::Error`; our error is wrapped in it and recovered by `carried`.
impl From<EngineError> for io::Error {
    fn from(error: EngineError) -> Self {
        Self::other(error)
    }
}

/// The error that one of our own stages put into an `io::Error`, no matter how often libraries have wrapped it.
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

/// Classifies a failed read or write: our own error if it carries one, otherwise one with `code`.
pub(crate) fn classify(error: &io::Error, code: FailureCode, doing: &str) -> EngineError {
    carried(error).unwrap_or_else(|| EngineError::new(code, format!("{doing}: {error}")))
}
