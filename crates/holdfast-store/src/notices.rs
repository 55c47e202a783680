//! Notices: the outbox. A row is written in the same transaction as the event it reports and stays pending until it is
//! delivered, superseded or given up.

use holdfast_core::Timestamp;
use holdfast_core::characters;
use holdfast_core::ids::{IncidentId, NoticeId, StreamId, TaskId, UserId};
use holdfast_core::notice::{NoticeKind, NoticeStatus, Trouble};
use holdfast_core::page::Page;

use crate::listing::equals;
use crate::statement::{Statement as _, decode_all};
use crate::tx::push_ids;
use crate::{DbTime, Listing, Result, Tx};

row_type! {
    pub struct NoticeRow {
        id: NoticeId = "n.id",
        user_id: UserId = "n.user_id",
        stream_id: Option<StreamId> = "n.stream_id",
        task_id: Option<TaskId> = "n.task_id",
        kind: NoticeKind = "n.kind",
        event: String = "n.event",
        title: String = "n.title",
        status: NoticeStatus = "n.status",
        tries: i64 = "n.tries",
        next_try_at: Option<DbTime> = "n.next_try_at",
        answer: Option<String> = "n.answer",
        created_at: DbTime = "n.created_at",
        ended_at: Option<DbTime> = "n.ended_at",
    }
}

/// Who receives a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recipient {
    Stream(StreamId),
    /// The task's own heartbeat URL.
    Heartbeat(TaskId),
    /// The user's own address.
    User(UserId),
}

impl Recipient {
    fn to_text(self) -> String {
        match self {
            Self::Stream(id) => format!("stream {id}"),
            Self::Heartbeat(id) => format!("heartbeat {id}"),
            Self::User(id) => format!("user {id}"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, id) = text.split_once(' ')?;
        let id = id.parse().ok()?;
        match kind {
            "stream" => Some(Self::Stream(StreamId(id))),
            "heartbeat" => Some(Self::Heartbeat(TaskId(id))),
            "user" => Some(Self::User(UserId(id))),
            _ => None,
        }
    }
}

/// A notice to be written.
#[derive(Debug, Clone)]
pub struct NewNotice<'a> {
    pub owner: UserId,
    pub recipient: Recipient,
    pub task: Option<TaskId>,
    pub kind: NoticeKind,
    /// Id of the event it reports; the same for all its recipients.
    pub event: &'a str,
    pub title: &'a str,
    pub content: &'a str,
    /// The earliest delivery time, if it is held back: the end of quiet hours.
    pub held_until: Option<Timestamp>,
}

pub async fn insert(tx: &mut Tx, new: &NewNotice<'_>, now: Timestamp) -> Result<()> {
    let stream = if let Recipient::Stream(id) = new.recipient { Some(id.0) } else { None };
    execute!(
        tx,
        "INSERT INTO notices (user_id, stream_id, task_id, recipient, kind, event, title, content, status, tries,
             is_held, next_try_at, claim, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'pending', 0, $9, $10, 0, $11)",
        new.owner.0,
        stream,
        new.task.map(|task| task.0),
        new.recipient.to_text(),
        new.kind.as_str(),
        new.event,
        characters::stored_line(new.title),
        new.content,
        new.held_until.is_some(),
        DbTime(new.held_until.unwrap_or(now)),
        DbTime(now)
    )?;
    Ok(())
}

/// Whether any notice is due; a very cheap query.
pub async fn has_due(tx: &mut Tx, now: Timestamp) -> Result<bool> {
    fetch_scalar!(tx, bool, "SELECT EXISTS (SELECT 1 FROM notices WHERE next_try_at <= $1)", DbTime(now))
}

/// A recipient with notices that are due.
#[derive(Debug, Clone, Copy)]
pub struct DueRecipient {
    pub recipient: Recipient,
    /// The last delivery over its stream failed or, if none is known, everything due was tried before.
    pub is_failing: bool,
    /// It is reached by email.
    pub by_mail: bool,
}

/// Recipients with notices that are due. Failing ones come last, so that they cannot hold up the others.
pub async fn list_due_recipients(tx: &mut Tx, now: Timestamp, limit: i64) -> Result<Vec<DueRecipient>> {
    let rows = fetch_all!(
        tx,
        (String, bool, bool),
        "SELECT d.recipient, COALESCE(s.last_delivery_succeeded = FALSE, d.tries > 0) AS is_failing,
             COALESCE(s.kind = 'email', d.recipient LIKE 'user %') AS by_mail
         FROM (SELECT recipient, stream_id, MIN(next_try_at) AS next_try_at, MIN(tries) AS tries FROM notices
                 WHERE next_try_at <= $1 GROUP BY recipient, stream_id) d
             LEFT JOIN notification_streams s ON s.id = d.stream_id
         ORDER BY is_failing, d.next_try_at LIMIT $2",
        DbTime(now),
        limit
    )?;
    let read = |(text, is_failing, by_mail): &(String, bool, bool)| match Recipient::parse(text) {
        Some(recipient) => Some(DueRecipient { recipient, is_failing: *is_failing, by_mail: *by_mail }),
        None => {
            tracing::error!(recipient = text, "notices for this recipient cannot be delivered");
            None
        }
    };
    Ok(rows.iter().filter_map(read).collect())
}

named_row! {
    /// A notice that is claimed for delivery.
    #[derive(Debug, Clone)]
    pub struct ClaimedNotice {
        pub id: i64,
        pub kind: NoticeKind,
        pub content: String,
        pub tries: i64,
        pub is_held: bool,
        claim: i64,
        pub created_at: DbTime,
    }
}

/// Claims what is due for one recipient until `until`, oldest first; with `only_held`, only what was held back. If
/// delivery takes longer than the claim, another worker may deliver the notice again: twice is better than never.
pub async fn claim(
    tx: &mut Tx,
    recipient: Recipient,
    only_held: bool,
    limit: i64,
    until: Timestamp,
    now: Timestamp,
) -> Result<Vec<ClaimedNotice>> {
    const SQL: &str = "UPDATE notices SET claim = claim + 1, next_try_at = $1
         WHERE id IN (SELECT id FROM notices WHERE recipient = $2 AND next_try_at <= $3 AND (is_held OR NOT $4)
             ORDER BY id LIMIT $5)
         RETURNING id, kind, content, tries, is_held, claim, created_at";
    const SHARED: &str = "UPDATE notices SET claim = claim + 1, next_try_at = $1
         WHERE id IN (SELECT id FROM notices WHERE recipient = $2 AND next_try_at <= $3 AND (is_held OR NOT $4)
             ORDER BY id LIMIT $5 FOR UPDATE SKIP LOCKED)
         RETURNING id, kind, content, tries, is_held, claim, created_at";
    let sql = if tx.is_sqlite() { SQL } else { SHARED };
    let mut claimed =
        fetch_all!(tx, ClaimedNotice, sql, DbTime(until), recipient.to_text(), DbTime(now), only_held, limit)?;
    claimed.sort_unstable_by_key(|notice| notice.id);
    Ok(claimed)
}

/// Of the pings that wait for a task's heartbeat URL, only the newest one for the end of a run matters: older ones are
/// marked as superseded, except `kept`. Returns the id of that ping, or of the newest start if there is none; `None` if
/// no ping waits.
pub async fn supersede_older(
    tx: &mut Tx,
    recipient: Recipient,
    kept: Option<i64>,
    now: Timestamp,
) -> Result<Option<i64>> {
    let row = fetch_optional!(
        tx,
        (Option<i64>,),
        "SELECT COALESCE(MAX(CASE WHEN kind <> 'heartbeat_start' THEN id END), MAX(id)) FROM notices
         WHERE recipient = $1 AND next_try_at IS NOT NULL",
        recipient.to_text()
    )?;
    let Some(newest) = row.and_then(|(newest,)| newest) else { return Ok(None) };
    execute!(
        tx,
        "UPDATE notices SET status = 'superseded', answer = 'A later one took its place.', next_try_at = NULL,
             ended_at = $1
         WHERE recipient = $2 AND next_try_at IS NOT NULL AND id < $3
             AND (CAST($4 AS BIGINT) IS NULL OR id <> $4)",
        DbTime(now),
        recipient.to_text(),
        newest,
        kept
    )?;
    Ok(Some(newest))
}

/// Ends a notice if the claim still holds, and counts the attempt.
pub async fn finish(
    tx: &mut Tx,
    notice: &ClaimedNotice,
    status: NoticeStatus,
    answer: &str,
    now: Timestamp,
) -> Result<bool> {
    let ended = execute!(
        tx,
        "UPDATE notices SET status = $1, answer = $2, tries = tries + 1, next_try_at = NULL, ended_at = $3
         WHERE id = $4 AND claim = $5 AND status = 'pending'",
        status.as_str(),
        characters::stored_line(answer),
        DbTime(now),
        notice.id,
        notice.claim
    )?;
    Ok(ended == 1)
}

/// Schedules another attempt if the claim still holds, and counts this one.
pub async fn postpone(tx: &mut Tx, notice: &ClaimedNotice, answer: &str, next_try_at: Timestamp) -> Result<bool> {
    let postponed = execute!(
        tx,
        "UPDATE notices SET answer = $1, tries = $2, next_try_at = $3
         WHERE id = $4 AND claim = $5 AND status = 'pending'",
        characters::stored_line(answer),
        notice.tries + 1,
        DbTime(next_try_at),
        notice.id,
        notice.claim
    )?;
    Ok(postponed == 1)
}

/// Makes the postponed notices of a stream due now, because its address has changed.
pub async fn hurry(tx: &mut Tx, stream: StreamId, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE notices SET next_try_at = $1 WHERE stream_id = $2 AND next_try_at > $1 AND tries > 0",
        DbTime(now),
        stream.0
    )?;
    Ok(())
}

/// Releases a notice without counting an attempt; it is due again at `at`.
pub async fn release(tx: &mut Tx, notice: &ClaimedNotice, at: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE notices SET next_try_at = $1 WHERE id = $2 AND claim = $3 AND status = 'pending'",
        DbTime(at),
        notice.id,
        notice.claim
    )?;
    Ok(())
}

/// Postpones everything due for an unreachable recipient, instead of trying its notices one by one.
pub async fn rest(tx: &mut Tx, recipient: Recipient, until: Timestamp, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE notices SET next_try_at = $1 WHERE recipient = $2 AND next_try_at <= $3",
        DbTime(until),
        recipient.to_text(),
        DbTime(now)
    )?;
    Ok(())
}

/// Narrows a list of notices.
#[derive(Debug, Clone, Default)]
pub struct NoticeFilter {
    pub status: Option<NoticeStatus>,
    pub stream: Option<i64>,
}

pub async fn list(tx: &mut Tx, listing: &Listing, filter: &NoticeFilter) -> Result<Page<NoticeRow>> {
    // Only the conditions that apply, so that each combination is found by an index.
    let status = equals("n.status", filter.status.map(NoticeStatus::as_str));
    let stream = filter.stream.map_or("", |_| " AND n.stream_id = $5");
    let condition = format!("{status}{stream}{}", unsearched!());
    let kept_status = equals("status", filter.status.map(NoticeStatus::as_str));
    let kept_stream = filter.stream.map_or("", |_| " AND kind = CAST($5 AS TEXT)");
    let kept = format!("subject = 'notice'{kept_status}{kept_stream}{}", unsearched!());
    list_page!(
        tx,
        listing,
        "notices" as "n" with "", created "n.created_at", changed "COALESCE(n.ended_at, n.created_at)",
        total Some(&*kept), &condition,
        filter.stream
    )
}

pub async fn find(tx: &mut Tx, id: NoticeId) -> Result<Option<NoticeRow>> {
    find_row!(tx, "FROM notices n WHERE n.id = $1", id.0)
}

/// What these notices say, in the form in which it is stored, by their ids.
pub async fn list_contents(tx: &mut Tx, ids: &[i64]) -> Result<Vec<(i64, String)>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    with_conn!(tx, conn => {
        let mut query = sqlx::QueryBuilder::<Db>::new("SELECT id, content FROM notices WHERE id IN (");
        push_ids(&mut query, ids);
        query.push(")");
        query.build().all(conn).await.and_then(decode_all::<(i64, String), _>)
    })
}

/// Makes an undelivered notice pending again, with all its attempts. Returns false if it is not undelivered.
pub async fn retry(tx: &mut Tx, id: NoticeId, now: Timestamp) -> Result<bool> {
    let retried = execute!(
        tx,
        "UPDATE notices SET status = 'pending', tries = 0, next_try_at = $1, ended_at = NULL, claim = claim + 1
         WHERE id = $2 AND status = 'undelivered'",
        DbTime(now),
        id.0
    )?;
    Ok(retried == 1)
}

/// Deletes up to `limit` notices that ended before `before`.
pub async fn delete_before(tx: &mut Tx, before: Timestamp, limit: i64) -> Result<u64> {
    execute!(
        tx,
        "DELETE FROM notices WHERE id IN (SELECT id FROM notices WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)",
        DbTime(before),
        limit
    )
}

named_row! {
    /// What notices need to know about a task, and its owner's notification preferences.
    #[derive(Debug, Clone)]
    pub struct Subject {
        pub id: TaskId,
        pub user_id: UserId,
        pub label: String,
        pub server_label: String,
        pub destination_label: String,
        pub streams_count: i64,
        pub has_heartbeat: bool,
        pub next_run_at: Option<DbTime>,
        /// The trouble that was last reported to users, unless the task has succeeded since.
        pub told_code: Option<Trouble>,
        pub told_at: Option<DbTime>,
        /// The incident that the task is part of and has not recovered from.
        pub incident_id: Option<i64>,
        pub timezone: String,
        pub quiet_from: Option<String>,
        pub quiet_until: Option<String>,
    }
}

pub async fn find_subject(tx: &mut Tx, task: TaskId) -> Result<Option<Subject>> {
    fetch_optional!(
        tx,
        Subject,
        "SELECT t.id, t.user_id, t.label, s.label AS server_label, d.label AS destination_label, t.streams_count,
             (t.heartbeat_sealed IS NOT NULL) AS has_heartbeat, t.next_run_at, t.told_code, t.told_at,
             x.incident_id, u.timezone, u.quiet_from, u.quiet_until
         FROM backup_tasks t JOIN remote_servers s ON s.id = t.remote_server_id
             JOIN backup_destinations d ON d.id = t.backup_destination_id JOIN users u ON u.id = t.user_id
             LEFT JOIN incident_tasks x ON x.task_id = t.id AND NOT x.has_recovered
         WHERE t.id = $1",
        task.0
    )
}

named_row! {
    /// A stream and which outcomes are sent to it.
    #[derive(Debug, Clone, Copy)]
    pub struct Listener {
        pub id: StreamId,
        pub on_success: bool,
        pub on_failure: bool,
    }
}

/// Which streams to find.
#[derive(Debug, Clone, Copy)]
pub enum Audience {
    Task(TaskId),
    /// Those of every task that uses the server; likewise for a destination.
    Server(holdfast_core::ids::ServerId),
    Destination(holdfast_core::ids::DestinationId),
    User(UserId),
    /// Those of every task that is or was part of the incident.
    IncidentTasks(IncidentId),
    /// Those that were told of the incident.
    Incident(IncidentId),
}

/// The query for listeners; on PostgreSQL it prevents the streams from being deleted before their notices are written.
macro_rules! listeners {
    ($where:literal) => {{
        const SQL: &str = concat!(
            "SELECT s.id, s.on_success, s.on_failure FROM notification_streams s WHERE ",
            $where,
            " ORDER BY s.id"
        );
        const SHARED: &str = concat!(
            "SELECT s.id, s.on_success, s.on_failure FROM notification_streams s WHERE ",
            $where,
            " ORDER BY s.id FOR KEY SHARE OF s"
        );
        (SQL, SHARED)
    }};
}

pub async fn list_listeners(tx: &mut Tx, audience: Audience) -> Result<Vec<Listener>> {
    let (id, (sql, shared)) = match audience {
        Audience::Task(task) => {
            (task.0, listeners!("s.id IN (SELECT x.stream_id FROM task_streams x WHERE x.task_id = $1)"))
        }
        Audience::Server(server) => (
            server.0,
            listeners!(
                "s.id IN (SELECT x.stream_id FROM task_streams x JOIN backup_tasks t ON t.id = x.task_id
                     WHERE t.remote_server_id = $1)"
            ),
        ),
        Audience::Destination(destination) => (
            destination.0,
            listeners!(
                "s.id IN (SELECT x.stream_id FROM task_streams x JOIN backup_tasks t ON t.id = x.task_id
                     WHERE t.backup_destination_id = $1)"
            ),
        ),
        Audience::User(user) => (user.0, listeners!("s.user_id = $1")),
        Audience::IncidentTasks(incident) => (
            incident.0,
            listeners!(
                "s.id IN (SELECT x.stream_id FROM task_streams x JOIN incident_tasks i ON i.task_id = x.task_id
                     WHERE i.incident_id = $1)"
            ),
        ),
        Audience::Incident(incident) => {
            (incident.0, listeners!("s.id IN (SELECT x.stream_id FROM incident_streams x WHERE x.incident_id = $1)"))
        }
    };
    let sql = if tx.is_sqlite() { sql } else { shared };
    fetch_all!(tx, Listener, sql, id)
}

/// Records which trouble of a task was reported to users.
pub async fn update_told(tx: &mut Tx, task: TaskId, trouble: Trouble, now: Timestamp) -> Result<()> {
    const SQL: &str = "UPDATE backup_tasks SET told_code = $1, told_at = $2 WHERE id = $3";
    execute!(tx, SQL, trouble.as_str(), DbTime(now), task.0)?;
    Ok(())
}

/// Records that a task's trouble was reported again; the recorded code stays.
pub async fn renew_told(tx: &mut Tx, task: TaskId, trouble: Trouble, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE backup_tasks SET told_code = COALESCE(told_code, $1), told_at = $2 WHERE id = $3",
        trouble.as_str(),
        DbTime(now),
        task.0
    )?;
    Ok(())
}

/// Records a success: clears the reported failure, and sets when the task will be overdue.
pub async fn note_success(tx: &mut Tx, task: TaskId, overdue_at: Option<Timestamp>) -> Result<()> {
    execute!(
        tx,
        "UPDATE backup_tasks SET told_code = NULL, told_at = NULL, overdue_at = CASE WHEN paused_at IS NULL THEN $1 END,
             overdue_since = NULL
         WHERE id = $2",
        overdue_at.map(DbTime),
        task.0
    )?;
    Ok(())
}

named_row! {
    /// A task that has had no success for too long.
    #[derive(Debug, Clone)]
    pub struct OverdueRow {
        pub id: TaskId,
        pub overdue_at: DbTime,
        pub last_success_at: Option<DbTime>,
        pub running_since: Option<DbTime>,
    }
}

/// Overdue tasks that are due for another look. Concurrent callers get different tasks.
pub async fn list_overdue(tx: &mut Tx, now: Timestamp, limit: i64) -> Result<Vec<OverdueRow>> {
    const SQL: &str = concat!(
        "SELECT t.id, t.overdue_at,
             (SELECT r.finished_at FROM runs r WHERE r.task_id = t.id AND r.status = 'successful'
                 ORDER BY r.id DESC LIMIT 1) AS last_success_at,
             (SELECT r.started_at FROM runs r WHERE r.task_id = t.id AND r.status = 'running') AS running_since
         FROM backup_tasks t WHERE t.overdue_at <= $1 AND ",
        is_active!("t"),
        " ORDER BY t.overdue_at, t.id LIMIT $2"
    );
    const SHARED: &str = concat!(
        "SELECT t.id, t.overdue_at,
             (SELECT r.finished_at FROM runs r WHERE r.task_id = t.id AND r.status = 'successful'
                 ORDER BY r.id DESC LIMIT 1) AS last_success_at,
             (SELECT r.started_at FROM runs r WHERE r.task_id = t.id AND r.status = 'running') AS running_since
         FROM backup_tasks t WHERE t.overdue_at <= $1 AND ",
        is_active!("t"),
        " ORDER BY t.overdue_at, t.id LIMIT $2 FOR UPDATE OF t SKIP LOCKED"
    );
    let sql = if tx.is_sqlite() { SQL } else { SHARED };
    fetch_all!(tx, OverdueRow, sql, DbTime(now), limit)
}

/// Sets when to look at an overdue task again. Returns false if it is no longer overdue, or another process took it.
pub async fn move_overdue(tx: &mut Tx, row: &OverdueRow, next: Timestamp) -> Result<bool> {
    let moved = execute!(
        tx,
        "UPDATE backup_tasks SET overdue_at = $1, overdue_since = COALESCE(overdue_since, $3)
         WHERE id = $2 AND overdue_at = $3",
        DbTime(next),
        row.id.0,
        row.overdue_at
    )?;
    Ok(moved == 1)
}

named_row! {
    /// A token that expires soon and whose owner has not been told. It counts only in the last quarter of its lifetime, so
    /// that one made for a day is not reported at once.
    #[derive(Debug, Clone)]
    pub struct ExpiringToken {
        pub id: i64,
        pub user_id: UserId,
        pub name: String,
        pub expires_at: DbTime,
        pub timezone: String,
        pub quiet_from: Option<String>,
        pub quiet_until: Option<String>,
    }
}

pub async fn list_expiring_tokens(
    tx: &mut Tx,
    now: Timestamp,
    before: Timestamp,
    limit: i64,
) -> Result<Vec<ExpiringToken>> {
    fetch_all!(
        tx,
        ExpiringToken,
        "SELECT t.id, t.user_id, t.name, t.expires_at, u.timezone, u.quiet_from, u.quiet_until
         FROM api_tokens t JOIN users u ON u.id = t.user_id
         WHERE t.expires_at > $1 AND t.expires_at <= $2 AND t.expiry_told_at IS NULL AND u.suspended_at IS NULL
             AND (t.expires_at - $1) * 4 <= t.expires_at - t.created_at
         ORDER BY t.expires_at LIMIT $3",
        DbTime(now),
        DbTime(before),
        limit
    )
}

/// Records that the owner was told. Returns false if another process has already done so.
pub async fn note_expiry_told(tx: &mut Tx, token: i64, now: Timestamp) -> Result<bool> {
    let sql = "UPDATE api_tokens SET expiry_told_at = $1 WHERE id = $2 AND expiry_told_at IS NULL";
    Ok(execute!(tx, sql, DbTime(now), token)? == 1)
}
