//! Reports backups of several tasks that fail for one cause in one message when that begins and one when it is over,
//! instead of one for each task.

use holdfast_core::Timestamp;
use holdfast_core::clock::later;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{IncidentId, RunId, TaskId, UserId};
use holdfast_core::incident::{self, FailingTask, IncidentPlace};
use holdfast_core::notice::NoticeKind;
use holdfast_notify::{IncidentCause, IncidentFacts};
use holdfast_store::incidents::{self, IncidentRow};
use holdfast_store::notices::{self, Audience, Listener, Subject};
use holdfast_store::runs::RunRow;
use holdfast_store::{Tx, destinations, servers};

use super::writing::{Owner, Result, about, new_event, tell};

#[derive(Debug, Clone)]
pub(crate) struct Incidents {
    base_url: String,
    /// How many tasks make an incident; zero for never.
    least: usize,
}

/// What is reported of missed slots, whose runs never began.
const MISSED: &str = "No worker was running when they were due.";

/// How many affected tasks a message names.
const LABELS: i64 = 10;

/// A run that failed, and why.
struct Failed<'a> {
    run: RunId,
    code: FailureCode,
    reason: &'a str,
    now: Timestamp,
}

impl Incidents {
    pub(super) fn new(base_url: &str, least: usize) -> Self {
        Self { base_url: base_url.to_owned(), least }
    }

    /// A task has failed, also if it will be retried. Returns whether it is part of an incident, and reports one that
    /// begins.
    pub(super) async fn task_failed(
        &self,
        tx: &mut Tx,
        run: &RunRow,
        subject: &Subject,
        (code, reason): (FailureCode, &str),
        now: Timestamp,
    ) -> Result<bool> {
        let failed = Failed { run: run.id, code, reason, now };
        if let Some(incident) = self.find_or_begin(tx, subject, &failed).await? {
            self.tell_others(tx, &incident, subject, &failed).await?;
            return Ok(true);
        }
        if subject.incident_id.is_some() {
            incidents::leave(tx, subject.id).await?;
        }
        Ok(false)
    }

    /// The incident that a failing task is part of, which may begin with it.
    async fn find_or_begin(&self, tx: &mut Tx, subject: &Subject, failed: &Failed<'_>) -> Result<Option<IncidentRow>> {
        let code = failed.code;
        if self.least == 0 || !incident::can_be_shared(code) {
            return Ok(None);
        }
        let Some(failing) = incidents::find_task(tx, subject.id).await? else { return Ok(None) };
        if let Some(open) = find_open(tx, subject.user_id, code, |place| place.explains(code, failing)).await? {
            if subject.incident_id != Some(open.id.0) {
                incidents::join(tx, open.id, subject.id).await?;
            }
            return Ok(Some(open));
        }
        let recent = list_recent(tx, subject, failing, failed).await?;
        let Some((place, tasks)) = incident::begins(code, failing, &recent, self.least) else { return Ok(None) };
        begin(tx, subject.user_id, code, (place, &tasks), failed.now).await
    }

    /// Slots of these tasks of a user passed while no worker was running, as their runs record. Returns whether that is
    /// an incident, and reports one that begins.
    pub(super) async fn tasks_missed(
        &self,
        tx: &mut Tx,
        owner: UserId,
        missed: &[(TaskId, RunId)],
        now: Timestamp,
    ) -> Result<bool> {
        let code = FailureCode::Missed;
        if self.least == 0 {
            return Ok(false);
        }
        let incident = match find_open(tx, owner, code, |place| place == IncidentPlace::Service).await? {
            Some(open) => Some(open),
            None => {
                let recent = incidents::list_missed(tx, owner, later(now, -incident::WINDOW_SECS)).await?;
                if recent.len() < self.least {
                    return Ok(false);
                }
                begin(tx, owner, code, (IncidentPlace::Service, &recent), now).await?
            }
        };
        let Some(incident) = incident else { return Ok(false) };
        for (task, run) in missed {
            incidents::join(tx, incident.id, *task).await?;
            if let Some(subject) = notices::find_subject(tx, *task).await? {
                let failed = Failed { run: *run, code, reason: MISSED, now };
                self.tell_others(tx, &incident, &subject, &failed).await?;
            }
        }
        Ok(true)
    }

    /// Reports the incident to those streams of its tasks, or of this one, that were not told yet.
    async fn tell_others(&self, tx: &mut Tx, incident: &IncidentRow, subject: &Subject, failed: &Failed<'_>) -> Result {
        let is_new = incident.created_at.0 == failed.now;
        let audience = if is_new { Audience::IncidentTasks(incident.id) } else { Audience::Task(subject.id) };
        if subject.streams_count == 0 && !is_new {
            return Ok(());
        }
        let kind = NoticeKind::IncidentBegun;
        let mut told = Vec::new();
        for listener in notices::list_listeners(tx, audience).await? {
            let is_wanted = kind.is_wanted(listener.on_success, listener.on_failure);
            if is_wanted && incidents::insert_stream(tx, incident.id, listener.id).await? {
                told.push(listener);
            }
        }
        if told.is_empty() {
            return Ok(());
        }
        let owner = Owner::of(subject, failed.now);
        let event = new_event();
        let about = about(&self.base_url, &event, &owner, failed.now);
        let label = find_label(tx, incident.place).await?;
        let affected = Affected::find(tx, incident.id).await?;
        let facts = facts(incident, &label, &affected);
        let message = holdfast_notify::incident_begun(&about, &facts, failed.run, failed.reason);
        tell(tx, &owner, &told, None, kind, &message, failed.now).await
    }

    /// A task has succeeded, which may end the incident that it was part of.
    pub(super) async fn task_succeeded(&self, tx: &mut Tx, subject: &Subject, now: Timestamp) -> Result {
        let Some(id) = subject.incident_id.map(IncidentId) else { return Ok(()) };
        incidents::note_success(tx, subject.id).await?;
        match incidents::find(tx, id).await? {
            Some(incident) => self.end_if_over(tx, &incident, now).await,
            None => Ok(()),
        }
    }

    /// Reports an incident that is over, and deletes it.
    pub(crate) async fn end_if_over(&self, tx: &mut Tx, incident: &IncidentRow, now: Timestamp) -> Result {
        if !incidents::is_over(tx, incident.id).await? {
            return Ok(());
        }
        let listeners = notices::list_listeners(tx, Audience::Incident(incident.id)).await?;
        let affected = Affected::find(tx, incident.id).await?;
        if !incidents::delete(tx, incident.id).await? {
            return Ok(());
        }
        self.tell_state(tx, incident, &listeners, NoticeKind::IncidentEnded, &affected, now).await
    }

    /// Reports that many more tasks are affected.
    pub(crate) async fn tell_of_growth(&self, tx: &mut Tx, incident: &IncidentRow, now: Timestamp) -> Result {
        let affected = Affected::find(tx, incident.id).await?;
        if !incidents::update_told(tx, incident.id, affected.count, now).await? {
            return Ok(());
        }
        let listeners = notices::list_listeners(tx, Audience::Incident(incident.id)).await?;
        self.tell_state(tx, incident, &listeners, NoticeKind::IncidentBegun, &affected, now).await
    }

    /// Reports how an incident has developed.
    async fn tell_state(
        &self,
        tx: &mut Tx,
        incident: &IncidentRow,
        listeners: &[Listener],
        kind: NoticeKind,
        affected: &Affected,
        now: Timestamp,
    ) -> Result {
        let Some(owner) = Owner::find(tx, incident.user_id, now).await? else { return Ok(()) };
        let event = new_event();
        let about = about(&self.base_url, &event, &owner, now);
        let label = find_label(tx, incident.place).await?;
        let facts = facts(incident, &label, affected);
        let message = if kind == NoticeKind::IncidentEnded {
            holdfast_notify::incident_ended(&about, &facts)
        } else {
            holdfast_notify::incident_grown(&about, &facts)
        };
        tell(tx, &owner, listeners, None, kind, &message, now).await
    }
}

async fn find_open(
    tx: &mut Tx,
    owner: UserId,
    code: FailureCode,
    is_it: impl Fn(IncidentPlace) -> bool,
) -> Result<Option<IncidentRow>> {
    let open = incidents::list_open(tx, owner, code).await?;
    Ok(open.into_iter().find(|incident| is_it(incident.place)))
}

/// The tasks that fail for the same reason at the moment, with this one.
async fn list_recent(
    tx: &mut Tx,
    subject: &Subject,
    failing: FailingTask,
    failed: &Failed<'_>,
) -> Result<Vec<FailingTask>> {
    let since = later(failed.now, -incident::WINDOW_SECS);
    let mut recent = incidents::list_failing(tx, subject.user_id, failed.code, since).await?;
    if !recent.contains(&failing) {
        recent.push(failing);
    }
    Ok(recent)
}

/// Begins an incident with these tasks. If another process has just begun it, they join.
async fn begin(
    tx: &mut Tx,
    owner: UserId,
    code: FailureCode,
    (place, tasks): (IncidentPlace, &[TaskId]),
    now: Timestamp,
) -> Result<Option<IncidentRow>> {
    let begun = incidents::insert(tx, owner, place, code, tasks.len(), now).await?;
    let incident = match begun {
        Some(id) => incidents::find(tx, id).await?,
        None => find_open(tx, owner, code, |other| other == place).await?,
    };
    let Some(incident) = incident else { return Ok(None) };
    for task in tasks {
        incidents::join(tx, incident.id, *task).await?;
    }
    if begun.is_some() {
        // One server was reported, and now it turns out that several are affected.
        incidents::delete_empty(tx, owner, code).await?;
        tracing::warn!(user = owner.0, code = code.as_str(), tasks = tasks.len(), "several tasks fail together");
    }
    Ok(Some(incident))
}

/// The tasks that are or were affected by an incident: how many, and the labels of the first.
struct Affected {
    count: i64,
    labels: Vec<String>,
}

impl Affected {
    async fn find(tx: &mut Tx, id: IncidentId) -> Result<Self> {
        let count = incidents::count_tasks(tx, id).await?;
        let labels = incidents::list_tasks(tx, id, LABELS).await?.into_iter().map(|task| task.label).collect();
        Ok(Self { count, labels })
    }
}

/// The label of the server or destination at fault; several servers have none.
async fn find_label(tx: &mut Tx, place: IncidentPlace) -> Result<String> {
    Ok(match place {
        IncidentPlace::Server(id) => servers::find(tx, id).await?.map(|row| row.label),
        IncidentPlace::Servers | IncidentPlace::Service => None,
        IncidentPlace::Destination(id) => destinations::find(tx, id).await?.map(|row| row.label),
    }
    .unwrap_or_default())
}

fn facts<'a>(incident: &IncidentRow, label: &'a str, affected: &'a Affected) -> IncidentFacts<'a> {
    let cause = match incident.place {
        IncidentPlace::Server(_) => IncidentCause::Server(label),
        IncidentPlace::Servers => IncidentCause::Servers,
        IncidentPlace::Destination(_) => IncidentCause::Destination(label),
        IncidentPlace::Service if incident.code == FailureCode::Missed => IncidentCause::NoWorker,
        IncidentPlace::Service => IncidentCause::LostWorker,
    };
    let Affected { count, labels } = affected;
    IncidentFacts { cause, code: incident.code, tasks: *count, labels, since: incident.created_at.0 }
}
