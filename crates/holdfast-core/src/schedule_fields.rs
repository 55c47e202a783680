//! The fields of a schedule: their checks and their stored form.

use jiff::Timestamp;

use crate::fields::{DefaultValue, FieldSpec};
use crate::input::{Errors, Field, Input};
use crate::refusal::Rule;
use crate::schedule::{self, Cron, CronError, Frequency, Schedule, Spread, TimeOfDay, Window, Zone};
use crate::{limits, random, rules};

const FREQUENCY: FieldSpec = FieldSpec::choice("frequency", &["hourly", "daily", "weekly", "monthly"])
    .about("Needed unless `custom_cron` is set.")
    .not_null()
    .shown_at("/schedule/frequency");
const TIME: FieldSpec = FieldSpec::line("time_to_run_at", 5)
    .about("`HH:MM`, in UTC unless `timezone` is set; needed for daily, weekly and monthly tasks.")
    .pattern("^([01][0-9]|2[0-3]):[0-5][0-9]$")
    .shown_at("/schedule/time_to_run_at");
const DAY_OF_WEEK: FieldSpec = FieldSpec::integer("day_of_week", 0, 6)
    .about("For weekly tasks; 0 is Sunday. Defaults to the weekday of creation.")
    .shown_at("/schedule/day_of_week");
const DAY_OF_MONTH: FieldSpec = FieldSpec::integer("day_of_month", 1, 28)
    .about("For monthly tasks. Defaults to the day of creation.")
    .shown_at("/schedule/day_of_month");
const CRON: FieldSpec = FieldSpec::line("custom_cron", limits::TEXT_CHARS)
    .about("Five fields, in UTC unless `timezone` is set.")
    .also_called(&["custom_cron_expression"])
    .shown_at("/schedule/custom_cron");

const TIMEZONE: FieldSpec = FieldSpec::line("timezone", limits::TEXT_CHARS)
    .about(
        "An IANA zone, such as `Europe/Berlin`, in which the time and the cron expression are meant; null is UTC. A time \
         that daylight saving skips runs right after the gap, one that comes twice runs once.",
    )
    .shown_at("/schedule/timezone");

const SPREAD: FieldSpec = FieldSpec::integer("spread_minutes", 0, Spread::MOST_MINUTES)
    .about(
        "Runs are shifted by up to this many minutes in either direction, always by the same time, so that tasks with \
         the same time do not start together. It must be less than half of the time between two runs.",
    )
    .default_to(DefaultValue::Integer(0))
    .shown_at("/schedule/spread_minutes");
const WINDOW_START: FieldSpec = FieldSpec::line("window_start", 5)
    .about(
        "`HH:MM` in the time zone of the task. Scheduled runs and their retries start only between this time and \
         `window_end`, across midnight if that is earlier; those that are due outside wait until the window opens, and a \
         task has one run then. Runs that somebody requests start at once, and a run that is still in progress when the \
         window closes goes on. Null, together with `window_end`, is any time.",
    )
    .pattern("^([01][0-9]|2[0-3]):[0-5][0-9]$")
    .shown_at("/schedule/window_start");
const WINDOW_END: FieldSpec = FieldSpec::line("window_end", 5)
    .about("`HH:MM`, when the window closes; needed with `window_start`.")
    .pattern("^([01][0-9]|2[0-3]):[0-5][0-9]$")
    .shown_at("/schedule/window_end");
/// Chosen here and only stored: requests do not contain it.
const SPREAD_SEED: &str = "spread_seed";

pub const FIELDS: &[FieldSpec] =
    &[FREQUENCY, TIME, DAY_OF_WEEK, DAY_OF_MONTH, CRON, TIMEZONE, SPREAD, WINDOW_START, WINDOW_END];

impl Schedule {
    pub fn check(errors: &mut Errors, input: &Input, current: Option<&Self>, now: Timestamp) -> Option<Self> {
        let cron = check_cron(errors, input, current.and_then(|was| was.cron.as_ref()), now);
        let frequency = check_frequency(errors, input, current.map(|was| was.frequency), cron.is_some());
        let time = check_time(&TIME, errors, input, current.and_then(|was| was.time));
        let needs_time = cron.is_none() && !matches!(frequency, None | Some(Frequency::Hourly | Frequency::Custom));
        if needs_time && time.is_none() && !errors.has(TIME.name) {
            errors.add(TIME.name, Rule::Required);
        }
        let zone = check_zone(errors, input, current.and_then(|was| was.zone.as_ref()));
        let was = current.map_or_else(|| schedule::weekday_number(now, zone.as_ref()), |was| was.day_of_week);
        let day_of_week = DAY_OF_WEEK.checked_integer(errors, input, was);
        let was = current.map_or_else(|| schedule::day_of_month(now, zone.as_ref()), |was| was.day_of_month);
        let day_of_month = DAY_OF_MONTH.checked_integer(errors, input, was);
        let minutes =
            SPREAD.checked_integer(errors, input, current.and_then(|was| was.spread).map_or(0, Spread::minutes));
        let seed = current.and_then(|was| was.spread).map_or_else(|| i64::from_ne_bytes(random::bytes()), Spread::seed);
        let spread = Spread::new(minutes, seed);
        let window = check_window(errors, input, current.and_then(|was| was.window));
        let schedule = Self { frequency: frequency?, time, day_of_week, day_of_month, cron, zone, spread, window };
        if let Some(spread) = schedule.spread
            && spread.minutes() > schedule.most_spread(now)
        {
            errors.add(SPREAD.name, Rule::Between { min: 0, max: schedule.most_spread(now) });
        }
        Some(schedule)
    }

    pub fn write(&self, values: &mut Input) {
        values.set(FREQUENCY.name, self.frequency.as_str());
        values.set(TIME.name, self.time.map(|time| time.to_string()));
        values.set(DAY_OF_WEEK.name, self.day_of_week);
        values.set(DAY_OF_MONTH.name, self.day_of_month);
        values.set(CRON.name, self.cron.as_ref().map(Cron::as_str));
        values.set(TIMEZONE.name, self.zone.as_ref().map(Zone::name));
        values.set(SPREAD.name, self.spread.map_or(0, Spread::minutes));
        values.set(WINDOW_START.name, self.window.map(|window| window.start().to_string()));
        values.set(WINDOW_END.name, self.window.map(|window| window.end().to_string()));
        if let Some(spread) = self.spread {
            values.set(SPREAD_SEED, spread.seed());
        }
    }

    /// Reads what is stored, including values that the checks refuse but an older import accepted.
    pub fn read(stored: &Input) -> Option<Self> {
        let cron = match stored.text(CRON.name).value() {
            None => None,
            Some(text) => Some(Cron::stored(text)?),
        };
        Some(Self {
            frequency: Frequency::parse(stored.text(FREQUENCY.name).value()?)?,
            time: stored.text(TIME.name).value().and_then(|text| TimeOfDay::parse(text)),
            day_of_week: *stored.integer(DAY_OF_WEEK.name).value()?,
            day_of_month: *stored.integer(DAY_OF_MONTH.name).value()?,
            cron,
            // A zone that no longer exists is read as UTC: a failure here would hide the other tasks.
            zone: stored.text(TIMEZONE.name).value().and_then(|name| Zone::parse(name)),
            spread: read_spread(stored),
            window: read_window(stored),
        })
    }

    /// Whether the stored values are valid; an import accepts nothing else.
    pub fn is_sound(stored: &Input) -> bool {
        let is_time =
            |field: &FieldSpec| stored.text(field.name).value().is_none_or(|text| TimeOfDay::parse(text).is_some());
        let has_times = [TIME, WINDOW_START, WINDOW_END].iter().all(is_time);
        let has_zone = stored.text(TIMEZONE.name).value().is_none_or(|name| Zone::parse(name).is_some());
        let has_spread = stored.integer(SPREAD.name).value().is_none() || SPREAD.is_within(stored);
        has_times && has_zone && has_spread && DAY_OF_WEEK.is_within(stored) && DAY_OF_MONTH.is_within(stored)
    }
}

/// What older rows do not have.
fn read_spread(stored: &Input) -> Option<Spread> {
    let minutes = *stored.integer(SPREAD.name).value()?;
    Spread::new(minutes, stored.integer(SPREAD_SEED).value().copied().unwrap_or(0))
}

/// What older rows do not have.
fn read_window(stored: &Input) -> Option<Window> {
    let time = |field: &FieldSpec| TimeOfDay::parse(stored.text(field.name).value()?);
    Window::new(time(&WINDOW_START)?, time(&WINDOW_END)?)
}

fn check_time(field: &FieldSpec, errors: &mut Errors, input: &Input, current: Option<TimeOfDay>) -> Option<TimeOfDay> {
    match field.text(input) {
        Field::Absent => return current,
        Field::Null => {}
        Field::WrongType => errors.add(field.name, Rule::Text),
        Field::Value(text) => {
            let time = TimeOfDay::parse(&text);
            if time.is_none() {
                errors.add(field.name, Rule::TimeOfDay);
            }
            return time;
        }
    }
    None
}

/// A window has both times, and they differ.
fn check_window(errors: &mut Errors, input: &Input, current: Option<Window>) -> Option<Window> {
    let start = check_time(&WINDOW_START, errors, input, current.map(Window::start));
    let end = check_time(&WINDOW_END, errors, input, current.map(Window::end));
    let (missing, rule) = match (start, end) {
        (None, None) => return None,
        (Some(start), Some(end)) => match Window::new(start, end) {
            Some(window) => return Some(window),
            None => (WINDOW_END.name, Rule::Window),
        },
        (Some(_), None) => (WINDOW_END.name, Rule::Required),
        (None, Some(_)) => (WINDOW_START.name, Rule::Required),
    };
    if !errors.has(missing) {
        errors.add(missing, rule);
    }
    None
}

fn check_zone(errors: &mut Errors, input: &Input, current: Option<&Zone>) -> Option<Zone> {
    match TIMEZONE.text(input) {
        Field::Absent => return current.cloned(),
        Field::Null => {}
        Field::WrongType => errors.add(TIMEZONE.name, Rule::Text),
        Field::Value(name) if name.trim().is_empty() => {}
        Field::Value(name) => {
            let zone = Zone::parse(name.trim());
            if zone.is_none() {
                errors.add(TIMEZONE.name, Rule::Timezone);
            }
            return zone;
        }
    }
    None
}

fn check_cron(errors: &mut Errors, input: &Input, current: Option<&Cron>, now: Timestamp) -> Option<Cron> {
    match CRON.text(input) {
        Field::Absent => return current.cloned(),
        Field::Null => {}
        Field::WrongType => errors.add(CRON.name, Rule::Text),
        Field::Value(text) if text.trim().is_empty() => {}
        Field::Value(text) => match Cron::parse(&text, now) {
            Ok(cron) => return Some(cron),
            Err(CronError::Malformed) => errors.add(CRON.name, Rule::Cron),
            Err(CronError::NeverDue) => errors.add(CRON.name, Rule::CronNeverDue),
        },
    }
    None
}

/// A cron expression is a schedule by itself; without one, a named frequency is required.
fn check_frequency(
    errors: &mut Errors,
    input: &Input,
    current: Option<Frequency>,
    has_cron: bool,
) -> Option<Frequency> {
    let given = FREQUENCY.text(input);
    if has_cron && matches!(given, Field::Absent | Field::Null) {
        return Some(current.filter(|_| given.is_absent()).unwrap_or(Frequency::Custom));
    }
    if errors.has(CRON.name) && given.is_absent() {
        return None;
    }
    let named = current.filter(|frequency| *frequency != Frequency::Custom);
    rules::choice(errors, FREQUENCY.name, &given, named, |text| {
        Frequency::parse(text).filter(|frequency| has_cron || *frequency != Frequency::Custom)
    })
}
