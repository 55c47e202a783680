//! Incidents, as their owner sees them: what is wrong, since when, and which tasks it affects. What is over is no longer
//! listed, but was reported.

use holdfast_core::incident::IncidentPlace;
use holdfast_store::incidents::{self, AffectedTaskRow, IncidentRow};
use holdfast_store::{Tx, destinations, servers};

use crate::{App, Caller, Result};

/// The most tasks of an incident that are listed.
const TASKS: i64 = 50;

/// An incident that is not over.
pub struct Incident {
    pub row: IncidentRow,
    /// The label of the server or destination at fault; several servers have none.
    pub label: Option<String>,
    /// The first tasks that are or were affected.
    pub tasks: Vec<AffectedTaskRow>,
    /// How many there are in all.
    pub count: i64,
}

pub async fn list(app: &App, caller: &Caller) -> Result<Vec<Incident>> {
    let mut tx = app.store.read().await?;
    let mut found = Vec::new();
    for row in incidents::list_of(&mut tx, caller.user).await? {
        let label = find_label(&mut tx, row.place).await?;
        let tasks = incidents::list_tasks(&mut tx, row.id, TASKS).await?;
        let count = incidents::count_tasks(&mut tx, row.id).await?;
        found.push(Incident { row, label, tasks, count });
    }
    Ok(found)
}

async fn find_label(tx: &mut Tx, place: IncidentPlace) -> Result<Option<String>> {
    Ok(match place {
        IncidentPlace::Server(id) => servers::find(tx, id).await?.map(|row| row.label),
        IncidentPlace::Destination(id) => destinations::find(tx, id).await?.map(|row| row.label),
        IncidentPlace::Servers | IncidentPlace::Service => None,
    })
}
