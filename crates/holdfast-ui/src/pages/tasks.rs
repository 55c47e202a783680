//! Tasks: the list with its filters and bulk actions, and the page of one task.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect};
use holdfast_app::tasks::{self, Task};
use holdfast_app::{AppError, backups, destinations, logs, overview, repositories, servers, streams, tags};
use holdfast_core::anomaly;
use holdfast_core::ids::{BackupId, TaskId};
use holdfast_core::input::Errors;
use holdfast_core::page::{PageRequest, Sort};
use holdfast_core::retention::RetentionPolicy;
use holdfast_core::source::SourceSpec;
use holdfast_core::storage::Format;
use holdfast_core::task_health::TaskHealth;
use holdfast_store::Listing;
use holdfast_store::backups::BackupFilter;
use holdfast_store::runs::LogFilter;
use holdfast_store::task_health::TaskHealthRow;
use holdfast_store::tasks::{TaskFilter, TaskRow};

use super::runs::{Live, RunLine};
use super::schedule::schedule_words;
use super::squares::{Square, squares};
use super::task_repository::RepositoryView;
use super::task_words::{parse, source_words};
use crate::chart;
use crate::fields::Fields;
use crate::fields::Values;
use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::{Markup, Reader, escaped};
use crate::page::{self, done, render};
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::{FormPage, Pager, advice, everything, health, listing, proof};

/// The maximum number of tasks per bulk action; a page of the list has fewer.
const MOST_AT_ONCE: usize = 200;
/// The number of runs and of backups on a task's page; their own lists show all.
const SHOWN: i64 = 15;

#[derive(Template)]
#[template(path = "tasks.html")]
struct TasksPage {
    frame: Frame,
    search: String,
    is_filtered: bool,
    has_prerequisites: bool,
    healths: Vec<(String, String, bool)>,
    tags: Vec<(i64, String, bool)>,
    servers: Vec<(i64, String, bool)>,
    tasks: Vec<Line>,
    total: String,
    pager: Pager,
}

/// A task in a list.
pub(crate) struct Line {
    pub id: i64,
    pub label: String,
    pub source: String,
    pub state: Markup,
    pub reason: String,
    pub last_success: Option<Markup>,
    pub proven: Option<Markup>,
    pub next: Option<Markup>,
    pub tags: Vec<String>,
}

pub(crate) fn line(reader: &Reader, task: &TaskRow, row: Option<&TaskHealthRow>, tags: Vec<String>) -> Line {
    let now = row.map_or(TaskHealth::New, TaskHealthRow::health);
    let code = row.and_then(TaskHealthRow::last_error_code);
    Line {
        id: task.id.0,
        label: task.label.clone(),
        source: source_words(reader.t, task),
        state: health(reader.t, now),
        reason: if now == TaskHealth::Failed { advice(reader.t, code) } else { String::new() },
        last_success: row.and_then(|row| row.last_success_at).map(|at| reader.when(at.0)),
        proven: row.and_then(|row| row.proven_at).map(|at| reader.when(at.0)),
        next: task.next_run_at.map(|at| reader.when(at.0)),
        tags,
    }
}

pub(crate) async fn list(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let (t, query) = (person.t(), &person.query);
    let chosen = |name: &str| query.text(name).parse::<i64>().ok();
    let filter = TaskFilter {
        tag: chosen("tag"),
        server: chosen("server"),
        destination: chosen("destination"),
        health: TaskHealth::parse(&query.text("state")),
        ..TaskFilter::default()
    };
    let all = everything(&person.caller);
    let page = tasks::list(&ui.app, &listing(&person.caller, query, false), &filter).await?;
    let healths = tasks::list_health(&ui.app, &page.items).await?;
    let labels: Vec<(i64, String)> =
        tags::list(&ui.app, &all).await?.items.into_iter().map(|row| (row.id.0, row.label)).collect();
    let servers = servers::list(&ui.app, &all).await?.items;
    let has_prerequisites = !servers.is_empty()
        && !destinations::list(&ui.app, &Listing { page: PageRequest { page: 1, per_page: 1 }, ..all })
            .await?
            .items
            .is_empty();
    let is_filtered =
        ["search", "tag", "server", "destination", "state", "page"].iter().any(|name| !query.text(name).is_empty());
    let known = TaskHealth::ALL.iter().map(|known| {
        (known.as_str().to_owned(), t.say(&format!("health-{}", known.as_str())), filter.health == Some(*known))
    });
    let page = TasksPage {
        frame: person.frame(&ui, Section::Tasks).await?,
        search: query.text("search"),
        is_filtered,
        has_prerequisites,
        healths: known.collect(),
        servers: servers.into_iter().map(|row| (row.id.0, row.label, filter.server == Some(row.id.0))).collect(),
        tasks: page
            .items
            .iter()
            .map(|task| {
                let known = labels.iter().filter(|(id, _)| task.tag_ids.contains(id));
                let tags = known.map(|(_, label)| label.clone()).collect();
                line(&person.reader, &task.row, healths.iter().find(|row| row.id == task.row.id), tags)
            })
            .collect(),
        tags: labels.into_iter().map(|(id, label)| (id, label, filter.tag == Some(id))).collect(),
        total: person.reader.number(page.total),
        pager: Pager::of(&person.reader, &page, "/tasks", query),
    };
    Ok(render(StatusCode::OK, &page))
}

/// Applies one action to several tasks. If it is refused for some of them, it is still applied to the others.
pub(crate) async fn bulk(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    let ids = form.numbers("task");
    let back = form.text("back");
    let back = page::own_address(&back).filter(|address| address.starts_with("/tasks")).unwrap_or("/tasks").to_owned();
    if ids.is_empty() || ids.len() > MOST_AT_ONCE {
        return Ok(done(&back, "bulk-none"));
    }
    let mut refused = 0;
    for id in ids.into_iter().map(TaskId) {
        let did = match form.text("do").as_str() {
            "run" => tasks::request_run(&ui.app, &person.caller, id).await.map(drop),
            "pause" => tasks::pause(&ui.app, &person.caller, id).await.map(drop),
            "resume" => tasks::resume(&ui.app, &person.caller, id).await.map(drop),
            _ => return Ok(done(&back, "bulk-none")),
        };
        match did {
            Ok(()) => {}
            // Already running or paused, deleted in the meantime, or too many at once: continue with the others.
            Err(AppError::Conflict(_) | AppError::NotFound(_) | AppError::TooManyRequests { .. }) => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done(&back, if refused == 0 { "bulk-done" } else { "bulk-some" }))
}

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage {
    frame: Frame,
    id: i64,
    label: String,
    description: String,
    state: Markup,
    /// Why the task failed and what to do; empty if it did not fail.
    reason: String,
    overdue: Option<Markup>,
    /// Why old backups are not removed; empty if they are.
    held: String,
    is_paused: bool,
    is_running: bool,
    live: Option<Live>,
    next: Option<Markup>,
    last_success: Option<Markup>,
    proven: Option<Markup>,
    squares: Vec<Square>,
    spark: Markup,
    runs: Vec<RunLine>,
    backups: Vec<BackupLine>,
    schedule: String,
    source: String,
    server: (i64, String),
    destination: (i64, String),
    keeps: String,
    store_path: String,
    format: String,
    repository: Option<RepositoryView>,
    is_encrypted: bool,
    has_heartbeat: bool,
    excluded: Vec<String>,
    streams: Vec<String>,
    tags: Vec<String>,
}

pub(crate) struct BackupLine {
    pub id: i64,
    pub task: String,
    pub at: Markup,
    pub size: Markup,
    pub entries: String,
    pub proof: Markup,
    pub is_encrypted: bool,
    pub is_suspicious: bool,
}

/// The size by which backups are compared: that of the content, if the backup only added something to a repository.
fn shown_size(row: &holdfast_store::backups::BackupRow) -> i64 {
    if row.format.is_shared() { row.plain_bytes } else { row.size_bytes }
}

pub(crate) fn backup_line(reader: &Reader, row: &holdfast_store::backups::BackupRow) -> BackupLine {
    BackupLine {
        id: row.id.0,
        task: row.task_label.clone(),
        at: reader.exactly(row.created_at.0),
        size: reader.bytes(shown_size(row)),
        entries: reader.number(row.entries),
        proof: proof(reader.t, row.verification),
        is_encrypted: row.is_encrypted,
        is_suspicious: row.suspicion.is_some(),
    }
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let task = tasks::show(&ui.app, &person.caller, parse(&id)?).await?;
    Ok(render(StatusCode::OK, &task_page(&ui, &person, task).await?))
}

async fn task_page(ui: &Ui, person: &SignedIn, task: Task) -> Result<TaskPage, PageError> {
    let (t, reader, caller) = (person.t(), &person.reader, &person.caller);
    let row = &task.row;
    let stand = tasks::list_health(&ui.app, std::slice::from_ref(&task)).await?.into_iter().next();
    let now = stand.as_ref().map_or(TaskHealth::New, TaskHealthRow::health);
    let recent =
        Listing { sort: Sort::IdDescending, ..Listing::new(caller.user, PageRequest { page: 1, per_page: SHOWN }) };
    let runs = logs::list_rows(&ui.app, &recent, &LogFilter { task: Some(row.id.0), status: None }).await?;
    let live = match runs.items.iter().find(|run| run.is_live()) {
        Some(run) => Some(Live::load(ui, person, run).await?),
        None => None,
    };
    let filter = BackupFilter { task: Some(row.id.0), ..BackupFilter::default() };
    let stored = backups::list(&ui.app, &recent, &filter).await?;
    let sizes: Vec<i64> = stored.items.iter().rev().map(shown_size).collect();
    let all = everything(caller);
    let streams =
        streams::list(&ui.app, &all).await?.items.into_iter().filter(|row| task.stream_ids.contains(&row.id.0));
    let tags = tags::list(&ui.app, &all).await?.items.into_iter().filter(|row| task.tag_ids.contains(&row.id.0));
    let server = servers::show(&ui.app, caller, row.remote_server_id).await?;
    let destination = destinations::show(&ui.app, caller, row.backup_destination_id).await?;
    let days = overview::task_days(&ui.app, caller, row.id).await?;
    let code = stand.as_ref().and_then(TaskHealthRow::last_error_code);
    Ok(TaskPage {
        frame: person.frame(ui, Section::Tasks).await?,
        id: row.id.0,
        label: row.label.clone(),
        description: row.description.clone().unwrap_or_default(),
        state: health(t, now),
        reason: if now == TaskHealth::Failed { advice(t, code) } else { String::new() },
        overdue: stand.as_ref().and_then(|row| row.overdue_since).map(|at| reader.when(at.0)),
        held: held_words(t, row),
        is_paused: row.paused_at.is_some(),
        is_running: now == TaskHealth::Running,
        live,
        next: row.next_run_at.map(|at| reader.when(at.0)),
        last_success: stand.as_ref().and_then(|row| row.last_success_at).map(|at| reader.when(at.0)),
        proven: stand.as_ref().and_then(|row| row.proven_at).map(|at| reader.when(at.0)),
        squares: squares(reader, &days),
        spark: chart::spark(&sizes),
        runs: runs.items.iter().map(|run| RunLine::of(reader, run)).collect(),
        backups: stored.items.iter().map(|backup| backup_line(reader, backup)).collect(),
        schedule: schedule_words(reader, &row.spec.schedule),
        source: source_words(t, row),
        server: (server.id.0, server.label),
        destination: (destination.id.0, destination.label),
        keeps: match row.spec.storage.retention {
            RetentionPolicy::All => t.say("task-keeps-all"),
            RetentionPolicy::Newest(number) => t.with("task-keeps", "n", number),
        },
        store_path: row.spec.storage.path.clone(),
        repository: repositories::find(&ui.app, caller, row.id).await?.map(|found| RepositoryView::of(reader, &found)),
        format: match row.spec.storage.format {
            Format::Archive => t.say("task-format-is-archive"),
            Format::Repository => t.say("task-format-is-repository"),
        },
        is_encrypted: row.has_encryption_password,
        has_heartbeat: row.has_heartbeat,
        excluded: excluded(row),
        streams: streams.map(|row| row.label).collect(),
        tags: tags.map(|row| row.label).collect(),
    })
}

/// Why old backups of a task are not removed; empty if they are.
pub(crate) fn held_words(t: crate::translator::Translator, row: &TaskRow) -> String {
    if row.retention_held_at.is_none() {
        return String::new();
    }
    let signs = anomaly::read_signs(row.held_signs.as_deref().unwrap_or_default());
    let words: Vec<String> = signs.iter().map(|sign| t.say(&format!("sign-{}", sign.as_str()))).collect();
    t.with("task-held", "reason", words.join(" "))
}

fn excluded(row: &TaskRow) -> Vec<String> {
    match &row.spec.source {
        SourceSpec::Files(source) => source.excluded.clone(),
        SourceSpec::Database { source, .. } => source.excluded_tables.clone(),
    }
}

pub(crate) async fn run(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id = parse(&id)?;
    tasks::request_run(&ui.app, &person.caller, id).await?;
    Ok(Redirect::to(&format!("/tasks/{id}")).into_response())
}

pub(crate) async fn cancel(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id = parse(&id)?;
    tasks::cancel(&ui.app, &person.caller, id).await?;
    Ok(done(&format!("/tasks/{id}"), "cancelled"))
}

pub(crate) async fn pause(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id = parse(&id)?;
    tasks::pause(&ui.app, &person.caller, id).await?;
    Ok(done(&format!("/tasks/{id}"), "paused"))
}

pub(crate) async fn resume(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id = parse(&id)?;
    tasks::resume(&ui.app, &person.caller, id).await?;
    Ok(done(&format!("/tasks/{id}"), "resumed"))
}

async fn release_page(ui: &Ui, person: &SignedIn, row: &TaskRow) -> Result<FormPage, PageError> {
    let t = person.t();
    let address = format!("/tasks/{}", row.id);
    let newest = tasks::newest_backup(&ui.app, &person.caller, row.id).await?;
    let look = |id| format!("<p><a href=\"/backups/{id}\">{}</a></p>", escaped(&t.say("task-release-look")));
    let seen = |id| format!("<input type=\"hidden\" name=\"backup_id\" value=\"{id}\">");
    Ok(FormPage {
        before: Markup(newest.map(look).unwrap_or_default()),
        inside: Markup(newest.map(seen).unwrap_or_default()),
        title: t.say("task-release-title"),
        intro: format!("{} {}", held_words(t, row), t.say("task-release-means")),
        action: format!("{address}/release"),
        submit: t.say("task-release"),
        up: Some((address, row.label.clone())),
        is_dangerous: true,
        frame: person.frame(ui, Section::Tasks).await?,
        ..FormPage::default()
    })
}

pub(crate) async fn show_release(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let task = tasks::show(&ui.app, &person.caller, parse(&id)?).await?;
    if task.row.retention_held_at.is_none() {
        return Ok(Redirect::to(&format!("/tasks/{}", task.row.id)).into_response());
    }
    Ok(release_page(&ui, &person, &task.row).await?.show(StatusCode::OK))
}

pub(crate) async fn release(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Form,
) -> PageResult {
    let id = parse(&id)?;
    let seen = form.text("backup_id").parse().ok().map(BackupId);
    tasks::release_retention(&ui.app, &person.caller, id, seen).await?;
    Ok(done(&format!("/tasks/{id}"), "retention-released"))
}

#[derive(Template)]
#[template(path = "trigger.html")]
struct TriggerPage {
    frame: Frame,
    id: i64,
    label: String,
    url: Option<String>,
}

pub(crate) async fn show_trigger(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let task = tasks::show(&ui.app, &person.caller, parse(&id)?).await?;
    let frame = person.frame(&ui, Section::Tasks).await?;
    Ok(render(StatusCode::OK, &TriggerPage { frame, id: task.row.id.0, label: task.row.label, url: None }))
}

pub(crate) async fn rotate_trigger(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    _: Form,
) -> PageResult {
    let task = tasks::show(&ui.app, &person.caller, parse(&id)?).await?;
    let secret = tasks::rotate_trigger(&ui.app, &person.caller, task.row.id).await?;
    let url = format!("{}/webhooks/backup-tasks/{}/run?secret={}", person.base_url, task.row.id, secret.reveal());
    let frame = person.frame(&ui, Section::Tasks).await?;
    Ok(render(StatusCode::CREATED, &TriggerPage { frame, id: task.row.id.0, label: task.row.label, url: Some(url) }))
}

async fn delete_page(
    ui: &Ui,
    person: &SignedIn,
    task: &Task,
    values: &Values,
    errors: &Errors,
) -> Result<FormPage, PageError> {
    let t = person.t();
    let filter = BackupFilter { task: Some(task.row.id.0), ..BackupFilter::default() };
    let one = Listing { page: PageRequest { page: 1, per_page: 1 }, ..everything(&person.caller) };
    let stored = backups::list(&ui.app, &one, &filter).await?.total;
    let fields = Fields { t, values, errors };
    let mut more = Vec::new();
    if stored > 0 {
        let label = t.with("task-delete-backups", "n", stored);
        more.push(fields.switch("delete_backups", label).hint(t.say("task-delete-backups-hint")));
    }
    let frame = person.frame(ui, Section::Tasks).await?;
    let address = format!("/tasks/{}", task.row.id);
    Ok(super::delete_page(frame, &task.row.label, &address, t.say("task-delete-means"), more, errors))
}

pub(crate) async fn show_delete(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let task = tasks::show(&ui.app, &person.caller, parse(&id)?).await?;
    Ok(delete_page(&ui, &person, &task, &Values::default(), &Errors::default()).await?.show(StatusCode::OK))
}

pub(crate) async fn delete(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Form,
) -> PageResult {
    let task = tasks::show(&ui.app, &person.caller, parse(&id)?).await?;
    if let Some(errors) = super::wrong_name(&form, &task.row.label) {
        return Ok(delete_page(&ui, &person, &task, &Values::of(&form), &errors)
            .await?
            .show(StatusCode::UNPROCESSABLE_ENTITY));
    }
    tasks::delete(&ui.app, &person.caller, task.row.id, form.is_on("delete_backups")).await?;
    Ok(done("/tasks", "deleted"))
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    use crate::view::state;
    let time = || Some(Markup("<time>now</time>".into()));
    let list = |tasks, has_prerequisites| TasksPage {
        frame: frame.clone(),
        search: hostile.into(),
        is_filtered: false,
        has_prerequisites,
        healths: vec![("failed".into(), "failed".into(), true)],
        tags: vec![(1, hostile.into(), true)],
        servers: vec![(1, hostile.into(), false)],
        tasks,
        total: "1".into(),
        pager: Pager::default(),
    };
    let task = |live, is_paused| TaskPage {
        frame: frame.clone(),
        id: 1,
        label: hostile.into(),
        description: hostile.into(),
        state: state("failed", "failed"),
        reason: "Do this.".into(),
        overdue: time(),
        held: "On hold.".into(),
        is_paused,
        is_running: false,
        live,
        next: time(),
        last_success: None,
        proven: time(),
        squares: Vec::new(),
        spark: chart::spark(&[1, 2, 3]),
        runs: vec![RunLine::sample(hostile)],
        backups: vec![backup_sample(hostile)],
        schedule: "Every day".into(),
        source: hostile.into(),
        server: (1, hostile.into()),
        destination: (1, hostile.into()),
        keeps: "5".into(),
        store_path: hostile.into(),
        format: hostile.into(),
        repository: Some(RepositoryView::sample(hostile)),
        is_encrypted: true,
        has_heartbeat: true,
        excluded: vec![hostile.into()],
        streams: vec![hostile.into()],
        tags: vec![hostile.into()],
    };
    let trigger = |url| TriggerPage { frame: frame.clone(), id: 1, label: hostile.into(), url };
    vec![
        list(vec![line_sample(hostile)], true).render().unwrap(),
        list(Vec::new(), false).render().unwrap(),
        task(Some(Live::sample(hostile)), false).render().unwrap(),
        task(None, true).render().unwrap(),
        trigger(None).render().unwrap(),
        trigger(Some("https://example.org/x".into())).render().unwrap(),
    ]
}

#[cfg(test)]
pub(crate) fn line_sample(hostile: &str) -> Line {
    let time = || Some(Markup("<time>now</time>".into()));
    Line {
        id: 1,
        label: hostile.into(),
        source: hostile.into(),
        state: crate::view::state("failed", "failed"),
        reason: "Do this.".into(),
        last_success: time(),
        proven: None,
        next: time(),
        tags: vec![hostile.into()],
    }
}

#[cfg(test)]
pub(crate) fn backup_sample(hostile: &str) -> BackupLine {
    BackupLine {
        id: 1,
        task: hostile.into(),
        at: Markup("<time>now</time>".into()),
        size: Markup("<data value=\"1\">1 B</data>".into()),
        entries: "3".into(),
        proof: crate::view::state("good", "proven"),
        is_encrypted: true,
        is_suspicious: true,
    }
}
