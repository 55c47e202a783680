//! When a task runs: pure functions from a schedule and an instant to the next slot.
//!
//! A schedule is in UTC, as the API document defines `time_to_run_at`, unless its task specifies a time zone. In a
//! zone, a time that the clocks skip runs right after the gap, and one that they show twice runs once. The user's own
//! time zone only determines how times are shown.

use jiff::civil::{Date, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Span, Timestamp, ToSpan};

pub use crate::time_of_day::TimeOfDay;
pub use crate::window::Window;

string_enum! {
    /// How often a task runs. `custom` is a cron expression without a named frequency.
    Frequency {
        Hourly = "hourly",
        Daily = "daily",
        Weekly = "weekly",
        Monthly = "monthly",
        Custom = "custom",
    }
}

/// A cron expression of five fields. `parse` refuses expressions that are never due.
#[derive(Debug, Clone, PartialEq)]
pub struct Cron {
    text: String,
    parsed: croner::Cron,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CronError {
    Malformed,
    NeverDue,
}

/// Long enough for 29 February across a skipped leap year.
const CRON_HORIZON_YEARS: i16 = 9;
/// Far longer than any useful expression; the parser's work grows with the text.
const CRON_CHARS: usize = 255;

impl Cron {
    pub fn parse(text: &str, now: Timestamp) -> Result<Self, CronError> {
        let cron = Self::read(text).ok_or(CronError::Malformed)?;
        if !cron.is_ever_due() || cron.next_after(now, &TimeZone::UTC).is_none() {
            Err(CronError::NeverDue)
        } else {
            Ok(cron)
        }
    }

    /// The library searches until the year 5000, which takes long for an expression that never matches. This searches
    /// only the last 29 years before that, in which every month begins on every day of the week, also in leap years.
    fn is_ever_due(&self) -> bool {
        let from = jiff::civil::date(4971, 1, 1).to_zoned(TimeZone::UTC);
        from.is_ok_and(|from| self.parsed.find_next_occurrence(&from, true).is_ok())
    }

    /// Reads an expression that was checked when it was stored. The first release accepted a day or weekday field that
    /// consists of commas only, which leaves the choice to the other of the two; it is still read that way.
    pub fn stored(text: &str) -> Option<Self> {
        if let Some(cron) = Self::read(text) {
            return Some(cron);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let any = |(place, field): (usize, &&str)| match place {
            2 | 4 if field.split(',').all(str::is_empty) => "*".to_owned(),
            _ => (*field).to_owned(),
        };
        let open: Vec<String> = fields.iter().enumerate().map(any).collect();
        Self::read(&open.join(" ")).map(|cron| Self { text: fields.join(" "), ..cron })
    }

    /// Reads an expression, whether it is ever due or not.
    pub fn read(text: &str) -> Option<Self> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.len() > CRON_CHARS || text.split(' ').count() != 5 {
            return None;
        }
        // A list without any item matches nothing, and the search for its next time would cover three thousand years.
        if text.split(' ').any(|field| field.split(',').all(str::is_empty)) {
            return None;
        }
        let parser = croner::parser::CronParser::builder()
            .seconds(croner::parser::Seconds::Disallowed)
            .year(croner::parser::Year::Disallowed)
            .build();
        Some(Self { parsed: parser.parse(&text).ok()?, text })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What it means, in English.
    pub fn describe(&self) -> String {
        self.parsed.describe()
    }

    fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let from = after.to_zoned(zone.clone());
        let limit = from.checked_add(Span::new().years(CRON_HORIZON_YEARS)).ok()?;
        let next = self.parsed.find_next_occurrence(&from, false).ok()?;
        (next <= limit).then(|| next.timestamp())
    }
}

/// A checked schedule. Days that the frequency does not use are kept, so that they are still there if it changes back.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub frequency: Frequency,
    pub time: Option<TimeOfDay>,
    /// 0 is Sunday.
    pub day_of_week: i64,
    /// 1 to 28, days that every month has.
    pub day_of_month: i64,
    pub cron: Option<Cron>,
    /// The time zone of the schedule; UTC without one.
    pub zone: Option<Zone>,
    /// Shifts every slot, so that tasks with the same time do not start together.
    pub spread: Option<Spread>,
    /// Slots outside of it wait until it opens.
    pub window: Option<Window>,
}

/// A shift of all slots of a task by the same time, up to a number of minutes in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    minutes: i64,
    /// A random number that is chosen once and decides where in the range the shift is.
    seed: i64,
}

impl Spread {
    /// Half a day: more would be another time of day.
    pub const MOST_MINUTES: i64 = 720;

    /// `None` if there is nothing to spread over.
    pub fn new(minutes: i64, seed: i64) -> Option<Self> {
        (1..=Self::MOST_MINUTES).contains(&minutes).then_some(Self { minutes, seed })
    }

    pub fn minutes(self) -> i64 {
        self.minutes
    }

    pub fn seed(self) -> i64 {
        self.seed
    }

    fn shift(self) -> SignedDuration {
        let most = self.minutes * 60;
        SignedDuration::from_secs(self.seed.rem_euclid(2 * most + 1) - most)
    }
}

/// A time zone and its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    name: String,
    rules: TimeZone,
}

impl Zone {
    pub fn parse(name: &str) -> Option<Self> {
        Some(Self { rules: crate::clock::zone(name)?, name: name.to_owned() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Schedule {
    fn rules(&self) -> TimeZone {
        self.zone.as_ref().map_or(TimeZone::UTC, |zone| zone.rules.clone())
    }

    /// The first slot later than `after`; `None` if there is none. All slots that come while the window is closed are one
    /// slot, when it opens.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let Some(window) = self.window else { return self.next_wanted(after) };
        let zone = self.rules();
        let from = match window.closed_since(after, &zone) {
            Some(closed) => closed.checked_sub(SignedDuration::from_micros(1)).ok()?,
            None => after,
        };
        window.open_from(self.next_wanted(from)?, &zone)
    }

    /// `at`, or when the window opens if it is closed then: scheduled runs do not start before.
    pub fn may_start_from(&self, at: Timestamp) -> Timestamp {
        self.window.and_then(|window| window.open_from(at, &self.rules())).unwrap_or(at)
    }

    /// When the window closes that is open at `at`.
    pub(crate) fn closes_after(&self, at: Timestamp) -> Option<Timestamp> {
        self.window?.closes_after(at, &self.rules())
    }

    /// The first slot later than `after`, as if there were no window.
    fn next_wanted(&self, after: Timestamp) -> Option<Timestamp> {
        let Some(spread) = self.spread else { return self.next_nominal(after) };
        let shift = spread.shift();
        self.next_nominal(after.checked_sub(shift).ok()?)?.checked_add(shift).ok()
    }

    /// The most minutes by which slots can be spread: less than half of the time between two of them.
    pub fn most_spread(&self, now: Timestamp) -> i64 {
        let period = match (&self.cron, self.frequency) {
            (Some(_), _) => self.shortest_period(now),
            (None, Frequency::Hourly) => 60,
            (None, Frequency::Daily | Frequency::Weekly | Frequency::Monthly | Frequency::Custom) => 24 * 60,
        };
        ((period - 1) / 2).clamp(0, Spread::MOST_MINUTES)
    }

    /// The shortest time in minutes between two of the next slots.
    fn shortest_period(&self, now: Timestamp) -> i64 {
        // A week of hours; expressions with more slots than that repeat them.
        const SLOTS: usize = 7 * 24;
        let slots = std::iter::successors(self.next_nominal(now), |slot| self.next_nominal(*slot));
        let slots: Vec<Timestamp> = slots.take(SLOTS).collect();
        let periods = slots.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_mins());
        periods.min().unwrap_or(i64::MAX)
    }

    /// The first slot later than `after`, as if they were not spread.
    fn next_nominal(&self, after: Timestamp) -> Option<Timestamp> {
        let zone = self.rules();
        if let Some(cron) = &self.cron {
            return cron.next_after(after, &zone);
        }
        let time = self.time.unwrap_or(TimeOfDay::MIDNIGHT);
        let today = after.to_zoned(zone.clone()).date();
        let at = |date: Date| instant(&zone, date, time);
        match self.frequency {
            Frequency::Hourly => next_minute_of_hour(after, time.minute(), zone.to_offset(after).seconds()),
            Frequency::Daily | Frequency::Custom => first_after(after, [today, today.tomorrow().ok()?].map(at)),
            Frequency::Weekly => {
                let weekday = weekday_of(self.day_of_week);
                let this = if today.weekday() == weekday { today } else { today.nth_weekday(1, weekday).ok()? };
                first_after(after, [this, this.checked_add(7.days()).ok()?].map(at))
            }
            Frequency::Monthly => {
                let this = today.with().day(i8::try_from(self.day_of_month).ok()?).build().ok()?;
                first_after(after, [this, this.checked_add(1.month()).ok()?].map(at))
            }
        }
    }

    /// The time of day to show, in UTC: the configured one if it is in UTC, otherwise that of the next slot. How slots
    /// are spread is left out.
    pub fn utc_time(&self, now: Timestamp) -> TimeOfDay {
        match (self.time, &self.cron, &self.zone) {
            (Some(time), _, None) => time,
            (None, None, _) => TimeOfDay::MIDNIGHT,
            (None, Some(_), _) | (Some(_), _, Some(_)) => {
                self.next_nominal(now).map_or(TimeOfDay::MIDNIGHT, TimeOfDay::of)
            }
        }
    }
}

/// 0 (Sunday) to 6 (Saturday) on the day of `now` in the zone, or in UTC: the default of weekly tasks.
pub fn weekday_number(now: Timestamp, zone: Option<&Zone>) -> i64 {
    i64::from(date_of(now, zone).weekday().to_sunday_zero_offset())
}

/// The day of the month of `now` in the zone, or in UTC, at most 28: the default of monthly tasks.
pub fn day_of_month(now: Timestamp, zone: Option<&Zone>) -> i64 {
    i64::from(date_of(now, zone).day().min(28))
}

fn date_of(now: Timestamp, zone: Option<&Zone>) -> Date {
    now.to_zoned(zone.map_or(TimeZone::UTC, |zone| zone.rules.clone())).date()
}

fn weekday_of(number: i64) -> Weekday {
    i8::try_from(number).ok().and_then(|n| Weekday::from_sunday_zero_offset(n).ok()).unwrap_or(Weekday::Sunday)
}

fn first_after<const N: usize>(after: Timestamp, slots: [Option<Timestamp>; N]) -> Option<Timestamp> {
    slots.into_iter().flatten().find(|slot| *slot > after)
}

/// The instant of a time of day. If the clocks skip it, the end of the gap; if they show it twice, the first of the
/// two.
fn instant(zone: &TimeZone, date: Date, time: TimeOfDay) -> Option<Timestamp> {
    let found = zone.to_ambiguous_timestamp(date.to_datetime(time.to_time()));
    match found.offset() {
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => found.earlier().ok(),
        AmbiguousOffset::Gap { .. } => Some(zone.following(found.earlier().ok()?).next()?.timestamp()),
    }
}

/// The next instant at which clocks that are ahead of UTC by `offset` seconds show this minute of the hour.
fn next_minute_of_hour(after: Timestamp, minute: i8, offset: i32) -> Option<Timestamp> {
    let shown = after.as_second() + i64::from(offset);
    let slot = shown - shown.rem_euclid(3600) + i64::from(minute) * 60 - i64::from(offset);
    first_after(after, [slot, slot + 3600].map(|second| Timestamp::from_second(second).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn schedule(frequency: Frequency, time: &str) -> Schedule {
        Schedule {
            frequency,
            time: TimeOfDay::parse(time),
            day_of_week: 3,
            day_of_month: 28,
            cron: None,
            zone: None,
            spread: None,
            window: None,
        }
    }

    fn cron(text: &str) -> Schedule {
        let cron = Some(Cron::parse(text, at("2025-01-01T00:00:00Z")).unwrap());
        Schedule { cron, time: None, ..schedule(Frequency::Custom, "00:00") }
    }

    fn in_zone(schedule: Schedule, name: &str) -> Schedule {
        Schedule { zone: Some(Zone::parse(name).unwrap()), ..schedule }
    }

    /// The next `count` slots, as clocks in the schedule's zone show them.
    fn shown(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
        let zone = schedule.rules();
        let mut after: Timestamp = from.parse().unwrap();
        let mut slots = Vec::new();
        while slots.len() < count {
            after = schedule.next_after(after).unwrap();
            slots.push(after.to_zoned(zone.clone()).strftime("%m-%d %H:%M %Z").to_string());
        }
        slots
    }

    #[test]
    fn a_skipped_time_comes_after_the_gap_and_a_repeated_one_once() {
        let half_past_two = [schedule(Frequency::Daily, "02:30"), cron("30 2 * * *")];
        for schedule in half_past_two {
            let berlin = in_zone(schedule, "Europe/Berlin");
            // Clocks go from 02:00 to 03:00 on 30 March 2025, and from 03:00 to 02:00 on 26 October.
            let spring = shown(&berlin, "2025-03-28T12:00:00Z", 3);
            assert_eq!(spring, ["03-29 02:30 CET", "03-30 03:00 CEST", "03-31 02:30 CEST"]);
            let autumn = shown(&berlin, "2025-10-24T12:00:00Z", 3);
            assert_eq!(autumn, ["10-25 02:30 CEST", "10-26 02:30 CEST", "10-27 02:30 CET"]);
        }
        let weekly = in_zone(schedule(Frequency::Weekly, "00:15"), "Asia/Kathmandu");
        assert_eq!(
            weekly.next_after("2025-03-03T00:00:00Z".parse().unwrap()).unwrap().to_string(),
            "2025-03-04T18:30:00Z"
        );
        let hourly = in_zone(schedule(Frequency::Hourly, "00:15"), "Asia/Kathmandu");
        assert_eq!(
            hourly.next_after("2025-03-03T00:00:00Z".parse().unwrap()).unwrap().to_string(),
            "2025-03-03T00:30:00Z"
        );
        // Samoa skipped a whole day when it moved to the other side of the date line.
        let apia = in_zone(schedule(Frequency::Daily, "12:00"), "Pacific/Apia");
        let slots = shown(&apia, "2011-12-29T12:00:00Z", 3);
        assert_eq!(slots, ["12-29 12:00 -10", "12-31 00:00 +14", "12-31 12:00 +14"]);
        assert_eq!(Zone::parse("Mars/Olympus"), None);
    }

    #[test]
    fn every_day_of_a_zone_has_one_slot_in_order() {
        for name in
            ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Casablanca"]
        {
            for time in ["00:00", "00:30", "01:30", "02:00", "02:15", "02:59", "03:00", "23:59"] {
                let daily = in_zone(schedule(Frequency::Daily, time), name);
                let zone = daily.rules();
                let mut after = daily.next_after("2017-01-01T12:00:00Z".parse().unwrap()).unwrap();
                let mut date = after.to_zoned(zone.clone()).date();
                for _ in 0..800 {
                    let next = daily.next_after(after).unwrap();
                    let day = next.to_zoned(zone.clone()).date();
                    assert_eq!(daily.next_after(next - 1.second()), Some(next), "{name} {time}");
                    assert_eq!(date.tomorrow().unwrap(), day, "{name} {time} {next}");
                    (after, date) = (next, day);
                }
            }
        }
    }

    #[test]
    fn expressions_that_the_first_release_accepted_are_still_read() {
        let now: Timestamp = "2025-03-04T12:00:00Z".parse().unwrap();
        let next = |cron: &Cron| cron.next_after(now, &TimeZone::UTC).unwrap().to_string();
        let cases = [("0 0 , * MON", "0 0 * * MON"), ("0 0  ,, * 1-5", "0 0 * * 1-5"), ("0 0 1 * ,", "0 0 1 * *")];
        for (old, same) in cases {
            assert!(Cron::read(old).is_none(), "{old}");
            let cron = Cron::stored(old).unwrap();
            assert_eq!(next(&cron), next(&Cron::read(same).unwrap()), "{old}");
            assert_eq!(cron.as_str(), old.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        assert!(Cron::stored(", 0 1 * *").is_none() && Cron::stored("x").is_none());
    }

    #[test]
    fn spread_slots_are_shifted_by_the_same_time_within_the_range() {
        let times: Vec<Timestamp> = (0..500)
            .map(|seed| {
                let spread = Spread::new(30, seed * 7_919 - 1_000_000);
                let daily = Schedule { spread, ..schedule(Frequency::Daily, "03:00") };
                let first = daily.next_after(at("2025-03-04T12:00:00Z")).unwrap();
                assert_eq!(daily.next_after(first), Some(first + SignedDuration::from_hours(24)));
                assert_eq!(daily.next_after(first - 1.second()), Some(first), "asked a moment before");
                assert_eq!(daily.utc_time(at("2025-03-04T12:00:00Z")).to_string(), "03:00");
                first
            })
            .collect();
        let (first, last) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
        assert!(first >= at("2025-03-05T02:30:00Z") && first < at("2025-03-05T02:35:00Z"), "{first}");
        assert!(last <= at("2025-03-05T03:30:00Z") && last > at("2025-03-05T03:25:00Z"), "{last}");
        assert_eq!((Spread::new(0, 1), Spread::new(721, 1)), (None, None));
    }

    #[test]
    fn slots_outside_the_window_wait_until_it_opens() {
        let window = |schedule: Schedule, start: &str, end: &str| {
            let times = [start, end].map(|text| TimeOfDay::parse(text).unwrap());
            in_zone(Schedule { window: Window::new(times[0], times[1]), ..schedule }, "Europe/Berlin")
        };
        let hourly = window(schedule(Frequency::Hourly, "00:30"), "22:00", "01:00");
        let expected = ["03-04 22:00 CET", "03-04 22:30 CET", "03-04 23:30 CET", "03-05 00:30 CET", "03-05 22:00 CET"];
        assert_eq!(shown(&hourly, "2025-03-04T12:00:00Z", 5), expected);
        assert_eq!(shown(&hourly, "2025-03-04T21:59:59Z", 1), ["03-04 23:30 CET"], "asked while it is open");
        let daily = window(schedule(Frequency::Daily, "12:00"), "22:00", "06:00");
        assert_eq!(shown(&daily, "2025-03-04T12:00:00Z", 2), ["03-04 22:00 CET", "03-05 22:00 CET"]);
        let weekly = window(schedule(Frequency::Weekly, "06:00"), "22:00", "06:00");
        assert_eq!(shown(&weekly, "2025-03-04T12:00:00Z", 2), ["03-05 22:00 CET", "03-12 22:00 CET"], "the end is out");
        let inside = window(schedule(Frequency::Daily, "23:00"), "22:00", "06:00");
        assert_eq!(shown(&inside, "2025-03-04T12:00:00Z", 2), ["03-04 23:00 CET", "03-05 23:00 CET"]);
        let minutely = window(cron("* * * * *"), "03:00", "03:02");
        let expected = ["03-05 03:00 CET", "03-05 03:01 CET", "03-06 03:00 CET"];
        assert_eq!(shown(&minutely, "2025-03-04T12:00:00Z", 3), expected);
        assert_eq!(weekly.may_start_from(at("2025-03-05T12:00:00Z")), at("2025-03-05T21:00:00Z"));
        assert_eq!(weekly.may_start_from(at("2025-03-05T22:00:00Z")), at("2025-03-05T22:00:00Z"));
    }

    #[test]
    fn slots_are_spread_over_less_than_half_their_period() {
        let now = at("2025-03-04T12:00:00Z");
        let most = |schedule: Schedule| schedule.most_spread(now);
        assert_eq!(most(schedule(Frequency::Hourly, "00:20")), 29);
        assert_eq!(most(schedule(Frequency::Daily, "03:00")), 719);
        assert_eq!(most(schedule(Frequency::Monthly, "03:00")), 719);
        assert_eq!(most(cron("*/10 * * * *")), 4);
        assert_eq!(most(cron("* * * * *")), 0);
        assert_eq!(most(cron("0 3 * * MON")), 720);
        assert_eq!(most(cron("0 1,4 * * *")), 89);
    }

    #[test]
    fn each_frequency_finds_its_next_slot() {
        let hourly = schedule(Frequency::Hourly, "07:20");
        assert_eq!(hourly.next_after(at("2025-03-02T12:19:59Z")), Some(at("2025-03-02T12:20:00Z")));
        assert_eq!(hourly.next_after(at("2025-03-02T12:20:00Z")), Some(at("2025-03-02T13:20:00Z")));
        let daily = schedule(Frequency::Daily, "12:00");
        assert_eq!(daily.next_after(at("2025-03-02T11:59:59.999999Z")), Some(at("2025-03-02T12:00:00Z")));
        assert_eq!(daily.next_after(at("2025-03-02T12:00:00Z")), Some(at("2025-03-03T12:00:00Z")));
        // 2025-03-05 is a Wednesday.
        let weekly = schedule(Frequency::Weekly, "06:30");
        assert_eq!(weekly.next_after(at("2025-03-02T00:00:00Z")), Some(at("2025-03-05T06:30:00Z")));
        assert_eq!(weekly.next_after(at("2025-03-05T06:30:00Z")), Some(at("2025-03-12T06:30:00Z")));
        assert_eq!(weekly.next_after(at("2025-03-05T06:00:00Z")), Some(at("2025-03-05T06:30:00Z")));
        let monthly = schedule(Frequency::Monthly, "23:59");
        assert_eq!(monthly.next_after(at("2025-02-28T23:59:00Z")), Some(at("2025-03-28T23:59:00Z")));
        assert_eq!(monthly.next_after(at("2024-12-31T00:00:00Z")), Some(at("2025-01-28T23:59:00Z")));
    }

    #[test]
    fn cron_has_five_fields_and_must_come_due() {
        let now = at("2025-01-01T00:00:00Z");
        assert_eq!(cron("*/15 * * * *").next_after(now), Some(at("2025-01-01T00:15:00Z")));
        assert_eq!(cron("0 3 * * MON").next_after(now), Some(at("2025-01-06T03:00:00Z")));
        assert_eq!(cron("0 0 29 2 *").next_after(now), Some(at("2028-02-29T00:00:00Z")));
        assert_eq!(Cron::parse("0 0 31 2 *", now), Err(CronError::NeverDue));
        let long = format!("{} * * * *", "1,".repeat(300));
        for bad in ["", "* * * *", "0 * * * * *", "60 * * * *", "@daily", "a b c d e", "* * * * * 2030", &long] {
            assert_eq!(Cron::parse(bad, now), Err(CronError::Malformed), "{bad}");
        }
    }

    #[test]
    fn a_cron_task_without_a_time_shows_that_of_its_next_slot() {
        assert_eq!(cron("30 4 * * *").utc_time(at("2025-01-01T00:00:00Z")).to_string(), "04:30");
    }

    #[test]
    fn local_time_has_todays_offset() {
        let berlin = clock::zone("Europe/Berlin").unwrap();
        let time = TimeOfDay::parse("23:30").unwrap();
        let local = |zone: &TimeZone, now: &str| time.shifted(clock::offset_secs(at(now), zone)).to_string();
        assert_eq!(local(&berlin, "2025-01-15T12:00:00Z"), "00:30");
        assert_eq!(local(&berlin, "2025-07-15T12:00:00Z"), "01:30");
        assert_eq!(local(&clock::zone("Asia/Kathmandu").unwrap(), "2025-07-15T12:00:00Z"), "05:15");
        assert_eq!(local(&clock::zone("America/St_Johns").unwrap(), "2025-01-15T12:00:00Z"), "20:00");
    }

    #[test]
    fn slots_neither_double_nor_vanish_when_clocks_change() {
        // New York falls back on 2025-11-02 at 06:00Z and springs forward on 2025-03-09 at 07:00Z.
        for day in ["2025-11-02", "2025-03-09"] {
            let start = at(&format!("{day}T00:00:00Z"));
            let mut now = start;
            let hourly = schedule(Frequency::Hourly, "00:30");
            let mut slots = 0;
            while now < start + SignedDuration::from_hours(24) {
                now = hourly.next_after(now).unwrap();
                slots += 1;
            }
            assert_eq!(slots, 25, "24 slots of the day and the first of the next");
        }
    }

    proptest! {
        #[test]
        fn the_next_slot_is_later_and_nothing_lies_between(
            second in 0i64..4_000_000_000,
            micros in 0i64..1_000_000,
            hour in 0i8..24,
            minute in 0i8..60,
            day_of_week in 0i64..7,
            day_of_month in 1i64..=28,
            kind in 0usize..4,
            spread in 0i64..30,
            seed in any::<i64>(),
            opens in 0i8..24,
            closes in 0i8..24,
        ) {
            let frequency = Frequency::ALL[kind];
            let time = TimeOfDay::parse(&format!("{hour:02}:{minute:02}"));
            let spread = Spread::new(spread, seed);
            let schedule = Schedule { frequency, time, day_of_week, day_of_month, cron: None, zone: None, spread, window: None };
            let now = clock::from_micros(second * 1_000_000 + micros);
            let next = schedule.next_after(now).unwrap();
            prop_assert!(next > now);
            let [opens, closes] = [opens, closes].map(|hour| TimeOfDay::parse(&format!("{hour:02}:15")).unwrap());
            let zone = Zone::parse("Europe/Berlin");
            let windowed = Schedule { window: Window::new(opens, closes), zone, ..schedule.clone() };
            let waiting = windowed.next_after(now).unwrap();
            prop_assert!(waiting > now);
            prop_assert_eq!(windowed.may_start_from(waiting), waiting, "the window is open");
            prop_assert_eq!(windowed.next_after(clock::from_micros(waiting.as_microsecond() - 1)), Some(waiting));
            // Asking from just before the slot finds it again, so none was passed over.
            prop_assert_eq!(schedule.next_after(clock::from_micros(next.as_microsecond() - 1)), Some(next));
            let longest_days = match frequency { Frequency::Hourly => 1, Frequency::Daily => 1, Frequency::Weekly => 7, _ => 31 };
            prop_assert!(next.duration_since(now).as_hours() <= longest_days * 24);
        }
    }
}
