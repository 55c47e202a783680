//! Questions to a server before a task is created: folders, databases and sizes. A worker answers them.

use std::time::Duration;

use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{RunId, ServerId};
use holdfast_core::input::{Errors, Input};
use holdfast_core::probe::{Answer, Question};
use holdfast_core::run::{RunSubject, Trigger};
use holdfast_core::source::SourceSpec;
use holdfast_core::task;
use holdfast_core::{limits, rules};
use holdfast_store::runs::{self, NewRun};
use holdfast_store::{probes, servers};

use crate::access::{owned, written};
use crate::refusal::Conflict;
use crate::{App, AppError, Caller, Resource, Result, run_output};

/// Concurrent questions of one user: they share their places with everybody's checks.
const AT_ONCE: i64 = 2;
/// How often to check for the answer.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The outcome of a question.
pub enum Found {
    Answer(Answer),
    /// Why there is no answer, as text for people.
    Refusal {
        code: Option<FailureCode>,
        text: String,
    },
    /// A worker is still busy with it, or none has picked it up yet.
    NotYet,
}

/// Asks what a folder on a server contains.
pub async fn ask_folder(app: &App, caller: &Caller, server: ServerId, path: &str) -> Result<RunId> {
    let mut errors = Errors::default();
    let path = rules::exact_line(&mut errors, "path", path, limits::PATH_CHARS);
    let path = path.filter(|_| errors.is_empty()).ok_or(AppError::Invalid(errors))?;
    ask(app, caller, server, &Question::Folder(path)).await
}

pub async fn ask_databases(app: &App, caller: &Caller, server: ServerId) -> Result<RunId> {
    ask(app, caller, server, &Question::Databases).await
}

/// Asks how much a task would copy; only its server and source have to be given.
pub async fn ask_size(app: &App, caller: &Caller, input: &Input) -> Result<RunId> {
    let mut errors = Errors::default();
    let source = SourceSpec::check(&mut errors, input, None);
    let Some(server) = input.integer(task::SERVER.name).value().copied() else {
        rules::required(&mut errors, task::SERVER.name);
        return Err(AppError::Invalid(errors));
    };
    let source = source.filter(|_| errors.is_empty()).ok_or(AppError::Invalid(errors))?;
    ask(app, caller, ServerId(server), &Question::Size(Box::new(source))).await
}

async fn ask(app: &App, caller: &Caller, server: ServerId, question: &Question) -> Result<RunId> {
    app.limit_action(caller.limit_key)?;
    let mut tx = app.store.begin().await?;
    owned(caller, servers::find(&mut tx, server).await?)?;
    if runs::count_probes(&mut tx, caller.user).await? >= AT_ONCE {
        return Err(AppError::Conflict(Conflict::ProbeBusy));
    }
    let run = app.queue_run(&mut tx, &NewRun::new(caller.user, RunSubject::Probe(server), Trigger::Manual)).await?;
    let run = written(run)?;
    probes::insert(&mut tx, run, question).await?;
    tx.commit().await?;
    app.wake_worker();
    Ok(run)
}

/// Waits for the answer, at most for `patience`.
pub async fn wait(app: &App, caller: &Caller, run: RunId, patience: Duration) -> Result<Found> {
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        match look(app, caller, run).await? {
            Found::NotYet if tokio::time::Instant::now() < deadline => tokio::time::sleep(LOOK_EVERY).await,
            found => return Ok(found),
        }
    }
}

/// The answer, if there is one yet.
pub async fn look(app: &App, caller: &Caller, run: RunId) -> Result<Found> {
    let mut tx = app.store.read().await?;
    let row = runs::find(&mut tx, run).await?.ok_or(AppError::NotFound(Resource::Run))?;
    if row.user_id != caller.user {
        return Err(AppError::Forbidden(Resource::Run));
    }
    if row.is_live() {
        return Ok(Found::NotYet);
    }
    if let Some(answer) = probes::find_answer(&mut tx, run).await? {
        return Ok(Found::Answer(answer));
    }
    let (row, text) = run_output::with_output(&mut tx, row).await?;
    Ok(Found::Refusal { code: row.error_code, text })
}
