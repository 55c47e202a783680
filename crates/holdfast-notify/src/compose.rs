//! Composes every text that is sent to users from the facts of what happened.

use holdfast_core::clock::{self, Zone};
use holdfast_core::failure::FailureCode;
use holdfast_core::figures::size;
use holdfast_core::ids::{RunId, TaskId};
use holdfast_core::notice::NoticeKind;
use holdfast_core::{Timestamp, random};

use crate::message::{Fact, Item, Message, Tone};
use crate::text::{clean, counted, cut, duration, growth, more};

/// Reasons may contain what a server said; no channel accepts more than this, and nobody would read it.
const REASON_CHARS: usize = 900;
/// How many notices a digest lists; the rest are counted.
const DIGEST_ITEMS: usize = 20;

/// What every message needs.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub event: &'a str,
    /// The URL at which users reach the service, without a trailing slash.
    pub base_url: &'a str,
    pub zone: &'a Zone,
    pub at: Timestamp,
}

impl About<'_> {
    fn time(&self, at: Timestamp) -> String {
        clock::human_date_time(at, self.zone)
    }

    fn message(&self, kind: NoticeKind, tone: Tone, title: &str, text: &str) -> Message {
        Message {
            event: self.event.to_owned(),
            kind: kind.as_str().to_owned(),
            tone,
            title: cut(&plain(title), 200),
            text: cut(&clean(text, true), REASON_CHARS),
            facts: Vec::new(),
            link: None,
            at: self.time(self.at),
            at_micros: self.at.as_microsecond(),
            items: Vec::new(),
        }
    }

    fn link(&self, path: &str) -> Option<String> {
        Some(format!("{}{path}", self.base_url))
    }
}

fn fact(name: &str, value: &str) -> Fact {
    Fact { name: name.to_owned(), value: cut(&plain(value), 300) }
}

/// Makes text harmless, and never empty: channels refuse empty fields.
fn plain(text: &str) -> String {
    let text = clean(text, false);
    if text.trim().is_empty() { "–".to_owned() } else { text }
}

/// What messages say about a task.
#[derive(Debug, Clone, Copy)]
pub struct TaskFacts<'a> {
    pub label: &'a str,
    pub server: &'a str,
    pub destination: &'a str,
    pub next_run_at: Option<Timestamp>,
}

impl TaskFacts<'_> {
    fn facts(&self) -> Vec<Fact> {
        vec![fact("Task", self.label), fact("Server", self.server), fact("Destination", self.destination)]
    }

    fn next(&self, about: &About<'_>) -> Fact {
        let next = self.next_run_at.map_or_else(|| "none planned".to_owned(), |at| about.time(at));
        fact("Next run", &next)
    }
}

/// How a run went.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// `before` holds the plain bytes and the entries of the previous backup.
    Stored {
        plain_bytes: i64,
        stored_bytes: i64,
        files: i64,
        before: Option<(i64, i64)>,
        was_failing: bool,
    },
    Failed {
        code: FailureCode,
        reason: &'a str,
        is_reminder: bool,
        is_paused: bool,
    },
}

/// A run that has ended.
#[derive(Debug, Clone, Copy)]
pub struct RunEnded<'a> {
    pub run: RunId,
    pub started_at: Option<Timestamp>,
    pub warnings: i64,
    pub outcome: Outcome<'a>,
}

pub fn run_ended(about: &About<'_>, task: &TaskFacts<'_>, run: &RunEnded<'_>) -> Message {
    let mut facts = task.facts();
    let took = run.started_at.map(|started| duration((about.at.as_millisecond() - started.as_millisecond()).max(0)));
    let mut message = match run.outcome {
        Outcome::Stored { plain_bytes, stored_bytes, files, before, was_failing } => {
            facts.push(fact("Result", "successful"));
            facts.push(fact("Size", &format!("{}, stored as {}", size(plain_bytes), size(stored_bytes))));
            facts.push(fact("Files", &counted(files, "entry", "entries")));
            if let Some((bytes, entries)) = before {
                let mut change = growth(plain_bytes - bytes);
                if let Some(entries) = more(files - entries, "entry", "entries") {
                    change = format!("{change}, {entries}");
                }
                facts.push(fact("Since the last backup", &change));
            }
            let warned = match run.warnings {
                0 => String::new(),
                count => format!(" There were {}; see the log.", counted(count, "warning", "warnings")),
            };
            if was_failing {
                let text = format!(
                    "The task had been failing; this run succeeded, and the destination confirmed what was stored.{warned}"
                );
                about.message(NoticeKind::Recovered, Tone::Good, &format!("Backups work again: {}", task.label), &text)
            } else {
                let text = format!("Everything was stored, and the destination confirmed it.{warned}");
                about.message(NoticeKind::Success, Tone::Good, &format!("Backup done: {}", task.label), &text)
            }
        }
        Outcome::Failed { code, reason, is_reminder, is_paused } => {
            facts.push(fact("Result", &format!("failed ({})", code.as_str())));
            let mut text = format!("{reason} {}", code.advice());
            if is_reminder {
                text = format!("Still failing, as reported before. {text}");
            }
            if is_paused {
                text.push_str(
                    " The task is paused now, since its last runs each lost their worker; resume it once you know why.",
                );
            }
            let is_key_change = code == FailureCode::HostKeyChanged;
            let failed = if is_key_change { "Host key changed, backup failed" } else { "Backup failed" };
            let title = format!("{failed}: {}", task.label);
            about.message(NoticeKind::Failure, Tone::Bad, &title, &text)
        }
    };
    if let Some(took) = took {
        facts.push(fact("Duration", &took));
    }
    facts.push(task.next(about));
    message.facts = facts;
    message.link = about.link(&format!("/runs/{}", run.run));
    message
}

/// Slots that passed while no worker was running.
pub fn missed(about: &About<'_>, task: &TaskFacts<'_>, run: RunId, since: Timestamp, slots: usize) -> Message {
    let slots = counted(i64::try_from(slots).unwrap_or(i64::MAX), "planned run", "planned runs");
    let text = format!(
        "{slots} did not happen, the first on {}: no Holdfast worker was running. {}",
        about.time(since),
        FailureCode::Missed.advice()
    );
    let mut message =
        about.message(NoticeKind::Missed, Tone::Warning, &format!("Backup missed: {}", task.label), &text);
    message.facts = task.facts();
    message.facts.push(task.next(about));
    message.link = about.link(&format!("/runs/{run}"));
    message
}

/// No success for longer than the schedule allows.
pub fn overdue(
    about: &About<'_>,
    task: &TaskFacts<'_>,
    task_id: TaskId,
    last_success: Option<Timestamp>,
    running_since: Option<Timestamp>,
) -> Message {
    let last = match last_success {
        Some(at) => format!("The last successful backup was on {}.", about.time(at)),
        None => "No run of this task has succeeded yet.".to_owned(),
    };
    let now = match running_since {
        Some(at) => format!(" A run has been in progress since {}.", about.time(at)),
        None => " Look at its logs, or run it now.".to_owned(),
    };
    let title = format!("Backup overdue: {}", task.label);
    let mut message = about.message(NoticeKind::Overdue, Tone::Bad, &title, &format!("{last}{now}"));
    message.facts = task.facts();
    message.facts.push(task.next(about));
    message.link = about.link(&format!("/tasks/{task_id}"));
    message
}

/// A stored backup that can no longer be restored.
#[derive(Debug, Clone, Copy)]
pub struct BackupDamaged<'a> {
    pub task: &'a str,
    pub destination: &'a str,
    pub key: &'a str,
    pub made_at: Timestamp,
    pub run: RunId,
    pub reason: &'a str,
}

impl BackupDamaged<'_> {
    pub fn message(&self, about: &About<'_>) -> Message {
        let text = format!(
            "{} It was made on {}. Run the task again to get a good one, and check the destination.",
            self.reason,
            about.time(self.made_at)
        );
        let title = format!("Stored backup damaged: {}", self.task);
        let mut message = about.message(NoticeKind::BackupDamaged, Tone::Bad, &title, &text);
        message.facts = vec![fact("Task", self.task), fact("Destination", self.destination), fact("Object", self.key)];
        message.link = about.link(&format!("/runs/{}", self.run));
        message
    }
}

/// A backup that was stored and looks wrong in comparison with earlier ones.
pub fn backup_suspicious(
    about: &About<'_>,
    task: &TaskFacts<'_>,
    run: RunId,
    task_id: TaskId,
    reason: &str,
) -> Message {
    let text = format!(
        "{reason} It was stored, and no old backup of this task will be removed until a backup is normal again. Look at \
         the source first. If the change is intended, release the hold on the task's page."
    );
    let title = format!("Backup looks wrong: {}", task.label);
    let mut message = about.message(NoticeKind::BackupSuspicious, Tone::Warning, &title, &text);
    message.facts = task.facts();
    message.facts.push(fact("Run", &run.to_string()));
    message.facts.push(task.next(about));
    message.link = about.link(&format!("/tasks/{task_id}"));
    message
}

pub fn host_key_changed(about: &About<'_>, server: &str, run: RunId) -> Message {
    let title = format!("Host key changed: {server}");
    let mut message =
        about.message(NoticeKind::HostKeyChanged, Tone::Bad, &title, FailureCode::HostKeyChanged.advice());
    message.facts = vec![fact("Server", server)];
    message.link = about.link(&format!("/runs/{run}"));
    message
}

pub fn server_unreachable(about: &About<'_>, server: &str, run: RunId, code: FailureCode, reason: &str) -> Message {
    let text = format!("{reason} {}", code.advice());
    let title = format!("Server unreachable: {server}");
    let mut message = about.message(NoticeKind::ServerUnreachable, Tone::Bad, &title, &text);
    message.facts = vec![fact("Server", server)];
    message.link = about.link(&format!("/runs/{run}"));
    message
}

pub fn destination_unreachable(
    about: &About<'_>,
    destination: &str,
    run: RunId,
    code: FailureCode,
    reason: &str,
) -> Message {
    let text = format!("{reason} {}", code.advice());
    let title = format!("Destination unreachable: {destination}");
    let mut message = about.message(NoticeKind::DestinationUnreachable, Tone::Bad, &title, &text);
    message.facts = vec![fact("Destination", destination)];
    message.link = about.link(&format!("/runs/{run}"));
    message
}

/// What is regularly done with a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maintenance {
    Prune,
    Check,
}

pub fn repository_neglected(
    about: &About<'_>,
    (task, destination): (&str, &str),
    what: Maintenance,
    run: RunId,
    code: FailureCode,
    reason: &str,
) -> Message {
    let (done, effect) = match what {
        Maintenance::Prune => ("pruned", "What removed backups have left still takes up space."),
        Maintenance::Check => ("checked", "Whether its backups can be restored is not known."),
    };
    let text = format!("{reason} {} {effect}", code.advice());
    let title = format!("Repository could not be {done}: {task}");
    let mut message = about.message(NoticeKind::RepositoryNeglected, Tone::Bad, &title, &text);
    message.facts = vec![fact("Task", task), fact("Destination", destination)];
    message.link = about.link(&format!("/runs/{run}"));
    message
}

/// Where the common cause of an incident is, with its label.
#[derive(Debug, Clone, Copy)]
pub enum IncidentCause<'a> {
    Server(&'a str),
    Servers,
    Destination(&'a str),
    /// No worker was running when tasks were due.
    NoWorker,
    /// A worker stopped responding.
    LostWorker,
}

/// How an incident has developed.
#[derive(Clone, Copy)]
enum Stage {
    Begun,
    Grown,
    Ended,
}

impl IncidentCause<'_> {
    fn title(&self, stage: Stage) -> String {
        let which = match self {
            Self::Server(label) => format!("of {label}"),
            Self::Servers => "of several servers".to_owned(),
            Self::Destination(label) => format!("to {label}"),
            Self::NoWorker => return Self::title_of_service(stage, "missed"),
            Self::LostWorker => return Self::title_of_service(stage, "interrupted"),
        };
        match stage {
            Stage::Begun => format!("Many backups {which} fail"),
            Stage::Grown => format!("More backups {which} fail"),
            Stage::Ended => format!("Backups {which} no longer fail"),
        }
    }

    fn title_of_service(stage: Stage, what: &str) -> String {
        match stage {
            Stage::Begun => format!("Many backups were {what}"),
            Stage::Grown => format!("More backups were {what}"),
            Stage::Ended => format!("Backups that were {what} no longer fail"),
        }
    }

    fn fact(&self) -> Fact {
        match self {
            Self::Server(label) => fact("Server", label),
            Self::Servers => fact("Servers", "several"),
            Self::Destination(label) => fact("Destination", label),
            Self::NoWorker => fact("Cause", "no worker was running"),
            Self::LostWorker => fact("Cause", "a worker stopped responding"),
        }
    }
}

/// Backups of several tasks that fail for one cause.
#[derive(Debug, Clone, Copy)]
pub struct IncidentFacts<'a> {
    pub cause: IncidentCause<'a>,
    pub code: FailureCode,
    /// How many tasks were affected so far.
    pub tasks: i64,
    /// The labels of the first of them.
    pub labels: &'a [String],
    pub since: Timestamp,
}

impl IncidentFacts<'_> {
    fn affected(&self) -> String {
        if self.labels.is_empty() {
            return self.tasks.to_string();
        }
        let more = match self.tasks - self.labels.len() as i64 {
            ..=0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{}: {}{more}", self.tasks, self.labels.join(", "))
    }

    fn message(&self, about: &About<'_>, kind: NoticeKind, tone: Tone, title: &str, text: &str) -> Message {
        let mut message = about.message(kind, tone, title, text);
        message.facts = vec![
            self.cause.fact(),
            fact("Reason", self.code.as_str()),
            fact("Tasks affected", &self.affected()),
            fact("Since", &about.time(self.since)),
        ];
        message.link = about.link("/tasks");
        message
    }
}

/// Several tasks have failed for one cause; `run` is the one with which that was noticed.
pub fn incident_begun(about: &About<'_>, incident: &IncidentFacts<'_>, run: RunId, reason: &str) -> Message {
    let text = format!(
        "{} so far, for the same reason: {reason} {} Until this is over, failures of single tasks for this reason are not \
         reported.",
        counted(incident.tasks, "task has failed", "tasks have failed"),
        incident.code.advice()
    );
    let title = incident.cause.title(Stage::Begun);
    let mut message = incident.message(about, NoticeKind::IncidentBegun, Tone::Bad, &title, &text);
    message.link = about.link(&format!("/runs/{run}"));
    message
}

/// Many more tasks are affected than were reported.
pub fn incident_grown(about: &About<'_>, incident: &IncidentFacts<'_>) -> Message {
    let tasks = counted(incident.tasks, "task has failed", "tasks have failed");
    let text = format!("By now, {tasks} for the same reason. {}", incident.code.advice());
    let title = incident.cause.title(Stage::Grown);
    incident.message(about, NoticeKind::IncidentBegun, Tone::Bad, &title, &text)
}

/// None of the tasks fails for this cause any more.
pub fn incident_ended(about: &About<'_>, incident: &IncidentFacts<'_>) -> Message {
    let tasks = counted(incident.tasks, "task that had failed", "tasks that had failed");
    let text = format!("None of the {tasks} fails for this reason any more. Tasks that are paused do not count.");
    let title = incident.cause.title(Stage::Ended);
    incident.message(about, NoticeKind::IncidentEnded, Tone::Good, &title, &text)
}

pub fn token_expiring(about: &About<'_>, name: &str, expires_at: Timestamp) -> Message {
    let text = format!(
        "Anything that uses it will be refused from {} on. Create a new token on the account page and replace it.",
        about.time(expires_at)
    );
    let title = format!("API token expires soon: {name}");
    let mut message = about.message(NoticeKind::TokenExpiring, Tone::Warning, &title, &text);
    message.facts = vec![fact("Token", name), fact("Expires", &about.time(expires_at))];
    message.link = about.link("/account");
    message
}

/// A test message that shows that a stream works and what messages look like.
pub fn test_message(about: &About<'_>, stream: &str) -> Message {
    let mut message = about.message(
        NoticeKind::Success,
        Tone::Note,
        "Test message from Holdfast",
        "This stream works. Nothing was backed up, and nothing is wrong.",
    );
    message.kind = "test".to_owned();
    message.facts = vec![fact("Stream", stream)];
    message.link = about.link("/account");
    message
}

/// What was held back during quiet hours, as one message.
pub fn digest(messages: &[Message]) -> Option<Message> {
    let (first, rest) = messages.split_first()?;
    if rest.is_empty() {
        return Some(first.clone());
    }
    let is_bad = |message: &&Message| message.tone == Tone::Bad;
    let bad = messages.iter().filter(is_bad).count();
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let all = counted(number(messages.len()), "notice", "notices");
    let title = match bad {
        0 => all,
        bad if bad == messages.len() => counted(number(bad), "failure", "failures"),
        bad => format!("{all}, {}", counted(number(bad), "of them a failure", "of them failures")),
    };
    // Failures come first, so that they are the last to be merely counted.
    let mut sorted: Vec<&Message> = messages.iter().collect();
    sorted.sort_by_key(|message| message.tone != Tone::Bad);
    let mut items: Vec<Item> = sorted
        .into_iter()
        .take(DIGEST_ITEMS)
        .map(|message| Item {
            event: message.event.clone(),
            tone: message.tone,
            title: message.title.clone(),
            text: cut(&message.text, 300),
            at: message.at.clone(),
        })
        .collect();
    if let Some(left) = messages.len().checked_sub(DIGEST_ITEMS).filter(|left| *left > 0) {
        items.push(Item {
            event: String::new(),
            tone: Tone::Note,
            title: format!("and {left} more"),
            text: "All of them are in the logs.".to_owned(),
            at: String::new(),
        });
    }
    let events: Vec<&str> = messages.iter().map(|message| message.event.as_str()).collect();
    Some(Message {
        // The same for the same notices, at every attempt.
        event: random::hex(&random::digest(&events.join(" "))[..8]),
        kind: "digest".to_owned(),
        tone: if bad > 0 { Tone::Bad } else { first.tone },
        title: format!("During quiet hours: {title}"),
        text: "These were held back during your quiet hours.".to_owned(),
        facts: Vec::new(),
        link: first.link.as_ref().map(|link| base_of(link)),
        items,
        ..messages.last().unwrap_or(first).clone()
    })
}

/// The account page of the installation that a link leads to.
fn base_of(link: &str) -> String {
    let end = ["/runs/", "/tasks", "/account"].iter().filter_map(|page| link.rfind(page)).min().unwrap_or(link.len());
    format!("{}/account", &link[..end])
}
