//! What restores were asked to do, and where they have written.

use holdfast_core::Timestamp;
use holdfast_core::backup::{RestoreDraft, RestoreOptions, RestoreTarget};
use holdfast_core::extent::Extent;
use holdfast_core::ids::{RunId, ServerId, UserId};
use holdfast_core::queue::Host;
use holdfast_core::run::RunStatus;

use sqlx::QueryBuilder;

use crate::hosts::{HostRow, host_columns, target_extent};
use crate::statement::{Statement as _, decode_all};
use crate::tx::push_ids;
use crate::{DbTime, Result, Tx};

named_row! {
    struct RestoreRow {
        run_id: i64,
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
}

pub async fn insert(tx: &mut Tx, run: RunId, draft: &RestoreDraft) -> Result<()> {
    let (path, database_name, entries) = match &draft.target {
        RestoreTarget::Path { path, entries } => (Some(path), None, entries.join("\n")),
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

/// What is known about the target of a restore when it begins to write.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteTarget<'a> {
    /// For files, the folder with symbolic links resolved.
    pub folder: Option<&'a str>,
    /// Whether nothing was in that folder.
    pub was_empty: bool,
    /// The key that the machine has shown.
    pub host_key: Option<&'a str>,
}

/// Records that a restore is about to change something on its server, and which machine that is. Returns false if
/// another worker has the run by now.
pub async fn begin_writing(
    tx: &mut Tx,
    run: RunId,
    epoch: i64,
    target: WriteTarget<'_>,
    now: Timestamp,
) -> Result<bool> {
    let noted = execute!(
        tx,
        "UPDATE restores SET writes_at = COALESCE(writes_at, $1), folder = $2, found_empty = $5,
             host = (SELECT s.host FROM remote_servers s WHERE s.id = restores.server_id),
             port = (SELECT s.port FROM remote_servers s WHERE s.id = restores.server_id),
             host_key = COALESCE($6, (SELECT s.host_key FROM remote_servers s WHERE s.id = restores.server_id)),
             jump_host = (SELECT j.host FROM remote_servers s JOIN remote_servers j ON j.id = s.jump_server_id
                 WHERE s.id = restores.server_id),
             jump_port = (SELECT j.port FROM remote_servers s JOIN remote_servers j ON j.id = s.jump_server_id
                 WHERE s.id = restores.server_id)
         WHERE run_id = $3 AND EXISTS (SELECT 1 FROM runs WHERE id = $3 AND lease_epoch = $4 AND status = 'running')",
        DbTime(now),
        target.folder,
        run.0,
        epoch,
        target.was_empty,
        target.host_key
    )?;
    Ok(noted == 1)
}

/// Records that a failed restore has left nothing behind. Returns false if another worker has the run by now.
pub async fn note_undone(tx: &mut Tx, run: RunId, epoch: i64) -> Result<bool> {
    let noted = execute!(
        tx,
        "UPDATE restores SET is_undone = TRUE
         WHERE run_id = $1 AND EXISTS (SELECT 1 FROM runs WHERE id = $1 AND lease_epoch = $2 AND status = 'running')",
        run.0,
        epoch
    )?;
    Ok(noted == 1)
}

/// Whether a restore has begun to change something on its server.
pub async fn has_written(tx: &mut Tx, run: RunId) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM restores WHERE run_id = $1 AND writes_at IS NOT NULL)";
    fetch_scalar!(tx, bool, sql, run.0)
}

named_row! {
    struct WrittenRow {
        run_id: i64,
        backup_id: Option<i64>,
        path: Option<String>,
        folder: Option<String>,
        database_name: Option<String>,
        entries: String,
        overwrite: bool,
        found_empty: bool,
        is_undone: bool,
        status: RunStatus,
        finished_at: Option<DbTime>,
        content: Option<String>,
        /// The server as it is now, if it still exists; its key may have become known only after the restore began.
        host: HostRow,
        written_host: Option<String>,
        written_port: Option<i64>,
        written_key: Option<String>,
        written_jump_host: Option<String>,
        written_jump_port: Option<i64>,
    }
}

impl WrittenRow {
    /// Where it wrote: the target as requested, and the folder as the server resolved it.
    fn extents(&self) -> Vec<Extent> {
        let asked = target_extent(self.path.clone(), self.database_name.clone(), self.content.as_deref());
        [asked].into_iter().chain(self.folder.clone().map(Extent::Files)).collect()
    }

    fn is_on(&self, host: &Host) -> bool {
        let written = self.written_host.as_deref().zip(self.written_port).map(|address| {
            let jump = self.written_jump_host.as_deref().zip(self.written_jump_port);
            Host::new(address, jump, self.written_key.clone())
        });
        [written, self.host.host()].into_iter().flatten().any(|own| own.is(host))
    }

    fn overlaps(&self, extents: &[Extent]) -> bool {
        self.extents().iter().any(|own| extents.iter().any(|other| own.overlaps(other)))
    }

    /// Whether both wrote to the same place, or this one to a place around the earlier one's. A path that was requested
    /// twice may have led to different folders.
    fn place_of(&self, earlier: &Self) -> (Extent, Extent) {
        let asked = |row: &Self| target_extent(row.path.clone(), row.database_name.clone(), row.content.as_deref());
        match (&self.folder, &earlier.folder) {
            (Some(own), Some(other)) => (Extent::Files(own.clone()), Extent::Files(other.clone())),
            (None, _) | (_, None) => (asked(self), asked(earlier)),
        }
    }

    /// Whether it replaced everything that an earlier restore may have left incomplete. For files, it must be of the
    /// same backup, because another one may lack some of them; or it found an empty folder.
    fn covers(&self, earlier: &Self) -> bool {
        let (own, other) = self.place_of(earlier);
        if self.found_empty && own.contains(&other) {
            return true;
        }
        let is_same_place = own.is(&other);
        if !is_same_place || self.path.is_none() {
            return is_same_place;
        }
        let is_same_backup = self.backup_id.is_some() && self.backup_id == earlier.backup_id;
        let holds = |entry: &str| self.entries.lines().any(|own| own == entry);
        let has_all = self.entries.is_empty() || !earlier.entries.is_empty() && earlier.entries.lines().all(holds);
        self.overwrite && is_same_backup && has_all
    }
}

/// How many restores are considered at most: far more than are usual within the time that logs are kept.
const MOST_WRITTEN: i64 = 500;

/// Finds the newest restore of the user that may have left incomplete data in these places: it wrote during the backup,
/// or it failed and no later restore replaced the same data. A restore whose end lies in the future counts as ended
/// before the backup, because clocks can be wrong.
pub async fn find_unfinished(
    tx: &mut Tx,
    user: UserId,
    host: &Host,
    extents: &[Extent],
    (begun, now): (Timestamp, Timestamp),
) -> Result<Option<RunId>> {
    let rows = fetch_all!(
        tx,
        WrittenRow,
        concat!(
            "SELECT w.run_id, r.backup_id, w.path, w.folder, w.database_name, w.entries, w.overwrite, w.found_empty, w.is_undone, r.status,
                 r.finished_at, b.content, w.host AS written_host, w.port AS written_port, w.host_key AS written_key,
                 w.jump_host AS written_jump_host, w.jump_port AS written_jump_port, ",
            host_columns!(),
            " FROM restores w JOIN runs r ON r.id = w.run_id LEFT JOIN backups b ON b.id = r.backup_id
             LEFT JOIN remote_servers s ON s.id = w.server_id LEFT JOIN remote_servers j ON j.id = s.jump_server_id
             WHERE r.user_id = $1 AND NOT w.dry_run AND w.writes_at IS NOT NULL ORDER BY r.id DESC LIMIT $2"
        ),
        user.0,
        MOST_WRITTEN
    )?;
    let mut covering: Vec<WrittenRow> = Vec::new();
    for row in rows.into_iter().filter(|row| row.is_on(host)) {
        let is_earlier = row.finished_at.is_some_and(|ended| ended.0 < begun || ended.0 > now);
        let is_good = row.status == RunStatus::Successful;
        let is_covered =
            if is_good || row.is_undone { is_earlier } else { covering.iter().any(|later| later.covers(&row)) };
        if row.overlaps(extents) && !is_covered {
            return Ok(Some(RunId(row.run_id)));
        }
        if is_good {
            covering.push(row);
        }
    }
    Ok(None)
}

pub async fn find(tx: &mut Tx, run: RunId) -> Result<Option<RestoreDraft>> {
    Ok(list(tx, &[run.0]).await?.pop().map(|(_, draft)| draft))
}

/// What those of these runs that are restores were asked to do.
pub async fn list(tx: &mut Tx, runs: &[i64]) -> Result<Vec<(i64, RestoreDraft)>> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let rows = with_conn!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new(
            "SELECT run_id, server_id, overwrite, path, database_name, entries, no_owner, numeric_owner,
                 restore_devices, dry_run FROM restores WHERE run_id IN (",
        );
        push_ids(&mut query, runs);
        query.push(")");
        query.build().all(conn).await.and_then(decode_all::<RestoreRow, _>)
    })?;
    Ok(rows.into_iter().map(|row| (row.run_id, row.draft())).collect())
}

impl RestoreRow {
    fn draft(self) -> RestoreDraft {
        RestoreDraft {
            server: ServerId(self.server_id),
            overwrite: self.overwrite,
            options: RestoreOptions {
                no_owner: self.no_owner,
                numeric_owner: self.numeric_owner,
                restore_devices: self.restore_devices,
                dry_run: self.dry_run,
            },
            target: match self.path {
                // Names contain no line breaks: `name_text` escapes them.
                Some(path) => RestoreTarget::Path { path, entries: self.entries.lines().map(str::to_owned).collect() },
                None => RestoreTarget::Database { name: self.database_name },
            },
        }
    }
}
