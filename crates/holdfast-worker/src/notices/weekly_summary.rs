//! Weekly summaries, for users who want them.

use holdfast_app::Result;
use holdfast_core::Timestamp;
use holdfast_core::clock::{self, Zone};
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::UserId;
use holdfast_core::notice::{self, NoticeKind, Trouble};
use holdfast_notify::{DayLine, NoticeContent, Summary, TaskLine};
use holdfast_store::notices::{self, NewNotice, Recipient};
use holdfast_store::summaries::{self, TaskWeek};
use holdfast_store::{DbTime, Tx, users};

use crate::notices::writing::new_event;
use crate::services::Services;
use holdfast_core::clock::later;

/// How many summaries are written at a time.
const SUMMARIES_AT_ONCE: i64 = 50;
/// How many tasks are considered, and how many a mail lists; the rest are counted.
const TASKS_JUDGED: i64 = 10_000;
const TASKS_LISTED: usize = 100;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Writes the summaries that are due. An error in one does not affect the others.
pub(crate) async fn write_due(services: &Services) -> Result<()> {
    let app = &services.app;
    let due = users::list_summaries(&mut app.store.read().await?, app.now(), SUMMARIES_AT_ONCE).await?;
    for (id, at) in due {
        if let Err(error) = write(services, UserId(id), at).await {
            tracing::error!(user = id, %error, "a weekly summary could not be written");
        }
    }
    Ok(())
}

async fn write(services: &Services, owner: UserId, due: DbTime) -> Result<()> {
    let app = &services.app;
    let now = app.now();
    let mut tx = app.store.read().await?;
    let Some(user) = users::find(&mut tx, owner).await? else { return Ok(()) };
    let zone = clock::zone_or_utc(&user.timezone);
    // Covers the week before the summary was due, even if it is written late. Read without blocking writers.
    let summary = match notice::last_week(due.0, &zone) {
        Some(week) => Some(gather(services, &mut tx, owner, week, &zone, now).await?),
        None => None,
    };
    drop(tx);
    let mut tx = app.store.begin().await?;
    if !users::move_summary(&mut tx, owner, due, notice::next_summary(now, &zone)).await? {
        return Ok(());
    }
    if let Some(summary) = summary {
        let (event, title) = (summary.event.clone(), summary.title.clone());
        let content = NoticeContent::Summary(Box::new(summary)).to_text();
        let new = NewNotice {
            owner,
            recipient: Recipient::User(owner),
            task: None,
            kind: NoticeKind::WeeklySummary,
            event: &event,
            title: &title,
            content: &content,
            held_until: None,
        };
        notices::insert(&mut tx, &new, now).await?;
    }
    tx.commit().await?;
    app.wake_dispatcher();
    Ok(())
}

async fn gather(
    services: &Services,
    tx: &mut Tx,
    owner: UserId,
    (from, to): (Timestamp, Timestamp),
    zone: &Zone,
    now: Timestamp,
) -> Result<Summary> {
    let weeks = summaries::list_task_weeks(tx, owner, from, to, TASKS_JUDGED).await?;
    let (stored_bytes, stored_before) = summaries::sum_stored(tx, owner, from).await?;
    let mut days = Vec::new();
    let mut begin = from;
    for name in DAYS {
        // Days in this time zone may be longer or shorter than 24 hours.
        let end = clock::start_of_day(later(begin, 36 * 3600), zone).min(to);
        let (succeeded, failed) = summaries::count_runs(tx, owner, begin, end).await?;
        days.push(DayLine { name: name.to_owned(), succeeded, failed });
        begin = end;
    }
    // Tasks that need attention come first, so that they are listed before all others.
    let mut tasks: Vec<TaskLine> = weeks.iter().map(|week| line(week, zone)).collect();
    tasks.sort_by_key(|task| task.attention.is_none());
    let more_tasks = i64::try_from(tasks.len().saturating_sub(TASKS_LISTED)).unwrap_or(i64::MAX);
    let needing = i64::try_from(tasks.iter().filter(|task| task.attention.is_some()).count()).unwrap_or(i64::MAX);
    tasks.truncate(TASKS_LISTED);
    Ok(Summary {
        event: new_event(),
        title: "Your week of backups".to_owned(),
        week: format!("{} to {}", clock::date(from, zone), clock::date(later(to, -1), zone)),
        at_micros: now.as_microsecond(),
        days,
        tasks,
        more_tasks,
        needing,
        stored_bytes,
        stored_before,
        link: services.outbox.link("/account"),
    })
}

fn line(week: &TaskWeek, zone: &Zone) -> TaskLine {
    let shown = |at: Option<DbTime>| at.map(|at| clock::human_date_time(at.0, zone));
    TaskLine {
        label: week.label.clone(),
        succeeded: week.succeeded,
        failed: week.failed,
        missed: week.missed,
        size: week.size,
        size_before: week.size_before,
        oldest: shown(week.oldest),
        newest: shown(week.newest),
        attention: attention(week),
    }
}

/// The worst thing about a task, if there is one.
fn attention(week: &TaskWeek) -> Option<String> {
    let failing = week.last_code.filter(|code| *code != FailureCode::Missed);
    if week.newest.is_none() {
        return Some("Nothing can be restored.".to_owned());
    }
    if week.damaged > 0 {
        return Some("A stored backup is damaged.".to_owned());
    }
    if let Some(code) = failing {
        return Some(format!("Failing: {}", code.advice()));
    }
    if week.told_code == Some(Trouble::Overdue) {
        return Some("Overdue: it has had no success for too long.".to_owned());
    }
    if week.paused_at.is_some() {
        return Some("Paused.".to_owned());
    }
    if week.failed > 0 && week.succeeded == 0 {
        return Some("No success this week.".to_owned());
    }
    (week.missed > 0).then(|| "Some runs were missed.".to_owned())
}
