//! `holdfast doctor`: finds problems and suggests fixes. It changes nothing except for a probe object at each
//! destination, which it removes again.

use std::path::Path;
use std::time::Duration;

use holdfast_app::health::Undelivered;
use holdfast_app::{App, AppError, Check, accounts, audit_log, draining, health, people, transfer};
use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_engine::FreeSpace;
use holdfast_store::Migrations;
use holdfast_store::master_key::MasterKeySource;
use holdfast_worker::{Parts, check_installation};
use serde_json::{Value, json};

use crate::audit_log::AuditLog;
use crate::failure::Failure;
use crate::output::say;
use crate::settings::Settings;
use crate::wiring::{is_open_to_others, open_parts, store_options};

/// The beginning of 2025. This software did not exist before, so a clock that shows an earlier time is wrong.
const LEAST_SECOND: i64 = 1_735_689_600;
/// A larger difference between clocks makes S3 requests fail and delays schedules.
const CLOCK_SECS: i64 = 60;

/// How long reading everything in the database may take. A database that hangs is a finding, too.
const READ_LIMIT: Duration = Duration::from_secs(600);

/// Events of the audit log are written within seconds.
const LATE_EVENT_SECS: i64 = 60;

/// How many names of tasks a line shows.
const NAMES: i64 = 3;

/// Options of the command.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Contact no server, destination or mail server.
    pub is_offline: bool,
    pub is_json: bool,
}

/// Prints the findings as they are made, or keeps them for a JSON document.
struct Report {
    is_json: bool,
    problems: usize,
    findings: Vec<Value>,
}

impl Report {
    fn tell(&mut self, what: &str, found: Result<String, String>) {
        let (is_ok, text) = match found {
            Ok(text) => (true, text),
            Err(text) => (false, text),
        };
        self.problems += usize::from(!is_ok);
        if self.is_json {
            self.findings.push(json!({"what": what, "ok": is_ok, "text": text}));
        } else {
            say!("{} {what}: {text}", if is_ok { "ok      " } else { "PROBLEM " });
        }
    }
}

pub async fn run(settings: &Settings, options: Options) -> Result<(), Failure> {
    let mut report = Report { is_json: options.is_json, problems: 0, findings: Vec::new() };
    report.tell("data folder", check_private(&settings.data_dir, "chmod 700"));
    report.tell("free space", check_space(&settings.data_dir));
    report.tell("master key", check_key(settings).await);
    if let Some(path) = holdfast_store::sqlite_path(settings.database_url.reveal()).filter(|path| path.exists()) {
        report.tell("database files", check_database_files(&path));
        let elsewhere = path.parent().filter(|folder| !folder.starts_with(&settings.data_dir));
        if let Some(folder) = elsewhere {
            report.tell("free space of the database", check_space(folder));
        }
    }
    let exists = settings.database_url.reveal().starts_with("postgres") || settings.data_dir.exists();
    if exists {
        match open_parts(settings, Migrations::Never).await {
            Ok(parts) => {
                if let Err(failure) = look_inside(&mut report, &parts, settings, options.is_offline).await {
                    report.tell("other checks", Err(format!("stopped, because {}", failure.message)));
                }
                parts.app.store.close().await;
            }
            Err(failure) => report.tell("database", Err(failure.message)),
        }
    }
    if report.is_json {
        say!("{:#}", json!({"problems": report.problems, "findings": report.findings}));
    }
    match report.problems {
        0 => Ok(()),
        1 => Err(Failure::other("1 problem found")),
        many => Err(Failure::other(format!("{many} problems found"))),
    }
}

/// Reports settings with which nothing can be examined.
pub fn unusable(options: Options, failure: Failure) -> Failure {
    if options.is_json {
        let finding = json!({"what": "settings", "ok": false, "text": failure.message});
        say!("{:#}", json!({"problems": 1, "findings": [finding]}));
    }
    failure
}

async fn look_inside(report: &mut Report, parts: &Parts, settings: &Settings, is_offline: bool) -> Result<(), Failure> {
    let app = &parts.app;
    let checks = health::check(app).await;
    let (database, rest): (Vec<_>, Vec<_>) = checks.into_iter().partition(|check| check.name == "database");
    let is_usable = database.iter().all(|check| check.problem.is_none());
    for check in database {
        let fine =
            || format!("{} answers and accepts writes", if app.store.is_sqlite() { "SQLite" } else { "PostgreSQL" });
        report.tell("database", check.problem.map_or_else(|| Ok(fine()), |text| Err(with_detail(&text, check.detail))));
    }
    report.tell("database content", check_damage(app).await);
    if is_usable {
        let is_running = !in_time(draining::list(app)).await?.is_empty();
        for check in rest {
            report.tell(&check.name.replace('_', " "), explain(check, is_running));
        }
    }
    report.tell("clock", check_clock(app).await);
    report.tell("accounts", check_accounts(app).await?);
    report.tell("secrets", check_secrets(app).await);
    let undelivered = health::find_undelivered(app).await?;
    report.tell("messages", check_messages(&undelivered));
    report.tell("catalogues", check_catalogues(&undelivered));
    if let Some(log) = &settings.audit_log {
        report.tell("audit log", check_audit_log(app, log).await);
    }
    let work = health::check_work(app, NAMES).await?;
    report.tell("tasks", work.tasks);
    report.tell("backups", work.backups);
    if is_offline {
        return Ok(());
    }
    if parts.sender.can_mail() {
        let answered = parts.sender.check_mail_server().await;
        let answered = answered.map(|()| "it answers and accepts the login".to_owned());
        report.tell("mail server", answered.map_err(|refusal| format!("{} Check HOLDFAST_SMTP_URL.", refusal.text)));
    }
    check_installation(parts, |finding| report.tell(&finding.what, finding.found)).await?;
    Ok(())
}

/// The result of a check of readiness. A service that was stopped in an orderly way, or never started here, such as in a
/// rehearsal of a recovery, is no problem; that tasks are due which nobody starts is one, and so is a service of which
/// nothing was heard for a while, or one whose workers were all told to start nothing.
fn explain(check: Check, is_running: bool) -> Result<String, String> {
    let fine = match check.name {
        "master_key" => "opens the database",
        _ => "not running: no worker works on this database at the moment",
    };
    match check.problem {
        Some(_) if check.name == "workers" && !is_running => Ok(fine.to_owned()),
        None if check.name == "scheduler" && !is_running => Ok(fine.to_owned()),
        Some(problem) => Err(problem),
        None if check.halts_runs => Err(check.note.unwrap_or_default()),
        None => Ok(check.note.or(check.detail).unwrap_or_else(|| fine.to_owned())),
    }
}

async fn in_time<T>(reading: impl Future<Output = holdfast_app::Result<T>>) -> holdfast_app::Result<T> {
    let late = || AppError::busy(format!("the database did not answer within {} s", READ_LIMIT.as_secs()));
    tokio::time::timeout(READ_LIMIT, reading).await.unwrap_or_else(|_| Err(late()))
}

fn with_detail(problem: &str, detail: Option<String>) -> String {
    detail.map_or_else(|| problem.to_owned(), |detail| format!("{problem} ({detail})"))
}

/// Checks that somebody can sign in, and that one of them is an administrator.
async fn check_accounts(app: &App) -> Result<Result<String, String>, Failure> {
    let users = in_time(accounts::list(app)).await?;
    if !users.iter().any(|user| user.password_hash.is_some()) {
        return Ok(Err("nobody can sign in yet; start `holdfast serve` and open the link it prints".to_owned()));
    }
    if !in_time(people::has_administrator(app)).await? {
        return Ok(Err("no administrator can sign in; make one with `holdfast user make-admin EMAIL`".to_owned()));
    }
    Ok(Ok(format!("{} in all", users.len())))
}

/// Reads the whole database.
async fn check_damage(app: &App) -> Result<String, String> {
    match in_time(async { Ok(app.store.find_damage(app.now()).await?) }).await {
        Ok(None) if app.store.is_sqlite() => Ok("every page was read, and none is damaged".to_owned()),
        Ok(None) => Ok("PostgreSQL has reported no damage".to_owned()),
        Ok(Some(damage)) => Err(format!(
            "damaged: {damage}; stop Holdfast, and put back a copy of the database, or recover with `holdfast bootstrap`"
        )),
        Err(error) => Err(error.reason()),
    }
}

/// Checks that the key can be read, by nobody else.
async fn check_key(settings: &Settings) -> Result<String, String> {
    match &settings.master_key {
        MasterKeySource::Given(_) => Ok("from HOLDFAST_MASTER_KEY".to_owned()),
        MasterKeySource::File(path) if !path.exists() && has_installation(settings).await => Err(format!(
            "{} is missing, and nothing else opens the secrets of the database; put back the copy that belongs to it, \
             or set HOLDFAST_MASTER_KEY_FILE to where it is",
            path.display()
        )),
        MasterKeySource::File(path) => {
            let found = check_private(path, "chmod 600")?;
            std::fs::File::open(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            Ok(found)
        }
    }
}

/// Whether there is a database with something in it. Another check reports one that cannot be opened.
async fn has_installation(settings: &Settings) -> bool {
    match holdfast_store::sqlite_path(settings.database_url.reveal()) {
        Some(path) => path.exists(),
        None => holdfast_store::is_new(&store_options(settings, Migrations::Never)).await.is_ok_and(|is_new| !is_new),
    }
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
    let space = FreeSpace::find(folder);
    space.map_or_else(|| Ok("unknown until the folder exists".to_owned()), |space| space.check(folder))
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
    let all = in_time(transfer::export(app, None, &mut std::io::sink())).await.map_err(|error| {
        format!("{}: the database was damaged, or copied without its master key; restore both together", error.reason())
    })?;
    let count = |table: &str| all.get(table).copied().unwrap_or_default();
    let (tasks, servers) = (count("backup_tasks"), count("remote_servers"));
    Ok(format!("all of {tasks} tasks, {servers} servers and {} destinations readable", count("backup_destinations")))
}

/// Checks that events of the audit log reach their destination.
async fn check_audit_log(app: &App, log: &AuditLog) -> Result<String, String> {
    let (problem, waits) = audit_log::find_state(app).await.map_err(|error| error.reason())?;
    match problem.filter(|_| waits > 0) {
        Some(problem) => Err(format!("{problem}; events have waited for {waits} s, and are written when it can be")),
        None if waits > LATE_EVENT_SECS => Err(format!(
            "events have waited for {waits} s: no process with HOLDFAST_AUDIT_LOG writes them to {log}; start one"
        )),
        None => Ok(format!("everything is written to {log}")),
    }
}

fn check_messages(found: &Undelivered) -> Result<String, String> {
    let remedy = "see the Messages page and fix the streams";
    match (found.given_up, found.retried) {
        (0, 0) => Ok("all delivered".to_owned()),
        (0, retried) => Err(format!("{retried} could not be delivered yet, and are tried again; {remedy}")),
        (count, _) => Err(format!("{count} could not be delivered; {remedy}")),
    }
}

/// Whether destinations have what is needed to recover from them alone.
fn check_catalogues(found: &Undelivered) -> Result<String, String> {
    match (found.failed_catalogues, found.old_catalogues) {
        (0, 0) => Ok("up to date at all destinations that were used".to_owned()),
        (0, waiting) => Ok(format!("{waiting} are to be written again")),
        (failed, _) => {
            Err(format!("{failed} could not be written, and are out of date; the destinations' pages say why"))
        }
    }
}
