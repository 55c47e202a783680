//! The failure of a command: one line for the user, and an exit code for scripts.

use holdfast_app::{AppError, Outage, OutageCause};
use holdfast_client::ClientError;
use holdfast_store::{StartError, StoreError};

#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub code: u8,
}

/// Exit codes; 2 is also what the argument parser uses.
const OTHER: u8 = 1;
pub const SETTINGS: u8 = 2;
const MASTER_KEY: u8 = 3;
const DATABASE: u8 = 4;
const LISTEN: u8 = 5;
const PERMISSION: u8 = 6;
const DISK_FULL: u8 = 7;
const NEWER_DATABASE: u8 = 8;
/// The database is empty, but an earlier installation has left something.
const LOST_DATABASE: u8 = 9;
/// Errors of a remote service: unreachable, access denied, request refused.
const UNREACHABLE: u8 = 10;
const DENIED: u8 = 11;
const REFUSED: u8 = 12;
/// The run that the command waited for failed.
const RUN_FAILED: u8 = 13;
/// The service differs from the file.
const DIFFERS: u8 = 14;

impl Failure {
    pub fn other(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: OTHER }
    }

    pub fn settings(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: SETTINGS }
    }

    pub fn master_key(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: MASTER_KEY }
    }

    pub fn lost_database(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: LOST_DATABASE }
    }

    pub fn unreachable(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: UNREACHABLE }
    }

    pub fn run_failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: RUN_FAILED }
    }

    pub fn differs(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: DIFFERS }
    }

    /// An I/O error on a file or folder, with advice.
    pub fn io(error: &std::io::Error, path: &std::path::Path) -> Self {
        let shown = path.display();
        match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                let message = format!("no permission for {shown}; run as its owner");
                Self { message, code: PERMISSION }
            }
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self { message: format!("the disk is full: {shown} cannot be written; make room"), code: DISK_FULL }
            }
            _ => Self::other(format!("{shown}: {error}")),
        }
    }

    /// Adds an alternative remedy to the message.
    pub fn or_else(self, remedy: &str) -> Self {
        Self { message: format!("{}; {remedy}", self.message), ..self }
    }

    pub fn listen(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: LISTEN }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let message = error.to_string();
        let code = match error {
            StartError::DiskFull(_) | StartError::Store(StoreError::DiskFull(_)) => DISK_FULL,
            StartError::Permission(_) | StartError::Store(StoreError::ReadOnly(_)) => PERMISSION,
            StartError::MasterKey(_) => MASTER_KEY,
            StartError::NewerDatabase { .. } => NEWER_DATABASE,
            StartError::Database(_) | StartError::Store(_) => DATABASE,
        };
        Self { message, code }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = match error {
            ClientError::Settings(_) => SETTINGS,
            ClientError::Unreachable { .. } | ClientError::Broken { .. } => UNREACHABLE,
            ClientError::Denied(_) => DENIED,
            ClientError::Missing(_) | ClientError::Refused(_) => REFUSED,
        };
        Self { message: error.to_string(), code }
    }
}

impl From<AppError> for Failure {
    fn from(error: AppError) -> Self {
        match error {
            AppError::Invalid(errors) => Self::settings(errors.english_line()),
            AppError::Unavailable(Outage { cause, reason }) => {
                let code = match cause {
                    OutageCause::Busy | OutageCause::Damaged | OutageCause::Unreadable => DATABASE,
                    OutageCause::DiskFull => DISK_FULL,
                    OutageCause::ReadOnly => PERMISSION,
                };
                Self { message: reason, code }
            }
            AppError::Internal(reason) => Self::other(reason),
            error => Self::other(error.to_string()),
        }
    }
}
