//! The clock, and arithmetic and formats for times. Only the clock reads the current time; everything else receives it.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::TimeZone;

pub use jiff::Timestamp as Instant;
pub use jiff::tz::TimeZone as Zone;

/// The only source of "now". Tests use one that they move manually.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock, truncated to microseconds, the precision of the database and the API.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everything else has to use")]
    fn now(&self) -> Timestamp {
        from_micros(Timestamp::now().as_microsecond())
    }
}

/// The first instant of the year 1, where most calendars begin.
const EARLIEST_MICROS: i64 = -62_135_596_800_000_000;

/// The nearest time between the years 1 and 9999: files on other machines may have timestamps outside any calendar.
pub fn from_micros(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros.max(EARLIEST_MICROS)).unwrap_or(Timestamp::MAX)
}

/// RFC 3339 in UTC with six fractional digits, as in every response.
pub fn rfc3339(at: Timestamp) -> String {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));
    PRINTER.timestamp_to_string(&at)
}

/// Reads a time in RFC 3339, with any offset.
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    text.parse().ok().map(|at: Timestamp| from_micros(at.as_microsecond()))
}

/// `2025-03-02 12:00:00` in the given zone.
pub fn local_date_time(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// `Sunday, 2 March 2025 12:00` in the given zone.
pub fn human_date_time(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%A, %-d %B %Y %H:%M").to_string()
}

/// `Sunday, 2 March 2025` in the given zone.
pub fn date(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%A, %-d %B %Y").to_string()
}

/// Reads a date in the format of HTTP headers.
pub fn parse_http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp())
}

/// How many seconds the zone's clocks are ahead of UTC at this instant.
pub fn offset_secs(at: Timestamp, zone: &TimeZone) -> i32 {
    zone.to_offset(at).seconds()
}

/// The first instant of the day that `now` falls on in the given zone. Where midnight does not exist, the day
/// begins with the first instant after the gap.
pub fn start_of_day(now: Timestamp, zone: &TimeZone) -> Timestamp {
    let zoned = now.to_zoned(zone.clone());
    zoned.start_of_day().map_or(now, |start| start.timestamp())
}

/// The instant `days` days before `now`, at the same time of day.
pub fn days_before(now: Timestamp, days: i64, zone: &TimeZone) -> Timestamp {
    let zoned = now.to_zoned(zone.clone());
    zoned.checked_sub(jiff::Span::new().days(days)).map_or(now, |before| before.timestamp())
}

/// The days from that of `since` to that of `until`, in order, each as `YYYY-MM-DD` with its first instant.
pub fn days_between(since: Timestamp, until: Timestamp, zone: &TimeZone) -> Vec<(String, Timestamp)> {
    let last = until.to_zoned(zone.clone()).date();
    let mut date = since.to_zoned(zone.clone()).date();
    let mut days = Vec::new();
    while date <= last {
        let Ok(start) = zone.to_ambiguous_zoned(date.to_datetime(jiff::civil::Time::midnight())).compatible() else {
            break;
        };
        days.push((date.to_string(), start_of_day(start.timestamp(), zone)));
        let Ok(next) = date.tomorrow() else { break };
        date = next;
    }
    days
}

/// Noon of a day given as `YYYY-MM-DD`.
pub fn noon_of(day: &str, zone: &TimeZone) -> Option<Timestamp> {
    let date: jiff::civil::Date = day.parse().ok()?;
    zone.to_ambiguous_zoned(date.at(12, 0, 0, 0)).compatible().ok().map(|noon| noon.timestamp())
}

/// A time later than any event.
pub fn after_all() -> Timestamp {
    Timestamp::MAX
}

/// The zone with a name such as `Europe/Berlin`, from the database in the binary.
pub fn zone(name: &str) -> Option<TimeZone> {
    jiff::tz::db().get(name).ok()
}

/// The names of all zones that people can choose, in order.
pub fn zone_names() -> Vec<String> {
    let mut names: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
    names.sort_unstable();
    names
}

/// The zone with a stored name, which was checked when it was stored; otherwise UTC.
pub fn zone_or_utc(name: &str) -> TimeZone {
    zone(name).unwrap_or(TimeZone::UTC)
}

/// `seconds` after `now`, or before it if negative.
pub fn later(now: Timestamp, seconds: i64) -> Timestamp {
    from_micros(now.as_microsecond() + seconds * 1_000_000)
}

/// The seconds from one instant to another, for statistics; 0 if the clock was set back in between.
pub fn seconds_between(from: Timestamp, until: Timestamp) -> f64 {
    (until.as_microsecond() - from.as_microsecond()).max(0) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn times_always_show_six_fractional_digits() {
        assert_eq!(rfc3339(at("2025-03-02T12:00:00Z")), "2025-03-02T12:00:00.000000Z");
        assert_eq!(rfc3339(at("2025-03-02T12:00:00.123456Z")), "2025-03-02T12:00:00.123456Z");
    }

    #[test]
    fn times_outside_of_the_calendar_are_shown_as_the_nearest() {
        let berlin = zone("Europe/Berlin").unwrap();
        for (micros, day) in
            [(i64::MIN, "0001-01-01"), (i64::MAX, "9999-12-30"), (-62_135_596_800_000_001, "0001-01-01")]
        {
            assert!(rfc3339(from_micros(micros)).starts_with(day), "{}", rfc3339(from_micros(micros)));
            assert!(!human_date_time(from_micros(micros), &berlin).is_empty());
            assert!(!local_date_time(from_micros(micros), &TimeZone::fixed(jiff::tz::Offset::MIN)).is_empty());
        }
        assert_eq!(rfc3339(from_micros(-1)), "1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn dates_of_headers_are_read() {
        assert_eq!(parse_http_date("Sun, 02 Mar 2025 12:00:00 GMT"), Some(at("2025-03-02T12:00:00Z")));
        assert_eq!(parse_http_date("soon"), None);
    }

    #[test]
    fn human_times_are_in_the_users_zone() {
        let zone = zone("Europe/Berlin").unwrap();
        assert_eq!(human_date_time(at("2025-03-02T11:00:00Z"), &zone), "Sunday, 2 March 2025 12:00");
        assert_eq!(human_date_time(at("2025-07-02T11:00:00Z"), &zone), "Wednesday, 2 July 2025 13:00");
        assert_eq!(local_date_time(at("2025-07-02T22:30:05Z"), &zone), "2025-07-03 00:30:05");
    }

    #[test]
    fn a_day_starts_in_its_own_zone_even_when_midnight_is_skipped() {
        let berlin = zone("Europe/Berlin").unwrap();
        assert_eq!(start_of_day(at("2025-07-02T23:30:00Z"), &berlin), at("2025-07-02T22:00:00Z"));
        // Santiago's clocks jumped from 24:00 to 01:00 on 8 September 2024.
        let santiago = zone("America/Santiago").unwrap();
        assert_eq!(start_of_day(at("2024-09-08T12:00:00Z"), &santiago), at("2024-09-08T04:00:00Z"));
    }
}
