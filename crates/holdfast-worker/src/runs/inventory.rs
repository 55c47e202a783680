//! Checks whether everything on record is still at a destination, in its full size. Contents are not read:
//! verifications do that, one backup at a time.

use std::collections::{BTreeMap, HashSet};

use async_trait::async_trait;
use holdfast_core::backup::Verification;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{BackupId, DestinationId, TaskId};
use holdfast_core::run::{RunSubject, Trigger};
use holdfast_engine::EngineError;
use holdfast_store::copies::{self, StoredCopy};
use holdfast_store::runs::{self, NewRun};
use holdfast_store::{StoreError, Tx, backups, destinations};

use super::findings::{is_lost_destination, note_lost_destination, note_state, tell_damaged};
use super::job::{ContactedServers, Ending, Job, Working, of_app, of_store};

/// How many copies are listed in the log; the others are counted.
const NAMED: usize = 20;

/// How many backups that are there again are queued to be read; the others follow after the next inventory.
const READ_AT_ONCE: usize = 500;

pub(super) struct Inventory {
    destination: DestinationId,
    on_record: usize,
    damaged: Vec<Damaged>,
    /// Backups that were missing before and are there again.
    found_again: Vec<BackupId>,
    /// How many could not be checked, and why.
    unchecked: usize,
    trouble: Option<EngineError>,
}

struct Damaged {
    copy: StoredCopy,
    found: Verification,
    reason: String,
}

impl Inventory {
    pub(super) fn new(destination: DestinationId) -> Self {
        Self { destination, on_record: 0, damaged: Vec::new(), found_again: Vec::new(), unchecked: 0, trouble: None }
    }

    /// Queues the backups that were missing to be read. They may have been changed meanwhile, so they count as missing
    /// until that has succeeded.
    async fn queue_found_again(&self, tx: &mut Tx, ending: &Ending<'_>) -> Result<(), StoreError> {
        for backup in self.found_again.iter().take(READ_AT_ONCE) {
            // Deleted meanwhile, or being read already.
            let row = backups::find_locked(tx, *backup).await?.filter(|row| row.deleted_at.is_none());
            if row.is_none() || backups::is_in_use(tx, *backup).await? {
                continue;
            }
            let reading = NewRun::new(ending.run.user_id, RunSubject::Verify(*backup), Trigger::Schedule);
            runs::insert(tx, &reading, ending.now).await?;
        }
        runs::announce(tx).await
    }
}

fn judge(copy: StoredCopy, size: Option<u64>) -> Option<Damaged> {
    let wanted = u64::try_from(copy.size_bytes).unwrap_or(0);
    let (found, reason) = match size {
        // The size of a backup in a repository is what it added, and not that of its snapshot.
        Some(_) if copy.format.is_shared() => return None,
        Some(size) if size == wanted => return None,
        Some(size) => (Verification::Corrupt, format!("The destination has {size} bytes; the backup has {wanted}.")),
        None => (Verification::Missing, "The backup is gone from its destination.".to_owned()),
    };
    Some(Damaged { copy, found, reason })
}

impl Inventory {
    /// Leaves out backups that were deleted while the destination was searched.
    async fn drop_deleted(&mut self, working: &Working<'_>) -> Result<(), EngineError> {
        if self.damaged.is_empty() {
            return Ok(());
        }
        let mut tx = working.services.app.store.read().await.map_err(of_store)?;
        let on_record = copies::list_stored(&mut tx, self.destination).await.map_err(of_store)?;
        let on_record: HashSet<BackupId> = on_record.into_iter().map(|copy| copy.backup_id).collect();
        self.damaged.retain(|damaged| on_record.contains(&damaged.copy.backup_id));
        Ok(())
    }
}

#[async_trait]
impl Job for Inventory {
    async fn work(&mut self, working: &Working<'_>, _contacted: &mut ContactedServers) -> Result<(), EngineError> {
        let (services, log) = (working.services, &working.context.log);
        // The records are read first: everything on them is already stored, and what is stored later does not matter.
        let mut tx = services.app.store.read().await.map_err(of_store)?;
        let plan = services.planner.destination(&mut tx, self.destination).await.map_err(of_app)?;
        let on_record = copies::list_stored(&mut tx, self.destination).await.map_err(of_store)?;
        drop(tx);
        self.on_record = on_record.len();
        log.line(format!("Looking for {} backups at {}.", on_record.len(), plan.spec.place()));
        let keys: Vec<String> = on_record.iter().map(|copy| copy.locator.clone()).collect();
        let sizes = services.engine.object_sizes(&plan, &keys, working.context).await?;
        let mut first_error = None;
        for (copy, size) in on_record.into_iter().zip(sizes) {
            let size = match size {
                Ok(size) => size,
                Err(error) => {
                    self.unchecked += 1;
                    if self.unchecked <= NAMED {
                        log.warn(format!("{} could not be checked: {}", copy.locator, error.message));
                    }
                    first_error.get_or_insert(error);
                    continue;
                }
            };
            let (backup, was) = (copy.backup_id, copy.verification);
            match judge(copy, size) {
                Some(damaged) => self.damaged.push(damaged),
                None if was == Verification::Missing => self.found_again.push(backup),
                None => {}
            }
        }
        self.drop_deleted(working).await?;
        for Damaged { copy, reason, .. } in self.damaged.iter().take(NAMED) {
            log.warn(format!("{}: {reason}", copy.locator));
        }
        if self.damaged.len() > NAMED {
            log.warn(format!("{} further backups are missing or damaged.", self.damaged.len() - NAMED));
        }
        if !self.found_again.is_empty() {
            let count = self.found_again.len();
            log.line(format!("Backups that were missing and are there again, to be read now: {count}."));
        }
        let (damaged, all) = (self.damaged.len(), self.on_record);
        self.trouble = first_error.map(|error| {
            let message = format!("{} of {all} backups could not be checked: {}", self.unchecked, error.message);
            EngineError::new(error.code, message)
        });
        match (self.damaged.first(), &self.trouble) {
            (None, None) => Ok(()),
            (None, Some(error)) => Err(EngineError::new(error.code, &*error.message)),
            (Some(first), trouble) => {
                let is_missing = first.found == Verification::Missing;
                let code = if is_missing { FailureCode::Missing } else { FailureCode::Corrupt };
                let others = trouble.as_ref().map(|error| format!(" {}", error.message)).unwrap_or_default();
                Err(EngineError::new(code, format!("{damaged} of {all} backups are missing or damaged.{others}")))
            }
        }
    }

    fn summary(&self) -> String {
        format!("All {} backups on record are there.", self.on_record)
    }

    async fn record(&self, tx: &mut Tx, ending: &Ending<'_>) -> Result<(), StoreError> {
        destinations::update_check(tx, self.destination, None, ending.now).await?;
        self.queue_found_again(tx, ending).await
    }

    async fn record_failure(&self, tx: &mut Tx, ending: &Ending<'_>, error: &EngineError) -> Result<(), StoreError> {
        if error.code == FailureCode::Cancelled {
            return Ok(());
        }
        self.queue_found_again(tx, ending).await?;
        // What could not be checked is a problem of the destination, and must not go unnoticed day after day.
        match &self.trouble {
            Some(trouble) => note_lost_destination(tx, ending, self.destination, trouble).await?,
            None if is_lost_destination(error.code) => {
                note_lost_destination(tx, ending, self.destination, error).await?;
            }
            None if self.damaged.is_empty() => {}
            None => destinations::update_check(tx, self.destination, None, ending.now).await?,
        }
        let mut by_task: BTreeMap<Option<TaskId>, Vec<&Damaged>> = BTreeMap::new();
        for damaged in &self.damaged {
            // It may have been deleted meanwhile, or its damage may have been reported before.
            let Some(row) = backups::find(tx, damaged.copy.backup_id).await? else { continue };
            if row.deleted_at.is_some() || damaged.copy.verification == damaged.found {
                continue;
            }
            note_state(tx, ending, (damaged.copy.backup_id, self.destination), damaged.found).await?;
            by_task.entry(row.task_id).or_default().push(damaged);
        }
        for damaged in by_task.into_values() {
            let [first, others @ ..] = damaged.as_slice() else { continue };
            let reason = match others.len() {
                0 => first.reason.clone(),
                count => format!("{} {count} other backups of this task are missing or damaged, too.", first.reason),
            };
            tell_damaged(tx, ending, first.copy.backup_id, &reason).await?;
        }
        Ok(())
    }
}
