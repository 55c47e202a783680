//! Locks of repositories. Within an installation, runs of the same task never meet; locks are for other programs, and
//! for runs of different kinds.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_core::Timestamp;
use holdfast_core::clock::rfc3339;
use holdfast_core::failure::FailureCode;
use holdfast_repository::{Id, Lock};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::opening::Repository;
use super::place::{FileKind, Place};
use crate::context::Context;
use crate::destination::DestinationSettings;
use crate::error::{EngineError, Result};

/// How often a lock is written again; restic does so as well, and takes one that is half an hour old for abandoned.
const REFRESH: Duration = Duration::from_secs(5 * 60);
/// How long to look whether somebody else has written a lock at the same time.
const SETTLE: Duration = Duration::from_millis(200);
/// How long to wait before looking again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Who holds a lock, and when it is.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    /// The name of the installation.
    hostname: String,
    now: RunningTime,
    /// How long to wait for the locks of others.
    limit: Duration,
}

/// The time, from a time that is known.
#[derive(Debug, Clone, Copy)]
struct RunningTime {
    at: Timestamp,
    since: Instant,
}

impl RunningTime {
    fn from(at: Timestamp) -> Self {
        Self { at, since: Instant::now() }
    }

    fn now(self) -> Timestamp {
        self.at.checked_add(self.since.elapsed()).unwrap_or(self.at)
    }
}

/// A lock that is written again until it is released or dropped. If that fails, others take it for abandoned after half
/// an hour.
pub(super) struct HeldLock {
    place: Place,
    current: Arc<Mutex<Id>>,
    is_released: bool,
    runtime: Handle,
    refreshing: AbortOnDropHandle<()>,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if !self.is_released {
            self.refreshing.abort();
            let (place, id) = (self.place.clone(), self.id());
            self.runtime.spawn(async move {
                if let Err(error) = place.remove(FileKind::Lock, &id).await {
                    tracing::warn!(%error, "a lock of a repository was left behind");
                }
            });
        }
    }
}

impl HeldLock {
    /// Waits for other locks, as long as the holder may.
    pub(super) async fn acquire(
        repository: &Repository,
        holder: &Holder,
        is_exclusive: bool,
        cancel: &CancellationToken,
    ) -> Result<Self> {
        let started = Instant::now();
        loop {
            let lock = holder.lock(is_exclusive);
            let Some(other) = find_conflict(repository, &lock, holder, None).await? else {
                let own = repository.place.write_json(FileKind::Lock, &lock, &repository.key).await?;
                tokio::time::sleep(SETTLE).await;
                match find_conflict(repository, &lock, holder, Some(own)).await {
                    Ok(None) => return Ok(Self::hold(repository, holder, is_exclusive, own)),
                    Ok(Some(_)) => repository.place.remove(FileKind::Lock, &own).await?,
                    Err(error) => {
                        repository.place.remove(FileKind::Lock, &own).await?;
                        return Err(error);
                    }
                }
                continue;
            };
            if started.elapsed() >= holder.limit {
                return Err(is_locked(&other));
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_AGAIN.min(holder.limit)) => {}
                () = cancel.cancelled() => return Err(EngineError::cancelled()),
            }
        }
    }

    fn hold(repository: &Repository, holder: &Holder, is_exclusive: bool, own: Id) -> Self {
        let current = Arc::new(Mutex::new(own));
        let (refreshed, place, key, holder) =
            (current.clone(), repository.place.clone(), repository.key.clone(), holder.clone());
        let refreshing = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                // If it cannot be written now, it can be later: five attempts fit into the time until it is stale.
                let Ok(next) = place.write_json(FileKind::Lock, &holder.lock(is_exclusive), &key).await else {
                    continue;
                };
                let last = std::mem::replace(&mut *refreshed.lock().unwrap_or_else(PoisonError::into_inner), next);
                if let Err(error) = place.remove(FileKind::Lock, &last).await {
                    tracing::warn!(%error, "a lock of a repository was left behind; it does not count after half an hour");
                }
            }
        });
        Self {
            place: repository.place.clone(),
            current,
            is_released: false,
            runtime: Handle::current(),
            refreshing: AbortOnDropHandle::new(refreshing),
        }
    }

    fn id(&self) -> Id {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the lock. If that fails, the run is not the worse for it.
    pub(super) async fn release(mut self, context: &Context) {
        self.refreshing.abort();
        self.is_released = true;
        if let Err(error) = self.place.remove(FileKind::Lock, &self.id()).await {
            context.log.line(format!("The lock of the repository could not be removed: {error}"));
        }
    }
}

impl Holder {
    pub(super) fn new(settings: &DestinationSettings, now: Timestamp) -> Self {
        let hostname = settings.lock_hostname.clone();
        Self { hostname, now: RunningTime::from(now), limit: settings.lock_limit }
    }

    fn lock(&self, exclusive: bool) -> Lock {
        Lock {
            time: self.now.now().into(),
            exclusive,
            hostname: self.hostname.clone(),
            username: "holdfast".to_owned(),
            pid: std::process::id(),
            uid: 0,
            gid: 0,
        }
    }
}

/// Another lock that cannot be held at the same time.
async fn find_conflict(repository: &Repository, lock: &Lock, holder: &Holder, own: Option<Id>) -> Result<Option<Lock>> {
    let ids = repository.place.list(FileKind::Lock).await?;
    let others = ids.into_iter().filter(|id| Some(*id) != own).collect();
    for (_, json) in repository.place.read_all_json(FileKind::Lock, others, &repository.key).await? {
        let other = Lock::from_json(&json).map_err(super::place::of_repository)?;
        if !other.admits(lock) && !other.is_stale(holder.now.now()) {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

fn is_locked(other: &Lock) -> EngineError {
    let since = Timestamp::new(other.time.seconds, 0).map_or_else(|_| "an unknown time".to_owned(), rfc3339);
    let kind = if other.exclusive { "exclusively " } else { "" };
    let message = format!(
        "The repository is {kind}locked by process {} on {}, last at {since}. Wait until that has ended; if it no longer \
         runs, `restic unlock` removes its lock.",
        other.pid, other.hostname
    );
    EngineError::new(FailureCode::Locked, message)
}
