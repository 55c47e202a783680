//! What restores were asked to do.

use holdfast_core::backup::{RestoreDraft, RestoreOptions, RestoreTarget};
use holdfast_core::ids::{RunId, ServerId};

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
