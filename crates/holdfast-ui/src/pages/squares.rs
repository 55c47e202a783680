//! Daily results as small coloured squares.

use holdfast_app::overview::DayResult;
use holdfast_core::clock;

use crate::human::Reader;

/// One day, or one day of a task.
pub(crate) struct Square {
    pub class: &'static str,
    pub text: String,
}

/// The results of the last days as squares, each with its date and result as text.
pub(crate) fn squares(reader: &Reader, days: &[DayResult]) -> Vec<Square> {
    let square = |(number, result): (usize, &DayResult)| {
        let at = clock::days_before(reader.now, (days.len() - 1 - number) as i64, &reader.zone);
        let (class, word) = match result {
            DayResult::Nothing => ("", reader.t.say("day-nothing")),
            DayResult::Good => ("good", reader.t.say("day-good")),
            DayResult::Mixed => ("mixed", reader.t.say("day-mixed")),
            DayResult::Bad => ("bad", reader.t.say("day-bad")),
        };
        Square { class, text: format!("{}: {word}", reader.date(at)) }
    };
    days.iter().enumerate().map(square).collect()
}
