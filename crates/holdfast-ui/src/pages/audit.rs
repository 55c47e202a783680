//! The audit log: who did what, from where.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use holdfast_app::people;
use holdfast_core::ids::UserId;
use holdfast_store::audit::EventRow;

use crate::frame::{Frame, Section};
use crate::human::Markup;
use crate::page::render;
use crate::problem::PageResult;
use crate::session::SignedIn;
use crate::state::Ui;
use crate::translator::action_key;

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    is_all: bool,
    events: Vec<Line>,
    older: Option<String>,
}

struct Line {
    at: Markup,
    action: String,
    detail: String,
    actor: String,
    address: String,
    user: String,
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let is_all = person.query.text("all") == "true";
    let before = person.query.text("before").parse().ok();
    let mut rows = people::list_events(&ui.app, &person.caller, is_all, before).await?;
    let has_more = rows.len() as i64 > people::EVENTS;
    rows.truncate(usize::try_from(people::EVENTS).unwrap_or(50));
    let all = if is_all { "all=true&" } else { "" };
    let older = rows.last().filter(|_| has_more).map(|row| format!("/audit?{all}before={}", row.id));
    let emails = if is_all { people::list_emails(&ui.app, &person.caller, &rows).await? } else { BTreeMap::new() };
    let t = person.t();
    // Of an account that is gone, only the number is left.
    let user = |id: UserId| emails.get(&id).cloned().unwrap_or_else(|| format!("#{id}"));
    let line = |row: EventRow| Line {
        at: person.reader.exactly(row.at.0),
        action: t.find(&action_key(&row.action)).unwrap_or(row.action),
        detail: row.detail,
        actor: row.actor,
        address: row.address.unwrap_or_default(),
        user: row.user_id.map(|id| user(UserId(id))).unwrap_or_default(),
    };
    let frame = person.frame(&ui, if is_all { Section::Administration } else { Section::Account }).await?;
    let page = AuditPage { frame, is_all, events: rows.into_iter().map(line).collect(), older };
    Ok(render(StatusCode::OK, &page))
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let line = Line {
        at: Markup("<time>now</time>".into()),
        action: hostile.into(),
        detail: hostile.into(),
        actor: hostile.into(),
        address: "127.0.0.1".into(),
        user: "1".into(),
    };
    let page = |is_all, events, older| AuditPage { frame: frame.clone(), is_all, events, older };
    vec![
        page(true, vec![line], Some("/audit?before=1".into())).render().unwrap(),
        page(false, Vec::new(), None).render().unwrap(),
    ]
}
