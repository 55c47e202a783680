//! Notices: what users are notified of, over which streams, when and how often.

use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _, Zoned};

use crate::failure::FailureCode;
use crate::schedule::{Schedule, TimeOfDay};

string_enum! {
    /// What a notice is about. The three heartbeat kinds go to a task's own URL, not to streams.
    NoticeKind {
        Success = "success",
        Failure = "failure",
        Recovered = "recovered",
        Missed = "missed",
        Overdue = "overdue",
        BackupDamaged = "backup_damaged",
        BackupSuspicious = "backup_suspicious",
        HostKeyChanged = "host_key_changed",
        ServerUnreachable = "server_unreachable",
        DestinationUnreachable = "destination_unreachable",
        // Its prune or check failed.
        RepositoryNeglected = "repository_neglected",
        TokenExpiring = "token_expiring",
        // Backups of several tasks fail for one cause, and no longer do.
        IncidentBegun = "incident_begun",
        IncidentEnded = "incident_ended",
        WeeklySummary = "weekly_summary",
        HeartbeatStart = "heartbeat_start",
        HeartbeatSuccess = "heartbeat_success",
        HeartbeatFail = "heartbeat_fail",
    }
}

string_enum! {
    /// The state of a notice. All but the first are final.
    NoticeStatus {
        Pending = "pending",
        Delivered = "delivered",
        Undelivered = "undelivered",
        // Replaced by a later one; only heartbeats are.
        Superseded = "superseded",
    }
}

impl NoticeKind {
    /// Whether a stream with these flags receives it: successes need `on_success`, everything else `on_failure`.
    /// Heartbeats and weekly summaries do not go through these flags.
    pub fn is_wanted(self, on_success: bool, on_failure: bool) -> bool {
        match self {
            Self::Success => on_success,
            Self::HeartbeatStart | Self::HeartbeatSuccess | Self::HeartbeatFail | Self::WeeklySummary => false,
            Self::Failure
            | Self::Recovered
            | Self::Missed
            | Self::Overdue
            | Self::BackupDamaged
            | Self::BackupSuspicious
            | Self::HostKeyChanged
            | Self::ServerUnreachable
            | Self::DestinationUnreachable
            | Self::RepositoryNeglected
            | Self::TokenExpiring
            | Self::IncidentBegun
            | Self::IncidentEnded => on_failure,
        }
    }

    /// What is appended to the path of a heartbeat URL.
    pub fn heartbeat_suffix(self) -> Option<&'static str> {
        let start = (self == Self::HeartbeatStart).then_some("start");
        start.or((self == Self::HeartbeatFail).then_some("fail"))
    }

    pub fn is_heartbeat(self) -> bool {
        matches!(self, Self::HeartbeatStart | Self::HeartbeatSuccess | Self::HeartbeatFail)
    }
}

/// The kind of notice for a successful run: a recovery for streams that were notified of the failure before it.
pub fn success_kind(on_failure: bool, was_told: bool) -> NoticeKind {
    if on_failure && was_told { NoticeKind::Recovered } else { NoticeKind::Success }
}

/// Seconds to wait before each attempt, counted from the previous one.
const TRIES: [i64; 5] = [0, 30, 120, 600, 3600];
/// The longest delay requested by a channel that is honoured, in seconds.
pub const LONGEST_WAIT: i64 = 6 * 3600;

/// Seconds to wait after a failed attempt, given the number of attempts so far; `None` if that was the last.
pub fn next_try(tries: i64, retry_after: Option<i64>) -> Option<i64> {
    let wait = *TRIES.get(usize::try_from(tries).ok()?)?;
    Some(wait.max(retry_after.unwrap_or(0).min(LONGEST_WAIT)))
}

/// A failure with the same reason is reported again after this time: a day, less a margin for a run that is a little
/// faster than yesterday's.
const REMINDER: SignedDuration = SignedDuration::from_hours(23);

/// What is reported about a task that does not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Failing(FailureCode),
    /// It has had no success for too long, whatever the reason.
    Overdue,
}

impl Trouble {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failing(code) => code.as_str(),
            Self::Overdue => NoticeKind::Overdue.as_str(),
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        if text == NoticeKind::Overdue.as_str() {
            Some(Self::Overdue)
        } else {
            FailureCode::parse(text).map(Self::Failing)
        }
    }
}

/// What was reported last, and when.
#[derive(Debug, Clone, Copy)]
pub struct Told<T> {
    pub what: T,
    pub at: Timestamp,
}

/// Whether something is worth reporting: the first, one with another reason, or the same one a day later. A report
/// dated a day in the future was made by a wrong clock.
pub fn is_news<T: Copy + PartialEq>(told: Option<Told<T>>, what: T, now: Timestamp) -> bool {
    told.is_none_or(|told| told.what != what || now.duration_since(told.at).abs() >= REMINDER)
}

/// The hours in which a user does not want to be notified, in their own time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuietHours {
    pub from: TimeOfDay,
    pub until: TimeOfDay,
}

impl QuietHours {
    /// The end of the quiet hours; `None` if `now` is outside of them.
    pub fn end(self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let local = now.to_zoned(zone.clone());
        let (from, until, at) = (self.from.to_time(), self.until.to_time(), local.time());
        let is_quiet = if from <= until { (from..until).contains(&at) } else { at >= from || at < until };
        if !is_quiet {
            return None;
        }
        let day = local.date().checked_add(i64::from(at >= until).days()).ok()?;
        day.to_datetime(until).to_zoned(zone.clone()).ok().map(|end| end.timestamp())
    }
}

/// The bounds on how late a slot's success may be before the task is overdue.
const LEAST_PATIENCE: SignedDuration = SignedDuration::from_mins(10);
const MOST_PATIENCE: SignedDuration = SignedDuration::from_hours(24);

/// When a task that last succeeded (or was created or resumed) at `since` becomes overdue: half a period after its next
/// slot, but at least ten minutes and at most a day.
pub fn overdue_at(schedule: &Schedule, since: Timestamp) -> Option<Timestamp> {
    let slot = schedule.next_after(since)?;
    let period = schedule.next_after(slot).map_or(MOST_PATIENCE, |next| next.duration_since(slot));
    slot.checked_add((period / 2).clamp(LEAST_PATIENCE, MOST_PATIENCE)).ok()
}

/// An overdue task is reported once a day.
pub const OVERDUE_AGAIN: SignedDuration = SignedDuration::from_hours(24);

/// The corrected overdue time of a task whose `overdue` is later than any success up to `now`, or any reminder, would
/// have set it; `None` if it is right.
pub fn corrected_overdue(schedule: &Schedule, overdue: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let due = overdue_at(schedule, now)?;
    let again = now.checked_add(OVERDUE_AGAIN).ok()?;
    (overdue > due.max(again)).then_some(due)
}

/// The hour at which weekly summaries are sent, in the recipient's time zone.
const SUMMARY_HOUR: i8 = 8;

/// The first Monday at eight after `now`.
pub fn next_summary(now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let local = now.to_zoned(zone.clone());
    let monday = monday_of(&local)?;
    for weeks in 0..=1_i64 {
        let day = monday.date().checked_add((weeks * 7).days()).ok()?;
        let at = day.at(SUMMARY_HOUR, 0, 0, 0).to_zoned(zone.clone()).ok()?.timestamp();
        if at > now {
            return Some(at);
        }
    }
    None
}

/// The last whole week before `now`, from Monday's first instant to the next Monday's.
pub fn last_week(now: Timestamp, zone: &TimeZone) -> Option<(Timestamp, Timestamp)> {
    let monday = monday_of(&now.to_zoned(zone.clone()))?;
    let before = monday.date().checked_sub(7.days()).ok()?.to_zoned(zone.clone()).ok()?;
    Some((before.timestamp(), monday.timestamp()))
}

fn monday_of(local: &Zoned) -> Option<Zoned> {
    let since = i64::from(local.weekday().since(Weekday::Monday));
    local.date().checked_sub(since.days()).ok()?.to_zoned(local.time_zone().clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::zone;
    use crate::schedule::{Cron, Frequency};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn flags_decide_and_everything_but_success_is_for_failure_streams() {
        for kind in NoticeKind::ALL {
            let is_own = kind.is_heartbeat() || *kind == NoticeKind::WeeklySummary;
            assert_eq!(kind.is_wanted(true, false), *kind == NoticeKind::Success, "{kind:?}");
            assert_eq!(kind.is_wanted(false, true), *kind != NoticeKind::Success && !is_own, "{kind:?}");
            assert!(!kind.is_wanted(false, false));
        }
        assert_eq!(success_kind(true, true), NoticeKind::Recovered);
        assert_eq!(success_kind(false, true), NoticeKind::Success);
        assert_eq!(success_kind(true, false), NoticeKind::Success);
    }

    #[test]
    fn attempts_become_rarer_and_end() {
        let waits: Vec<_> = (1..=5).map(|tries| next_try(tries, None)).collect();
        assert_eq!(waits, [Some(30), Some(120), Some(600), Some(3600), None]);
        assert_eq!(next_try(1, Some(90)), Some(90), "the delay that a channel requests is honoured");
        assert_eq!(next_try(2, Some(5)), Some(120), "but it is never shorter than our own");
        assert_eq!(next_try(1, Some(i64::MAX)), Some(LONGEST_WAIT));
        assert_eq!(next_try(5, Some(1)), None);
    }

    #[test]
    fn the_same_failure_is_news_once_a_day() {
        let first = at("2025-03-02T01:00:00Z");
        let told = Some(Told { what: "connect", at: first });
        assert!(is_news(None, "connect", first));
        assert!(!is_news(told, "connect", at("2025-03-02T02:00:00Z")));
        assert!(is_news(told, "auth", at("2025-03-02T02:00:00Z")), "another reason is news");
        assert!(!is_news(told, "connect", at("2025-03-02T23:59:59Z")));
        assert!(is_news(told, "connect", at("2025-03-03T00:59:58Z")), "and so is the same a day later");
    }

    #[test]
    fn quiet_hours_end_in_the_morning_of_their_own_zone() {
        let berlin = zone("Europe/Berlin").unwrap();
        let time = |text: &str| TimeOfDay::parse(text).unwrap();
        let night = QuietHours { from: time("22:00"), until: time("07:00") };
        // 23:30 and 03:00 in Berlin; the clocks go forward in between, so that the night has an hour less.
        assert_eq!(night.end(at("2025-03-29T22:30:00Z"), &berlin), Some(at("2025-03-30T05:00:00Z")));
        assert_eq!(night.end(at("2025-03-30T01:00:00Z"), &berlin), Some(at("2025-03-30T05:00:00Z")));
        assert_eq!(night.end(at("2025-03-30T05:00:00Z"), &berlin), None, "seven is over");
        assert_eq!(night.end(at("2025-03-29T20:59:00Z"), &berlin), None);
        let noon = QuietHours { from: time("12:00"), until: time("13:30") };
        assert_eq!(noon.end(at("2025-01-05T11:10:00Z"), &berlin), Some(at("2025-01-05T12:30:00Z")));
        assert_eq!(noon.end(at("2025-01-05T12:30:00Z"), &berlin), None);
        let never = QuietHours { from: time("08:00"), until: time("08:00") };
        assert_eq!(never.end(at("2025-01-05T07:00:00Z"), &berlin), None);
    }

    #[test]
    fn a_task_is_overdue_half_a_period_after_its_slot() {
        let cron = |text: &str| Schedule {
            frequency: Frequency::Daily,
            time: None,
            day_of_week: 0,
            day_of_month: 1,
            cron: Cron::read(text),
            zone: None,
            spread: None,
            window: None,
        };
        let success = at("2025-03-03T03:04:00Z");
        assert_eq!(overdue_at(&cron("0 3 * * *"), success), Some(at("2025-03-04T15:00:00Z")));
        assert_eq!(overdue_at(&cron("*/5 * * * *"), success), Some(at("2025-03-03T03:15:00Z")), "no shorter than this");
        assert_eq!(overdue_at(&cron("0 3 1 * *"), success), Some(at("2025-04-02T03:00:00Z")), "nor longer than a day");
    }

    #[test]
    fn overdue_times_set_by_a_clock_that_was_ahead_are_corrected() {
        let hourly = Schedule {
            frequency: Frequency::Hourly,
            time: None,
            day_of_week: 0,
            day_of_month: 1,
            cron: Cron::read("0 * * * *"),
            zone: None,
            spread: None,
            window: None,
        };
        let now = at("2025-03-03T03:04:00Z");
        let right = overdue_at(&hourly, now).unwrap();
        assert_eq!(corrected_overdue(&hourly, right, now), None);
        assert_eq!(corrected_overdue(&hourly, at("2025-03-04T03:04:00Z"), now), None, "a reminder tomorrow is right");
        assert_eq!(corrected_overdue(&hourly, at("2026-03-03T04:30:00Z"), now), Some(right));
        let told = Some(Told { what: "connect", at: at("2026-03-03T00:00:00Z") });
        assert!(is_news(told, "connect", now), "nobody was told in the future");
    }

    #[test]
    fn weeks_begin_on_monday_where_their_reader_lives() {
        let auckland = zone("Pacific/Auckland").unwrap();
        // Sunday noon in London is Monday already in Auckland, half past one in the morning.
        let now = at("2025-03-02T12:30:00Z");
        assert_eq!(next_summary(now, &auckland), Some(at("2025-03-02T19:00:00Z")));
        assert_eq!(last_week(now, &auckland), Some((at("2025-02-23T11:00:00Z"), at("2025-03-02T11:00:00Z"))));
        let berlin = zone("Europe/Berlin").unwrap();
        assert_eq!(next_summary(now, &berlin), Some(at("2025-03-03T07:00:00Z")));
        assert_eq!(next_summary(at("2025-03-03T07:00:00Z"), &berlin), Some(at("2025-03-10T07:00:00Z")));
        // The week in which the clocks go forward has an hour less.
        let week = last_week(at("2025-03-31T12:00:00Z"), &berlin).unwrap();
        assert_eq!(week.1.duration_since(week.0), SignedDuration::from_hours(7 * 24 - 1));
    }
}
