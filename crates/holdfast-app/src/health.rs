//! How the installation does: whether it can work, and figures for those who watch it.

use holdfast_core::{Timestamp, clock};
use holdfast_store::figures::{self, Figures};
use holdfast_store::workers;

use crate::{App, Result};

/// Tasks with a series of their own; more would be a burden for whoever collects them.
const TASKS: i64 = 10_000;
/// Schedulers look every second; a slot that has waited for so long was seen by none.
const LAG_SECS: i64 = 120;
/// Workers say once a minute that they are there, and may be late once.
const SILENCE_SECS: i64 = 150;

/// What is older has been seen, or nobody wants to.
const LATELY_SECS: i64 = 3 * 86_400;

/// One thing that was looked at.
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
            Some("could not be looked at; see the log".to_owned())
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
        "the master key is gone or does not open the database".to_owned()
    }))
}

fn seconds_since(now: Timestamp, at: Timestamp) -> i64 {
    now.as_second() - at.as_second()
}

async fn check_scheduler(app: &App) -> Result<Option<String>> {
    let slot = figures::find_next_slot(&mut app.store.read().await?).await?;
    let late = slot.map_or(0, |at| seconds_since(app.now(), at.0));
    Ok((late > LAG_SECS).then(|| format!("a slot has waited for {late} s: nobody schedules; start `holdfast worker`")))
}

async fn check_workers(app: &App) -> Result<Option<String>> {
    let known = workers::list(&mut app.store.read().await?).await?;
    let is_there = known.iter().any(|worker| seconds_since(app.now(), worker.seen_at.0) <= SILENCE_SECS);
    Ok((!is_there).then(|| "no worker has been heard of for minutes; start `holdfast worker`".to_owned()))
}

/// How far this clock is ahead of the database's, in seconds; or of the newest that was written, when that is later.
pub async fn clock_skew(app: &App) -> Result<i64> {
    let mut tx = app.store.read().await?;
    let now = app.now();
    let newest = figures::find_newest(&mut tx).await?.map_or(0, |at| seconds_since(now, at.0).min(0));
    let database = figures::find_clock(&mut tx).await?.map_or(0, |at| seconds_since(now, at.0));
    Ok(if newest < 0 { newest } else { database })
}

/// Messages of the last days that nobody got.
pub async fn undelivered(app: &App) -> Result<i64> {
    let since = clock::from_micros(app.now().as_microsecond() - LATELY_SECS * 1_000_000);
    Ok(figures::count_undelivered(&mut app.store.read().await?, since).await?)
}

/// What the database knows, as Prometheus reads it.
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
    out += &format!("# HELP {name} Since the task last succeeded; paused tasks have none.\n# TYPE {name} gauge\n");
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
        ("holdfast_queue_depth", "Runs that wait for a worker.", one(found.queued)),
        ("holdfast_queue_age_seconds", "Since the run that waits longest does.", one(age(found.queued_since))),
        ("holdfast_runs_running", "Runs under way.", one(found.running)),
        ("holdfast_scheduler_lag_seconds", "How late the earliest slot is.", one(age(found.next_slot_at))),
        ("holdfast_workers", "Workers heard of lately.", one(i64::try_from(workers).unwrap_or(i64::MAX))),
        (
            "holdfast_tasks",
            "Tasks by how they stand; one that failed and is overdue counts as both.",
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
        ("holdfast_backups_bytes", "What they take.", one(found.stored_bytes)),
        ("holdfast_backups_damaged", "Of them damaged or missing.", one(found.backups_damaged)),
        ("holdfast_backups_unproven", "Of them never read back.", one(found.backups_unproven)),
        ("holdfast_servers_offline", "Servers that did not answer last.", one(found.servers_offline)),
        ("holdfast_destinations_unreachable", "Destinations that failed last.", one(found.destinations_unreachable)),
        ("holdfast_notices_waiting", "Messages on their way.", one(found.notices_waiting)),
        ("holdfast_notices_undelivered", "Messages that nobody got.", one(found.notices_undelivered)),
        ("holdfast_catalogues_waiting", "Destinations whose catalogue is behind.", one(found.catalogues_waiting)),
    ]
}
