//! Ownership of rows: the single check for everything that is looked up by its id.

use holdfast_core::ids::UserId;
use holdfast_store::DbTime;
use holdfast_store::backups::BackupRow;
use holdfast_store::destinations::DestinationRow;
use holdfast_store::notices::NoticeRow;
use holdfast_store::runs::RunRow;
use holdfast_store::servers::ServerRow;
use holdfast_store::streams::StreamRow;
use holdfast_store::tags::TagRow;
use holdfast_store::tasks::TaskRow;

use crate::caller::Caller;
use crate::error::{AppError, Resource};
use crate::refusal::Conflict;

/// A row that belongs to a user.
pub trait Owned {
    const RESOURCE: Resource;
    fn owner(&self) -> UserId;

    /// When it last changed: for what people edit, when somebody last did; for everything else, its last state.
    fn changed_at(&self) -> DbTime;
}

macro_rules! owned_rows {
    ($($row:ident => $resource:ident, $changed_at:expr;)*) => {$(
        impl Owned for $row {
            const RESOURCE: Resource = Resource::$resource;
            fn owner(&self) -> UserId {
                self.user_id.into()
            }
            fn changed_at(&self) -> DbTime {
                let changed_at: fn(&$row) -> DbTime = $changed_at;
                changed_at(self)
            }
        }
    )*};
}

owned_rows! {
    StreamRow => NotificationStream, |row| row.updated_at;
    TaskRow => BackupTask, |row| row.updated_at;
    DestinationRow => BackupDestination, |row| row.updated_at;
    ServerRow => RemoteServer, |row| row.updated_at;
    TagRow => Tag, |row| row.updated_at;
    RunRow => BackupTaskLog, |row| row.finished_at.or(row.started_at).unwrap_or(row.created_at);
    BackupRow => Backup, |row| row.deleted_at.or(row.verified_at).unwrap_or(row.created_at);
    NoticeRow => Notice, |row| row.ended_at.unwrap_or(row.created_at);
}

/// The version of a row, for requests that want to change what they have seen and nothing newer.
pub fn version(row: &impl Owned) -> String {
    format!("{:x}", row.changed_at().0.as_microsecond())
}

/// The single check of a row found by id: 404 if it does not exist, 403 if it is not the caller's, 412 if the caller
/// expects another version.
pub(crate) fn owned<R: Owned>(caller: &Caller, row: Option<R>) -> Result<R, AppError> {
    let row = row.ok_or(AppError::NotFound(R::RESOURCE))?;
    if row.owner() != caller.user {
        return Err(AppError::Forbidden(R::RESOURCE));
    }
    if !caller.expected.contains(&version(&row)) {
        return Err(AppError::Conflict(Conflict::Outdated));
    }
    Ok(row)
}

/// A row that was written earlier in the same transaction.
pub(crate) fn written<R>(row: Option<R>) -> Result<R, AppError> {
    row.ok_or_else(|| AppError::Internal("a row that was just written is gone".to_owned()))
}
