//! Looking around on a server: its folders, its databases, and how much a task would copy.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use holdfast_app::probes::{self, Found};
use holdfast_app::servers;
use holdfast_core::ids::{RunId, ServerId};
use holdfast_core::probe::Answer;

use crate::Ui;
use crate::form::Form;
use crate::frame::{Frame, Place};
use crate::human::Markup;
use crate::page::{PageError, PageResult, render};
use crate::session::SignedIn;
use crate::view::advice;

/// How long a page waits for a worker's answer before it says that it is still looking.
const PATIENCE: Duration = Duration::from_secs(20);
/// What stands in the form and is no secret goes with whoever looks around, and comes back.
const SECRETS: [&str; 6] = ["csrf", "do", "encryption_password", "heartbeat_url", "path", "said"];

#[derive(Template)]
#[template(path = "probe.html")]
struct ProbePage {
    frame: Frame,
    title: String,
    up: (String, String),
    crumbs: Vec<(String, String)>,
    /// A folder or database as a whole: what is chosen with it, and where that leads.
    here: Option<Pick>,
    items: Vec<Item>,
    note: String,
    answer: String,
    refusal: Option<(String, String)>,
    again: Option<String>,
}

struct Pick {
    label: String,
    /// Fields of the form and their new values.
    fields: String,
    address: String,
}

struct Item {
    name: String,
    size: Option<Markup>,
    /// Leads further in.
    inside: Option<String>,
    pick: Pick,
}

/// The form's fields as a query, with the address that it came from.
pub(crate) fn carried(form: &Form, back: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in form.fields().filter(|(name, value)| !SECRETS.contains(name) && !value.is_empty()) {
        query.append_pair(name, value);
    }
    query.append_pair("back", back);
    query.finish()
}

/// The form again, with these fields changed.
fn pick(carried: &str, label: String, changes: &[(&str, &str)]) -> Pick {
    let known: Vec<(String, String)> = url::form_urlencoded::parse(carried.as_bytes()).into_owned().collect();
    let back = known.iter().find(|(name, _)| name == "back").map(|(_, value)| value.as_str());
    // Only to a form of ours.
    let back = back.filter(|address| address.starts_with("/tasks/")).unwrap_or("/tasks/new");
    let is_kept = |name: &str| name != "back" && !changes.iter().any(|(changed, _)| *changed == name);
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(known.iter().filter(|(name, _)| is_kept(name)));
    query.extend_pairs(changes);
    let fields = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(changes).finish();
    Pick { label, fields, address: format!("{back}?{}", query.finish()) }
}

fn browse_address(server: ServerId, path: &str, carried: &str) -> String {
    let path = url::form_urlencoded::Serializer::new(String::new()).append_pair("path", path).finish();
    format!("/servers/{server}/browse?{path}&{carried}")
}

pub(crate) async fn show_browse(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let server = super::servers::parse(&id)?;
    let query = &person.query;
    let back = Some(query.text("back")).filter(|back| !back.is_empty()).unwrap_or_else(|| "/tasks/new".to_owned());
    let mut carried = carried(query, &back);
    if query.text("remote_server_id").is_empty() {
        carried = format!("remote_server_id={server}&{carried}");
    }
    let path = Some(query.text("path")).filter(|path| path.starts_with('/')).unwrap_or_else(|| "/".to_owned());
    browse(&ui, &person, server, &path, &carried).await
}

/// What is in a folder of a server.
pub(crate) async fn browse(
    ui: &Ui,
    person: &SignedIn,
    server: ServerId,
    path: &str,
    carried: &str,
) -> Result<Response, PageError> {
    let t = person.t();
    let run = probes::ask_folder(&ui.app, &person.caller, server, path).await?;
    let found = probes::wait(&ui.app, &person.caller, run, PATIENCE).await?;
    let mut page = page(ui, person, server, found).await?;
    page.title = t.with("probe-folder", "path", path);
    page.again = Some(browse_address(server, path, carried));
    page.crumbs = crumbs(path).into_iter().map(|(name, at)| (name, browse_address(server, &at, carried))).collect();
    let here = [("type", "files"), ("source_path", path)];
    page.here = Some(pick(carried, t.with("probe-choose", "name", path), &here));
    let base = path.trim_end_matches('/');
    for item in &mut page.items {
        let below = format!("{base}/{}", item.name);
        item.pick = pick(carried, t.say("probe-choose-this"), &[("type", "files"), ("source_path", &below)]);
        if item.inside.is_some() {
            item.inside = Some(browse_address(server, &below, carried));
        }
    }
    Ok(render(StatusCode::OK, &page))
}

/// Which databases a server has.
pub(crate) async fn databases(
    ui: &Ui,
    person: &SignedIn,
    server: ServerId,
    carried: &str,
) -> Result<Response, PageError> {
    let t = person.t();
    let run = probes::ask_databases(&ui.app, &person.caller, server).await?;
    let found = probes::wait(&ui.app, &person.caller, run, PATIENCE).await?;
    let engines: Vec<String> = match &found {
        Found::Answer(Answer::Databases(items)) => items.iter().map(|item| item.engine.as_str().to_owned()).collect(),
        _ => Vec::new(),
    };
    let mut page = page(ui, person, server, found).await?;
    page.title = t.say("probe-databases");
    let all = [("type", "database"), ("database_name", "")];
    page.here = Some(pick(carried, t.say("probe-all-databases"), &all));
    for (item, engine) in page.items.iter_mut().zip(&engines) {
        let name = item.name.clone();
        let changes = [("type", "database"), ("database_name", name.as_str()), ("database_engine", engine)];
        item.pick = pick(carried, t.say("probe-choose-this"), &changes);
    }
    Ok(render(StatusCode::OK, &page))
}

/// How much a task would copy.
pub(crate) async fn size(ui: &Ui, person: &SignedIn, run: RunId, back: &str) -> Result<Response, PageError> {
    let (t, reader) = (person.t(), &person.reader);
    let found = probes::wait(&ui.app, &person.caller, run, PATIENCE).await?;
    let answer = match &found {
        Found::Answer(Answer::Size { entries, bytes }) => {
            let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            t.with2("probe-size", "entries", reader.number(number(*entries)), "size", reader.size(number(*bytes)))
        }
        _ => String::new(),
    };
    let (refusal, note) = refusal(person, &found);
    let page = ProbePage {
        frame: person.frame(ui, Place::Tasks).await?,
        title: t.say("task-dry-run"),
        up: (back.to_owned(), t.say("problem-back")),
        crumbs: Vec::new(),
        here: None,
        items: Vec::new(),
        note: if note.is_empty() { t.say("probe-size-means") } else { note },
        answer,
        refusal,
        again: None,
    };
    Ok(render(StatusCode::OK, &page))
}

fn refusal(person: &SignedIn, found: &Found) -> (Option<(String, String)>, String) {
    let t = person.t();
    match found {
        Found::Answer(_) => (None, String::new()),
        Found::Refusal { code, text } => (Some((text.clone(), advice(t, code))), String::new()),
        Found::NotYet => (None, t.say("probe-not-yet")),
    }
}

async fn page(ui: &Ui, person: &SignedIn, server: ServerId, found: Found) -> Result<ProbePage, PageError> {
    let (t, reader) = (person.t(), &person.reader);
    let row = servers::show(&ui.app, &person.caller, server).await?;
    let (refusal, mut note) = refusal(person, &found);
    let nothing = || Pick { label: String::new(), fields: String::new(), address: String::new() };
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let items = match found {
        Found::Answer(Answer::Folder { items, is_cut }) => {
            if is_cut {
                note = t.say("probe-cut");
            } else if items.is_empty() {
                note = t.say("probe-empty");
            }
            let item = |item: holdfast_core::probe::FolderItem| Item {
                size: (!item.is_folder).then(|| reader.bytes(number(item.size))),
                inside: item.is_folder.then(String::new),
                pick: nothing(),
                name: item.name,
            };
            items.into_iter().map(item).collect()
        }
        Found::Answer(Answer::Databases(items)) => {
            if items.is_empty() {
                note = t.say("probe-no-databases");
            }
            let item = |item: holdfast_core::probe::DatabaseItem| Item {
                size: Some(reader.bytes(number(item.size))),
                inside: None,
                pick: nothing(),
                name: item.name,
            };
            items.into_iter().map(item).collect()
        }
        _ => Vec::new(),
    };
    Ok(ProbePage {
        frame: person.frame(ui, Place::Servers).await?,
        title: String::new(),
        up: (format!("/servers/{server}"), row.label),
        crumbs: Vec::new(),
        here: None,
        items,
        note,
        answer: String::new(),
        refusal,
        again: None,
    })
}

/// Each folder above a path, from the root on.
pub(crate) fn crumbs(path: &str) -> Vec<(String, String)> {
    let mut crumbs = vec![("/".to_owned(), "/".to_owned())];
    let mut at = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = format!("{at}/{part}");
        crumbs.push((part.to_owned(), at.clone()));
    }
    crumbs
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let pick = || pick("back=%2Ftasks%2Fnew&label=a", "Choose".into(), &[("source_path", hostile)]);
    let page = |refusal, items| ProbePage {
        frame: frame.clone(),
        title: hostile.into(),
        up: ("/servers/1".into(), hostile.into()),
        crumbs: vec![("/".into(), "/x".into())],
        here: Some(pick()),
        items,
        note: "Still looking.".into(),
        answer: "12 files".into(),
        refusal,
        again: Some("/servers/1/browse".into()),
    };
    let item = Item {
        name: hostile.into(),
        size: Some(Markup("<data value=\"1\">1 B</data>".into())),
        inside: Some("/x".into()),
        pick: pick(),
    };
    vec![
        page(None, vec![item]).render().unwrap(),
        page(Some((hostile.into(), "Do this.".into())), Vec::new()).render().unwrap(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stood_in_the_form_comes_back_but_for_secrets() {
        let form = Form::of_query(Some("label=a&encryption_password=x&csrf=y&do=browse&source_path=/old&type=files"));
        let carried = carried(&form, "/tasks/7/edit");
        assert!(!carried.contains("password") && !carried.contains("csrf"), "{carried}");
        let picked = pick(&carried, String::new(), &[("source_path", "/a b")]);
        assert_eq!(picked.address, "/tasks/7/edit?label=a&type=files&source_path=%2Fa+b");
        assert_eq!(picked.fields, "source_path=%2Fa+b");
        assert!(pick("back=https%3A%2F%2Fevil.example", String::new(), &[]).address.starts_with("/tasks/new"));
    }

    #[test]
    fn every_folder_on_the_way_is_a_step() {
        assert_eq!(crumbs("/"), [("/".into(), "/".into())]);
        let names: Vec<String> = crumbs("/var//www/").into_iter().map(|(_, at)| at).collect();
        assert_eq!(names, ["/", "/var", "/var/www"]);
    }
}
