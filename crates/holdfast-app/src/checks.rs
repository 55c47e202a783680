//! The results of health checks, and the last of them.

use tokio::sync::Mutex;
use tokio::time::Instant;

/// The result of one check.
#[derive(Debug, Clone)]
pub struct Check {
    pub name: &'static str,
    /// What is wrong, and what to do; anybody may read it.
    pub problem: Option<String>,
    /// What to know while nothing is wrong; anybody may read it.
    pub note: Option<String>,
    /// What else an operator should know.
    pub detail: Option<String>,
    /// Nobody minds requests, but no run starts, for an unlimited time.
    pub halts_runs: bool,
}

impl Check {
    pub(crate) fn new(name: &'static str, problem: Option<String>) -> Self {
        Self { name, problem, note: None, detail: None, halts_runs: false }
    }
}

/// The last result of the checks, and when they ended. Whoever asks while they run waits for them.
pub(crate) type LastChecks = Mutex<Option<(Instant, Vec<Check>)>>;
