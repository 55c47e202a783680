//! Notices: delivered, pending and undelivered messages.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use holdfast_app::incidents::{self, Incident};
use holdfast_app::notices::NoticeText;
use holdfast_app::{AppError, Resource, notices};
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::NoticeId;
use holdfast_core::incident::IncidentPlace;
use holdfast_core::notice::NoticeStatus;
use holdfast_store::incidents::AffectedTaskRow;
use holdfast_store::notices::{NoticeFilter, NoticeRow};

use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::{Markup, Reader};
use crate::page::{done, render};
use crate::problem::PageResult;
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::{Pager, advice, listing, state};

#[derive(Template)]
#[template(path = "notices.html")]
struct NoticesPage {
    frame: Frame,
    status: String,
    statuses: Vec<(String, String)>,
    incidents: Vec<IncidentCard>,
    notices: Vec<Line>,
    pager: Pager,
}

/// An incident that is not over.
struct IncidentCard {
    title: String,
    /// The page of the server or destination at fault.
    address: Option<String>,
    advice: String,
    since: Markup,
    tasks: Vec<AffectedTask>,
    /// How many further tasks there are.
    more: i64,
}

struct AffectedTask {
    id: i64,
    label: String,
    state: Markup,
}

struct Line {
    id: i64,
    at: Markup,
    title: String,
    /// What the message says; nothing for heartbeats and summaries.
    text: Option<NoticeText>,
    state: Markup,
    answer: String,
    /// When delivery is tried again.
    next: Option<Markup>,
    can_retry: bool,
}

pub(crate) async fn list(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let t = person.t();
    let status = person.query.text("status");
    let filter = NoticeFilter { status: NoticeStatus::parse(&status), stream: None };
    let mut wanted = listing(&person.caller, &person.query, true);
    wanted.search = None;
    let page = notices::list(&ui.app, &wanted, &filter).await?;
    let pager = Pager::of(&person.reader, &page, "/notices", &person.query);
    let mut texts = notices::list_texts(&ui.app, &person.caller, &page.items).await?;
    let line = |row: NoticeRow| {
        let class = match row.status {
            NoticeStatus::Delivered => "good",
            NoticeStatus::Undelivered => "failed",
            NoticeStatus::Pending | NoticeStatus::Superseded => "",
        };
        let is_retried = row.status == NoticeStatus::Pending && row.tries > 0;
        Line {
            id: row.id.0,
            at: person.reader.when(row.created_at.0),
            title: row.title,
            text: texts.remove(&row.id.0),
            state: state(class, &t.say(&format!("notice-{}", row.status.as_str()))),
            answer: row.answer.unwrap_or_default(),
            next: row.next_try_at.filter(|_| is_retried).map(|at| person.reader.when(at.0)),
            can_retry: row.status == NoticeStatus::Undelivered,
        }
    };
    let statuses = NoticeStatus::ALL
        .iter()
        .map(|status| (status.as_str().to_owned(), t.say(&format!("notice-{}", status.as_str()))));
    let page = NoticesPage {
        frame: person.frame(&ui, Section::Notifications).await?,
        statuses: statuses.collect(),
        status,
        incidents: incidents::list(&ui.app, &person.caller)
            .await?
            .into_iter()
            .map(|one| card(&person.reader, one))
            .collect(),
        notices: page.items.into_iter().map(line).collect(),
        pager,
    };
    Ok(render(StatusCode::OK, &page))
}

fn card(reader: &Reader, incident: Incident) -> IncidentCard {
    let t = reader.t;
    let label = incident.label.unwrap_or_default();
    let (title, address) = match incident.row.place {
        IncidentPlace::Server(id) => (t.with("incident-server", "name", label), Some(format!("/servers/{id}"))),
        IncidentPlace::Servers => (t.say("incident-servers"), None),
        IncidentPlace::Destination(id) => {
            (t.with("incident-destination", "name", label), Some(format!("/destinations/{id}")))
        }
        IncidentPlace::Service if incident.row.code == FailureCode::Missed => (t.say("incident-no-worker"), None),
        IncidentPlace::Service => (t.say("incident-lost-worker"), None),
    };
    let shown = i64::try_from(incident.tasks.len()).unwrap_or(i64::MAX);
    IncidentCard {
        title,
        address,
        advice: advice(t, Some(incident.row.code)),
        since: reader.when(incident.row.created_at.0),
        tasks: incident.tasks.into_iter().map(|task| affected(reader, task)).collect(),
        more: (incident.count - shown).max(0),
    }
}

fn affected(reader: &Reader, task: AffectedTaskRow) -> AffectedTask {
    let t = reader.t;
    let state = match (task.has_recovered, task.is_paused) {
        (true, _) => state("good", &t.say("incident-recovered")),
        (false, true) => state("", &t.say("incident-paused")),
        (false, false) => state("failed", &t.say("incident-fails")),
    };
    AffectedTask { id: task.id, label: task.label, state }
}

pub(crate) async fn retry(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id: i64 = id.parse().map_err(|_| AppError::NotFound(Resource::Notice))?;
    match notices::retry(&ui.app, &person.caller, NoticeId(id)).await {
        // Somebody else has already retried it, so the goal is reached.
        Ok(()) | Err(AppError::Conflict(_)) => Ok(done("/notices?status=undelivered", "retried")),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let line = Line {
        id: 1,
        at: Markup("<time>now</time>".into()),
        title: hostile.into(),
        text: Some(NoticeText { text: hostile.into(), facts: vec![("Server".into(), hostile.into())] }),
        state: state("failed", "undelivered"),
        answer: hostile.into(),
        next: Some(Markup("<time>soon</time>".into())),
        can_retry: true,
    };
    let card = || IncidentCard {
        title: hostile.into(),
        address: Some("/servers/1".into()),
        advice: hostile.into(),
        since: Markup("<time>then</time>".into()),
        tasks: vec![AffectedTask { id: 1, label: hostile.into(), state: state("failed", "fails") }],
        more: 3,
    };
    let list = |notices| NoticesPage {
        incidents: vec![card()],
        frame: frame.clone(),
        status: "undelivered".into(),
        statuses: vec![("undelivered".into(), "undelivered".into())],
        notices,
        pager: Pager::default(),
    };
    vec![list(vec![line]).render().unwrap(), list(Vec::new()).render().unwrap()]
}
