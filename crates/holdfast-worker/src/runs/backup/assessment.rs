//! Compares a finished backup with the normal ones of its source, and holds the removal of old backups while the
//! newest looks wrong.

use std::collections::BTreeSet;

use holdfast_core::anomaly::{self, Finished, Hold, Judgement, Measure};
use holdfast_core::backup::source_key;
use holdfast_core::extent::Extent;
use holdfast_core::ids::{RepositoryId, TaskId};
use holdfast_core::task::TaskSettings;
use holdfast_core::{Secret, Timestamp};
use holdfast_engine::{BackupReport, DestinationPlan};
use holdfast_store::backups::Normal;
use holdfast_store::runs::RunRow;
use holdfast_store::tasks::TaskRow;
use holdfast_store::{StoreError, Tx, backups, restores, servers, tasks};

use crate::notices::outbox::Outbox;

const UNTIL: &str = "No old backup of this task will be removed until a backup is normal again or somebody releases the \
                     hold.";

/// A backup that is stored, and what is recorded with it.
pub(super) struct Done {
    pub report: BackupReport,
    pub settings: TaskSettings,
    pub password: Option<Secret>,
    pub source: String,
    /// The address of the server it was read from.
    pub server: String,
    pub destination: DestinationPlan,
    pub repository: Option<RepositoryId>,
}

/// What a finished backup means for its task, and what its log says about it.
pub(super) struct Assessment {
    pub judgement: Judgement,
    /// The key of the source that it is a backup of.
    pub source: String,
    /// Why it is suspicious, as a sentence; empty for one that is not.
    reason: String,
    /// For the log of its run.
    pub lines: Vec<String>,
    /// How many of these lines are warnings.
    pub warnings: i64,
}

pub(super) fn measure(report: &BackupReport) -> Measure {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    Measure {
        plain_bytes: number(report.plain_bytes),
        stored_bytes: (!report.format.is_shared()).then(|| number(report.stored_bytes)),
        entries: number(report.entries),
    }
}

/// When a backup was read and, for files, the folder as its server resolved it.
pub(super) struct Reading<'a> {
    pub begun: Timestamp,
    pub ended: Timestamp,
    pub folder: Option<&'a str>,
    /// The databases in a backup of a whole database server.
    pub databases: &'a [String],
}

/// Whether a restore into a task's source ended early, or wrote while the backup was read, and no backup has been
/// confirmed since then.
async fn is_half_restored(
    tx: &mut Tx,
    task: &TaskRow,
    source: &str,
    reading: &Reading<'_>,
) -> Result<bool, StoreError> {
    let Some(host) = servers::find_host(tx, task.remote_server_id).await? else { return Ok(false) };
    let extents: Vec<Extent> = [task.spec.source.extent()]
        .into_iter()
        .chain(reading.folder.map(|folder| Extent::Files(folder.to_owned())))
        .collect();
    let (user, times) = (task.user_id, (reading.begun, reading.ended));
    let Some(restore) = restores::find_unfinished(tx, user, &host, &extents, times).await? else {
        return Ok(false);
    };
    let confirmed = backups::find_confirmed_run(tx, task.id, source).await?;
    Ok(confirmed.is_none_or(|confirmed| confirmed.0 <= restore.0))
}

impl Assessment {
    pub(super) async fn of(
        tx: &mut Tx,
        task: Option<&TaskRow>,
        done: &Done,
        reading: &Reading<'_>,
    ) -> Result<Self, StoreError> {
        let (report, now) = (&done.report, measure(&done.report));
        let source = source_key(&done.server, report.content, &done.source);
        let normal = match task {
            Some(task) => backups::list_normal(tx, task.id, &source).await?,
            None => Normal::default(),
        };
        let held: BTreeSet<&String> = reading.databases.iter().collect();
        let lacking: Vec<String> = normal.databases.iter().filter(|name| !held.contains(name)).cloned().collect();
        let normal = normal.measures;
        let is_held = task.is_some_and(|task| task.retention_held_at.is_some());
        let is_half_restored = match task {
            Some(task) => is_half_restored(tx, task, &source, reading).await?,
            None => false,
        };
        let finished = Finished {
            measure: now,
            is_empty: report.is_empty,
            is_half_restored,
            lacking: &lacking,
            normal: &normal,
            is_held,
        };
        let judgement = anomaly::judge(finished);
        let reason = if judgement.signs.is_empty() {
            String::new()
        } else {
            format!("The newest backup looks wrong: {}.", judgement.reason)
        };
        let mut found = Self { judgement, source, reason, lines: Vec::new(), warnings: 0 };
        if !found.judgement.signs.is_empty() {
            found.warn(&format!("{} {UNTIL}", found.reason));
        } else if report.is_empty && normal.is_empty() {
            found.warn("This backup is empty. Check that the source is what you want to back up.");
        }
        match found.judgement.hold {
            Hold::Ends => found
                .lines
                .push("This backup is normal again, so old backups of this task are removed again.".to_owned()),
            Hold::Stays if found.judgement.signs.is_empty() => {
                found.lines.push("The removal of this task's old backups is still on hold.".to_owned());
            }
            Hold::Off | Hold::Begins | Hold::Stays => {}
        }
        Ok(found)
    }

    fn warn(&mut self, text: &str) {
        self.warnings += 1;
        self.lines.push(format!("Warning: {text}"));
    }

    /// Records whether the hold begins, stays or ends, and reports a suspicious backup.
    pub(super) async fn record(
        &self,
        tx: &mut Tx,
        outbox: &Outbox,
        task: TaskId,
        run: &RunRow,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        match self.judgement.hold {
            Hold::Off => return Ok(()),
            Hold::Ends => {
                tracing::info!(task = task.0, "a backup is normal again; old backups are removed again");
                return tasks::end_hold(tx, task).await;
            }
            Hold::Begins | Hold::Stays => {}
        }
        if self.reason.is_empty() {
            return Ok(());
        }
        tracing::warn!(task = task.0, reason = self.reason, "the removal of old backups is on hold");
        let signs = anomaly::signs_text(&self.judgement.signs);
        let before = tasks::find(tx, task).await?;
        tasks::update_hold(tx, task, &signs, &self.reason, now).await?;
        let told = before.and_then(|row| Some((row.held_signs?, row.held_told_at?)));
        outbox.suspicious(tx, task, run.id, (&signs, &self.reason), told, now).await
    }
}
