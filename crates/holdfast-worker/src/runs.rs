//! Claims runs, executes them, and ends each exactly once. What each kind of run does is in its own file below.

mod backup;
mod check_destination;
mod check_repository;
mod check_server;
mod end;
mod findings;
mod follow_up;
mod inventory;
mod job;
mod lease;
mod probe;
mod prune;
mod repository_findings;
mod restore;
mod test_stream;
mod verify;

use holdfast_app::Result;
use holdfast_core::clock::seconds_between;
use holdfast_core::failure::FailureCode;
use holdfast_core::lease::Heartbeat;
use holdfast_core::run::RunSubject;
use holdfast_engine::{Context, EngineError};
use holdfast_store::queue::{self, Capacity};
use holdfast_store::runs::{self, RunRow};
use tokio_util::task::AbortOnDropHandle;

use self::backup::Backup;
use self::check_destination::CheckDestination;
use self::check_repository::CheckRepository;
pub(crate) use self::check_repository::PARTS;
use self::check_server::CheckServer;
use self::end::{End, write_loss};
use self::inventory::Inventory;
use self::job::{ContactedServers, Job, Working};
use self::lease::{Finished, Lease, lease_until};
use self::probe::Probe;
use self::prune::Prune;
use self::restore::Restore;
use self::test_stream::TestStream;
use self::verify::Verify;
use crate::services::Services;

const STOPPED: &str = "The service was stopped while this run was in progress.";

fn job(subject: RunSubject) -> Box<dyn Job> {
    match subject {
        RunSubject::Backup(task) => Box::new(Backup::new(task)),
        RunSubject::Restore(backup) => Box::new(Restore::new(backup)),
        RunSubject::Verify(backup) => Box::new(Verify { backup }),
        RunSubject::CheckServer(server) => Box::new(CheckServer::new(server)),
        RunSubject::CheckDestination(destination) => Box::new(CheckDestination::new(destination)),
        RunSubject::TestStream(stream) => Box::new(TestStream::new(stream)),
        RunSubject::Probe(server) => Box::new(Probe::new(server)),
        RunSubject::Inventory(destination) => Box::new(Inventory::new(destination)),
        RunSubject::Prune(repository) => Box::new(Prune::new(repository)),
        RunSubject::CheckRepository(repository) => Box::new(CheckRepository::new(repository)),
    }
}

/// Claims as many queued runs as there is room for and the limits allow.
pub(crate) async fn claim(services: &Services, worker: &str, room: Capacity) -> Result<Vec<RunRow>> {
    let now = services.app.now();
    let until = lease_until(now, &services.settings);
    let mut tx = services.app.store.begin().await?;
    let claimed = queue::claim(&mut tx, worker, room, services.settings.at_once, until, now).await?;
    tx.commit().await?;
    for run in &claimed {
        metrics::histogram!("holdfast_run_wait_seconds").record(seconds_between(run.created_at.0, now));
    }
    Ok(claimed)
}

/// Executes a claimed run until its end is written, or its lease is lost.
pub(crate) async fn execute(services: &Services, run: RunRow) {
    let subject = run.subject;
    let id = run.id.0;
    let lease = Lease::start(services.app.clone(), services.settings, run.clone());
    let (own_services, context) = (services.clone(), lease.context.clone());
    // A separate task, so that a panic ends this run and no other.
    let working = AbortOnDropHandle::new(tokio::spawn(async move {
        let (mut job, mut contacted) = (job(run.subject), ContactedServers::default());
        let result = work(&own_services, &run, &context, &mut *job, &mut contacted).await;
        (job, result, contacted)
    }));
    let (halt, cancel) = (services.halt.clone(), lease.context.cancel.clone());
    let halting = AbortOnDropHandle::new(tokio::spawn(async move {
        halt.cancelled().await;
        cancel.cancel();
    }));
    let worked = working.await;
    drop(halting);
    let has_crashed = worked.is_err();
    let (job, mut result, contacted) = worked.unwrap_or_else(|error| {
        tracing::error!(%error, run = id, "a run ended unexpectedly");
        let fault = EngineError::internal("This run failed because of an error in Holdfast itself.");
        (job(subject), Err(fault), ContactedServers::default())
    });
    let Some(Finished { run, context, lines, is_cancelled }) = lease.finish().await else {
        return job.discard(services).await;
    };
    let is_stopped = matches!(&result, Err(error) if error.code == FailureCode::Cancelled) && !is_cancelled;
    if is_stopped && services.halt.is_cancelled() {
        result = Err(EngineError::new(FailureCode::WorkerLost, STOPPED));
    }
    End { services, run: &run, context: &context, lines, job, result, contacted, has_crashed }.write().await;
}

/// Does the work of a run. A short run has a time limit, whatever the other side does: others wait for its place.
async fn work(
    services: &Services,
    run: &RunRow,
    context: &Context,
    job: &mut dyn Job,
    contacted: &mut ContactedServers,
) -> Result<(), EngineError> {
    let working = Working { services, run, context };
    if run.kind().is_long() {
        return job.work(&working, contacted).await;
    }
    let limit = services.settings.short_limit;
    match tokio::time::timeout(limit, job.work(&working, contacted)).await {
        Ok(result) => result,
        Err(_) => {
            job.clear_up(services);
            let text = format!("There was no result after {} seconds.", limit.as_secs());
            Err(EngineError::new(job.timeout_code(), text))
        }
    }
}

/// Ends a run whose worker stopped responding.
pub(crate) async fn fail_lost(services: &Services, lost: &Heartbeat) -> Result<()> {
    let Some(run) = runs::find(&mut services.app.store.read().await?, lost.run).await? else { return Ok(()) };
    write_loss(services, lost, &run, &*job(run.subject)).await
}
