//! Incidents: backups of several tasks that fail for one cause. A task is in at most one; when none of its tasks fails
//! any more, an incident is deleted.

use holdfast_core::Timestamp;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{DestinationId, IncidentId, ServerId, StreamId, TaskId, UserId};
use holdfast_core::incident::{FailingTask, IncidentPlace, TELL_AGAIN_GROWTH, TELL_AGAIN_SECS};

use crate::{DbTime, Result, Tx};

/// How many failing tasks are looked at when an incident begins; the others join with their next failure.
const MOST_TASKS: i64 = 2000;

named_row! {
    #[derive(Debug, Clone)]
    struct IncidentFields {
        id: i64,
        user_id: i64,
        place: String,
        server_id: Option<i64>,
        destination_id: Option<i64>,
        code: FailureCode,
        created_at: DbTime,
    }
}

const SERVICE: &str = "service";

#[derive(Debug, Clone)]
pub struct IncidentRow {
    pub id: IncidentId,
    pub user_id: UserId,
    pub place: IncidentPlace,
    pub code: FailureCode,
    pub created_at: DbTime,
}

impl From<IncidentFields> for IncidentRow {
    fn from(row: IncidentFields) -> Self {
        let place = match (row.server_id, row.destination_id) {
            (Some(id), _) => IncidentPlace::Server(ServerId(id)),
            (None, Some(id)) => IncidentPlace::Destination(DestinationId(id)),
            (None, None) if row.place == SERVICE => IncidentPlace::Service,
            (None, None) => IncidentPlace::Servers,
        };
        Self { id: IncidentId(row.id), user_id: UserId(row.user_id), place, code: row.code, created_at: row.created_at }
    }
}

/// How a place is stored: a word, the server and the destination.
fn columns(place: IncidentPlace) -> (&'static str, Option<i64>, Option<i64>) {
    match place {
        IncidentPlace::Server(id) => ("server", Some(id.0), None),
        IncidentPlace::Servers => ("servers", None, None),
        IncidentPlace::Destination(id) => ("destination", None, Some(id.0)),
        IncidentPlace::Service => (SERVICE, None, None),
    }
}

macro_rules! incidents {
    ($rest:literal) => {
        concat!(
            "SELECT i.id, i.user_id, i.place, i.server_id, i.destination_id, i.code, i.created_at FROM incidents i ",
            $rest
        )
    };
}

/// The user's incidents with this code. They do not end before the transaction does.
pub async fn list_open(tx: &mut Tx, owner: UserId, code: FailureCode) -> Result<Vec<IncidentRow>> {
    const SQL: &str = incidents!("WHERE i.user_id = $1 AND i.code = $2 ORDER BY i.id");
    const SHARED: &str = incidents!("WHERE i.user_id = $1 AND i.code = $2 ORDER BY i.id FOR KEY SHARE");
    let sql = if tx.is_sqlite() { SQL } else { SHARED };
    let rows = fetch_all!(tx, IncidentFields, sql, owner.0, code.as_str())?;
    Ok(rows.into_iter().map(IncidentRow::from).collect())
}

pub async fn find(tx: &mut Tx, id: IncidentId) -> Result<Option<IncidentRow>> {
    let row = fetch_optional!(tx, IncidentFields, incidents!("WHERE i.id = $1"), id.0)?;
    Ok(row.map(IncidentRow::from))
}

/// What a task uses.
pub async fn find_task(tx: &mut Tx, task: TaskId) -> Result<Option<FailingTask>> {
    let sql = "SELECT remote_server_id, backup_destination_id FROM backup_tasks WHERE id = $1";
    let row = fetch_optional!(tx, (i64, i64), sql, task.0)?;
    Ok(row.map(|(server, destination)| FailingTask {
        task,
        server: ServerId(server),
        destination: DestinationId(destination),
    }))
}

/// The user's tasks whose last run failed with this code since `since`.
pub async fn list_failing(tx: &mut Tx, owner: UserId, code: FailureCode, since: Timestamp) -> Result<Vec<FailingTask>> {
    let rows = fetch_all!(
        tx,
        (i64, i64, i64),
        "SELECT id, remote_server_id, backup_destination_id FROM backup_tasks
         WHERE user_id = $1 AND last_status = 'failed' AND last_error_code = $2 AND last_run_at >= $3
         ORDER BY last_run_at DESC, id LIMIT $4",
        owner.0,
        code.as_str(),
        DbTime(since),
        MOST_TASKS
    )?;
    Ok(rows
        .into_iter()
        .map(|(task, server, destination)| FailingTask {
            task: TaskId(task),
            server: ServerId(server),
            destination: DestinationId(destination),
        })
        .collect())
}

/// The user's tasks that have missed a slot, as recorded since `since`. Missing one is not the end of a run, so that it
/// is not the last result of a task.
pub async fn list_missed(tx: &mut Tx, owner: UserId, since: Timestamp) -> Result<Vec<TaskId>> {
    let rows = fetch_all!(
        tx,
        (i64,),
        "SELECT DISTINCT task_id FROM runs
         WHERE user_id = $1 AND kind = 'backup' AND finished_at IS NOT NULL AND finished_at >= $2
             AND error_code = $3 AND task_id IS NOT NULL
         ORDER BY task_id LIMIT $4",
        owner.0,
        DbTime(since),
        FailureCode::Missed.as_str(),
        MOST_TASKS
    )?;
    Ok(rows.into_iter().map(|(task,)| TaskId(task)).collect())
}

/// Begins an incident of which users are told now. Returns `None` if another process has just done so.
pub async fn insert(
    tx: &mut Tx,
    owner: UserId,
    place: IncidentPlace,
    code: FailureCode,
    tasks: usize,
    now: Timestamp,
) -> Result<Option<IncidentId>> {
    let (word, server, destination) = columns(place);
    let row = fetch_optional!(
        tx,
        (i64,),
        "INSERT INTO incidents (user_id, place, server_id, destination_id, code, told_tasks, told_at, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7) ON CONFLICT DO NOTHING RETURNING id",
        owner.0,
        word,
        server,
        destination,
        code.as_str(),
        i64::try_from(tasks).unwrap_or(i64::MAX),
        DbTime(now)
    )?;
    Ok(row.map(|(id,)| IncidentId(id)))
}

/// Makes a failing task part of an incident; it leaves the one that it was in.
pub async fn join(tx: &mut Tx, incident: IncidentId, task: TaskId) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO incident_tasks (task_id, incident_id, has_recovered) VALUES ($1, $2, FALSE)
         ON CONFLICT (task_id) DO UPDATE SET incident_id = excluded.incident_id, has_recovered = FALSE",
        task.0,
        incident.0
    )?;
    Ok(())
}

/// Takes a task out of its incident, because it fails for another reason now.
pub async fn leave(tx: &mut Tx, task: TaskId) -> Result<()> {
    execute!(tx, "DELETE FROM incident_tasks WHERE task_id = $1", task.0)?;
    Ok(())
}

/// Records that a task of an incident has succeeded.
pub async fn note_success(tx: &mut Tx, task: TaskId) -> Result<()> {
    execute!(tx, "UPDATE incident_tasks SET has_recovered = TRUE WHERE task_id = $1", task.0)?;
    Ok(())
}

/// Deletes the user's incidents with this code whose tasks are all in another one, which users are told of instead.
pub async fn delete_empty(tx: &mut Tx, owner: UserId, code: FailureCode) -> Result<()> {
    execute!(
        tx,
        "DELETE FROM incidents WHERE user_id = $1 AND code = $2
             AND NOT EXISTS (SELECT 1 FROM incident_tasks x WHERE x.incident_id = incidents.id)",
        owner.0,
        code.as_str()
    )?;
    Ok(())
}

named_row! {
    /// A task that is or was affected by an incident.
    #[derive(Debug, Clone)]
    pub struct AffectedTaskRow {
        pub id: i64,
        pub label: String,
        /// It has succeeded since.
        pub has_recovered: bool,
        pub is_paused: bool,
    }
}

/// Tasks that are or were affected by an incident, first those that still fail.
pub async fn list_tasks(tx: &mut Tx, id: IncidentId, limit: i64) -> Result<Vec<AffectedTaskRow>> {
    fetch_all!(
        tx,
        AffectedTaskRow,
        "SELECT t.id, t.label, x.has_recovered, (t.paused_at IS NOT NULL) AS is_paused
         FROM incident_tasks x JOIN backup_tasks t ON t.id = x.task_id
         WHERE x.incident_id = $1 ORDER BY x.has_recovered, t.id LIMIT $2",
        id.0,
        limit
    )
}

/// The user's incidents that are not over, oldest first.
pub async fn list_of(tx: &mut Tx, owner: UserId) -> Result<Vec<IncidentRow>> {
    let rows = fetch_all!(tx, IncidentFields, incidents!("WHERE i.user_id = $1 ORDER BY i.id"), owner.0)?;
    Ok(rows.into_iter().map(IncidentRow::from).collect())
}

/// How many tasks are or were affected by an incident.
pub async fn count_tasks(tx: &mut Tx, id: IncidentId) -> Result<i64> {
    fetch_scalar!(tx, i64, "SELECT COUNT(*) FROM incident_tasks WHERE incident_id = $1", id.0)
}

/// Whether an incident is over: all its tasks have succeeded, are paused or fail for other reasons.
pub async fn is_over(tx: &mut Tx, id: IncidentId) -> Result<bool> {
    fetch_scalar!(
        tx,
        bool,
        "SELECT NOT EXISTS (SELECT 1 FROM incident_tasks x JOIN backup_tasks t ON t.id = x.task_id
             WHERE x.incident_id = $1 AND NOT x.has_recovered AND t.paused_at IS NULL)",
        id.0
    )
}

/// Deletes an incident that is over. Returns false if another process has already done so.
pub async fn delete(tx: &mut Tx, id: IncidentId) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM incidents WHERE id = $1", id.0)? == 1)
}

/// Incidents that are over.
pub async fn list_over(tx: &mut Tx, limit: i64) -> Result<Vec<IncidentRow>> {
    const SQL: &str = incidents!(
        "WHERE NOT EXISTS (SELECT 1 FROM incident_tasks x JOIN backup_tasks t ON t.id = x.task_id
             WHERE x.incident_id = i.id AND NOT x.has_recovered AND t.paused_at IS NULL)
         ORDER BY i.id LIMIT $1"
    );
    let rows = fetch_all!(tx, IncidentFields, SQL, limit)?;
    Ok(rows.into_iter().map(IncidentRow::from).collect())
}

/// Incidents that have grown so much since users were told that they should be told again.
pub async fn list_grown(tx: &mut Tx, now: Timestamp, limit: i64) -> Result<Vec<IncidentRow>> {
    const SQL: &str = incidents!(
        "WHERE i.told_at <= $1 AND (SELECT COUNT(*) FROM incident_tasks x WHERE x.incident_id = i.id)
             >= $2 * i.told_tasks
         ORDER BY i.id LIMIT $3"
    );
    let before = DbTime(holdfast_core::clock::later(now, -TELL_AGAIN_SECS));
    let rows = fetch_all!(tx, IncidentFields, SQL, before, TELL_AGAIN_GROWTH, limit)?;
    Ok(rows.into_iter().map(IncidentRow::from).collect())
}

/// Records how many affected tasks users were told of. Returns false if another process tells them.
pub async fn update_told(tx: &mut Tx, id: IncidentId, tasks: i64, now: Timestamp) -> Result<bool> {
    let sql = "UPDATE incidents SET told_tasks = $1, told_at = $2 WHERE id = $3 AND told_tasks < $1";
    Ok(execute!(tx, sql, tasks, DbTime(now), id.0)? == 1)
}

/// Records that an incident is reported to a stream. Returns false if it was reported before.
pub async fn insert_stream(tx: &mut Tx, id: IncidentId, stream: StreamId) -> Result<bool> {
    let sql = "INSERT INTO incident_streams (incident_id, stream_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    Ok(execute!(tx, sql, id.0, stream.0)? == 1)
}
