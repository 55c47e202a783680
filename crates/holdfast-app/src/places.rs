//! Places for what goes on for long, such as following events or reading a backup. Users share them, and so do the
//! tokens of each user: whoever has a token can take its share and no more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use holdfast_core::ids::UserId;
use holdfast_core::queue::Share;

use crate::Caller;
use crate::caller::LimitKey;

/// Open event streams: each queries the database about once a second. One token has a stream for each tab or for each
/// program that waits for a run.
pub const EVENT_STREAMS: Sharing = Sharing {
    in_all: 500,
    of_users: Share { per_user: 60, reserved: 100 },
    of_tokens: Share { per_user: 20, reserved: 20 },
};

/// How places are shared.
#[derive(Debug, Clone, Copy)]
pub struct Sharing {
    pub in_all: usize,
    /// By all users.
    pub of_users: Share,
    /// By the tokens of one user. All sessions of a user together count as one token.
    pub of_tokens: Share,
}

type Key = (UserId, LimitKey);

/// How many places each token has taken.
#[derive(Clone)]
pub struct Places {
    sharing: Sharing,
    taken: Arc<Mutex<HashMap<Key, usize>>>,
}

/// A place, until it is dropped.
pub struct Place {
    places: Places,
    key: Key,
}

impl Places {
    pub fn new(sharing: Sharing) -> Self {
        Self { sharing, taken: Arc::default() }
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Key, usize>> {
        self.taken.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes a place. The error is how many places the caller's user has already.
    pub fn take(&self, caller: &Caller) -> Result<Place, usize> {
        let key = (caller.user, caller.limit_key);
        let Sharing { in_all, of_users, of_tokens } = self.sharing;
        let mut taken = self.locked();
        let own = taken.get(&key).copied().unwrap_or(0);
        let of_user: usize = taken.iter().filter(|((user, _), _)| *user == key.0).map(|(_, count)| count).sum();
        let free = in_all.saturating_sub(taken.values().sum());
        if of_users.allows(of_user, free) && of_tokens.allows(own, of_users.per_user.saturating_sub(of_user)) {
            *taken.entry(key).or_default() += 1;
            return Ok(Place { places: self.clone(), key });
        }
        Err(of_user)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.locked();
        if let Some(own) = taken.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::clock;
    use holdfast_core::scope::ScopeSet;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{Expected, Origin};

    const FEW: Sharing = Sharing {
        in_all: 16,
        of_users: Share { per_user: 8, reserved: 4 },
        of_tokens: Share { per_user: 6, reserved: 2 },
    };

    fn caller(user: i64, token: i64) -> Caller {
        Caller {
            user: UserId(user),
            is_admin: false,
            scopes: ScopeSet::all(),
            zone: clock::zone_or_utc("UTC"),
            origin: Origin::default(),
            gone: CancellationToken::new(),
            expected: Expected::Any,
            dry_run: None,
            limit_key: LimitKey::Token(token),
        }
    }

    /// Takes as many places as there are for a token.
    fn fill(places: &Places, user: i64, token: i64) -> Vec<Place> {
        std::iter::from_fn(|| places.take(&caller(user, token)).ok()).collect()
    }

    #[test]
    fn no_user_takes_all_places() {
        let places = Places::new(FEW);
        let taken: Vec<Vec<Place>> = (1..=6).map(|user| fill(&places, user, user)).collect();
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6, 1, 1, 1, 1]);
        assert_eq!(places.take(&caller(7, 7)).err(), Some(0), "all places are taken");
        drop(taken);
        assert!(places.locked().is_empty());
        assert!(places.take(&caller(7, 7)).is_ok());
    }

    #[test]
    fn no_token_takes_all_places_of_its_user() {
        let places = Places::new(FEW);
        let taken: Vec<Vec<Place>> = (1..=4).map(|token| fill(&places, 1, token)).collect();
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [6, 1, 1, 0]);
        assert_eq!(fill(&places, 2, 9).len(), 4, "the last ones are for users who have none");
    }
}
