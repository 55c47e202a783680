//! Suspended accounts: nobody signs in to them and nothing of theirs starts, until they are resumed. Their backups stay.

use holdfast_core::audit::AuditAction;
use holdfast_core::changes::named;
use holdfast_core::{clock, notice};
use holdfast_store::users::{self, UserRow};
use holdfast_store::{sessions, tasks};

use crate::refusal::Conflict;
use crate::{App, AppError, Origin, Result, accounts, cancellation};

/// Suspends an account: its sessions and links end, its tokens stop working, its live runs are cancelled. Returns how
/// many runs that were.
pub async fn suspend(app: &App, origin: &Origin, user: &UserRow) -> Result<usize> {
    let mut tx = app.store.begin().await?;
    // Tasks before their user, the order in which everything else writes them.
    tasks::stop_schedules(&mut tx, user.id).await?;
    users::lock_admins(&mut tx).await?;
    if accounts::is_last_admin(&mut tx, user).await? {
        return Err(AppError::Conflict(Conflict::OnlyAdministrator));
    }
    if !users::suspend(&mut tx, user.id, app.now()).await? {
        return Err(AppError::Conflict(Conflict::AccountSuspended));
    }
    sessions::delete_all(&mut tx, user.id).await?;
    sessions::delete_links(&mut tx, user.id).await?;
    let cancelled = cancellation::cancel_all(app, &mut tx, user.id).await?.len();
    let detail = format!("{}, runs cancelled: {cancelled}", named(user.id, &user.email));
    app.audit_as(&mut tx, Some(user.id), origin, AuditAction::UserSuspended, &detail).await?;
    tx.commit().await?;
    app.tokens.clear();
    Ok(cancelled)
}

/// Resumes an account: its tasks run again at their next slots. Those that passed meanwhile are not caught up.
pub async fn resume(app: &App, origin: &Origin, user: &UserRow) -> Result<()> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    for task in tasks::list_unpaused(&mut tx, user.id).await? {
        tasks::update_pause(&mut tx, &task, None, task.spec.schedule.next_after(now), now).await?;
    }
    let zone = clock::zone_or_utc(&user.timezone);
    let summary_at = if user.weekly_summary_enabled { notice::next_summary(now, &zone) } else { None };
    if !users::resume(&mut tx, user.id, summary_at, now).await? {
        return Err(AppError::Conflict(Conflict::AccountNotSuspended));
    }
    app.audit_as(&mut tx, Some(user.id), origin, AuditAction::UserResumed, &named(user.id, &user.email)).await?;
    tx.commit().await?;
    app.tokens.clear();
    app.wake_worker();
    Ok(())
}
