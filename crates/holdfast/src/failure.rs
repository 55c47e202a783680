//! The failure of a command: one line for the user, and an exit code for scripts.

use std::collections::BTreeMap;

use holdfast_app::{AppError, Outage, OutageCause};
use holdfast_client::ClientError;
use holdfast_store::{StartError, StoreError};

#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub code: u8,
    /// What is wrong with each field of a request.
    pub errors: BTreeMap<String, Vec<String>>,
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
/// Errors of a remote service: unreachable, access denied, request refused for another reason than those below.
const UNREACHABLE: u8 = 10;
const DENIED: u8 = 11;
const REFUSED: u8 = 12;
/// The run that the command waited for failed.
const RUN_FAILED: u8 = 13;
/// The service differs from the file.
const DIFFERS: u8 = 14;
/// Why a remote service refused a request.
const NOT_FOUND: u8 = 15;
const CONFLICT: u8 = 16;
const INVALID: u8 = 17;
const TOO_MANY_REQUESTS: u8 = 18;
/// What the command waited for did not end in time.
const TIMED_OUT: u8 = 19;
/// Several resources have the label that was given.
const AMBIGUOUS: u8 = 20;

impl Failure {
    fn new(message: impl Into<String>, code: u8) -> Self {
        Self { message: message.into(), code, errors: BTreeMap::new() }
    }

    pub fn other(message: impl Into<String>) -> Self {
        Self::new(message, OTHER)
    }

    pub fn settings(message: impl Into<String>) -> Self {
        Self::new(message, SETTINGS)
    }

    pub fn master_key(message: impl Into<String>) -> Self {
        Self::new(message, MASTER_KEY)
    }

    pub fn lost_database(message: impl Into<String>) -> Self {
        Self::new(message, LOST_DATABASE)
    }

    pub fn unreachable(message: impl Into<String>) -> Self {
        Self::new(message, UNREACHABLE)
    }

    pub fn run_failed(message: impl Into<String>) -> Self {
        Self::new(message, RUN_FAILED)
    }

    pub fn timed_out(message: impl Into<String>) -> Self {
        Self::new(message, TIMED_OUT)
    }

    pub fn differs(message: impl Into<String>) -> Self {
        Self::new(message, DIFFERS)
    }

    /// An I/O error on a file or folder, with advice.
    pub fn io(error: &std::io::Error, path: &std::path::Path) -> Self {
        let shown = path.display();
        match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                Self::new(format!("no permission for {shown}; run as its owner"), PERMISSION)
            }
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::new(format!("the disk is full: {shown} cannot be written; make room"), DISK_FULL)
            }
            _ => Self::other(format!("{shown}: {error}")),
        }
    }

    /// Names what it is about, unless the message does.
    pub fn about(self, what: &str) -> Self {
        if self.message.starts_with(what) {
            return self;
        }
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// Adds an alternative remedy to the message.
    pub fn or_else(self, remedy: &str) -> Self {
        Self { message: format!("{}; {remedy}", self.message), ..self }
    }

    pub fn listen(message: impl Into<String>) -> Self {
        Self::new(message, LISTEN)
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
        Self::new(message, code)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        let code = match error {
            ClientError::Settings(_) => SETTINGS,
            ClientError::Unreachable { .. } | ClientError::Uncertain(_) | ClientError::Broken { .. } => UNREACHABLE,
            ClientError::Denied(_) => DENIED,
            ClientError::Missing(_) => NOT_FOUND,
            ClientError::Ambiguous(_) => AMBIGUOUS,
            ClientError::Conflict(_) | ClientError::Outdated(_) => CONFLICT,
            ClientError::Invalid { errors, .. } => return Self { message, code: INVALID, errors },
            ClientError::TooManyRequests(_) => TOO_MANY_REQUESTS,
            ClientError::Refused(_) => REFUSED,
        };
        Self::new(message, code)
    }
}

impl From<AppError> for Failure {
    fn from(error: AppError) -> Self {
        match error {
            AppError::Invalid(errors) => {
                let by_field = errors.english().map(|(field, texts)| (field.to_owned(), texts)).collect();
                Self { errors: by_field, ..Self::settings(errors.english_line()) }
            }
            AppError::Unavailable(Outage { cause, reason }) => {
                let code = match cause {
                    OutageCause::Busy | OutageCause::Damaged | OutageCause::Unreadable => DATABASE,
                    OutageCause::NoKey => MASTER_KEY,
                    OutageCause::DiskFull => DISK_FULL,
                    OutageCause::ReadOnly => PERMISSION,
                };
                Self::new(reason, code)
            }
            AppError::Internal(reason) => Self::other(reason),
            error => Self::other(error.to_string()),
        }
    }
}
