//! Claims a run, works on it through the engine, and brings it to its one end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdfast_app::{App, AppError, Result};
use holdfast_core::backup::{Content, RestoreTarget};
use holdfast_core::ids::{BackupId, DestinationId, RunId, ServerId, StreamId, TaskId};
use holdfast_core::lease::Beat;
use holdfast_core::random;
use holdfast_core::run::{FailureCode, RunKind, RunSubject};
use holdfast_engine::{Context, DestinationSpec, Engine, EngineError, Journal, OnWrite, WriteNote};
use holdfast_notify::Sender;
use holdfast_store::queue::{self, Room};
use holdfast_store::runs::{self, RunRow};
use holdfast_store::{StoreError, Tx, backups, probes, restores, streams, tasks, uploads, users};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::Settings;
use crate::dispatcher::stream_channel;
use crate::end::{BackupDone, Done, END_AGAIN, End, FollowUp, Involved};
use crate::lease::{Finished, Lease, lease_until};
use crate::outbox::{Ended, Outbox};
use crate::plans::{Planner, address};
use crate::scheduler::seconds;

const LOST: &str = "The worker that had this run went away before its end.";
const STOPPED: &str = "The service was stopped while this run was going.";

/// A database that is away is no fault of the run's: it can be tried again.
pub(crate) fn of_app(error: AppError) -> EngineError {
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
    pub outbox: Outbox,
    pub sender: Sender,
}

impl Executor {
    /// Takes as many queued runs as there is room for and the limits allow.
    pub(crate) async fn claim(&self, worker: &str, room: Room) -> Result<Vec<RunRow>> {
        let now = self.app.now();
        let until = lease_until(now, &self.settings);
        let mut tx = self.app.store.begin().await?;
        let claimed = queue::claim(&mut tx, worker, room, self.settings.at_once, until, now).await?;
        tx.commit().await?;
        for run in &claimed {
            metrics::histogram!("holdfast_run_wait_seconds").record(seconds(run.created_at.0, now));
        }
        Ok(claimed)
    }

    /// Works on a claimed run until its end is written, or the run is not ours any more.
    pub(crate) async fn run(&self, run: RunRow) {
        let id = run.id.0;
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

    /// Whatever the other side does, a short run ends in time: others wait for its place.
    async fn work(&self, run: &RunRow, context: &Context, involved: &mut Involved) -> Result<Done, EngineError> {
        if run.kind().is_long() {
            return self.work_on(run, context, involved).await;
        }
        let limit = self.settings.short_limit;
        let worked = tokio::time::timeout(limit, Box::pin(self.work_on(run, context, involved))).await;
        match worked {
            Ok(done) => done,
            Err(_) => {
                if let Some((destination, key)) = involved.probe.take() {
                    self.discard_probe(destination, key);
                }
                let code = match run.kind() {
                    RunKind::CheckDestination => FailureCode::DestinationUnavailable,
                    RunKind::TestStream => FailureCode::NotDelivered,
                    RunKind::Backup | RunKind::CheckServer | RunKind::Restore | RunKind::Verify | RunKind::Probe => {
                        FailureCode::Timeout
                    }
                };
                Err(EngineError::new(code, format!("There was no result after {} seconds.", limit.as_secs())))
            }
        }
    }

    /// Takes away what a check that was stopped may have left at a destination, without keeping the run's place.
    fn discard_probe(&self, destination: DestinationSpec, key: String) {
        const PATIENCE: Duration = Duration::from_secs(30);
        let engine = self.engine.clone();
        tokio::spawn(async move {
            let discarded = tokio::time::timeout(PATIENCE, engine.discard(&destination, &key, None)).await;
            if !matches!(discarded, Ok(Ok(()))) {
                tracing::warn!(key, "the probe of a check that was stopped may have been left at its destination");
            }
        });
    }

    async fn work_on(&self, run: &RunRow, context: &Context, involved: &mut Involved) -> Result<Done, EngineError> {
        match run.subject {
            RunSubject::Backup(task) => self.back_up(run, task, context, involved).await,
            RunSubject::Restore(backup) => self.restore(run, backup, context, involved).await,
            RunSubject::Verify(backup) => {
                let backup = self.find_backup(backup).await.map_err(of_app)?;
                let stored = self.planner.stored(&self.app.store, &backup).await.map_err(of_app)?;
                context.log.line(format!("Reading {} back, {} bytes.", stored.key, stored.size_bytes));
                self.engine.verify(&stored, context).await.map(|()| Done::Verified)
            }
            RunSubject::CheckServer(id) => {
                let planned = self.planner.server(&self.app, run.user_id, id).await;
                let (server, row) = planned.map_err(of_app)?;
                involved.note(&server, id, row.jump_server_id.map(ServerId));
                self.engine.check_server(&server, context).await.map(Done::ServerChecked)
            }
            RunSubject::CheckDestination(id) => {
                let mut tx = self.app.store.read().await.map_err(|error| of_app(error.into()))?;
                let spec = self.planner.destination(&mut tx, id).await.map_err(of_app)?;
                drop(tx);
                involved.destination = Some(id);
                let probe = format!("holdfast-check-{}", random::hex(&random::bytes::<8>()));
                involved.probe = Some((spec.clone(), probe.clone()));
                self.engine.check_destination(&spec, &probe).await.map(Done::DestinationChecked)
            }
            RunSubject::TestStream(id) => self.test_stream(run, id).await,
            RunSubject::Probe(id) => self.probe(run, id, context, involved).await,
        }
    }

    async fn back_up(
        &self,
        run: &RunRow,
        task: TaskId,
        context: &Context,
        involved: &mut Involved,
    ) -> Result<Done, EngineError> {
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
            run: run.id,
            epoch: run.lease_epoch,
            destination: planned.settings.destination,
        };
        let report = self.engine.back_up(&planned.plan, context, Arc::new(journal)).await?;
        Ok(Done::Backup(Box::new(BackupDone {
            report,
            settings: planned.settings,
            password: planned.plan.password,
            source,
            server: address(&planned.plan.server),
            destination: planned.plan.destination,
        })))
    }

    async fn restore(
        &self,
        run: &RunRow,
        backup: BackupId,
        context: &Context,
        involved: &mut Involved,
    ) -> Result<Done, EngineError> {
        let backup = self.find_backup(backup).await.map_err(of_app)?;
        let mut tx = self.app.store.read().await.map_err(|error| of_app(error.into()))?;
        let draft = restores::find(&mut tx, run.id).await.map_err(|error| of_app(error.into()))?;
        drop(tx);
        let draft = draft.ok_or_else(|| EngineError::internal("what this restore was asked to do is gone"))?;
        let (plan, jump) = self.planner.restore(&self.app, &backup, &draft).await.map_err(of_app)?;
        involved.note(&plan.server, draft.server, jump);
        context.log.line(format!("Restoring {}.", plan.backup.key));
        let context = Context { on_write: Some(self.write_mark(run)), ..context.clone() };
        Box::pin(self.engine.restore(&plan, &context)).await.map(Done::Restored)
    }

    /// Notes that a restore begins to change something, before it does, and when nothing is left of that.
    fn write_mark(&self, run: &RunRow) -> OnWrite {
        let (app, run, epoch) = (self.app.clone(), run.id, run.lease_epoch);
        Arc::new(move |note| {
            let app = app.clone();
            let noting = async move {
                let mut tx = app.store.begin().await.map_err(|error| error.to_string())?;
                let noted = match note {
                    WriteNote::Begins { folder } => {
                        restores::begin_writing(&mut tx, run, epoch, folder.as_deref(), app.now()).await
                    }
                    WriteNote::Undone => restores::note_undone(&mut tx, run, epoch).await,
                };
                match noted.map_err(|error| error.to_string())? {
                    true => tx.commit().await.map_err(|error| error.to_string()),
                    false => Err("The run is not this worker's any more.".to_owned()),
                }
            };
            Box::pin(noting)
        })
    }

    /// Sends a sample, and gives what the channel answered.
    async fn test_stream(&self, run: &RunRow, id: StreamId) -> Result<Done, EngineError> {
        let (found, stream, user) = async {
            let mut tx = self.app.store.read().await?;
            let found = stream_channel(&mut tx, id).await?;
            Ok((found, streams::find(&mut tx, id).await?, users::find(&mut tx, run.user_id).await?))
        }
        .await
        .map_err(of_app)?;
        let (Some((_, channel)), Some(stream), Some(user)) = (found, stream, user) else {
            return Err(EngineError::internal("the stream of this run is gone"));
        };
        let sample = self.outbox.sample(&stream.label, &user.timezone, self.app.now());
        let delivered = self.sender.deliver(&channel, &sample, user.is_admin).await;
        let answer = delivered.map_err(|refusal| EngineError::new(FailureCode::NotDelivered, refusal.text))?;
        Ok(Done::StreamTested { answer })
    }

    /// Looks at a server for somebody who makes a task.
    async fn probe(
        &self,
        run: &RunRow,
        id: ServerId,
        context: &Context,
        involved: &mut Involved,
    ) -> Result<Done, EngineError> {
        let (server, probe) = async {
            let question = probes::find_question(&mut self.app.store.read().await?, run.id).await?;
            let question = question.ok_or_else(|| crate::plans::gone("question"))?;
            let (server, row) = self.planner.server(&self.app, run.user_id, id).await?;
            involved.note(&server, id, row.jump_server_id.map(ServerId));
            Ok((server, self.planner.probe(&self.app, &row, question).await?))
        }
        .await
        .map_err(of_app)?;
        self.engine.probe(&server, &probe, context).await.map(Done::Probed)
    }

    /// Whoever watches from outside hears that a run begins; if that fails, the run goes on.
    async fn announce_start(&self, task: TaskId) {
        let announced = async {
            let mut tx = self.app.store.begin().await?;
            self.outbox.run_started(&mut tx, task, self.app.now()).await?;
            tx.commit().await
        };
        match announced.await {
            Ok(()) => self.app.wake_dispatcher(),
            Err(error) => tracing::warn!(task = task.0, %error, "the start of a run was not announced"),
        }
    }

    async fn find_backup(&self, id: BackupId) -> Result<backups::BackupRow> {
        let found = backups::find(&mut self.app.store.read().await?, id).await?;
        found.ok_or_else(|| crate::plans::gone("backup"))
    }

    /// What a run that ended in the middle of its work may have left.
    async fn left_by(&self, tx: &mut Tx, run: &RunRow) -> Result<String, StoreError> {
        Ok(match run.kind() {
            RunKind::Backup => "Nothing counts as backed up by it.".to_owned(),
            RunKind::Restore if !restores::has_written(tx, run.id).await? => format!(
                "What was there was not changed.{}",
                match self.content_of(tx, run).await? {
                    Some(Content::PostgresDatabase | Content::PostgresServer) =>
                        " Databases named holdfast_restore_… on the server are incomplete and can be dropped.",
                    Some(Content::MysqlDatabase | Content::MysqlServer) =>
                        " The database named holdfast_… that this run made on the server is incomplete and can be dropped.",
                    Some(Content::PostgresCluster | Content::MysqlServerDump | Content::Files) | None => "",
                }
            ),
            RunKind::Restore => match restores::find(tx, run.id).await?.map(|draft| draft.target) {
                Some(RestoreTarget::Files { path, .. }) => format!(
                    "Files may have been written to {path} on the server, and the last ones may be incomplete. Restore \
                     again to complete them."
                ),
                Some(RestoreTarget::Database { .. }) => self.left_in_database(tx, run).await?.to_owned(),
                None => String::new(),
            },
            RunKind::Verify
            | RunKind::CheckServer
            | RunKind::CheckDestination
            | RunKind::TestStream
            | RunKind::Probe => String::new(),
        })
    }

    async fn content_of(&self, tx: &mut Tx, run: &RunRow) -> Result<Option<Content>, StoreError> {
        let backup = match run.subject.backup() {
            Some(id) => backups::find(tx, id).await?,
            None => None,
        };
        backup.map(|backup| backup.content()).transpose()
    }

    /// PostgreSQL swaps names at the end; MySQL cannot, so there the copies may be all that is whole.
    async fn left_in_database(&self, tx: &mut Tx, run: &RunRow) -> Result<&'static str, StoreError> {
        const POSTGRESQL: &str = "The databases may have been replaced already: look whether they are what was restored. \
            Databases named holdfast_restore_… on the server can be dropped. If one has the name holdfast_old_…, it is what \
            was there before: look whether the restored one is in its place before you drop it. If nobody can connect to \
            a database any more, run ALTER DATABASE … ALLOW_CONNECTIONS true for it.";
        const MYSQL: &str = "What was there may be gone or half replaced. Databases named holdfast_… on the server are \
            copies of what was being restored, whole ones if the log says that they were being replaced: look at them \
            before you drop them, or restore again.";
        Ok(match self.content_of(tx, run).await? {
            Some(Content::MysqlDatabase | Content::MysqlServer) => MYSQL,
            Some(Content::PostgresDatabase | Content::PostgresServer) => POSTGRESQL,
            // Restored statement by statement, in place.
            Some(Content::PostgresCluster | Content::MysqlServerDump) => {
                "What was there may be gone or half replaced. Restore again."
            }
            Some(Content::Files) | None => "",
        })
    }

    /// Ends a run whose worker fell silent.
    pub(crate) async fn fail_lost(&self, lost: &Beat) -> Result<()> {
        let now = self.app.now();
        let Some(run) = runs::find(&mut self.app.store.read().await?, lost.run).await? else { return Ok(()) };
        let mut tx = self.app.store.begin().await?;
        if let Some(task) = run.subject.task() {
            tasks::find_locked(&mut tx, task).await?;
        }
        let Some(epoch) = queue::fail_lost(&mut tx, lost, now).await? else { return Ok(()) };
        let said = format!("{LOST} {}", self.left_by(&mut tx, &run).await?);
        runs::append_line(&mut tx, lost.run, epoch, &said, now).await?;
        let follow_up =
            FollowUp { run: &run, epoch, code: Some(FailureCode::WorkerLost), is_loss: true, warnings: run.warnings };
        let next = follow_up.write(&mut tx, &self.settings, now).await?;
        if run.kind() == RunKind::Backup {
            let ended = Ended::Failed { code: FailureCode::WorkerLost, reason: LOST };
            let ending = next.ending(&run, ended, run.warnings);
            self.outbox.run_ended(&mut tx, &ending, now).await?;
        }
        tx.commit().await?;
        self.app.wake_dispatcher();
        metrics::counter!("holdfast_leases_lost_total").increment(1);
        tracing::warn!(run = run.id.0, "the worker of this run went away; the run is ended as failed");
        Ok(())
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
