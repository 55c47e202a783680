//! The repository of a task, on its page.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect};
use holdfast_app::repositories::{self, Repository};
use holdfast_store::runs::RunRow;

use super::task_words::parse;
use crate::form::Form;
use crate::human::{Markup, Reader};
use crate::problem::PageResult;
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::run_kind;

/// What the page of a task says about its repository.
pub(super) struct RepositoryView {
    pub folder: String,
    pub stored: Option<Markup>,
    pub holds: String,
    pub saved: Option<Markup>,
    pub garbage: String,
    pub pruned: Option<Markup>,
    pub checked: Option<Markup>,
    pub trouble: String,
    pub is_live: bool,
    /// The newest prune or check: its number, what it is called, and when it began.
    pub newest_run: Option<(i64, String, Markup)>,
}

impl RepositoryView {
    pub(super) fn of(reader: &Reader, found: &Repository) -> Self {
        let (t, row) = (reader.t, &found.row);
        let number = |bytes: i64| reader.size(bytes);
        let saved = row.stored_bytes.map(|stored| found.plain_bytes - stored).filter(|saved| *saved > 0);
        let garbage = if row.garbage_since.is_some() && row.garbage_bytes > 0 {
            t.with("repository-garbage-value", "bytes", number(row.garbage_bytes.min(row.stored_bytes.unwrap_or(0))))
        } else {
            String::new()
        };
        Self {
            folder: row.folder.clone(),
            stored: row.stored_bytes.map(|bytes| reader.bytes(bytes)),
            holds: t.with2("repository-holds-value", "bytes", number(found.plain_bytes), "backups", found.backups),
            saved: saved.map(|bytes| reader.bytes(bytes)),
            garbage,
            pruned: row.pruned_at.map(|at| reader.when(at.0)),
            checked: row.checked_at.map(|at| reader.when(at.0)),
            trouble: match row.trouble() {
                Some((_, reason)) => t.with("repository-trouble", "reason", reason.to_owned()),
                None => String::new(),
            },
            is_live: found.newest_run.as_ref().is_some_and(RunRow::is_live),
            newest_run: found
                .newest_run
                .as_ref()
                .map(|run| (run.id.0, run_kind(t, run.kind()), reader.when(run.created_at.0))),
        }
    }

    #[cfg(test)]
    pub(super) fn sample(hostile: &str) -> Self {
        Self {
            folder: hostile.to_owned(),
            stored: None,
            holds: hostile.to_owned(),
            saved: None,
            garbage: hostile.to_owned(),
            pruned: None,
            checked: None,
            trouble: hostile.to_owned(),
            is_live: false,
            newest_run: Some((1, hostile.to_owned(), Markup::default())),
        }
    }
}

pub(crate) async fn prune(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id = parse(&id)?;
    let run = repositories::request_prune(&ui.app, &person.caller, id).await?;
    Ok(Redirect::to(&format!("/runs/{}", run.id)).into_response())
}

pub(crate) async fn check_repository(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    _: Form,
) -> PageResult {
    let id = parse(&id)?;
    let run = repositories::request_check(&ui.app, &person.caller, id).await?;
    Ok(Redirect::to(&format!("/runs/{}", run.id)).into_response())
}
