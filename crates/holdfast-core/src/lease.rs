//! When a worker counts as gone: by its silence, and not by anybody's clock.
//!
//! A worker changes its run's beat all the time. Whoever looks and finds the same beat again counts the time since the
//! look before; enough of it, and the worker has lost its run. A clock that jumps, or a watcher that slept for an
//! hour, adds one look's worth and no more.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::ids::RunId;

/// What one look can add at most.
const LONGEST_LOOK: SignedDuration = SignedDuration::from_secs(5);

/// A running run as it is in the database: whose it is, and when its worker last gave a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    pub run: RunId,
    pub epoch: i64,
    /// Anything that changes with each sign.
    pub sign: i64,
}

/// What one watcher remembers between its looks.
#[derive(Debug, Default)]
pub struct LeaseMonitor {
    looked_at: Option<Timestamp>,
    silent: HashMap<RunId, (Heartbeat, SignedDuration)>,
}

impl LeaseMonitor {
    /// Looks at everything that runs; gives what has been silent for as long as a lease lasts.
    pub fn look(&mut self, running: &[Heartbeat], lease: Duration, now: Timestamp) -> Vec<Heartbeat> {
        let lease = SignedDuration::try_from(lease).unwrap_or(SignedDuration::MAX);
        let since = self.looked_at.map_or(SignedDuration::ZERO, |before| now.duration_since(before));
        let since = since.clamp(SignedDuration::ZERO, LONGEST_LOOK);
        self.looked_at = Some(now);
        let before = std::mem::take(&mut self.silent);
        let mut lost = Vec::new();
        for beat in running {
            let quiet = match before.get(&beat.run) {
                Some((same, quiet)) if same == beat => *quiet + since,
                _ => SignedDuration::ZERO,
            };
            if quiet >= lease {
                lost.push(*beat);
            }
            self.silent.insert(beat.run, (*beat, quiet));
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const LEASE: Duration = Duration::from_secs(60);

    fn beat(sign: i64) -> Heartbeat {
        Heartbeat { run: RunId(1), epoch: 1, sign }
    }

    fn at(second: i64) -> Timestamp {
        clock::from_micros(second * 1_000_000)
    }

    #[test]
    fn silence_for_a_lease_is_a_loss() {
        let mut watch = LeaseMonitor::default();
        for second in 0..60 {
            assert_eq!(watch.look(&[beat(7)], LEASE, at(second)), []);
        }
        assert_eq!(watch.look(&[beat(7)], LEASE, at(60)), [beat(7)]);
        assert_eq!(watch.look(&[beat(8)], LEASE, at(61)), [], "it was there after all");
    }

    #[test]
    fn a_clock_that_jumps_takes_no_run_away() {
        let mut watch = LeaseMonitor::default();
        assert_eq!(watch.look(&[beat(1)], LEASE, at(0)), []);
        assert_eq!(watch.look(&[beat(1)], LEASE, at(86_400)), []);
        assert_eq!(watch.look(&[beat(1)], LEASE, at(-86_400)), []);
        assert_eq!(watch.look(&[beat(2)], LEASE, at(-86_399)), []);
    }

    #[test]
    fn a_watcher_that_slept_does_not_accuse_a_worker_that_slept_too() {
        let mut watch = LeaseMonitor::default();
        watch.look(&[beat(1)], LEASE, at(0));
        assert_eq!(watch.look(&[beat(1)], LEASE, at(3600)), []);
        assert_eq!(watch.look(&[beat(2)], LEASE, at(3601)), []);
    }
}
