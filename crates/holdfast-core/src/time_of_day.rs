//! Times of day.

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;

/// A time of day to the minute, written `HH:MM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOfDay {
    hour: i8,
    minute: i8,
}

impl TimeOfDay {
    pub const MIDNIGHT: Self = Self { hour: 0, minute: 0 };

    /// Strictly two digits, a colon, two digits.
    pub fn parse(text: &str) -> Option<Self> {
        let (hour, minute) = text.split_once(':')?;
        let two = |part: &str| (part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse().ok());
        let (hour, minute): (i8, i8) = (two(hour)??, two(minute)??);
        (hour < 24 && minute < 60).then_some(Self { hour, minute })
    }

    /// The same time of day on a clock that is ahead of this one by `offset_secs`.
    #[must_use]
    pub fn shifted(self, offset_secs: i32) -> Self {
        const DAY: i32 = 24 * 60;
        let minutes = (i32::from(self.hour) * 60 + i32::from(self.minute) + offset_secs.div_euclid(60)).rem_euclid(DAY);
        Self { hour: (minutes / 60) as i8, minute: (minutes % 60) as i8 }
    }

    pub(crate) fn of(at: Timestamp) -> Self {
        let at = at.to_zoned(TimeZone::UTC);
        Self { hour: at.hour(), minute: at.minute() }
    }

    pub(crate) fn minute(self) -> i8 {
        self.minute
    }

    pub(crate) fn to_time(self) -> Time {
        Time::constant(self.hour, self.minute, 0, 0)
    }
}

impl std::fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02}:{:02}", self.hour, self.minute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_strict() {
        for bad in ["", "7:00", "07:0", "24:00", "00:60", "07:00:00", "+7:00", " 07:00", "0７:00"] {
            assert_eq!(TimeOfDay::parse(bad), None, "{bad}");
        }
        assert_eq!(TimeOfDay::parse("07:05").unwrap().to_string(), "07:05");
    }
}
