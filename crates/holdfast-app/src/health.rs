//! Health of the installation: whether it can work, and metrics for monitoring.

use holdfast_core::{Timestamp, clock};
use holdfast_store::figures::{self, Figures};
use holdfast_store::workers;

use crate::{App, Result};

/// The most tasks with their own time series; more would be a burden for the monitoring system.
const TASKS: i64 = 10_000;
/// Schedulers check every second; a slot that has waited for this long was seen by none.
const LAG_SECS: i64 = 120;
/// Workers report once a minute, and may be late once.
const SILENCE_SECS: i64 = 150;

/// How far back undelivered notices are counted.
const LATELY_SECS: i64 = 3 * 86_400;

/// The result of one check.
#[derive(Debug, Clone)]
pub struct Check {
    pub name: &'static str,
    /// What is wrong, and what to do.
    pub problem: Option<String>,
}

/// Whether this process can do its work now.
pub async fn check(app: &App) -> Vec<Check> {
    let database = app.store.ping().await.map_err(|error| {
        tracing::warn!(%error, "the database does not answer");
        "the database does not answer".to_owned()
    });
    if let Err(problem) = database {
        let unknown = || Some("unknown while the database does not answer".to_owned());
        return vec![
            Check { name: "database", problem: Some(problem) },
            Check { name: "master_key", problem: unknown() },
            Check { name: "scheduler", problem: unknown() },
            Check { name: "workers", problem: unknown() },
        ];
    }
    let told = |name: &'static str, looked: Result<Option<String>>| {
        let problem = looked.unwrap_or_else(|error| {
            tracing::warn!(name, reason = error.reason(), "a check failed");
            Some("could not be checked; see the log".to_owned())
        });
        Check { name, problem }
    };
    vec![
        Check { name: "database", problem: None },
        told("master_key", check_master_key(app).await),
        told("scheduler", check_scheduler(app).await),
        told("workers", check_workers(app).await),
    ]
}

async fn check_master_key(app: &App) -> Result<Option<String>> {
    let opens = app.store.check_master_key().await;
    Ok(opens.err().map(|error| {
        tracing::warn!(%error, "the master key does not open the database");
        "the master key is missing or does not open the database".to_owned()
    }))
}

fn seconds_since(now: Timestamp, at: Timestamp) -> i64 {
    now.as_second() - at.as_second()
}

async fn check_scheduler(app: &App) -> Result<Option<String>> {
    let slot = figures::find_next_slot(&mut app.store.read().await?).await?;
    let late = slot.map_or(0, |at| seconds_since(app.now(), at.0));
    Ok((late > LAG_SECS).then(|| format!("a slot has waited for {late} s: no scheduler runs; start `holdfast worker`")))
}

async fn check_workers(app: &App) -> Result<Option<String>> {
    let known = workers::list(&mut app.store.read().await?).await?;
    let is_there = known.iter().any(|worker| seconds_since(app.now(), worker.seen_at.0) <= SILENCE_SECS);
    Ok((!is_there).then(|| "no worker has reported for minutes; start `holdfast worker`".to_owned()))
}

/// How far this clock is ahead of the database's, in seconds. If the newest record is in the future, the (negative)
/// difference to that instead.
pub async fn clock_skew(app: &App) -> Result<i64> {
    let mut tx = app.store.read().await?;
    let now = app.now();
    let newest = figures::find_newest(&mut tx).await?.map_or(0, |at| seconds_since(now, at.0).min(0));
    let database = figures::find_clock(&mut tx).await?.map_or(0, |at| seconds_since(now, at.0));
    Ok(if newest < 0 { newest } else { database })
}

/// How many notices of the last days could not be delivered.
pub async fn undelivered(app: &App) -> Result<i64> {
    let since = clock::from_micros(app.now().as_microsecond() - LATELY_SECS * 1_000_000);
    Ok(figures::count_undelivered(&mut app.store.read().await?, since).await?)
}

/// Metrics from the database, in the Prometheus text format.
pub async fn render_figures(app: &App) -> Result<String> {
    let now = app.now();
    let mut tx = app.store.read().await?;
    let found = figures::find(&mut tx).await?;
    let workers = workers::list(&mut tx).await?;
    let heard = workers.iter().filter(|worker| seconds_since(now, worker.seen_at.0) <= SILENCE_SECS).count();
    let mut out = String::new();
    for (name, help, samples) in gauges(&found, now, heard) {
        out += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
        for (labels, value) in samples {
            out += &format!("{name}{labels} {value}\n");
        }
    }
    let name = "holdfast_task_last_success_age_seconds";
    out += &format!("# HELP {name} Age of the last success; paused tasks have none.\n# TYPE {name} gauge\n");
    for (task, at) in figures::list_successes(&mut tx, TASKS).await? {
        out += &format!("{name}{{task=\"{task}\"}} {}\n", seconds_since(now, at.0).max(0));
    }
    Ok(out)
}

type Gauge = (&'static str, &'static str, Vec<(&'static str, i64)>);

fn gauges(found: &Figures, now: Timestamp, workers: usize) -> Vec<Gauge> {
    let age = |at: Option<holdfast_store::DbTime>| at.map_or(0, |at| seconds_since(now, at.0).max(0));
    let one = |value: i64| vec![("", value)];
    let fine = found.tasks - found.tasks_paused - found.tasks_failed - found.tasks_overdue;
    vec![
        ("holdfast_queue_depth", "Runs waiting for a worker.", one(found.queued)),
        ("holdfast_queue_age_seconds", "Age of the oldest queued run.", one(age(found.queued_since))),
        ("holdfast_runs_running", "Runs in progress.", one(found.running)),
        ("holdfast_scheduler_lag_seconds", "How late the earliest slot is.", one(age(found.next_slot_at))),
        ("holdfast_workers", "Workers that reported recently.", one(i64::try_from(workers).unwrap_or(i64::MAX))),
        (
            "holdfast_tasks",
            "Tasks by state; one that failed and is overdue counts as both.",
            vec![
                ("{state=\"fine\"}", fine.max(0)),
                ("{state=\"failed\"}", found.tasks_failed),
                ("{state=\"overdue\"}", found.tasks_overdue),
                ("{state=\"paused\"}", found.tasks_paused),
            ],
        ),
        (
            "holdfast_tasks_retention_held",
            "Tasks whose old backups are not removed, because the newest looks wrong.",
            one(found.tasks_held),
        ),
        ("holdfast_backups", "Stored backups.", one(found.backups)),
        ("holdfast_backups_bytes", "Size of the stored backups.", one(found.stored_bytes)),
        ("holdfast_backups_damaged", "Backups that are damaged or missing.", one(found.backups_damaged)),
        ("holdfast_backups_unproven", "Backups that were never verified.", one(found.backups_unproven)),
        ("holdfast_servers_offline", "Servers found offline.", one(found.servers_offline)),
        ("holdfast_destinations_unreachable", "Destinations found unreachable.", one(found.destinations_unreachable)),
        ("holdfast_notices_waiting", "Notices not delivered yet.", one(found.notices_waiting)),
        ("holdfast_notices_undelivered", "Notices that could not be delivered.", one(found.notices_undelivered)),
        ("holdfast_catalogues_waiting", "Destinations whose catalogue is behind.", one(found.catalogues_waiting)),
    ]
}
