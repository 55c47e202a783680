//! Claims a run, works on it through the engine, and brings it to its one end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdfast_app::{App, AppError, Origin, Result};
use holdfast_core::backup::{DeletedReason, Verification};
use holdfast_core::ids::{BackupId, DestinationId, RunId, ServerId, StreamId, TaskId, UserId};
use holdfast_core::lease::Beat;
use holdfast_core::retention::{self, Verdict};
use holdfast_core::run::{FailureCode, RunKind, RunStatus};
use holdfast_core::task::TaskSettings;
use holdfast_core::{Timestamp, random};
use holdfast_engine::{
    BackupReport, Contact, Context, DestinationSpec, Engine, EngineError, Journal, RestoreReport, Server, ServerReport,
};
use holdfast_notify::Courier;
use holdfast_store::backups::{self, NewBackup};
use holdfast_store::runs::{self, Room, RunRow};
use holdfast_store::{At, StoreError, Tx, audit, destinations, restores, servers, streams, tasks, uploads, users};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::Settings;
use crate::herald::{Ended, Ending, Herald};
use crate::lease::{Finished, Lease, append_lines, counts, lease_until};
use crate::plans::Planner;
use crate::postman::stream_channel;
use crate::scheduler::later;

const LOST: &str = "The worker that had this run went away before its end. Nothing counts as backed up by it.";
const STOPPED: &str = "The service was stopped while this run was going.";
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
const END_AGAIN: Duration = Duration::from_millis(500);

/// What a run did, for its end to write down.
enum Done {
    Backup(Box<BackupDone>),
    Restored(RestoreReport),
    Verified,
    ServerChecked(ServerReport),
    DestinationChecked { marker: Option<String> },
    StreamTested { answer: String },
}

/// A backup that is stored, and what is recorded with it.
struct BackupDone {
    report: BackupReport,
    settings: TaskSettings,
    password: Option<holdfast_core::Secret>,
    source: String,
    destination: DestinationSpec,
}

/// Whom a run had to do with, learnt on the way.
#[derive(Default)]
struct Involved {
    server: Option<Contacted>,
    jump: Option<Contacted>,
    destination: Option<DestinationId>,
}

/// A server, at the address where the run met it.
struct Contacted {
    id: ServerId,
    host: String,
    port: i64,
}

impl Involved {
    fn note(&mut self, server: &Server, id: ServerId, jump: Option<ServerId>) {
        let at = |id: ServerId, target: &holdfast_engine::ssh::Target| Contacted {
            id,
            host: target.host.clone(),
            port: target.port.into(),
        };
        self.server = Some(at(id, &server.target));
        self.jump = jump.zip(server.jump.as_ref()).map(|(id, target)| at(id, target));
    }
}

/// A database that is away is no fault of the run's: it can be tried again.
fn of_app(error: AppError) -> EngineError {
    match error {
        AppError::Unavailable(reason) => {
            tracing::warn!(reason, "the database did not answer a run");
            EngineError::new(FailureCode::WorkerLost, "Holdfast's own database did not answer.")
        }
        error => EngineError::internal(format!("{error:?}")),
    }
}

/// What workers share.
#[derive(Clone)]
pub(crate) struct Executor {
    pub app: Arc<App>,
    pub engine: Engine,
    pub planner: Planner,
    pub settings: Settings,
    /// Ends whatever runs: there is no more time.
    pub halt: CancellationToken,
    pub herald: Herald,
    pub courier: Courier,
}

impl Executor {
    /// Takes as many queued runs as there is room for and the limits allow.
    pub(crate) async fn claim(&self, worker: &str, room: Room) -> Result<Vec<RunRow>> {
        let now = self.app.now();
        let until = lease_until(now, &self.settings);
        let mut tx = self.app.store.begin().await?;
        let claimed = runs::claim(&mut tx, worker, room, self.settings.at_once, until, now).await?;
        tx.commit().await?;
        Ok(claimed)
    }

    /// Works on a claimed run until its end is written, or the run is not ours any more.
    pub(crate) async fn run(&self, run: RunRow) {
        let id = run.id;
        let lease = Lease::start(self.app.clone(), self.settings, run.clone());
        let (executor, context) = (self.clone(), lease.context.clone());
        // A task of its own: whatever breaks in there ends this run and no other.
        let working = AbortOnDropHandle::new(tokio::spawn(async move {
            let mut involved = Involved::default();
            let done = executor.work(&run, &context, &mut involved).await;
            (done, involved)
        }));
        let (halt, cancel) = (self.halt.clone(), lease.context.cancel.clone());
        let halting = AbortOnDropHandle::new(tokio::spawn(async move {
            halt.cancelled().await;
            cancel.cancel();
        }));
        let worked = working.await;
        drop(halting);
        let has_crashed = worked.is_err();
        let (mut done, involved) = worked.unwrap_or_else(|error| {
            tracing::error!(%error, run = id, "a run broke its worker");
            (Err(EngineError::internal("This run met a fault of Holdfast itself.")), Involved::default())
        });
        let Some(Finished { run, context, lines, is_cancelled }) = lease.finish().await else {
            return self.discard(&done).await;
        };
        let is_stopped = matches!(&done, Err(error) if error.code == FailureCode::Cancelled) && !is_cancelled;
        if is_stopped && self.halt.is_cancelled() {
            done = Err(EngineError::new(FailureCode::WorkerLost, STOPPED));
        }
        let end = End { executor: self, run: &run, context: &context, lines, done, involved, has_crashed };
        if let Some(unwritten) = end.write().await {
            self.discard(&unwritten).await;
        }
    }

    /// Takes away what a run stored that is not ours to record any more: nobody else knows of it. What is on record after
    /// all, as when only the answer to a commit was lost, stays.
    async fn discard(&self, done: &Result<Done, EngineError>) {
        let Ok(Done::Backup(backup)) = done else { return };
        let key = &backup.report.key;
        let recorded = async {
            let mut tx = self.app.store.read().await?;
            backups::is_recorded(&mut tx, backup.settings.destination, key).await
        };
        match recorded.await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(key, %error, "whether this object is on record is not known; it stays");
                return;
            }
        }
        if let Err(error) = self.engine.discard(&backup.destination, key, None).await {
            tracing::warn!(key, %error, "an object that belongs to no run was left behind");
        }
    }

    async fn work(&self, run: &RunRow, context: &Context, involved: &mut Involved) -> Result<Done, EngineError> {
        match RunKind::parse(&run.kind) {
            Some(RunKind::Backup) => self.back_up(run, context, involved).await,
            Some(RunKind::Restore) => self.restore(run, context, involved).await,
            Some(RunKind::Verify) => {
                let backup = self.backup_of(run).await.map_err(of_app)?;
                let stored = self.planner.stored(&self.app.store, &backup).await.map_err(of_app)?;
                context.log.line(format!("Reading {} back, {} bytes.", stored.key, stored.size_bytes));
                self.engine.verify(&stored, context).await.map(|()| Done::Verified)
            }
            Some(RunKind::CheckServer) => {
                let id = ServerId(run.server_id.unwrap_or_default());
                let planned = self.planner.server(&self.app, UserId(run.user_id), id).await;
                let (server, row) = planned.map_err(of_app)?;
                involved.note(&server, id, row.jump_server_id.map(ServerId));
                self.engine.check_server(&server, context).await.map(Done::ServerChecked)
            }
            Some(RunKind::CheckDestination) => {
                let id = DestinationId(run.destination_id.unwrap_or_default());
                let mut tx = self.app.store.read().await.map_err(|error| of_app(error.into()))?;
                let spec = self.planner.destination(&mut tx, id).await.map_err(of_app)?;
                drop(tx);
                involved.destination = Some(id);
                let probe = format!("holdfast-check-{}", random::hex(&random::bytes::<8>()));
                let marker = self.engine.check_destination(&spec, &probe).await?;
                Ok(Done::DestinationChecked { marker })
            }
            Some(RunKind::TestStream) => self.test_stream(run).await,
            None => Err(EngineError::internal(format!("this run is of unknown kind {}", run.kind))),
        }
    }

    async fn back_up(&self, run: &RunRow, context: &Context, involved: &mut Involved) -> Result<Done, EngineError> {
        let task = TaskId(run.task_id.unwrap_or_default());
        let planned = self.planner.backup(&self.app, task).await;
        let planned = planned.map_err(of_app)?;
        if planned.has_heartbeat {
            self.announce_start(task).await;
        }
        involved.note(&planned.plan.server, planned.settings.server, planned.jump);
        involved.destination = Some(planned.settings.destination);
        let source = planned.plan.source.text();
        context.log.line(format!("Backing up {source}."));
        let journal = RunJournal {
            app: self.app.clone(),
            patience: self.settings.lease,
            run: RunId(run.id),
            epoch: run.lease_epoch,
            destination: planned.settings.destination,
        };
        let report = self.engine.back_up(&planned.plan, context, Arc::new(journal)).await?;
        Ok(Done::Backup(Box::new(BackupDone {
            report,
            settings: planned.settings,
            password: planned.plan.password,
            source,
            destination: planned.plan.destination,
        })))
    }

    async fn restore(&self, run: &RunRow, context: &Context, involved: &mut Involved) -> Result<Done, EngineError> {
        let backup = self.backup_of(run).await.map_err(of_app)?;
        let mut tx = self.app.store.read().await.map_err(|error| of_app(error.into()))?;
        let draft = restores::find(&mut tx, RunId(run.id)).await.map_err(|error| of_app(error.into()))?;
        drop(tx);
        let draft = draft.ok_or_else(|| EngineError::internal("what this restore was asked to do is gone"))?;
        let (plan, jump) = self.planner.restore(&self.app, &backup, &draft).await.map_err(of_app)?;
        involved.note(&plan.server, draft.server, jump);
        context.log.line(format!("Restoring {}.", plan.backup.key));
        self.engine.restore(&plan, context).await.map(Done::Restored)
    }

    /// Sends a sample, and gives what the channel answered.
    async fn test_stream(&self, run: &RunRow) -> Result<Done, EngineError> {
        let id = StreamId(run.stream_id.unwrap_or_default());
        let (found, stream, user) = async {
            let mut tx = self.app.store.read().await?;
            let found = stream_channel(&mut tx, id).await?;
            Ok((found, streams::find(&mut tx, id).await?, users::find(&mut tx, UserId(run.user_id)).await?))
        }
        .await
        .map_err(of_app)?;
        let (Some((_, channel)), Some(stream), Some(user)) = (found, stream, user) else {
            return Err(EngineError::internal("the stream of this run is gone"));
        };
        let sample = self.herald.sample(&stream.label, &user.timezone, self.app.now());
        let delivered = self.courier.deliver(&channel, &sample, user.is_admin).await;
        let answer = delivered.map_err(|refusal| EngineError::new(FailureCode::NotDelivered, refusal.text))?;
        Ok(Done::StreamTested { answer })
    }

    /// Whoever watches from outside hears that a run begins; if that fails, the run goes on.
    async fn announce_start(&self, task: TaskId) {
        let announced = async {
            let mut tx = self.app.store.begin().await?;
            self.herald.run_started(&mut tx, task, self.app.now()).await?;
            tx.commit().await
        };
        match announced.await {
            Ok(()) => self.app.wake_postman(),
            Err(error) => tracing::warn!(task = task.0, %error, "the start of a run was not announced"),
        }
    }

    async fn backup_of(&self, run: &RunRow) -> Result<backups::BackupRow> {
        let id = BackupId(run.backup_id.unwrap_or_default());
        let found = backups::find(&mut self.app.store.read().await?, id).await?;
        found.ok_or_else(|| crate::plans::gone("backup"))
    }

    /// Ends a run whose worker fell silent.
    pub(crate) async fn fail_lost(&self, lost: &Beat) -> Result<()> {
        let now = self.app.now();
        let Some(run) = runs::find(&mut self.app.store.read().await?, lost.run).await? else { return Ok(()) };
        let mut tx = self.app.store.begin().await?;
        if let Some(task) = run.task_id {
            tasks::find_locked(&mut tx, TaskId(task)).await?;
        }
        let Some(epoch) = runs::fail_lost(&mut tx, lost, now).await? else { return Ok(()) };
        runs::append_line(&mut tx, lost.run, epoch, LOST, now).await?;
        let follow_up = FollowUp { run: &run, epoch, code: Some(FailureCode::WorkerLost), is_loss: true };
        let next = follow_up.write(&mut tx, &self.settings, now).await?;
        if RunKind::parse(&run.kind) == Some(RunKind::Backup) {
            let ended = Ended::Failed { code: FailureCode::WorkerLost, reason: LOST };
            let ending = next.ending(&run, ended, run.warnings);
            self.herald.run_ended(&mut tx, &ending, now).await?;
        }
        tx.commit().await?;
        self.app.wake_postman();
        tracing::warn!(run = run.id, "the worker of this run went away; the run is ended as failed");
        Ok(())
    }
}

/// What the end of a run means for its task: it has run, it may be tried once more, it may be to blame.
struct FollowUp<'a> {
    run: &'a RunRow,
    epoch: i64,
    code: Option<FailureCode>,
    is_loss: bool,
}

/// What follows from the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Nothing,
    Retry,
    Pause,
}

impl Next {
    fn ending<'a>(self, run: &'a RunRow, ended: Ended<'a>, warnings: i64) -> Ending<'a> {
        Ending { run, ended, warnings, will_retry: self == Self::Retry, is_paused: self == Self::Pause }
    }
}

impl FollowUp<'_> {
    async fn write(&self, tx: &mut Tx, settings: &Settings, now: Timestamp) -> Result<Next, StoreError> {
        let Some(task) = self.run.task_id.map(TaskId) else { return Ok(Next::Nothing) };
        tasks::update_last_run(tx, task, now).await?;
        if self.is_loss {
            let losses = tasks::count_loss(tx, task).await?;
            if losses >= MOST_LOSSES {
                return self.pause(tx, task, now).await;
            }
        } else {
            tasks::forget_losses(tx, task).await?;
        }
        let is_first = self.run.attempt == 1 && !settings.retry_after.is_zero();
        if is_first
            && self.code.is_some_and(FailureCode::can_retry)
            && !runs::is_cancel_requested(tx, RunId(self.run.id)).await?
        {
            // Those that lost a worker together are not tried together: one of them may be to blame.
            let apart = if self.is_loss { 1 + task.0.rem_euclid(8) } else { 1 };
            let seconds = i64::try_from(settings.retry_after.as_secs()).unwrap_or(3600) * apart;
            if tasks::plan_retry(tx, task, RunId(self.run.id), later(now, seconds)).await? {
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
        audit::insert(tx, At(now), owner, &Origin::default(), "backup_task.paused_after_losses", &detail).await?;
        tracing::error!(task = task.0, "paused: its last {MOST_LOSSES} runs each lost their worker");
        metrics::counter!("holdfast_tasks_paused_after_losses_total").increment(1);
        Ok(Next::Pause)
    }

    async fn line(&self, tx: &mut Tx, text: &str, now: Timestamp) -> Result<(), StoreError> {
        runs::append_line(tx, RunId(self.run.id), self.epoch, text, now).await.map(drop)
    }
}

/// Notes uploads before they exist; fenced like every write of a run.
struct RunJournal {
    app: Arc<App>,
    patience: Duration,
    run: RunId,
    epoch: i64,
    destination: DestinationId,
}

impl RunJournal {
    /// Tries until the database answers, or the lease would be anybody's.
    async fn note(&self, note: Note<'_>) -> Result<(), EngineError> {
        let deadline = tokio::time::Instant::now() + self.patience;
        loop {
            match self.try_note(note).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(EngineError::new(FailureCode::WorkerLost, "Another worker has this run.")),
                Err(StoreError::Unavailable(reason)) if tokio::time::Instant::now() < deadline => {
                    tracing::warn!(run = self.run.0, reason, "an upload is not noted yet; trying again");
                    tokio::time::sleep(END_AGAIN).await;
                }
                Err(error) => return Err(of_app(error.into())),
            }
        }
    }

    async fn try_note(&self, note: Note<'_>) -> Result<bool, StoreError> {
        let mut tx = self.app.store.begin().await?;
        let is_ours = match note {
            Note::Begins { key } => {
                uploads::insert(&mut tx, self.run, self.epoch, self.destination, key, self.app.now()).await?
            }
            Note::Begun { upload_id } => uploads::update_id(&mut tx, self.run, upload_id).await?,
        };
        tx.commit().await?;
        Ok(is_ours)
    }
}

#[derive(Clone, Copy)]
enum Note<'a> {
    Begins { key: &'a str },
    Begun { upload_id: &'a str },
}

#[async_trait]
impl Journal for RunJournal {
    async fn upload_begins(&self, key: &str) -> Result<(), EngineError> {
        self.note(Note::Begins { key }).await
    }

    async fn upload_begun(&self, _key: &str, upload_id: &str) -> Result<(), EngineError> {
        self.note(Note::Begun { upload_id }).await
    }
}

/// The end of a run: one fenced transaction with everything that follows from it.
struct End<'a> {
    executor: &'a Executor,
    run: &'a RunRow,
    context: &'a Context,
    lines: Vec<String>,
    done: Result<Done, EngineError>,
    involved: Involved,
    has_crashed: bool,
}

impl End<'_> {
    /// Tries until it is written or the lease would be anybody's. Gives back what was done when that could not be
    /// recorded.
    async fn write(mut self) -> Option<Result<Done, EngineError>> {
        let words = self.last_words();
        self.lines.push(words);
        let status = self.status();
        let deadline = tokio::time::Instant::now() + self.executor.settings.lease;
        loop {
            match self.try_write(status).await {
                Ok(true) => break,
                Ok(false) => {
                    tracing::warn!(run = self.run.id, "lost the lease; another worker ends this run");
                    return Some(self.done);
                }
                Err(AppError::Unavailable(reason)) if tokio::time::Instant::now() < deadline => {
                    tracing::warn!(run = self.run.id, reason, "the end of a run is not written yet; trying again");
                    tokio::time::sleep(END_AGAIN).await;
                }
                Err(error) => {
                    tracing::error!(run = self.run.id, ?error, "the end of a run was not written");
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
                            tracing::error!(run = self.run.id, ?error, "nor that it failed");
                            None
                        }
                    };
                }
            }
        }
        metrics::counter!("holdfast_runs_ended_total", "status" => status.as_str()).increment(1);
        let code = self.done.as_ref().err().map(|error| error.code.as_str());
        tracing::info!(run = self.run.id, kind = self.run.kind, status = status.as_str(), code, "run ended");
        None
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
            Ok(Done::Restored(report)) => {
                format!("Restored {} entries from {} bytes.", report.entries, report.plain_bytes)
            }
            Ok(Done::Verified) => "Everything was read back, and it is what was written.".to_owned(),
            Ok(Done::ServerChecked(_)) => "The server is online.".to_owned(),
            Ok(Done::DestinationChecked { .. }) => "The destination is reachable.".to_owned(),
            Ok(Done::StreamTested { answer }) => format!("A sample was delivered. {answer}"),
            Err(error) => format!("{} {}", error.message, error.code.advice()),
        }
    }

    async fn try_write(&self, status: RunStatus) -> Result<bool> {
        let (app, settings, run) = (&self.executor.app, &self.executor.settings, self.run);
        let now = app.now();
        let id = RunId(run.id);
        let mut tx = app.store.begin().await?;
        // The task before its run, as those who cancel do: two orders would deadlock.
        if let Some(task) = run.task_id {
            tasks::find_locked(&mut tx, TaskId(task)).await?;
        }
        // The run before its lines, as those who take it away do.
        let counts = counts(&self.context.progress, self.context.log.warnings(), 0.0);
        runs::update_progress(&mut tx, id, run.lease_epoch, &counts, lease_until(now, settings)).await?;
        append_lines(&mut tx, id, run.lease_epoch, &self.lines, now).await?;
        let code = self.done.as_ref().err().map(|error| error.code);
        if !runs::finish(&mut tx, id, run.lease_epoch, status, code, now).await? {
            return Ok(false);
        }
        self.note_contact(&mut tx, now).await?;
        self.note_outcome(&mut tx, now).await?;
        let follow_up = FollowUp { run, epoch: run.lease_epoch, code, is_loss: self.has_crashed };
        let next = follow_up.write(&mut tx, settings, now).await?;
        self.note_news(&mut tx, next, counts.warnings, now).await?;
        tx.commit().await?;
        app.wake_postman();
        Ok(true)
    }

    /// What people hear of it: of a backup that was stored or was not, not of one that somebody stopped.
    async fn note_news(&self, tx: &mut Tx, next: Next, warnings: i64, now: Timestamp) -> Result<(), StoreError> {
        if RunKind::parse(&self.run.kind) != Some(RunKind::Backup) {
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
        self.executor.herald.run_ended(tx, &next.ending(self.run, ended, warnings), now).await
    }

    /// What follows from the end, beyond the run itself.
    async fn note_outcome(&self, tx: &mut Tx, now: Timestamp) -> Result<(), StoreError> {
        let kind = RunKind::parse(&self.run.kind);
        match &self.done {
            Ok(Done::Backup(backup)) => self.record(tx, backup, now).await?,
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
            Ok(Done::DestinationChecked { marker }) => self.note_destination(tx, marker.as_deref(), now).await?,
            Ok(Done::Restored(_)) => self.note_found_destination(tx, now).await?,
            Ok(Done::StreamTested { answer }) => {
                if let Some(stream) = self.run.stream_id {
                    streams::update_test(tx, StreamId(stream), true, answer, now).await?;
                }
            }
            Err(error) => match (kind, error.code) {
                (Some(RunKind::Verify), FailureCode::Missing) => {
                    self.note_verification(tx, Verification::Missing, now).await?;
                }
                (Some(RunKind::Verify), FailureCode::Corrupt | FailureCode::WrongPassword) => {
                    self.note_verification(tx, Verification::Corrupt, now).await?;
                }
                (Some(RunKind::TestStream), _) => {
                    if let Some(stream) = self.run.stream_id {
                        streams::update_test(tx, StreamId(stream), false, &error.message, now).await?;
                    }
                }
                (Some(RunKind::CheckDestination), _) => {
                    if let Some(destination) = self.involved.destination {
                        self.note_lost_destination(tx, destination, error, now).await?;
                    }
                }
                // Found in passing; backups tell of it themselves.
                (Some(RunKind::Verify | RunKind::Restore), code) if LOST_DESTINATION.contains(&code) => {
                    let backup = BackupId(self.run.backup_id.unwrap_or_default());
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
        let backup = BackupId(self.run.backup_id.unwrap_or_default());
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
        self.executor.herald.destination_lost(tx, destination, RunId(self.run.id), found, now).await
    }

    async fn note_verification(&self, tx: &mut Tx, found: Verification, now: Timestamp) -> Result<(), StoreError> {
        let Some(backup) = self.run.backup_id else { return Ok(()) };
        if found != Verification::Verified {
            tracing::error!(backup, found = found.as_str(), "a stored backup cannot be restored");
            metrics::counter!("holdfast_backups_damaged_total").increment(1);
            let (owner, detail) = (Some(UserId(self.run.user_id)), format!("{backup} {}", found.as_str()));
            audit::insert(tx, At(now), owner, &Origin::default(), "backup.found_damaged", &detail).await?;
            let reason = self.done.as_ref().err().map_or("", |error| error.message.as_str());
            self.executor.herald.damaged(tx, BackupId(backup), RunId(self.run.id), reason, now).await?;
        }
        backups::update_verification(tx, BackupId(backup), found, now).await
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
                servers::update_offline(tx, server.id, error.code, &error.message).await?;
                // A backup tells of its failure itself.
                if was_known || RunKind::parse(&self.run.kind) == Some(RunKind::Backup) {
                    return Ok(());
                }
                let found = (error.code, error.message.as_str());
                self.executor.herald.server_lost(tx, server.id, RunId(self.run.id), found, now).await
            }
            _ => Ok(()),
        }
    }

    /// Records the backup and, now that it is there, lets go of what it supersedes.
    async fn record(&self, tx: &mut Tx, backup: &BackupDone, now: Timestamp) -> Result<(), StoreError> {
        let BackupDone { report, settings, password, source, .. } = backup;
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let task = TaskId(self.run.task_id.unwrap_or_default());
        let new = NewBackup {
            task,
            destination: settings.destination,
            run: RunId(self.run.id),
            task_label: settings.label.clone(),
            source: source.clone(),
            content: report.content,
            key: report.key.clone(),
            size_bytes: number(report.stored_bytes),
            sha256: report.stored_sha256.clone(),
            plain_bytes: number(report.plain_bytes),
            plain_sha256: report.plain_sha256.clone(),
            entries: number(report.entries),
            password: password.clone(),
        };
        backups::insert(tx, UserId(self.run.user_id), &new, now).await?;
        uploads::delete(tx, RunId(self.run.id)).await?;
        self.note_destination(tx, report.marker.as_deref(), now).await?;
        // As the task is now: somebody who raised the number meanwhile wants to keep more.
        let keep = tasks::find(tx, task).await?.map_or(settings.storage.max_backups, |row| row.max_backups);
        let stored = backups::list_of_task(tx, task).await?;
        for (id, verdict) in retention::plan(&stored, keep) {
            if let Verdict::Remove(why) = verdict
                && backups::mark_deleted(tx, id, DeletedReason::Retention, now).await?
            {
                let line = format!("Removing backup {id}: {}.", why.text());
                runs::append_line(tx, RunId(self.run.id), self.run.lease_epoch, &line, now).await?;
            }
        }
        Ok(())
    }
}
