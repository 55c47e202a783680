//! Warnings that no run causes: tasks that are overdue, tokens that expire soon, and incidents that have grown or are
//! over.

use holdfast_app::Result;
use holdfast_core::clock::later;
use holdfast_store::{incidents, notices};

use crate::services::Services;

const DAY_SECS: i64 = 86_400;
/// How long before a token expires its owner is told.
const TOKEN_WARNING_DAYS: i64 = 7;
/// How many tasks or tokens are reported at a time.
const TOLD_AT_ONCE: i64 = 200;

/// Reports tasks that have had no success for too long; of several processes, the first one to look does so.
pub(crate) async fn tell_of_overdue(services: &Services) -> Result<()> {
    let app = &services.app;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    for row in notices::list_overdue(&mut tx, now, TOLD_AT_ONCE).await? {
        services.outbox.overdue(&mut tx, &row, now).await?;
    }
    tx.commit().await?;
    app.wake_dispatcher();
    Ok(())
}

/// Reports incidents that have grown much, and those that are over without a run that ended them: their last tasks were
/// paused or deleted, or fail for other reasons.
pub(crate) async fn tell_of_incidents(services: &Services) -> Result<()> {
    let app = &services.app;
    let now = app.now();
    let over = incidents::list_over(&mut app.store.read().await?, TOLD_AT_ONCE).await?;
    let grown = incidents::list_grown(&mut app.store.read().await?, now, TOLD_AT_ONCE).await?;
    if over.is_empty() && grown.is_empty() {
        return Ok(());
    }
    let mut tx = app.store.begin().await?;
    for incident in over {
        services.outbox.incidents.end_if_over(&mut tx, &incident, now).await?;
    }
    for incident in grown {
        services.outbox.incidents.tell_of_growth(&mut tx, &incident, now).await?;
    }
    tx.commit().await?;
    app.wake_dispatcher();
    Ok(())
}

/// Reports tokens that expire soon.
pub(crate) async fn tell_of_tokens(services: &Services) -> Result<()> {
    let app = &services.app;
    let now = app.now();
    let before = later(now, TOKEN_WARNING_DAYS * DAY_SECS);
    let expiring = notices::list_expiring_tokens(&mut app.store.read().await?, now, before, TOLD_AT_ONCE).await?;
    for token in expiring {
        let mut tx = app.store.begin().await?;
        services.outbox.token_expires(&mut tx, &token, now).await?;
        tx.commit().await?;
        app.wake_dispatcher();
    }
    Ok(())
}
