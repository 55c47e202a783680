//! What restores were asked to do.

use holdfast_core::Timestamp;
use holdfast_core::backup::{RestoreDraft, RestoreOptions, RestoreTarget};
use holdfast_core::ids::{RunId, ServerId};
use holdfast_core::queue::Extent;
use holdfast_core::run::FailureCode;

use crate::{Result, Tx};

#[derive(sqlx::FromRow)]
struct RestoreRow {
    server_id: i64,
    overwrite: bool,
    path: Option<String>,
    database_name: Option<String>,
    entries: String,
    no_owner: bool,
    numeric_owner: bool,
    restore_devices: bool,
    dry_run: bool,
}

pub async fn insert(tx: &mut Tx, run: RunId, draft: &RestoreDraft) -> Result<()> {
    let (path, database_name, entries) = match &draft.target {
        RestoreTarget::Files { path, entries } => (Some(path), None, entries.join("\n")),
        RestoreTarget::Database { name } => (None, name.as_ref(), String::new()),
    };
    execute!(
        tx,
        "INSERT INTO restores (run_id, server_id, overwrite, path, database_name, entries, no_owner, numeric_owner,
             restore_devices, dry_run)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        run.0,
        draft.server.0,
        draft.overwrite,
        path,
        database_name,
        entries,
        draft.options.no_owner,
        draft.options.numeric_owner,
        draft.options.restore_devices,
        draft.options.dry_run
    )?;
    Ok(())
}

#[derive(sqlx::FromRow)]
struct EndedRow {
    path: Option<String>,
    database_name: Option<String>,
    status: String,
    error_code: Option<String>,
    finished_at: i64,
}

/// Where a restore writes on its server.
pub(crate) fn target_extent(path: Option<String>, database: Option<String>) -> Extent {
    match path {
        Some(path) => Extent::Files(path),
        None => Extent::Database(database),
    }
}

/// Ended restores that are looked at: more within the time that logs are kept are no accident.
const MOST_ENDED: i64 = 500;

/// When the last restore into a place of a server ended that may have left half of it; `None` when there was none, or a
/// later one succeeded there.
pub async fn find_unfinished(tx: &mut Tx, server: ServerId, extent: &Extent) -> Result<Option<Timestamp>> {
    let rows = fetch_all!(
        tx,
        EndedRow,
        "SELECT w.path, w.database_name, r.status, r.error_code, COALESCE(r.finished_at, 0) AS finished_at
         FROM restores w JOIN runs r ON r.id = w.run_id
         WHERE w.server_id = $1 AND NOT w.dry_run AND r.started_at IS NOT NULL
             AND r.status IN ('successful', 'failed', 'cancelled')
         ORDER BY r.id DESC LIMIT $2",
        server.0,
        MOST_ENDED
    )?;
    for row in rows {
        let place = target_extent(row.path, row.database_name);
        let code = row.error_code.as_deref().and_then(FailureCode::parse);
        let is_harmless = row.status == "failed" && code.is_some_and(FailureCode::is_before_writing);
        if !place.overlaps(extent) || is_harmless {
            continue;
        }
        let is_unfinished = row.status != "successful";
        return Ok(is_unfinished.then(|| holdfast_core::clock::from_micros(row.finished_at)));
    }
    Ok(None)
}

pub async fn find(tx: &mut Tx, run: RunId) -> Result<Option<RestoreDraft>> {
    let row = fetch_optional!(
        tx,
        RestoreRow,
        "SELECT server_id, overwrite, path, database_name, entries, no_owner, numeric_owner, restore_devices, dry_run
         FROM restores WHERE run_id = $1",
        run.0
    )?;
    Ok(row.map(|row| RestoreDraft {
        server: ServerId(row.server_id),
        overwrite: row.overwrite,
        options: RestoreOptions {
            no_owner: row.no_owner,
            numeric_owner: row.numeric_owner,
            restore_devices: row.restore_devices,
            dry_run: row.dry_run,
        },
        target: match row.path {
            // Names hold no line breaks; `name_text` writes them otherwise.
            Some(path) => RestoreTarget::Files { path, entries: row.entries.lines().map(str::to_owned).collect() },
            None => RestoreTarget::Database { name: row.database_name },
        },
    }))
}
