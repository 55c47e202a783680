//! A copy of a SQLite database from before a migration, to return to the version that wrote it.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::error::{StartError, StoreError};
use crate::options::sqlite_path;
use crate::{Result, Tx, migrate};

/// How many copies are kept: an upgrade may skip a version, but who waits for two more does not go back.
const KEPT: usize = 2;

/// Copies the database to `holdfast.db.before-N` if migrations up to `N` are due. A migration does not begin without
/// that copy.
pub(crate) async fn before_migration(tx: &mut Tx, url: &str) -> std::result::Result<(), StartError> {
    let Some(path) = sqlite_path(url) else { return Ok(()) };
    if !migrate::has_schema(tx).await? {
        return Ok(());
    }
    let applied = migrate::find_version(tx).await?;
    let wanted = migrate::newest();
    if applied == 0 || applied >= wanted {
        return Ok(());
    }
    let copy = named(&path, wanted);
    let part = copy.with_extension("part");
    let copied = write(&path, &part, &copy).await;
    copied.map_err(|error| {
        // There may be none.
        std::fs::remove_file(&part).ok();
        match error {
            StoreError::DiskFull(_) => StartError::DiskFull(format!(
                "there is no room for a copy of the database before its migration: {} is as large as the database; free \
                 some space",
                copy.display()
            )),
            error => StartError::Database(format!("cannot copy the database to {}: {error}", copy.display())),
        }
    })?;
    tracing::info!(path = %copy.display(), "copied the database before its migration");
    remove_old(&path);
    Ok(())
}

fn named(database: &Path, version: i64) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(format!(".before-{version}"));
    PathBuf::from(name)
}

async fn write(database: &Path, part: &Path, copy: &Path) -> Result<()> {
    let io = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::DiskFull(error.to_string()),
        _ => StoreError::Unavailable(error.to_string()),
    };
    match std::fs::remove_file(part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    // Private from its first byte: SQLite would create it with the usual mode.
    let created = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(part).map_err(io)?;
    // Neither the readers, which may not write, nor the writer, which is in a transaction, can do this.
    let mut connection = SqliteConnectOptions::new().filename(database).connect().await?;
    sqlx::query("VACUUM INTO $1").bind(part.display().to_string()).execute(&mut connection).await?;
    connection.close().await?;
    created.sync_all().map_err(io)?;
    std::fs::rename(part, copy).map_err(io)?;
    match copy.parent() {
        Some(folder) => std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(io),
        None => Ok(()),
    }
}

/// Removes all copies but the newest ones. Failing to do so costs space only.
fn remove_old(database: &Path) {
    let (Some(folder), Some(name)) = (database.parent(), database.file_name().and_then(|name| name.to_str())) else {
        return;
    };
    let prefix = format!("{name}.before-");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let version = |path: &PathBuf| {
        path.file_name()?.to_str()?.strip_prefix(&prefix)?.parse::<i64>().ok().filter(|version| *version > 0)
    };
    let mut copies: Vec<(i64, PathBuf)> =
        entries.filter_map(|entry| Some((version(&entry.path())?, entry.path()))).collect();
    copies.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    for (_, path) in copies.into_iter().skip(KEPT) {
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "could not remove an old copy of the database");
        }
    }
}
