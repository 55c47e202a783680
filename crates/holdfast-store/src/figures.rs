//! Figures about the whole installation, for monitoring. None of them contains the name of a user or of what they own.

use holdfast_core::Timestamp;

use crate::{DbTime, Result, StoreError, Tx};

named_row! {
    #[derive(Debug, Clone)]
    pub struct Figures {
        pub queued: i64,
        /// When the run that has waited longest was queued.
        pub queued_since: Option<DbTime>,
        pub running: i64,
        /// The earliest slot of any task; it may be in the past.
        pub next_slot_at: Option<DbTime>,
        /// Tasks of suspended accounts; none of the other figures on tasks counts them.
        pub tasks_suspended: i64,
        pub tasks: i64,
        pub tasks_paused: i64,
        pub tasks_failed: i64,
        pub tasks_overdue: i64,
        /// Tasks that are not paused and have never succeeded.
        pub tasks_without_success: i64,
        /// Tasks whose old backups are not removed, because a newer one is suspicious.
        pub tasks_held: i64,
        /// Since when the first of them has been held.
        pub held_since: Option<DbTime>,
        pub backups: i64,
        pub stored_bytes: i64,
        pub backups_damaged: i64,
        pub backups_unproven: i64,
        pub repositories: i64,
        pub repositories_bytes: i64,
        /// Those whose last prune or check failed.
        pub repositories_neglected: i64,
        pub servers_online: i64,
        pub servers_offline: i64,
        pub servers_unknown: i64,
        pub destinations_reachable: i64,
        pub destinations_unreachable: i64,
        pub destinations_unknown: i64,
        pub notices_waiting: i64,
        pub notices_undelivered: i64,
        /// Destinations whose catalogue is out of date.
        pub catalogues_waiting: i64,
    }
}

pub async fn find(tx: &mut Tx) -> Result<Figures> {
    let row = fetch_optional!(
        tx,
        Figures,
        concat!(
            "SELECT (SELECT COUNT(*) FROM runs WHERE status = 'queued') AS queued,
             (SELECT MIN(created_at) FROM runs WHERE status = 'queued') AS queued_since,
             (SELECT COUNT(*) FROM runs WHERE status = 'running') AS running,
             (SELECT MIN(s.next_run_at) FROM backup_tasks s WHERE s.next_run_at IS NOT NULL AND ",
            is_active!("s"),
            ") AS next_slot_at,
             (SELECT COUNT(*) FROM backup_tasks x WHERE NOT (",
            is_active!("x"),
            ")) AS tasks_suspended,
             t.tasks, t.tasks_paused, t.tasks_failed, t.tasks_overdue, t.tasks_without_success, t.tasks_held,
             t.held_since, b.backups, b.stored_bytes, b.backups_damaged, b.backups_unproven,
             o.repositories, o.repositories_bytes, o.repositories_neglected,
             r.servers_online, r.servers_offline, r.servers_unknown,
             d.destinations_reachable, d.destinations_unreachable, d.destinations_unknown,
             (SELECT COUNT(*) FROM notices WHERE next_try_at IS NOT NULL) AS notices_waiting,
             (SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM totals
                 WHERE subject = 'notice' AND status = 'undelivered') AS notices_undelivered,
             (SELECT COUNT(*) FROM backup_destinations d WHERE d.status <> 'unknown'
                 AND (d.catalogue_wanted_at IS NOT NULL
                     OR EXISTS (SELECT 1 FROM catalogue_wishes w WHERE w.user_id = d.user_id))) AS catalogues_waiting
         FROM (SELECT COUNT(*) AS tasks, COUNT(paused_at) AS tasks_paused,
                 COUNT(CASE WHEN paused_at IS NULL AND last_status = 'failed' THEN 1 END) AS tasks_failed,
                 COUNT(CASE WHEN paused_at IS NULL AND overdue_since IS NOT NULL THEN 1 END) AS tasks_overdue,
                 COUNT(CASE WHEN paused_at IS NULL AND last_success_at IS NULL THEN 1 END) AS tasks_without_success,
                 COUNT(retention_held_at) AS tasks_held, MIN(retention_held_at) AS held_since
             FROM backup_tasks a WHERE ",
            is_active!("a"),
            ") t
         CROSS JOIN (SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) AS backups,
                 (SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM totals
                     WHERE subject = 'copy' AND kind = 'stored') AS stored_bytes,
                 CAST(COALESCE(SUM(CASE WHEN status IN ('corrupt', 'missing') THEN amount END), 0) AS BIGINT)
                     AS backups_damaged,
                 CAST(COALESCE(SUM(CASE WHEN status = 'unverified' THEN amount END), 0) AS BIGINT) AS backups_unproven
             FROM totals WHERE subject = 'backup' AND kind = 'stored') b
         CROSS JOIN (SELECT COUNT(*) AS repositories,
                 CAST(COALESCE(SUM(stored_bytes), 0) AS BIGINT) AS repositories_bytes,
                 COUNT(COALESCE(check_trouble_code, prune_trouble_code)) AS repositories_neglected
             FROM repositories WHERE removed_at IS NULL) o
         CROSS JOIN (SELECT COUNT(CASE WHEN connectivity = 'online' THEN 1 END) AS servers_online,
                 COUNT(CASE WHEN connectivity = 'offline' THEN 1 END) AS servers_offline,
                 COUNT(CASE WHEN connectivity = 'unknown' THEN 1 END) AS servers_unknown
             FROM remote_servers h WHERE ",
            is_active!("h"),
            ") r
         CROSS JOIN (SELECT COUNT(CASE WHEN status = 'reachable' THEN 1 END) AS destinations_reachable,
                 COUNT(CASE WHEN status = 'unreachable' THEN 1 END) AS destinations_unreachable,
                 COUNT(CASE WHEN status = 'unknown' THEN 1 END) AS destinations_unknown
             FROM backup_destinations p WHERE ",
            is_active!("p"),
            ") d"
        )
    )?;
    row.ok_or_else(|| StoreError::Broken("a query returned no row".to_owned()))
}

/// The earliest slot of any task; it may be in the past.
pub async fn find_next_slot(tx: &mut Tx) -> Result<Option<DbTime>> {
    let sql =
        concat!("SELECT MIN(t.next_run_at) FROM backup_tasks t WHERE t.next_run_at IS NOT NULL AND ", is_active!("t"));
    Ok(fetch_optional!(tx, (Option<DbTime>,), sql)?.and_then(|(at,)| at))
}

/// The database server's current time; `None` for SQLite, which shares this machine's clock.
pub async fn find_clock(tx: &mut Tx) -> Result<Option<DbTime>> {
    if tx.is_sqlite() {
        return Ok(None);
    }
    let sql = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";
    fetch_scalar!(tx, DbTime, sql).map(Some)
}

/// When the newest run was queued.
pub async fn find_newest(tx: &mut Tx) -> Result<Option<DbTime>> {
    let sql = "SELECT created_at FROM runs ORDER BY id DESC LIMIT 1";
    Ok(fetch_optional!(tx, (DbTime,), sql)?.map(|(at,)| at))
}

/// How many slots were recorded as missed since `since`.
pub async fn count_missed(tx: &mut Tx, since: Timestamp) -> Result<i64> {
    // The code is part of the text, because there is an index for it alone.
    let sql = "SELECT COUNT(*) FROM runs WHERE error_code = 'missed' AND finished_at >= $1";
    fetch_scalar!(tx, i64, sql, DbTime(since))
}

/// How many notices since `since` could not be delivered.
pub async fn count_undelivered(tx: &mut Tx, since: Timestamp) -> Result<i64> {
    let sql = "SELECT COUNT(*) FROM notices WHERE status = 'undelivered' AND created_at >= $1";
    fetch_scalar!(tx, i64, sql, DbTime(since))
}

/// How many notices wait for another attempt, because the last one failed.
pub async fn count_retried(tx: &mut Tx) -> Result<i64> {
    fetch_scalar!(tx, i64, "SELECT COUNT(*) FROM notices WHERE next_try_at IS NOT NULL AND tries > 0")
}

/// How many destinations have an old catalogue because the last attempt to write it failed, and how many have an old one.
pub async fn count_old_catalogues(tx: &mut Tx) -> Result<(i64, i64)> {
    let sql = concat!(
        "SELECT COUNT(CASE WHEN d.catalogue_error IS NOT NULL THEN 1 END), COUNT(*) FROM backup_destinations d
         WHERE d.catalogue_wanted_at IS NOT NULL AND d.status <> 'unknown' AND ",
        is_active!("d")
    );
    Ok(fetch_optional!(tx, (i64, i64), sql)?.unwrap_or((0, 0)))
}

/// Some tasks whose last run failed or that are overdue, with their owners.
pub async fn list_failing_tasks(tx: &mut Tx, limit: i64) -> Result<Vec<(String, String)>> {
    fetch_all!(
        tx,
        (String, String),
        "SELECT t.label, u.email FROM backup_tasks t JOIN users u ON u.id = t.user_id
         WHERE u.suspended_at IS NULL AND t.paused_at IS NULL
             AND (t.last_status = 'failed' OR t.overdue_since IS NOT NULL)
         ORDER BY t.id LIMIT $1",
        limit
    )
}

/// Some tasks with damaged or missing backups, with their owners.
pub async fn list_damaged_tasks(tx: &mut Tx, limit: i64) -> Result<Vec<(String, String)>> {
    fetch_all!(
        tx,
        (String, String),
        "SELECT DISTINCT b.task_label, u.email FROM backups b JOIN users u ON u.id = b.user_id
         WHERE b.deleted_at IS NULL AND b.verification IN ('corrupt', 'missing') ORDER BY 2, 1 LIMIT $1",
        limit
    )
}

/// When each task that is not paused, and whose account is not suspended, last succeeded, the longest ago first.
pub async fn list_successes(tx: &mut Tx, limit: i64) -> Result<Vec<(i64, DbTime)>> {
    fetch_all!(
        tx,
        (i64, DbTime),
        concat!(
            "SELECT t.id, t.last_success_at FROM backup_tasks t
             WHERE t.paused_at IS NULL AND t.last_success_at IS NOT NULL AND ",
            is_active!("t"),
            " ORDER BY t.last_success_at, t.id LIMIT $1"
        ),
        limit
    )
}

/// The size of the database.
pub async fn find_database_bytes(tx: &mut Tx) -> Result<i64> {
    if tx.is_sqlite() {
        let sql = "SELECT p.page_count * s.page_size FROM pragma_page_count p CROSS JOIN pragma_page_size s";
        return fetch_scalar!(tx, i64, sql);
    }
    fetch_scalar!(tx, i64, "SELECT pg_database_size(current_database())")
}
