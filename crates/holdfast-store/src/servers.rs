//! Remote servers.

use holdfast_core::characters;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{ServerId, UserId};
use holdfast_core::page::Page;
use holdfast_core::queue::Host;
use holdfast_core::rules::search_form;
use holdfast_core::server::{Connectivity, CurrentServer, ServerDraft};
use holdfast_core::{Secret, Timestamp};

use crate::hosts::{HostRow, host_columns};
use crate::{DbTime, Listing, Result, Tx};

row_type! {
    pub struct ServerRow {
        id: ServerId = "s.id",
        user_id: UserId = "s.user_id",
        label: String = "s.label",
        host: String = "s.host",
        port: i64 = "s.port",
        username: String = "s.username",
        database_username: Option<String> = "s.database_username",
        has_database_password: bool = "(s.database_password_sealed IS NOT NULL)",
        /// The fingerprint that was pinned on first contact.
        host_key: Option<String> = "s.host_key",
        /// A different fingerprint that the server has presented since, waiting to be accepted.
        offered_host_key: Option<String> = "s.offered_host_key",
        connectivity: Connectivity = "s.connectivity",
        last_connected_at: Option<DbTime> = "s.last_connected_at",
        last_checked_at: Option<DbTime> = "s.last_checked_at",
        last_error: Option<String> = "s.last_error",
        last_error_code: Option<FailureCode> = "s.last_error_code",
        latency_micros: Option<i64> = "s.latency_micros",
        /// One tool per line: its name, a space, its version.
        tools: String = "s.tools",
        jump_server_id: Option<ServerId> = "s.jump_server_id",
        created_at: DbTime = "s.created_at",
        updated_at: DbTime = "s.updated_at",
    }
}

impl ServerRow {
    /// What an update starts from.
    pub fn current(&self) -> CurrentServer {
        CurrentServer {
            label: self.label.clone(),
            host: self.host.clone(),
            username: self.username.clone(),
            port: self.port,
            database_username: self.database_username.clone(),
            jump_server: self.jump_server_id,
        }
    }
}

/// The machine that a server refers to.
pub async fn find_host(tx: &mut Tx, id: ServerId) -> Result<Option<Host>> {
    let sql = concat!(
        "SELECT ",
        host_columns!(),
        " FROM remote_servers s LEFT JOIN remote_servers j ON j.id = s.jump_server_id WHERE s.id = $1"
    );
    Ok(fetch_optional!(tx, HostRow, sql, id.0)?.and_then(|row| row.host()))
}

pub async fn find(tx: &mut Tx, id: ServerId) -> Result<Option<ServerRow>> {
    find_row!(tx, "FROM remote_servers s WHERE s.id = $1", id.0)
}

/// Finds the row and keeps others from changing it until the transaction ends.
pub async fn find_locked(tx: &mut Tx, id: ServerId) -> Result<Option<ServerRow>> {
    execute!(tx, "UPDATE remote_servers SET updated_at = updated_at WHERE id = $1", id.0)?;
    find(tx, id).await
}

pub async fn list(tx: &mut Tx, listing: &Listing) -> Result<Page<ServerRow>> {
    list_page!(tx, listing, "remote_servers" as "s")
}

pub async fn insert(tx: &mut Tx, owner: UserId, draft: &ServerDraft, now: Timestamp) -> Result<ServerId> {
    let id = fetch_scalar!(
        tx,
        i64,
        "INSERT INTO remote_servers (user_id, label, search_label, host, port, username, connectivity, created_at,
             updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, 'unknown', $7, $7) RETURNING id",
        owner.0,
        &draft.label,
        search_form(&draft.label),
        &draft.host,
        draft.port,
        &draft.username,
        DbTime(now)
    )?;
    write(tx, id, owner, draft, DbTime(now)).await?;
    Ok(ServerId(id))
}

/// Writes the new settings. If the server has moved to another address, its host key and status are reset, and the key
/// of a former owner is forgotten: another machine gets the one of its owner.
pub async fn update(tx: &mut Tx, row: &ServerRow, draft: &ServerDraft, now: Timestamp) -> Result<()> {
    write(tx, row.id.0, row.user_id, draft, row.updated_at.moved_on(now)).await?;
    if draft.moves(&row.current()) {
        execute!(
            tx,
            "UPDATE remote_servers SET host_key = NULL, offered_host_key = NULL, connectivity = 'unknown',
                 last_error = NULL, last_error_code = NULL, latency_micros = NULL, tools = '', login_key_sealed = NULL
             WHERE id = $1",
            row.id.0
        )?;
    }
    Ok(())
}

/// Deletes the database passwords of the servers that are reached through this one. Returns those that had one.
pub async fn clear_passwords_behind(tx: &mut Tx, row: &ServerRow, now: Timestamp) -> Result<Vec<ServerId>> {
    let cleared = fetch_all!(
        tx,
        (i64,),
        "UPDATE remote_servers SET database_password_sealed = NULL, updated_at = $1
         WHERE jump_server_id = $2 AND user_id = $3 AND database_password_sealed IS NOT NULL
         RETURNING id",
        DbTime(now),
        row.id.0,
        row.user_id.0
    )?;
    Ok(cleared.into_iter().map(|(id,)| ServerId(id)).collect())
}

async fn write(tx: &mut Tx, id: i64, owner: UserId, draft: &ServerDraft, updated_at: DbTime) -> Result<()> {
    write_secret!(tx, "remote_servers", "database_password_sealed", id, owner, &draft.database_password);
    execute!(
        tx,
        "UPDATE remote_servers SET label = $1, search_label = $2, host = $3, port = $4, username = $5,
             database_username = $6, jump_server_id = $7, updated_at = $8
         WHERE id = $9 AND user_id = $10",
        &draft.label,
        search_form(&draft.label),
        &draft.host,
        draft.port,
        &draft.username,
        &draft.database_username,
        draft.jump_server.map(|id| id.0),
        updated_at,
        id,
        owner.0
    )?;
    Ok(())
}

/// Returns false if there is no such row; fails with `InUse` if tasks read from it.
pub async fn delete(tx: &mut Tx, owner: UserId, id: ServerId) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM remote_servers WHERE id = $1 AND user_id = $2", id.0, owner.0)? == 1)
}

/// How many tasks read from it.
pub async fn count_tasks(tx: &mut Tx, id: ServerId) -> Result<i64> {
    fetch_scalar!(tx, i64, "SELECT COUNT(*) FROM backup_tasks WHERE remote_server_id = $1", id.0)
}

/// Records a host key that differs from the pinned one.
pub async fn update_offered_host_key(tx: &mut Tx, id: ServerId, fingerprint: &str) -> Result<()> {
    execute!(
        tx,
        "UPDATE remote_servers SET offered_host_key = $1 WHERE id = $2",
        characters::stored_line(fingerprint),
        id.0
    )?;
    Ok(())
}

/// Whether the server is still at this address: findings from there say nothing about another one.
pub async fn is_at(tx: &mut Tx, id: ServerId, host: &str, port: i64) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM remote_servers WHERE id = $1 AND host = $2 AND port = $3)";
    fetch_scalar!(tx, bool, sql, id.0, host, port)
}

/// Pins the host key seen on first contact. A key that is already pinned stays.
pub async fn pin_host_key(tx: &mut Tx, id: ServerId, fingerprint: &str) -> Result<()> {
    execute!(
        tx,
        "UPDATE remote_servers SET host_key = $1 WHERE id = $2 AND host_key IS NULL",
        characters::stored_line(fingerprint),
        id.0
    )?;
    Ok(())
}

/// How many restores to this server are queued or running.
pub async fn count_restores(tx: &mut Tx, id: ServerId) -> Result<i64> {
    fetch_scalar!(
        tx,
        i64,
        "SELECT COUNT(*) FROM restores s JOIN runs r ON r.id = s.run_id
         WHERE s.server_id = $1 AND r.status IN ('queued', 'running')",
        id.0
    )
}

/// Records a successful login to the server.
pub async fn update_online(tx: &mut Tx, id: ServerId, latency_micros: Option<i64>, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE remote_servers SET connectivity = 'online', last_connected_at = $1, last_checked_at = $1, last_error = NULL,
             last_error_code = NULL, latency_micros = COALESCE($2, latency_micros)
         WHERE id = $3",
        DbTime(now),
        latency_micros,
        id.0
    )?;
    Ok(())
}

/// Records that connecting to the server failed, and why.
pub async fn update_offline(tx: &mut Tx, id: ServerId, code: FailureCode, error: &str, now: Timestamp) -> Result<()> {
    execute!(
        tx,
        "UPDATE remote_servers SET connectivity = 'offline', last_error = $1, last_error_code = $2, last_checked_at = $3
         WHERE id = $4",
        characters::stored_line(error),
        code.as_str(),
        DbTime(now),
        id.0
    )?;
    Ok(())
}

/// Records the tools that the last check found on the server.
pub async fn update_tools(tx: &mut Tx, id: ServerId, tools: &[(String, String)]) -> Result<()> {
    let lines: Vec<String> =
        tools.iter().map(|(tool, version)| characters::stored_line(&format!("{tool} {version}"))).collect();
    execute!(tx, "UPDATE remote_servers SET tools = $1 WHERE id = $2", lines.join("\n"), id.0)?;
    Ok(())
}

/// How many servers are reached through this one.
pub async fn count_behind(tx: &mut Tx, id: ServerId) -> Result<i64> {
    fetch_scalar!(tx, i64, "SELECT COUNT(*) FROM remote_servers WHERE jump_server_id = $1", id.0)
}

/// The SSH key with which its former owner logged in, if it was transferred to another account.
pub async fn open_login_key(tx: &mut Tx, row: &ServerRow) -> Result<Option<Secret>> {
    read_secret!(tx, "remote_servers", "login_key_sealed", row.id.0, row.user_id)
}

pub async fn open_database_password(tx: &mut Tx, row: &ServerRow) -> Result<Option<Secret>> {
    read_secret!(tx, "remote_servers", "database_password_sealed", row.id.0, row.user_id)
}

/// Pins the host key that is waiting to be accepted. Returns false if there is none.
pub async fn accept_host_key(tx: &mut Tx, row: &ServerRow, now: Timestamp) -> Result<bool> {
    let accepted = execute!(
        tx,
        "UPDATE remote_servers SET host_key = offered_host_key, offered_host_key = NULL, connectivity = 'unknown',
             last_error = NULL, last_error_code = NULL, updated_at = $1
         WHERE id = $2 AND user_id = $3 AND offered_host_key IS NOT NULL",
        row.updated_at.moved_on(now),
        row.id.0,
        row.user_id.0
    )?;
    Ok(accepted == 1)
}
