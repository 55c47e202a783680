//! What can be wrong with a repository.

/// Why a file of a repository could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    #[error("The password does not open this repository.")]
    WrongPassword,
    /// Bytes that are not what was written.
    #[error("{0}")]
    Damaged(String),
    /// A form that this version cannot work with, although it may be sound.
    #[error("{0}")]
    Unsupported(String),
}

impl RepositoryError {
    pub(crate) fn damaged(message: impl Into<String>) -> Self {
        Self::Damaged(message.into())
    }
}

pub type Result<T, E = RepositoryError> = std::result::Result<T, E>;
