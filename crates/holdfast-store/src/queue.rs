//! The queue of runs: which are waiting, which may start, and leases whose workers stopped responding.

use std::collections::HashMap;

use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{DestinationId, RepositoryId, RunId, ServerId, TaskId, UserId};
use holdfast_core::queue::{
    Access, Chooser, ConcurrencyLimits, Load, LongRunCapacity, RepositoryUse, Share, UsedRepositories,
};
use holdfast_core::{Timestamp, lease};
use sqlx::QueryBuilder;

use crate::hosts::{HostRow, host_columns, target_extent};
use crate::runs::{self, RunRow};
use crate::statement::{Statement as _, decode_all};
use crate::tx::push_ids;
use crate::{DbTime, Result, StoreError, Tx, spec};

named_row! {
    /// The user, the server and the destination that a run counts against, and what it reads or writes on the server.
    #[derive(Debug, Clone)]
    struct LoadRow {
        id: i64,
        user_id: i64,
        load_server_id: Option<i64>,
        load_destination_id: Option<i64>,
        turn: i64,
        is_restore: bool,
        restore_path: Option<String>,
        restore_database: Option<String>,
        restore_content: Option<String>,
        task_spec: Option<String>,
        repository_id: Option<i64>,
        repository_task_id: Option<i64>,
        task_id: Option<i64>,
        is_prune: bool,
        host: HostRow,
    }
}

impl LoadRow {
    fn load(&self) -> Load {
        let access = self.host.host().zip(self.access());
        Load {
            user: UserId(self.user_id),
            server: self.load_server_id.map(ServerId),
            destination: self.load_destination_id.map(DestinationId),
            access,
            repository: self
                .repositories()
                .map(|repositories| RepositoryUse { repositories, is_exclusive: self.is_prune }),
        }
    }

    /// The repository that a run uses. Into which of its task a backup will store is not decided yet.
    fn repositories(&self) -> Option<UsedRepositories> {
        let of_backup = || {
            let task = spec::task(self.task_spec.as_deref()?)?;
            task.storage.format.is_shared().then_some(UsedRepositories::OfTask(TaskId(self.task_id?)))
        };
        match (self.repository_task_id, self.repository_id) {
            (Some(task), _) => Some(UsedRepositories::OfTask(TaskId(task))),
            (None, Some(id)) => Some(UsedRepositories::One(RepositoryId(id))),
            (None, None) => of_backup(),
        }
    }

    fn access(&self) -> Option<Access> {
        if self.is_restore {
            let content = self.restore_content.as_deref();
            let extent = target_extent(self.restore_path.clone(), self.restore_database.clone(), content);
            return Some(Access { extent, writes: true });
        }
        let task = spec::task(self.task_spec.as_deref()?)?;
        Some(Access { extent: task.source.extent(), writes: false })
    }
}

/// Whether any run is queued; a very cheap query.
pub async fn has_queued(tx: &mut Tx) -> Result<bool> {
    fetch_scalar!(tx, bool, "SELECT EXISTS (SELECT 1 FROM runs WHERE status = 'queued')")
}

/// How many queued runs are read at a time when choosing which to start.
const CLAIM_PAGE: i64 = 200;
const FIRST_PAGE: i64 = 40;
/// How many pages are read at most, which bounds how long other workers wait for their turn to choose.
const CLAIM_PAGES: usize = 100;

/// Places for short runs that are reserved for users who have none running.
const RESERVED_FOR_OTHERS: usize = 2;

/// The loads of the runs `r` for which a condition holds. A dry run of a restore writes nothing.
macro_rules! loads {
    ($condition:literal) => {
        concat!(
            "SELECT r.id, r.user_id, r.load_server_id,
                 COALESCE(t.backup_destination_id, r.destination_id, c.destination_id, p.destination_id)
                     AS load_destination_id, r.turn, w.run_id IS NOT NULL AS is_restore,
                 w.path AS restore_path, w.database_name AS restore_database, b.content AS restore_content,
                 t.spec AS task_spec, t.id AS task_id, r.kind = 'prune' AS is_prune,
                 p.id AS repository_id, p.task_id AS repository_task_id, ",
            host_columns!(),
            " FROM runs r
             LEFT JOIN restores w ON w.run_id = r.id AND NOT w.dry_run
             LEFT JOIN backups b ON b.id = r.backup_id
             LEFT JOIN backup_copies c ON c.backup_id = r.backup_id AND c.position = 0
             LEFT JOIN repositories p ON p.id = COALESCE(r.repository_id, c.repository_id)
             LEFT JOIN backup_tasks t ON t.id = r.task_id AND r.kind = 'backup'
             LEFT JOIN remote_servers s ON s.id = r.load_server_id
             LEFT JOIN remote_servers j ON j.id = s.jump_server_id
             WHERE ",
            $condition
        )
    };
}

const SHORT_QUEUED: &str = loads!(
    "r.status = 'queued' AND NOT r.is_long
     AND r.user_id NOT IN (SELECT id FROM users WHERE suspended_at IS NOT NULL) AND (r.turn, r.id) > ($1, $2)
     ORDER BY r.turn, r.id LIMIT $3"
);
const LONG_QUEUED: &str = loads!(
    "r.status = 'queued' AND r.is_long
     AND r.user_id NOT IN (SELECT id FROM users WHERE suspended_at IS NOT NULL) AND (r.turn, r.id) > ($1, $2)
     ORDER BY r.turn, r.id LIMIT $3"
);
const LONG_RUNNING: &str = loads!("r.status = 'running' AND r.is_long");

async fn choose_short(tx: &mut Tx, room: usize, limits: ConcurrencyLimits) -> Result<Vec<i64>> {
    let running = fetch_all!(
        tx,
        (i64, i64),
        "SELECT user_id, COUNT(*) FROM runs WHERE status = 'running' AND NOT is_long GROUP BY user_id"
    )?;
    let count = |count: i64| usize::try_from(count).unwrap_or(usize::MAX);
    let mut own: HashMap<i64, usize> = running.into_iter().map(|(user, runs)| (user, count(runs))).collect();
    let share = Share { per_user: limits.checks_per_user, reserved: RESERVED_FOR_OTHERS };
    let mut free = room;
    choose(tx, SHORT_QUEUED, room, |row| {
        let own = own.entry(row.user_id).or_default();
        let may_start = share.allows(*own, free);
        if may_start {
            *own += 1;
            free -= 1;
        }
        may_start
    })
    .await
}

async fn choose_long(tx: &mut Tx, places: LongRunCapacity, limits: ConcurrencyLimits) -> Result<Vec<i64>> {
    let running = fetch_all!(tx, LoadRow, LONG_RUNNING)?;
    let mut chooser = Chooser::new(limits, places, running.iter().map(LoadRow::load));
    choose(tx, LONG_QUEUED, places.free, |row| chooser.may_start(row.load())).await
}

/// The first queued runs, in the order of their turns, that may start.
async fn choose(
    tx: &mut Tx,
    sql: &'static str,
    room: usize,
    mut may_start: impl FnMut(&LoadRow) -> bool,
) -> Result<Vec<i64>> {
    let (mut chosen, mut after) = (Vec::new(), (i64::MIN, i64::MIN));
    for number in 0..CLAIM_PAGES {
        // Usually some of the first few may start, so the first page is small.
        let limit = if number == 0 { FIRST_PAGE } else { CLAIM_PAGE };
        let page = fetch_all!(tx, LoadRow, sql, after.0, after.1, limit)?;
        for row in &page {
            if chosen.len() < room && may_start(row) {
                chosen.push(row.id);
            }
        }
        match page.last() {
            Some(last) if chosen.len() < room && page.len() as i64 == limit => after = (last.turn, last.id),
            _ => break,
        }
    }
    Ok(chosen)
}

/// How many more runs a worker can take. Short ones have separate places, so that a check does not wait for hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub long: LongRunCapacity,
    pub short: usize,
}

/// Claims queued runs, in the order of their turns, as far as there is room and the limits allow. One worker chooses at
/// a time, so that the limits hold across all workers; the claim itself is one statement that takes only queued runs.
pub async fn claim(
    tx: &mut Tx,
    worker: &str,
    room: Capacity,
    limits: ConcurrencyLimits,
    lease_until: Timestamp,
    now: Timestamp,
) -> Result<Vec<RunRow>> {
    if let crate::tx::Backend::Postgres(connection) = tx.backend() {
        const CLAIMING: i64 = 0x686f_6c64_0001;
        let locked =
            sqlx::query::<sqlx::Postgres>("SELECT pg_advisory_xact_lock($1)").bind(CLAIMING).run(connection).await;
        tx.checked(locked)?;
    }
    let mut chosen = if room.short > 0 { choose_short(tx, room.short, limits).await? } else { Vec::new() };
    if room.long.free > 0 {
        chosen.extend(choose_long(tx, room.long, limits).await?);
    }
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let claimed = with_conn!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new("UPDATE runs SET status = 'running', worker = ");
        query.push_bind(worker).push(", lease_epoch = lease_epoch + 1, lease_expires_at = ").push_bind(DbTime(lease_until));
        query.push(", started_at = ").push_bind(DbTime(now)).push(" WHERE status = 'queued' AND id IN (");
        push_ids(&mut query, &chosen);
        query.push(") RETURNING id");
        query.build().all(conn).await.and_then(decode_all::<(i64,), _>)
    })?;
    let claimed: Vec<i64> = claimed.into_iter().map(|(id,)| id).collect();
    runs::list_in_turn(tx, &claimed).await
}

named_row! {
    #[derive(Debug, Clone, Copy)]
    struct BeatRow {
        id: i64,
        lease_epoch: i64,
        lease_expires_at: i64,
    }
}

/// The last heartbeat of every running run.
pub async fn list_heartbeats(tx: &mut Tx) -> Result<Vec<lease::Heartbeat>> {
    let sql = "SELECT id, lease_epoch, COALESCE(lease_expires_at, 0) AS lease_expires_at FROM runs
               WHERE status = 'running'";
    let rows = fetch_all!(tx, BeatRow, sql)?;
    Ok(rows
        .into_iter()
        .map(|row| lease::Heartbeat { run: RunId(row.id), epoch: row.lease_epoch, sign: row.lease_expires_at })
        .collect())
}

/// Takes a run away from a worker that stopped responding and ends it. Returns the new epoch, which locks the old
/// worker out, or `None` if the worker has sent a heartbeat after all or another process was faster.
pub async fn fail_lost(tx: &mut Tx, lost: &lease::Heartbeat, now: Timestamp) -> Result<Option<i64>> {
    let row = fetch_optional!(
        tx,
        (i64,),
        "UPDATE runs SET status = 'failed', error_code = $1, finished_at = $2, lease_epoch = lease_epoch + 1,
             lease_expires_at = NULL
         WHERE id = $3 AND status = 'running' AND lease_epoch = $4 AND COALESCE(lease_expires_at, 0) = $5
         RETURNING lease_epoch",
        FailureCode::WorkerLost.as_str(),
        DbTime(now),
        lost.run.0,
        lost.epoch,
        lost.sign
    )?;
    Ok(row.map(|(epoch,)| epoch))
}

named_row! {
    /// What there is to do at the moment, from a few index look-ups; very cheap when there is nothing.
    #[derive(Debug, Clone, Copy)]
    pub struct Waiting {
        pub has_due_task: bool,
        pub has_queued_run: bool,
        pub has_running_run: bool,
        pub has_removal: bool,
        pub has_upload: bool,
        pub has_overdue: bool,
        pub has_summary: bool,
        pub has_catalogue: bool,
    }
}

pub async fn find_waiting(tx: &mut Tx, now: Timestamp) -> Result<Waiting> {
    let row = fetch_optional!(
        tx,
        Waiting,
        concat!(
            "SELECT EXISTS (SELECT 1 FROM backup_tasks t WHERE t.next_run_at <= $1 AND ",
            is_active!("t"),
            ") OR EXISTS (SELECT 1 FROM backup_tasks t WHERE t.retry_at <= $1 AND ",
            is_active!("t"),
            ") AS has_due_task,
             EXISTS (SELECT 1 FROM runs WHERE status = 'queued') AS has_queued_run,
             EXISTS (SELECT 1 FROM runs WHERE status = 'running') AS has_running_run,
             EXISTS (SELECT 1 FROM backup_copies WHERE remove_after IS NOT NULL AND removed_at IS NULL
                     AND remove_after <= $1) AS has_removal,
             EXISTS (SELECT 1 FROM uploads u WHERE u.retry_after <= $1 AND NOT EXISTS
                     (SELECT 1 FROM runs r WHERE r.id = u.run_id AND r.status = 'running')) AS has_upload,
             EXISTS (SELECT 1 FROM backup_tasks t WHERE t.overdue_at <= $1 AND ",
            is_active!("t"),
            ") AS has_overdue,
             EXISTS (SELECT 1 FROM users WHERE summary_at <= $1 AND suspended_at IS NULL) AS has_summary,
             EXISTS (SELECT 1 FROM catalogue_wishes) OR EXISTS (SELECT 1 FROM backup_destinations
                     WHERE catalogue_wanted_at IS NOT NULL AND status = 'reachable'
                         AND COALESCE(catalogue_next_at, 0) <= $1) AS has_catalogue"
        ),
        DbTime(now)
    )?;
    row.ok_or_else(|| StoreError::Broken("a query returned no row".to_owned()))
}
