//! Locks, so that other programs do not remove what is being read or written.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::time::GoTime;
use crate::{RepositoryError, Result};

/// A lock that is older than this does not count: who holds one writes a new one every five minutes.
const STALE_SECS: i64 = 30 * 60;

/// A file below `locks/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    pub time: GoTime,
    /// Nobody else may use the repository, as while it is pruned; otherwise others may read and add.
    pub exclusive: bool,
    #[serde(default)]
    pub hostname: String,
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    pub pid: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uid: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gid: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde needs")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Lock {
    pub fn from_json(json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json)
            .map_err(|error| RepositoryError::damaged(format!("A lock of this repository is damaged: {error}.")))
    }

    /// How many seconds ago it was written; none if that is in the future.
    pub fn age_secs(&self, now: Timestamp) -> i64 {
        now.as_second().saturating_sub(self.time.seconds).max(0)
    }

    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.age_secs(now) > STALE_SECS
    }

    /// Whether both can be held at the same time.
    pub fn admits(&self, other: &Self) -> bool {
        !self.exclusive && !other.exclusive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_stale_after_half_an_hour() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let lock = Lock {
            time: at(1_000_000).into(),
            exclusive: false,
            hostname: "host".to_owned(),
            username: String::new(),
            pid: 1,
            uid: 0,
            gid: 0,
        };
        let json = serde_json::to_vec(&lock).unwrap();
        assert_eq!(Lock::from_json(&json).unwrap(), lock);
        assert!(!lock.is_stale(at(1_000_000 + STALE_SECS)) && lock.is_stale(at(1_000_001 + STALE_SECS)));
        assert_eq!(lock.age_secs(at(0)), 0, "a clock that differs does not make it stale");
        let exclusive = Lock { exclusive: true, ..lock.clone() };
        assert!(
            lock.admits(&lock) && !lock.admits(&exclusive) && !exclusive.admits(&lock) && !exclusive.admits(&exclusive)
        );
    }
}
