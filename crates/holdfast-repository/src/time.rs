//! Times as Go writes them: RFC 3339, with as many digits of a second as are needed.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time, counted from 1970. The default is what Go writes for a time that is not known, the start of year 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoTime {
    pub seconds: i64,
    pub nanos: u32,
}

impl Default for GoTime {
    fn default() -> Self {
        Self { seconds: -62_135_596_800, nanos: 0 }
    }
}

impl GoTime {
    pub fn is_unknown(self) -> bool {
        self == Self::default()
    }

    /// In UTC. A year that RFC 3339 cannot express becomes the nearest that it can.
    pub(crate) fn text(self) -> String {
        const FIRST: Timestamp = Timestamp::constant(-62_167_219_200, 0);
        let nanos = i32::try_from(self.nanos).unwrap_or_default();
        let nearest = if self.seconds < 0 { FIRST } else { Timestamp::MAX };
        let time = Timestamp::new(self.seconds, nanos).unwrap_or(nearest).max(FIRST);
        let time = time.to_zoned(TimeZone::UTC).datetime();
        let (date, clock) = (time.date(), time.time());
        let fraction = match time.subsec_nanosecond() {
            0 => String::new(),
            nanos => format!(".{nanos:09}").trim_end_matches('0').to_owned(),
        };
        let (hour, minute, second) = (clock.hour(), clock.minute(), clock.second());
        let (year, month, day) = (date.year(), date.month(), date.day());
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
    }
}

impl From<Timestamp> for GoTime {
    fn from(time: Timestamp) -> Self {
        let nanos = time.as_nanosecond();
        let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or_default();
        Self { seconds, nanos: u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or_default() }
    }
}

impl Serialize for GoTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for GoTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        if let Ok(time) = text.parse::<Timestamp>() {
            return Ok(time.into());
        }
        // Written in another time zone, the last hours that we can hold are beyond what a time in UTC can be.
        let local: jiff::civil::DateTime = text.get(..19).unwrap_or_default().parse().map_err(D::Error::custom)?;
        Ok(if local.year() > 9000 { Timestamp::MAX } else { Timestamp::MIN }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_like_go_does_it() {
        let cases = [
            (GoTime { seconds: 0, nanos: 0 }, "1970-01-01T00:00:00Z"),
            (GoTime { seconds: 1_700_000_000, nanos: 123_456_789 }, "2023-11-14T22:13:20.123456789Z"),
            (GoTime { seconds: 1_700_000_000, nanos: 120_000_000 }, "2023-11-14T22:13:20.12Z"),
            (GoTime { seconds: -1, nanos: 500_000_000 }, "1969-12-31T23:59:59.5Z"),
            (GoTime::default(), "0001-01-01T00:00:00Z"),
        ];
        for (time, text) in cases {
            assert_eq!(time.text(), text);
            assert_eq!(serde_json::from_str::<GoTime>(&format!("\"{text}\"")).unwrap(), time);
        }
        let elsewhere = serde_json::from_str::<GoTime>("\"2023-11-14T23:13:20.12+01:00\"").unwrap();
        assert_eq!(elsewhere, cases[2].0);
    }

    #[test]
    fn years_that_cannot_be_written_become_the_nearest() {
        assert_eq!(GoTime { seconds: i64::MIN, nanos: 0 }.text(), "0000-01-01T00:00:00Z");
        assert!(GoTime { seconds: i64::MAX, nanos: 5 }.text().starts_with("9999-12-30T"));
        assert_eq!(GoTime { seconds: -70_000_000_000, nanos: 0 }.text(), "0000-01-01T00:00:00Z");
    }
}
