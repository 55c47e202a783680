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
    /// Temporary, or until an operator has resolved it.
    #[error("{}", .0.cause)]
    Unavailable(Outage),
    /// A destination failed, not the service; the text is for the log.
    #[error("The destination does not answer, or not as it should. Check it, and try again later.")]
    DestinationAway(String),
    /// A fault of Holdfast; the text is for the log.
    #[error("Something went wrong on our side. It has been logged.")]
    Internal(String),
}

/// Why the service cannot do its work at the moment.
#[derive(Debug, Clone)]
pub struct Outage {
    pub cause: OutageCause,
    /// For the log.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutageCause {
    #[error("The service is busy or its database is away. Try again in a moment.")]
    Busy,
    #[error("Nothing can be stored, because the disk of Holdfast's database is full. Its operator has to free space.")]
    DiskFull,
    #[error(
        "Nothing can be stored, because Holdfast's database is read-only. Its operator has to make it writable again."
    )]
    ReadOnly,
    #[error("Holdfast's database is damaged. Its operator has to repair or restore it; `holdfast doctor` tells more.")]
    Damaged,
    #[error("Holdfast's database cannot be read or written. Its operator has to look into its disk.")]
    Unreadable,
    #[error(
        "Holdfast's master key is missing or cannot be used, so that no secret can be read or stored. Its operator has to \
         put it back; `holdfast doctor` says where."
    )]
    NoKey,
}

impl AppError {
    /// Something is busy or away, and will probably be back soon; the text is for the log.
    pub fn busy(reason: impl Into<String>) -> Self {
        Self::Unavailable(Outage { cause: OutageCause::Busy, reason: reason.into() })
    }

    /// What happened, for logs and operators, including details that are not shown to users.
    pub fn reason(&self) -> String {
        match self {
            Self::Unavailable(Outage { reason, .. }) | Self::DestinationAway(reason) | Self::Internal(reason) => {
                reason.clone()
            }
            error => error.to_string(),
        }
    }
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> Self {
        let outage = |cause: OutageCause| Self::Unavailable(Outage { cause, reason: error.to_string() });
        match error {
            StoreError::Unavailable(_)
            | StoreError::Locked(_)
            | StoreError::Refused { .. }
            | StoreError::Gone(_)
            | StoreError::NoTables(_) => outage(OutageCause::Busy),
            StoreError::Unreadable(_) => outage(OutageCause::Unreadable),
            StoreError::DiskFull(_) => outage(OutageCause::DiskFull),
            StoreError::ReadOnly(_) => outage(OutageCause::ReadOnly),
            StoreError::Damaged(_) => outage(OutageCause::Damaged),
            StoreError::Conflict => Self::Conflict(Conflict::Taken),
            StoreError::InUse => Self::Conflict(Conflict::Changed),
            StoreError::NotText => Self::Invalid(Errors::one("text", Rule::ControlCharacters)),
            StoreError::NoKey(_) => outage(OutageCause::NoKey),
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
