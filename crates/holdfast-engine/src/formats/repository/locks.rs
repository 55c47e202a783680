//! Locks of repositories, for other programs: which runs of an installation may use a repository at the same time is
//! decided before they start. So a lock of this installation that nobody writes again was left by a run that was lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_core::Timestamp;
use holdfast_core::clock::rfc3339;
use holdfast_core::failure::FailureCode;
use holdfast_core::random;
use holdfast_repository::{Id, Lock};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::opening::Repository;
use super::place::{FileKind, Place};
use crate::context::Context;
use crate::destination::DestinationSettings;
use crate::error::{EngineError, Result};

/// How long to look whether somebody else has written a lock at the same time.
const SETTLE: Duration = Duration::from_millis(200);
/// Others take a lock for abandoned after half an hour; by then, nothing may be going on under it.
const CONFIRMED_FOR: Duration = Duration::from_secs(25 * 60);
/// The longest lock, which has some hundred bytes.
const LOCK_BYTES: usize = 16 * 1024;
/// How many locks are looked at.
const MOST_LOCKS: usize = 1000;
/// How long to wait before looking again for locks of others, or whether our own is still there.
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
    since: Uptime,
}

impl RunningTime {
    fn from(at: Timestamp) -> Self {
        Self { at, since: Uptime::now() }
    }

    fn now(self) -> Timestamp {
        self.at.checked_add(self.since.elapsed()).unwrap_or(self.at)
    }
}

/// How long the machine has been on, with the time for which it was suspended: others went on meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Uptime(Duration);

impl Uptime {
    fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Self(Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default()))
    }

    fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

/// A lock that is written again until it is released or dropped. If that fails, others take it for abandoned after half
/// an hour.
pub(super) struct HeldLock {
    place: Place,
    current: Arc<Mutex<CurrentLock>>,
    /// When the file was last found where it should be.
    seen: Mutex<Option<Uptime>>,
    runtime: Handle,
    stop: CancellationToken,
    /// `None` once it has been released.
    refreshing: Option<JoinHandle<()>>,
}

/// The file of a held lock, and when it was written.
#[derive(Debug, Clone, Copy)]
struct CurrentLock {
    id: Id,
    written: Uptime,
    /// Somebody has removed it, so that others may have used the repository since.
    is_lost: bool,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.stop.cancel();
        let Some(refreshing) = self.refreshing.take() else { return };
        let (place, current) = (self.place.clone(), self.current.clone());
        self.runtime.spawn(async move {
            if let Err(error) = remove(&place, &current, refreshing).await {
                tracing::warn!(%error, "a lock of a repository was left behind");
            }
        });
    }
}

impl HeldLock {
    /// Waits for other locks, as long as the holder may.
    pub(super) async fn acquire(
        repository: &Repository,
        holder: &Holder,
        is_exclusive: bool,
        context: &Context,
    ) -> Result<Self> {
        let (cancel, mut is_told) = (&context.cancel, false);
        let started = Uptime::now();
        loop {
            if cancel.is_cancelled() {
                return Err(EngineError::cancelled());
            }
            let lock = holder.lock(is_exclusive);
            let mut conflict = find_conflict(repository, &lock, holder, None).await?;
            if conflict.is_none() {
                let own = repository.place.write_json(FileKind::Lock, &lock, &repository.key).await?;
                tokio::time::sleep(SETTLE).await;
                let settled = find_conflict(repository, &lock, holder, Some(own)).await;
                if matches!(settled, Ok(None)) {
                    return Ok(Self::hold(repository, holder, is_exclusive, own));
                }
                repository.place.remove(FileKind::Lock, &own).await?;
                conflict = settled?;
            }
            let Some(other) = conflict else { continue };
            if started.elapsed() >= holder.limit {
                return Err(is_locked(&other));
            }
            if !std::mem::replace(&mut is_told, true) {
                context.log.line(format!("Waiting: {}", is_locked(&other).message));
            }
            // Two who have written their locks at the same moment must not do so again.
            let [jitter] = random::bytes::<1>();
            let wait = LOOK_AGAIN.min(holder.limit) + Duration::from_millis(u64::from(jitter) * 4);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = cancel.cancelled() => return Err(EngineError::cancelled()),
            }
        }
    }

    fn hold(repository: &Repository, holder: &Holder, is_exclusive: bool, own: Id) -> Self {
        let current = Arc::new(Mutex::new(CurrentLock { id: own, written: Uptime::now(), is_lost: false }));
        let (refreshed, place, key, holder) =
            (current.clone(), repository.place.clone(), repository.key.clone(), holder.clone());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let refreshing = tokio::spawn(async move {
            while stopped.run_until_cancelled(tokio::time::sleep(holder.refresh)).await.is_some() {
                let written = Uptime::now();
                let mut last = refreshed.lock().unwrap_or_else(PoisonError::into_inner).id;
                // A new one would hide that this one was not there for a while.
                match place.size(FileKind::Lock, &last).await {
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        refreshed.lock().unwrap_or_else(PoisonError::into_inner).is_lost = true;
                        return;
                    }
                    Err(_) => continue,
                }
                // If it cannot be written now, it may be later; what needs it asks before it goes on.
                let Ok(next) = place.write_json(FileKind::Lock, &holder.lock(is_exclusive), &key).await else {
                    continue;
                };
                let next = CurrentLock { id: next, written, is_lost: false };
                last = std::mem::replace(&mut *refreshed.lock().unwrap_or_else(PoisonError::into_inner), next).id;
                if let Err(error) = place.remove(FileKind::Lock, &last).await {
                    tracing::warn!(%error, "a lock of a repository was left behind; it does not count after half an hour");
                }
            }
        });
        Self {
            place: repository.place.clone(),
            current,
            seen: Mutex::new(None),
            runtime: Handle::current(),
            stop,
            refreshing: Some(refreshing),
        }
    }

    fn current(&self) -> CurrentLock {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self) -> Id {
        self.current().id
    }

    /// Waits until the refreshing has found that the lock is gone.
    #[cfg(test)]
    pub(super) async fn wait_until_lost(&self) {
        while !self.current().is_lost {
            tokio::task::yield_now().await;
        }
    }

    /// Whether others still honour the lock. A process that was suspended for long may find that they do not, and
    /// somebody may have removed the lock.
    pub(super) async fn confirm(&self) -> Result<()> {
        if self.current().written.elapsed() >= CONFIRMED_FOR {
            let message = "The lock of the repository could not be renewed in time, so that others may use it now.";
            return Err(EngineError::new(FailureCode::Locked, message));
        }
        let is_lost = self.current().is_lost;
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_lost && seen.is_some_and(|seen| seen.elapsed() < LOOK_AGAIN) {
            return Ok(());
        }
        let mut id = self.id();
        while self.current().is_lost || self.place.size(FileKind::Lock, &id).await?.is_none() {
            // Another one may just have been written in its place.
            let current = self.id();
            if self.current().is_lost || current == id {
                self.current.lock().unwrap_or_else(PoisonError::into_inner).is_lost = true;
                let message = "Another program has removed the lock of this run from the repository, as `restic unlock \
                               --remove-all` does, so that others may use it now.";
                return Err(EngineError::new(FailureCode::Locked, message));
            }
            id = current;
        }
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Uptime::now());
        Ok(())
    }

    /// Removes the lock. If that fails, the run is not the worse for it.
    pub(super) async fn release(mut self, context: &Context) {
        self.stop.cancel();
        let Some(refreshing) = self.refreshing.take() else { return };
        if let Err(error) = remove(&self.place, &self.current, refreshing).await {
            context.log.line(format!("The lock of the repository could not be removed: {error}"));
        }
    }
}

/// Removes the file of a lock, once nothing writes another one in its place.
async fn remove(place: &Place, current: &Mutex<CurrentLock>, refreshing: JoinHandle<()>) -> Result<()> {
    refreshing.await.map_err(EngineError::internal)?;
    let id = current.lock().unwrap_or_else(PoisonError::into_inner).id;
    place.remove(FileKind::Lock, &id).await
}

impl Holder {
    pub(super) fn new(settings: &DestinationSettings, now: Timestamp) -> Self {
        let hostname = settings.lock_hostname.clone();
        Self { hostname, now: RunningTime::from(now), limit: settings.lock_limit, refresh: settings.lock_refresh }
    }

    /// Waits no longer than this.
    pub(super) fn within(self, limit: Duration) -> Self {
        Self { limit: self.limit.min(limit), ..self }
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
    let names = repository.place.list(FileKind::Lock).await?;
    if names.len() > MOST_LOCKS {
        let message = format!(
            "The repository has {} locks, more than anybody needs. If no other program uses it, `restic unlock` removes \
             them.",
            names.len()
        );
        return Err(EngineError::new(FailureCode::Locked, message));
    }
    for id in names {
        let lock = match repository.place.read_json(FileKind::Lock, &id, &repository.key).await {
            Err(error) if error.code == FailureCode::Corrupt => None,
            // Removed since it was listed.
            Ok(None) => continue,
            json => json?.filter(|json| json.len() <= LOCK_BYTES).and_then(|json| Lock::from_json(&json).ok()),
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
