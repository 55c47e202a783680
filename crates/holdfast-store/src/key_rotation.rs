//! Replaces the master key and re-seals every secret while the service keeps running.

use holdfast_core::ids::UserId;
use holdfast_core::{Timestamp, random};

use crate::error::StartError;
use crate::master_key::Key;
use crate::sealing::{
    SealContext, WRAP_CONTEXT, current_data_key, data_key, data_key_rows, encrypt, header, insert_data_key,
    load_masters, unwrap_key,
};
use crate::store::Store;

/// Every column that holds sealed values: table, column, and the columns that identify the row and its user.
macro_rules! for_sealed_columns {
    ($visit:ident) => {
        $visit! {
            "users" "totp_sealed" "id" "id",
            "ssh_keys" "private_sealed" "user_id" "user_id",
            "remote_servers" "database_password_sealed" "id" "user_id",
            "remote_servers" "login_key_sealed" "id" "user_id",
            "backup_destinations" "s3_access_key_sealed" "id" "user_id",
            "backup_destinations" "s3_secret_key_sealed" "id" "user_id",
            "backup_destinations" "login_key_sealed" "id" "user_id",
            "notification_streams" "value_sealed" "id" "user_id",
            "notification_streams" "pushover_token_sealed" "id" "user_id",
            "backup_tasks" "encryption_password_sealed" "id" "user_id",
            "backup_tasks" "trigger_sealed" "id" "user_id",
            "backup_tasks" "heartbeat_sealed" "id" "user_id",
            "backups" "password_sealed" "id" "user_id",
            "repositories" "passwords_sealed" "id" "user_id",
            "idempotency_keys" "response_sealed" "id" "user_id",
        }
    };
}

macro_rules! names {
    ($($table:literal $column:literal $row:literal $user:literal,)*) => {
        /// The columns that a rotation re-seals; a test compares them with the schema.
        pub const SEALED_COLUMNS: &[(&str, &str)] = &[$(($table, $column)),*];
    };
}

for_sealed_columns!(names);

/// Rows re-sealed per transaction: few enough that concurrent requests hardly wait.
const ROTATE_BATCH: i64 = 200;

named_row! {
    struct SealedRow {
        row: i64,
        user: i64,
        sealed: Vec<u8>,
    }
}

/// What a rotation has done.
#[derive(Debug, Clone, Copy)]
pub struct Rotated {
    /// How many secrets were re-sealed.
    pub resealed: u64,
    /// The former keys are still beside the new one, where Holdfast cannot remove them.
    pub keeps_old_keys: bool,
}

/// Replaces the master key and re-seals every secret under a fresh data key while the service keeps running. If it is
/// interrupted, every secret can still be opened, and another rotation completes it. If the first of several keys is not
/// in use yet, because an operator put it there or a rotation was interrupted, it becomes the new one.
///
/// Earlier data keys are kept, wrapped with the new master key: a request in progress may still commit a value sealed
/// with one of them.
pub async fn rotate(store: &Store, now: Timestamp) -> Result<Rotated, StartError> {
    let source = {
        let tx = store.read().await?;
        tx.sealer.source.clone()
    };
    let _only_one = source.lock_for_rotation()?;
    let mut masters = load_masters(&source)?;
    let rows = data_key_rows(&mut store.read().await?).await?;
    let is_first_unused =
        masters.len() > 1 && !rows.iter().any(|row| unwrap_key(&masters[..1], &row.wrapped).is_some());
    if !is_first_unused {
        masters.insert(0, Key::new(random::bytes()));
        source.replace(&masters)?;
    }
    let new_master = masters[0].clone();

    let mut tx = store.begin().await?;
    for row in data_key_rows(&mut tx).await? {
        let key = data_key(&mut tx, row.id).await?;
        let wrapped = encrypt(&new_master, &*key, WRAP_CONTEXT)?;
        execute!(tx, "UPDATE data_keys SET wrapped = $1, is_current = FALSE WHERE id = $2", wrapped, row.id)?;
    }
    let current = insert_data_key(&mut tx, &new_master, now).await?;
    tx.commit().await?;

    let mut resealed = 0;
    macro_rules! reseal {
        ($($table:literal $column:literal $row:literal $user:literal,)*) => {$(
            loop {
                let mut tx = store.begin().await?;
                if current_data_key(&mut tx).await? != current {
                    return Err(StartError::MasterKey("another rotation overtook this one; start again".to_owned()));
                }
                let rows = fetch_all!(
                    tx,
                    SealedRow,
                    concat!(
                        "SELECT ",
                        $row,
                        " AS row, ",
                        $user,
                        " AS \"user\", ",
                        $column,
                        " AS sealed FROM ",
                        $table,
                        " WHERE ",
                        $column,
                        " IS NOT NULL AND substr(",
                        $column,
                        ", 1, 9) <> $1 ORDER BY ",
                        $row,
                        " LIMIT $2"
                    ),
                    header(current).to_vec(),
                    ROTATE_BATCH
                )?;
                if rows.is_empty() {
                    break;
                }
                for row in rows {
                    let place = SealContext { table: $table, column: $column, row: row.row, user: UserId(row.user) };
                    let secret = tx.open(place, &row.sealed).await?;
                    let sealed = tx.seal(place, &secret).await?;
                    // Only if no newer secret was written in between.
                    resealed += execute!(
                        tx,
                        concat!(
                            "UPDATE ",
                            $table,
                            " SET ",
                            $column,
                            " = $1 WHERE ",
                            $row,
                            " = $2 AND ",
                            $column,
                            " = $3"
                        ),
                        sealed,
                        row.row,
                        row.sealed
                    )?;
                }
                tx.commit().await?;
            }
        )*};
    }
    for_sealed_columns!(reseal);
    let keeps_old_keys = source.replaceable().is_none();
    if !keeps_old_keys {
        source.replace(std::slice::from_ref(&new_master))?;
    }
    Ok(Rotated { resealed, keeps_old_keys })
}
