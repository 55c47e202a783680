//! The export of the audit log to a place outside of the database: how far it has come, who writes it, and what is wrong.

use holdfast_core::{Timestamp, clock};

use crate::audit::{self, EventRow};
use crate::tx::Backend;
use crate::{DbTime, Result, StoreError, Tx, settings};

/// The setting with the id of the last event that was written.
const AFTER: &str = "audit_log_after";
/// The setting with the process that writes, and until when no other one may.
const WRITER: &str = "audit_log_writer";
/// The setting that says what is wrong; empty if nothing is.
const PROBLEM: &str = "audit_log_problem";
/// Events that were not exported are kept for as long as somebody has tried to within this time.
const GIVEN_UP_MICROS: i64 = 7 * 86_400_000_000;

/// Claims the right to write until `until`, unless another process has it. Returns whether it was claimed.
pub async fn claim(tx: &mut Tx, name: &str, until: Timestamp, now: Timestamp) -> Result<bool> {
    let known = settings::find(tx, WRITER).await?;
    let is_free = known.as_deref().and_then(read_claim).is_none_or(|(writer, until)| writer == name || until <= now);
    let claim = format!("{name} {}", until.as_microsecond());
    // A position beyond the newest event is that of another database, from which this one was imported. Without this,
    // nothing would be written until as many events have happened here.
    if is_free && find_after(tx).await? > find_newest(tx).await? {
        tracing::warn!("the export of the audit log begins anew: its position was that of another database");
        settings::write(tx, AFTER, "0").await?;
    }
    Ok(is_free && settings::swap(tx, WRITER, known.as_deref(), &claim).await?)
}

fn read_claim(text: &str) -> Option<(&str, Timestamp)> {
    let (name, until) = text.split_once(' ')?;
    Some((name, clock::from_micros(until.parse().ok()?)))
}

/// The id of the last event that was written; 0 if none was.
pub async fn find_after(tx: &mut Tx) -> Result<i64> {
    let Some(text) = settings::find(tx, AFTER).await? else { return Ok(0) };
    text.parse().map_err(|_| StoreError::Broken(format!("the position of the audit log's export is {text:?}")))
}

/// Records that all events up to `to` were written, if `from` was the last one before. Returns false if another process
/// has written meanwhile.
pub async fn advance(tx: &mut Tx, from: i64, to: i64) -> Result<bool> {
    let from = from.to_string();
    let known = settings::find(tx, AFTER).await?.map(|_| from.as_str());
    settings::swap(tx, AFTER, known, &to.to_string()).await
}

pub async fn write_problem(tx: &mut Tx, problem: &str) -> Result<()> {
    settings::write(tx, PROBLEM, problem).await
}

pub async fn find_problem(tx: &mut Tx) -> Result<Option<String>> {
    Ok(settings::find(tx, PROBLEM).await?.filter(|text| !text.is_empty()))
}

/// The newest event; 0 if there is none.
pub async fn find_newest(tx: &mut Tx) -> Result<i64> {
    fetch_scalar!(tx, i64, "SELECT COALESCE(MAX(id), 0) FROM audit_events")
}

/// The transactions that are writing events. On PostgreSQL, ids are given out before a transaction commits, so older
/// events than the newest may still appear until all of these have ended. SQLite has a single writer.
pub async fn list_writing(tx: &mut Tx) -> Result<Vec<String>> {
    if matches!(tx.backend(), Backend::Sqlite(_)) {
        return Ok(Vec::new());
    }
    let sql = "SELECT virtualtransaction FROM pg_locks
         WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND relation = to_regclass('audit_events')::oid AND mode = 'RowExclusiveLock' AND granted";
    let rows = fetch_all!(tx, (String,), sql)?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// The events after `after`, up to `until`; oldest first.
pub async fn list(tx: &mut Tx, after: i64, until: i64, limit: i64) -> Result<Vec<EventRow>> {
    let mut rows = audit::list_since(tx, Timestamp::MIN, after, limit).await?;
    rows.retain(|row| row.id <= until);
    Ok(rows)
}

/// When the oldest event happened that was not written yet.
pub async fn find_oldest_waiting(tx: &mut Tx) -> Result<Option<DbTime>> {
    let after = find_after(tx).await?;
    let sql = "SELECT at FROM audit_events WHERE id > $1 ORDER BY id LIMIT 1";
    Ok(fetch_optional!(tx, (DbTime,), sql, after)?.map(|(at,)| at))
}

/// The last event that may be deleted: all of them, if nobody exports them.
pub async fn find_deletable(tx: &mut Tx, now: Timestamp) -> Result<i64> {
    let claim = settings::find(tx, WRITER).await?;
    let until = claim.as_deref().and_then(read_claim).map(|(_, until)| until.as_microsecond());
    match until.is_some_and(|until| until > now.as_microsecond().saturating_sub(GIVEN_UP_MICROS)) {
        true => find_after(tx).await,
        false => Ok(i64::MAX),
    }
}
