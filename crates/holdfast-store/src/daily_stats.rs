//! Daily statistics of each user: how runs ended, how long they took, and how much was stored.

use holdfast_core::Timestamp;
use holdfast_core::ids::UserId;
use sqlx::QueryBuilder;

use crate::statement::{Statement as _, decode_all};
use crate::tx::push_ids;
use crate::{DbTime, Result, Tx};

named_row! {
    /// How the backup runs of a period ended.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Figures {
        pub successful: i64,
        pub failed: i64,
        pub cancelled: i64,
        /// Total duration of the successful runs.
        pub busy_micros: i64,
    }
}

impl std::ops::Add for Figures {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            successful: self.successful + other.successful,
            failed: self.failed + other.failed,
            cancelled: self.cancelled + other.cancelled,
            busy_micros: self.busy_micros + other.busy_micros,
        }
    }
}

named_row! {
    #[derive(Debug, Clone)]
    pub struct DayRow {
        /// `YYYY-MM-DD` in the user's zone.
        pub day: String,
        pub figures: Figures,
        /// At the end of the day; `None` for days on which it was not recorded.
        pub stored_bytes: Option<i64>,
    }
}

/// Counts backup runs that ended from `from` until before `until`, straight from the index.
pub async fn count(tx: &mut Tx, user: UserId, from: Timestamp, until: Timestamp) -> Result<Figures> {
    let found = fetch_optional!(
        tx,
        Figures,
        "SELECT CAST(COALESCE(SUM(CASE WHEN status = 'successful' THEN 1 ELSE 0 END), 0) AS BIGINT) AS successful,
             CAST(COALESCE(SUM(CASE WHEN status = 'failed' THEN 1 ELSE 0 END), 0) AS BIGINT) AS failed,
             CAST(COALESCE(SUM(CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END), 0) AS BIGINT) AS cancelled,
             CAST(COALESCE(SUM(CASE WHEN status = 'successful' THEN finished_at - COALESCE(started_at, finished_at)
                 ELSE 0 END), 0) AS BIGINT) AS busy_micros
         FROM runs WHERE user_id = $1 AND kind = 'backup' AND finished_at IS NOT NULL AND finished_at >= $2
             AND finished_at < $3",
        user.0,
        DbTime(from),
        DbTime(until)
    )?;
    Ok(found.unwrap_or_default())
}

/// Days from `from` on, in order.
pub async fn list(tx: &mut Tx, user: UserId, from: &str) -> Result<Vec<DayRow>> {
    fetch_all!(
        tx,
        DayRow,
        "SELECT day, successful, failed, cancelled, busy_micros, stored_bytes FROM user_days
         WHERE user_id = $1 AND day >= $2 ORDER BY day",
        user.0,
        from
    )
}

/// Inserts or updates a day. A recorded `stored_bytes` is kept if the new value is `None`.
pub async fn write(tx: &mut Tx, user: UserId, day: &DayRow) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO user_days (user_id, day, successful, failed, cancelled, busy_micros, stored_bytes)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (user_id, day) DO UPDATE SET successful = excluded.successful, failed = excluded.failed,
             cancelled = excluded.cancelled, busy_micros = excluded.busy_micros,
             stored_bytes = COALESCE(excluded.stored_bytes, user_days.stored_bytes)",
        user.0,
        &day.day,
        day.figures.successful,
        day.figures.failed,
        day.figures.cancelled,
        day.figures.busy_micros,
        day.stored_bytes
    )?;
    Ok(())
}

/// Users with a run that ended since `since`, with their time zones.
pub async fn list_active(tx: &mut Tx, since: Timestamp) -> Result<Vec<(i64, String)>> {
    // Without DISTINCT, for which SQLite would go through all runs by user.
    fetch_all!(
        tx,
        (i64, String),
        "SELECT u.id, u.timezone FROM users u
         WHERE u.id IN (SELECT r.user_id FROM runs r WHERE r.finished_at >= $1) ORDER BY u.id",
        DbTime(since)
    )
}

/// How the runs of these tasks ended: one row per task, status and quarter of an hour, the step by which time zones
/// differ.
pub async fn list_ends(tx: &mut Tx, tasks: &[i64], since: Timestamp) -> Result<Vec<(i64, String, DbTime)>> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    with_conn!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new(
            "SELECT task_id, status, MIN(finished_at) FROM runs WHERE finished_at IS NOT NULL AND finished_at >= ",
        );
        query.push_bind(DbTime(since)).push(" AND task_id IN (");
        push_ids(&mut query, tasks);
        query.push(") GROUP BY task_id, status, finished_at / 900000000 ORDER BY 3");
        query.build().all(conn).await.and_then(decode_all::<(i64, String, DbTime), _>)
    })
}
