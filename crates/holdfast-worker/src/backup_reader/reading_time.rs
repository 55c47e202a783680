//! How long users may look through backups within requests. Reading the list of a large backup takes a processor for
//! seconds; a user who has spent many of them has to wait until some have been credited back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use holdfast_app::{AppError, Result};
use tokio::time::Instant;

/// How many looks one user may have at once: a few open folders.
const AT_ONCE: u32 = 3;
/// How long each look may take without being counted; most take less.
const FREE: Duration = Duration::from_secs(1);
/// How much time a user may spend beyond that before they have to wait.
const MOST: Duration = Duration::from_secs(300);
/// How many seconds have to pass for one to be credited back.
const RETURNS_IN: u32 = 4;
/// What downloads with nothing to send can add up to at most, so that taking a small folder out of a very large backup
/// does not lock a user out for hours.
const MOST_SILENT: Duration = Duration::from_secs(600);
/// When a user with too many looks at once may try again.
const RETRY_AFTER_SECS: u64 = 5;
/// How many users are remembered before those with nothing spent are dropped.
const SWEEP_AT: usize = 4096;

/// The time spent by all users, in this process.
#[derive(Clone, Default)]
pub(crate) struct ReadingTime(Arc<Mutex<HashMap<i64, Spent>>>);

#[derive(Debug)]
struct Spent {
    under_way: u32,
    time: Duration,
    as_of: Instant,
}

impl Spent {
    fn settle(&mut self, now: Instant) {
        self.time = self.time.saturating_sub(now.saturating_duration_since(self.as_of) / RETURNS_IN);
        self.as_of = now;
    }
}

/// A look through a backup, until it is dropped.
pub(crate) struct Look {
    time: ReadingTime,
    user: i64,
    begun: Instant,
}

impl ReadingTime {
    fn locked(&self) -> MutexGuard<'_, HashMap<i64, Spent>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn begin(&self, user: i64, now: Instant) -> Result<Look> {
        let mut users = self.locked();
        if users.len() >= SWEEP_AT {
            users.retain(|_, spent| {
                spent.settle(now);
                spent.under_way > 0 || !spent.time.is_zero()
            });
        }
        let spent = users.entry(user).or_insert(Spent { under_way: 0, time: Duration::ZERO, as_of: now });
        spent.settle(now);
        if spent.under_way >= AT_ONCE {
            return Err(AppError::TooManyRequests { limit: AT_ONCE, retry_after_secs: RETRY_AFTER_SECS });
        }
        if spent.time > MOST {
            let retry_after_secs = ((spent.time - MOST) * RETURNS_IN).as_secs() + 1;
            return Err(AppError::TooManyRequests { limit: AT_ONCE, retry_after_secs });
        }
        spent.under_way += 1;
        Ok(Look { time: self.clone(), user, begun: now })
    }

    /// Counts the time in which a download has nothing to send.
    pub(crate) fn wait(&self, user: i64) -> Wait {
        Wait { time: self.clone(), user, begun: Instant::now() }
    }

    fn end_wait(&self, user: i64, begun: Instant, now: Instant) {
        let waited = now.saturating_duration_since(begun).saturating_sub(FREE);
        if waited.is_zero() {
            return;
        }
        let mut users = self.locked();
        let spent = users.entry(user).or_insert(Spent { under_way: 0, time: Duration::ZERO, as_of: now });
        spent.settle(now);
        spent.time = spent.time.max((spent.time + waited).min(MOST_SILENT));
    }

    fn end(&self, user: i64, begun: Instant, now: Instant) {
        if let Some(spent) = self.locked().get_mut(&user) {
            spent.settle(now);
            spent.under_way = spent.under_way.saturating_sub(1);
            spent.time += now.saturating_duration_since(begun).saturating_sub(FREE);
        }
    }
}

/// The wait for one piece of a download, until it is dropped.
pub(crate) struct Wait {
    time: ReadingTime,
    user: i64,
    begun: Instant,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.time.end_wait(self.user, self.begun, Instant::now());
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.time.end(self.user, self.begun, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_looks_for_long_waits_and_nobody_else_does() {
        let (time, start) = (ReadingTime::default(), Instant::now());
        let at = |secs: u64| start + Duration::from_secs(secs);
        let begin = |user: i64, secs: u64| time.begin(user, at(secs)).map(std::mem::forget);
        let end = |user: i64, from: u64, to: u64| time.end(user, at(from), at(to));
        // Quick looks are never limited.
        for now in 0..1000 {
            begin(1, now).unwrap();
            end(1, now, now + 1);
        }
        let mut now = 1000;
        for _ in 0..3 {
            (0..AT_ONCE).for_each(|_| begin(1, now).unwrap());
            let refused = begin(1, now).err();
            assert!(matches!(refused, Some(AppError::TooManyRequests { retry_after_secs: RETRY_AFTER_SECS, .. })));
            (0..AT_ONCE).for_each(|_| end(1, now, now + 50));
            now += 50;
        }
        let Some(AppError::TooManyRequests { retry_after_secs, .. }) = begin(1, now).err() else {
            panic!("it goes on")
        };
        begin(2, now).unwrap();
        assert!(begin(1, now + retry_after_secs - 2).is_err());
        begin(1, now + retry_after_secs).unwrap();
    }

    #[test]
    fn downloads_count_while_they_send_nothing() {
        let (time, start) = (ReadingTime::default(), Instant::now());
        let at = |secs: u64| start + Duration::from_secs(secs);
        for piece in 0..1000 {
            time.end_wait(1, at(piece), at(piece + 1));
        }
        time.begin(1, at(1000)).map(std::mem::forget).unwrap();
        time.end_wait(1, at(1000), at(1302));
        assert!(time.begin(1, at(1302)).is_err());
        time.begin(1, at(1310)).map(std::mem::forget).unwrap();
        time.end_wait(1, at(1310), at(9310));
        let Some(AppError::TooManyRequests { retry_after_secs, .. }) = time.begin(1, at(9310)).err() else {
            panic!("it goes on")
        };
        assert!(retry_after_secs < 1300, "{retry_after_secs}");
    }
}
