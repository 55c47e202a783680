//! The condition of the database: whether it can be written and is undamaged.

use holdfast_core::Timestamp;

use crate::error::StoreError;
use crate::{DbTime, Result, Tx, settings};

/// The setting that is written only to prove that this is possible.
const WRITTEN_AT: &str = "written_at";
/// How long damage counts that PostgreSQL has reported and that reading all tables does not find, such as in an index:
/// PostgreSQL does not report when it was repaired, but reports it again when a statement runs into it.
const REPORTED_MICROS: i64 = 600_000_000;

/// Commits a write. A write that is rolled back proves little: SQLite keeps it in memory.
pub(crate) async fn write(mut tx: Tx, now: Timestamp) -> Result<()> {
    if !tx.is_sqlite() {
        take_room(&mut tx).await?;
    }
    settings::write(&mut tx, WRITTEN_AT, &now.as_microsecond().to_string()).await?;
    tx.commit().await
}

/// Has PostgreSQL write a temporary file of about a megabyte. On a full disk, that fails, whereas changes of existing rows
/// succeed for as long as their pages have room.
async fn take_room(tx: &mut Tx) -> Result<()> {
    let sql = "SELECT set_config('work_mem', '64kB', TRUE), set_config('temp_tablespaces', '', TRUE)";
    fetch_optional!(tx, (String, String), sql)?;
    fetch_scalar!(tx, i64, "SELECT COUNT(*) FROM generate_series(1, 65536)")?;
    Ok(())
}

/// Changes when there is reason to check the database again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamageSigns {
    started_at: i64,
    failures: i64,
}

/// What PostgreSQL tells without a check: when it was started, because its files may have been changed before, and how
/// many damaged pages it has come across, if its data has checksums. SQLite tells nothing.
pub(crate) async fn find_signs(tx: &mut Tx) -> Result<DamageSigns> {
    if tx.is_sqlite() {
        return Ok(DamageSigns { started_at: 0, failures: 0 });
    }
    let sql = "SELECT CAST(EXTRACT(EPOCH FROM pg_postmaster_start_time()) * 1000000 AS BIGINT),
             COALESCE(checksum_failures, 0)
         FROM pg_stat_database WHERE datname = current_database()";
    let found = fetch_optional!(tx, (i64, i64), sql)?;
    let (started_at, failures) = found.unwrap_or((0, 0));
    Ok(DamageSigns { started_at, failures })
}

/// Checks the whole database for damage.
pub(crate) async fn find_damage(tx: &mut Tx, now: Timestamp) -> Result<Option<String>> {
    if !tx.is_sqlite() {
        return match read_tables(tx).await {
            Ok(()) => find_reported(tx, now).await,
            Err(StoreError::Damaged(text)) => Ok(Some(text)),
            Err(error) => Err(error),
        };
    }
    let found = match fetch_all!(tx, (String,), "PRAGMA quick_check(20)") {
        Ok(rows) => rows.into_iter().map(|(line,)| line).filter(|line| line != "ok").collect::<Vec<_>>(),
        Err(StoreError::Damaged(text)) => vec![text],
        Err(error) => return Err(error),
    };
    Ok((!found.is_empty()).then(|| found.join("; ")))
}

/// Reads every row of every table, with what is stored outside of it.
async fn read_tables(tx: &mut Tx) -> Result<()> {
    let sql = "SELECT format('SELECT COALESCE(SUM(octet_length(CAST(whole_row AS TEXT))), 0) FROM %I.%I whole_row',
             schemaname, tablename)
         FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename";
    for (read,) in fetch_all!(tx, (String,), sql)? {
        fetch_scalar!(tx, i64, sqlx::AssertSqlSafe(read.as_str()))?;
    }
    Ok(())
}

/// Damage that PostgreSQL has come across lately, since it was started, if its data has checksums.
async fn find_reported(tx: &mut Tx, now: Timestamp) -> Result<Option<String>> {
    let sql = "SELECT COALESCE(checksum_failures, 0),
             CAST(EXTRACT(EPOCH FROM checksum_last_failure) * 1000000 AS BIGINT)
         FROM pg_stat_database
         WHERE datname = current_database() AND checksum_last_failure > pg_postmaster_start_time()";
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
