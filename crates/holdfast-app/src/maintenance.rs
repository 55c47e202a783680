//! Maintenance: until a time, workers start nothing. What is due is queued, requests are answered, and runs that are in
//! progress finish.

use holdfast_core::Timestamp;
use holdfast_core::audit::AuditAction;
use holdfast_core::clock::{self, rfc3339};
use holdfast_store::{Tx, settings};

use crate::{App, Origin, Result};

/// The setting with the time at which maintenance ends.
const UNTIL: &str = "maintenance_until";

/// When maintenance ends; `None` if there is none.
pub async fn until(app: &App) -> Result<Option<Timestamp>> {
    find(&mut app.store.read().await?, app.now()).await
}

pub(crate) async fn find(tx: &mut Tx, now: Timestamp) -> Result<Option<Timestamp>> {
    let value = settings::find(tx, UNTIL).await?;
    let until = value.and_then(|text| text.parse().ok()).map(clock::from_micros);
    Ok(until.filter(|until| *until > now))
}

/// Begins maintenance, or changes when it ends.
pub async fn begin(app: &App, origin: &Origin, until: Timestamp) -> Result<()> {
    let mut tx = app.store.begin().await?;
    settings::write(&mut tx, UNTIL, &until.as_microsecond().to_string()).await?;
    app.audit_as(&mut tx, None, origin, AuditAction::MaintenanceBegun, &format!("until {}", rfc3339(until))).await?;
    Ok(tx.commit().await?)
}

/// Ends maintenance at once.
pub async fn end(app: &App, origin: &Origin) -> Result<()> {
    let mut tx = app.store.begin().await?;
    settings::write(&mut tx, UNTIL, "0").await?;
    app.audit_as(&mut tx, None, origin, AuditAction::MaintenanceEnded, "").await?;
    Ok(tx.commit().await?)
}
