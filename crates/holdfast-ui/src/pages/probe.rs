//! Browsing a server: its folders, its databases, and the estimated size of a task.

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
use holdfast_core::{source, task};

use crate::fields::{AGAIN, Values};
use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::Markup;
use crate::page::render;
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::advice;

/// How long a page waits for a worker's answer before it reports that there is none yet.
const PATIENCE: Duration = Duration::from_secs(20);
/// Fields that are not carried along while browsing.
const LEFT_BEHIND: [&str; 5] = ["csrf", "do", "path", "said", CARRIED];
/// Marks the values of a form that was left for browsing: a field that is missing among them was empty.
pub(crate) const CARRIED: &str = "carried";
/// Proxies reject URLs longer than this. Beyond it, the longest values are dropped.
const CARRIED_BYTES: usize = 4000;

#[derive(Template)]
#[template(path = "probe.html")]
struct ProbePage {
    frame: Frame,
    title: String,
    up: (String, String),
    crumbs: Vec<(String, String)>,
    /// The values of the form, and in `back` its address.
    carried: Vec<(String, String)>,
    back: String,
    /// The address that lists a folder.
    inside: String,
    /// Selects the current folder, or all databases.
    here: Option<Pick>,
    items: Vec<Item>,
    note: String,
    answer: String,
    refusal: Option<(String, String)>,
    again: Option<String>,
}

/// A selectable item: the field to submit with its value, and, for the script, all form fields that it sets.
struct Pick {
    label: String,
    name: &'static str,
    value: String,
    fields: String,
}

struct Item {
    name: String,
    size: Option<Markup>,
    /// The path to open, if this is a folder.
    path: Option<String>,
    pick: Pick,
}

/// The values of a form that is carried along while the user browses.
#[derive(Clone, Default)]
pub(crate) struct CarriedForm {
    fields: Vec<(String, String)>,
    back: String,
}

impl CarriedForm {
    fn text(&self, name: &str) -> String {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()).unwrap_or_default()
    }
}

/// Collects the form values to carry along while browsing.
pub(crate) fn carried(form: &Form, back: &str) -> CarriedForm {
    let mut fields: Vec<(String, String)> = Vec::new();
    for (name, value) in form.fields().filter(|(name, value)| !LEFT_BEHIND.contains(name) && !value.is_empty()) {
        if name == "back" {
            continue;
        }
        // Of a secret only the fact that it was typed is carried along: addresses are logged.
        if task::fields().any(|field| field.name == name && field.is_secret()) {
            fields.push((AGAIN.to_owned(), name.to_owned()));
        } else {
            fields.push((name.to_owned(), value.to_owned()));
        }
    }
    let length = |fields: &[(String, String)]| -> usize {
        fields.iter().map(|(name, value)| name.len() + value.len() * 2).sum()
    };
    while length(&fields) > CARRIED_BYTES {
        let Some(longest) = (0..fields.len()).max_by_key(|place| fields[*place].1.len()) else { break };
        fields.remove(longest);
    }
    fields.push((CARRIED.to_owned(), "on".to_owned()));
    // Return only to one of our own forms.
    let back = if back.starts_with("/tasks/") { back } else { "/tasks/new" };
    CarriedForm { fields, back: back.to_owned() }
}

fn encoded(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Selects a folder or file. The path may also be that of a database.
fn pick_path(label: String, path: &str, is_database: bool) -> Pick {
    let kind = if is_database { "database" } else { "files" };
    let fields = encoded(&[("type", kind), ("source_path", path)]);
    Pick { label, name: "picked_path", value: path.to_owned(), fields }
}

/// Selects a database of an engine; an empty name selects all databases.
fn pick_database(label: String, engine: &str, name: &str) -> Pick {
    let fields = encoded(&[("type", "database"), ("database_name", name), ("database_engine", engine)]);
    Pick { label, name: "picked_database", value: format!("{engine} {name}"), fields }
}

/// Applies the selected item to the values of the form.
pub(crate) fn unpack(values: Values) -> Values {
    let (path, database) = (values.text("picked_path").to_owned(), values.text("picked_database").to_owned());
    if !path.is_empty() {
        let is_database = source::is_file_database(|name| values.text(name).to_owned());
        return values.set("type", if is_database { "database" } else { "files" }).set("source_path", path);
    }
    match database.split_once(' ') {
        Some((engine, name)) => {
            values.set("type", "database").set("database_engine", engine).set("database_name", name)
        }
        None => values,
    }
}

pub(crate) async fn show_browse(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let server = ServerId(super::form_resource::parse::<super::servers::Server>(&id)?);
    let query = &person.query;
    let mut carried_form = carried(query, &query.text("back"));
    if query.text("remote_server_id").is_empty() {
        // Opened from the server's page, so there is no form yet.
        carried_form.fields = vec![("remote_server_id".to_owned(), server.to_string())];
    }
    let path = Some(query.text("path")).filter(|path| path.starts_with('/')).unwrap_or_else(|| "/".to_owned());
    browse(&ui, &person, server, &path, carried_form).await
}

/// Lists a folder on a server.
pub(crate) async fn browse(
    ui: &Ui,
    person: &SignedIn,
    server: ServerId,
    path: &str,
    carried_form: CarriedForm,
) -> Result<Response, PageError> {
    let t = person.t();
    let is_database = source::is_file_database(|name| carried_form.text(name));
    let run = probes::ask_folder(&ui.app, &person.caller, server, path).await?;
    let found = probes::wait(&ui.app, &person.caller, run, PATIENCE).await?;
    let mut page = page(ui, person, server, found, carried_form).await?;
    page.title = t.with("probe-folder", "path", path);
    page.again = Some(path.to_owned());
    page.crumbs = crumbs(path);
    page.here = Some(pick_path(t.with("probe-choose", "name", path), path, is_database));
    let base = path.trim_end_matches('/');
    for item in &mut page.items {
        let below = format!("{base}/{}", item.name);
        item.pick = pick_path(t.say("probe-choose-this"), &below, is_database);
        item.path = item.path.take().map(|_| below);
    }
    Ok(render(StatusCode::OK, &page))
}

/// Lists the databases of a server.
pub(crate) async fn databases(
    ui: &Ui,
    person: &SignedIn,
    server: ServerId,
    carried_form: CarriedForm,
) -> Result<Response, PageError> {
    let t = person.t();
    let run = probes::ask_databases(&ui.app, &person.caller, server).await?;
    let found = probes::wait(&ui.app, &person.caller, run, PATIENCE).await?;
    let engines: Vec<&'static str> = match &found {
        Found::Answer(Answer::Databases(items)) => items.iter().map(|item| item.engine.as_str()).collect(),
        Found::Answer(Answer::Folder { .. } | Answer::Size { .. }) | Found::Refusal { .. } | Found::NotYet => {
            Vec::new()
        }
    };
    let mut page = page(ui, person, server, found, carried_form).await?;
    page.title = t.say("probe-databases");
    page.here = Some(pick_database(t.say("probe-all-databases"), "", ""));
    for (item, engine) in page.items.iter_mut().zip(engines) {
        item.pick = pick_database(t.say("probe-choose-this"), engine, &item.name);
    }
    Ok(render(StatusCode::OK, &page))
}

/// Shows how much a task would copy.
pub(crate) async fn size(
    ui: &Ui,
    person: &SignedIn,
    run: RunId,
    carried_form: CarriedForm,
) -> Result<Response, PageError> {
    let (t, reader) = (person.t(), &person.reader);
    let found = probes::wait(&ui.app, &person.caller, run, PATIENCE).await?;
    let answer = match &found {
        Found::Answer(Answer::Size { entries, bytes }) => {
            let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            t.with2("probe-size", "entries", reader.number(number(*entries)), "size", reader.size(number(*bytes)))
        }
        Found::Answer(Answer::Folder { .. } | Answer::Databases(_)) | Found::Refusal { .. } | Found::NotYet => {
            String::new()
        }
    };
    let (refusal, note) = refusal(person, &found);
    let page = ProbePage {
        frame: person.frame(ui, Section::Tasks).await?.still(),
        title: t.say("task-dry-run"),
        up: ("/tasks".to_owned(), t.say("nav-tasks")),
        crumbs: Vec::new(),
        carried: carried_form.fields,
        back: carried_form.back,
        inside: String::new(),
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
        Found::Refusal { code, text } => (Some((text.clone(), advice(t, *code))), String::new()),
        Found::NotYet => (None, t.say("probe-not-yet")),
    }
}

async fn page(
    ui: &Ui,
    person: &SignedIn,
    server: ServerId,
    found: Found,
    carried_form: CarriedForm,
) -> Result<ProbePage, PageError> {
    let (t, reader) = (person.t(), &person.reader);
    let row = servers::show(&ui.app, &person.caller, server).await?;
    let (refusal, mut note) = refusal(person, &found);
    let nothing = || pick_path(String::new(), "", false);
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
                path: item.is_folder.then(String::new),
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
                path: None,
                pick: nothing(),
                name: item.name,
            };
            items.into_iter().map(item).collect()
        }
        Found::Answer(Answer::Size { .. }) | Found::Refusal { .. } | Found::NotYet => Vec::new(),
    };
    Ok(ProbePage {
        frame: person.frame(ui, Section::Servers).await?.still(),
        title: String::new(),
        up: (format!("/servers/{server}"), row.label),
        crumbs: Vec::new(),
        carried: carried_form.fields,
        back: carried_form.back,
        inside: format!("/servers/{server}/browse"),
        here: None,
        items,
        note,
        answer: String::new(),
        refusal,
        again: None,
    })
}

/// The folders of a path from the root down, each with its name and full path.
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
    let page = |refusal, items| ProbePage {
        frame: frame.clone(),
        title: hostile.into(),
        up: ("/servers/1".into(), hostile.into()),
        crumbs: vec![("/".into(), "/x".into())],
        carried: vec![("label".into(), hostile.into())],
        back: "/tasks/new".into(),
        inside: "/servers/1/browse".into(),
        here: Some(pick_path("Choose".into(), hostile, false)),
        items,
        note: "Still looking.".into(),
        answer: "12 files".into(),
        refusal,
        again: Some("/x".into()),
    };
    let item = Item {
        name: hostile.into(),
        size: Some(Markup("<data value=\"1\">1 B</data>".into())),
        path: Some(hostile.into()),
        pick: pick_database("Choose".into(), "mysql", hostile),
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
    fn form_values_are_carried_along_except_secrets() {
        let form = Form::of_query(Some(
            "label=a&tag_ids=1&tag_ids=2&encryption_password=x&csrf=y&do=browse&source_path=/old&type=files",
        ));
        let carried_form = carried(&form, "/tasks/7/edit");
        let names: Vec<(&str, &str)> = carried_form.fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        let expected = [
            ("label", "a"),
            ("tag_ids", "1"),
            ("tag_ids", "2"),
            ("again", "encryption_password"),
            ("source_path", "/old"),
            ("type", "files"),
            ("carried", "on"),
        ];
        assert_eq!((names.as_slice(), carried_form.back.as_str()), (&expected[..], "/tasks/7/edit"));
        assert_eq!(carried(&form, "https://evil.example").back, "/tasks/new");
        let long = Form::of_query(Some(&format!("label=a&excluded_paths={}", "x".repeat(9000))));
        assert!(carried(&long, "/tasks/new").fields.iter().all(|(name, _)| name != "excluded_paths"));
    }

    #[test]
    fn the_selected_item_is_applied_to_the_form() {
        let form = |query: &str| unpack(Values::of(&Form::of_query(Some(query))));
        let files = form("type=database&picked_path=/a+b");
        assert_eq!((files.text("type"), files.text("source_path")), ("files", "/a b"));
        let database = form("picked_database=mysql+my+shop");
        assert_eq!((database.text("database_engine"), database.text("database_name")), ("mysql", "my shop"));
        assert_eq!(form("picked_database=+").text("database_name"), "");
    }

    #[test]
    fn every_folder_of_a_path_is_a_crumb() {
        assert_eq!(crumbs("/"), [("/".into(), "/".into())]);
        let names: Vec<String> = crumbs("/var//www/").into_iter().map(|(_, at)| at).collect();
        assert_eq!(names, ["/", "/var", "/var/www"]);
    }
}
