//! The transfer of everything that an account has to another one.

use holdfast_core::ids::UserId;
use holdfast_core::{Secret, Timestamp};

use crate::sealing::SealContext;
use crate::{DbTime, Result, Tx, destinations, ssh_keys};

/// The tables whose rows simply get the new owner: calls a macro with them.
macro_rules! for_handed_over {
    ($macro:ident) => {
        $macro!(
            "remote_servers",
            "backup_destinations",
            "notification_streams",
            "tags",
            "backup_tasks",
            "backups",
            "backup_copies",
            "repositories",
            "uploads",
            "runs"
        )
    };
}

macro_rules! listed {
    ($($table:literal),*) => { &[$($table),*] };
}

/// Tables whose rows change their owner.
pub const HANDED_OVER: &[&str] = for_handed_over!(listed);

/// Tables whose rows are handed over in part, or added to those of the new owner.
pub const MERGED: &[&str] = &["notices", "user_days"];

/// Tables whose rows stay: who a person is, how they sign in, what they did. Triggers adjust the totals.
pub const STAYING: &[&str] = &[
    "api_tokens",
    "audit_events",
    "catalogue_wishes",
    "events",
    "idempotency_keys",
    "identities",
    "recovery_codes",
    "sessions",
    "sign_in_links",
    "ssh_keys",
    "totals",
];

/// Tables whose rows are deleted: an incident was reported to the former owner; what still fails is reported anew.
pub const ENDED: &[&str] = &["incidents"];

named_row! {
    /// A label that both accounts use.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SharedLabelRow {
        /// What has it: `task`, `server`, `destination`, `stream` or `tag`.
        pub kind: String,
        pub label: String,
    }
}

/// Labels of one account that the other one uses for the same kind of thing, too.
pub async fn list_shared_labels(tx: &mut Tx, from: UserId, to: UserId) -> Result<Vec<SharedLabelRow>> {
    let mut found = Vec::new();
    macro_rules! find_shared {
        ($($kind:literal $table:literal)*) => {$(
            let sql = concat!(
                "SELECT DISTINCT '", $kind, "' AS kind, f.label FROM ", $table, " f JOIN ", $table,
                " t ON t.label = f.label WHERE f.user_id = $1 AND t.user_id = $2 ORDER BY f.label"
            );
            found.extend(fetch_all!(tx, SharedLabelRow, sql, from.0, to.0)?);
        )*};
    }
    find_shared!(
        "task" "backup_tasks"
        "server" "remote_servers"
        "destination" "backup_destinations"
        "stream" "notification_streams"
        "tag" "tags"
    );
    Ok(found)
}

/// The ids of what a user has set up, by kind. Backups and logs belong to their tasks.
pub async fn list_ids(tx: &mut Tx, owner: UserId) -> Result<Vec<(&'static str, Vec<i64>)>> {
    let mut found = Vec::new();
    macro_rules! find_ids {
        ($($kind:literal $table:literal)*) => {$(
            let sql = concat!("SELECT id FROM ", $table, " WHERE user_id = $1 ORDER BY id");
            let rows = fetch_all!(tx, (i64,), sql, owner.0)?;
            found.push(($kind, rows.into_iter().map(|(id,)| id).collect()));
        )*};
    }
    find_ids!(
        "tasks" "backup_tasks"
        "servers" "remote_servers"
        "destinations" "backup_destinations"
        "streams" "notification_streams"
        "tags" "tags"
    );
    Ok(found)
}

/// Moves everything except live runs, which the caller has excluded. Secrets are sealed again, because each is bound to
/// its user.
pub async fn transfer(tx: &mut Tx, from: UserId, to: UserId, now: Timestamp) -> Result<()> {
    keep_folders_and_keys(tx, from, to, now).await?;
    reseal(tx, from, to).await?;
    macro_rules! hand_over {
        ($($table:literal),*) => {$(
            execute!(tx, concat!("UPDATE ", $table, " SET user_id = $1 WHERE user_id = $2"), to.0, from.0)?;
        )*};
    }
    for_handed_over!(hand_over);
    // What is addressed to the person, such as a weekly summary, stays theirs.
    execute!(tx, "UPDATE notices SET user_id = $1 WHERE user_id = $2 AND recipient NOT LIKE 'user %'", to.0, from.0)?;
    execute!(tx, "DELETE FROM incidents WHERE user_id = $1", from.0)?;
    add_days(tx, from, to).await?;
    for user in [from, to] {
        execute!(tx, "INSERT INTO catalogue_wishes (user_id) VALUES ($1)", user.0)?;
    }
    Ok(())
}

/// Servers know the key of the former owner. If the new one has none yet, it becomes theirs; otherwise each server and
/// each destination that it opens keeps it.
async fn keep_folders_and_keys(tx: &mut Tx, from: UserId, to: UserId, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE backup_destinations SET folder_user_id = COALESCE(folder_user_id, user_id), updated_at = $1
         WHERE user_id = $2",
        DbTime(now),
        from.0
    )?;
    if ssh_keys::find_public(tx, to).await?.is_none() {
        return ssh_keys::give(tx, from, to).await;
    }
    let Some(key) = ssh_keys::find_private(tx, from).await? else { return Ok(()) };
    let servers = "SELECT id FROM remote_servers WHERE user_id = $1 AND login_key_sealed IS NULL";
    for (id,) in fetch_all!(tx, (i64,), servers, from.0)? {
        let place = SealContext { table: "remote_servers", column: "login_key_sealed", row: id, user: from };
        let sealed = tx.seal(place, &key).await?;
        execute!(tx, "UPDATE remote_servers SET login_key_sealed = $1 WHERE id = $2", sealed, id)?;
    }
    keep_key_of_destinations(tx, from, &key).await
}

async fn keep_key_of_destinations(tx: &mut Tx, from: UserId, key: &Secret) -> Result<()> {
    let unkeyed = "SELECT id FROM backup_destinations WHERE user_id = $1 AND login_key_sealed IS NULL";
    for (id,) in fetch_all!(tx, (i64,), unkeyed, from.0)? {
        let row = destinations::find(tx, id.into()).await?;
        if !row.is_some_and(|row| row.spec.uses_owner_key()) {
            continue;
        }
        let place = SealContext { table: "backup_destinations", column: "login_key_sealed", row: id, user: from };
        let sealed = tx.seal(place, key).await?;
        execute!(tx, "UPDATE backup_destinations SET login_key_sealed = $1 WHERE id = $2", sealed, id)?;
    }
    Ok(())
}

/// Seals every secret of the rows that move for their new owner.
async fn reseal(tx: &mut Tx, from: UserId, to: UserId) -> Result<()> {
    macro_rules! reseal {
        ($($table:literal $column:literal $row:literal $user:literal,)*) => {$(
            if HANDED_OVER.contains(&$table) || MERGED.contains(&$table) {
                let select = concat!(
                    "SELECT ", $row, ", ", $column, " FROM ", $table, " WHERE ", $user, " = $1 AND ", $column,
                    " IS NOT NULL ORDER BY ", $row
                );
                for (row, sealed) in fetch_all!(tx, (i64, Vec<u8>), select, from.0)? {
                    let place = SealContext { table: $table, column: $column, row, user: from };
                    let secret = tx.open(place, &sealed).await?;
                    let sealed = tx.seal(SealContext { user: to, ..place }, &secret).await?;
                    execute!(tx, concat!("UPDATE ", $table, " SET ", $column, " = $1 WHERE ", $row, " = $2"), sealed, row)?;
                }
            }
        )*};
    }
    for_sealed_columns!(reseal);
    Ok(())
}

/// Adds the daily figures of one user to those of the other.
async fn add_days(tx: &mut Tx, from: UserId, to: UserId) -> Result<()> {
    execute!(
        tx,
        "INSERT INTO user_days (user_id, day, successful, failed, cancelled, busy_micros, stored_bytes)
         SELECT $1, day, successful, failed, cancelled, busy_micros, stored_bytes FROM user_days WHERE user_id = $2
         ON CONFLICT (user_id, day) DO UPDATE SET successful = user_days.successful + excluded.successful,
             failed = user_days.failed + excluded.failed, cancelled = user_days.cancelled + excluded.cancelled,
             busy_micros = user_days.busy_micros + excluded.busy_micros,
             stored_bytes = COALESCE(user_days.stored_bytes + excluded.stored_bytes, user_days.stored_bytes,
                 excluded.stored_bytes)",
        to.0,
        from.0
    )?;
    execute!(tx, "DELETE FROM user_days WHERE user_id = $1", from.0)?;
    Ok(())
}
