//! How often something may happen: a bucket of permits that refills at a steady rate, as a pure value.

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

    /// Microseconds for one permit to come back.
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
    /// Takes one permit if there is one. What a clock that jumped back left behind, further ahead than an empty bucket
    /// could be, counts for nothing: it would lock the bucket until the clock is there again.
    pub fn take(&mut self, quota: Quota, now_micros: i64) -> Decision {
        let interval = quota.interval();
        let capacity = interval * i64::from(quota.burst.max(1));
        // Twice, since clocks are also set by small steps.
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

    /// True when the bucket is full and so no different from a new one.
    pub fn is_idle(&self, now_micros: i64) -> bool {
        self.full_at_micros <= now_micros
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
