//! Contacts all destinations and servers of all users right away, for an operator who wants to know what is wrong.
//! Nothing is written to the database.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use holdfast_app::Result;
use holdfast_core::destination::DestinationSpec;
use holdfast_core::failure::FailureCode;
use holdfast_core::page::PageRequest;
use holdfast_core::random;
use holdfast_engine::destination::Checked;
use holdfast_engine::{Context, EngineError, FreeSpace, ServerReport};
use holdfast_store::destinations::DestinationRow;
use holdfast_store::servers::ServerRow;
use holdfast_store::tasks::{TaskFilter, TaskRow};
use holdfast_store::users::UserRow;
use holdfast_store::{Listing, destinations, servers, ssh_keys, tasks, users};

use tokio_util::sync::CancellationToken;

use crate::plans::Planner;
use crate::worker::Parts;

/// How many are contacted at once. A server that is away costs time, but next to no work.
const AT_ONCE: usize = 64;
/// How many of each user's destinations, servers and tasks are considered; further ones are left out.
const MOST: i64 = 10_000;
/// A server or destination that does not answer for this long has a problem.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was checked, and the result.
#[derive(Debug)]
pub struct Finding {
    pub what: String,
    /// What was found, or what is wrong and what to do.
    pub found: std::result::Result<String, String>,
}

/// Checks every destination and server of every user, many at a time, and hands over each finding as it is made.
pub async fn check_installation(parts: &Parts, mut tell: impl FnMut(Finding)) -> Result<()> {
    let planner = Planner { folder: parts.folder.clone() };
    let people = users::list(&mut parts.app.store.read().await?).await?;
    let mut owned = Vec::new();
    for user in &people {
        let listing = Listing::new(user.id, PageRequest { page: 1, per_page: MOST });
        let mut tx = parts.app.store.read().await?;
        let stores = destinations::list(&mut tx, &listing).await?.items;
        let hosts = servers::list(&mut tx, &listing).await?.items;
        let wanted = tasks::list(&mut tx, &listing, &TaskFilter::default()).await?.items;
        owned.push((user, stores, hosts, wanted));
    }
    let looks = owned.iter().flat_map(|(user, stores, hosts, wanted)| {
        let stores = stores.iter().map(|row| at_destination(parts, &planner, user, row).boxed());
        let hosts = hosts.iter().map(|row| at_server(parts, &planner, user, row, wanted).boxed());
        stores.chain(hosts)
    });
    let mut found = stream::iter(looks).buffer_unordered(AT_ONCE);
    while let Some(finding) = found.next().await {
        tell(finding);
    }
    Ok(())
}

fn told(error: &EngineError) -> String {
    format!("{} {}", error.message, error.code.advice())
}

async fn in_time<T>(look: impl Future<Output = Result<T, EngineError>>) -> Result<T, EngineError> {
    let silent = || EngineError::new(FailureCode::Timeout, "It did not answer within 30 seconds.");
    tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| Err(silent()))
}

async fn at_destination(parts: &Parts, planner: &Planner, user: &UserRow, row: &DestinationRow) -> Finding {
    let what = format!("destination {:?} of {}", row.label, user.email);
    let found = async {
        let mut tx = parts.app.store.read().await.map_err(|error| error.to_string())?;
        let spec = planner.destination(&mut tx, row.id).await.map_err(|error| error.reason())?;
        drop(tx);
        if spec.is_untouched() {
            return Ok("not used yet".to_owned());
        }
        let probe = format!("holdfast-check-{}", random::hex(&random::bytes::<8>()));
        let checked = in_time(parts.engine.check_destination(&spec, &probe)).await;
        let found = checked.map(|checked| found_at(&checked)).map_err(|error| told(&error))?;
        let DestinationSpec::Local(_) = row.spec else { return Ok(found) };
        // A probe fits where no backup does.
        match FreeSpace::find(&spec.folder) {
            Some(space) => Ok(format!("{found}; {}", space.check(&spec.folder)?)),
            None => Ok(found),
        }
    };
    Finding { what, found: found.await }
}

/// The result of a check of a destination, in words.
fn found_at(checked: &Checked) -> String {
    let versions = if checked.keeps_versions { "; it keeps versions of what is deleted" } else { "" };
    format!("written, read, listed and removed{versions}")
}

async fn at_server(parts: &Parts, planner: &Planner, user: &UserRow, row: &ServerRow, wanted: &[TaskRow]) -> Finding {
    let what = format!("server {:?} of {}", row.label, user.email);
    let found = async {
        let mut tx = parts.app.store.read().await.map_err(|error| error.to_string())?;
        // Planning would create one, but nothing may be written here.
        if ssh_keys::find_public(&mut tx, user.id).await.map_err(|error| error.to_string())?.is_none() {
            return Err("its owner has no SSH key yet; their account page creates one".to_owned());
        }
        drop(tx);
        let planned = planner.server(&parts.app, user.id, row.id).await;
        let (server, _) = planned.map_err(|error| error.reason())?;
        let (context, _lines) = Context::new(CancellationToken::new());
        let report = in_time(Box::pin(parts.engine.check_server(&server, &context))).await;
        let report = report.map_err(|error| told(&error))?;
        let missing = missing_tools(&report, wanted.iter().filter(|task| task.remote_server_id == row.id));
        if missing.is_empty() {
            return Ok(format!("login succeeded, {} tools found", report.tools.len()));
        }
        Err(missing.join("; "))
    };
    Finding { what, found: found.await }
}

/// What tasks need and the server does not have.
fn missing_tools<'a>(report: &ServerReport, wanted: impl Iterator<Item = &'a TaskRow>) -> Vec<String> {
    let lacks = |task: &TaskRow| {
        let tool = report.missing_tool(&task.spec.source)?;
        Some(format!("task {:?} needs {tool} there", task.label))
    };
    wanted.filter_map(lacks).collect()
}
