//! Rate limits by key, within this process. Idle buckets are dropped when there are many, so memory stays bounded.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Mutex;

use holdfast_core::Timestamp;
use holdfast_core::rate::{Bucket, Decision, Quota};

/// Locks are held for nanoseconds; a few shards are enough to avoid contention.
const SHARDS: usize = 16;
/// Keys per shard before idle ones are swept: 16 × 4,096 buckets are about 2 MiB.
const SWEEP_AT: usize = 4096;

pub(crate) struct Limiter<K> {
    shards: Vec<Mutex<HashMap<K, Bucket>>>,
    hasher: RandomState,
}

impl<K> Default for Limiter<K> {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl<K: Hash + Eq> Limiter<K> {
    pub(crate) fn take(&self, key: K, quota: Quota, now: Timestamp) -> Decision {
        let shard = &self.shards[self.hasher.hash_one(&key) as usize % SHARDS];
        let mut buckets = shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now = now.as_microsecond();
        if buckets.len() >= SWEEP_AT {
            buckets.retain(|_, bucket| !bucket.is_idle(now));
        }
        buckets.entry(key).or_default().take(quota, now)
    }

    /// Puts back a permit that was taken and not used.
    pub(crate) fn give_back(&self, key: &K, quota: Quota) {
        let shard = &self.shards[self.hasher.hash_one(key) as usize % SHARDS];
        let mut buckets = shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(bucket) = buckets.get_mut(key) {
            bucket.give_back(quota);
        }
    }
}
