//! The overview: the health of all of a user's tasks, what needs attention, and how the last weeks went.

use holdfast_core::Timestamp;
use holdfast_core::clock::{self, Zone};
use holdfast_core::ids::{TaskId, UserId};
use holdfast_core::task_health::TaskHealth;
use holdfast_store::daily_stats::{self, DayRow};
use holdfast_store::task_health::{self, TaskHealthRow};
use holdfast_store::tasks::{self, TaskRow};
use holdfast_store::upcoming::{self, UpcomingRow};
use holdfast_store::{Tx, backups, live, settings, totals};

use crate::{App, Caller, Result};

/// The setting that holds up to when daily statistics were counted, in microseconds.
pub const DAILY_STATS_AT: &str = "tallied_at";
/// How many days the overview looks back.
pub const DAYS: usize = 30;
/// How many tasks the overview shows one by one: first those that need attention, then those that run next.
const CARDS: i64 = 12;
/// How many backup sizes a card plots.
const SIZES: i64 = 30;

/// The result of a task's runs on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DayResult {
    #[default]
    Nothing,
    Good,
    Mixed,
    Bad,
}

/// A task as the overview shows it.
pub struct Card {
    pub task: TaskRow,
    pub health: TaskHealthRow,
    /// One for each day, oldest first.
    pub days: Vec<DayResult>,
    /// Sizes of its backups, oldest first.
    pub sizes: Vec<i64>,
}

/// How many tasks have this health.
#[derive(Debug, Clone, Copy)]
pub struct Count {
    pub health: TaskHealth,
    pub tasks: i64,
}

pub struct Overview {
    pub counts: Vec<Count>,
    pub tasks: i64,
    /// Tasks with a backup that was read back completely.
    pub proven_tasks: i64,
    pub proven_at: Option<Timestamp>,
    pub stored_bytes: i64,
    pub needs: backups::Needs,
    /// Tasks whose old backups are not removed, because the newest looks wrong.
    pub held: Vec<TaskRow>,
    pub cards: Vec<Card>,
    pub upcoming: Vec<UpcomingRow>,
    /// One for each day up to today, oldest first.
    pub days: Vec<DayRow>,
    pub live: Vec<holdfast_store::runs::RunRow>,
}

pub async fn show(app: &App, caller: &Caller) -> Result<Overview> {
    let now = app.now();
    let mut tx = app.store.read().await?;
    let healths = task_health::count(&mut tx, caller.user).await?;
    let mut counts: Vec<Count> = Vec::new();
    for row in &healths {
        match counts.iter_mut().find(|count| count.health == row.health()) {
            Some(count) => count.tasks += row.count,
            None => counts.push(Count { health: row.health(), tasks: row.count }),
        }
    }
    let next = upcoming::list(&mut tx, caller.user, CARDS).await?;
    let mut ids = task_health::list_wanting(&mut tx, caller.user, CARDS).await?;
    for row in &next {
        if ids.len() < CARDS as usize && !ids.contains(&row.id.0) {
            ids.push(row.id.0);
        }
    }
    let cards = load_cards(&mut tx, &ids, now, &caller.zone).await?;
    let stored_bytes = totals::sum_stored(&mut tx, caller.user).await?;
    Ok(Overview {
        tasks: healths.iter().map(|row| row.count).sum(),
        proven_tasks: healths.iter().map(|row| row.proven).sum(),
        counts,
        proven_at: backups::find_last_proven(&mut tx, caller.user).await?,
        stored_bytes,
        needs: backups::count_needs(&mut tx, caller.user).await?,
        held: tasks::list_held(&mut tx, caller.user, CARDS).await?,
        cards,
        upcoming: next,
        days: load_days(&mut tx, caller.user, now, &caller.zone, stored_bytes).await?,
        live: live::list_runs(&mut tx, caller.user).await?,
    })
}

async fn load_cards(tx: &mut Tx, ids: &[i64], now: Timestamp, zone: &Zone) -> Result<Vec<Card>> {
    let healths = task_health::list(tx, ids).await?;
    let days = Days::of(now, zone);
    let ends = daily_stats::list_ends(tx, ids, days.first()).await?;
    let sizes = backups::list_sizes(tx, ids, SIZES).await?;
    let mut cards = Vec::with_capacity(ids.len());
    for task in tasks::list_by_id(tx, ids).await? {
        let Some(health) = healths.iter().find(|row| row.id == task.id).cloned() else { continue };
        let own_ends = ends.iter().filter(|(of, ..)| *of == task.id.0).map(|(_, status, at)| (status.as_str(), at.0));
        let own_sizes = sizes.iter().filter(|(of, _)| *of == task.id.0).map(|(_, size)| *size);
        cards.push(Card { days: days.results(own_ends), sizes: own_sizes.collect(), health, task });
    }
    Ok(cards)
}

/// The results of a task on each of the last days.
pub async fn task_days(app: &App, caller: &Caller, task: TaskId) -> Result<Vec<DayResult>> {
    let days = Days::of(app.now(), &caller.zone);
    let ends = daily_stats::list_ends(&mut app.store.read().await?, &[task.0], days.first()).await?;
    Ok(days.results(ends.iter().map(|(_, status, at)| (status.as_str(), at.0))))
}

/// The first instants of the last days, oldest first.
struct Days(Vec<Timestamp>);

impl Days {
    fn of(now: Timestamp, zone: &Zone) -> Self {
        Self(day_starts(now, zone).into_iter().map(|(_, start)| start).collect())
    }

    fn first(&self) -> Timestamp {
        self.0.first().copied().unwrap_or_default()
    }

    /// The result of each day, from the ends of a task's runs.
    fn results<'a>(&self, ends: impl Iterator<Item = (&'a str, Timestamp)>) -> Vec<DayResult> {
        let mut results = vec![DayResult::Nothing; self.0.len()];
        for (status, at) in ends {
            let place = self.0.partition_point(|start| *start <= at).saturating_sub(1);
            results[place] = match (results[place], status) {
                (DayResult::Nothing, "successful") => DayResult::Good,
                (DayResult::Nothing, "failed") => DayResult::Bad,
                (DayResult::Good, "failed") | (DayResult::Bad, "successful") => DayResult::Mixed,
                (result, _) => result,
            };
        }
        results
    }
}

/// The last days with their first instants, oldest first.
fn day_starts(now: Timestamp, zone: &Zone) -> Vec<(String, Timestamp)> {
    clock::days_between(clock::days_before(now, DAYS as i64 - 1, zone), now, zone)
}

/// Past days as they were recorded, and today as it is so far.
async fn load_days(tx: &mut Tx, user: UserId, now: Timestamp, zone: &Zone, stored: i64) -> Result<Vec<DayRow>> {
    let starts = day_starts(now, zone);
    let known = daily_stats::list(tx, user, starts.first().map_or("", |(day, _)| day)).await?;
    let mut rows = Vec::with_capacity(starts.len());
    let mut last_stored = None;
    for (number, (day, start)) in starts.iter().enumerate() {
        let is_today = number + 1 == starts.len();
        let row = known.iter().find(|row| row.day == *day);
        let figures = match row {
            _ if is_today => count_today(tx, user, *start, row).await?,
            Some(row) => row.figures,
            None => daily_stats::Figures::default(),
        };
        // A day on which nothing happened ended with as much stored as the day before.
        last_stored = if is_today { Some(stored) } else { row.and_then(|row| row.stored_bytes).or(last_stored) };
        rows.push(DayRow { day: day.clone(), figures, stored_bytes: last_stored });
    }
    Ok(rows)
}

/// What was recorded for today, plus what ended since. Counting the whole day would be slow: a busy user has tens of
/// thousands of runs a day.
async fn count_today(
    tx: &mut Tx,
    user: UserId,
    start: Timestamp,
    row: Option<&DayRow>,
) -> Result<daily_stats::Figures> {
    let tallied = settings::find(tx, DAILY_STATS_AT).await?.and_then(|text| text.parse().ok()).map(clock::from_micros);
    match (row, tallied.filter(|at| *at > start)) {
        (Some(row), Some(at)) => Ok(row.figures + daily_stats::count(tx, user, at, clock::after_all()).await?),
        _ => Ok(daily_stats::count(tx, user, start, clock::after_all()).await?),
    }
}

/// The days from `since` to `now`, counted from the runs themselves. The stored size is known for today only.
pub async fn count_days(
    tx: &mut Tx,
    user: UserId,
    since: Timestamp,
    now: Timestamp,
    zone: &Zone,
) -> Result<Vec<DayRow>> {
    let starts = clock::days_between(since, now, zone);
    let stored = totals::sum_stored(tx, user).await?;
    let mut rows = Vec::with_capacity(starts.len());
    for (number, (day, start)) in starts.iter().enumerate() {
        let until = starts.get(number + 1).map(|(_, start)| *start);
        let figures = daily_stats::count(tx, user, *start, until.unwrap_or(now)).await?;
        let stored_bytes = until.is_none().then_some(stored);
        rows.push(DayRow { day: day.clone(), figures, stored_bytes });
    }
    Ok(rows)
}

/// The state that is shown in the corner of every page.
pub async fn live_counts(app: &App, caller: &Caller) -> Result<live::LiveCounts> {
    Ok(live::count(&mut app.store.read().await?, caller.user).await?)
}

/// A text that changes whenever there is something new about the caller's runs or notices.
pub async fn sign(app: &App, caller: &Caller) -> Result<String> {
    Ok(live::sign(&mut app.store.read().await?, caller.user).await?)
}

/// Runs that are queued or under way.
pub async fn live_runs(app: &App, caller: &Caller) -> Result<Vec<holdfast_store::runs::RunRow>> {
    Ok(live::list_runs(&mut app.store.read().await?, caller.user).await?)
}
