//! How a worker works; each can be set by the operator.

use std::time::Duration;

use holdfast_core::queue::AtOnce;

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Runs that one worker has under way at a time.
    pub runs_at_once: usize,
    /// Runs over all workers, by server and by user.
    pub at_once: AtOnce,
    /// How long a check, a test or a probe may take as a whole.
    pub short_limit: Duration,
    /// A worker that gave no sign for so long has lost its run.
    pub lease: Duration,
    /// When a run that failed in passing is tried once more; zero is never.
    pub retry_after: Duration,
    /// Logs older than this go; zero keeps them all.
    pub keep_logs_days: u32,
    /// Every stored backup is read back within so many days; zero is never.
    pub verify_days: u32,
    /// Every so many days it is looked whether all backups on record are at their destinations; zero is never.
    pub inventory_days: u32,
    /// How long a destination may take to remove one object; others wait behind it.
    pub removal_limit: Duration,
    /// How long runs may go on after the worker was told to stop.
    pub shutdown: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            runs_at_once: 8,
            at_once: AtOnce { per_server: 2, per_user: 4, checks_per_user: 4 },
            short_limit: Duration::from_secs(90),
            lease: Duration::from_secs(60),
            retry_after: Duration::from_secs(60),
            keep_logs_days: 400,
            verify_days: 30,
            inventory_days: 1,
            removal_limit: Duration::from_secs(60),
            shutdown: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// Given up this long before the lease runs out, so that two workers never have the same run.
    pub(crate) fn margin(&self) -> Duration {
        self.lease / 6
    }
}
