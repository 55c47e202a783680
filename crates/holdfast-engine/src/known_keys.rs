//! Opens key files with passwords. What a key file and a password have led to is remembered while the process runs, also
//! that it was nothing, since deriving a key takes long and much memory by design.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_core::Secret;
use holdfast_core::random::digest;
use holdfast_repository::{Id, Key, KeyFile, RepositoryError, Result};

use crate::archive::KeyDerivation;
use crate::error::EngineError;
use crate::thread::{on_thread, until_dropped};

/// How many keys are remembered, of 64 bytes each. If there are more, they begin anew.
const MOST_KEYS: usize = 10_000;

#[derive(Clone, Default)]
pub(crate) struct KnownKeys {
    derivation: KeyDerivation,
    /// `None` where the password does not open the file.
    keys: Arc<Mutex<HashMap<Id, Option<Key>>>>,
}

impl KnownKeys {
    pub(crate) fn new(derivation: KeyDerivation) -> Self {
        Self { derivation, keys: Arc::default() }
    }

    /// Opens a key file with a password. Whoever drops the future before it is its turn needs nothing derived.
    pub(crate) async fn open(&self, json: &[u8], password: &Secret) -> crate::error::Result<Result<Key>> {
        let known_as = known_as(json, password);
        if let Some(key) = self.keys().get(&known_as) {
            return Ok(key.clone().ok_or(RepositoryError::WrongPassword));
        }
        let (stop, _guard) = until_dropped();
        let (derivation, json, password) = (self.derivation.clone(), json.to_vec(), password.clone());
        let opened = on_thread(move || {
            let open =
                |file: KeyFile| derivation.take(|| if stop.is_cancelled() { None } else { Some(file.open(&password)) });
            KeyFile::from_json(&json).map(open).transpose().ok_or_else(EngineError::cancelled)
        });
        let opened = opened.await?.and_then(|opened| opened);
        let found = match &opened {
            Ok(key) => Some(key.clone()),
            Err(RepositoryError::WrongPassword) => None,
            Err(RepositoryError::Damaged(_) | RepositoryError::Unsupported(_)) => return Ok(opened),
        };
        let mut keys = self.keys();
        if keys.len() >= MOST_KEYS {
            keys.clear();
        }
        keys.insert(known_as, found);
        drop(keys);
        Ok(opened)
    }

    /// Writes a key file.
    pub(crate) async fn seal(
        &self,
        seal: impl FnOnce() -> Result<Vec<u8>> + Send + 'static,
    ) -> crate::error::Result<Result<Vec<u8>>> {
        let derivation = self.derivation.clone();
        on_thread(move || Ok(derivation.take(seal))).await
    }

    fn keys(&self) -> std::sync::MutexGuard<'_, HashMap<Id, Option<Key>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of both together. The length of the file cannot be mistaken: its own hash comes first.
fn known_as(json: &[u8], password: &Secret) -> Id {
    Id::of(&[Id::of(json).as_bytes(), digest(password.reveal()).as_slice()].concat())
}
