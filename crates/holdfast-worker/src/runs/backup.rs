//! Copies a task's source to its destination, records the backup, and deletes those that it supersedes.

mod assessment;
mod journal;
mod repository;

use std::sync::Arc;

use async_trait::async_trait;
use holdfast_core::Timestamp;
use holdfast_core::backup::DeletedReason;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{RepositoryId, TaskId};
use holdfast_core::retention::{self, RetentionPolicy, Verdict};
use holdfast_core::storage::Format;
use holdfast_engine::{BackupReport, EngineError};
use holdfast_store::backups::{self, NewBackup};
use holdfast_store::copies::{self, NewCopy};
use holdfast_store::runs::{self, RunRow};
use holdfast_store::tasks::TaskRow;
use holdfast_store::{StoreError, Tx, repositories, tasks, uploads};

use self::assessment::{Assessment, Done, Reading};
use self::journal::RunJournal;
use super::findings::note_destination;
use super::job::{Assessed, ContactedServers, Ending, Job, Next, RunOutcome, Working, of_app};
use crate::notices::outbox::{self, BackupResult};
use crate::plans::address;
use crate::services::Services;

pub(super) struct Backup {
    task: TaskId,
    done: Option<Done>,
    assessment: Option<Assessment>,
    /// That into which it stores, once that is known.
    repository: Option<RepositoryId>,
}

impl Backup {
    pub(super) fn new(task: TaskId) -> Self {
        Self { task, done: None, assessment: None, repository: None }
    }
}

#[async_trait]
impl Job for Backup {
    async fn work(&mut self, working: &Working<'_>, contacted: &mut ContactedServers) -> Result<(), EngineError> {
        let (services, run) = (working.services, working.run);
        let mut planned = services.planner.backup(&services.app, self.task).await.map_err(of_app)?;
        let (schedule, now) = (&planned.settings.spec.schedule, services.app.now());
        if run.requested_by.is_bound_to_window() && schedule.may_start_from(now) > now {
            let closed = "The window of this task closed before the run could start.";
            return Err(EngineError::new(FailureCode::WindowClosed, closed));
        }
        if planned.has_heartbeat {
            announce_start(services, self.task).await;
        }
        contacted.note(&planned.plan.server, planned.settings.server, planned.jump);
        let source = planned.plan.source.text();
        working.context.log.line(format!("Backing up {source}."));
        self.repository = repository::prepare(services, self.task, &mut planned).await?;
        let journal = RunJournal::new(services, run, planned.settings.destination);
        let report = services.engine.back_up(&planned.plan, working.context, Arc::new(journal)).await?;
        self.done = Some(Done {
            report,
            settings: planned.settings,
            password: planned.plan.password,
            source,
            server: address(&planned.plan.server),
            destination: planned.plan.destination,
            repository: self.repository,
        });
        Ok(())
    }

    fn summary(&self) -> String {
        let Some(done) = &self.done else { return String::new() };
        let BackupReport { stored_bytes, locator, stored_sha256, plain_bytes, entries, .. } = &done.report;
        match done.report.format {
            Format::Archive => format!(
                "Stored {stored_bytes} bytes as {locator} (SHA-256 {stored_sha256}), from {plain_bytes} bytes in \
                 {entries} entries. The destination confirmed it."
            ),
            Format::Repository => format!(
                "Added {stored_bytes} bytes to the repository, for {plain_bytes} bytes in {entries} entries. The \
                 snapshot is {locator}. The destination confirmed it."
            ),
        }
    }

    async fn assess(
        &mut self,
        tx: &mut Tx,
        ending: &Ending<'_>,
        task: Option<&TaskRow>,
    ) -> Result<Assessed, StoreError> {
        let Some(done) = &self.done else { return Ok(Assessed::default()) };
        let findings = ending.context.server_findings();
        let begun = ending.run.started_at.map_or(ending.now, |at| at.0);
        let folder = findings.folder.as_deref();
        let reading = Reading { begun, ended: ending.now, folder, databases: &findings.databases };
        let found = Assessment::of(tx, task, done, &reading).await?;
        let assessed = Assessed { lines: found.lines.clone(), warnings: found.warnings };
        self.assessment = Some(found);
        Ok(assessed)
    }

    async fn record(&self, tx: &mut Tx, ending: &Ending<'_>) -> Result<(), StoreError> {
        let (Some(done), Some(assessment)) = (&self.done, &self.assessment) else {
            return Err(StoreError::Broken(format!("run {} has no backup to record", ending.run.id)));
        };
        let (run, now) = (ending.run, ending.now);
        let Done { report, settings, password, source, server, destination, repository } = done;
        let findings = ending.context.server_findings();
        let new = NewBackup {
            task: self.task,
            run: run.id,
            task_label: settings.label.clone(),
            source: source.clone(),
            source_server: server.clone(),
            signs: assessment.judgement.signs.clone(),
            content: report.content,
            format: report.format,
            copies: vec![NewCopy {
                destination: settings.destination,
                locator: report.locator.clone(),
                size_bytes: number(report.stored_bytes),
                sha256: report.stored_sha256.clone(),
                repository: *repository,
            }],
            plain_bytes: number(report.plain_bytes),
            plain_sha256: report.plain_sha256.clone(),
            entries: number(report.entries),
            databases: findings.databases,
            password: password.clone().filter(|_| repository.is_none()),
        };
        backups::insert(tx, run.user_id, &new, now).await?;
        if let Some(repository) = *repository {
            repository::record(tx, repository, run.user_id, password.as_ref(), report.repository_bytes).await?;
        }
        uploads::delete(tx, run.id).await?;
        note_destination(tx, settings.destination, &destination.spec, &report.identity, now).await?;
        assessment.record(tx, &ending.services.outbox, self.task, run, now).await?;
        if assessment.judgement.hold.is_on() {
            return Ok(());
        }
        // Uses the task's current policy: a user who has raised the number meanwhile wants to keep more.
        let row = tasks::find(tx, self.task).await?;
        let policy = row.map_or(settings.spec.storage.retention, |row| row.spec.storage.retention);
        apply_retention(tx, run, self.task, &assessment.source, policy, now).await
    }

    /// A run that did not end may have left packs in its repository.
    async fn record_failure(&self, tx: &mut Tx, ending: &Ending<'_>, _error: &EngineError) -> Result<(), StoreError> {
        match self.repository {
            Some(repository) => repositories::note_garbage(tx, repository, 0, ending.now).await,
            None => Ok(()),
        }
    }

    /// A run that was cancelled or put off is not reported.
    async fn tell(&self, tx: &mut Tx, services: &Services, outcome: &RunOutcome<'_>) -> Result<(), StoreError> {
        let result = match (outcome.failure, &self.done) {
            (Some((FailureCode::Cancelled | FailureCode::WindowClosed, _)), _) | (None, None) => return Ok(()),
            (Some((code, reason)), _) => BackupResult::Failed { code, reason },
            (None, Some(done)) => BackupResult::Stored {
                plain_bytes: number(done.report.plain_bytes),
                stored_bytes: number(done.report.stored_bytes),
                entries: number(done.report.entries),
            },
        };
        let ending = outbox::EndedBackup {
            run: outcome.run,
            task: self.task,
            result,
            warnings: outcome.warnings,
            will_retry: outcome.next == Next::Retry,
            is_paused: outcome.next == Next::Pause,
        };
        services.outbox.run_ended(tx, &ending, outcome.now).await
    }

    fn tells_of_failures(&self) -> bool {
        true
    }

    /// Keeps an object that is on record after all, for example when only the answer to a commit was lost.
    async fn discard(&self, services: &Services) {
        let Some(done) = &self.done else { return };
        let key = &done.report.locator;
        let recorded = async {
            let mut tx = services.app.store.read().await?;
            copies::is_recorded(&mut tx, done.settings.destination, key).await
        };
        match recorded.await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(key, %error, "could not find out whether this object is on record; keeping it");
                return;
            }
        }
        if let Err(error) = services.engine.discard_upload(&done.destination, key, None).await {
            tracing::warn!(key, %error, "an object that belongs to no run was left behind");
        }
    }

    /// A run that was lost with its worker may have left packs in the repository of its task.
    async fn left_behind(&self, tx: &mut Tx, run: &RunRow) -> Result<String, StoreError> {
        let task = tasks::find(tx, self.task).await?;
        let task = task.filter(|task| task.spec.storage.format.is_shared());
        if let Some((task, began)) = task.zip(run.started_at) {
            let path = &task.spec.storage.path;
            let found = repositories::find_of_task(tx, task.id, task.backup_destination_id, path).await?;
            if let Some(row) = found {
                repositories::note_garbage(tx, row.id, 0, began.0).await?;
            }
        }
        Ok("This run produced no backup.".to_owned())
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Writes a ping for the task's heartbeat URL that a run begins; if that fails, the run continues.
async fn announce_start(services: &Services, task: TaskId) {
    let announced = async {
        let mut tx = services.app.store.begin().await?;
        services.outbox.run_started(&mut tx, task, services.app.now()).await?;
        tx.commit().await
    };
    match announced.await {
        Ok(()) => services.app.wake_dispatcher(),
        Err(error) => tracing::warn!(task = task.0, %error, "the start of a run was not announced"),
    }
}

/// Deletes the backups that the new backup of `source` supersedes.
async fn apply_retention(
    tx: &mut Tx,
    run: &RunRow,
    task: TaskId,
    source: &str,
    policy: RetentionPolicy,
    now: Timestamp,
) -> Result<(), StoreError> {
    let stored = backups::list_of_task(tx, task).await?;
    for (id, verdict) in retention::plan(&stored, source, policy) {
        if let Verdict::Remove(why) = verdict
            && backups::mark_deleted(tx, id, DeletedReason::Retention, now).await?
        {
            let line = format!("Removing backup {id}: {}.", why.text());
            runs::append_line(tx, run.id, run.lease_epoch, &line, now).await?;
        }
    }
    // Logged once, when the source has changed.
    let own = stored.iter().filter(|backup| backup.source == source).count();
    if own == 1 && stored.len() > 1 {
        let line = "This is the task's first backup of this source. Its backups of other sources stay until somebody \
                    deletes them.";
        runs::append_line(tx, run.id, run.lease_epoch, line, now).await?;
    }
    Ok(())
}
