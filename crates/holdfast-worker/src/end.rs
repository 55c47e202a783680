//! The end of a run: what it did, and everything that follows from that, in one fenced transaction.

use std::time::Duration;

use holdfast_app::{AppError, Origin, Result};
use holdfast_core::Timestamp;
use holdfast_core::backup::{DeletedReason, Verification};
use holdfast_core::ids::{DestinationId, ServerId, TaskId, UserId};
use holdfast_core::probe;
use holdfast_core::retention::{self, Verdict};
use holdfast_core::run::{FailureCode, RunKind, RunStatus, RunSubject};
use holdfast_core::task::TaskSettings;
use holdfast_engine::destination::Checked;
use holdfast_engine::{
    BackupReport, Contact, Context, Counted, DestinationSpec, EngineError, RestoreReport, Server, ServerReport,
};
use holdfast_store::backups::{self, NewBackup};
use holdfast_store::runs::{self, RunRow};
use holdfast_store::{DbTime, StoreError, Tx, audit, destinations, due, probes, servers, streams, tasks, uploads};

use crate::Settings;
use crate::execute::{Executor, of_app};
use crate::lease::{append_lines, counts, lease_until};
use crate::outbox::{Ended, Ending};
use crate::scheduler::{later, seconds};
use crate::suspicion::{Assessment, Reading};

/// The destination itself is the matter, not what is stored there.
const LOST_DESTINATION: &[FailureCode] = &[
    FailureCode::DestinationUnavailable,
    FailureCode::DestinationDenied,
    FailureCode::BucketMissing,
    FailureCode::DestinationUnmounted,
    FailureCode::ForbiddenAddress,
];
/// A task that costs so many workers in a row is to blame for it.
const MOST_LOSSES: i64 = 3;
/// Between tries to write the end of a run while the database is away.
pub(crate) const END_AGAIN: Duration = Duration::from_millis(500);

/// What a run did, for its end to write down.
pub(crate) enum Done {
    Backup(Box<BackupDone>),
    Restored(RestoreReport),
    Verified,
    ServerChecked(ServerReport),
    DestinationChecked(Checked),
    StreamTested { answer: String },
    Probed(probe::Answer),
}

/// A backup that is stored, and what is recorded with it.
pub(crate) struct BackupDone {
    pub report: BackupReport,
    pub settings: TaskSettings,
    pub password: Option<holdfast_core::Secret>,
    pub source: String,
    /// The address that it was read from.
    pub server: String,
    pub destination: DestinationSpec,
}

/// Whom a run had to do with, learnt on the way.
#[derive(Default)]
pub(crate) struct Involved {
    pub server: Option<Contacted>,
    pub jump: Option<Contacted>,
    pub destination: Option<DestinationId>,
    /// What a check writes to a destination and takes away again.
    pub probe: Option<(DestinationSpec, String)>,
}

/// A server, at the address where the run met it.
pub(crate) struct Contacted {
    id: ServerId,
    host: String,
    port: i64,
}

impl Involved {
    pub(crate) fn note(&mut self, server: &Server, id: ServerId, jump: Option<ServerId>) {
        let at = |id: ServerId, target: &holdfast_engine::ssh::Target| Contacted {
            id,
            host: target.host.clone(),
            port: target.port.into(),
        };
        self.server = Some(at(id, &server.target));
        self.jump = jump.zip(server.jump.as_ref()).map(|(id, target)| at(id, target));
    }
}

/// What the end of a run means for its task: it has run, it may be tried once more, it may be to blame.
pub(crate) struct FollowUp<'a> {
    pub run: &'a RunRow,
    pub epoch: i64,
    pub code: Option<FailureCode>,
    pub is_loss: bool,
    pub warnings: i64,
}

/// What follows from the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Nothing,
    Retry,
    Pause,
}

impl Next {
    pub(crate) fn ending<'a>(self, run: &'a RunRow, ended: Ended<'a>, warnings: i64) -> Ending<'a> {
        Ending { run, ended, warnings, will_retry: self == Self::Retry, is_paused: self == Self::Pause }
    }
}

impl FollowUp<'_> {
    pub(crate) async fn write(&self, tx: &mut Tx, settings: &Settings, now: Timestamp) -> Result<Next, StoreError> {
        let Some(task) = self.run.subject.task() else { return Ok(Next::Nothing) };
        let status = match self.code {
            None => RunStatus::Successful,
            Some(FailureCode::Cancelled) => RunStatus::Cancelled,
            Some(_) => RunStatus::Failed,
        };
        let run = self.run.id;
        tasks::update_last_run(tx, task, run, (status, self.code), self.warnings, now).await?;
        if self.is_loss {
            let losses = due::count_loss(tx, task).await?;
            if losses >= MOST_LOSSES {
                return self.pause(tx, task, now).await;
            }
        } else {
            due::forget_losses(tx, task).await?;
        }
        let is_first = self.run.attempt == 1 && !settings.retry_after.is_zero();
        if is_first
            && self.code.is_some_and(FailureCode::can_retry)
            && !runs::is_cancel_requested(tx, self.run.id).await?
        {
            // Those that lost a worker together are not tried together: one of them may be to blame.
            let apart = if self.is_loss { 1 + task.0.rem_euclid(8) } else { 1 };
            let seconds = i64::try_from(settings.retry_after.as_secs()).unwrap_or(3600) * apart;
            if due::plan_retry(tx, task, self.run.id, later(now, seconds)).await? {
                self.line(tx, &format!("This will be tried once more in {seconds} seconds."), now).await?;
                return Ok(Next::Retry);
            }
        }
        Ok(Next::Nothing)
    }

    async fn pause(&self, tx: &mut Tx, task: TaskId, now: Timestamp) -> Result<Next, StoreError> {
        let found = tasks::find(tx, task).await?.filter(|row| row.paused_at.is_none());
        let Some(row) = found else { return Ok(Next::Nothing) };
        tasks::update_pause(tx, &row, Some(now), None, now).await?;
        let text = format!("The task is paused: its last {MOST_LOSSES} runs each lost their worker.");
        self.line(tx, &text, now).await?;
        let detail = format!("{task} {}", row.label);
        let owner = Some(UserId(row.user_id));
        audit::insert(tx, DbTime(now), owner, &Origin::default(), "backup_task.paused_after_losses", &detail).await?;
        tracing::error!(task = task.0, "paused: its last {MOST_LOSSES} runs each lost their worker");
        metrics::counter!("holdfast_tasks_paused_after_losses_total").increment(1);
        Ok(Next::Pause)
    }

    async fn line(&self, tx: &mut Tx, text: &str, now: Timestamp) -> Result<(), StoreError> {
        runs::append_line(tx, self.run.id, self.epoch, text, now).await.map(drop)
    }
}

/// The end of a run: one fenced transaction with everything that follows from it.
pub(crate) struct End<'a> {
    pub executor: &'a Executor,
    pub run: &'a RunRow,
    pub context: &'a Context,
    pub lines: Vec<String>,
    pub done: Result<Done, EngineError>,
    pub involved: Involved,
    pub has_crashed: bool,
}

impl End<'_> {
    /// Tries until it is written or the lease would be anybody's. Gives back what was done when that could not be
    /// recorded.
    pub(crate) async fn write(mut self) -> Option<Result<Done, EngineError>> {
        let words = self.last_words();
        self.lines.push(words);
        let status = self.status();
        let deadline = tokio::time::Instant::now() + self.executor.settings.lease;
        loop {
            match self.try_write(status).await {
                Ok(true) => break,
                Ok(false) => {
                    tracing::warn!(run = self.run.id.0, "lost the lease; another worker ends this run");
                    return Some(self.done);
                }
                Err(AppError::Unavailable(reason)) if tokio::time::Instant::now() < deadline => {
                    tracing::warn!(run = self.run.id.0, reason, "the end of a run is not written yet; trying again");
                    tokio::time::sleep(END_AGAIN).await;
                }
                Err(error) => {
                    tracing::error!(run = self.run.id.0, ?error, "the end of a run was not written");
                    // What was meant to be recorded cannot be; that it failed can.
                    let failed = match error {
                        AppError::Unavailable(_) => of_app(error),
                        _ => EngineError::internal("What this run did could not be recorded."),
                    };
                    let done = std::mem::replace(&mut self.done, Err(failed));
                    self.lines = vec![self.last_words()];
                    return match self.try_write(RunStatus::Failed).await {
                        Ok(_) => Some(done),
                        // Perhaps a commit of ours is still being decided: what is stored stays, and its note with it.
                        Err(error) => {
                            tracing::error!(run = self.run.id.0, ?error, "nor that it failed");
                            None
                        }
                    };
                }
            }
        }
        self.count(status);
        let code = self.done.as_ref().err().map(|error| error.code.as_str());
        tracing::info!(
            run = self.run.id.0,
            kind = self.run.kind().as_str(),
            status = status.as_str(),
            code,
            "run ended"
        );
        None
    }

    /// For those who watch.
    fn count(&self, status: RunStatus) {
        let kind = self.run.kind().as_str();
        metrics::counter!("holdfast_runs_ended_total", "kind" => kind, "status" => status.as_str()).increment(1);
        if let Some(started) = self.run.started_at {
            let took = seconds(started.0, self.executor.app.now());
            metrics::histogram!("holdfast_run_duration_seconds", "kind" => kind).record(took);
        }
        let moved = self.context.progress.counts();
        metrics::counter!("holdfast_run_bytes_read_total", "kind" => kind).increment(moved.bytes_read);
        metrics::counter!("holdfast_run_bytes_stored_total", "kind" => kind).increment(moved.bytes_stored);
    }

    fn status(&self) -> RunStatus {
        match &self.done {
            Ok(_) => RunStatus::Successful,
            Err(error) if error.code == FailureCode::Cancelled => RunStatus::Cancelled,
            Err(_) => RunStatus::Failed,
        }
    }

    fn last_words(&self) -> String {
        match &self.done {
            Ok(Done::Backup(backup)) => {
                let BackupReport { stored_bytes, key, stored_sha256, plain_bytes, entries, .. } = &backup.report;
                format!(
                    "Stored {stored_bytes} bytes as {key} (SHA-256 {stored_sha256}), from {plain_bytes} bytes in \
                     {entries} entries. The destination confirmed it."
                )
            }
            Ok(Done::Restored(report)) => restored(report),
            Ok(Done::Verified) => "Everything was read back, and it is what was written.".to_owned(),
            Ok(Done::ServerChecked(_)) => "The server is online.".to_owned(),
            Ok(Done::DestinationChecked { .. }) => "The destination is reachable.".to_owned(),
            Ok(Done::StreamTested { answer }) => format!("A sample was delivered. {answer}"),
            Ok(Done::Probed(_)) => "The server answered.".to_owned(),
            Err(error) => format!("{} {}", error.message, error.code.advice()),
        }
    }

    async fn try_write(&self, status: RunStatus) -> Result<bool> {
        let (app, settings, run) = (&self.executor.app, &self.executor.settings, self.run);
        let now = app.now();
        let id = run.id;
        let mut tx = app.store.begin().await?;
        // The task before its run, as those who cancel do: two orders would deadlock.
        let task = match run.subject.task() {
            Some(task) => tasks::find_locked(&mut tx, task).await?,
            None => None,
        };
        let assessment = match &self.done {
            Ok(Done::Backup(backup)) => {
                let contact = self.context.contact.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
                let (begun, folder) = (run.started_at.map_or(now, |at| at.0), contact.folder.as_deref());
                let reading = Reading { begun, ended: now, folder, databases: &contact.databases };
                Some(Assessment::of(&mut tx, task.as_ref(), backup, &reading).await?)
            }
            _ => None,
        };
        // The run before its lines, as those who take it away do.
        let mut counts = counts(&self.context.progress, self.context.log.warnings(), 0.0);
        counts.warnings += assessment.as_ref().map_or(0, |found| found.warnings);
        runs::update_progress(&mut tx, id, run.lease_epoch, &counts, lease_until(now, settings)).await?;
        append_lines(&mut tx, id, run.lease_epoch, &self.lines, now).await?;
        if let Some(found) = &assessment {
            append_lines(&mut tx, id, run.lease_epoch, &found.lines, now).await?;
        }
        let code = self.done.as_ref().err().map(|error| error.code);
        if !runs::finish(&mut tx, id, run.lease_epoch, status, code, now).await? {
            return Ok(false);
        }
        self.note_contact(&mut tx, now).await?;
        self.note_outcome(&mut tx, assessment.as_ref(), now).await?;
        let follow_up =
            FollowUp { run, epoch: run.lease_epoch, code, is_loss: self.has_crashed, warnings: counts.warnings };
        let next = follow_up.write(&mut tx, settings, now).await?;
        self.note_news(&mut tx, next, counts.warnings, now).await?;
        tx.commit().await?;
        app.wake_dispatcher();
        Ok(true)
    }

    /// What people hear of it: of a backup that was stored or was not, not of one that somebody stopped.
    async fn note_news(&self, tx: &mut Tx, next: Next, warnings: i64, now: Timestamp) -> Result<(), StoreError> {
        if self.run.kind() != RunKind::Backup {
            return Ok(());
        }
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let ended = match &self.done {
            Ok(Done::Backup(backup)) => Ended::Stored {
                plain_bytes: number(backup.report.plain_bytes),
                stored_bytes: number(backup.report.stored_bytes),
                entries: number(backup.report.entries),
            },
            Err(error) if error.code != FailureCode::Cancelled => {
                Ended::Failed { code: error.code, reason: &error.message }
            }
            _ => return Ok(()),
        };
        self.executor.outbox.run_ended(tx, &next.ending(self.run, ended, warnings), now).await
    }

    /// What follows from the end, beyond the run itself.
    async fn note_outcome(
        &self,
        tx: &mut Tx,
        assessment: Option<&Assessment>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        match &self.done {
            Ok(Done::Backup(backup)) => {
                if let Some(assessment) = assessment {
                    self.record(tx, backup, assessment, now).await?;
                }
            }
            Ok(Done::Verified) => {
                self.note_verification(tx, Verification::Verified, now).await?;
                self.note_found_destination(tx, now).await?;
            }
            Ok(Done::ServerChecked(report)) => {
                if let Some(server) = &self.involved.server {
                    let mut tools = report.tools.clone();
                    if report.has_sftp {
                        tools.push(("sftp".to_owned(), "available".to_owned()));
                    }
                    servers::update_tools(tx, server.id, &tools).await?;
                }
            }
            Ok(Done::DestinationChecked(checked)) => {
                self.note_destination(tx, checked.marker.as_deref(), now).await?;
                if let Some(destination) = self.involved.destination {
                    destinations::update_keeps_versions(tx, destination, checked.keeps_versions).await?;
                }
            }
            Ok(Done::Restored(_)) => self.note_found_destination(tx, now).await?,
            Ok(Done::Probed(answer)) => probes::update_answer(tx, self.run.id, answer).await?,
            Ok(Done::StreamTested { answer }) => {
                if let Some(stream) = self.run.subject.stream() {
                    streams::update_test(tx, stream, true, answer, now).await?;
                }
            }
            Err(error) => match (self.run.subject, error.code) {
                (RunSubject::Verify(_) | RunSubject::Restore(_), FailureCode::Missing) => {
                    self.note_verification(tx, Verification::Missing, now).await?;
                }
                (RunSubject::Verify(_) | RunSubject::Restore(_), FailureCode::Corrupt | FailureCode::WrongPassword) => {
                    self.note_verification(tx, Verification::Corrupt, now).await?;
                }
                (RunSubject::TestStream(stream), _) => {
                    streams::update_test(tx, stream, false, &error.message, now).await?;
                }
                (RunSubject::CheckDestination(destination), _) => {
                    self.note_lost_destination(tx, destination, error, now).await?;
                }
                // Found in passing; backups tell of it themselves.
                (RunSubject::Verify(backup) | RunSubject::Restore(backup), code)
                    if LOST_DESTINATION.contains(&code) =>
                {
                    if let Some(backup) = backups::find(tx, backup).await? {
                        let destination = DestinationId(backup.destination_id);
                        self.note_lost_destination(tx, destination, error, now).await?;
                    }
                }
                _ => {}
            },
        }
        Ok(())
    }

    /// What was read from it shows that a destination is there.
    async fn note_found_destination(&self, tx: &mut Tx, now: Timestamp) -> Result<(), StoreError> {
        let Some(backup) = self.run.subject.backup() else { return Ok(()) };
        match backups::find(tx, backup).await? {
            Some(backup) => destinations::update_check(tx, DestinationId(backup.destination_id), None, now).await,
            None => Ok(()),
        }
    }

    /// A destination that was fine before is not.
    async fn note_lost_destination(
        &self,
        tx: &mut Tx,
        destination: DestinationId,
        error: &EngineError,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let found = (error.code, error.message.as_str());
        let before = destinations::find(tx, destination).await?;
        destinations::update_check(tx, destination, Some(found), now).await?;
        if before.is_some_and(|row| row.last_error_code.is_some()) {
            return Ok(());
        }
        self.executor.outbox.destination_lost(tx, destination, self.run.id, found, now).await
    }

    async fn note_verification(&self, tx: &mut Tx, found: Verification, now: Timestamp) -> Result<(), StoreError> {
        let Some(backup) = self.run.subject.backup() else { return Ok(()) };
        if found != Verification::Verified {
            tracing::error!(backup = backup.0, found = found.as_str(), "a stored backup cannot be restored");
            metrics::counter!("holdfast_backups_damaged_total").increment(1);
            let (owner, detail) = (Some(self.run.user_id), format!("{backup} {}", found.as_str()));
            audit::insert(tx, DbTime(now), owner, &Origin::default(), "backup.found_damaged", &detail).await?;
            let reason = self.done.as_ref().err().map_or("", |error| error.message.as_str());
            self.executor.outbox.damaged(tx, backup, self.run.id, reason, now).await?;
        }
        backups::update_verification(tx, backup, found, now).await
    }

    async fn note_destination(&self, tx: &mut Tx, marker: Option<&str>, now: Timestamp) -> Result<(), StoreError> {
        let Some(destination) = self.involved.destination else { return Ok(()) };
        if let Some(marker) = marker {
            destinations::update_marker(tx, destination, marker).await?;
        }
        destinations::update_check(tx, destination, None, now).await
    }

    /// Keys are pinned on first contact; a server is online when it let us in.
    async fn note_contact(&self, tx: &mut Tx, now: Timestamp) -> Result<(), StoreError> {
        let Some(server) = &self.involved.server else { return Ok(()) };
        if !servers::is_at(tx, server.id, &server.host, server.port).await? {
            return Ok(());
        }
        let contact: Contact = self.context.contact.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let seen = [
            (Some(server), &contact.host_key, &contact.changed_host_key),
            (self.involved.jump.as_ref(), &contact.jump_host_key, &contact.changed_jump_host_key),
        ];
        for (server, key, changed) in
            seen.into_iter().filter_map(|(server, key, changed)| Some((server?, key, changed)))
        {
            if !servers::is_at(tx, server.id, &server.host, server.port).await? {
                continue;
            }
            if let Some(key) = key {
                servers::pin_host_key(tx, server.id, key).await?;
            }
            if let Some(changed) = changed {
                servers::update_offered_host_key(tx, server.id, changed).await?;
            }
        }
        const UNREACHABLE: &[FailureCode] = &[
            FailureCode::Connect,
            FailureCode::Dns,
            FailureCode::Timeout,
            FailureCode::HostKeyChanged,
            FailureCode::Auth,
        ];
        match &self.done {
            _ if contact.host_key.is_some() => {
                let latency = contact.latency_micros.and_then(|micros| i64::try_from(micros).ok());
                servers::update_online(tx, server.id, latency, now).await
            }
            Err(error) if UNREACHABLE.contains(&error.code) => {
                let before = servers::find(tx, server.id).await?;
                let was_known = before.is_some_and(|row| row.last_error_code.as_deref() == Some(error.code.as_str()));
                servers::update_offline(tx, server.id, error.code, &error.message, now).await?;
                // A backup tells of its failure itself.
                if was_known || self.run.kind() == RunKind::Backup {
                    return Ok(());
                }
                let found = (error.code, error.message.as_str());
                self.executor.outbox.server_lost(tx, server.id, self.run.id, found, now).await
            }
            _ => Ok(()),
        }
    }

    /// Records the backup and, now that it is there and nothing is wrong with it, lets go of what it supersedes.
    async fn record(
        &self,
        tx: &mut Tx,
        backup: &BackupDone,
        assessment: &Assessment,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let BackupDone { report, settings, password, source, server, .. } = backup;
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let Some(task) = self.run.subject.task() else { return Ok(()) };
        let contact = self.context.contact.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let new = NewBackup {
            task,
            destination: settings.destination,
            run: self.run.id,
            task_label: settings.label.clone(),
            source: source.clone(),
            source_server: server.clone(),
            signs: assessment.judgement.signs.clone(),
            content: report.content,
            key: report.key.clone(),
            size_bytes: number(report.stored_bytes),
            sha256: report.stored_sha256.clone(),
            plain_bytes: number(report.plain_bytes),
            plain_sha256: report.plain_sha256.clone(),
            entries: number(report.entries),
            databases: contact.databases,
            password: password.clone(),
        };
        backups::insert(tx, self.run.user_id, &new, now).await?;
        uploads::delete(tx, self.run.id).await?;
        self.note_destination(tx, report.marker.as_deref(), now).await?;
        assessment.record(tx, &self.executor.outbox, self.run, now).await?;
        if assessment.judgement.hold.is_on() {
            return Ok(());
        }
        // As the task is now: somebody who raised the number meanwhile wants to keep more.
        let keep = tasks::find(tx, task).await?.map_or(settings.storage.max_backups, |row| row.max_backups);
        self.prune(tx, task, &assessment.source, keep, now).await
    }

    /// Lets go of what the new backup of `source` supersedes.
    async fn prune(
        &self,
        tx: &mut Tx,
        task: TaskId,
        source: &str,
        keep: i64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (run, epoch) = (self.run.id, self.run.lease_epoch);
        let stored = backups::list_of_task(tx, task).await?;
        for (id, verdict) in retention::plan(&stored, source, keep) {
            if let Verdict::Remove(why) = verdict
                && backups::mark_deleted(tx, id, DeletedReason::Retention, now).await?
            {
                let line = format!("Removing backup {id}: {}.", why.text());
                runs::append_line(tx, run, epoch, &line, now).await?;
            }
        }
        // Said once, when the source has changed.
        let own = stored.iter().filter(|backup| backup.source == source).count();
        if own == 1 && stored.len() > 1 {
            let line = "This is the task's first backup of this source. Its backups of other sources stay until somebody \
                        deletes them.";
            runs::append_line(tx, run, epoch, line, now).await?;
        }
        Ok(())
    }
}

/// What a restore did, in figures.
fn restored(report: &RestoreReport) -> String {
    let Counted { restored, kept, skipped } = report.counted;
    if report.is_dry {
        return format!("Dry run: {restored} entries would be written, {kept} kept as they are, {skipped} skipped.");
    }
    let read = format!("from {} bytes", report.plain_bytes);
    match report.counted {
        Counted { restored: 0, kept: 0, skipped: 0 } => format!("Restored {read}."),
        Counted { kept: 0, skipped: 0, .. } => format!("Restored {restored} entries {read}."),
        _ => format!("Restored {restored} entries {read}; {kept} existed and were kept, {skipped} were skipped."),
    }
}
