//! The search for tasks, servers, destinations, streams and tags by a part of their name.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use holdfast_app::{destinations, servers, streams, tags, tasks};
use holdfast_core::page::PageRequest;
use holdfast_store::Listing;
use holdfast_store::tasks::TaskFilter;

use crate::frame::{Frame, Section};
use crate::page::render;
use crate::problem::PageResult;
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::everything;

/// The maximum number of results per kind; the list of each kind shows more.
const FINDS: i64 = 10;

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    frame: Frame,
    text: String,
    groups: Vec<Finds>,
}

struct Finds {
    title: String,
    items: Vec<(String, String)>,
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let text = person.query.text("q");
    let t = person.t();
    let mut groups = Vec::new();
    if !text.trim().is_empty() {
        let wanted = Listing {
            search: Some(text.clone()),
            page: PageRequest { page: 1, per_page: FINDS },
            ..everything(&person.caller)
        };
        let found = tasks::list(&ui.app, &wanted, &TaskFilter::default()).await?.items;
        let items = found.into_iter().map(|task| (format!("/tasks/{}", task.row.id), task.row.label));
        groups.push(Finds { title: t.say("nav-tasks"), items: items.collect() });
        let found = servers::list(&ui.app, &wanted).await?.items;
        let items = found.into_iter().map(|row| (format!("/servers/{}", row.id), row.label));
        groups.push(Finds { title: t.say("nav-servers"), items: items.collect() });
        let found = destinations::list(&ui.app, &wanted).await?.items;
        let items = found.into_iter().map(|row| (format!("/destinations/{}", row.id), row.label));
        groups.push(Finds { title: t.say("nav-destinations"), items: items.collect() });
        let found = streams::list(&ui.app, &wanted).await?.items;
        let items = found.into_iter().map(|row| (format!("/notifications/{}/edit", row.id), row.label));
        groups.push(Finds { title: t.say("nav-notifications"), items: items.collect() });
        let found = tags::list(&ui.app, &wanted).await?.items;
        let items = found.into_iter().map(|row| (format!("/tasks?tag={}", row.id), row.label));
        groups.push(Finds { title: t.say("nav-tags"), items: items.collect() });
    }
    groups.retain(|group| !group.items.is_empty());
    let page = SearchPage { frame: person.frame(&ui, Section::Elsewhere).await?, text, groups };
    Ok(render(StatusCode::OK, &page))
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let finds = || Finds { title: "Tasks".into(), items: vec![("/tasks/1".into(), hostile.into())] };
    let page = |groups| SearchPage { frame: frame.clone(), text: hostile.into(), groups };
    vec![page(vec![finds()]).render().unwrap(), page(Vec::new()).render().unwrap()]
}
