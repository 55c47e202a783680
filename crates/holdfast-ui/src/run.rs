//! A run's page: how it went, and what it wrote. Messages link here.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect};
use holdfast_app::{AppError, Resource, logs};
use holdfast_core::clock;
use holdfast_core::ids::RunId;
use holdfast_core::run::RunKind;

use crate::Ui;
use crate::form::csrf_token;
use crate::page::{PageError, PageResult, render};
use crate::session::SignedIn;

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    csrf: String,
    title: String,
    facts: Vec<String>,
    output: String,
}

pub(crate) async fn show(
    State(ui): State<Arc<Ui>>,
    person: Result<SignedIn, PageError>,
    Path(id): Path<String>,
) -> PageResult {
    let id: i64 = id.parse().map_err(|_| AppError::NotFound(Resource::Run))?;
    let person = match person {
        // Whoever follows a link from a message comes back to it.
        Err(PageError::App(AppError::Unauthenticated)) => {
            return Ok(Redirect::to(&format!("/sign-in?run={id}")).into_response());
        }
        person => person?,
    };
    let (run, output) = logs::show_run(&ui.app, &person.caller, RunId(id)).await?;
    let what = match RunKind::parse(&run.kind) {
        Some(RunKind::Backup) => "Backup",
        Some(RunKind::Restore) => "Restore",
        Some(RunKind::Verify) => "Verification",
        Some(RunKind::CheckServer) => "Check of a server",
        Some(RunKind::CheckDestination) => "Check of a destination",
        Some(RunKind::TestStream) => "Test of a stream",
        None => "Run",
    };
    let shown = |at: clock::Instant| clock::local_date_time(at, &person.caller.zone);
    let mut facts = vec![format!("Run {}", run.id)];
    facts.extend(run.error_code.as_ref().map(|code| format!("reason: {code}")));
    facts.extend(run.started_at.map(|at| format!("started {}", shown(at.0))));
    facts.extend(run.finished_at.map(|at| format!("ended {}", shown(at.0))));
    if run.warnings > 0 {
        facts.push(format!("warnings: {}", run.warnings));
    }
    let page = RunPage { csrf: csrf_token(&person.secret), title: format!("{what}: {}", run.status), facts, output };
    Ok(render(StatusCode::OK, &page))
}
