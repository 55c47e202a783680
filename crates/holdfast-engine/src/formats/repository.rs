//! Repositories in the restic format: each backup is a snapshot, whose file is the locator. The repository is in the
//! folder above the folder of the snapshots.

mod blob_reader;
mod blobs;
mod checking;
mod comparing;
mod entries;
mod folders;
mod index_files;
mod locks;
mod opening;
mod place;
mod plain;
mod pruning;
mod repairing;
mod storing;
mod wanted;
mod writing;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use holdfast_core::Secret;
use holdfast_core::failure::FailureCode;
use holdfast_repository::{Id, Snapshot};
use tokio_util::sync::CancellationToken;

use self::blob_reader::BlobReader;
use self::checking::Checked;
pub use self::checking::{CheckReport, DamagedSnapshot};
use self::entries::SnapshotReader;
pub use self::locks::ForeignLock;
use self::locks::{HeldLock, Holder};
use self::opening::{Repository, Shared};
use self::place::Place;
pub use self::pruning::PruneReport;
use crate::Engine;
use crate::context::Context;
use crate::destination::{BlobStore, DestinationPlan, Opened};
use crate::download::Download;
use crate::error::{EngineError, Result};
use crate::format::{BackupFormat, BackupWriter, PlainReader, StoredEntries};
use crate::plan::{BackupPlan, CheckPlan, PrunePlan, RepositoryAccess, StoredBackup};
use crate::scope::Scope;
use crate::thread::until_dropped;

pub(super) struct RepositoryFormat;

#[async_trait]
impl BackupFormat for RepositoryFormat {
    async fn begin(
        &self,
        engine: &Engine,
        plan: &BackupPlan,
        store: Arc<dyn BlobStore>,
    ) -> Result<Box<dyn BackupWriter>> {
        Ok(Box::new(writing::RepositoryWriter::begin(engine, plan, store).await?))
    }

    async fn open_plain(&self, engine: &Engine, backup: &StoredBackup, context: &Context) -> Result<PlainReader> {
        if backup.scope.is_everything() {
            context.progress.set_total(backup.plain_bytes, 0);
        }
        // What is restored or verified is read from the destination.
        let (repository, snapshot) = find(engine, backup, Shared::of(engine)).await?;
        // What is read to its end must not be pruned meanwhile.
        let mut lock = None;
        if let Some(at) = backup.opened_at {
            let holder = Holder::new(&engine.settings.destination, at);
            lock = match HeldLock::acquire(&repository, &holder, false, context).await {
                // Nothing can be written there, by others either: that is no reason not to restore.
                Err(error) if is_about_writing(error.code) => {
                    context.log.warn(format!("The repository is read without a lock. {}", error.message));
                    None
                }
                acquired => Some(acquired?),
            };
        }
        let reader = read(repository, snapshot, &backup.scope, &context.cancel).await?;
        plain::open(reader, lock, backup, context).await
    }

    async fn open_entries(
        &self,
        engine: &Engine,
        backup: &StoredBackup,
        stop: &CancellationToken,
    ) -> Result<Box<dyn StoredEntries>> {
        Ok(Box::new(open(engine, backup, stop).await?))
    }

    async fn download(
        &self,
        engine: &Engine,
        backup: &StoredBackup,
        range: Option<Range<u64>>,
    ) -> Result<(u64, Download)> {
        if range.is_some() {
            let message = "A backup in a repository can only be downloaded as a whole.";
            return Err(EngineError::new(FailureCode::NotSupported, message));
        }
        let (stop, guard) = until_dropped();
        let (reader, counted) = (open(engine, backup, &stop).await?, open(engine, backup, &stop).await?);
        let (size, mut plain) = plain::open_counted(reader, counted, backup).await?;
        let hold = backup.hold.clone();
        let download = Download::start(guard, move |pieces| {
            pieces.send_all(&mut plain);
            // Moves it into the closure, so that the backup is kept until the download ends.
            drop(hold);
        });
        Ok((size, download))
    }

    async fn is_there(&self, engine: &Engine, backup: &StoredBackup, context: &Context) -> Result<bool> {
        let keys = std::slice::from_ref(&backup.locator);
        let sizes = engine.object_sizes(&backup.destination, keys, context).await?;
        sizes.into_iter().next().transpose().map(|size| size.flatten().is_some())
    }

    /// Removes the snapshot alone; what only that has needed is removed when the repository is pruned.
    async fn remove(&self, engine: &Engine, destination: &DestinationPlan, locator: &str) -> Result<()> {
        engine.remove_object(destination, locator).await
    }
}

/// Whether what failed is writing to the destination.
fn is_about_writing(code: FailureCode) -> bool {
    matches!(
        code,
        FailureCode::DestinationFull
            | FailureCode::DestinationReadOnly
            | FailureCode::DestinationDenied
            | FailureCode::DestinationFailed
    )
}

/// Whether this password opens the repository in a folder.
pub(crate) async fn opens_with(
    engine: &Engine,
    plan: &DestinationPlan,
    folder: &str,
    password: &Secret,
) -> Result<bool> {
    let Opened { store, .. } = engine.settings.destination.open(plan).await?;
    let opened = Repository::open(&Place::new(store, folder), std::slice::from_ref(password), Shared::of(engine)).await;
    match opened {
        Err(error) if error.code == FailureCode::WrongPassword => Ok(false),
        opened => Ok(opened?.is_some()),
    }
}

/// Whether a folder holds a repository.
pub(crate) async fn is_at(engine: &Engine, plan: &DestinationPlan, folder: &str) -> Result<bool> {
    let Opened { store, .. } = engine.settings.destination.open(plan).await?;
    Ok(Place::new(store, folder).read_config().await?.is_some())
}

/// Removes from a repository what no snapshot needs.
pub(crate) async fn prune(engine: &Engine, plan: &PrunePlan, context: &Context) -> Result<PruneReport> {
    // Folders are the same wherever they are read.
    let repository = match open_at(engine, &plan.repository, Shared::with_cache(engine)).await {
        // Somebody has removed it as a whole, and nobody misses it.
        Err(error) if error.code == FailureCode::Missing && plan.is_abandoned => {
            return Ok(PruneReport { is_gone: true, ..PruneReport::default() });
        }
        opened => opened?,
    };
    let holder = Holder::new(&engine.settings.destination, plan.repository.started_at);
    let lock = HeldLock::acquire(&repository, &holder, true, context).await?;
    let pruned = match pruning::confirm_snapshots(&repository, &plan.on_record).await {
        Ok(()) => pruning::prune(&repository, plan.budget, &lock, context).await,
        Err(error) => Err(error),
    };
    let pruned = match pruned {
        Ok(report) if plan.is_abandoned && report.snapshots == 0 && !report.is_partial => {
            pruning::remove_all(&repository).await.map(|()| PruneReport { is_gone: true, ..report })
        }
        pruned => pruned,
    };
    lock.release(context).await;
    pruned
}

/// Checks a repository, and repairs what can be.
pub(crate) async fn check(engine: &Engine, plan: &CheckPlan, context: &Context) -> Result<CheckReport> {
    let repository = open_at(engine, &plan.repository, Shared::of(engine)).await?;
    let holder = Holder::new(&engine.settings.destination, plan.repository.started_at);
    let lock = HeldLock::acquire(&repository, &holder, false, context).await?;
    let foreign = locks::list_foreign(&repository, &holder).await;
    let checked = checking::check(&repository, plan, context).await;
    lock.release(context).await;
    let Checked { mut report, repair } = checked?;
    report.locks = foreign?;
    if repair.is_needed()
        && let Err(error) = repair_now(&repository, &repair, holder, context).await
    {
        // What was found counts all the same.
        report.problems.push(format!("The repository could not be repaired; the next check tries again. {error}"));
    }
    Ok(report)
}

/// How long a repair waits for those who use the repository.
const REPAIR_LIMIT: Duration = Duration::from_secs(60);

async fn repair_now(
    repository: &Repository,
    repair: &repairing::Repair,
    holder: Holder,
    context: &Context,
) -> Result<()> {
    let lock = HeldLock::acquire(repository, &holder.within(REPAIR_LIMIT), true, context).await?;
    let repaired = repairing::repair(repository, repair, &lock, context).await;
    lock.release(context).await;
    repaired
}

async fn open_at(engine: &Engine, access: &RepositoryAccess, shared: Shared<'_>) -> Result<Repository> {
    let Opened { store, .. } = engine.settings.destination.open_known(&access.destination).await?;
    let place = Place::new(store, &access.folder);
    let gone = || EngineError::new(FailureCode::Missing, "The repository is gone from its destination.");
    Repository::open(&place, &access.passwords, shared).await?.ok_or_else(gone)
}

/// Opens the snapshot of a backup to look around in it. If it is pruned meanwhile, that fails.
async fn open(engine: &Engine, backup: &StoredBackup, stop: &CancellationToken) -> Result<SnapshotReader> {
    let (repository, snapshot) = find(engine, backup, Shared::with_cache(engine)).await?;
    read(repository, snapshot, &backup.scope, stop).await
}

async fn find(engine: &Engine, backup: &StoredBackup, shared: Shared<'_>) -> Result<(Repository, Snapshot)> {
    let (folder, id) = split_locator(&backup.locator)?;
    let Opened { store, .. } = engine.settings.destination.open_known(&backup.destination).await?;
    let place = Place::new(store, folder);
    let gone = || EngineError::new(FailureCode::Missing, "The backup is gone from its destination.");
    let passwords: Vec<Secret> = backup.password.iter().chain(&backup.other_passwords).cloned().collect();
    if passwords.is_empty() {
        let message = "A repository cannot be read without its password.";
        return Err(EngineError::new(FailureCode::WrongPassword, message));
    }
    let repository = Repository::open(&place, &passwords, shared).await?.ok_or_else(gone)?;
    let snapshot = repository.find_snapshot(&id).await?.ok_or_else(gone)?;
    Ok((repository, snapshot))
}

async fn read(
    repository: Repository,
    snapshot: Snapshot,
    scope: &Scope,
    stop: &CancellationToken,
) -> Result<SnapshotReader> {
    let index = repository.load_index().await?.index;
    let blobs = BlobReader::new(repository, Arc::new(RwLock::new(index)), stop.clone());
    Ok(SnapshotReader::new(blobs, snapshot, scope.clone()))
}

/// The folder of the repository and the id of the snapshot: `<folder>/snapshots/<id>`.
fn split_locator(locator: &str) -> Result<(&str, Id)> {
    let split = locator.rsplit_once("snapshots/").and_then(|(folder, id)| Some((folder, id.parse().ok()?)));
    split.ok_or_else(|| EngineError::internal("this backup has no snapshot on record"))
}
