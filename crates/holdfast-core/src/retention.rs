//! Which backups of a task stay and which go: a plan that says why, made from what is recorded and nothing else.

use crate::ids::BackupId;

/// A stored backup as the plan sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    pub id: BackupId,
    /// Found corrupt or missing: it restores nothing, so it does not count as one that is kept.
    pub is_damaged: bool,
    /// A restore or verification reads it right now.
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
    /// Newer backups fill the number that is kept.
    Superseded,
    /// Cannot be restored; kept until a person decides, since damage may be looked into.
    Damaged,
    /// Would go, but is being read.
    InUse,
}

impl Why {
    pub fn text(self) -> &'static str {
        match self {
            Self::KeepsAll => "the task keeps all backups",
            Self::Newest => "among the newest that the task keeps",
            Self::Superseded => "newer backups fill the number that the task keeps",
            Self::Damaged => "damaged; it stays until somebody deletes it",
            Self::InUse => "superseded, but being read at the moment",
        }
    }
}

/// Plans retention after a success. `keep` is how many good backups stay; 0 keeps all. The newest good one is never
/// removed, whatever the number says.
pub fn plan(backups: &[Stored], keep: i64) -> Vec<(BackupId, Verdict)> {
    let mut newest_first: Vec<&Stored> = backups.iter().collect();
    // By the order in which they were recorded: a clock that was wrong for a day must not make the newest the oldest.
    newest_first.sort_by_key(|backup| std::cmp::Reverse(backup.id));
    let mut good = 0_i64;
    newest_first
        .into_iter()
        .map(|backup| {
            let verdict = if keep <= 0 {
                Verdict::Keep(Why::KeepsAll)
            } else if backup.is_damaged {
                Verdict::Keep(Why::Damaged)
            } else {
                good += 1;
                match (good <= keep, backup.is_in_use) {
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

    fn stored(id: i64) -> Stored {
        Stored { id: BackupId(id), is_damaged: false, is_in_use: false }
    }

    fn removed(backups: &[Stored], keep: i64) -> Vec<i64> {
        let plan = plan(backups, keep).into_iter();
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
    fn damaged_ones_do_not_fill_the_number_and_used_ones_wait() {
        let mut backups: Vec<Stored> = (1..=4).map(stored).collect();
        backups[3].is_damaged = true;
        assert_eq!(removed(&backups, 1), [1, 2], "the newest good one is number 3");
        backups[0].is_in_use = true;
        assert_eq!(removed(&backups, 1), [2]);
    }

    proptest! {
        #[test]
        fn a_plan_never_takes_the_last_good_one(
            facts in proptest::collection::vec((any::<bool>(), any::<bool>()), 0..40),
            keep in 0i64..6,
        ) {
            let backups: Vec<Stored> = facts.iter().enumerate().map(|(n, (damaged, used))| Stored {
                is_damaged: *damaged, is_in_use: *used, ..stored(n as i64)
            }).collect();
            let gone = removed(&backups, keep);
            let good = backups.iter().filter(|backup| !backup.is_damaged).count();
            let left = backups.iter().filter(|backup| !backup.is_damaged && !gone.contains(&backup.id.0)).count();
            prop_assert!(left >= good.min(usize::try_from(keep.max(1)).unwrap()));
            // Whatever goes is older than whatever good one stays for its age.
            for id in &gone {
                let newer = backups.iter().filter(|b| !b.is_damaged && !gone.contains(&b.id.0));
                let own = backups.iter().find(|b| b.id.0 == *id).unwrap();
                prop_assert!(newer.filter(|b| b.id > own.id).count() as i64 >= keep);
            }
        }
    }
}
