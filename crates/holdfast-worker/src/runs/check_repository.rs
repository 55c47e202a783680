//! Checks a repository: its structure, and a share of its packs, so that all have been read after some runs. Records
//! which backups can be restored and which cannot.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use holdfast_core::Timestamp;
use holdfast_core::backup::Verification;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{BackupId, DestinationId, RepositoryId};
use holdfast_core::run::Trigger;
use holdfast_engine::{CheckPlan, CheckReport, DamagedSnapshot, EngineError, ForeignLock};
use holdfast_notify::Maintenance;
use holdfast_store::repositories::{self, Checked, SnapshotRow};
use holdfast_store::{StoreError, Tx, backups, copies, destinations};

use super::findings::{note_state, tell_damaged};
use super::job::{ContactedServers, Ending, Job, Working, of_store};
use super::repository_findings::{find, note_trouble};

/// In how many parts all packs are read within the time in which every backup is to be verified.
pub(crate) const PARTS: u32 = 4;
/// How many problems are listed in the log; the others are counted.
const NAMED: usize = 20;

pub(super) struct CheckRepository {
    repository: RepositoryId,
    done: Option<Done>,
}

struct Done {
    destination: DestinationId,
    report: CheckReport,
    /// When the reading of all packs began, of which this was a part.
    began_at: Timestamp,
    on_record: Vec<SnapshotRow>,
    damaged: Vec<Damaged>,
}

impl Done {
    fn checked(&self) -> Checked {
        Checked { began_at: self.began_at, position: self.report.position.clone() }
    }

    /// Whether this part has found it damaged, or an earlier one of the same reading of all packs: what that part has read
    /// is not read again.
    fn is_damaged(&self, row: &SnapshotRow) -> bool {
        self.damaged.iter().any(|damaged| damaged.backup == row.backup_id)
            || row.verification.is_damaged() && row.verified_at.is_some_and(|at| at.0 >= self.began_at)
    }

    /// Once all packs have been read, records that the backups are good that were there when the reading began.
    async fn record_good(&self, tx: &mut Tx) -> Result<(), StoreError> {
        if self.report.position.is_some() {
            return Ok(());
        }
        for row in self.on_record.iter().filter(|row| row.created_at.0 <= self.began_at) {
            if !self.is_damaged(row) {
                let (backup, verified) = (row.backup_id, Verification::Verified);
                copies::update_verification(tx, backup, self.destination, verified, self.began_at).await?;
            }
        }
        Ok(())
    }
}

struct Damaged {
    backup: BackupId,
    found: Verification,
    reason: String,
}

impl CheckRepository {
    pub(super) fn new(repository: RepositoryId) -> Self {
        Self { repository, done: None }
    }
}

/// Which backups on record cannot be restored completely.
fn damaged(report: &CheckReport, on_record: &[SnapshotRow]) -> Vec<Damaged> {
    let by_id: HashMap<&str, &DamagedSnapshot> =
        report.damaged.iter().map(|damaged| (damaged.id.as_str(), damaged)).collect();
    let mut found = Vec::new();
    for row in on_record {
        let id = snapshot_id(&row.locator);
        if report.missing.contains(&row.locator) {
            let reason = "The snapshot of this backup is gone from its repository.".to_owned();
            found.push(Damaged { backup: row.backup_id, found: Verification::Missing, reason });
        } else if let Some(damaged) = by_id.get(id) {
            let (backup, reason) = (row.backup_id, describe(damaged));
            found.push(Damaged { backup, found: Verification::Corrupt, reason });
        }
    }
    found
}

/// The name of the snapshot at the end of a locator.
fn snapshot_id(locator: &str) -> &str {
    locator.rsplit_once('/').map_or(locator, |(_, id)| id)
}

fn describe(damaged: &DamagedSnapshot) -> String {
    if let Some(reason) = &damaged.reason {
        return format!("Its snapshot cannot be read. {reason}");
    }
    let others = damaged.damaged_paths.saturating_sub(damaged.paths.len() as u64);
    let more = if others > 0 { format!(" and {others} others") } else { String::new() };
    format!("These paths cannot be restored: {}{more}.", damaged.paths.join(", "))
}

fn describe_lock(lock: &ForeignLock) -> String {
    let ForeignLock { hostname, pid, is_exclusive, age_secs, is_stale } = lock;
    let kind = if *is_exclusive { "an exclusive" } else { "a" };
    let age = age_secs / 60;
    let meaning = if *is_stale {
        " It is so old that it does not count. If that program no longer runs, `restic unlock` removes it."
    } else {
        ""
    };
    format!("Process {pid} on {hostname} has {kind} lock, which is {age} minutes old.{meaning}")
}

#[async_trait]
impl Job for CheckRepository {
    async fn work(&mut self, working: &Working<'_>, _contacted: &mut ContactedServers) -> Result<(), EngineError> {
        let (services, log) = (working.services, &working.context.log);
        let (row, repository) = find(working, self.repository).await?;
        let mut tx = services.app.store.read().await.map_err(of_store)?;
        let on_record = repositories::list_snapshots(&mut tx, row.id).await.map_err(of_store)?;
        drop(tx);
        // Whoever asks for a check wants to know.
        let is_complete = working.run.requested_by == Trigger::Manual;
        let position = row.check_position.clone().filter(|_| row.check_began_at.is_some() && !is_complete);
        let began_at = match row.check_began_at {
            Some(at) if position.is_some() => at.0,
            _ => services.app.now(),
        };
        let share = if is_complete { "all" } else { "a part" };
        log.line(format!("Checking the repository in \"{}\", and reading {share} of its packs.", row.folder));
        let plan = CheckPlan {
            repository,
            position,
            one_in: if is_complete { 1 } else { PARTS },
            on_record: on_record.iter().map(|row| row.locator.clone()).collect(),
        };
        let report = services.engine.check_repository(&plan, working.context).await?;
        for lock in report.locks.iter().take(NAMED) {
            log.line(describe_lock(lock));
        }
        for problem in report.problems.iter().take(NAMED) {
            log.warn(problem);
        }
        if report.problems.len() > NAMED {
            log.warn(format!("{} further problems.", report.problems.len() - NAMED));
        }
        let damaged = damaged(&report, &on_record);
        for Damaged { backup, reason, .. } in damaged.iter().take(NAMED) {
            log.warn(format!("Backup {backup}: {reason}"));
        }
        let known: HashSet<&str> = on_record.iter().map(|row| snapshot_id(&row.locator)).collect();
        let others: Vec<&DamagedSnapshot> =
            report.damaged.iter().filter(|damaged| !known.contains(damaged.id.as_str())).collect();
        for other in others.iter().take(NAMED) {
            log.warn(format!("Snapshot {}, which is no backup of this service: {}", other.id, describe(other)));
        }
        let (count, all, others) = (damaged.len(), on_record.len(), others.len());
        let is_missing = damaged.iter().all(|damaged| damaged.found == Verification::Missing);
        self.done = Some(Done { destination: row.destination_id, report, began_at, on_record, damaged });
        if count > 0 {
            let code = if is_missing { FailureCode::Missing } else { FailureCode::Corrupt };
            let message = format!("{count} of {all} backups of this repository cannot be restored completely.");
            return Err(EngineError::new(code, message));
        }
        if others > 0 {
            let message = format!(
                "{others} snapshots in this repository that other programs have written cannot be restored completely. \
                 It cannot be pruned until they are repaired or removed, as with restic forget."
            );
            return Err(EngineError::corrupt(message));
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let Some(Done { report, .. }) = &self.done else { return String::new() };
        let CheckReport { snapshots, packs, read_packs, .. } = report;
        let rest = match &report.position {
            Some(_) => "The others follow in the next checks.",
            None => "All packs have been read now.",
        };
        format!(
            "All that the snapshots need is there (snapshots: {snapshots}). Read {read_packs} of {packs} packs. {rest}"
        )
    }

    async fn record(&self, tx: &mut Tx, ending: &Ending<'_>) -> Result<(), StoreError> {
        let Some(done) = &self.done else {
            return Err(StoreError::Broken(format!("run {} has no check to record", ending.run.id)));
        };
        if done.on_record.iter().any(|row| done.is_damaged(row)) {
            // What an earlier part has found is still so, for all that is known.
            repositories::update_check_position(tx, self.repository, &done.checked(), ending.now).await?;
        } else {
            repositories::update_checked(tx, self.repository, &done.checked(), ending.now).await?;
        }
        destinations::update_check(tx, done.destination, None, ending.now).await?;
        done.record_good(tx).await
    }

    async fn record_failure(&self, tx: &mut Tx, ending: &Ending<'_>, error: &EngineError) -> Result<(), StoreError> {
        let Some(done) = &self.done else {
            return note_trouble(tx, ending, self.repository, Maintenance::Check, error).await;
        };
        // What is damaged must not keep the rest from being read.
        repositories::update_check_position(tx, self.repository, &done.checked(), ending.now).await?;
        done.record_good(tx).await?;
        if done.damaged.is_empty() {
            return note_trouble(tx, ending, self.repository, Maintenance::Check, error).await;
        }
        let found = (error.code, error.message.as_str());
        repositories::update_trouble(tx, self.repository, false, found, ending.now).await?;
        let mut news = Vec::new();
        for damaged in &done.damaged {
            // It may have been deleted meanwhile, or its damage may have been reported before.
            let Some(row) = backups::find(tx, damaged.backup).await? else { continue };
            if row.deleted_at.is_some() || row.verification == damaged.found {
                continue;
            }
            note_state(tx, ending, (damaged.backup, done.destination), damaged.found).await?;
            news.push(damaged);
        }
        let [first, others @ ..] = news.as_slice() else { return Ok(()) };
        let reason = match others.len() {
            0 => first.reason.clone(),
            count => format!("{} {count} other backups of this repository are damaged, too.", first.reason),
        };
        tell_damaged(tx, ending, first.backup, &reason).await
    }
}
