//! `holdfast doctor`: finds problems and suggests fixes. It changes nothing except for a probe object at each
//! destination, which it removes again.

use std::path::Path;

use holdfast_app::{App, health, transfer};
use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_store::Migrations;
use holdfast_store::master_key::MasterKeySource;
use holdfast_worker::{Parts, examine};

use crate::failure::Failure;
use crate::settings::Settings;
use crate::wiring::{is_open_to_others, open_parts};

/// With less free space, a local destination or the database may soon stop working.
const LEAST_FREE_BYTES: u64 = 1 << 30;
/// The beginning of 2025. This software did not exist before, so a clock that shows an earlier time is wrong.
const LEAST_SECOND: i64 = 1_735_689_600;
/// A larger difference between clocks makes S3 requests fail and delays schedules.
const CLOCK_SECS: i64 = 60;

/// Prints the findings and counts the problems.
#[derive(Default)]
struct Report {
    problems: usize,
}

impl Report {
    fn tell(&mut self, what: &str, found: Result<String, String>) {
        match found {
            Ok(text) => println!("ok       {what}: {text}"),
            Err(text) => {
                self.problems += 1;
                println!("PROBLEM  {what}: {text}");
            }
        }
    }
}

pub async fn run(settings: &Settings, is_offline: bool) -> Result<(), Failure> {
    let mut report = Report::default();
    report.tell("data folder", check_private(&settings.data_dir, "chmod 700"));
    report.tell("free space", check_space(&settings.data_dir));
    match &settings.master_key {
        MasterKeySource::File(path) => report.tell("master key", check_private(path, "chmod 600")),
        MasterKeySource::Given(_) => report.tell("master key", Ok("from HOLDFAST_MASTER_KEY".to_owned())),
    }
    if let Some(path) = holdfast_store::sqlite_path(settings.database_url.reveal()).filter(|path| path.exists()) {
        report.tell("database files", check_database_files(&path));
    }
    let exists = settings.database_url.reveal().starts_with("postgres") || settings.data_dir.exists();
    if exists {
        match open_parts(settings, Migrations::Never).await {
            Ok(parts) => {
                look_inside(&mut report, &parts, is_offline).await?;
                parts.app.store.close().await;
            }
            Err(failure) => report.tell("database", Err(failure.message)),
        }
    }
    match report.problems {
        0 => Ok(()),
        1 => Err(Failure::other("1 problem found")),
        many => Err(Failure::other(format!("{many} problems found"))),
    }
}

async fn look_inside(report: &mut Report, parts: &Parts, is_offline: bool) -> Result<(), Failure> {
    let app = &parts.app;
    let kind = if app.store.is_sqlite() { "SQLite" } else { "PostgreSQL" };
    report.tell("database", Ok(format!("{kind} answers and the master key opens it")));
    report.tell("clock", check_clock(app).await);
    let users = holdfast_app::accounts::list(app).await?;
    report.tell(
        "accounts",
        if users.iter().any(|user| user.password_hash.is_some()) {
            Ok(format!("{} in all", users.len()))
        } else {
            Err("nobody can sign in yet; start `holdfast serve` and open the link it prints".to_owned())
        },
    );
    report.tell("secrets", check_secrets(app).await);
    for check in health::check(app).await.into_iter().filter(|check| ["scheduler", "workers"].contains(&check.name)) {
        report.tell(check.name, check.problem.map_or_else(|| Ok("running".to_owned()), Err));
    }
    report.tell("messages", check_messages(app).await);
    if is_offline {
        return Ok(());
    }
    for finding in examine(parts).await? {
        report.tell(&finding.what, finding.found);
    }
    Ok(())
}

/// Checks that the path exists and that only its owner can read it.
fn check_private(path: &Path, remedy: &str) -> Result<String, String> {
    let shown = path.display();
    let meta = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{shown} does not exist yet; `holdfast serve` creates it"),
        _ => format!("cannot inspect {shown}: {error}"),
    })?;
    if is_open_to_others(&meta) {
        return Err(format!("others can read {shown}; run {remedy} {shown}"));
    }
    Ok(shown.to_string())
}

fn check_database_files(path: &Path) -> Result<String, String> {
    let exposed: Vec<String> =
        holdfast_store::exposed_files(path).iter().map(|path| path.display().to_string()).collect();
    if exposed.is_empty() {
        return Ok(path.display().to_string());
    }
    let exposed = exposed.join(" ");
    Err(format!("others can read {exposed}; run chmod 600 {exposed}, or start `holdfast serve`, which does it"))
}

fn check_space(folder: &Path) -> Result<String, String> {
    let Ok(found) = rustix::fs::statvfs(folder) else { return Ok("unknown until the folder exists".to_owned()) };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let shown = holdfast_core::figures::size(i64::try_from(free).unwrap_or(i64::MAX));
    if free < LEAST_FREE_BYTES {
        return Err(format!("only {shown} left on the file system of {}; free some space", folder.display()));
    }
    Ok(format!("{shown} left"))
}

/// Checks that the clock shows a plausible year and agrees with the database's clock.
async fn check_clock(app: &App) -> Result<String, String> {
    let remedy = "set it, and keep it right with NTP (timedatectl set-ntp true)";
    let now = SystemClock.now();
    if now.as_second() < LEAST_SECOND {
        return Err(format!("it shows {now}, which is in the past; {remedy}"));
    }
    let skew = health::clock_skew(app).await.map_err(|error| error.reason())?;
    if skew.unsigned_abs() > CLOCK_SECS.unsigned_abs() {
        return Err(format!("it differs from the database's by {skew} s; {remedy}"));
    }
    Ok(now.to_string())
}

/// Checks that every secret can be decrypted, which fails if the database and the master key do not belong together.
async fn check_secrets(app: &App) -> Result<String, String> {
    let all = transfer::export(app, None, &mut std::io::sink()).await.map_err(|error| {
        format!("{}: the database was damaged, or copied without its master key; restore both together", error.reason())
    })?;
    let count = |table: &str| all.get(table).copied().unwrap_or_default();
    let (tasks, servers) = (count("backup_tasks"), count("remote_servers"));
    Ok(format!("all of {tasks} tasks, {servers} servers and {} destinations readable", count("backup_destinations")))
}

async fn check_messages(app: &App) -> Result<String, String> {
    match health::undelivered(app).await.map_err(|error| error.reason())? {
        0 => Ok("all delivered".to_owned()),
        count => Err(format!("{count} could not be delivered; see the Messages page and fix the streams")),
    }
}
