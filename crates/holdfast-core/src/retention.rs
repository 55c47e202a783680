//! Retention: plans which backups of a task are kept and which are removed, and why, from recorded data alone.

use crate::ids::BackupId;

/// How many backups of a source are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionPolicy {
    All,
    /// This many of the newest good ones, at least one.
    Newest(i64),
}

impl RetentionPolicy {
    /// From the number in the API, where 0 keeps all.
    pub fn of_number(number: i64) -> Self {
        if number <= 0 { Self::All } else { Self::Newest(number) }
    }

    pub fn number(self) -> i64 {
        match self {
            Self::All => 0,
            Self::Newest(number) => number,
        }
    }
}

/// A stored backup as the plan sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub id: BackupId,
    /// What it is a backup of; see `backup::source_key`.
    pub source: String,
    /// Looked suspicious compared with earlier ones, and nobody has confirmed it. It may hold nothing, so it does not
    /// count towards the number to keep.
    pub is_suspicious: bool,
    /// Found corrupt or missing. It cannot be restored, so it does not count towards the number to keep.
    pub is_damaged: bool,
    /// A restore or verification is reading it.
    pub is_in_use: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Keep(Why),
    Remove(Why),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The task keeps everything.
    KeepsAll,
    /// Among the newest that the task keeps.
    Newest,
    /// There are enough newer backups.
    Superseded,
    /// Cannot be restored; kept until a person deletes it, so that the damage can be investigated.
    Damaged,
    /// Would be removed, but is being read.
    InUse,
    /// Of another source than the backup that was just made: nothing newer replaces it.
    OtherSource,
    /// Suspicious, and not older than the good ones that the task keeps.
    Suspicious,
}

impl Why {
    pub fn text(self) -> &'static str {
        match self {
            Self::KeepsAll => "the task keeps all backups",
            Self::Newest => "among the newest that the task keeps",
            Self::Superseded => "the task already keeps enough newer backups",
            Self::Damaged => "damaged; it stays until somebody deletes it",
            Self::InUse => "superseded, but being read at the moment",
            Self::OtherSource => "of another source; it stays until somebody deletes it",
            Self::Suspicious => "suspicious; it does not count among those that the task keeps",
        }
    }
}

/// Plans retention after a successful backup of `source`. The newest good backup is never removed, whatever the policy.
/// Backups of earlier sources of the task are kept: nothing newer replaces them.
pub fn plan(backups: &[Stored], source: &str, policy: RetentionPolicy) -> Vec<(BackupId, Verdict)> {
    let keep = policy.number();
    let mut newest_first: Vec<&Stored> = backups.iter().collect();
    // By the order in which they were recorded: a clock that was wrong for a day must not make the newest backup the
    // oldest.
    newest_first.sort_by_key(|backup| std::cmp::Reverse(backup.id));
    let mut good = 0_i64;
    newest_first
        .into_iter()
        .map(|backup| {
            let verdict = if policy == RetentionPolicy::All {
                Verdict::Keep(Why::KeepsAll)
            } else if backup.is_damaged {
                Verdict::Keep(Why::Damaged)
            } else if backup.source != source {
                Verdict::Keep(Why::OtherSource)
            } else if backup.is_suspicious && good < keep {
                Verdict::Keep(Why::Suspicious)
            } else {
                good += i64::from(!backup.is_suspicious);
                let is_kept = good <= keep && !backup.is_suspicious;
                match (is_kept, backup.is_in_use) {
                    (true, _) => Verdict::Keep(Why::Newest),
                    (false, true) => Verdict::Keep(Why::InUse),
                    (false, false) => Verdict::Remove(Why::Superseded),
                }
            };
            (backup.id, verdict)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HERE: &str = "here";

    fn stored(id: i64) -> Stored {
        let source = HERE.to_owned();
        Stored { id: BackupId(id), source, is_suspicious: false, is_damaged: false, is_in_use: false }
    }

    fn removed(backups: &[Stored], keep: i64) -> Vec<i64> {
        let plan = plan(backups, HERE, RetentionPolicy::of_number(keep)).into_iter();
        let mut gone: Vec<i64> =
            plan.filter(|(_, verdict)| matches!(verdict, Verdict::Remove(_))).map(|(id, _)| id.0).collect();
        gone.sort_unstable();
        gone
    }

    #[test]
    fn the_newest_stay_and_zero_keeps_all() {
        let backups: Vec<Stored> = (1..=5).map(stored).collect();
        assert_eq!(removed(&backups, 2), [1, 2, 3]);
        assert_eq!(removed(&backups, 0), [0; 0]);
        assert_eq!(removed(&backups, 9), [0; 0]);
    }

    #[test]
    fn damaged_ones_do_not_count_and_ones_in_use_are_kept() {
        let mut backups: Vec<Stored> = (1..=4).map(stored).collect();
        backups[3].is_damaged = true;
        assert_eq!(removed(&backups, 1), [1, 2], "the newest good one is number 3");
        backups[0].is_in_use = true;
        assert_eq!(removed(&backups, 1), [2]);
    }

    #[test]
    fn backups_of_another_source_stay_and_are_not_counted() {
        let mut backups: Vec<Stored> = (1..=5).map(stored).collect();
        for old in &mut backups[..3] {
            old.source = "elsewhere".to_owned();
        }
        assert_eq!(removed(&backups, 1), [4], "only what the same source supersedes");
        // The task returns to its previous source: now the other backups are kept.
        backups.push(Stored { source: "elsewhere".to_owned(), ..stored(6) });
        let plan = plan(&backups, "elsewhere", RetentionPolicy::Newest(2));
        let gone: Vec<i64> =
            plan.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Remove(_))).map(|(id, _)| id.0).collect();
        assert_eq!(gone, [2, 1]);
    }

    #[test]
    fn suspicious_ones_do_not_count_and_are_removed_when_superseded() {
        let mut backups: Vec<Stored> = (1..=5).map(stored).collect();
        (backups[2].is_suspicious, backups[3].is_suspicious) = (true, true);
        assert_eq!(removed(&backups, 2), [1], "2 and 5 are the good ones");
        backups.push(stored(6));
        assert_eq!(removed(&backups, 2), [1, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn a_plan_never_removes_the_last_good_one(
            facts in proptest::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()), 0..40),
            keep in 0i64..6,
        ) {
            let backups: Vec<Stored> = facts.iter().enumerate().map(|(n, (damaged, used, suspicious, here))| Stored {
                is_damaged: *damaged, is_in_use: *used, is_suspicious: *suspicious,
                source: if *here { HERE } else { "elsewhere" }.to_owned(), ..stored(n as i64)
            }).collect();
            let gone = removed(&backups, keep);
            let is_good = |backup: &&Stored| !backup.is_damaged && !backup.is_suspicious && backup.source == HERE;
            let good = backups.iter().filter(is_good).count();
            let left = backups.iter().filter(is_good).filter(|backup| !gone.contains(&backup.id.0)).count();
            prop_assert!(left >= good.min(usize::try_from(keep.max(1)).unwrap()));
            prop_assert!(backups.iter().all(|backup| backup.source == HERE || !gone.contains(&backup.id.0)));
            // At least `keep` good backups that are newer than a removed one are kept.
            for id in &gone {
                let newer = backups.iter().filter(is_good).filter(|b| !gone.contains(&b.id.0));
                let own = backups.iter().find(|b| b.id.0 == *id).unwrap();
                prop_assert!(newer.filter(|b| b.id > own.id).count() as i64 >= keep);
            }
        }
    }
}
