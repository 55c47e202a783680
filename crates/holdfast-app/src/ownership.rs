//! The transfer of everything that an account has to another one, in one step.

use holdfast_core::audit::AuditAction;
use holdfast_core::changes::{id_lists, named};
use holdfast_core::ids::UserId;
use holdfast_store::ownership::SharedLabelRow;
use holdfast_store::users::{self, Statistics, UserRow};
use holdfast_store::{Tx, ownership, tasks};

use crate::refusal::Conflict;
use crate::{App, AppError, Origin, Result};

/// An event of the audit log lists at most this many ids, or ranges of them; further ones are in further events. So each
/// fits into a message of the system's log.
const IDS_AT_ONCE: usize = 100;

/// What was transferred, and what has to be known about it.
pub struct Transferred {
    pub figures: Statistics,
    /// Trigger URLs, which still work for whoever knows them.
    pub triggers: i64,
    /// The new owner is no administrator, so endpoints and webhooks in private networks are refused from now on.
    pub loses_private_networks: bool,
}

/// What a transfer would do.
pub struct Preview {
    pub figures: Statistics,
    pub triggers: i64,
    /// Labels that both accounts use. Both keep theirs, and commands then need IDs.
    pub shared_labels: Vec<SharedLabelRow>,
    pub loses_private_networks: bool,
}

pub async fn preview(app: &App, from: &UserRow, to: &UserRow) -> Result<Preview> {
    if from.id == to.id {
        return Err(AppError::Conflict(Conflict::SameAccount));
    }
    let mut tx = app.store.read().await?;
    Ok(Preview {
        figures: users::statistics(&mut tx, from.id, app.now()).await?,
        triggers: tasks::count_triggers(&mut tx, from.id).await?,
        shared_labels: ownership::list_shared_labels(&mut tx, from.id, to.id).await?,
        loses_private_networks: from.is_admin && !to.is_admin,
    })
}

/// Refused while runs are live: they would end as somebody else's.
pub async fn transfer(app: &App, origin: &Origin, from: &UserRow, to: &UserRow) -> Result<Transferred> {
    if from.id == to.id {
        return Err(AppError::Conflict(Conflict::SameAccount));
    }
    let now = app.now();
    let mut tx = app.store.begin().await?;
    tasks::lock_all(&mut tx, from.id).await?;
    if users::is_suspended(&mut tx, to.id).await? {
        return Err(AppError::Conflict(Conflict::AccountSuspended));
    }
    refuse_live_runs(&mut tx, from).await?;
    let figures = users::statistics(&mut tx, from.id, now).await?;
    let triggers = tasks::count_triggers(&mut tx, from.id).await?;
    let ids = describe_ids(&mut tx, from.id).await?;
    ownership::transfer(&mut tx, from.id, to.id, now).await?;
    // Once more: until its rows were moved, something else could have been queued.
    refuse_live_runs(&mut tx, from).await?;
    reschedule(app, &mut tx, to).await?;
    let whose = format!("{} to {}", named(from.id, &from.email), named(to.id, &to.email));
    let counts = format!("tasks {}, servers {}, destinations {}", figures.tasks, figures.servers, figures.destinations);
    for what in std::iter::once(counts).chain(ids) {
        for subject in [from, to] {
            let detail = format!("{whose}: {what}");
            app.audit_as(&mut tx, Some(subject.id), origin, AuditAction::UserTransferred, &detail).await?;
        }
    }
    tx.commit().await?;
    app.wake_worker();
    Ok(Transferred { figures, triggers, loses_private_networks: from.is_admin && !to.is_admin })
}

/// The ids of what an account has set up, as details of as many events of the audit log as it takes.
pub(crate) async fn describe_ids(tx: &mut Tx, owner: UserId) -> Result<Vec<String>> {
    let ids = ownership::list_ids(tx, owner).await?;
    let lists = ids.iter().flat_map(|(kind, ids)| {
        id_lists(ids, IDS_AT_ONCE).into_iter().map(move |list| format!("ids of {kind} {list}"))
    });
    Ok(lists.collect())
}

async fn refuse_live_runs(tx: &mut Tx, user: &UserRow) -> Result<()> {
    if users::count_live_runs(tx, user.id).await? > 0 {
        return Err(AppError::Conflict(Conflict::AccountBusy));
    }
    Ok(())
}

/// The tasks of a suspended account have no next run; those of their new owner do.
async fn reschedule(app: &App, tx: &mut Tx, owner: &UserRow) -> Result<()> {
    let now = app.now();
    for task in tasks::list_unpaused(tx, owner.id).await?.into_iter().filter(|task| task.next_run_at.is_none()) {
        tasks::update_pause(tx, &task, None, task.spec.schedule.next_after(now), now).await?;
    }
    Ok(())
}
