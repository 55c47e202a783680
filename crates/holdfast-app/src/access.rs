//! Ownership of rows: the single check for everything that is looked up by its id.

use holdfast_core::ids::UserId;

use crate::caller::Caller;
use crate::error::{AppError, Resource};

/// A row that belongs to a user.
pub(crate) trait Owned {
    const RESOURCE: Resource;
    fn owner(&self) -> UserId;
}

macro_rules! owned_rows {
    ($($row:path => $resource:ident),* $(,)?) => {$(
        impl Owned for $row {
            const RESOURCE: Resource = Resource::$resource;
            fn owner(&self) -> UserId {
                self.user_id.into()
            }
        }
    )*};
}

owned_rows! {
    holdfast_store::streams::StreamRow => NotificationStream,
    holdfast_store::tasks::TaskRow => BackupTask,
    holdfast_store::destinations::DestinationRow => BackupDestination,
    holdfast_store::servers::ServerRow => RemoteServer,
    holdfast_store::tags::TagRow => Tag,
    holdfast_store::runs::RunRow => BackupTaskLog,
    holdfast_store::backups::BackupRow => Backup,
    holdfast_store::notices::NoticeRow => Notice,
}

/// The single check of a row found by id: 404 if it does not exist, 403 if it is not the caller's.
pub(crate) fn owned<R: Owned>(caller: &Caller, row: Option<R>) -> Result<R, AppError> {
    let row = row.ok_or(AppError::NotFound(R::RESOURCE))?;
    if row.owner() == caller.user { Ok(row) } else { Err(AppError::Forbidden(R::RESOURCE)) }
}

/// A row that was written earlier in the same transaction.
pub(crate) fn written<R>(row: Option<R>) -> Result<R, AppError> {
    row.ok_or_else(|| AppError::Internal("a row that was just written is gone".to_owned()))
}
