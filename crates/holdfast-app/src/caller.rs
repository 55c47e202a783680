//! Who calls: from a token to the user and what they may do.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use holdfast_core::clock;
use holdfast_core::ids::{TokenId, UserId};
use holdfast_core::rate::{Decision, Quota};
use holdfast_core::scope::{Scope, ScopeSet};
use holdfast_core::{Timestamp, random};
pub use holdfast_store::audit::Origin;
use holdfast_store::tokens;
use tokio_util::sync::CancellationToken;

use crate::{App, AppError, Result};

/// Whoever acts, as every use case wants to know them.
#[derive(Debug, Clone)]
pub struct Caller {
    pub user: UserId,
    pub is_admin: bool,
    pub scopes: ScopeSet,
    pub zone: clock::Zone,
    pub origin: Origin,
    /// Cancelled when nobody waits for the answer any more.
    pub gone: CancellationToken,
    /// Whose runs and checks are counted together.
    pub(crate) limit_key: LimitKey,
}

/// Who a limit on runs and checks is counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LimitKey {
    Token(i64),
    Session(i64),
    Trigger(i64),
}

impl Caller {
    /// Whoever has the machine, in the name of a user: nothing is closed to them.
    pub fn operator(user: &holdfast_store::users::UserRow, origin: Origin) -> Self {
        Self {
            user: UserId(user.id),
            is_admin: user.is_admin,
            scopes: ScopeSet::all(),
            zone: clock::zone_or_utc(&user.timezone),
            origin,
            gone: CancellationToken::new(),
            limit_key: LimitKey::Session(0),
        }
    }
}

/// What every request carries, whichever front end it came to.
#[derive(Debug, Clone)]
pub struct Context {
    pub request_id: String,
    pub address: Option<IpAddr>,
    /// Scheme and host, without a slash at the end.
    pub base_url: String,
    /// Cancelled when the client has hung up.
    pub gone: CancellationToken,
}

impl Context {
    pub fn origin(&self, actor: &str) -> Origin {
        Origin {
            actor: actor.to_owned(),
            address: self.address.map(|address| address.to_string()),
            request_id: Some(self.request_id.clone()),
        }
    }
}

/// A token as it was looked up. It holds until the database's token epoch moves on.
struct KnownToken {
    /// Read before the token was: what changed since then shows in a later epoch.
    epoch: i64,
    id: TokenId,
    user: UserId,
    is_admin: bool,
    scopes: ScopeSet,
    expires_at: Option<Timestamp>,
    zone: clock::Zone,
}

/// How often the epoch is looked at while there are requests, and the age at which nobody goes on without a new look:
/// revoking a token holds within a second on every node.
const EPOCH_EVERY: Duration = Duration::from_millis(500);
const EPOCH_AT_LEAST_EVERY: Duration = Duration::from_millis(900);
/// 10,000 tokens are some 3 MiB; then the cache starts over.
const CACHE_ENTRIES: usize = 10_000;
/// A token's last use is written at most this often.
const LAST_USED_EVERY_SECS: i64 = 60;

pub(crate) struct TokenCache {
    known: RwLock<HashMap<[u8; 32], Arc<KnownToken>>>,
    epoch: AtomicI64,
    /// When the epoch was looked at, in milliseconds since `started`.
    looked_ms: AtomicU64,
    started: Instant,
    /// Held by the one who looks.
    looking: tokio::sync::Mutex<()>,
    used: Mutex<HashMap<i64, Use>>,
}

/// When a token was last used, and the last use that the database knows of.
#[derive(Clone, Copy)]
struct Use {
    seen: Timestamp,
    written: Option<Timestamp>,
}

/// No epoch of the database; nothing known is of it.
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
    /// How old what we know of the epoch is.
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

    /// After a change to tokens or accounts in this process, which then holds at once.
    pub(crate) fn clear(&self) {
        self.known.write().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
    }

    fn note_use(&self, id: TokenId, now: Timestamp) {
        let mut used = self.used.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        used.entry(id.0).and_modify(|entry| entry.seen = now).or_insert(Use { seen: now, written: None });
    }

    /// Uses that the database does not know of yet, marked as written; long unused tokens are forgotten.
    fn take_unwritten(&self, now: Timestamp) -> Vec<(TokenId, Timestamp)> {
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

/// Turns a bearer token into its user, and counts the request against the token's rate.
pub async fn authenticate(app: &App, token: &str, origin: Origin) -> Result<(Caller, Decision)> {
    let digest = random::digest(token);
    follow_epoch(app).await?;
    let known = match app.tokens.find(&digest) {
        Some(known) => known,
        None => look_up(app, digest).await?,
    };
    let now = app.now();
    if known.expires_at.is_some_and(|expires_at| expires_at <= now) {
        return Err(AppError::Unauthenticated);
    }
    app.tokens.note_use(known.id, now);
    let decision = app.requests.take(known.id.0, app.limits.requests, now);
    let caller = Caller {
        user: known.user,
        is_admin: known.is_admin,
        scopes: known.scopes,
        zone: known.zone.clone(),
        origin: Origin { actor: format!("token {}", known.id), ..origin },
        gone: CancellationToken::new(),
        limit_key: LimitKey::Token(known.id.0),
    };
    Ok((caller, decision))
}

/// Looks whether the epoch has moved on, which makes everything known void. One request at a time looks; those beside
/// it go on with what is known, unless that is too old.
async fn follow_epoch(app: &App) -> Result<()> {
    let cache = &app.tokens;
    let age = cache.epoch_age();
    if age < EPOCH_EVERY {
        return Ok(());
    }
    let _looking = match cache.looking.try_lock() {
        Ok(guard) => guard,
        Err(_) if age < EPOCH_AT_LEAST_EVERY => return Ok(()),
        Err(_) => cache.looking.lock().await,
    };
    if cache.epoch_age() < EPOCH_EVERY {
        return Ok(());
    }
    let looked_ms = cache.started.elapsed().as_millis() as u64;
    let epoch = tokens::find_epoch(&mut app.store.read().await?).await?;
    cache.looked_ms.store(looked_ms, Ordering::Release);
    cache.epoch.store(epoch, Ordering::Release);
    Ok(())
}

async fn look_up(app: &App, digest: [u8; 32]) -> Result<Arc<KnownToken>> {
    let mut tx = app.store.read().await?;
    let epoch = tokens::find_epoch(&mut tx).await?;
    let row = tokens::find_caller(&mut tx, &digest).await?.ok_or(AppError::Unauthenticated)?;
    let token = Arc::new(KnownToken {
        epoch,
        id: TokenId(row.token_id),
        user: UserId(row.user_id),
        is_admin: row.is_admin,
        scopes: ScopeSet::from_text(&row.scopes),
        expires_at: row.expires_at.map(|at| at.0),
        zone: clock::zone_or_utc(&row.timezone),
    });
    app.tokens.remember(digest, token.clone());
    Ok(token)
}

/// Refuses a caller whose token was not made for this, and notes that it tried.
pub async fn require_scope(app: &App, caller: &Caller, scope: Scope) -> Result<()> {
    if caller.scopes.contains(scope) {
        return Ok(());
    }
    // Once a minute is enough to be seen, and too little to fill a disk.
    if app.denials.take((caller.limit_key, scope), Quota::per_minute(1), app.now()).allowed {
        let mut tx = app.store.begin().await?;
        app.audit(&mut tx, caller, "scope.denied", scope.as_str()).await?;
        tx.commit().await?;
    }
    Err(AppError::MissingScope(scope))
}

impl App {
    /// Writes down when tokens were last used. Called every few seconds and before the end.
    pub async fn flush_token_use(&self) -> Result<()> {
        let unwritten = self.tokens.take_unwritten(self.now());
        if unwritten.is_empty() {
            return Ok(());
        }
        let mut tx = self.store.begin().await?;
        for (id, at) in unwritten {
            tokens::update_last_used(&mut tx, id, at).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}
