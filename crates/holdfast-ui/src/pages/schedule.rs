//! Schedules in words, with the reader's local time if it differs.

use holdfast_core::clock;
use holdfast_core::schedule::{Frequency, Schedule, TimeOfDay, Zone};

use crate::human::Reader;

/// When a task runs, in words; with the reader's local time if it differs.
pub(crate) fn schedule_words(reader: &Reader, schedule: &Schedule) -> String {
    let mut words = nominal_words(reader, schedule);
    if let Some(spread) = schedule.spread {
        words = format!("{words}, {}", reader.t.with("schedule-spread", "minutes", spread.minutes()));
    }
    if let Some(window) = schedule.window {
        let (start, end) = (window.start().to_string(), window.end().to_string());
        let zone = schedule.zone.as_ref().map_or("UTC", Zone::name);
        words = format!("{words}, {} {zone}", reader.t.with2("schedule-window", "start", start, "end", end));
    }
    words
}

fn nominal_words(reader: &Reader, schedule: &Schedule) -> String {
    let t = reader.t;
    if let Some(cron) = &schedule.cron {
        let text = match &schedule.zone {
            Some(zone) => t.with2("schedule-cron-zone", "cron", cron.as_str(), "zone", zone.name()),
            None => t.with("schedule-cron", "cron", cron.as_str()),
        };
        // The library describes expressions only in English.
        return if t.code() == "en" { format!("{} ({text})", cron.describe()) } else { text };
    }
    let time = schedule.time.unwrap_or(TimeOfDay::MIDNIGHT);
    let at = format!("{time} {}", schedule.zone.as_ref().map_or("UTC", Zone::name));
    let words = match schedule.frequency {
        Frequency::Hourly => {
            let minute = time.to_string();
            return t.with("schedule-hourly", "minute", minute.split(':').next_back().unwrap_or("00"));
        }
        Frequency::Daily | Frequency::Custom => t.with("schedule-daily", "time", at),
        Frequency::Weekly => {
            let weekday = t.say(&format!("weekday-{}", schedule.day_of_week));
            t.with2("schedule-weekly", "weekday", weekday, "time", at)
        }
        Frequency::Monthly => t.with2("schedule-monthly", "day", schedule.day_of_month, "time", at),
    };
    // The time zone of a task is usually the reader's own, and the next runs are shown in local time next to it.
    let offset = clock::offset_secs(reader.now, &reader.zone);
    if offset == 0 || schedule.zone.is_some() {
        return words;
    }
    let there = time.shifted(offset).to_string();
    // The local time may fall on another weekday.
    let minutes: i64 = utc_minutes(time) + i64::from(offset).div_euclid(60);
    let local = match (schedule.frequency, minutes.div_euclid(24 * 60)) {
        (Frequency::Weekly, days) if days != 0 => {
            let weekday = t.say(&format!("weekday-{}", (schedule.day_of_week + days).rem_euclid(7)));
            t.with2("schedule-local-weekday", "weekday", weekday, "time", there)
        }
        _ => t.with("schedule-local", "time", there),
    };
    format!("{words} ({local})")
}

fn utc_minutes(time: TimeOfDay) -> i64 {
    let text = time.to_string();
    let (hour, minute) = text.split_once(':').unwrap_or(("0", "0"));
    hour.parse::<i64>().unwrap_or(0) * 60 + minute.parse::<i64>().unwrap_or(0)
}
