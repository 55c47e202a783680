//! Notices: delivered, pending and undelivered messages.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use holdfast_app::{AppError, Resource, notices};
use holdfast_core::ids::NoticeId;
use holdfast_core::notice::NoticeStatus;
use holdfast_store::notices::{NoticeFilter, NoticeRow};

use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::Markup;
use crate::page::{done, render};
use crate::problem::PageResult;
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::{Pager, listing, state};

#[derive(Template)]
#[template(path = "notices.html")]
struct NoticesPage {
    frame: Frame,
    status: String,
    statuses: Vec<(String, String)>,
    notices: Vec<Line>,
    pager: Pager,
}

struct Line {
    id: i64,
    at: Markup,
    title: String,
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
        notices: page.items.into_iter().map(line).collect(),
        pager,
    };
    Ok(render(StatusCode::OK, &page))
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
        state: state("failed", "undelivered"),
        answer: hostile.into(),
        next: Some(Markup("<time>soon</time>".into())),
        can_retry: true,
    };
    let list = |notices| NoticesPage {
        frame: frame.clone(),
        status: "undelivered".into(),
        statuses: vec![("undelivered".into(), "undelivered".into())],
        notices,
        pager: Pager::default(),
    };
    vec![list(vec![line]).render().unwrap(), list(Vec::new()).render().unwrap()]
}
