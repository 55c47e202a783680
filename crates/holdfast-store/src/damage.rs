//! Damage to the database, as far as it is known.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::error::StoreError;

/// Damage that a statement ran into, remembered until a check of the whole database finds none.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    seen: Mutex<Option<String>>,
    noticed: Notify,
}

impl Damage {
    pub(crate) fn note(&self, error: &StoreError) {
        if let StoreError::Damaged(text) = error {
            self.set(Some(text.clone()));
            self.noticed.notify_one();
        }
    }

    pub(crate) fn set(&self, damage: Option<String>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = damage;
    }

    pub(crate) fn seen(&self) -> Option<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) async fn noticed(&self) {
        self.noticed.notified().await;
    }
}
