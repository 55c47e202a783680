//! A clock that stands still until it is moved.

use std::sync::atomic::{AtomicI64, Ordering};

use holdfast_core::Timestamp;
use holdfast_core::clock::{Clock, from_micros};

/// Each reading advances it by a microsecond, so that no two events have the same time.
pub struct ManualClock(AtomicI64);

impl ManualClock {
    pub fn at(text: &str) -> Self {
        let start: Timestamp = text.parse().expect("an RFC 3339 time");
        Self(AtomicI64::new(start.as_microsecond()))
    }

    pub fn advance_secs(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }

    pub fn set(&self, text: &str) {
        let to: Timestamp = text.parse().expect("an RFC 3339 time");
        self.0.store(to.as_microsecond(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        from_micros(self.0.fetch_add(1, Ordering::SeqCst))
    }
}
