//! Workers that start no further runs, while they finish what is in progress and go on with everything else.

use holdfast_core::audit::AuditAction;
use holdfast_store::workers::{self, WorkerRow};

use crate::{App, Origin, Result};

/// All workers that have reported lately.
pub async fn list(app: &App) -> Result<Vec<WorkerRow>> {
    Ok(workers::list(&mut app.store.read().await?).await?)
}

/// Tells the worker of this name, or all workers of the host of this name, whether they may start runs. Returns the names
/// of those that were told.
pub async fn set(app: &App, origin: &Origin, name: &str, is_draining: bool) -> Result<Vec<String>> {
    let action = if is_draining { AuditAction::WorkerDrained } else { AuditAction::WorkerResumed };
    let mut tx = app.store.begin().await?;
    let mut told = Vec::new();
    for worker in workers::list(&mut tx).await?.into_iter().filter(|worker| is_named(worker, name)) {
        if workers::update_draining(&mut tx, &worker.name, is_draining).await? {
            app.audit_as(&mut tx, None, origin, action, &worker.name).await?;
            told.push(worker.name);
        }
    }
    tx.commit().await?;
    app.wake_worker();
    Ok(told)
}

/// The name of a worker is that of its host, and a random number.
fn is_named(worker: &WorkerRow, name: &str) -> bool {
    worker.name == name || worker.name.rsplit_once('-').is_some_and(|(host, _)| host == name)
}
