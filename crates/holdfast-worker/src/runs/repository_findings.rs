//! What prunes and checks record about their repository.

use holdfast_core::failure::FailureCode;
use holdfast_core::ids::RepositoryId;
use holdfast_engine::{EngineError, RepositoryAccess};
use holdfast_notify::Maintenance;
use holdfast_store::repositories::{self, RepositoryRow};
use holdfast_store::{StoreError, Tx};

use super::findings::{is_lost_destination, note_lost_destination};
use super::job::{Ending, Working, of_app, of_store};
use crate::plans::gone;

/// Users are told again after this time if the repository still cannot be pruned or checked.
const TELL_AGAIN_SECS: i64 = 7 * 86_400 - 3_600;

/// The row of a repository, and how to open it.
pub(super) async fn find(
    working: &Working<'_>,
    id: RepositoryId,
) -> Result<(RepositoryRow, RepositoryAccess), EngineError> {
    let services = working.services;
    let mut tx = services.app.store.read().await.map_err(of_store)?;
    let row = repositories::find(&mut tx, id).await.map_err(of_store)?;
    drop(tx);
    let row = row.ok_or_else(|| of_app(gone("repository")))?;
    let access = services.planner.repository(&services.app, &row).await.map_err(of_app)?;
    Ok((row, access))
}

/// Records that a repository could not be pruned or checked, and tells its owner: at once, and then once a week. What
/// is wrong with the destination itself is told as such.
pub(super) async fn note_trouble(
    tx: &mut Tx,
    ending: &Ending<'_>,
    id: RepositoryId,
    what: Maintenance,
    error: &EngineError,
) -> Result<(), StoreError> {
    let Some(row) = repositories::find(tx, id).await? else { return Ok(()) };
    let (found, now) = ((error.code, error.message.as_str()), ending.now);
    // These say nothing about the repository.
    if matches!(error.code, FailureCode::Cancelled | FailureCode::WorkerLost | FailureCode::DatabaseAway) {
        return Ok(());
    }
    repositories::update_trouble(tx, id, what == Maintenance::Prune, found, now).await?;
    if is_lost_destination(error.code) {
        return note_lost_destination(tx, ending, row.destination_id, error).await;
    }
    let (last, told_at) = row.told(what == Maintenance::Prune);
    let was_told = told_at.is_some_and(|told| now.duration_since(told.0).as_secs() < TELL_AGAIN_SECS);
    if was_told && last == Some(error.code) {
        return Ok(());
    }
    repositories::update_trouble_told(tx, id, what == Maintenance::Prune, now).await?;
    ending.services.outbox.repository_neglected(tx, &row, (what, ending.run.id), found, now).await
}
