//! Numbers and times in human-readable form, with the exact value as a tooltip.

use std::fmt;

use askama::filters::HtmlSafe;
use holdfast_core::Timestamp;
use holdfast_core::clock::{self, Zone};

use crate::translator::Translator;

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The language, time zone and current time that a page is rendered with.
#[derive(Clone)]
pub(crate) struct Reader {
    pub t: Translator,
    pub zone: Zone,
    pub now: Timestamp,
}

impl Default for Reader {
    fn default() -> Self {
        Self { t: Translator::default(), zone: Zone::UTC, now: Timestamp::UNIX_EPOCH }
    }
}

/// Text that is already HTML. The code that creates it must have escaped all user input.
#[derive(Debug, Clone, Default)]
pub(crate) struct Markup(pub String);

impl fmt::Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Markup {}

/// Escapes text for HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

impl Reader {
    /// A time relative to now; far from now, its date.
    pub(crate) fn when(&self, at: Timestamp) -> Markup {
        let distance = at.as_microsecond() - self.now.as_microsecond();
        let words = if distance.abs() < MINUTE {
            self.t.say("time-now")
        } else if distance.abs() >= 20 * DAY {
            self.date(at)
        } else if distance < 0 {
            self.t.with("time-ago", "duration", self.roughly(-distance))
        } else {
            self.t.with("time-in", "duration", self.roughly(distance))
        };
        self.time(at, &words)
    }

    /// A time as date and time of day.
    pub(crate) fn exactly(&self, at: Timestamp) -> Markup {
        let words = self.t.with2("time-date-and-time", "date", self.date(at), "time", self.clock(at));
        self.time(at, &words)
    }

    fn time(&self, at: Timestamp, words: &str) -> Markup {
        let exact = self.t.with2("time-exact", "at", clock::local_date_time(at, &self.zone), "zone", self.zone_name());
        Markup(format!(
            "<time datetime=\"{}\" title=\"{}\">{}</time>",
            clock::rfc3339(at),
            escaped(&exact),
            escaped(words)
        ))
    }

    fn zone_name(&self) -> String {
        self.zone.iana_name().unwrap_or("UTC").to_owned()
    }

    /// For example `Sunday, 2 March 2025`, in the format of the language. The current year is omitted.
    pub(crate) fn date(&self, at: Timestamp) -> String {
        let local = at.to_zoned(self.zone.clone());
        let month = self.t.say(&format!("month-{}", local.month()));
        let weekday = self.t.say(&format!("weekday-{}", local.weekday().to_sunday_zero_offset()));
        let day = self.t.with2("time-day-and-month", "day", i64::from(local.day()), "month", month);
        let dated = self.t.with2("time-dated", "weekday", weekday, "day", day);
        let this_year = self.now.to_zoned(self.zone.clone()).year() == local.year();
        if this_year { dated } else { self.t.with2("time-with-year", "date", dated, "year", local.year().to_string()) }
    }

    pub(crate) fn clock(&self, at: Timestamp) -> String {
        at.to_zoned(self.zone.clone()).strftime("%H:%M").to_string()
    }

    /// A duration in one unit, or in two from a minute on.
    pub(crate) fn duration(&self, micros: i64) -> String {
        let t = self.t;
        let (big, unit, small, small_unit) = match micros {
            i64::MIN..SECOND => return t.with("unit-milliseconds", "n", micros.max(0) / 1000),
            SECOND..MINUTE => return t.with("unit-seconds", "n", micros / SECOND),
            MINUTE..HOUR => (micros / MINUTE, "unit-minutes", micros % MINUTE / SECOND, "unit-seconds"),
            HOUR..DAY => (micros / HOUR, "unit-hours", micros % HOUR / MINUTE, "unit-minutes"),
            _ => (micros / DAY, "unit-days", micros % DAY / HOUR, "unit-hours"),
        };
        let first = t.with(unit, "n", big);
        if small == 0 { first } else { format!("{first} {}", t.with(small_unit, "n", small)) }
    }

    /// A duration with the precision that a list needs.
    fn roughly(&self, micros: i64) -> String {
        match micros {
            i64::MIN..HOUR => self.t.with("unit-minutes", "n", micros / MINUTE),
            HOUR..DAY => self.duration(micros / MINUTE * MINUTE),
            // Some languages decline the noun after "in" and "ago": German "3 Tage", but "in 3 Tagen".
            _ => {
                let days = self.t.with("unit-days-away", "n", micros / DAY);
                match micros % DAY / HOUR {
                    0 => days,
                    hours => format!("{days} {}", self.t.with("unit-hours", "n", hours)),
                }
            }
        }
    }

    /// For example `1.4 GB`, with the exact number of bytes as a tooltip.
    pub(crate) fn bytes(&self, bytes: i64) -> Markup {
        let exact = self.t.with("unit-exact-bytes", "n", self.number(bytes));
        Markup(format!("<data value=\"{bytes}\" title=\"{}\">{}</data>", escaped(&exact), self.size(bytes)))
    }

    /// Like [`Self::bytes`], as plain text.
    pub(crate) fn size(&self, bytes: i64) -> String {
        const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
        let (mut value, mut unit) = (bytes as f64, 0);
        while value >= 999.5 && unit + 1 < UNITS.len() {
            value /= 1000.0;
            unit += 1;
        }
        let text = if unit == 0 || value >= 99.5 { format!("{value:.0}") } else { format!("{value:.1}") };
        format!("{}\u{a0}{}", text.replace('.', &self.t.say("number-decimal")), UNITS[unit])
    }

    /// A whole number with thousands separators.
    pub(crate) fn number(&self, number: i64) -> String {
        let digits = number.unsigned_abs().to_string();
        let separator = self.t.say("number-thousands");
        let mut text = String::new();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                text.push_str(&separator);
            }
            text.push(digit);
        }
        if number < 0 { format!("-{text}") } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(code: &str) -> Reader {
        let zone = clock::zone("Europe/Berlin").unwrap();
        Reader { t: Translator::of(code), zone, now: "2025-03-03T10:00:00Z".parse().unwrap() }
    }

    #[test]
    fn sizes_and_durations_are_human_readable() {
        let (en, de) = (reader("en"), reader("de"));
        assert_eq!(en.size(999), "999\u{a0}B");
        assert_eq!(en.size(1_400_000_000), "1.4\u{a0}GB");
        assert_eq!(de.size(1_400_000_000), "1,4\u{a0}GB");
        assert_eq!(en.size(999_999), "1.0\u{a0}MB");
        assert_eq!(en.number(1_234_567), "1,234,567");
        assert_eq!(en.duration(192 * SECOND), "3 min 12 s");
        assert_eq!(en.duration(2 * HOUR + 10 * MINUTE), "2 h 10 min");
        assert_eq!(en.duration(3 * DAY), "3 days");
        assert_eq!(de.duration(DAY), "1 Tag");
    }

    #[test]
    fn times_are_relative_and_have_the_exact_time_as_tooltip() {
        let en = reader("en");
        let at = |text: &str| en.when(text.parse().unwrap()).0;
        assert!(at("2025-03-03T12:10:00Z").contains(">in 2 h 10 min<"));
        assert!(at("2025-03-03T06:00:00Z").contains(">4 h ago<"));
        assert!(at("2025-03-03T10:00:20Z").contains(">just now<"));
        assert!(at("2024-12-24T06:00:00Z").contains(">Tuesday, 24 December 2024<"));
        assert!(at("2025-03-03T06:00:00Z").contains("title=\"2025-03-03 07:00:00 (Europe/Berlin)\""));
        let german = reader("de").exactly("2025-03-03T06:00:00Z".parse().unwrap()).0;
        assert!(german.contains("Montag, 3. März, 07:00 Uhr"), "{german}");
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escaped("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }
}
