//! Why a delivery failed, and whether trying again can help.

/// Why a delivery failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For users; contains no secret.
    pub text: String,
    pub can_retry: bool,
    /// How many seconds the channel asks us to wait.
    pub retry_after: Option<i64>,
}

impl Refusal {
    pub(crate) fn final_(text: impl Into<String>) -> Self {
        Self { text: text.into(), can_retry: false, retry_after: None }
    }

    pub(crate) fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), can_retry: true, retry_after: None }
    }
}
