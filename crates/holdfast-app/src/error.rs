//! Why a use case failed. The list is closed: each front end turns every variant into its own response.

use holdfast_core::input::Errors;
use holdfast_core::refusal::Rule;
use holdfast_core::scope::Scope;
use holdfast_store::StoreError;

use crate::refusal::{Conflict, Missing};

#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// No token, an invalid one or an expired one.
    #[error("The requested operation requires a valid authentication token.")]
    Unauthenticated,
    #[error("Too many requests. Try again in {retry_after_secs} seconds.")]
    TooManyRequests { limit: u32, retry_after_secs: u64 },
    #[error("This token lacks the scope {}.", .0.as_str())]
    MissingScope(Scope),
    #[error("{} not found", .0.name())]
    NotFound(Resource),
    /// Something that belongs to a resource does not exist.
    #[error("{0}")]
    Missing(Missing),
    #[error("You are not authorized to access this {}", .0.name().to_lowercase())]
    Forbidden(Resource),
    #[error("The given data was invalid.")]
    Invalid(Errors),
    /// The resource is in a state that does not allow this now.
    #[error("{0}")]
    Conflict(Conflict),
    /// Temporary; the text is for the log.
    #[error("The service is busy or its database is away. Try again in a moment.")]
    Unavailable(String),
    /// A destination failed, not the service; the text is for the log.
    #[error("The destination does not answer, or not as it should. Check it, and try again later.")]
    DestinationAway(String),
    /// A fault of Holdfast; the text is for the log.
    #[error("Something went wrong on our side. It has been logged.")]
    Internal(String),
}

impl AppError {
    /// What happened, for logs and operators, including details that are not shown to users.
    pub fn reason(&self) -> String {
        match self {
            Self::Unavailable(reason) | Self::DestinationAway(reason) | Self::Internal(reason) => reason.clone(),
            error => error.to_string(),
        }
    }
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(text) | StoreError::DiskFull(text) | StoreError::ReadOnly(text) => {
                Self::Unavailable(text)
            }
            StoreError::Conflict => Self::Conflict(Conflict::Taken),
            StoreError::InUse => Self::Conflict(Conflict::Changed),
            StoreError::NotText => Self::Invalid(Errors::one("text", Rule::ControlCharacters)),
            StoreError::Sealed(_) | StoreError::Broken(_) => Self::Internal(error.to_string()),
        }
    }
}

/// What can be requested by id, with the name that messages use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    NotificationStream,
    BackupTask,
    BackupDestination,
    RemoteServer,
    Tag,
    BackupTaskLog,
    Backup,
    Run,
    Notice,
    Administration,
}

impl Resource {
    pub fn name(self) -> &'static str {
        match self {
            Self::NotificationStream => "Notification stream",
            Self::BackupTask => "Backup task",
            Self::BackupDestination => "Backup destination",
            Self::RemoteServer => "Remote server",
            Self::Tag => "Tag",
            Self::BackupTaskLog => "Backup task log",
            Self::Backup => "Backup",
            Self::Run => "Run",
            Self::Notice => "Notice",
            Self::Administration => "Administration",
        }
    }
}
