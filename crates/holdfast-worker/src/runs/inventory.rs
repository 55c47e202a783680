//! Checks whether everything on record is still at a destination, in its full size. Contents are not read:
//! verifications do that, one backup at a time.

use std::collections::BTreeMap;

use async_trait::async_trait;
use holdfast_core::backup::Verification;
use holdfast_core::ids::{DestinationId, TaskId};
use holdfast_core::run::FailureCode;
use holdfast_engine::EngineError;
use holdfast_store::copies::{self, StoredCopy};
use holdfast_store::{StoreError, Tx, backups, destinations};

use super::findings::{is_lost_destination, note_lost_destination, note_state, tell_damaged};
use super::job::{Contacts, Ending, Job, Working, of_app, of_store};

/// How many copies are listed in the log; the others are counted.
const NAMED: usize = 20;

pub(super) struct Inventory {
    destination: DestinationId,
    on_record: usize,
    damaged: Vec<Damaged>,
}

struct Damaged {
    copy: StoredCopy,
    found: Verification,
    reason: String,
}

impl Inventory {
    pub(super) fn new(destination: DestinationId) -> Self {
        Self { destination, on_record: 0, damaged: Vec::new() }
    }
}

fn judge(copy: StoredCopy, size: Option<u64>) -> Option<Damaged> {
    let wanted = u64::try_from(copy.size_bytes).unwrap_or(0);
    let (found, reason) = match size {
        Some(size) if size == wanted => return None,
        Some(size) => (Verification::Corrupt, format!("The destination has {size} bytes of a backup of {wanted}.")),
        None => (Verification::Missing, "The backup is gone from its destination.".to_owned()),
    };
    Some(Damaged { copy, found, reason })
}

#[async_trait]
impl Job for Inventory {
    async fn work(&mut self, working: &Working<'_>, _contacts: &mut Contacts) -> Result<(), EngineError> {
        let (services, log) = (working.services, &working.context.log);
        // The records are read first: everything on them is already stored, and what is stored later does not matter.
        let mut tx = services.app.store.read().await.map_err(of_store)?;
        let plan = services.planner.destination(&mut tx, self.destination).await.map_err(of_app)?;
        let on_record = copies::list_stored(&mut tx, self.destination).await.map_err(of_store)?;
        drop(tx);
        self.on_record = on_record.len();
        log.line(format!("Looking for {} backups at {}.", on_record.len(), plan.spec.place()));
        let keys: Vec<String> = on_record.iter().map(|copy| copy.locator.clone()).collect();
        let sizes = services.engine.sizes(&plan, &keys, working.context).await?;
        let damaged: Vec<Damaged> =
            on_record.into_iter().zip(sizes).filter_map(|(copy, size)| judge(copy, size)).collect();
        for Damaged { copy, reason, .. } in damaged.iter().take(NAMED) {
            log.warn(format!("{}: {reason}", copy.locator));
        }
        if damaged.len() > NAMED {
            log.warn(format!("{} further backups are missing or damaged.", damaged.len() - NAMED));
        }
        self.damaged = damaged;
        let Some(first) = self.damaged.first() else { return Ok(()) };
        let code = if first.found == Verification::Missing { FailureCode::Missing } else { FailureCode::Corrupt };
        let count = self.damaged.len();
        Err(EngineError::new(code, format!("{count} of {} backups are missing or damaged.", self.on_record)))
    }

    fn summary(&self) -> String {
        format!("All {} backups on record are there.", self.on_record)
    }

    async fn record(&self, tx: &mut Tx, ending: &Ending<'_>) -> Result<(), StoreError> {
        destinations::update_check(tx, self.destination, None, ending.now).await
    }

    async fn record_failure(&self, tx: &mut Tx, ending: &Ending<'_>, error: &EngineError) -> Result<(), StoreError> {
        if is_lost_destination(error.code) {
            return note_lost_destination(tx, ending, self.destination, error).await;
        }
        let mut by_task: BTreeMap<Option<TaskId>, Vec<&Damaged>> = BTreeMap::new();
        for damaged in &self.damaged {
            // It may have been deleted meanwhile, or its damage may have been reported before.
            let Some(row) = backups::find(tx, damaged.copy.backup).await? else { continue };
            if row.deleted_at.is_some() || row.verification == damaged.found {
                continue;
            }
            note_state(tx, ending, damaged.copy.backup, damaged.found).await?;
            by_task.entry(row.task_id).or_default().push(damaged);
        }
        for damaged in by_task.into_values() {
            let [first, others @ ..] = damaged.as_slice() else { continue };
            let reason = match others.len() {
                0 => first.reason.clone(),
                count => format!("{} {count} other backups of this task are missing or damaged, too.", first.reason),
            };
            tell_damaged(tx, ending, first.copy.backup, &reason).await?;
        }
        Ok(())
    }
}
