//! The data keys that secrets are sealed with, as far as this process has loaded them.

use std::collections::HashMap;
use std::sync::RwLock;

use crate::master_key::{Key, MasterKeySource};

/// The data keys in memory, and the source of the master key that unwraps new ones.
pub(crate) struct Sealer {
    pub source: MasterKeySource,
    data_keys: RwLock<HashMap<i64, Key>>,
}

impl Sealer {
    pub(crate) fn new(source: MasterKeySource) -> Self {
        Self { source, data_keys: RwLock::default() }
    }

    pub(crate) fn cached(&self, id: i64) -> Option<Key> {
        self.data_keys.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&id).cloned()
    }

    pub(crate) fn remember(&self, id: i64, key: Key) {
        self.data_keys.write().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(id, key);
    }
}
