//! The summary of a week, for those who want one.

use holdfast_app::Result;
use holdfast_core::Timestamp;
use holdfast_core::clock::{self, Zone};
use holdfast_core::ids::UserId;
use holdfast_core::notice::{self, NoticeKind};
use holdfast_core::run::FailureCode;
use holdfast_notify::{Content, DayLine, Summary, TaskLine};
use holdfast_store::notices::{self, NewNotice, Recipient};
use holdfast_store::summaries::{self, TaskWeek};
use holdfast_store::users::{self, UserRow};
use holdfast_store::{At, Tx};

use crate::execute::Executor;
use crate::herald::new_event;

/// Summaries that are written in one look.
const SUMMARIES_AT_ONCE: i64 = 50;
/// Tasks that a mail lists; the rest is counted.
const TASKS_LISTED: i64 = 100;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Writes the summaries that are due.
pub(crate) async fn write_due(executor: &Executor) -> Result<()> {
    let app = &executor.app;
    let now = app.now();
    let due = users::list_summaries(&mut app.store.read().await?, now, SUMMARIES_AT_ONCE).await?;
    for (id, at) in due {
        let mut tx = app.store.begin().await?;
        let Some(user) = users::find(&mut tx, UserId(id)).await? else { continue };
        let zone = clock::zone_or_utc(&user.timezone);
        if !users::move_summary(&mut tx, user.user_id(), at, notice::next_summary(now, &zone)).await? {
            continue;
        }
        write(executor, &mut tx, &user, at, &zone, now).await?;
        tx.commit().await?;
        app.wake_postman();
    }
    Ok(())
}

async fn write(executor: &Executor, tx: &mut Tx, user: &UserRow, due: At, zone: &Zone, now: Timestamp) -> Result<()> {
    // Of the week before the summary was due, also when it is written late.
    let Some((from, to)) = notice::last_week(due.0, zone) else { return Ok(()) };
    let owner = user.user_id();
    let weeks = summaries::list_task_weeks(tx, owner, from, to, TASKS_LISTED + 1).await?;
    let listed = usize::try_from(TASKS_LISTED).unwrap_or(usize::MAX);
    let all = users::statistics(tx, owner, now).await?.tasks;
    let (stored_bytes, stored_before) = summaries::sum_stored(tx, owner, from).await?;
    let mut days = Vec::new();
    let mut begin = from;
    for name in DAYS {
        // Days are as long as they are in this zone.
        let end = clock::start_of_day(crate::scheduler::later(begin, 36 * 3600), zone).min(to);
        let (succeeded, failed) = summaries::count_runs(tx, owner, begin, end).await?;
        days.push(DayLine { name: name.to_owned(), succeeded, failed });
        begin = end;
    }
    let day = |at: Timestamp| clock::date(at, zone);
    let last_day = crate::scheduler::later(to, -1);
    let summary = Summary {
        event: new_event(),
        title: "Your week of backups".to_owned(),
        week: format!("{} to {}", day(from), day(last_day)),
        at_micros: now.as_microsecond(),
        days,
        tasks: weeks.iter().take(listed).map(|week| line(week, zone)).collect(),
        more_tasks: (all - TASKS_LISTED).max(0),
        stored_bytes,
        stored_before,
        link: executor.herald.link("/account"),
    };
    let (event, title) = (summary.event.clone(), summary.title.clone());
    let content = Content::Summary(Box::new(summary)).to_text();
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
    Ok(notices::insert(tx, &new, now).await?)
}

fn line(week: &TaskWeek, zone: &Zone) -> TaskLine {
    let shown = |at: Option<At>| at.map(|at| clock::human_date_time(at.0, zone));
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
    let failing = week.told_code.as_deref().and_then(FailureCode::parse);
    if week.newest.is_none() {
        return Some("Nothing can be restored.".to_owned());
    }
    if week.damaged > 0 {
        return Some("A stored backup is damaged.".to_owned());
    }
    if let Some(code) = failing {
        return Some(format!("Failing: {}", code.advice()));
    }
    if week.paused_at.is_some() {
        return Some("Paused.".to_owned());
    }
    if week.failed > 0 && week.succeeded == 0 {
        return Some("No success in this week.".to_owned());
    }
    (week.missed > 0).then(|| "Some runs were missed.".to_owned())
}
