//! Backup windows: the part of each day in which scheduled runs may start.

use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use crate::time_of_day::TimeOfDay;

/// From one time of day until just before another, across midnight if it ends at an earlier time than it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    start: TimeOfDay,
    end: TimeOfDay,
}

impl Window {
    /// `None` if it would end when it begins.
    pub fn new(start: TimeOfDay, end: TimeOfDay) -> Option<Self> {
        (start != end).then_some(Self { start, end })
    }

    pub fn start(self) -> TimeOfDay {
        self.start
    }

    pub fn end(self) -> TimeOfDay {
        self.end
    }

    fn is_open(self, at: Timestamp, zone: &TimeZone) -> bool {
        let time = at.to_zoned(zone.clone()).time();
        let (start, end) = (self.start.to_time(), self.end.to_time());
        if start < end { (start..end).contains(&time) } else { time >= start || time < end }
    }

    /// `at` if the window is open then, otherwise when it opens next.
    pub(crate) fn open_from(self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.is_open(at, zone) {
            return Some(at);
        }
        let opens = |opening: &Timestamp| *opening > at && self.is_open(*opening, zone);
        instants(self.start, at, zone).filter(opens).min()
    }

    /// When the window closed, if it is closed.
    pub(crate) fn closed_since(self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.is_open(at, zone) {
            return None;
        }
        let closed = |closing: &Timestamp| *closing <= at && !self.is_open(*closing, zone);
        instants(self.end, at, zone).filter(closed).max()
    }

    /// When the window closes after `at`.
    pub(crate) fn closes_after(self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let closes = |closing: &Timestamp| *closing > at && !self.is_open(*closing, zone);
        instants(self.end, at, zone).filter(closes).min()
    }
}

/// The instants of a time of day in the days around `at`: the end of the gap on a day whose clocks skip it, and both on
/// a day whose clocks show it twice.
fn instants(time: TimeOfDay, at: Timestamp, zone: &TimeZone) -> impl Iterator<Item = Timestamp> {
    const AROUND_DAYS: i64 = 2;
    let today = at.to_zoned(zone.clone()).date();
    let days = (-AROUND_DAYS..=AROUND_DAYS)
        .filter_map(move |day| today.checked_add(SignedDuration::from_hours(24 * day)).ok());
    days.flat_map(move |date| instants_of(time, date, zone))
}

fn instants_of(time: TimeOfDay, date: Date, zone: &TimeZone) -> Vec<Timestamp> {
    let found = zone.to_ambiguous_timestamp(date.to_datetime(time.to_time()));
    let both = match found.offset() {
        AmbiguousOffset::Unambiguous { .. } => [found.earlier().ok(), None],
        AmbiguousOffset::Fold { .. } => [found.earlier().ok(), found.later().ok()],
        AmbiguousOffset::Gap { .. } => {
            let end = found.earlier().ok().and_then(|before| zone.following(before).next());
            [end.map(|transition| transition.timestamp()), None]
        }
    };
    both.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn window(start: &str, end: &str) -> Window {
        Window::new(TimeOfDay::parse(start).unwrap(), TimeOfDay::parse(end).unwrap()).unwrap()
    }

    #[test]
    fn a_window_may_cross_midnight() {
        let night = window("22:00", "06:00");
        let open = |text: &str| night.open_from(at(text), &TimeZone::UTC).unwrap().to_string();
        assert_eq!(open("2025-03-04T22:00:00Z"), "2025-03-04T22:00:00Z");
        assert_eq!(open("2025-03-05T05:59:59Z"), "2025-03-05T05:59:59Z");
        assert_eq!(open("2025-03-05T06:00:00Z"), "2025-03-05T22:00:00Z");
        let closed = |text: &str| night.closed_since(at(text), &TimeZone::UTC).map(|at| at.to_string());
        assert_eq!(closed("2025-03-05T12:00:00Z").as_deref(), Some("2025-03-05T06:00:00Z"));
        assert_eq!(closed("2025-03-05T23:00:00Z"), None);
        assert_eq!(night.closes_after(at("2025-03-04T22:00:00Z"), &TimeZone::UTC), Some(at("2025-03-05T06:00:00Z")));
        assert_eq!(Window::new(TimeOfDay::MIDNIGHT, TimeOfDay::MIDNIGHT), None);
    }

    #[test]
    fn a_window_within_a_day_is_closed_before_and_after() {
        let noon = window("12:00", "13:00");
        let open = |text: &str| noon.open_from(at(text), &TimeZone::UTC).unwrap().to_string();
        assert_eq!(open("2025-03-05T11:59:00Z"), "2025-03-05T12:00:00Z");
        assert_eq!(open("2025-03-05T13:00:00Z"), "2025-03-06T12:00:00Z");
        let closed = |text: &str| noon.closed_since(at(text), &TimeZone::UTC).unwrap().to_string();
        assert_eq!(closed("2025-03-05T11:00:00Z"), "2025-03-04T13:00:00Z");
    }

    #[test]
    fn a_window_follows_the_clocks_of_its_zone() {
        let berlin = clock::zone("Europe/Berlin").unwrap();
        // Clocks go from 02:00 to 03:00 on 30 March 2025, and from 03:00 to 02:00 on 26 October.
        let open = |window: Window, text: &str| window.open_from(at(text), &berlin).unwrap().to_string();
        assert_eq!(open(window("02:30", "05:00"), "2025-03-29T23:00:00Z"), "2025-03-30T01:00:00Z", "after the gap");
        assert_eq!(open(window("02:10", "02:50"), "2025-03-29T23:00:00Z"), "2025-03-31T00:10:00Z", "skipped");
        assert_eq!(open(window("02:30", "05:00"), "2025-10-25T23:00:00Z"), "2025-10-26T00:30:00Z");
        assert_eq!(open(window("02:30", "05:00"), "2025-10-26T01:10:00Z"), "2025-10-26T01:30:00Z", "the second one");
    }
}
