//! How a command ends badly: one line for a person, a code for scripts.

use holdfast_app::AppError;
use holdfast_store::StartError;

#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub code: u8,
}

/// Exit codes; 2 is also what the argument parser uses.
const OTHER: u8 = 1;
const SETTINGS: u8 = 2;
const MASTER_KEY: u8 = 3;
const DATABASE: u8 = 4;
const LISTEN: u8 = 5;

impl Failure {
    pub fn other(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: OTHER }
    }

    pub fn settings(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: SETTINGS }
    }

    pub fn listen(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: LISTEN }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let code = match error {
            StartError::MasterKey(_) => MASTER_KEY,
            StartError::Database(_) | StartError::NewerDatabase { .. } | StartError::Store(_) => DATABASE,
        };
        Self { message: error.to_string(), code }
    }
}

impl From<AppError> for Failure {
    fn from(error: AppError) -> Self {
        match error {
            AppError::Invalid(errors) => {
                let texts: Vec<&str> = errors.iter().flat_map(|(_, texts)| texts).map(String::as_str).collect();
                Self::settings(texts.join(" "))
            }
            AppError::Unavailable(reason) => Self { message: reason, code: DATABASE },
            AppError::Internal(reason) => Self::other(reason),
            error => Self::other(error.to_string()),
        }
    }
}
