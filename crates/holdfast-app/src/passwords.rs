//! Password hashing: argon2id, few at a time, and always the same work whether or not the account exists.

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use holdfast_core::Secret;
use holdfast_core::user::{HASH_LANES, HASH_MEMORY_KIB, HASH_PASSES, is_password_hash};
use tokio::sync::Semaphore;

use crate::{AppError, Result};

/// Each hash takes 19 MiB and a core for some 20 ms; two at once leave the rest of the service responsive.
const AT_ONCE: usize = 2;
/// More than this many waiting is an attack or a stampede; further ones are refused.
const QUEUE: usize = 64;

/// The hash that passwords for unknown accounts are checked against: that of a random text that nobody kept.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c29tZSByYW5kb20gc2FsdA$/gYqzZJgiqTgyPFSLfyP1Ew+qs4P7YFqzkRJH7/oBmQ";

pub(crate) struct Hasher {
    running: Semaphore,
    admitted: Semaphore,
}

impl Default for Hasher {
    fn default() -> Self {
        Self { running: Semaphore::new(AT_ONCE), admitted: Semaphore::new(AT_ONCE + QUEUE) }
    }
}

impl Hasher {
    pub(crate) async fn hash(&self, password: &Secret) -> Result<String> {
        let password = password.clone();
        self.run(move || {
            let params = Params::new(HASH_MEMORY_KIB, HASH_PASSES, HASH_LANES, None);
            let params = params.map_err(|error| AppError::Internal(error.to_string()))?;
            let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            let hash = argon2.hash_password(password.reveal().as_bytes());
            hash.map(|hash| hash.to_string()).map_err(|error| AppError::Internal(error.to_string()))
        })
        .await?
    }

    /// Whether the password matches the hash. Without a hash, or with one that demands other work than ours, it takes as
    /// long and returns false.
    pub(crate) async fn verify(&self, password: &Secret, hash: Option<String>) -> Result<bool> {
        let password = password.clone();
        self.run(move || {
            let hash = hash.filter(|hash| is_password_hash(hash));
            let exists = hash.is_some();
            let parsed = PasswordHash::new(hash.as_deref().unwrap_or(NOBODY));
            let matches =
                parsed.is_ok_and(|hash| Argon2::default().verify_password(password.reveal().as_bytes(), &hash).is_ok());
            matches && exists
        })
        .await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let busy = || AppError::busy("too many sign-ins are waiting");
        let _admitted = self.admitted.try_acquire().map_err(|_| busy())?;
        let _running = self.running.acquire().await.map_err(|_| busy())?;
        tokio::task::spawn_blocking(work).await.map_err(|error| AppError::Internal(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_hash_is_argon2id_and_only_its_password_matches() {
        let hasher = Hasher::default();
        let hash = hasher.hash(&Secret::new("correct horse")).await.unwrap();
        assert!(is_password_hash(&hash) && is_password_hash(NOBODY), "{hash}");
        assert!(hasher.verify(&Secret::new("correct horse"), Some(hash.clone())).await.unwrap());
        assert!(!hasher.verify(&Secret::new("wrong horse"), Some(hash)).await.unwrap());
        assert!(!hasher.verify(&Secret::new("anything"), None).await.unwrap());
    }

    #[test]
    fn the_stand_in_hash_parses_so_that_unknown_accounts_cost_the_same() {
        let parsed = PasswordHash::new(NOBODY).unwrap();
        assert_eq!(parsed.algorithm.as_str(), "argon2id");
        assert!(parsed.hash.is_some() && parsed.salt.is_some());
    }
}
