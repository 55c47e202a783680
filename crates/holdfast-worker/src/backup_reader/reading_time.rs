//! How long callers may look through backups within requests. Reading the list of a large backup takes a processor for
//! seconds; a caller that has spent many of them waits until some have been credited back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use holdfast_app::{AppError, LimitKey, Result};
use tokio::time::Instant;

/// How many looks one caller may have at once: a few open folders.
const AT_ONCE: u32 = 3;
/// How long each look may take without being counted; most take less.
const FREE: Duration = Duration::from_secs(1);
/// How much time a caller may spend beyond that before it has to wait.
const MOST: Duration = Duration::from_secs(300);
/// How many seconds have to pass for one to be credited back.
const RETURNS_IN: u32 = 4;
/// What downloads with nothing to send can add up to at most, so that taking a small folder out of a very large backup
/// does not lock anybody out for hours.
const MOST_SILENT: Duration = Duration::from_secs(600);
/// When a caller with too many looks at once may try again.
const RETRY_AFTER_SECS: u64 = 5;
/// How many callers are remembered before those with nothing spent are dropped.
const SWEEP_AT: usize = 4096;

/// The time spent by all callers, in this process.
#[derive(Clone, Default)]
pub(crate) struct ReadingTime(Arc<Mutex<HashMap<LimitKey, Spent>>>);

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
    key: LimitKey,
    begun: Instant,
}

impl ReadingTime {
    fn locked(&self) -> MutexGuard<'_, HashMap<LimitKey, Spent>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn begin(&self, key: LimitKey, now: Instant) -> Result<Look> {
        let mut all = self.locked();
        if all.len() >= SWEEP_AT {
            all.retain(|_, spent| {
                spent.settle(now);
                spent.under_way > 0 || !spent.time.is_zero()
            });
        }
        let spent = all.entry(key).or_insert(Spent { under_way: 0, time: Duration::ZERO, as_of: now });
        spent.settle(now);
        if spent.under_way >= AT_ONCE {
            return Err(AppError::TooManyRequests { limit: AT_ONCE, retry_after_secs: RETRY_AFTER_SECS });
        }
        if spent.time > MOST {
            let retry_after_secs = ((spent.time - MOST) * RETURNS_IN).as_secs() + 1;
            return Err(AppError::TooManyRequests { limit: AT_ONCE, retry_after_secs });
        }
        spent.under_way += 1;
        Ok(Look { time: self.clone(), key, begun: now })
    }

    /// Counts the time in which a download has nothing to send.
    pub(crate) fn wait(&self, key: LimitKey) -> Wait {
        Wait { time: self.clone(), key, begun: Instant::now() }
    }

    fn end_wait(&self, key: LimitKey, begun: Instant, now: Instant) {
        let waited = now.saturating_duration_since(begun).saturating_sub(FREE);
        if waited.is_zero() {
            return;
        }
        let mut all = self.locked();
        let spent = all.entry(key).or_insert(Spent { under_way: 0, time: Duration::ZERO, as_of: now });
        spent.settle(now);
        spent.time = spent.time.max((spent.time + waited).min(MOST_SILENT));
    }

    fn end(&self, key: LimitKey, begun: Instant, now: Instant) {
        if let Some(spent) = self.locked().get_mut(&key) {
            spent.settle(now);
            spent.under_way = spent.under_way.saturating_sub(1);
            spent.time += now.saturating_duration_since(begun).saturating_sub(FREE);
        }
    }
}

/// The wait for one piece of a download, until it is dropped.
pub(crate) struct Wait {
    time: ReadingTime,
    key: LimitKey,
    begun: Instant,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.time.end_wait(self.key, self.begun, Instant::now());
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.time.end(self.key, self.begun, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: LimitKey = LimitKey::Token(1);

    #[test]
    fn whoever_looks_for_long_waits_and_nobody_else_does() {
        let (time, start) = (ReadingTime::default(), Instant::now());
        let at = |secs: u64| start + Duration::from_secs(secs);
        let begin = |token: i64, secs: u64| time.begin(LimitKey::Token(token), at(secs)).map(std::mem::forget);
        let end = |token: i64, from: u64, to: u64| time.end(LimitKey::Token(token), at(from), at(to));
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
            time.end_wait(KEY, at(piece), at(piece + 1));
        }
        time.begin(KEY, at(1000)).map(std::mem::forget).unwrap();
        time.end_wait(KEY, at(1000), at(1302));
        assert!(time.begin(KEY, at(1302)).is_err());
        time.begin(KEY, at(1310)).map(std::mem::forget).unwrap();
        time.end_wait(KEY, at(1310), at(9310));
        let Some(AppError::TooManyRequests { retry_after_secs, .. }) = time.begin(KEY, at(9310)).err() else {
            panic!("it goes on")
        };
        assert!(retry_after_secs < 1300, "{retry_after_secs}");
    }
}
