//! Runs: current and past runs, and the page of one run with its log. Notifications link to it.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use holdfast_app::{AppError, Resource, logs, overview, repositories, runs, tasks};
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{RunId, TaskId};
use holdfast_core::page::Sort;
use holdfast_core::run::{RunIds, RunKind, RunStatus};
use holdfast_store::runs::{LogFilter, RunRow};

use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::{Markup, Reader};
use crate::page::{done, render};
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::{Pager, advice, listing, run_duration, run_kind, run_state};

/// The number of log lines shown while a run is in progress.
const TAIL: i64 = 200;

/// A run in a list.
pub(crate) struct RunLine {
    pub id: i64,
    /// The label of its task; empty on the page of that task.
    pub task: String,
    pub kind: String,
    pub state: Markup,
    pub at: Markup,
    pub took: String,
    pub moved: String,
    pub reason: String,
}

impl RunLine {
    pub(crate) fn of(reader: &Reader, run: &RunRow) -> Self {
        let has_failed = run.status == RunStatus::Failed || run.error_code == Some(FailureCode::Skipped);
        Self {
            id: run.id.0,
            task: String::new(),
            kind: run_kind(reader.t, run.kind()),
            state: run_state(reader.t, run),
            at: reader.when(run.started_at.unwrap_or(run.created_at).0),
            took: run_duration(reader, run),
            moved: if run.bytes_read > 0 { reader.size(run.bytes_read) } else { String::new() },
            reason: if has_failed { advice(reader.t, run.error_code) } else { String::new() },
        }
    }

    /// Runs with the names of their tasks.
    pub(crate) async fn named(ui: &Ui, person: &SignedIn, runs: &[RunRow]) -> Result<Vec<Self>, PageError> {
        let mut ids: Vec<i64> = runs.iter().filter_map(|run| run.subject.task()).map(|id| id.0).collect();
        ids.sort_unstable();
        ids.dedup();
        let labels = tasks::list_labels(&ui.app, &person.caller, &ids).await?;
        let line = |run: &RunRow| {
            let mut line = Self::of(&person.reader, run);
            let label = labels.iter().find(|(id, _)| Some(TaskId(*id)) == run.subject.task());
            line.task = label.map(|(_, label)| label.clone()).unwrap_or_default();
            line
        };
        Ok(runs.iter().map(line).collect())
    }

    #[cfg(test)]
    pub(crate) fn sample(hostile: &str) -> Self {
        Self {
            id: 1,
            task: hostile.into(),
            kind: "Backup".into(),
            state: crate::view::state("failed", "failed"),
            at: Markup("<time>now</time>".into()),
            took: "3 s".into(),
            moved: "1 B".into(),
            reason: hostile.into(),
        }
    }
}

/// A queued or running run.
pub(crate) struct Live {
    pub id: i64,
    pub what: String,
    pub percent: Option<i64>,
    pub facts: Vec<(String, String)>,
    pub log: String,
    pub is_stopping: bool,
    /// Short runs end before anybody could cancel them.
    pub can_cancel: bool,
}

impl Live {
    pub(crate) async fn load(ui: &Ui, person: &SignedIn, run: &RunRow) -> Result<Self, PageError> {
        let lines = runs::tail(&ui.app, &person.caller, run.id, TAIL).await?;
        Ok(Self::of(&person.reader, run, lines.join("\n"), runs::is_stopping(&ui.app, run.id).await?))
    }

    fn of(reader: &Reader, run: &RunRow, log: String, is_stopping: bool) -> Self {
        let t = reader.t;
        let is_queued = run.status == RunStatus::Queued;
        let total = run.bytes_total;
        // If the estimate turned out too small, show no percentage.
        let percent = (total > 0 && run.bytes_read <= total).then(|| run.bytes_read * 100 / total);
        let mut facts = Vec::new();
        if !is_queued {
            let read = reader.size(run.bytes_read);
            let read = if total > 0 { t.with2("run-of", "done", read, "total", reader.size(total)) } else { read };
            facts.push((t.say("run-read"), read));
            let files = reader.number(run.files);
            let files = match run.files_total {
                0 => files,
                total => t.with2("run-of", "done", files, "total", reader.number(total)),
            };
            facts.push((t.say("run-files"), files));
            facts.push((t.say("run-took"), run_duration(reader, run)));
            if run.bytes_per_second > 0 {
                facts.push((t.say("run-rate"), t.with("run-per-second", "size", reader.size(run.bytes_per_second))));
                if let Some(left) = percent.map(|_| (total - run.bytes_read) / run.bytes_per_second.max(1)) {
                    facts.push((t.say("run-left"), reader.duration((left + 1) * 1_000_000)));
                }
            }
        }
        let kind = run_kind(t, run.kind());
        let what = if is_queued { t.with("run-waits", "kind", kind) } else { t.with("run-goes", "kind", kind) };
        Self {
            id: run.id.0,
            what,
            percent: percent.filter(|_| !is_queued),
            facts,
            log,
            is_stopping,
            can_cancel: run.kind().is_long(),
        }
    }

    #[cfg(test)]
    pub(crate) fn sample(hostile: &str) -> Self {
        Self {
            id: 1,
            what: "A backup is under way".into(),
            percent: Some(40),
            facts: vec![("Read".into(), "1 B".into())],
            log: hostile.into(),
            is_stopping: false,
            can_cancel: true,
        }
    }
}

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage {
    frame: Frame,
    task: Option<(i64, String)>,
    task_query: String,
    is_of_stored_backups: bool,
    status: String,
    statuses: Vec<(String, String)>,
    live: Vec<RunLine>,
    runs: Vec<RunLine>,
    pager: Pager,
}

pub(crate) async fn list(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let (t, query) = (person.t(), &person.query);
    let task = match query.text("task").parse::<i64>() {
        Ok(id) => Some((id, tasks::show(&ui.app, &person.caller, TaskId(id)).await?.row.label)),
        Err(_) => None,
    };
    let status = query.text("status");
    let filter = LogFilter { task: task.as_ref().map(|(id, _)| *id), status: RunStatus::parse(&status) };
    let mut wanted = listing(&person.caller, query, true);
    wanted.search = None;
    // The same order as that of the ids, with an index that has nothing but logs: PostgreSQL would go through the ids of
    // all other runs, too.
    wanted.sort = Sort::CreatedDescending;
    let is_of_stored_backups = query.text("kind") == "restores" && task.is_none();
    let page = if is_of_stored_backups {
        runs::list_rows_of_stored_backups(&ui.app, &wanted).await?
    } else {
        logs::list_rows(&ui.app, &wanted, &filter).await?
    };
    let live = overview::live_runs(&ui.app, &person.caller).await?;
    let statuses =
        RunStatus::ALL.iter().map(|known| (known.as_str().to_owned(), t.say(&format!("run-{}", known.as_str()))));
    let page = RunsPage {
        frame: person.frame(&ui, Section::Tasks).await?,
        task_query: task.as_ref().map(|(id, _)| id.to_string()).unwrap_or_default(),
        live: if task.is_none() { RunLine::named(&ui, &person, &live).await? } else { Vec::new() },
        task,
        is_of_stored_backups,
        statuses: statuses.collect(),
        status,
        pager: Pager::of(&person.reader, &page, "/runs", query),
        runs: RunLine::named(&ui, &person, &page.items).await?,
    };
    Ok(render(StatusCode::OK, &page))
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: Frame,
    id: i64,
    kind: String,
    state: Markup,
    up: (String, String),
    reason: String,
    live: Option<Live>,
    facts: Vec<(String, Markup)>,
    output: String,
    can_delete: bool,
    backup: Option<i64>,
}

fn parse(id: &str) -> Result<RunId, PageError> {
    let id: i64 = id.parse().map_err(|_| AppError::NotFound(Resource::Run))?;
    Ok(RunId(id))
}

/// The parent page of a run.
async fn up(ui: &Ui, person: &SignedIn, run: &RunRow) -> Result<(String, String), PageError> {
    let t = person.t();
    Ok(match run.subject.ids() {
        RunIds { task: Some(task), .. } => {
            let task = tasks::show(&ui.app, &person.caller, task).await?;
            (format!("/tasks/{}", task.row.id), task.row.label)
        }
        RunIds { backup: Some(id), .. } => (format!("/backups/{id}"), t.with("backup-title", "id", id.to_string())),
        RunIds { server: Some(id), .. } => (format!("/servers/{id}"), t.say("nav-servers")),
        RunIds { destination: Some(id), .. } => (format!("/destinations/{id}"), t.say("nav-destinations")),
        RunIds { repository: Some(id), .. } => match repositories::find_task(&ui.app, &person.caller, id).await? {
            Some(task) => (format!("/tasks/{}", task.id), task.label),
            None => ("/runs".to_owned(), t.say("runs-title")),
        },
        // Streams have no page.
        RunIds { task: None, backup: None, server: None, destination: None, repository: None, stream: _ } => {
            ("/runs".to_owned(), t.say("runs-title"))
        }
    })
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let (run, output) = runs::show(&ui.app, &person.caller, parse(&id)?).await?;
    let (t, reader) = (person.t(), &person.reader);
    let live = if run.is_live() { Some(Live::load(&ui, &person, &run).await?) } else { None };
    let text = |text: String| Markup(crate::human::escaped(&text));
    let mut facts = vec![(t.say("run-number"), text(run.id.to_string()))];
    facts.push((t.say("run-trigger"), text(t.say(&format!("trigger-{}", run.requested_by.as_str())))));
    facts.extend(run.started_at.map(|at| (t.say("run-started"), reader.exactly(at.0))));
    facts.extend(run.finished_at.map(|at| (t.say("run-ended"), reader.exactly(at.0))));
    if run.finished_at.is_some() && run.started_at.is_some() {
        facts.push((t.say("run-took"), text(run_duration(reader, &run))));
    }
    if run.finished_at.is_some() && run.bytes_read > 0 {
        facts.push((t.say("run-read"), reader.bytes(run.bytes_read)));
        facts.push((t.say("run-files"), text(reader.number(run.files))));
    }
    if run.bytes_stored > 0 {
        facts.push((t.say("run-stored"), reader.bytes(run.bytes_stored)));
    }
    if run.warnings > 0 {
        facts.push((t.say("run-warnings"), text(reader.number(run.warnings))));
    }
    let page = RunPage {
        frame: person.frame(&ui, Section::Tasks).await?,
        id: run.id.0,
        kind: run_kind(t, run.kind()),
        state: run_state(t, &run),
        up: up(&ui, &person, &run).await?,
        reason: advice(t, run.error_code),
        output: if live.is_some() { String::new() } else { output },
        can_delete: run.finished_at.is_some() && run.kind() == RunKind::Backup,
        backup: run.subject.backup().map(|id| id.0),
        live,
        facts,
    };
    Ok(render(StatusCode::OK, &page))
}

pub(crate) async fn cancel(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id = parse(&id)?;
    runs::cancel(&ui.app, &person.caller, id).await?;
    Ok(done(&format!("/runs/{id}"), "cancelled"))
}

pub(crate) async fn delete(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id = parse(&id)?;
    let (run, _) = runs::show(&ui.app, &person.caller, id).await?;
    logs::delete(&ui.app, &person.caller, id).await?;
    let back = run.subject.task().map_or_else(|| "/runs".to_owned(), |task| format!("/tasks/{task}"));
    Ok(done(&back, "deleted"))
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let list = |runs, live| RunsPage {
        frame: frame.clone(),
        task: Some((1, hostile.into())),
        task_query: "1".into(),
        is_of_stored_backups: false,
        status: "failed".into(),
        statuses: vec![("failed".into(), "failed".into())],
        live,
        runs,
        pager: Pager {
            text: "1–50".into(), earlier: Some("/runs?page=1".into()), later: Some("/runs?page=3".into())
        },
    };
    let run = |live| RunPage {
        frame: frame.clone(),
        id: 1,
        kind: "Backup".into(),
        state: crate::view::state("failed", "failed"),
        up: ("/tasks/1".into(), hostile.into()),
        reason: "Do this.".into(),
        live,
        facts: vec![("Number".into(), Markup("1".into()))],
        output: hostile.into(),
        can_delete: true,
        backup: Some(1),
    };
    vec![
        list(vec![RunLine::sample(hostile)], vec![RunLine::sample(hostile)]).render().unwrap(),
        list(Vec::new(), Vec::new()).render().unwrap(),
        run(None).render().unwrap(),
        run(Some(Live::sample(hostile))).render().unwrap(),
    ]
}

#[cfg(test)]
mod tests {
    use holdfast_core::ids::UserId;
    use holdfast_core::run::{RunSubject, Trigger};

    use super::*;

    #[test]
    fn an_estimate_that_was_too_small_is_not_shown_as_done() {
        let row = |read, total| RunRow {
            id: RunId(1),
            user_id: UserId(1),
            subject: RunSubject::Backup(TaskId(1)),
            status: RunStatus::Running,
            requested_by: Trigger::Manual,
            attempt: 1,
            lease_epoch: 1,
            bytes_read: read,
            bytes_stored: 0,
            files: 3,
            bytes_total: total,
            files_total: 10,
            bytes_per_second: 100,
            warnings: 0,
            error_code: None,
            made_backup: None,
            created_at: holdfast_store::DbTime(Reader::default().now),
            started_at: Some(holdfast_store::DbTime(Reader::default().now)),
            finished_at: None,
        };
        let live = |read, total| Live::of(&Reader::default(), &row(read, total), String::new(), false);
        assert_eq!(live(50, 200).percent, Some(25));
        assert_eq!(live(300, 200).percent, None);
        assert_eq!(live(300, 0).percent, None);
        assert!(live(50, 250).facts.iter().any(|(_, value)| value == "3 s"), "two full seconds, rounded up");
    }
}
