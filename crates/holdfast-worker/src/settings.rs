//! The settings of a worker; each can be set by the operator.

use std::time::Duration;

use holdfast_core::queue::ConcurrencyLimits;

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How many long runs one worker executes at a time.
    pub runs_at_once: usize,
    /// Limits on concurrent runs across all workers, by server, destination and user.
    pub at_once: ConcurrencyLimits,
    /// How long a check, a test or a probe may take as a whole.
    pub short_limit: Duration,
    /// How long a worker may send no heartbeat before it has lost its run.
    pub lease: Duration,
    /// How long after a temporary failure a run is retried once; zero means never.
    pub retry_after: Duration,
    /// How many tasks that fail for one cause at about the same time are reported together; zero means never.
    pub incident_tasks: usize,
    /// For how many days logs are kept; zero keeps them all.
    pub keep_logs_days: u32,
    /// For how many days records of backups are kept after they were removed; zero keeps them all.
    pub keep_removed_days: u32,
    /// For how many days notices are kept; zero keeps them all.
    pub keep_notices_days: u32,
    /// For how many days audit events are kept; zero keeps them all.
    pub keep_audit_days: u32,
    /// For how many days checks, tests, inventories and prunes are kept; zero keeps them all.
    pub keep_checks_days: u32,
    /// Within how many days every stored backup is verified again; zero means never.
    pub verify_days: u32,
    /// How many days apart inventories check that all backups on record are at their destinations; zero means never.
    pub inventory_days: u32,
    /// How many days after a backup of a repository was removed what only that needed is removed, too; zero means never.
    pub prune_days: u32,
    /// How long a prune may write packs again. Backups of its task wait meanwhile.
    pub prune_limit: Duration,
    /// How long a destination may take to remove one object; others wait behind it.
    pub removal_limit: Duration,
    /// How long runs may continue after the worker was told to stop.
    pub shutdown: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            runs_at_once: 8,
            at_once: ConcurrencyLimits { per_server: 2, per_destination: 8, per_user: 4, checks_per_user: 4 },
            short_limit: Duration::from_secs(90),
            lease: Duration::from_secs(60),
            retry_after: Duration::from_secs(60),
            incident_tasks: 3,
            keep_logs_days: 400,
            keep_removed_days: 90,
            keep_notices_days: 90,
            keep_audit_days: 400,
            keep_checks_days: 30,
            verify_days: 30,
            inventory_days: 1,
            prune_days: 7,
            prune_limit: Duration::from_secs(30 * 60),
            removal_limit: Duration::from_secs(60),
            shutdown: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// How long before its lease expires a worker gives up a run, so that two workers never have the same one.
    pub(crate) fn margin(&self) -> Duration {
        self.lease / 6
    }
}
