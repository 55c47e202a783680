//! Decides whether a finished backup looks suspicious compared with earlier ones of the same source, and whether the
//! removal of old backups has to wait because of it.
//!
//! An unmounted disk, a dropped database or ransomware that encrypts files all produce backups that succeed. If only a
//! few backups are kept, a few of these would push out every good one.

use crate::backup::name_text;
use crate::figures::size;

string_enum! {
    /// What looks wrong about a backup.
    Sign {
        Empty = "empty",
        Smaller = "smaller",
        Fewer = "fewer",
        Incompressible = "incompressible",
        HalfRestored = "half-restored",
        Lacking = "lacking",
    }
}

/// A backup counts as much smaller if its size or number of entries is at most this percentage of the baseline.
const SHRUNK_PERCENT: i128 = 20;
/// Smaller baselines are not used to judge size or number of entries: a single change would look like a loss.
const LEAST_BYTES: i64 = 16 * 1024;
const LEAST_ENTRIES: i64 = 5;
/// The baseline's stored size was at most this percentage of its plain size, so it compressed well …
const COMPRESSIBLE_PERCENT: i128 = 70;
/// … and now the stored size is at least this percentage of the plain size.
const INCOMPRESSIBLE_PERCENT: i128 = 95;
/// Smaller backups say nothing about compression: a small archive is mostly padding.
const LEAST_INCOMPRESSIBLE_BYTES: i64 = 1024 * 1024;

/// A stored size of at most this percentage of the baseline means that the content has become nothing but zeros, even
/// if its plain size has not changed.
const HOLLOW_PERCENT: i128 = 5;

/// The most missing databases that the reason lists by name.
const NAMED: usize = 10;

/// The figures by which backups are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    pub plain_bytes: i64,
    /// `None` in a repository, which stores only what it does not have.
    pub stored_bytes: Option<i64>,
    pub entries: i64,
}

/// Whether the stored size has dropped to almost nothing, as with content overwritten by zeros.
fn is_hollow(now: Measure, baseline: Measure) -> bool {
    now.stored_bytes.zip(baseline.stored_bytes).is_some_and(|(now, baseline)| {
        baseline >= LEAST_INCOMPRESSIBLE_BYTES && is_at_most(now, HOLLOW_PERCENT, baseline)
    })
}

fn has_shrunk(now: Measure, baseline: Measure) -> bool {
    baseline.plain_bytes >= LEAST_BYTES && is_at_most(now.plain_bytes, SHRUNK_PERCENT, baseline.plain_bytes)
}

fn is_at_most(part: i64, percent: i128, whole: i64) -> bool {
    i128::from(part) * 100 <= i128::from(whole) * percent
}

/// What looks wrong about a backup compared with its baseline. `is_empty` means that it holds no data at all.
fn signs(now: Measure, is_empty: bool, baseline: Measure) -> Vec<Sign> {
    let is_less = now.entries < baseline.entries || now.plain_bytes < baseline.plain_bytes;
    let is_sparse = baseline.entries >= LEAST_ENTRIES && is_at_most(now.entries, SHRUNK_PERCENT, baseline.entries);
    let is_incompressible = now.plain_bytes >= LEAST_INCOMPRESSIBLE_BYTES
        && baseline.plain_bytes >= LEAST_INCOMPRESSIBLE_BYTES
        && now.stored_bytes.zip(baseline.stored_bytes).is_some_and(|(now_stored, stored)| {
            is_at_most(stored, COMPRESSIBLE_PERCENT, baseline.plain_bytes)
                && i128::from(now_stored) * 100 >= i128::from(now.plain_bytes) * INCOMPRESSIBLE_PERCENT
        });
    let found = [
        (is_empty && is_less, Sign::Empty),
        (has_shrunk(now, baseline) || is_hollow(now, baseline), Sign::Smaller),
        (is_sparse, Sign::Fewer),
        (is_incompressible, Sign::Incompressible),
    ];
    found.into_iter().filter(|(is_there, _)| *is_there).map(|(_, sign)| sign).collect()
}

/// How a finished backup affects the hold on its task's retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Removal is not on hold.
    Off,
    Begins,
    Stays,
    /// The first normal backup after a suspicious one.
    Ends,
}

impl Hold {
    pub fn is_on(self) -> bool {
        matches!(self, Self::Begins | Self::Stays)
    }
}

/// A finished backup, and what it is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Finished<'a> {
    pub measure: Measure,
    /// It holds no data at all.
    pub is_empty: bool,
    /// A restore into its source ended early or was under way, so the source may be only partly restored.
    pub is_half_restored: bool,
    /// Databases that a normal backup of the same server had and this one lacks.
    pub lacking: &'a [String],
    /// The good backups of the same source that were not suspicious themselves, newest first.
    pub normal: &'a [Measure],
    /// Removal is on hold already.
    pub is_held: bool,
}

/// What a finished backup means for the ones before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Empty for a backup that is normal, or has nothing to be compared with.
    pub signs: Vec<Sign>,
    pub hold: Hold,
    /// Why it is suspicious, as clauses that end a sentence about the backup; empty if it is normal.
    pub reason: String,
}

/// Judges a finished backup against every normal one of its source. Suspicious backups are not used as baselines, so a
/// series of empty backups never becomes normal by repetition. All normal ones are used, so a source cannot shrink
/// unnoticed in small steps. Without a normal backup to compare with, an existing hold stays.
pub fn judge(backup: Finished<'_>) -> Judgement {
    let Finished { measure, is_empty, normal, .. } = backup;
    let found = normal.iter().map(|baseline| (signs(measure, is_empty, *baseline), *baseline));
    let (mut signs, mut reason) = match found.into_iter().find(|(signs, _)| !signs.is_empty()) {
        Some((signs, baseline)) => {
            let reason = reason(&signs, measure, baseline);
            (signs, vec![reason])
        }
        None => (Vec::new(), Vec::new()),
    };
    if backup.is_half_restored {
        signs.push(Sign::HalfRestored);
        reason.push(
            "a restore into its source ended early or was under way, so it may hold half of what was restored"
                .to_owned(),
        );
    }
    if !backup.lacking.is_empty() {
        signs.push(Sign::Lacking);
        let more = match backup.lacking.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names: Vec<String> = backup.lacking.iter().take(NAMED).map(|name| name_text(name.as_bytes())).collect();
        reason.push(format!("it lacks databases that a normal backup had: {}{more}", names.join(", ")));
    }
    let hold = match (signs.is_empty(), backup.is_held) {
        (false, false) => Hold::Begins,
        (false, true) => Hold::Stays,
        (true, true) if normal.is_empty() => Hold::Stays,
        (true, true) => Hold::Ends,
        (true, false) => Hold::Off,
    };
    Judgement { signs, hold, reason: reason.join("; ") }
}

fn reason(signs: &[Sign], now: Measure, baseline: Measure) -> String {
    let part = |sign: &Sign| match sign {
        Sign::Empty if baseline.entries > now.entries => {
            format!("it is empty, where a normal backup had {} entries", baseline.entries)
        }
        Sign::Empty => format!("it is empty, where a normal backup held {}", size(baseline.plain_bytes)),
        Sign::Smaller if !has_shrunk(now, baseline) => {
            let (now, then) = (size(now.stored_bytes.unwrap_or(0)), size(baseline.stored_bytes.unwrap_or(0)));
            format!(
                "it takes {now} at the destination, where a normal backup took {then}, as if only zeros were left of it"
            )
        }
        Sign::Smaller => {
            format!("it holds {}, where a normal backup held {}", size(now.plain_bytes), size(baseline.plain_bytes))
        }
        Sign::Fewer => format!("it has {} entries, where a normal backup had {}", now.entries, baseline.entries),
        Sign::Incompressible => {
            "its content can hardly be compressed any more, as after an attack by ransomware".to_owned()
        }
        Sign::HalfRestored | Sign::Lacking => String::new(),
    };
    // An empty backup is also small and has few entries; there is no need to report that as well.
    let all: &[Sign] = if signs.contains(&Sign::Empty) { &[Sign::Empty] } else { signs };
    all.iter().map(part).collect::<Vec<_>>().join("; ")
}

/// Signs as they are stored: words separated by spaces.
pub fn signs_text(signs: &[Sign]) -> String {
    signs.iter().map(|sign| sign.as_str()).collect::<Vec<_>>().join(" ")
}

/// Reads stored signs; unknown words are ignored.
pub fn read_signs(text: &str) -> Vec<Sign> {
    text.split(' ').filter_map(Sign::parse).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: i64 = 1024 * 1024;

    fn measure(plain_bytes: i64, stored_bytes: i64, entries: i64) -> Measure {
        Measure { plain_bytes, stored_bytes: Some(stored_bytes), entries }
    }

    fn judged(measure: Measure, is_empty: bool, normal: &[Measure], is_held: bool) -> Judgement {
        judge(Finished { measure, is_empty, is_half_restored: false, lacking: &[], normal, is_held })
    }

    fn found(now: Measure, is_empty: bool, baseline: Measure) -> String {
        signs_text(&judged(now, is_empty, &[baseline], false).signs)
    }

    #[test]
    fn a_source_that_became_empty_or_shrank_is_suspicious() {
        let baseline = measure(10 * MIB, 4 * MIB, 1000);
        assert_eq!(found(measure(10_240, 300, 1), true, baseline), "empty smaller fewer");
        assert_eq!(found(measure(2 * MIB, MIB, 900), false, baseline), "smaller");
        assert_eq!(found(measure(9 * MIB, 4 * MIB, 200), false, baseline), "fewer");
        assert_eq!(found(measure(2 * MIB + 1, MIB, 201), false, baseline), "");
        assert_eq!(found(measure(50 * MIB, 20 * MIB, 5000), false, baseline), "");
    }

    #[test]
    fn content_that_became_zeros_is_suspicious() {
        let baseline = measure(2 * MIB, 2 * MIB, 20);
        let zeros = measure(2 * MIB, 1552, 20);
        assert_eq!(found(zeros, false, baseline), "smaller");
        assert!(judged(zeros, false, &[baseline], false).reason.contains("as if only zeros were left"));
        assert_eq!(found(measure(2 * MIB, MIB / 5, 20), false, baseline), "", "it compresses better");
        assert_eq!(found(measure(MIB / 2, 500, 20), false, measure(MIB / 2, MIB / 2, 20)), "", "too little to tell");
    }

    #[test]
    fn content_that_no_longer_compresses_is_suspicious() {
        let baseline = measure(10 * MIB, 7 * MIB, 1000);
        assert_eq!(found(measure(10 * MIB, 10 * MIB, 1000), false, baseline), "incompressible");
        assert_eq!(found(measure(10 * MIB, 9 * MIB, 1000), false, baseline), "");
        let photos = measure(10 * MIB, 9 * MIB, 1000);
        assert_eq!(found(measure(10 * MIB, 10 * MIB, 1000), false, photos), "", "it never compressed well");
        assert_eq!(
            found(measure(MIB / 2, MIB / 2, 1000), false, measure(MIB, MIB / 10, 1000)),
            "",
            "too little to tell"
        );
    }

    #[test]
    fn the_first_large_file_after_nearly_nothing_is_no_attack() {
        assert_eq!(found(measure(20 * MIB, 20 * MIB, 2), false, measure(16 * 1024, 462, 1)), "");
    }

    #[test]
    fn small_sources_are_judged_by_being_empty_alone() {
        let baseline = measure(10_240, 900, 4);
        assert_eq!(found(measure(10_240, 300, 2), false, baseline), "");
        assert_eq!(found(measure(10_240, 200, 1), true, baseline), "empty");
        assert_eq!(found(measure(10_240, 200, 1), true, measure(10_240, 200, 1)), "", "it always was");
    }

    #[test]
    fn a_source_that_shrinks_in_steps_is_suspicious() {
        let kept = [measure(3 * MIB, MIB, 300), measure(10 * MIB, 4 * MIB, 1000)];
        let small = judged(measure(MIB, MIB / 2, 250), false, &kept, false);
        assert_eq!(small.signs, [Sign::Smaller]);
        assert!(small.reason.ends_with(&size(10 * MIB)), "{}", small.reason);
        assert_eq!(judged(kept[0], false, &kept, false).signs, []);
    }

    #[test]
    fn a_backup_after_a_restore_that_ended_early_is_suspicious_whatever_its_size() {
        let normal = measure(MIB, MIB / 2, 100);
        let after = |normal: &[Measure], is_held: bool| {
            judge(Finished {
                lacking: &[],
                measure: measure(MIB, MIB / 2, 100),
                is_empty: false,
                is_half_restored: true,
                normal,
                is_held,
            })
        };
        let judged = after(&[normal], false);
        assert_eq!((judged.signs, judged.hold), (vec![Sign::HalfRestored], Hold::Begins));
        assert!(judged.reason.starts_with("a restore into its source ended early"));
        assert_eq!(after(&[normal], true).hold, Hold::Stays);
        assert_eq!(after(&[], false).hold, Hold::Begins);
    }

    #[test]
    fn a_hold_lasts_until_a_backup_is_normal() {
        let (normal, empty) = (measure(MIB, MIB / 2, 100), measure(10_240, 200, 1));
        assert_eq!(judged(empty, true, &[normal], false).hold, Hold::Begins);
        assert_eq!(judged(empty, true, &[normal], true).hold, Hold::Stays);
        assert_eq!(judged(normal, false, &[normal], true).hold, Hold::Ends);
        assert_eq!(judged(normal, false, &[normal], false).hold, Hold::Off);
        assert_eq!(judged(empty, true, &[], false).hold, Hold::Off, "there is nothing to protect yet");
        assert_eq!(judged(normal, false, &[], true).hold, Hold::Stays, "there is no normal backup to compare it with");
    }

    #[test]
    fn reasons_name_the_figures() {
        let (now, baseline) = (measure(2 * MIB, MIB, 20), measure(10 * MIB, 4 * MIB, 1000));
        let reason = |signs: &[Sign]| reason(signs, now, baseline);
        assert_eq!(
            reason(&[Sign::Smaller, Sign::Fewer]),
            format!(
                "it holds {}, where a normal backup held {}; it has 20 entries, where a normal backup had 1000",
                size(2 * MIB),
                size(10 * MIB)
            )
        );
        assert_eq!(reason(&[Sign::Empty, Sign::Smaller]), "it is empty, where a normal backup had 1000 entries");
        let held = super::reason(&[Sign::Empty], measure(0, 0, 1000), baseline);
        assert_eq!(held, format!("it is empty, where a normal backup held {}", size(10 * MIB)));
        assert_eq!(read_signs("empty fewer unknown"), [Sign::Empty, Sign::Fewer]);
        assert!(read_signs("").is_empty());
    }

    proptest! {
        #[test]
        fn the_same_again_is_normal_and_nothing_overflows(
            plain in any::<i64>(), stored in any::<i64>(), entries in any::<i64>(), is_empty: bool,
        ) {
            let one = measure(plain, stored, entries);
            prop_assert_eq!(found(one, is_empty, one), "");
        }
    }
}
