//! How many event streams are open: each queries the database about once a second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use holdfast_core::ids::UserId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of all users together.
pub const STREAMS: usize = 500;
/// Of one user: a stream for each open tab, and one for each program that waits for a run.
const STREAMS_OF_ONE: usize = 20;

pub(crate) struct EventStreams {
    places: Arc<Semaphore>,
    of_users: Arc<Mutex<HashMap<UserId, usize>>>,
}

impl Default for EventStreams {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(STREAMS)), of_users: Arc::default() }
    }
}

/// One of the event streams that a user may have open. Dropping it makes room for another.
pub struct StreamSlot {
    of_users: Arc<Mutex<HashMap<UserId, usize>>>,
    user: UserId,
    _place: OwnedSemaphorePermit,
}

impl EventStreams {
    /// Room for another event stream of this user, if there is any.
    pub(crate) fn open(&self, user: UserId) -> Option<StreamSlot> {
        let place = self.places.clone().try_acquire_owned().ok()?;
        let mut taken = self.of_users.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let own = taken.entry(user).or_default();
        if *own >= STREAMS_OF_ONE {
            return None;
        }
        *own += 1;
        Some(StreamSlot { of_users: self.of_users.clone(), user, _place: place })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut taken = self.of_users.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(own) = taken.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.user);
            }
        }
    }
}
