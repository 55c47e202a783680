//! What another person has, for administrators, and the little that they may do to it.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use holdfast_app::people;
use holdfast_app::refusal::Missing;
use holdfast_app::supervision::{self, Belongings, TaskAct};
use holdfast_app::{AppError, Resource};
use holdfast_core::ids::{RunId, TaskId, UserId};
use holdfast_core::page::Page;

use super::runs::RunLine;
use super::{destinations, servers, tasks};
use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::Markup;
use crate::page::{done, render};
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;

#[derive(Template)]
#[template(path = "person.html")]
struct PersonPage {
    frame: Frame,
    id: i64,
    name: String,
    email: String,
    is_own: bool,
    is_suspended: bool,
    tasks: Vec<TaskLine>,
    tasks_cut: String,
    servers: Vec<Place>,
    servers_cut: String,
    destinations: Vec<Place>,
    destinations_cut: String,
    runs: Vec<(RunLine, bool)>,
}

struct TaskLine {
    task: tasks::Line,
    is_paused: bool,
    is_running: bool,
}

/// A server or a destination.
struct Place {
    label: String,
    address: String,
    state: Markup,
}

pub(super) fn parse_person(id: &str) -> Result<UserId, PageError> {
    let id: i64 = id.parse().map_err(|_| AppError::Missing(Missing::Account))?;
    Ok(UserId(id))
}

pub(super) fn address(id: UserId) -> String {
    format!("/administration/people/{id}")
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let found = supervision::show(&ui.app, &person.caller, parse_person(&id)?).await?;
    let frame = person.frame(&ui, Section::Administration).await?;
    Ok(render(StatusCode::OK, &page(frame, &person, found)))
}

fn page(frame: Frame, person: &SignedIn, found: Belongings) -> PersonPage {
    let (t, reader) = (person.t(), &person.reader);
    let task = |row: &holdfast_store::tasks::TaskRow| TaskLine {
        task: tasks::line(reader, row, found.health.iter().find(|health| health.id == row.id), Vec::new()),
        is_paused: row.paused_at.is_some(),
        is_running: row.is_live,
    };
    let run = |row: &holdfast_store::runs::RunRow| {
        let mut line = RunLine::of(reader, row);
        let task = found.tasks.items.iter().find(|task| Some(task.id) == row.subject.task());
        line.task = task.map(|task| task.label.clone()).unwrap_or_default();
        (line, row.is_live())
    };
    let server = |row: &holdfast_store::servers::ServerRow| Place {
        label: row.label.clone(),
        address: servers::address(row),
        state: servers::connectivity(t, row),
    };
    let destination = |row: &holdfast_store::destinations::DestinationRow| Place {
        label: row.label.clone(),
        address: row.spec.short_place(),
        state: destinations::reach(t, row),
    };
    PersonPage {
        id: found.user.id.0,
        is_own: found.user.id == person.user.id,
        is_suspended: found.user.suspended_at.is_some(),
        tasks: found.tasks.items.iter().map(task).collect(),
        tasks_cut: cut(person, &found.tasks),
        servers: found.servers.items.iter().map(server).collect(),
        servers_cut: cut(person, &found.servers),
        destinations: found.destinations.items.iter().map(destination).collect(),
        destinations_cut: cut(person, &found.destinations),
        runs: found.runs.items.iter().map(run).collect(),
        frame,
        name: found.user.name,
        email: found.user.email,
    }
}

/// How many are shown; empty if that is all.
fn cut<T>(person: &SignedIn, page: &Page<T>) -> String {
    let shown = page.items.len() as i64;
    if shown >= page.total {
        return String::new();
    }
    let reader = &person.reader;
    person.t().with2("person-shown", "shown", reader.number(shown), "total", reader.number(page.total))
}

pub(crate) async fn resume(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id = parse_person(&id)?;
    people::resume(&ui.app, &person.caller, id).await?;
    Ok(done(&address(id), "saved"))
}

pub(crate) async fn act_on_task(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path((id, task, act)): Path<(String, String, String)>,
    _: Form,
) -> PageResult {
    let id = parse_person(&id)?;
    let task: i64 = task.parse().map_err(|_| AppError::NotFound(Resource::BackupTask))?;
    let act = match act.as_str() {
        "pause" => TaskAct::Pause,
        "resume" => TaskAct::Resume,
        "cancel" => TaskAct::Cancel,
        _ => return Err(AppError::Missing(Missing::Page).into()),
    };
    supervision::act_on_task(&ui.app, &person.caller, id, TaskId(task), act).await?;
    Ok(done(&address(id), "saved"))
}

pub(crate) async fn cancel_run(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path((id, run)): Path<(String, String)>,
    _: Form,
) -> PageResult {
    let id = parse_person(&id)?;
    let run: i64 = run.parse().map_err(|_| AppError::NotFound(Resource::Run))?;
    supervision::cancel_run(&ui.app, &person.caller, id, RunId(run)).await?;
    Ok(done(&address(id), "cancelled"))
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let place = || Place { label: hostile.into(), address: hostile.into(), state: Markup("<b>good</b>".into()) };
    let task = |is_paused, is_running| TaskLine { task: tasks::line_sample(hostile), is_paused, is_running };
    let page = |is_suspended, tasks: Vec<TaskLine>, cut: &str| PersonPage {
        frame: frame.clone(),
        id: 2,
        name: hostile.into(),
        email: hostile.into(),
        is_own: false,
        is_suspended,
        tasks,
        tasks_cut: cut.into(),
        servers: vec![place()],
        servers_cut: cut.into(),
        destinations: vec![place()],
        destinations_cut: cut.into(),
        runs: vec![(RunLine::sample(hostile), true), (RunLine::sample(hostile), false)],
    };
    vec![
        page(true, vec![task(true, false), task(false, true)], hostile).render().unwrap(),
        page(false, Vec::new(), "").render().unwrap(),
    ]
}
