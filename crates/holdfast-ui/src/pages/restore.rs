//! Restores: the form with the target and the selection, and a summary to confirm before anything is written.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect};
use holdfast_app::{AppError, Resource, backups, servers, tasks};
use holdfast_core::backup::RestoreInput;
use holdfast_core::content::{Content, Coverage};
use holdfast_core::ids::ServerId;
use holdfast_core::input::{Errors, Field};
use holdfast_core::limits;
use holdfast_store::backups::BackupRow;

use super::backups::parse;
use crate::fields::{Fields, Group, Values};
use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::{Markup, escaped};
use crate::page::{done, render};
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::{FormPage, everything};

fn input(form: &Form, content: Content) -> RestoreInput {
    let entries: Vec<String> = form.texts("entry").map(str::to_owned).collect();
    let is_files = content == Content::Files;
    RestoreInput {
        remote_server_id: form.number("remote_server_id"),
        path: if content.goes_to_path() { form.required("path") } else { Field::Absent },
        entries: if is_files && !entries.is_empty() { Field::Value(entries) } else { Field::Absent },
        overwrite: Field::Value(form.is_on("overwrite")),
        database_name: if content.goes_to_path() { Field::Absent } else { form.optional("database_name") },
        no_owner: Field::Value(form.is_on("no_owner")),
        numeric_owner: Field::Value(is_files && form.is_on("numeric_owner")),
        restore_devices: Field::Value(is_files && form.is_on("restore_devices")),
        dry_run: Field::Value(form.is_on("dry_run")),
    }
}

/// The selected entries as hidden fields of the form.
fn chosen(form: &Form) -> String {
    let hidden = |path: &str| format!("<input type=\"hidden\" name=\"entry\" value=\"{}\">", escaped(path));
    form.texts("entry").map(hidden).collect()
}

async fn form_page(
    ui: &Ui,
    person: &SignedIn,
    row: &BackupRow,
    form: &Form,
    values: &Values,
    errors: &Errors,
) -> Result<FormPage, PageError> {
    let (t, content) = (person.t(), row.content);
    let fields = Fields { t, values, errors };
    let servers = servers::list(&ui.app, &everything(&person.caller)).await?.items;
    let servers = servers.into_iter().map(|row| (row.id.to_string(), row.label));
    let mut asked = vec![fields.select("remote_server_id", t.say("restore-server"), servers).required().focus()];
    let is_file = content.goes_to_path() && content != Content::Files;
    if content.goes_to_path() {
        let (label, hint) = match is_file {
            true => (t.say("restore-file"), t.say("restore-file-hint")),
            false => (t.say("restore-path"), t.say("restore-path-hint")),
        };
        asked.push(fields.line("path", label).hint(hint).required().limit(limits::PATH_CHARS));
    } else if matches!(content.coverage(), Coverage::Server(_)) {
        let one = fields.line("database_name", t.say("restore-one-database")).limit(limits::TEXT_CHARS);
        asked.push(one.hint(t.say("restore-one-database-hint")));
    } else if !content.is_whole_server() {
        asked.push(
            fields
                .line("database_name", t.say("restore-database"))
                .hint(t.say("restore-database-hint"))
                .required()
                .limit(limits::TEXT_CHARS),
        );
    }
    let hint = match content.coverage() {
        Coverage::Files => t.say("restore-overwrite-files"),
        Coverage::Server(_) | Coverage::ServerAsOne(_) => t.say("restore-overwrite-all"),
        Coverage::Database(engine) if engine.is_file() => t.say("restore-overwrite-file"),
        Coverage::Database(_) => t.say("restore-overwrite-database"),
    };
    asked.push(fields.switch("overwrite", t.say("restore-overwrite")).hint(hint));
    let hint = match content.coverage() {
        Coverage::Files => Some(t.say("restore-no-owner-files")),
        // A database that is a file has no owners inside it.
        Coverage::Database(engine) if engine.is_file() => None,
        Coverage::Database(_) | Coverage::Server(_) | Coverage::ServerAsOne(_) => {
            Some(t.say("restore-no-owner-database"))
        }
    };
    asked.extend(hint.map(|hint| fields.switch("no_owner", t.say("restore-no-owner")).hint(hint)));
    if content == Content::Files {
        asked.push(
            fields.switch("numeric_owner", t.say("restore-numeric-owner")).hint(t.say("restore-numeric-owner-hint")),
        );
        asked.push(fields.switch("restore_devices", t.say("restore-devices")).hint(t.say("restore-devices-hint")));
    }
    asked.push(fields.switch("dry_run", t.say("restore-dry-run")).hint(t.say("restore-dry-run-hint")));
    let count = form.texts("entry").count();
    let intro = match (count, content == Content::Files) {
        (0, true) => t.say("restore-everything"),
        (0, false) => t.say("restore-whole"),
        (count, _) => t.with("restore-some", "n", count),
    };
    let problems = errors.iter().filter(|(field, _)| *field == "entries").flat_map(|(_, rules)| rules);
    Ok(FormPage {
        frame: person.frame(ui, Section::Backups).await?,
        title: t.say("restore-title"),
        intro,
        problems: problems.map(|rule| t.rule(rule)).collect(),
        action: format!("/backups/{}/restore", row.id),
        groups: vec![Group::new(String::new(), asked)],
        inside: Markup(chosen(form)),
        submit: t.say("restore-review"),
        up: Some((format!("/backups/{}", row.id), t.with("backup-title", "id", row.id.to_string()))),
        ..FormPage::default()
    })
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let row = backups::show(&ui.app, &person.caller, parse(&id)?).await?;
    let values = origin(&ui, &person, &row).await?;
    let page = form_page(&ui, &person, &row, &person.query, &values, &Errors::default()).await?;
    Ok(page.show(StatusCode::OK))
}

/// Preselects the server that the backup came from.
async fn origin(ui: &Ui, person: &SignedIn, row: &BackupRow) -> Result<Values, PageError> {
    let Some(task) = row.task_id else { return Ok(Values::default()) };
    let task = tasks::show(&ui.app, &person.caller, task).await?;
    Ok(Values::default().set("remote_server_id", task.row.remote_server_id.to_string()))
}

#[derive(Template)]
#[template(path = "restore.html")]
struct SummaryPage {
    frame: Frame,
    id: i64,
    from: String,
    made: Markup,
    what: String,
    chosen: Vec<String>,
    /// The size of the whole backup; `None` for a selection, whose size is not known in advance.
    size: Option<Markup>,
    server: String,
    target: String,
    overwrites: bool,
    means: String,
    hidden: Vec<(String, String)>,
}

/// Shows a summary of the restore; with `do=restore`, starts it.
pub(crate) async fn submit(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Form,
) -> PageResult {
    let id = parse(&id)?;
    let row = backups::show(&ui.app, &person.caller, id).await?;
    if form.text("do") == "choose" {
        if form.texts("entry").next().is_none() {
            return Ok(done(&format!("/backups/{id}"), "choose-first"));
        }
        let values = origin(&ui, &person, &row).await?;
        return Ok(form_page(&ui, &person, &row, &form, &values, &Errors::default()).await?.show(StatusCode::OK));
    }
    let input = input(&form, row.content);
    let is_sure = form.text("do") == "restore";
    let checked = if is_sure {
        backups::request_restore(&ui.app, &person.caller, id, &input).await.map(Some)
    } else {
        backups::check_restore(&ui.app, &person.caller, id, &input).await.map(|()| None)
    };
    match checked {
        Ok(Some(run)) => Ok(Redirect::to(&format!("/runs/{}", run.id)).into_response()),
        Ok(None) => Ok(render(StatusCode::OK, &summary(&ui, &person, &row, &form).await?)),
        Err(AppError::Invalid(errors)) => {
            let page = form_page(&ui, &person, &row, &form, &Values::of(&form), &errors).await?;
            Ok(page.show(StatusCode::UNPROCESSABLE_ENTITY))
        }
        Err(error) => Err(error.into()),
    }
}

async fn summary(ui: &Ui, person: &SignedIn, row: &BackupRow, form: &Form) -> Result<SummaryPage, PageError> {
    let (t, reader, content) = (person.t(), &person.reader, row.content);
    let server = form.text("remote_server_id").parse().map(ServerId);
    let server = server.map_err(|_| AppError::NotFound(Resource::RemoteServer))?;
    let server = servers::show(&ui.app, &person.caller, server).await?;
    let chosen: Vec<String> = form.texts("entry").map(str::to_owned).collect();
    let overwrites = form.is_on("overwrite");
    let means = match (content == Content::Files, overwrites) {
        _ if form.is_on("dry_run") => t.say("restore-means-dry-run"),
        (true, true) => t.say("restore-means-replace"),
        (true, false) => t.say("restore-means-keep"),
        (false, true) => t.say("restore-means-database-replace"),
        (false, false) if content.goes_to_path() => t.say("restore-means-file-new"),
        (false, false) => t.say("restore-means-database-empty"),
    };
    let target = if content.goes_to_path() {
        form.text("path")
    } else if form.text("database_name").is_empty() {
        t.say("task-all-databases")
    } else {
        t.with("task-one-database", "name", form.text("database_name"))
    };
    let hidden = [
        "remote_server_id",
        "path",
        "database_name",
        "overwrite",
        "no_owner",
        "numeric_owner",
        "restore_devices",
        "dry_run",
    ];
    let hidden = hidden.iter().map(|name| ((*name).to_owned(), form.text(name))).filter(|(_, value)| !value.is_empty());
    let entries = chosen.iter().map(|path| ("entry".to_owned(), path.clone()));
    Ok(SummaryPage {
        frame: person.frame(ui, Section::Backups).await?,
        id: row.id.0,
        from: row.task_label.clone(),
        made: reader.exactly(row.created_at.0),
        what: match chosen.len() {
            0 if content != Content::Files => t.say("restore-whole"),
            0 => t.with("restore-all-entries", "n", row.entries),
            count => t.with("restore-some", "n", count),
        },
        size: form.texts("entry").next().is_none().then(|| reader.bytes(row.plain_bytes)),
        server: format!("{} ({})", server.label, super::servers::address(&server)),
        target,
        overwrites,
        means,
        hidden: hidden.chain(entries).collect(),
        chosen,
    })
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let page = |overwrites| SummaryPage {
        frame: frame.clone(),
        id: 1,
        from: hostile.into(),
        made: Markup("<time>now</time>".into()),
        what: "2 entries".into(),
        chosen: vec![hostile.into()],
        size: Some(Markup("<data value=\"1\">1 B</data>".into())),
        server: hostile.into(),
        target: hostile.into(),
        overwrites,
        means: "Files are replaced.".into(),
        hidden: vec![("path".into(), hostile.into())],
    };
    vec![page(true).render().unwrap(), page(false).render().unwrap()]
}
