//! Rate limits as pure values: a bucket of permits that refills at a steady rate, and a minimum transfer rate.

use std::time::Duration;

/// `per_period` events in `period_micros` on average, up to `burst` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub burst: u32,
    pub per_period: u32,
    pub period_micros: i64,
}

impl Quota {
    pub const fn per_second(rate: u32, burst: u32) -> Self {
        Self { burst, per_period: rate, period_micros: 1_000_000 }
    }

    pub const fn per_minute(rate: u32) -> Self {
        Self { burst: rate, per_period: rate, period_micros: 60_000_000 }
    }

    /// Microseconds until one permit is restored.
    fn interval(self) -> i64 {
        (self.period_micros / i64::from(self.per_period.max(1))).max(1)
    }
}

/// The state of one bucket: the moment at which it is full again. A new one is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bucket {
    full_at_micros: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub limit: u32,
    pub remaining: u32,
    /// Whole seconds until the next permit; 0 when this one was allowed.
    pub retry_after_secs: u64,
}

impl Bucket {
    /// Takes one permit if there is one. A state further ahead than an empty bucket could be was left by a clock that
    /// has since jumped back. It is ignored: it would lock the bucket until the clock has caught up.
    pub fn take(&mut self, quota: Quota, now_micros: i64) -> Decision {
        let interval = quota.interval();
        let capacity = interval * i64::from(quota.burst.max(1));
        // Twice the capacity, since clocks are also adjusted in small steps.
        let is_possible = self.full_at_micros <= now_micros + 2 * capacity;
        let full_at = if is_possible { self.full_at_micros } else { now_micros };
        let full_at = full_at.clamp(now_micros, now_micros + capacity);
        let next = full_at + interval;
        let allowed = next - now_micros <= capacity;
        if allowed {
            self.full_at_micros = next;
        }
        let owed = if allowed { next } else { full_at } - now_micros;
        Decision {
            allowed,
            limit: quota.burst.max(1),
            remaining: u32::try_from((capacity - owed) / interval).unwrap_or(0),
            retry_after_secs: if allowed { 0 } else { ((next - now_micros - capacity) as u64).div_ceil(1_000_000) },
        }
    }

    /// Puts back a permit that was taken and not used.
    pub fn give_back(&mut self, quota: Quota) {
        self.full_at_micros -= quota.interval();
    }

    /// True when the bucket is full and so no different from a new one.
    pub fn is_idle(&self, now_micros: i64) -> bool {
        self.full_at_micros <= now_micros
    }
}

/// The minimum rate at which the other side of a connection has to move bytes, on average over a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinimumRate {
    pub bytes_per_second: u64,
    pub window: Duration,
}

impl MinimumRate {
    /// If no rate is required, a single byte counts as progress.
    fn bytes_in(self, time: Duration) -> u64 {
        ((self.bytes_per_second as f64 * time.as_secs_f64()) as u64).max(1)
    }
}

/// How fast the other side moves bytes. Only the time that we spend waiting for it counts: a client is not slow because
/// we are. Times are measured from an arbitrary fixed moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pace {
    bytes: u64,
    waited: Duration,
    waiting_since: Option<Duration>,
}

impl Pace {
    /// The other side is not sending, or not accepting, anything.
    pub fn wait(&mut self, now: Duration) {
        self.waiting_since.get_or_insert(now);
    }

    /// The other side sent or accepted this many bytes.
    pub fn advance(&mut self, bytes: u64, now: Duration) {
        self.waited = self.waited(now);
        self.waiting_since = None;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn waited(&self, now: Duration) -> Duration {
        self.waited + self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Whether too few bytes moved during a whole window of waiting. After a window with enough bytes, a new one
    /// begins.
    pub fn is_too_slow(&mut self, least: MinimumRate, now: Duration) -> bool {
        let waited = self.waited(now);
        if waited < least.window {
            return false;
        }
        if self.bytes < least.bytes_in(waited) {
            return true;
        }
        *self = Self { waiting_since: self.waiting_since.map(|_| now), ..Self::default() };
        false
    }

    /// How long we have been waiting without any progress.
    pub fn stalled(&self, now: Duration) -> Option<Duration> {
        self.waiting_since.map(|since| now.saturating_sub(since))
    }

    /// How long we have waited, if the other side is behind the minimum rate so far.
    pub fn behind(&self, least: MinimumRate, now: Duration) -> Option<Duration> {
        let waited = self.waited(now);
        (self.waiting_since.is_some() && self.bytes < least.bytes_in(waited)).then_some(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: MinimumRate = MinimumRate { bytes_per_second: 1000, window: Duration::from_secs(10) };

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn a_drip_is_too_slow_and_a_slow_stream_is_not() {
        for (bytes_each_second, expected) in [(1, true), (900, true), (1100, false)] {
            let mut pace = Pace::default();
            let mut is_too_slow = false;
            for now in 0..60 {
                pace.wait(second(now));
                is_too_slow |= pace.is_too_slow(LEAST, second(now));
                pace.advance(bytes_each_second, second(now + 1));
            }
            assert_eq!(is_too_slow, expected, "{bytes_each_second} bytes a second");
        }
    }

    #[test]
    fn a_stall_after_a_good_start_is_found_within_two_windows() {
        let mut pace = Pace::default();
        pace.advance(1_000_000, second(0));
        pace.wait(second(0));
        assert!(!pace.is_too_slow(LEAST, second(10)), "the first window brought enough");
        assert!(!pace.is_too_slow(LEAST, second(19)));
        assert!(pace.is_too_slow(LEAST, second(20)));
        assert_eq!(pace.stalled(second(20)), Some(second(10)));
    }

    #[test]
    fn only_waiting_counts() {
        let mut pace = Pace::default();
        pace.wait(second(0));
        pace.advance(1, second(1));
        assert!(!pace.is_too_slow(LEAST, second(3600)), "we did something else for an hour");
        assert_eq!(pace.behind(LEAST, second(3600)), None);
        pace.wait(second(3600));
        assert_eq!(pace.behind(LEAST, second(3605)), Some(second(6)));
        assert!(pace.is_too_slow(LEAST, second(3609)));
    }

    #[test]
    fn a_burst_is_followed_by_the_steady_rate() {
        let quota = Quota::per_second(50, 500);
        let mut bucket = Bucket::default();
        let now = 1_000_000_000;
        for left in (0..500).rev() {
            let decision = bucket.take(quota, now);
            assert!(decision.allowed);
            assert_eq!(decision.remaining, left);
        }
        let refused = bucket.take(quota, now);
        assert!(!refused.allowed);
        assert_eq!((refused.limit, refused.remaining, refused.retry_after_secs), (500, 0, 1));
        assert!(bucket.take(quota, now + 20_000).allowed);
        assert!(!bucket.take(quota, now + 20_000).allowed);
        assert!(bucket.is_idle(now + 20_000_000));
    }

    #[test]
    fn a_clock_that_jumps_back_an_hour_does_not_lock_for_an_hour() {
        let quota = Quota::per_minute(5);
        let mut bucket = Bucket::default();
        let now = 10_000_000_000;
        for _ in 0..5 {
            bucket.take(quota, now);
        }
        assert!(!bucket.take(quota, now).allowed);
        assert!(!bucket.take(quota, now - 1_000_000).allowed, "a second is no jump");
        let decision = bucket.take(quota, now - 3_600_000_000);
        assert!(decision.allowed && decision.remaining == 4, "{decision:?}");
    }
}
