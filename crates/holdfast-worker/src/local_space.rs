//! The free space of local destinations, on this machine.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use holdfast_core::ids::DestinationId;
use holdfast_engine::FreeSpace;
use holdfast_engine::destination::Local;
use holdfast_store::destinations::DestinationRow;
use tokio::time::{Instant, timeout_at};

use crate::plans::destination_folder;

/// A disk that is mounted over the network may hang; nobody waits for it longer than this.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks at the file systems of local destinations, at each one at a time: one that hangs keeps a single thread.
#[derive(Clone)]
pub(crate) struct LocalSpace {
    folder: PathBuf,
    under_way: Arc<Mutex<HashSet<DestinationId>>>,
}

impl LocalSpace {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, under_way: Arc::default() }
    }

    /// The free bytes of each destination whose disk is mounted here and answers.
    pub(crate) async fn find(&self, destinations: &[DestinationRow]) -> Vec<(DestinationId, u64)> {
        let deadline = Instant::now() + PATIENCE;
        let looks: Vec<_> = destinations.iter().filter_map(|row| Some((row.id, self.look(row)?))).collect();
        let mut found = Vec::new();
        for (id, look) in looks {
            if let Ok(Ok(Some(space))) = timeout_at(deadline, look).await {
                found.push((id, space.bytes));
            }
        }
        found
    }

    fn look(&self, row: &DestinationRow) -> Option<tokio::task::JoinHandle<Option<FreeSpace>>> {
        let marker = row.marker.clone()?;
        if !self.locked().insert(row.id) {
            return None;
        }
        let (own, id, folder) = (self.clone(), row.id, destination_folder(&self.folder, row));
        Some(tokio::task::spawn_blocking(move || {
            // In a folder without its marker, the disk is not mounted, and the space would be that of another one.
            let is_mounted = Local::find_marker(&folder).is_ok_and(|found| found == marker);
            let space = if is_mounted { FreeSpace::find(&folder) } else { None };
            own.locked().remove(&id);
            space
        }))
    }

    fn locked(&self) -> MutexGuard<'_, HashSet<DestinationId>> {
        self.under_way.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
