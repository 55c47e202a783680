//! Counts results day by day, so that showing a month does not mean reading a million runs.

use holdfast_app::overview::{self, DAILY_STATS_AT};
use holdfast_app::{App, Result};
use holdfast_core::clock;
use holdfast_core::ids::UserId;
use holdfast_store::{daily_stats, settings};

use holdfast_core::clock::later;

/// How far a count overlaps the previous one, for runs that ended while that was in progress.
const OVERLAP_SECS: i64 = 300;
/// How many days are counted at most, after a longer pause.
const MOST_DAYS: i64 = 40;
const DAY_SECS: i64 = 86_400;

/// Updates the days of every user for whom a run ended since the last time. Several processes may do this at once.
pub(crate) async fn write(app: &App) -> Result<()> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let last = settings::find(&mut tx, DAILY_STATS_AT).await?;
    tx.commit().await?;
    let longest = later(now, -MOST_DAYS * DAY_SECS);
    let since = last.as_ref().and_then(|text| text.parse().ok()).map_or(longest, clock::from_micros);
    let since = later(since, -OVERLAP_SECS).max(longest);
    let active = daily_stats::list_active(&mut app.store.read().await?, since).await?;
    for (user, zone) in active {
        let zone = clock::zone_or_utc(&zone);
        let mut tx = app.store.begin().await?;
        for day in overview::count_days(&mut tx, UserId(user), since, now, &zone).await? {
            daily_stats::write(&mut tx, UserId(user), &day).await?;
        }
        tx.commit().await?;
    }
    // Written last, so that after an interruption the next call counts again. Of several concurrent processes one
    // writes it, and the days that they counted are the same.
    let mut tx = app.store.begin().await?;
    settings::swap(&mut tx, DAILY_STATS_AT, last.as_deref(), &now.as_microsecond().to_string()).await?;
    Ok(tx.commit().await?)
}
