//! Locks of repositories, for other programs: which runs of an installation may use a repository at the same time is
//! decided before they start. So a lock of this installation that nobody writes again was left by a run that was lost.

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
    /// How often a lock is written again. restic does so every five minutes.
    refresh: Duration,
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
    current: Arc<Mutex<CurrentLock>>,
    /// After this time without being written again, others may have taken it for abandoned.
    stale_after: Duration,
    is_released: bool,
    runtime: Handle,
    refreshing: AbortOnDropHandle<()>,
}

/// The file of a held lock, and when it was written.
#[derive(Debug, Clone, Copy)]
struct CurrentLock {
    id: Id,
    written: Instant,
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
        let stale_after = holder.stale_after();
        let current = Arc::new(Mutex::new(CurrentLock { id: own, written: Instant::now() }));
        let (refreshed, place, key, holder) =
            (current.clone(), repository.place.clone(), repository.key.clone(), holder.clone());
        let refreshing = tokio::spawn(async move {
            loop {
                tokio::time::sleep(holder.refresh).await;
                let written = Instant::now();
                // If it cannot be written now, it may be later; what needs it asks before it goes on.
                let Ok(next) = place.write_json(FileKind::Lock, &holder.lock(is_exclusive), &key).await else {
                    continue;
                };
                let next = CurrentLock { id: next, written };
                let last = std::mem::replace(&mut *refreshed.lock().unwrap_or_else(PoisonError::into_inner), next);
                if let Err(error) = place.remove(FileKind::Lock, &last.id).await {
                    tracing::warn!(%error, "a lock of a repository was left behind; it does not count after half an hour");
                }
            }
        });
        Self {
            place: repository.place.clone(),
            current,
            stale_after,
            is_released: false,
            runtime: Handle::current(),
            refreshing: AbortOnDropHandle::new(refreshing),
        }
    }

    fn current(&self) -> CurrentLock {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self) -> Id {
        self.current().id
    }

    /// Whether others still honour the lock. A process that was suspended for long may find that they do not.
    pub(super) fn confirm(&self) -> Result<()> {
        if self.current().written.elapsed() < self.stale_after {
            return Ok(());
        }
        let message = "The lock of the repository could not be renewed in time, so that others may use it now.";
        Err(EngineError::new(FailureCode::Locked, message))
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
        Self { hostname, now: RunningTime::from(now), limit: settings.lock_limit, refresh: settings.lock_refresh }
    }

    /// A lock of this installation that is as old as this was left behind.
    fn stale_after(&self) -> Duration {
        self.refresh * 2
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

/// Another lock that cannot be held at the same time. Removes those that lost runs of this installation have left.
async fn find_conflict(repository: &Repository, lock: &Lock, holder: &Holder, own: Option<Id>) -> Result<Option<Lock>> {
    let (mut conflict, now) = (None, holder.now.now());
    let Locks { known, unreadable } = read_locks(repository).await?;
    if let Some(id) = unreadable.first().filter(|_| lock.exclusive) {
        let message = format!(
            "The file locks/{id} of the repository is not a lock that can be read, so that it is not known whether \
             another program uses the repository. If none does, remove this file."
        );
        return Err(EngineError::new(FailureCode::Locked, message));
    }
    for (id, other) in known.into_iter().filter(|(id, _)| Some(*id) != own) {
        let age = u64::try_from(other.age_secs(now)).unwrap_or(0);
        // Half as much again, since its time is that of another clock.
        if other.hostname == holder.hostname && age > (holder.stale_after() * 3 / 2).as_secs() {
            tracing::warn!(lock = %id, "removing a lock that a lost run has left in a repository");
            repository.place.remove(FileKind::Lock, &id).await?;
        } else if !other.admits(lock) && !other.is_stale(now) {
            conflict.get_or_insert(other);
        }
    }
    Ok(conflict)
}

/// The locks of a repository.
#[derive(Default)]
struct Locks {
    known: Vec<(Id, Lock)>,
    /// Files that are none: a full disk may leave an empty one. Nobody can hold such a lock.
    unreadable: Vec<Id>,
}

async fn read_locks(repository: &Repository) -> Result<Locks> {
    let mut locks = Locks::default();
    for id in repository.place.list(FileKind::Lock).await? {
        let lock = match repository.place.read_json(FileKind::Lock, &id, &repository.key).await {
            Err(error) if error.code == FailureCode::Corrupt => None,
            // Removed since it was listed.
            Ok(None) => continue,
            json => json?.and_then(|json| Lock::from_json(&json).ok()),
        };
        match lock {
            Some(lock) => locks.known.push((id, lock)),
            None => locks.unreadable.push(id),
        }
    }
    for id in &locks.unreadable {
        tracing::warn!(lock = %id, "a file among the locks of a repository is not a lock");
    }
    Ok(locks)
}

/// A lock that another program has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignLock {
    pub hostname: String,
    pub pid: u32,
    pub is_exclusive: bool,
    pub age_secs: i64,
    /// Nobody has written it for so long that it no longer counts.
    pub is_stale: bool,
}

/// The locks of other programs. They are never removed by us.
pub(super) async fn list_foreign(repository: &Repository, holder: &Holder) -> Result<Vec<ForeignLock>> {
    let now = holder.now.now();
    let foreign = read_locks(repository).await?.known.into_iter().filter(|(_, lock)| lock.hostname != holder.hostname);
    let shown = foreign.map(|(_, lock)| ForeignLock {
        age_secs: lock.age_secs(now),
        is_stale: lock.is_stale(now),
        hostname: lock.hostname,
        pid: lock.pid,
        is_exclusive: lock.exclusive,
    });
    Ok(shown.collect())
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
