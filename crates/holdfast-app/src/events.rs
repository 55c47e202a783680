//! What happens to a user's runs, backups and notices, for clients that follow it.

use holdfast_core::scope::Scope;
use holdfast_store::events::{self, EventPosition, EventRow};

use crate::{App, Caller, Result};

/// How many events are read at a time: a day of several hundred tasks takes a few rounds.
const EVENTS_AT_ONCE: i64 = 500;

/// What events are about, and the scope that the routes for it require.
const SUBJECTS: [(&str, Scope); 3] =
    [("run", Scope::ViewBackupTasks), ("backup", Scope::ViewBackupTasks), ("notice", Scope::ViewNotificationStreams)];

/// Where following begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    pub place: EventPosition,
    /// Events behind the place that the client asked for are no longer on record.
    pub has_gap: bool,
}

/// Begins behind `last`, the last event that the client saw; otherwise with what happens from now on.
pub async fn begin(app: &App, last: Option<EventPosition>) -> Result<Beginning> {
    let mut tx = app.store.read().await?;
    if let Some(place) = last
        && events::is_complete_after(&mut tx, place).await?
    {
        return Ok(Beginning { place, has_gap: false });
    }
    Ok(Beginning { place: events::find_end(&mut tx).await?, has_gap: last.is_some() })
}

/// The caller's next events behind `place`, of those that the caller's scopes allow to see.
pub async fn list(app: &App, caller: &Caller, place: EventPosition) -> Result<Vec<EventRow>> {
    let visible = SUBJECTS.iter().filter(|(_, scope)| caller.scopes.contains(*scope));
    let subjects: Vec<&str> = visible.map(|(subject, _)| *subject).collect();
    Ok(events::list(&mut app.store.read().await?, caller.user, &subjects, place, EVENTS_AT_ONCE).await?)
}
