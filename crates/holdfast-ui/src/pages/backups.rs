//! Stored backups: the list, and the page of one backup with its files to browse, search and download.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use holdfast_app::{AppError, Download, EntryItem, Part, Resource, backups, destinations, tasks};
use holdfast_core::backup::{EntryKind, Verification};
use holdfast_core::content::Content;
use holdfast_core::ids::{BackupId, TaskId};
use holdfast_core::input::Errors;
use holdfast_core::page::PageRequest;
use holdfast_core::run::RunSubject;
use holdfast_store::backups::{BackupFilter, BackupRow};

use super::probe::crumbs;
use super::tasks::{BackupLine, backup_line};
use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::Markup;
use crate::page::{done, render};
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;
use crate::translator::Translator;
use crate::view::{FormPage, Pager, listing, proof, state};

/// Entries per page of a folder.
const ENTRIES: i64 = 200;

#[derive(Template)]
#[template(path = "backups.html")]
struct BackupsPage {
    frame: Frame,
    task: Option<(TaskId, String)>,
    task_query: String,
    status: String,
    statuses: Vec<(String, String)>,
    backups: Vec<BackupLine>,
    pager: Pager,
}

pub(crate) fn parse(id: &str) -> Result<BackupId, PageError> {
    let id: i64 = id.parse().map_err(|_| AppError::NotFound(Resource::Backup))?;
    Ok(BackupId(id))
}

pub(crate) async fn list(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let (t, query) = (person.t(), &person.query);
    let task = match query.text("task").parse::<i64>().map(TaskId) {
        Ok(id) => Some((id, tasks::show(&ui.app, &person.caller, id).await?.row.label)),
        Err(_) => None,
    };
    let status = query.text("status");
    let filter = BackupFilter {
        task: task.as_ref().map(|(id, _)| id.0),
        status: Verification::parse(&status),
        is_damaged: status == "damaged",
        with_deleted: false,
    };
    let mut wanted = listing(&person.caller, query, true);
    wanted.search = None;
    let page = backups::list(&ui.app, &wanted, &filter).await?;
    let statuses =
        Verification::ALL.iter().map(|known| (known.as_str().to_owned(), t.say(&format!("proof-{}", known.as_str()))));
    let page = BackupsPage {
        frame: person.frame(&ui, Section::Backups).await?,
        task_query: task.as_ref().map(|(id, _)| id.to_string()).unwrap_or_default(),
        task,
        status,
        statuses: statuses.chain([("damaged".to_owned(), t.say("proof-damaged"))]).collect(),
        pager: Pager::of(&person.reader, &page, "/backups", query),
        backups: page.items.iter().map(|row| backup_line(&person.reader, row)).collect(),
    };
    Ok(render(StatusCode::OK, &page))
}

#[derive(Template)]
#[template(path = "backup.html")]
struct BackupPage {
    frame: Frame,
    id: i64,
    task: Option<(TaskId, String)>,
    task_label: String,
    source: String,
    at: Markup,
    size: Markup,
    plain: Markup,
    entries: String,
    content: String,
    key: String,
    sha256: String,
    is_in_repository: bool,
    destination: (i64, String),
    is_encrypted: bool,
    proof: Markup,
    /// When it was last read or looked for, and the word for that.
    proven: Option<(String, Markup)>,
    is_verifying: bool,
    deleted: Option<String>,
    folder: Option<Folder>,
}

/// The contents of a folder in a backup, or the results of a search.
struct Folder {
    search: String,
    crumbs: Vec<(String, String)>,
    entries: Vec<Entry>,
    problem: Option<String>,
    is_cut: bool,
    pager: Pager,
}

struct Entry {
    name: String,
    path: String,
    inside: Option<String>,
    download: Option<String>,
    size: Option<Markup>,
    at: Markup,
    kind: String,
}

fn address(id: i64, name: &str, value: &str) -> String {
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish();
    format!("/backups/{id}?{query}")
}

fn download_address(id: i64, name: &str, value: &str) -> String {
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish();
    format!("/backups/{id}/download?{query}")
}

fn entry(person: &SignedIn, id: i64, item: EntryItem, is_found: bool) -> Entry {
    let is_folder = item.kind == EntryKind::Directory;
    let is_file = matches!(item.kind, EntryKind::File | EntryKind::Hardlink);
    Entry {
        name: if is_found { item.path.clone() } else { item.name },
        inside: is_folder.then(|| address(id, "path", &item.path)),
        download: if is_folder {
            Some(download_address(id, "folder", &item.path))
        } else {
            is_file.then(|| download_address(id, "entry", &item.path))
        },
        size: is_file.then(|| person.reader.bytes(i64::try_from(item.size).unwrap_or(i64::MAX))),
        at: person.reader.exactly(item.modified_at),
        kind: person.t().find(&format!("content-{}", item.kind.as_str())).unwrap_or_default(),
        path: item.path,
    }
}

async fn folder(ui: &Ui, person: &SignedIn, row: &BackupRow) -> Result<Folder, PageError> {
    let query = &person.query;
    let (id, search) = (row.id, query.text("search").trim().to_owned());
    let path = query.text("path").trim_matches('/').to_owned();
    let steps =
        crumbs(&path).into_iter().map(|(name, at)| (name, address(row.id.0, "path", at.trim_start_matches('/'))));
    let mut shown = Folder {
        crumbs: steps.collect(),
        search: search.clone(),
        entries: Vec::new(),
        problem: None,
        is_cut: false,
        pager: Pager::default(),
    };
    let found = if search.is_empty() {
        let number = query.text("page").parse().unwrap_or(1_i64).clamp(1, holdfast_core::limits::PAGE_MAX);
        let request = PageRequest { page: number, per_page: ENTRIES };
        backups::entries(&ui.app, &person.caller, id, &path, request, None).await.map(|page| {
            shown.pager = Pager::of(&person.reader, &page, &format!("/backups/{id}"), query);
            page.items
        })
    } else {
        backups::search(&ui.app, &person.caller, id, &search).await.map(|(items, is_cut)| {
            shown.is_cut = is_cut;
            items
        })
    };
    match found {
        Ok(items) => {
            let is_found = !search.is_empty();
            shown.entries = items.into_iter().map(|item| entry(person, row.id.0, item, is_found)).collect();
        }
        // The page still shows what is known about the backup if it cannot be read right now.
        Err(
            error @ (AppError::Conflict(_)
            | AppError::Unavailable(_)
            | AppError::DestinationAway(_)
            | AppError::Missing(_)),
        ) => {
            tracing::warn!(?error, backup = row.id.0, "could not list a backup");
            shown.problem = Some(person.t().refused(&error));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(shown)
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let row = backups::show(&ui.app, &person.caller, parse(&id)?).await?;
    let (t, reader) = (person.t(), &person.reader);
    let is_files = row.content == Content::Files;
    // The contents do not change, and reading them again with every live update would block other readers.
    let has_folder = is_files && row.deleted_at.is_none() && !person.is_part;
    let folder = if has_folder { Some(folder(&ui, &person, &row).await?) } else { None };
    let task = match row.task_id {
        Some(id) => Some((id, tasks::show(&ui.app, &person.caller, id).await?.row.label)),
        None => None,
    };
    let destination = destinations::show(&ui.app, &person.caller, row.destination_id).await?;
    let live = holdfast_app::overview::live_runs(&ui.app, &person.caller).await?;
    let is_verifying = live.iter().any(|run| run.subject == RunSubject::Verify(row.id));
    let deleted = row.deleted_reason.map(|reason| t.say(&format!("deleted-{}", reason.as_str().replace('_', "-"))));
    let page = BackupPage {
        frame: person.frame(&ui, Section::Backups).await?,
        id: row.id.0,
        task,
        task_label: row.task_label.clone(),
        source: row.source.clone(),
        at: reader.exactly(row.created_at.0),
        size: reader.bytes(row.size_bytes),
        plain: reader.bytes(row.plain_bytes),
        entries: reader.number(row.entries),
        content: t.say(&format!("content-{}", row.content.as_str())),
        key: row.locator.clone(),
        sha256: row.sha256.clone(),
        is_in_repository: row.format.is_shared(),
        destination: (destination.id.0, destination.label),
        is_encrypted: row.is_encrypted,
        proof: if is_verifying { state("running", &t.say("backup-verifying")) } else { proof(t, row.verification) },
        proven: row.verified_at.map(|at| (proven_word(t, row.verification), reader.when(at.0))),
        is_verifying,
        deleted,
        folder,
    };
    Ok(render(StatusCode::OK, &page))
}

fn proven_word(t: Translator, found: Verification) -> String {
    match found {
        Verification::Verified => t.say("backup-proven"),
        Verification::Corrupt | Verification::Missing | Verification::Unverified => t.say("backup-checked"),
    }
}

/// Downloads the stored object, one file from it, or a folder as a tar archive.
pub(crate) async fn download(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let (id, query) = (parse(&id)?, &person.query);
    let (entry, folder) = (query.text("entry"), query.text("folder"));
    let download = if folder.is_empty() {
        let entry = Some(entry).filter(|entry| !entry.is_empty());
        backups::download(&ui.app, &person.caller, id, entry.as_deref().map_or(Part::Whole, Part::Entry)).await?
    } else {
        backups::download_folder(&ui.app, &person.caller, id, &folder).await?
    };
    Ok(send(download))
}

fn send(download: Download) -> Response {
    let headers = download.headers();
    let mut response = Body::from_stream(Box::pin(download.into_stream())).into_response();
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

pub(crate) async fn verify(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let run = backups::request_verification(&ui.app, &person.caller, parse(&id)?).await?;
    Ok(Redirect::to(&format!("/runs/{}", run.id)).into_response())
}

async fn delete_page(ui: &Ui, person: &SignedIn, row: &BackupRow, errors: &Errors) -> Result<FormPage, PageError> {
    let t = person.t();
    let frame = person.frame(ui, Section::Backups).await?;
    let means = t.say("backup-delete-means");
    let page = super::delete_page(frame, &row.task_label, &format!("/backups/{}", row.id), means, Vec::new(), errors);
    let title = t.with("form-delete-title", "name", t.with("backup-title", "id", row.id.to_string()));
    Ok(FormPage { title, ..page })
}

pub(crate) async fn show_delete(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let row = backups::show(&ui.app, &person.caller, parse(&id)?).await?;
    Ok(delete_page(&ui, &person, &row, &Errors::default()).await?.show(StatusCode::OK))
}

pub(crate) async fn delete(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Form,
) -> PageResult {
    let row = backups::show(&ui.app, &person.caller, parse(&id)?).await?;
    if let Some(errors) = super::wrong_name(&form, &row.task_label) {
        return Ok(delete_page(&ui, &person, &row, &errors).await?.show(StatusCode::UNPROCESSABLE_ENTITY));
    }
    backups::delete(&ui.app, &person.caller, row.id).await?;
    Ok(done("/backups", "deleted"))
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let time = || Markup("<time>now</time>".into());
    let size = || Markup("<data value=\"1\">1 B</data>".into());
    let list = |backups| BackupsPage {
        frame: frame.clone(),
        task: Some((TaskId(1), hostile.into())),
        task_query: "1".into(),
        status: "verified".into(),
        statuses: vec![("verified".into(), "proven".into())],
        backups,
        pager: Pager::default(),
    };
    let entry = Entry {
        name: hostile.into(),
        path: hostile.into(),
        inside: Some("/x".into()),
        download: Some("/y".into()),
        size: Some(size()),
        at: time(),
        kind: "folder".into(),
    };
    let folder = |entries, problem| Folder {
        search: hostile.into(),
        crumbs: vec![(hostile.into(), "/x".into())],
        entries,
        problem,
        is_cut: true,
        pager: Pager::default(),
    };
    let page = |folder, deleted| BackupPage {
        frame: frame.clone(),
        id: 1,
        task: Some((TaskId(1), hostile.into())),
        task_label: hostile.into(),
        source: hostile.into(),
        at: time(),
        size: size(),
        plain: size(),
        entries: "3".into(),
        content: "files".into(),
        key: hostile.into(),
        sha256: "ab".into(),
        is_in_repository: true,
        destination: (1, hostile.into()),
        is_encrypted: true,
        proof: state("good", "proven"),
        proven: Some(("verified".into(), time())),
        is_verifying: false,
        deleted,
        folder,
    };
    vec![
        list(vec![super::tasks::backup_sample(hostile)]).render().unwrap(),
        list(Vec::new()).render().unwrap(),
        page(Some(folder(vec![entry], None)), None).render().unwrap(),
        page(Some(folder(Vec::new(), Some(hostile.into()))), None).render().unwrap(),
        page(None, Some("by retention".into())).render().unwrap(),
    ]
}
