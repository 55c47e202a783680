//! When a worker counts as lost: if its heartbeat stops, independently of anyone's clock.
//!
//! A worker keeps changing its run's heartbeat. A monitor that finds the same heartbeat again adds up the time since
//! its previous look; once the sum reaches the lease, the worker has lost its run. A clock that jumps, or a monitor
//! that slept for an hour, adds no more than one look's worth.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::ids::RunId;

/// A worker reports this often that it is alive.
pub const REPORT_EVERY: Duration = Duration::from_secs(10);
/// A worker that has not reported for this long does not count as running: several reports in a row are missing.
const SILENT_AFTER_SECS: i64 = 45;

/// The most time that a single look can add.
const LONGEST_LOOK: SignedDuration = SignedDuration::from_secs(5);

/// Whether a worker that last reported at `seen` has been silent for too long to count as running.
pub fn is_silent(seen: Timestamp, now: Timestamp) -> bool {
    now.as_second() - seen.as_second() > SILENT_AFTER_SECS
}

/// The heartbeat of a running run, as stored in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    pub run: RunId,
    pub epoch: i64,
    /// A value that changes with each heartbeat.
    pub sign: i64,
}

/// What a monitor remembers between its looks.
#[derive(Debug, Default)]
pub struct LeaseMonitor {
    looked_at: Option<Timestamp>,
    silent: HashMap<RunId, (Heartbeat, SignedDuration)>,
}

impl LeaseMonitor {
    /// Looks at all running runs and returns those whose heartbeat has not changed for the length of a lease.
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
    fn a_worker_is_silent_when_several_reports_are_missing() {
        let every = i64::try_from(REPORT_EVERY.as_secs()).unwrap();
        assert!((0..=3).all(|missing| !is_silent(at(0), at(missing * every))));
        assert!(is_silent(at(0), at(5 * every)));
    }

    #[test]
    fn a_worker_that_is_silent_for_a_lease_loses_its_run() {
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
