//! The condition of the database: whether it can be written, has room, and is undamaged.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use holdfast_core::Timestamp;

use crate::error::StoreError;
use crate::{DbTime, Result, Tx, settings};

/// With less free space than a busy minute needs, SQLite may fail at any time.
const LEAST_FREE_BYTES: u64 = 16 << 20;
/// The setting that is written only to prove that this is possible.
const WRITTEN_AT: &str = "written_at";
/// How long damage that PostgreSQL has reported counts; it does not report when it was repaired.
const REPORTED_MICROS: i64 = 86_400_000_000;

/// The file of a SQLite database, as it was when it was opened.
#[derive(Debug, Clone)]
pub(crate) struct DatabaseFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl DatabaseFile {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity(path) }
    }

    /// Checks that the open file is still the one at its path, and that its disk has room.
    pub(crate) fn check(&self) -> Result<()> {
        if identity(&self.path) != self.identity {
            let message = format!(
                "{} was moved, replaced or deleted while it was in use; stop Holdfast, put it back, and start again",
                self.path.display()
            );
            return Err(StoreError::Gone(message));
        }
        match self.free_bytes() {
            Some(free) if free < LEAST_FREE_BYTES => {
                let shown = holdfast_core::figures::size(i64::try_from(free).unwrap_or(i64::MAX));
                Err(StoreError::DiskFull(format!("only {shown} left for {}", self.path.display())))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The free space of its file system.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&self.path).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Commits a write. A write that is rolled back proves little: SQLite keeps it in memory.
pub(crate) async fn write(mut tx: Tx, now: Timestamp) -> Result<()> {
    settings::write(&mut tx, WRITTEN_AT, &now.as_microsecond().to_string()).await?;
    tx.commit().await
}

/// Checks the whole database for damage. PostgreSQL cannot do that, but counts the damaged pages that it comes across,
/// if its data has checksums.
pub(crate) async fn find_damage(tx: &mut Tx, now: Timestamp) -> Result<Option<String>> {
    if tx.is_sqlite() {
        let found = match fetch_all!(tx, (String,), "PRAGMA quick_check(20)") {
            Ok(rows) => rows.into_iter().map(|(line,)| line).filter(|line| line != "ok").collect::<Vec<_>>(),
            Err(StoreError::Damaged(text)) => vec![text],
            Err(error) => return Err(error),
        };
        return Ok((!found.is_empty()).then(|| found.join("; ")));
    }
    let sql = "SELECT COALESCE(checksum_failures, 0),
             CAST(EXTRACT(EPOCH FROM checksum_last_failure) * 1000000 AS BIGINT)
         FROM pg_stat_database WHERE datname = current_database()";
    let found = fetch_optional!(tx, (i64, Option<DbTime>), sql)?;
    let since = now.as_microsecond().saturating_sub(REPORTED_MICROS);
    Ok(found.and_then(|(pages, last)| {
        let last = last.filter(|last| last.0.as_microsecond() >= since)?;
        Some(format!("PostgreSQL has found {pages} damaged pages in its data, the last at {}", last.0))
    }))
}

/// How many unused pages a SQLite database may keep: new rows use them first.
const SPARE_PAGES: i64 = 1000;
/// How many are given back at a time, so that nobody has to wait for it; as in the statement below.
const PAGES_AT_ONCE: i64 = 2000;

/// Gives unused pages of a SQLite database back to the file system, as far as there are many. PostgreSQL does that by
/// itself. Returns whether there are more.
pub async fn shrink(tx: &mut Tx) -> Result<bool> {
    if !tx.is_sqlite() {
        return Ok(false);
    }
    let (unused, mode) = (
        fetch_scalar!(tx, i64, "SELECT freelist_count FROM pragma_freelist_count")?,
        fetch_scalar!(tx, i64, "SELECT auto_vacuum FROM pragma_auto_vacuum")?,
    );
    const INCREMENTAL: i64 = 2;
    if mode != INCREMENTAL || unused <= SPARE_PAGES {
        return Ok(false);
    }
    execute!(tx, "PRAGMA incremental_vacuum(2000)")?;
    Ok(unused - SPARE_PAGES > PAGES_AT_ONCE)
}
