//! User accounts, and statistics about them.

use holdfast_core::ids::UserId;
use holdfast_core::notice::QuietHours;
use holdfast_core::schedule::TimeOfDay;
use holdfast_core::user::UserDraft;
use holdfast_core::{Secret, Timestamp};

use crate::{DbTime, Result, SealContext, Tx};

macro_rules! columns {
    () => {
        "id, name, email, password_hash, timezone, language, is_admin, weekly_summary_enabled, totp_sealed, \
         totp_last_step, created_at, quiet_from, quiet_until, suspended_at"
    };
}

named_row! {
    #[derive(Debug, Clone)]
    pub struct UserRow {
        pub id: UserId,
        pub name: String,
        pub email: String,
        pub password_hash: Option<String>,
        pub timezone: String,
        pub language: String,
        pub is_admin: bool,
        pub weekly_summary_enabled: bool,
        pub totp_sealed: Option<Vec<u8>>,
        pub totp_last_step: i64,
        pub created_at: DbTime,
        /// Both are set or neither is, as HH:MM.
        pub quiet_from: Option<String>,
        pub quiet_until: Option<String>,
        pub suspended_at: Option<DbTime>,
    }
}

impl UserRow {
    pub fn quiet_hours(&self) -> Option<QuietHours> {
        read_quiet_hours(self.quiet_from.as_deref(), self.quiet_until.as_deref())
    }

    pub fn user_id(&self) -> UserId {
        self.id
    }

    /// The place that the two-factor secret is sealed for.
    pub fn totp_place(&self) -> SealContext {
        SealContext { table: "users", column: "totp_sealed", row: self.id.0, user: self.user_id() }
    }
}

/// Parses stored quiet hours; both ends were validated when they were stored.
pub fn read_quiet_hours(from: Option<&str>, until: Option<&str>) -> Option<QuietHours> {
    let time = |text: Option<&str>| text.and_then(TimeOfDay::parse);
    Some(QuietHours { from: time(from)?, until: time(until)? })
}

pub async fn insert(tx: &mut Tx, draft: &UserDraft, password_hash: Option<String>, now: Timestamp) -> Result<UserId> {
    let id = fetch_scalar!(
        tx,
        i64,
        "INSERT INTO users (name, email, password_hash, timezone, language, is_admin, weekly_summary_enabled,
             totp_last_step, created_at, updated_at)
         VALUES ($1, $2, $3, $4, 'en', $5, FALSE, 0, $6, $6) RETURNING id",
        &draft.name,
        &draft.email,
        password_hash,
        &draft.timezone,
        draft.is_admin,
        DbTime(now)
    )?;
    Ok(UserId(id))
}

pub async fn find(tx: &mut Tx, id: UserId) -> Result<Option<UserRow>> {
    fetch_optional!(tx, UserRow, concat!("SELECT ", columns!(), " FROM users WHERE id = $1"), id.0)
}

pub async fn find_by_email(tx: &mut Tx, email: &str) -> Result<Option<UserRow>> {
    fetch_optional!(tx, UserRow, concat!("SELECT ", columns!(), " FROM users WHERE email = $1"), email)
}

pub async fn list(tx: &mut Tx) -> Result<Vec<UserRow>> {
    fetch_all!(tx, UserRow, concat!("SELECT ", columns!(), " FROM users ORDER BY id"))
}

pub async fn count(tx: &mut Tx) -> Result<i64> {
    fetch_scalar!(tx, i64, "SELECT COUNT(*) FROM users")
}

/// The administrator created by the first start, if no administrator has a password yet.
pub async fn find_unclaimed_admin(tx: &mut Tx) -> Result<Option<UserRow>> {
    fetch_optional!(
        tx,
        UserRow,
        concat!(
            "SELECT ",
            columns!(),
            " FROM users WHERE is_admin AND password_hash IS NULL
              AND NOT EXISTS (SELECT 1 FROM users other WHERE other.is_admin AND other.password_hash IS NOT NULL)
              ORDER BY id LIMIT 1"
        )
    )
}

/// Sets a new password and invalidates sign-in links that were sent before.
pub async fn update_password(tx: &mut Tx, id: UserId, password_hash: &str, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE users SET password_hash = $1, updated_at = $2 WHERE id = $3",
        password_hash,
        DbTime(now),
        id.0
    )?;
    crate::sessions::delete_links(tx, id).await
}

pub async fn update_profile(tx: &mut Tx, id: UserId, draft: &UserDraft, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE users SET name = $1, email = $2, timezone = $3, updated_at = $4 WHERE id = $5",
        &draft.name,
        &draft.email,
        &draft.timezone,
        DbTime(now),
        id.0
    )?;
    crate::sessions::delete_links(tx, id).await?;
    crate::tokens::bump_epoch(tx).await
}

pub async fn update_language(tx: &mut Tx, id: UserId, language: &str, now: Timestamp) -> Result<()> {
    execute!(tx, "UPDATE users SET language = $1, updated_at = $2 WHERE id = $3", language, DbTime(now), id.0)?;
    Ok(())
}

pub async fn update_admin(tx: &mut Tx, id: UserId, is_admin: bool, now: Timestamp) -> Result<()> {
    execute!(tx, "UPDATE users SET is_admin = $1, updated_at = $2 WHERE id = $3", is_admin, DbTime(now), id.0)?;
    crate::tokens::bump_epoch(tx).await
}

/// Suspends an account. Returns false if it is suspended already.
pub async fn suspend(tx: &mut Tx, id: UserId, now: Timestamp) -> Result<bool> {
    let sql = "UPDATE users SET suspended_at = $1, updated_at = $1 WHERE id = $2 AND suspended_at IS NULL";
    let suspended = execute!(tx, sql, DbTime(now), id.0)?;
    crate::tokens::bump_epoch(tx).await?;
    Ok(suspended == 1)
}

/// Resumes an account, with the time of its next weekly summary if it gets them. Returns false if it is not suspended.
pub async fn resume(tx: &mut Tx, id: UserId, summary_at: Option<Timestamp>, now: Timestamp) -> Result<bool> {
    let resumed = execute!(
        tx,
        "UPDATE users SET suspended_at = NULL, summary_at = $1, updated_at = $2
         WHERE id = $3 AND suspended_at IS NOT NULL",
        summary_at.map(DbTime),
        DbTime(now),
        id.0
    )?;
    crate::tokens::bump_epoch(tx).await?;
    Ok(resumed == 1)
}

pub async fn is_suspended(tx: &mut Tx, id: UserId) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM users WHERE id = $1 AND suspended_at IS NOT NULL)";
    fetch_scalar!(tx, bool, sql, id.0)
}

/// How many administrators can sign in with a password.
pub async fn count_admins(tx: &mut Tx) -> Result<i64> {
    fetch_scalar!(
        tx,
        i64,
        "SELECT COUNT(*) FROM users WHERE is_admin AND password_hash IS NOT NULL AND suspended_at IS NULL"
    )
}

/// Deletes up to `limit` of a user's ended runs and returns how many: deleting all at once would block other writers.
pub async fn delete_runs(tx: &mut Tx, id: UserId, limit: i64) -> Result<u64> {
    let sql =
        "DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE user_id = $1 AND finished_at IS NOT NULL LIMIT $2)";
    execute!(tx, sql, id.0, limit)
}

/// Locks the administrators until the transaction ends, so that none is added or removed concurrently.
pub async fn lock_admins(tx: &mut Tx) -> Result<()> {
    execute!(tx, "UPDATE users SET updated_at = updated_at WHERE is_admin")?;
    Ok(())
}

/// Deletes an account with everything that belongs to it, except what is stored at destinations.
pub async fn delete(tx: &mut Tx, id: UserId) -> Result<()> {
    execute!(tx, "DELETE FROM users WHERE id = $1", id.0)?;
    crate::tokens::bump_epoch(tx).await
}

/// How many of a user's runs are queued or running.
pub async fn count_live_runs(tx: &mut Tx, id: UserId) -> Result<i64> {
    let sql = "SELECT COUNT(*) FROM runs WHERE user_id = $1 AND status IN ('queued', 'running')";
    fetch_scalar!(tx, i64, sql, id.0)
}

/// Replaces all earlier recovery codes with new ones.
pub async fn replace_recovery_codes(tx: &mut Tx, id: UserId, digests: &[[u8; 32]]) -> Result<()> {
    execute!(tx, "DELETE FROM recovery_codes WHERE user_id = $1", id.0)?;
    for digest in digests {
        execute!(tx, "INSERT INTO recovery_codes (user_id, digest) VALUES ($1, $2)", id.0, digest.to_vec())?;
    }
    Ok(())
}

/// Uses up a recovery code. Returns false if there is no such code.
pub async fn take_recovery_code(tx: &mut Tx, id: UserId, digest: &[u8; 32]) -> Result<bool> {
    let sql = "DELETE FROM recovery_codes WHERE user_id = $1 AND digest = $2";
    Ok(execute!(tx, sql, id.0, digest.to_vec())? == 1)
}

pub async fn count_recovery_codes(tx: &mut Tx, id: UserId) -> Result<i64> {
    fetch_scalar!(tx, i64, "SELECT COUNT(*) FROM recovery_codes WHERE user_id = $1", id.0)
}

/// Updates a user's notification preferences: quiet hours, and whether they get weekly summaries.
pub async fn update_notification_settings(
    tx: &mut Tx,
    id: UserId,
    quiet: Option<QuietHours>,
    summary_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<()> {
    // A summary that is already scheduled keeps its time.
    execute!(
        tx,
        "UPDATE users SET quiet_from = $1, quiet_until = $2, weekly_summary_enabled = $3,
             summary_at = CASE WHEN $3 THEN COALESCE(summary_at, $4) END, updated_at = $5
         WHERE id = $6",
        quiet.map(|quiet| quiet.from.to_string()),
        quiet.map(|quiet| quiet.until.to_string()),
        summary_at.is_some(),
        summary_at.map(DbTime),
        DbTime(now),
        id.0
    )?;
    Ok(())
}

/// Users whose weekly summary is due.
pub async fn list_summaries(tx: &mut Tx, now: Timestamp, limit: i64) -> Result<Vec<(i64, DbTime)>> {
    fetch_all!(
        tx,
        (i64, DbTime),
        "SELECT id, summary_at FROM users WHERE summary_at <= $1 AND suspended_at IS NULL ORDER BY summary_at, id LIMIT $2",
        DbTime(now),
        limit
    )
}

/// Sets when the next summary is due. Returns false if another process has written this one.
pub async fn move_summary(tx: &mut Tx, id: UserId, due: DbTime, next: Option<Timestamp>) -> Result<bool> {
    let sql = "UPDATE users SET summary_at = $1 WHERE id = $2 AND summary_at = $3";
    Ok(execute!(tx, sql, next.map(DbTime), id.0, due)? == 1)
}

/// Turns two-factor on with a secret, or off with `None`.
pub async fn update_totp(tx: &mut Tx, user: &UserRow, secret: Option<&Secret>, now: Timestamp) -> Result<()> {
    let sealed = match secret {
        Some(secret) => Some(tx.seal(user.totp_place(), secret).await?),
        None => None,
    };
    execute!(
        tx,
        "UPDATE users SET totp_sealed = $1, totp_last_step = 0, updated_at = $2 WHERE id = $3",
        sealed,
        DbTime(now),
        user.id.0
    )?;
    Ok(())
}

/// Uses up the time step of a one-time code. Returns false if it, or a later one, was used before.
pub async fn use_totp_step(tx: &mut Tx, id: UserId, step: i64) -> Result<bool> {
    let used = execute!(tx, "UPDATE users SET totp_last_step = $1 WHERE id = $2 AND totp_last_step < $1", step, id.0)?;
    Ok(used == 1)
}

named_row! {
    /// The figures of `GET /api/user`, counted over the user's own rows.
    #[derive(Debug, Clone)]
    pub struct Statistics {
        pub tasks: i64,
        pub running_tasks: i64,
        pub logs: i64,
        pub logs_today: i64,
        pub servers: i64,
        pub destinations: i64,
        pub tags: i64,
        pub streams: i64,
    }
}

pub async fn statistics(tx: &mut Tx, id: UserId, today: Timestamp) -> Result<Statistics> {
    let row = fetch_optional!(
        tx,
        Statistics,
        "SELECT (SELECT COUNT(*) FROM backup_tasks WHERE user_id = $1) AS tasks,
            (SELECT COUNT(*) FROM runs WHERE user_id = $1 AND kind = 'backup' AND status IN ('queued', 'running'))
                AS running_tasks,
            (SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM totals
                WHERE subject = 'run' AND user_id = $1 AND kind = 'backup') AS logs,
            (SELECT COUNT(*) FROM runs WHERE user_id = $1 AND kind = 'backup' AND created_at >= $2) AS logs_today,
            (SELECT COUNT(*) FROM remote_servers WHERE user_id = $1) AS servers,
            (SELECT COUNT(*) FROM backup_destinations WHERE user_id = $1) AS destinations,
            (SELECT COUNT(*) FROM tags WHERE user_id = $1) AS tags,
            (SELECT COUNT(*) FROM notification_streams WHERE user_id = $1) AS streams",
        id.0,
        DbTime(today)
    )?;
    row.ok_or_else(|| crate::StoreError::Broken("a query returned no row".to_owned()))
}
