//! Removes from a repository what no snapshot needs any more.

use async_trait::async_trait;
use holdfast_core::Timestamp;
use holdfast_core::failure::FailureCode;
use holdfast_core::figures::size;
use holdfast_core::ids::RepositoryId;
use holdfast_engine::{EngineError, PrunePlan, PruneReport};
use holdfast_notify::Maintenance;
use holdfast_store::repositories::{self, Pruned, RepositoryRow};
use holdfast_store::{StoreError, Tx, tasks};

use super::job::{ContactedServers, Ending, Job, Working, of_store};
use super::repository_findings::{find, note_trouble};

pub(super) struct Prune {
    repository: RepositoryId,
    done: Option<Done>,
}

struct Done {
    report: PruneReport,
    began: Timestamp,
}

impl Prune {
    pub(super) fn new(repository: RepositoryId) -> Self {
        Self { repository, done: None }
    }
}

/// Whether a task still stores backups in it.
async fn is_in_use(tx: &mut Tx, row: &RepositoryRow) -> Result<bool, StoreError> {
    let Some(task) = row.task_id else { return Ok(false) };
    let task = tasks::find(tx, task).await?;
    Ok(task.is_some_and(|task| {
        let storage = &task.spec.storage;
        storage.format.is_shared() && task.backup_destination_id == row.destination_id && storage.path == row.store_path
    }))
}

#[async_trait]
impl Job for Prune {
    async fn work(&mut self, working: &Working<'_>, _contacted: &mut ContactedServers) -> Result<(), EngineError> {
        let services = working.services;
        let began = services.app.now();
        let (row, repository) = find(working, self.repository).await?;
        working.context.log.line(format!("Pruning the repository in \"{}\".", row.folder));
        let mut tx = services.app.store.read().await.map_err(of_store)?;
        let on_record = repositories::list_snapshots(&mut tx, row.id).await.map_err(of_store)?;
        let is_abandoned = on_record.is_empty() && !is_in_use(&mut tx, &row).await.map_err(of_store)?;
        drop(tx);
        let on_record = on_record.into_iter().map(|row| row.locator).collect();
        let mut plan = PrunePlan { repository, budget: services.settings.prune_limit, is_abandoned, on_record };
        let mut pruned = services.engine.prune(&plan, working.context).await;
        // A backup may have been deleted while the run waited for the repository.
        if pruned.as_ref().is_err_and(|error| error.code == FailureCode::Missing) {
            let mut tx = services.app.store.read().await.map_err(of_store)?;
            let present = repositories::list_snapshots(&mut tx, row.id).await.map_err(of_store)?;
            drop(tx);
            let present: Vec<String> = present.into_iter().map(|row| row.locator).collect();
            if present != plan.on_record {
                plan.on_record = present;
                pruned = services.engine.prune(&plan, working.context).await;
            }
        }
        let report = pruned?;
        self.done = Some(Done { report, began });
        Ok(())
    }

    fn summary(&self) -> String {
        let Some(Done { report, .. }) = &self.done else { return String::new() };
        if report.is_gone {
            return "The repository had no backup and no task any more, and was removed.".to_owned();
        }
        let bytes = |count: u64| size(i64::try_from(count).unwrap_or(i64::MAX));
        let (stored, unused) = (bytes(report.stored_bytes), bytes(report.unused_bytes));
        let left = format!("The repository has {stored}, of which {unused} are unused.");
        if report.removed_packs == 0 {
            return format!("There is nothing to free. {left}");
        }
        let (freed, removed, again) = (bytes(report.freed_bytes), report.removed_packs, report.repacked_packs);
        format!("Freed {freed}. Packs removed: {removed}; of these, partly written again: {again}. {left}")
    }

    async fn record(&self, tx: &mut Tx, ending: &Ending<'_>) -> Result<(), StoreError> {
        let Some(Done { report, began }) = &self.done else {
            return Err(StoreError::Broken(format!("run {} has no prune to record", ending.run.id)));
        };
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let pruned = Pruned {
            stored_bytes: number(report.stored_bytes),
            unused_bytes: number(report.unused_bytes),
            is_partial: report.is_partial,
            is_gone: report.is_gone,
        };
        repositories::update_pruned(tx, self.repository, pruned, *began, ending.now).await
    }

    async fn record_failure(&self, tx: &mut Tx, ending: &Ending<'_>, error: &EngineError) -> Result<(), StoreError> {
        note_trouble(tx, ending, self.repository, Maintenance::Prune, error).await
    }

    async fn left_behind(&self, _tx: &mut Tx, _run: &holdfast_store::runs::RunRow) -> Result<String, StoreError> {
        Ok("The repository is complete; the next prune continues.".to_owned())
    }
}
