//! Writes notices in the same transaction as the event they report, so that users are notified if it happened, and only
//! then. The dispatcher delivers them.

use holdfast_core::Timestamp;
use holdfast_core::clock;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{BackupId, DestinationId, RunId, ServerId, StreamId, TaskId, UserId};
use holdfast_core::notice::{self, NoticeKind, Told, Trouble};
use holdfast_notify::{About, BackupDamaged, Maintenance, NoticeContent, Outcome, Ping, RunEnded, TaskFacts};
use holdfast_store::notices::{self, Audience, Listener, NewNotice, OverdueRow, Recipient, Subject};
use holdfast_store::repositories::RepositoryRow;
use holdfast_store::runs::RunRow;
use holdfast_store::{DbTime, Tx, backups, destinations, servers, tasks};

use holdfast_core::clock::later;

use super::incidents::Incidents;
use super::writing::{self, Owner, Result, new_event, post, tell};

/// An overdue task is reported once a day.
const OVERDUE_AGAIN_SECS: i64 = notice::OVERDUE_AGAIN.as_secs();
/// A failure that was reported within this time makes a notice that the task is overdue unnecessary.
const TOLD_TODAY_SECS: i64 = 23 * 3600;
/// How long to wait for a run in progress, which may still succeed, before looking at an overdue task again.
const OVERDUE_PATIENCE_SECS: i64 = 1_800;

/// Writes notices; knows the base URL of their links.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    base_url: String,
    pub incidents: Incidents,
}

/// Slots of a task that passed while no worker was running.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MissedSlots {
    pub owner: UserId,
    pub task: TaskId,
    /// What records the newest of them.
    pub run: RunId,
    /// The oldest of them.
    pub since: Timestamp,
    pub slots: usize,
}

/// The result of a backup run, as reported to users.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BackupResult<'a> {
    Stored { plain_bytes: i64, stored_bytes: i64, entries: i64 },
    Failed { code: FailureCode, reason: &'a str },
}

/// The end of a backup run and what follows from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedBackup<'a> {
    pub run: &'a RunRow,
    pub task: TaskId,
    pub result: BackupResult<'a>,
    pub warnings: i64,
    /// It will be retried: users are told only how the retry ends.
    pub will_retry: bool,
    pub is_paused: bool,
}

fn facts(subject: &Subject) -> TaskFacts<'_> {
    TaskFacts {
        label: &subject.label,
        server: &subject.server_label,
        destination: &subject.destination_label,
        next_run_at: subject.next_run_at.map(|at| at.0),
    }
}

fn told(subject: &Subject) -> Option<Told<Trouble>> {
    Some(Told { what: subject.told_code?, at: subject.told_at?.0 })
}

impl Outbox {
    /// `incident_tasks` is how many tasks that fail for one cause make an incident.
    pub(crate) fn new(base_url: &str, incident_tasks: usize) -> Self {
        Self { base_url: base_url.to_owned(), incidents: Incidents::new(base_url, incident_tasks) }
    }

    fn about<'a>(&'a self, event: &'a str, owner: &'a Owner, at: Timestamp) -> About<'a> {
        writing::about(&self.base_url, event, owner, at)
    }

    /// A backup run has ended.
    pub(crate) async fn run_ended(&self, tx: &mut Tx, ending: &EndedBackup<'_>, now: Timestamp) -> Result {
        let task = ending.task;
        let Some(subject) = notices::find_subject(tx, task).await? else { return Ok(()) };
        match ending.result {
            BackupResult::Stored { .. } => {
                let schedule = tasks::find(tx, task).await?.map(|row| row.spec.schedule);
                let overdue = schedule.and_then(|schedule| notice::overdue_at(&schedule, now));
                notices::note_success(tx, task, overdue).await?;
                self.send_ping(tx, &subject, NoticeKind::HeartbeatSuccess, "The backup succeeded.", now).await?;
                self.succeeded(tx, ending, &subject, now).await?;
                self.incidents.task_succeeded(tx, &subject, now).await
            }
            BackupResult::Failed { code, reason } => {
                let is_shared = self.incidents.task_failed(tx, ending.run, &subject, (code, reason), now).await?;
                if ending.will_retry {
                    return Ok(());
                }
                self.send_ping(tx, &subject, NoticeKind::HeartbeatFail, reason, now).await?;
                // Users were told of the incident, but not that this task is paused.
                if is_shared && !ending.is_paused {
                    return Ok(());
                }
                self.failed(tx, ending, &subject, (code, reason), now).await
            }
        }
    }

    async fn succeeded(&self, tx: &mut Tx, ending: &EndedBackup<'_>, subject: &Subject, now: Timestamp) -> Result {
        let BackupResult::Stored { plain_bytes, stored_bytes, entries } = ending.result else { return Ok(()) };
        let task = subject.id;
        // The end of an incident is reported once for all its tasks.
        let was_told = subject.told_code.is_some() && subject.incident_id.is_none();
        let wants = |listener: &Listener| {
            let kind = notice::success_kind(listener.on_failure, was_told);
            kind.is_wanted(listener.on_success, listener.on_failure).then_some((listener.id, kind))
        };
        let all = if subject.streams_count == 0 {
            Vec::new()
        } else {
            notices::list_listeners(tx, Audience::Task(task)).await?
        };
        let listeners: Vec<(StreamId, NoticeKind)> = all.iter().filter_map(wants).collect();
        if listeners.is_empty() {
            return Ok(());
        }
        let before = backups::find_size_before(tx, task, ending.run.id).await?;
        let owner = Owner::of(subject, now);
        let event = new_event();
        for (stream, kind) in listeners {
            let run = RunEnded {
                run: ending.run.id,
                started_at: ending.run.started_at.map(|at| at.0),
                warnings: ending.warnings,
                outcome: Outcome::Stored {
                    plain_bytes,
                    stored_bytes,
                    files: entries,
                    before,
                    was_failing: kind == NoticeKind::Recovered,
                },
            };
            let message = holdfast_notify::run_ended(&self.about(&event, &owner, now), &facts(subject), &run);
            post(tx, &owner, Recipient::Stream(stream), Some(task), kind, message, now).await?;
        }
        Ok(())
    }

    async fn failed(
        &self,
        tx: &mut Tx,
        ending: &EndedBackup<'_>,
        subject: &Subject,
        (code, reason): (FailureCode, &str),
        now: Timestamp,
    ) -> Result {
        let task = subject.id;
        if !ending.is_paused && !notice::is_news(told(subject), Trouble::Failing(code), now) {
            return Ok(());
        }
        let listeners = self.listeners(tx, subject, NoticeKind::Failure).await?;
        if listeners.is_empty() {
            return Ok(());
        }
        let trouble = Trouble::Failing(code);
        let is_reminder = subject.told_code == Some(trouble);
        notices::update_told(tx, task, trouble, now).await?;
        let owner = Owner::of(subject, now);
        let event = new_event();
        let run = RunEnded {
            run: ending.run.id,
            started_at: ending.run.started_at.map(|at| at.0),
            warnings: ending.warnings,
            outcome: Outcome::Failed { code, reason, is_reminder, is_paused: ending.is_paused },
        };
        let message = holdfast_notify::run_ended(&self.about(&event, &owner, now), &facts(subject), &run);
        tell(tx, &owner, &listeners, Some(task), NoticeKind::Failure, &message, now).await
    }

    /// The streams of a task that want this kind of notice. Most tasks have no streams, and cost no query.
    async fn listeners(&self, tx: &mut Tx, subject: &Subject, kind: NoticeKind) -> Result<Vec<Listener>> {
        if subject.streams_count == 0 {
            return Ok(Vec::new());
        }
        let mut all = notices::list_listeners(tx, Audience::Task(subject.id)).await?;
        all.retain(|listener| kind.is_wanted(listener.on_success, listener.on_failure));
        Ok(all)
    }

    /// A run begins: writes a ping for the task's heartbeat URL.
    pub(crate) async fn run_started(&self, tx: &mut Tx, task: TaskId, now: Timestamp) -> Result {
        match notices::find_subject(tx, task).await? {
            Some(subject) => self.send_ping(tx, &subject, NoticeKind::HeartbeatStart, "The backup started.", now).await,
            None => Ok(()),
        }
    }

    async fn send_ping(&self, tx: &mut Tx, subject: &Subject, kind: NoticeKind, text: &str, now: Timestamp) -> Result {
        if !subject.has_heartbeat {
            return Ok(());
        }
        let suffix = kind.heartbeat_suffix().map(str::to_owned);
        let content = NoticeContent::Ping(Ping { suffix, text: text.to_owned() });
        let new = NewNotice {
            owner: subject.user_id,
            recipient: Recipient::Heartbeat(subject.id),
            task: Some(subject.id),
            kind,
            event: &new_event(),
            title: text,
            content: &content.to_text(),
            held_until: None,
        };
        notices::insert(tx, &new, now).await
    }

    /// Slots of tasks passed while no worker was running: one message for each user if there are many.
    pub(crate) async fn missed(&self, tx: &mut Tx, all: &[MissedSlots], now: Timestamp) -> Result {
        let mut owners: Vec<UserId> = all.iter().map(|missed| missed.owner).collect();
        owners.sort_unstable();
        owners.dedup();
        for owner in owners {
            let own: Vec<&MissedSlots> = all.iter().filter(|missed| missed.owner == owner).collect();
            let tasks: Vec<(TaskId, RunId)> = own.iter().map(|missed| (missed.task, missed.run)).collect();
            if self.incidents.tasks_missed(tx, owner, &tasks, now).await? {
                continue;
            }
            for missed in own {
                self.task_missed(tx, missed, now).await?;
            }
        }
        Ok(())
    }

    async fn task_missed(&self, tx: &mut Tx, missed: &MissedSlots, now: Timestamp) -> Result {
        let MissedSlots { task, run, since, slots, .. } = *missed;
        let Some(subject) = notices::find_subject(tx, task).await? else { return Ok(()) };
        let trouble = Trouble::Failing(FailureCode::Missed);
        if !notice::is_news(told(&subject), trouble, now) {
            return Ok(());
        }
        let listeners = self.listeners(tx, &subject, NoticeKind::Missed).await?;
        if listeners.is_empty() {
            return Ok(());
        }
        notices::update_told(tx, task, trouble, now).await?;
        let owner = Owner::of(&subject, now);
        let event = new_event();
        let about = self.about(&event, &owner, now);
        let message = holdfast_notify::missed(&about, &facts(&subject), run, since, slots);
        tell(tx, &owner, &listeners, Some(task), NoticeKind::Missed, &message, now).await
    }

    /// A task has had no success for too long.
    pub(crate) async fn overdue(&self, tx: &mut Tx, row: &OverdueRow, now: Timestamp) -> Result {
        let is_under_way =
            row.running_since.is_some_and(|since| now.duration_since(since.0).as_secs() < OVERDUE_AGAIN_SECS);
        let wait = if is_under_way { OVERDUE_PATIENCE_SECS } else { OVERDUE_AGAIN_SECS };
        if !notices::move_overdue(tx, row, later(now, wait)).await? || is_under_way {
            return Ok(());
        }
        let task = row.id;
        let Some(subject) = notices::find_subject(tx, task).await? else { return Ok(()) };
        // Users who were told today that the task fails, alone or with others, know already.
        let is_known = subject.incident_id.is_some()
            || subject.told_at.is_some_and(|told| now.duration_since(told.0).abs().as_secs() < TOLD_TODAY_SECS);
        if is_known {
            return Ok(());
        }
        tracing::warn!(task = task.0, "this task has had no success for too long");
        let listeners = self.listeners(tx, &subject, NoticeKind::Overdue).await?;
        if listeners.is_empty() {
            return Ok(());
        }
        notices::renew_told(tx, task, Trouble::Overdue, now).await?;
        let owner = Owner::of(&subject, now);
        let event = new_event();
        let (last, running) = (row.last_success_at.map(|at| at.0), row.running_since.map(|at| at.0));
        let message = holdfast_notify::overdue(&self.about(&event, &owner, now), &facts(&subject), task, last, running);
        tell(tx, &owner, &listeners, Some(task), NoticeKind::Overdue, &message, now).await
    }

    /// A stored backup cannot be restored any more. If no stream of its task wants this, its owner's other streams get
    /// it.
    pub(crate) async fn damaged(&self, tx: &mut Tx, id: BackupId, run: RunId, reason: &str, now: Timestamp) -> Result {
        let Some(backup) = backups::find(tx, id).await? else { return Ok(()) };
        let Some(owner) = Owner::find(tx, backup.user_id, now).await? else { return Ok(()) };
        let destination = destinations::find(tx, backup.destination_id).await?;
        let kind = NoticeKind::BackupDamaged;
        let task = backup.task_id;
        let mut listeners = match task {
            Some(task) => notices::list_listeners(tx, Audience::Task(task)).await?,
            None => Vec::new(),
        };
        if !listeners.iter().any(|listener| kind.is_wanted(listener.on_success, listener.on_failure)) {
            listeners = notices::list_listeners(tx, Audience::User(owner.user)).await?;
        }
        let event = new_event();
        let found = BackupDamaged {
            task: &backup.task_label,
            destination: destination.as_ref().map_or("", |row| row.label.as_str()),
            key: &backup.locator,
            made_at: backup.created_at.0,
            run,
            reason,
        };
        let message = found.message(&self.about(&event, &owner, now));
        tell(tx, &owner, &listeners, task, kind, &message, now).await
    }

    /// A stored backup looks wrong, so old ones are not removed: reported at once, when it looks wrong in another way,
    /// and once a day. `told` is what was last reported, and when. If no stream of the task wants this, its owner's
    /// other streams get it.
    pub(crate) async fn suspicious(
        &self,
        tx: &mut Tx,
        task: TaskId,
        run: RunId,
        (signs, reason): (&str, &str),
        told: Option<(String, DbTime)>,
        now: Timestamp,
    ) -> Result {
        let told = told.as_ref().map(|(signs, at)| Told { what: signs.as_str(), at: at.0 });
        if !notice::is_news(told, signs, now) {
            return Ok(());
        }
        let Some(subject) = notices::find_subject(tx, task).await? else { return Ok(()) };
        let kind = NoticeKind::BackupSuspicious;
        let mut listeners = self.listeners(tx, &subject, kind).await?;
        if listeners.is_empty() {
            listeners = notices::list_listeners(tx, Audience::User(subject.user_id)).await?;
        }
        tasks::update_hold_told(tx, task, now).await?;
        let owner = Owner::of(&subject, now);
        let event = new_event();
        let about = self.about(&event, &owner, now);
        let message = holdfast_notify::backup_suspicious(&about, &facts(&subject), run, task, reason);
        tell(tx, &owner, &listeners, Some(task), kind, &message, now).await
    }

    /// A server that was fine before is not any more. Not used for backup runs, which report it themselves.
    pub(crate) async fn server_lost(
        &self,
        tx: &mut Tx,
        id: ServerId,
        run: RunId,
        (code, reason): (FailureCode, &str),
        now: Timestamp,
    ) -> Result {
        let Some(server) = servers::find(tx, id).await? else { return Ok(()) };
        let Some(owner) = Owner::find(tx, server.user_id, now).await? else { return Ok(()) };
        let listeners = notices::list_listeners(tx, Audience::Server(id)).await?;
        let event = new_event();
        let about = self.about(&event, &owner, now);
        let (kind, message) = if code == FailureCode::HostKeyChanged {
            (NoticeKind::HostKeyChanged, holdfast_notify::host_key_changed(&about, &server.label, run))
        } else {
            let message = holdfast_notify::server_unreachable(&about, &server.label, run, code, reason);
            (NoticeKind::ServerUnreachable, message)
        };
        tell(tx, &owner, &listeners, None, kind, &message, now).await
    }

    pub(crate) async fn destination_lost(
        &self,
        tx: &mut Tx,
        id: DestinationId,
        run: RunId,
        (code, reason): (FailureCode, &str),
        now: Timestamp,
    ) -> Result {
        let Some(row) = destinations::find(tx, id).await? else { return Ok(()) };
        let Some(owner) = Owner::find(tx, row.user_id, now).await? else { return Ok(()) };
        let listeners = notices::list_listeners(tx, Audience::Destination(id)).await?;
        let event = new_event();
        let about = self.about(&event, &owner, now);
        let message = holdfast_notify::destination_unreachable(&about, &row.label, run, code, reason);
        tell(tx, &owner, &listeners, None, NoticeKind::DestinationUnreachable, &message, now).await
    }

    /// A repository could not be pruned or checked. If no stream of its task wants this, its owner's other streams get
    /// it.
    pub(crate) async fn repository_neglected(
        &self,
        tx: &mut Tx,
        row: &RepositoryRow,
        (what, run): (Maintenance, RunId),
        (code, reason): (FailureCode, &str),
        now: Timestamp,
    ) -> Result {
        let Some(owner) = Owner::find(tx, row.user_id, now).await? else { return Ok(()) };
        let destination = destinations::find(tx, row.destination_id).await?;
        let kind = NoticeKind::RepositoryNeglected;
        let (mut listeners, mut label) = (Vec::new(), String::new());
        if let Some(task) = row.task_id {
            listeners = notices::list_listeners(tx, Audience::Task(task)).await?;
            label = tasks::find(tx, task).await?.map(|row| row.label).unwrap_or_default();
        }
        if !listeners.iter().any(|listener| kind.is_wanted(listener.on_success, listener.on_failure)) {
            listeners = notices::list_listeners(tx, Audience::User(owner.user)).await?;
        }
        let event = new_event();
        let of = if label.is_empty() { row.folder.as_str() } else { label.as_str() };
        let at = destination.as_ref().map_or("", |row| row.label.as_str());
        let about = self.about(&event, &owner, now);
        let message = holdfast_notify::repository_neglected(&about, (of, at), what, run, code, reason);
        tell(tx, &owner, &listeners, row.task_id, kind, &message, now).await
    }

    pub(crate) async fn token_expires(&self, tx: &mut Tx, token: &notices::ExpiringToken, now: Timestamp) -> Result {
        if !notices::note_expiry_told(tx, token.id, now).await? {
            return Ok(());
        }
        let quiet = (token.quiet_from.as_deref(), token.quiet_until.as_deref());
        let owner = Owner::new(token.user_id, &token.timezone, quiet, now);
        let listeners = notices::list_listeners(tx, Audience::User(owner.user)).await?;
        let event = new_event();
        let about = self.about(&event, &owner, now);
        let message = holdfast_notify::token_expiring(&about, &token.name, token.expires_at.0);
        tell(tx, &owner, &listeners, None, NoticeKind::TokenExpiring, &message, now).await
    }

    /// A test message for a stream.
    pub(crate) fn sample(&self, stream: &str, timezone: &str, now: Timestamp) -> NoticeContent {
        let zone = clock::zone_or_utc(timezone);
        let event = new_event();
        let about = About { event: &event, base_url: &self.base_url, zone: &zone, at: now };
        NoticeContent::Message(holdfast_notify::test_message(&about, stream))
    }

    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }
}
