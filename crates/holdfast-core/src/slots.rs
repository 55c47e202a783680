//! What to do about a task that is due: start at most one run, and report the slots that did not run, only the newest
//! ones individually if there are many.

use jiff::Timestamp;

use crate::clock;
use crate::run::Trigger;
use crate::schedule::Schedule;

/// A slot found later than this was missed because nothing was scheduling, and runs as a catch-up.
const LATE_SECS: i64 = 60;
/// A slot older than this is not caught up.
const TOO_LATE_SECS: i64 = 24 * 3600;
/// How far back missed slots are searched: each further step only if too few were found. For longer absences, only the
/// first missed slot is reported.
const LOOK_BACK_SECS: [i64; 3] = [3600, 24 * 3600, 31 * 24 * 3600];
/// The most missed slots that are reported one by one. A task that runs every minute has 44,000 of them after a month.
pub const SHOWN_MISSED: usize = 24;

/// What to do about a task that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The slot that runs now, and its trigger.
    pub run: Option<(Timestamp, Trigger)>,
    /// Slots that passed without a run, oldest first; the newest ones only.
    pub missed: Vec<Timestamp>,
    /// The first slot that did not run, if it is older than those in `missed`.
    pub missed_since: Option<Timestamp>,
    /// The next slot of the task.
    pub next: Option<Timestamp>,
}

/// Decides what to do about a task whose next slot was `slot`, which is not later than `now`. Outside of the task's
/// window nothing runs: the newest slot then runs when the window opens, unless the schedule has another slot before the
/// window closes again, which serves as well.
pub fn due(schedule: &Schedule, slot: Timestamp, now: Timestamp) -> Due {
    let before = |seconds: i64| clock::from_micros(now.as_microsecond() - seconds * 1_000_000);
    let (mut passed, mut dropped) = (Vec::new(), None);
    for back in LOOK_BACK_SECS.map(before) {
        (passed, dropped) = passed_since(schedule, slot, back, now);
        if dropped.is_none() || passed.len() > SHOWN_MISSED {
            break;
        }
    }
    let next = schedule.next_after(now);
    let opens = schedule.may_start_from(now);
    let must_wait = opens > now;
    let mut run = match passed.last() {
        Some(newest) if *newest >= before(TOO_LATE_SECS) && !(must_wait && is_served(schedule, opens, next)) => {
            passed.pop()
        }
        _ => None,
    };
    let waits = run.take_if(|_| must_wait).map(|_| opens);
    if passed.len() > SHOWN_MISSED {
        passed.remove(0);
        dropped = Some(slot);
    }
    // The schedule is so rare that its only missed slot was long ago; it is still reported.
    if passed.is_empty() {
        passed.extend(dropped.take());
    }
    let run = run.map(|slot| {
        let is_late = now.as_second() - slot.as_second() > LATE_SECS;
        (slot, if is_late || has_waited(schedule, slot) { Trigger::CatchUp } else { Trigger::Schedule })
    });
    Due { run, missed: passed, missed_since: dropped, next: waits.or(next) }
}

/// Whether `next` comes before the window closes that opens at `opens`.
fn is_served(schedule: &Schedule, opens: Timestamp, next: Option<Timestamp>) -> bool {
    let closes = schedule.closes_after(opens);
    next.is_some_and(|next| closes.is_none_or(|closes| next < closes))
}

/// Whether a slot is not one of the schedule, but an earlier one that waited for the window to open.
fn has_waited(schedule: &Schedule, slot: Timestamp) -> bool {
    let before = clock::from_micros(slot.as_microsecond() - 1);
    schedule.window.is_some() && schedule.next_after(before) != Some(slot)
}

/// The corrected next slot of a task whose `next` is later than its schedule says, because the clock was ahead for a
/// while; `None` if `next` is right.
pub fn corrected_next(schedule: &Schedule, next: Timestamp, now: Timestamp) -> Option<Timestamp> {
    schedule.next_after(now).filter(|due| *due < next)
}

/// The slots from `slot` to `now`, but none before `back`; and `slot` itself if any slots were left out.
fn passed_since(
    schedule: &Schedule,
    slot: Timestamp,
    back: Timestamp,
    now: Timestamp,
) -> (Vec<Timestamp>, Option<Timestamp>) {
    let (mut passed, mut dropped, mut from) = (Vec::new(), None, slot);
    if slot < back {
        (dropped, from) = (Some(slot), back);
    } else {
        passed.push(slot);
    }
    while let Some(next) = schedule.next_after(from).filter(|next| *next <= now) {
        passed.push(next);
        from = next;
        // Keeps one more than is reported, because the newest slot may be run instead of reported.
        if passed.len() > SHOWN_MISSED + 1 {
            passed.remove(0);
            dropped = Some(slot);
        }
    }
    (passed, dropped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schedule::{Cron, Frequency, TimeOfDay, Window};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn schedule(frequency: Frequency) -> Schedule {
        Schedule {
            frequency,
            time: TimeOfDay::parse("03:00"),
            day_of_week: 1,
            day_of_month: 1,
            cron: None,
            zone: None,
            spread: None,
            window: None,
        }
    }

    fn minutely() -> Schedule {
        Schedule { cron: Cron::read("* * * * *"), ..schedule(Frequency::Custom) }
    }

    #[test]
    fn a_slot_on_time_is_triggered_by_the_schedule() {
        let slot = at("2025-03-03T03:00:00Z");
        let due = due(&schedule(Frequency::Daily), slot, at("2025-03-03T03:00:00.4Z"));
        let next = Some(at("2025-03-04T03:00:00Z"));
        assert_eq!(due, Due { run: Some((slot, Trigger::Schedule)), missed: Vec::new(), missed_since: None, next });
    }

    #[test]
    fn after_an_absence_the_newest_slot_is_caught_up_and_the_others_are_reported() {
        let due = due(&schedule(Frequency::Hourly), at("2025-03-03T00:00:00Z"), at("2025-03-03T05:10:00Z"));
        assert_eq!(due.run, Some((at("2025-03-03T05:00:00Z"), Trigger::CatchUp)));
        assert_eq!(due.missed.len(), 5);
        assert_eq!(due.missed_since, None);
        assert_eq!(due.next, Some(at("2025-03-03T06:00:00Z")));
    }

    #[test]
    fn a_slot_of_the_day_before_yesterday_is_missed_and_not_caught_up() {
        let due = due(&schedule(Frequency::Weekly), at("2025-03-03T03:00:00Z"), at("2025-03-05T03:00:00Z"));
        assert_eq!((due.run, due.missed.len()), (None, 1));
        assert_eq!(due.next, Some(at("2025-03-10T03:00:00Z")));
    }

    fn at_night(frequency: Frequency) -> Schedule {
        let times = ["22:00", "06:00"].map(|text| TimeOfDay::parse(text).unwrap());
        Schedule { window: Window::new(times[0], times[1]), ..schedule(frequency) }
    }

    #[test]
    fn a_slot_that_is_found_outside_the_window_waits_until_it_opens() {
        // 2025-03-03 is a Monday.
        let (slot, late) = (at("2025-03-03T03:00:00Z"), at("2025-03-03T07:00:00Z"));
        let waiting = due(&at_night(Frequency::Weekly), slot, late);
        let opens = at("2025-03-03T22:00:00Z");
        assert_eq!(waiting, Due { run: None, missed: Vec::new(), missed_since: None, next: Some(opens) });
        assert_eq!(corrected_next(&at_night(Frequency::Weekly), opens, late), None, "it waits");
        let then = due(&at_night(Frequency::Weekly), opens, opens);
        let next = Some(at("2025-03-10T03:00:00Z"));
        assert_eq!(then, Due { run: Some((opens, Trigger::CatchUp)), missed: Vec::new(), missed_since: None, next });
        let within = due(&at_night(Frequency::Weekly), slot, at("2025-03-03T05:59:00Z"));
        assert_eq!(within.run, Some((slot, Trigger::CatchUp)), "the window is still open");
    }

    #[test]
    fn a_slot_whose_window_has_closed_is_missed_if_the_next_window_has_one_of_its_own() {
        let (slot, late) = (at("2025-03-03T03:00:00Z"), at("2025-03-03T07:00:00Z"));
        let daily = due(&at_night(Frequency::Daily), slot, late);
        let next = Some(at("2025-03-04T03:00:00Z"));
        assert_eq!(daily, Due { run: None, missed: vec![slot], missed_since: None, next });
    }

    #[test]
    fn a_long_absence_is_reported_briefly() {
        let due = due(&minutely(), at("2024-03-03T00:00:00Z"), at("2025-03-03T00:00:30Z"));
        assert_eq!(due.run, Some((at("2025-03-03T00:00:00Z"), Trigger::Schedule)));
        assert_eq!(due.missed.len(), SHOWN_MISSED);
        assert_eq!(due.missed_since, Some(at("2024-03-03T00:00:00Z")));
    }

    #[test]
    fn a_slot_of_a_rare_schedule_is_reported_however_long_ago_it_was() {
        let quarterly = Schedule { cron: Cron::read("0 3 1 */3 *"), ..schedule(Frequency::Custom) };
        let slot = at("2025-01-01T03:00:00Z");
        let late = due(&quarterly, slot, at("2025-02-15T00:00:00Z"));
        assert_eq!((late.run, late.missed, late.missed_since), (None, vec![slot], None));
        let next = at("2025-04-01T03:00:00Z");
        let on_time = due(&quarterly, slot, next);
        assert_eq!((on_time.run, on_time.missed), (Some((next, Trigger::Schedule)), vec![slot]));
    }

    proptest! {
        #[test]
        fn each_slot_is_run_or_missed_once_and_the_next_lies_ahead(away in 0i64..40 * 86_400, kind in 0usize..4) {
            let windowed = at_night(Frequency::ALL[kind]);
            let slot = windowed.next_after(at("2025-01-01T00:00:00Z")).unwrap();
            let now = clock::from_micros(slot.as_microsecond() + away * 1_000_000);
            let waiting = due(&windowed, slot, now);
            prop_assert!(waiting.next.unwrap() > now);
            prop_assert!(waiting.run.is_none() || windowed.may_start_from(now) == now, "nothing runs outside");
            let schedule = schedule(Frequency::ALL[kind]);
            let slot = schedule.next_after(at("2025-01-01T00:00:00Z")).unwrap();
            let now = clock::from_micros(slot.as_microsecond() + away * 1_000_000);
            let due = due(&schedule, slot, now);
            let mut all = due.missed.clone();
            all.extend(due.run.map(|(slot, _)| slot));
            prop_assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(all.iter().all(|slot| *slot <= now));
            prop_assert!(due.next.unwrap() > now);
            // The next slot is right unless the clock goes back behind a slot; then it is corrected.
            prop_assert_eq!(corrected_next(&schedule, due.next.unwrap(), now), None);
            let before = clock::from_micros(slot.as_microsecond() - 1_000_000);
            prop_assert_eq!(corrected_next(&schedule, due.next.unwrap(), before), Some(slot));
            prop_assert!(due.missed_since.is_none_or(|since| since == slot));
            // No slot between the reported ones is left out.
            for pair in all.windows(2) {
                prop_assert_eq!(schedule.next_after(pair[0]), Some(pair[1]));
            }
            if let Some(newest) = all.last() {
                prop_assert_eq!(schedule.next_after(*newest), due.next);
            }
        }
    }
}
