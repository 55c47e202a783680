//! Health of the installation: whether it can work, and metrics for monitoring.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::clock::{later, rfc3339};
use holdfast_core::{Timestamp, clock, random};
use holdfast_store::figures::{self, Figures};
use holdfast_store::{DamageSigns, StoreError, audit_export, destinations, settings};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::checks::Check;
use crate::worker_checks::{self, Workers};
use crate::{App, AppError, Result, maintenance};

/// The most tasks with their own time series; more would be a burden for the monitoring system.
const TASKS: i64 = 10_000;
/// The most local destinations with their own time series.
const LOCAL_DESTINATIONS: i64 = 1000;

/// How far back missed slots are counted. A figure from the database: when a worker finds them, it has often just started,
/// and a counter of its own that began with them would never rise.
const MISSED_SECS: i64 = 86_400;

/// How far back undelivered notices are counted.
const LATELY_SECS: i64 = 3 * 86_400;

/// How long readiness waits for a write.
const WRITE_WAIT: Duration = Duration::from_secs(8);
/// After how long the process that locks the database is named, if there is one: a service never holds the lock for as
/// long, and someone who looks should not wait.
const LOCK_WAIT: Duration = Duration::from_secs(3);
/// How long metrics wait for the database: scrapers give up after about as long.
const FIGURES_WAIT: Duration = Duration::from_secs(8);
/// How long each look of an operator at the database may take, large ones included.
const LOOK_WAIT: Duration = Duration::from_secs(60);
/// How long a result is used again, so that clients cannot cause a write with every request.
const RESULT_AGE: Duration = Duration::from_secs(1);

/// How often signs of damage are looked for; also how long after the start the whole database is checked first.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The whole database is checked for damage this often.
const CHECK_EVERY: Duration = Duration::from_secs(24 * 3600);
/// While the database is damaged, and when a statement runs into damage, it is checked again after this many times the
/// duration of the last check: soon after a repair, but a large database is not read all the time.
const CHECK_SHARE: u32 = 10;

/// Whether this process can do its work now.
pub async fn check(app: &App) -> Vec<Check> {
    if app.is_stopping() {
        return vec![Check::new("process", Some("stopping; runs in progress may still finish".to_owned()))];
    }
    let mut last = app.last_checks.lock().await;
    if let Some((at, checks)) = last.as_ref()
        && at.elapsed() < RESULT_AGE
    {
        return checks.clone();
    }
    let checks = check_now(app).await;
    *last = Some((Instant::now(), checks.clone()));
    checks
}

async fn check_now(app: &App) -> Vec<Check> {
    let database = check_database(app).await;
    if let Some(problem) = &database.problem {
        // What depends on the database is not to blame.
        let unknown = || Some(format!("unknown, because {problem}"));
        let rest = ["master_key", "scheduler", "workers"].map(|name| Check::new(name, unknown()));
        return std::iter::once(database).chain(rest).collect();
    }
    let failed = |name: &'static str, error: &AppError| {
        tracing::warn!(name, reason = error.reason(), "a check failed");
        Check::new(name, Some("could not be checked; see the log".to_owned()))
    };
    let key = match in_time(LOOK_WAIT, check_master_key(app)).await {
        Ok(problem) => Check::new("master_key", problem),
        Err(error) => failed("master_key", &error),
    };
    let workers = match in_time(LOOK_WAIT, worker_checks::check(app)).await {
        Ok(checks) => checks,
        Err(error) => ["scheduler", "workers"].map(|name| failed(name, &error)).to_vec(),
    };
    [database, key].into_iter().chain(workers).chain(tell_maintenance(app).await).collect()
}

/// Maintenance is wanted, and no problem, but explains why nothing runs.
async fn tell_maintenance(app: &App) -> Option<Check> {
    let until = maintenance::until(app).await.inspect_err(|error| {
        tracing::warn!(reason = error.reason(), "could not find out whether there is maintenance");
    });
    let note = format!("on: no run starts until {}", rfc3339(until.ok()??));
    Some(Check { note: Some(note), ..Check::new("maintenance", None) })
}

/// The result of reading from the database, unless that takes too long.
async fn in_time<T>(limit: Duration, reading: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || AppError::busy(format!("the database did not answer within {} s", limit.as_secs()));
    tokio::time::timeout(limit, reading).await.unwrap_or_else(|_| Err(late()))
}

async fn write_in_time(app: &App) -> std::result::Result<(), StoreError> {
    let mut writing = pin!(app.store.check_writable(app.now()));
    if let Ok(written) = tokio::time::timeout(LOCK_WAIT, &mut writing).await {
        return written;
    }
    if let Some(holder) = app.store.find_lock_holder() {
        return Err(StoreError::Locked(holder));
    }
    let late = || StoreError::Unavailable(format!("it did not accept a write within {} s", WRITE_WAIT.as_secs()));
    tokio::time::timeout(WRITE_WAIT.saturating_sub(LOCK_WAIT), writing).await.unwrap_or_else(|_| Err(late()))
}

async fn check_database(app: &App) -> Check {
    let Err(error) = write_in_time(app).await else { return Check::new("database", None) };
    let problem = match &error {
        StoreError::DiskFull(_) => "the disk of the database is full; free some space",
        StoreError::ReadOnly(_) => "the database is read-only; make it writable again",
        StoreError::Damaged(_) => "the database is damaged; run `holdfast doctor`",
        StoreError::Gone(_) => "the file of the database was moved or deleted; stop Holdfast and put it back",
        StoreError::Locked(_) => "the database is locked by another process; end that process",
        StoreError::NoTables(_) => {
            "the database does not contain an installation; correct HOLDFAST_DATABASE_URL, or put back a copy of it"
        }
        StoreError::Unavailable(_) if app.store.is_sqlite() => "the database does not answer; look into its disk",
        StoreError::Unavailable(_) => "the database does not answer; start PostgreSQL, or look into the network to it",
        StoreError::Refused { refusal, .. } => refusal.advice(),
        StoreError::Unreadable(_) => "the database cannot be read or written; look into its disk, mount and quota",
        StoreError::Conflict
        | StoreError::InUse
        | StoreError::NotText
        | StoreError::NoKey(_)
        | StoreError::Sealed(_)
        | StoreError::Broken(_) => "the database does not work; see the log",
    };
    tracing::warn!(%error, "the database cannot be written");
    Check { detail: Some(error.to_string()), ..Check::new("database", Some(problem.to_owned())) }
}

/// Checks the database for damage once a day, and when there is a sign of it, until `stop`.
pub async fn watch_database(app: Arc<App>, stop: CancellationToken) {
    let (mut last, mut is_noticed): (Option<Checked>, bool) = (None, false);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = app.store.damage_noticed(), if !is_noticed => is_noticed = true,
        }
        // While the database is away, nothing can be checked.
        let Ok(signs) = app.store.find_damage_signs().await else { continue };
        if last.as_ref().is_some_and(|last| !last.is_due_again(signs, is_noticed)) {
            continue;
        }
        is_noticed = false;
        let begun = Instant::now();
        let was_damaged = last.is_some_and(|last| last.is_damaged);
        let is_damaged = find_damage(&app, was_damaged).await;
        last = Some(Checked { signs, is_damaged, took: begun.elapsed(), ended: Instant::now() });
    }
}

/// Whether the database is damaged, or could not be checked. Damage is logged once.
async fn find_damage(app: &App, was_damaged: bool) -> bool {
    match app.store.find_damage(app.now()).await {
        Ok(None) => {
            if was_damaged {
                tracing::info!("the whole database was read, and no damage was found");
            }
            false
        }
        Ok(Some(damage)) => {
            if !was_damaged {
                tracing::error!(damage, "the database is damaged");
            }
            true
        }
        Err(error) => {
            tracing::warn!(%error, "the database could not be checked for damage");
            true
        }
    }
}

/// The last check of the whole database.
struct Checked {
    signs: DamageSigns,
    is_damaged: bool,
    took: Duration,
    ended: Instant,
}

impl Checked {
    fn is_due_again(&self, signs: DamageSigns, is_noticed: bool) -> bool {
        let is_suspicious = self.is_damaged || is_noticed || self.signs != signs;
        let wait = if is_suspicious { self.took.saturating_mul(CHECK_SHARE).min(CHECK_EVERY) } else { CHECK_EVERY };
        self.ended.elapsed() >= wait
    }
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

/// The setting with the id of the installation.
const INSTALLATION: &str = "installation_id";

/// A random text that stays the same for as long as the database lives.
pub async fn installation_id(app: &App) -> Result<String> {
    if let Some(id) = settings::find(&mut app.store.read().await?, INSTALLATION).await? {
        return Ok(id);
    }
    let new = random::hex(&random::bytes::<16>());
    let mut tx = app.store.begin().await?;
    settings::swap(&mut tx, INSTALLATION, None, &new).await?;
    // Another process may have been first.
    let id = settings::find(&mut tx, INSTALLATION).await?;
    tx.commit().await?;
    Ok(id.unwrap_or(new))
}

/// How far this clock is ahead of the database's, in seconds. If the newest record is in the future, the (negative)
/// difference to that instead.
pub async fn clock_skew(app: &App) -> Result<i64> {
    in_time(LOOK_WAIT, find_clock_skew(app)).await
}

async fn find_clock_skew(app: &App) -> Result<i64> {
    let mut tx = app.store.read().await?;
    let now = app.now();
    let newest = figures::find_newest(&mut tx).await?.map_or(0, |at| seconds_since(now, at.0).min(0));
    let database = figures::find_clock(&mut tx).await?.map_or(0, |at| seconds_since(now, at.0));
    Ok(if newest < 0 { newest } else { database })
}

/// What did not arrive.
pub struct Undelivered {
    /// Notices of the last days that nobody tries to deliver any more.
    pub given_up: i64,
    /// Notices whose last attempt failed, and that are tried again.
    pub retried: i64,
    /// Destinations whose catalogue could not be written.
    pub failed_catalogues: i64,
    /// Destinations with an old catalogue, for whatever reason.
    pub old_catalogues: i64,
}

pub async fn find_undelivered(app: &App) -> Result<Undelivered> {
    let since = clock::from_micros(app.now().as_microsecond() - LATELY_SECS * 1_000_000);
    in_time(LOOK_WAIT, async {
        let mut tx = app.store.read().await?;
        let given_up = figures::count_undelivered(&mut tx, since).await?;
        let retried = figures::count_retried(&mut tx).await?;
        let (failed_catalogues, old_catalogues) = figures::count_old_catalogues(&mut tx).await?;
        Ok(Undelivered { given_up, retried, failed_catalogues, old_catalogues })
    })
    .await
}

/// The state of tasks and backups, for an operator.
pub struct Work {
    pub tasks: std::result::Result<String, String>,
    pub backups: std::result::Result<String, String>,
}

/// Whether backups are made and intact; problems name up to `names` tasks.
pub async fn check_work(app: &App, names: i64) -> Result<Work> {
    in_time(LOOK_WAIT, find_work(app, names)).await
}

async fn find_work(app: &App, names: i64) -> Result<Work> {
    let mut tx = app.store.read().await?;
    let found = figures::find(&mut tx).await?;
    let named = |tasks: Vec<(String, String)>| {
        let shown: Vec<String> = tasks.iter().map(|(label, email)| format!("{label:?} of {email}")).collect();
        shown.join(", ")
    };
    let mut bad = Vec::new();
    let mut count = |number: i64, what: &str| {
        if number > 0 {
            bad.push(format!("{number} {what}"));
        }
    };
    count(found.tasks_failed, "failed last time");
    count(found.tasks_overdue, "overdue");
    count(found.tasks_held, "keeping old backups because the newest looks wrong");
    let tasks = if bad.is_empty() {
        let suspended = match found.tasks_suspended {
            0 => String::new(),
            some => format!(", and {some} of suspended accounts"),
        };
        Ok(format!("{} in all, {} paused, none failing{suspended}", found.tasks, found.tasks_paused))
    } else {
        let some = named(figures::list_failing_tasks(&mut tx, names).await?);
        let some = if some.is_empty() { some } else { format!(", such as {some}") };
        Err(format!("of {} tasks: {}{some}; their pages say why", found.tasks, bad.join(", ")))
    };
    let backups = if found.backups_damaged == 0 {
        Ok(format!("{} stored, none known to be damaged, {} never verified", found.backups, found.backups_unproven))
    } else {
        let some = named(figures::list_damaged_tasks(&mut tx, names).await?);
        Err(format!(
            "{} of {} are damaged or missing, such as those of {some}; their pages say what was found",
            found.backups_damaged, found.backups
        ))
    };
    Ok(Work { tasks, backups })
}

/// Metrics in the Prometheus text format. If the database does not answer, only those about the database itself.
pub async fn render_figures(app: &App) -> String {
    let found = in_time(FIGURES_WAIT, read_figures(app)).await.inspect_err(|error| {
        tracing::warn!(reason = error.reason(), "metrics cannot be read from the database");
    });
    // What cannot be read is not tried to be written, so that nobody waits twice.
    let is_writable = found.is_ok() && check_database(app).await.problem.is_none();
    let mut gauges = database_gauges(app, found.is_ok(), is_writable);
    let mut out = String::new();
    if let Ok((found, _)) = &found {
        gauges.extend(found.iter().cloned());
    }
    for (name, help, samples) in gauges {
        out += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
        for (labels, value) in samples {
            out += &format!("{name}{labels} {value}\n");
        }
    }
    let Ok((_, successes)) = found else { return out };
    let space = in_time(FIGURES_WAIT, render_local_space(app)).await.inspect_err(|error| {
        tracing::warn!(reason = error.reason(), "the space of local destinations cannot be told");
    });
    out + &successes + &space.unwrap_or_default()
}

/// Each process tells of the disks of its own machine.
async fn render_local_space(app: &App) -> Result<String> {
    let known = destinations::list_local(&mut app.store.read().await?, LOCAL_DESTINATIONS).await?;
    let name = "holdfast_destination_free_bytes";
    let mut out = format!("# HELP {name} Free space of local destinations, by id.\n# TYPE {name} gauge\n");
    for (id, bytes) in app.ports.backup_reader.local_free_bytes(&known).await {
        out += &format!("{name}{{destination=\"{id}\"}} {bytes}\n");
    }
    Ok(out)
}

async fn read_figures(app: &App) -> Result<(Vec<Gauge>, String)> {
    let now = app.now();
    let mut tx = app.store.read().await?;
    let found = figures::find(&mut tx).await?;
    let workers = Workers::find(&mut tx, now).await?;
    let name = "holdfast_task_last_success_age_seconds";
    let mut out = format!("# HELP {name} Age of the last success; paused tasks have none.\n# TYPE {name} gauge\n");
    for (task, at) in figures::list_successes(&mut tx, TASKS).await? {
        out += &format!("{name}{{task=\"{task}\"}} {}\n", seconds_since(now, at.0).max(0));
    }
    let mut gauges = gauges(&found, now, workers.living.len());
    gauges.push(("holdfast_workers_draining", "Workers that start no runs.", vec![("", count(workers.draining()))]));
    let is_maintained = maintenance::find(&mut tx, now).await?.is_some();
    gauges.push(("holdfast_maintenance", "Whether workers start nothing.", vec![("", i64::from(is_maintained))]));
    let missed = figures::count_missed(&mut tx, later(now, -MISSED_SECS)).await?;
    let help = "Scheduled times that passed while no worker was running, as found in the last day.";
    gauges.push(("holdfast_slots_missed_last_day", help, vec![("", missed)]));
    if app.exports_audit_log() {
        let waits = audit_export::find_oldest_waiting(&mut tx).await?;
        let waits = waits.map_or(0, |at| seconds_since(now, at.0).max(0));
        gauges.push(("holdfast_audit_log_lag_seconds", "How long events wait to be exported.", vec![("", waits)]));
    }
    let bytes = figures::find_database_bytes(&mut tx).await?;
    gauges.push(("holdfast_database_bytes", "Size of the database.", vec![("", bytes)]));
    Ok((gauges, out))
}

fn database_gauges(app: &App, is_up: bool, is_writable: bool) -> Vec<Gauge> {
    let is_damaged = app.store.known_damage().is_some();
    let mut gauges = vec![
        ("holdfast_database_up", "Whether the database answers.", vec![("", i64::from(is_up))]),
        ("holdfast_database_writable", "Whether the database accepts writes.", vec![("", i64::from(is_writable))]),
        ("holdfast_database_damaged", "Whether the database is damaged.", vec![("", i64::from(is_damaged))]),
    ];
    if let Some(free) = app.store.free_bytes() {
        let free = i64::try_from(free).unwrap_or(i64::MAX);
        gauges.push(("holdfast_database_free_bytes", "Free space on the disk of the database.", vec![("", free)]));
    }
    gauges
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
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
        ("holdfast_workers", "Workers that reported recently.", one(count(workers))),
        (
            "holdfast_tasks",
            "Tasks by state; one that failed and is overdue counts as both, and one of a suspended account as nothing else.",
            vec![
                ("{state=\"fine\"}", fine.max(0)),
                ("{state=\"failed\"}", found.tasks_failed),
                ("{state=\"overdue\"}", found.tasks_overdue),
                ("{state=\"paused\"}", found.tasks_paused),
                ("{state=\"suspended\"}", found.tasks_suspended),
            ],
        ),
        (
            "holdfast_tasks_without_success",
            "Tasks that are not paused and have never succeeded.",
            one(found.tasks_without_success),
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
        ("holdfast_repositories", "Repositories.", one(found.repositories)),
        ("holdfast_repositories_bytes", "Size of the repositories.", one(found.repositories_bytes)),
        (
            "holdfast_repositories_neglected",
            "Repositories whose last prune or check failed.",
            one(found.repositories_neglected),
        ),
        (
            "holdfast_retention_held_age_seconds",
            "How long old backups of a task have not been removed, because the newest looks wrong; of the longest hold.",
            one(age(found.held_since)),
        ),
        ("holdfast_servers_offline", "Servers found offline.", one(found.servers_offline)),
        (
            "holdfast_servers",
            "Servers by the result of the last contact.",
            vec![
                ("{state=\"online\"}", found.servers_online),
                ("{state=\"offline\"}", found.servers_offline),
                ("{state=\"unknown\"}", found.servers_unknown),
            ],
        ),
        ("holdfast_destinations_unreachable", "Destinations found unreachable.", one(found.destinations_unreachable)),
        (
            "holdfast_destinations",
            "Destinations by the result of the last contact.",
            vec![
                ("{state=\"reachable\"}", found.destinations_reachable),
                ("{state=\"unreachable\"}", found.destinations_unreachable),
                ("{state=\"unknown\"}", found.destinations_unknown),
            ],
        ),
        ("holdfast_notices_waiting", "Notices not delivered yet.", one(found.notices_waiting)),
        ("holdfast_notices_undelivered", "Notices that could not be delivered.", one(found.notices_undelivered)),
        ("holdfast_catalogues_waiting", "Destinations whose catalogue is behind.", one(found.catalogues_waiting)),
    ]
}
