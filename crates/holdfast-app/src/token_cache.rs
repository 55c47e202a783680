//! A cache of recently used tokens: who each belongs to, and when it was last used.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use holdfast_core::ids::{TokenId, UserId};
use holdfast_core::scope::ScopeSet;
use holdfast_core::{Timestamp, clock};
use holdfast_store::{Store, tokens};

use crate::error::AppError;

type Result<T> = std::result::Result<T, AppError>;

/// A token as it was looked up. It is valid until the token epoch in the database changes.
pub(crate) struct KnownToken {
    /// Read before the token was, so that later changes show as a later epoch.
    epoch: i64,
    pub id: TokenId,
    pub user: UserId,
    pub is_admin: bool,
    pub scopes: ScopeSet,
    pub expires_at: Option<Timestamp>,
    pub zone: clock::Zone,
}

/// How often the epoch is checked while there are requests, and the age at which every request waits for a new check: a
/// revoked token stops working within a second on every node.
const EPOCH_EVERY: Duration = Duration::from_millis(500);
const EPOCH_AT_LEAST_EVERY: Duration = Duration::from_millis(900);
/// 10,000 tokens are some 3 MiB; then the cache is cleared.
const CACHE_ENTRIES: usize = 10_000;
/// A token's last use is written at most this often.
const LAST_USED_EVERY_SECS: i64 = 60;

pub(crate) struct TokenCache {
    known: RwLock<HashMap<[u8; 32], Arc<KnownToken>>>,
    epoch: AtomicI64,
    /// When the epoch was last checked, in milliseconds since `started`.
    looked_ms: AtomicU64,
    started: Instant,
    /// Held by the request that checks the epoch.
    looking: tokio::sync::Mutex<()>,
    used: Mutex<HashMap<i64, Use>>,
}

/// When a token was last used, and the last use that the database knows of.
#[derive(Clone, Copy)]
struct Use {
    seen: Timestamp,
    written: Option<Timestamp>,
}

/// Not an epoch of the database, so no cached token has it.
const NO_EPOCH: i64 = -1;

impl Default for TokenCache {
    fn default() -> Self {
        Self {
            known: RwLock::default(),
            epoch: AtomicI64::new(NO_EPOCH),
            looked_ms: AtomicU64::new(0),
            started: Instant::now(),
            looking: tokio::sync::Mutex::default(),
            used: Mutex::default(),
        }
    }
}

impl TokenCache {
    /// The token with this digest, as it was in the database within the last second.
    pub(crate) async fn look_up(&self, store: &Store, digest: [u8; 32]) -> Result<Arc<KnownToken>> {
        self.follow_epoch(store).await?;
        if let Some(known) = self.find(&digest) {
            return Ok(known);
        }
        let mut tx = store.read().await?;
        let epoch = tokens::find_epoch(&mut tx).await?;
        let row = tokens::find_caller(&mut tx, &digest).await?.ok_or(AppError::Unauthenticated)?;
        let token = Arc::new(KnownToken {
            epoch,
            id: row.token_id,
            user: row.user_id,
            is_admin: row.is_admin,
            scopes: ScopeSet::from_text(&row.scopes),
            expires_at: row.expires_at.map(|at| at.0),
            zone: clock::zone_or_utc(&row.timezone),
        });
        self.remember(digest, token.clone());
        Ok(token)
    }

    /// Checks whether the epoch has changed, which invalidates all cached tokens. One request at a time checks;
    /// concurrent ones continue with the known epoch unless it is too old.
    async fn follow_epoch(&self, store: &Store) -> Result<()> {
        let age = self.epoch_age();
        if age < EPOCH_EVERY {
            return Ok(());
        }
        let _looking = match self.looking.try_lock() {
            Ok(guard) => guard,
            Err(_) if age < EPOCH_AT_LEAST_EVERY => return Ok(()),
            Err(_) => self.looking.lock().await,
        };
        if self.epoch_age() < EPOCH_EVERY {
            return Ok(());
        }
        let looked_ms = self.started.elapsed().as_millis() as u64;
        let epoch = tokens::find_epoch(&mut store.read().await?).await?;
        self.looked_ms.store(looked_ms, Ordering::Release);
        self.epoch.store(epoch, Ordering::Release);
        Ok(())
    }

    /// How long ago the epoch was checked.
    fn epoch_age(&self) -> Duration {
        if self.epoch.load(Ordering::Acquire) == NO_EPOCH {
            return Duration::MAX;
        }
        let looked = Duration::from_millis(self.looked_ms.load(Ordering::Acquire));
        self.started.elapsed().saturating_sub(looked)
    }

    fn find(&self, digest: &[u8; 32]) -> Option<Arc<KnownToken>> {
        let known = self.known.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let epoch = self.epoch.load(Ordering::Acquire);
        known.get(digest).filter(|token| token.epoch == epoch).cloned()
    }

    fn remember(&self, digest: [u8; 32], token: Arc<KnownToken>) {
        let mut known = self.known.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if known.len() >= CACHE_ENTRIES {
            known.clear();
        }
        known.insert(digest, token);
    }

    /// Called after a change to tokens or accounts in this process, so that it takes effect at once.
    pub(crate) fn clear(&self) {
        self.known.write().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
    }

    pub(crate) fn note_use(&self, id: TokenId, now: Timestamp) {
        let mut used = self.used.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        used.entry(id.0).and_modify(|entry| entry.seen = now).or_insert(Use { seen: now, written: None });
    }

    /// Takes the uses that the database does not know of yet and marks them as written; tokens unused for long are
    /// dropped.
    pub(crate) fn take_unwritten(&self, now: Timestamp) -> Vec<(TokenId, Timestamp)> {
        let mut used = self.used.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut unwritten = Vec::new();
        used.retain(|id, entry| {
            let stale = |written: Timestamp| entry.seen.as_second() - written.as_second() >= LAST_USED_EVERY_SECS;
            if entry.written.is_none_or(stale) {
                unwritten.push((TokenId(*id), entry.seen));
                entry.written = Some(entry.seen);
                return true;
            }
            now.as_second() - entry.seen.as_second() < LAST_USED_EVERY_SECS
        });
        unwritten
    }
}
