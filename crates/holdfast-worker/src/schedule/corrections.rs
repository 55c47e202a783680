//! After a clock that ran ahead has been corrected, next runs and other times lie in the far future, and nothing would
//! happen until then. They are pulled back, and that is logged.

use std::collections::HashMap;

use holdfast_app::{App, Origin, Result};
use holdfast_core::audit::AuditAction;
use holdfast_core::clock::{rfc3339, zone_or_utc};
use holdfast_core::ids::TaskId;
use holdfast_core::{Timestamp, notice, slots};
use holdfast_store::corrections::{self, AheadRow, Latest};
use holdfast_store::workers::WorkerRow;
use holdfast_store::{DbTime, StoreError, Tx, audit, users, workers};

use crate::settings::Settings;
use holdfast_core::clock::later;

/// How many tasks are examined at a time; the next look continues from there.
const TASKS_AT_ONCE: i64 = 2000;
const SUMMARIES_AT_ONCE: i64 = 200;
/// The clocks of machines that are kept in sync differ by less.
const TOLERANCE_SECS: i64 = 120;
/// For how many looks another worker's last heartbeat may stay the same before it counts as gone. Workers send one a
/// minute, and each looks as often.
const SILENT_LOOKS: u32 = 3;
const HOUR_SECS: i64 = 3600;
/// Longer than any quiet hours can last, and than any channel may ask us to wait.
const LATEST_NOTICE_SECS: i64 = 25 * HOUR_SECS;
/// A window opens at least once a day, unless the change of the clocks leaves it out.
const LONGEST_CLOSED_SECS: i64 = 49 * HOUR_SECS;
const LATEST_REMOVAL_SECS: i64 = 5 * HOUR_SECS;
const LATEST_CATALOGUE_SECS: i64 = 7 * HOUR_SECS;
const LATEST_SUMMARY_SECS: i64 = 8 * 24 * HOUR_SECS;

/// What a worker remembers between its looks.
#[derive(Debug, Default)]
pub(crate) struct Corrector {
    /// The id of the last task that was examined.
    after: i64,
    /// The last heartbeats of workers whose clocks are ahead of ours, and for how many looks they have stayed the same.
    ahead: HashMap<String, (i64, u32)>,
}

impl Corrector {
    /// Pulls back what lies too far ahead, unless the clock of another live worker is ahead of ours: two workers with
    /// different clocks would otherwise move the same tasks back and forth.
    pub(crate) async fn look(&mut self, app: &App, settings: &Settings, own: &str) -> Result<()> {
        let now = app.now();
        let known = workers::list(&mut app.store.read().await?).await?;
        let (is_contradicted, gone) = self.compare(own, &known, now);
        if is_contradicted {
            tracing::warn!("the clock of another worker is ahead of this one's; check the clocks of both machines");
            return Ok(());
        }
        let rows =
            corrections::list_tasks_ahead(&mut app.store.read().await?, now, TaskId(self.after), TASKS_AT_ONCE).await?;
        let is_last = (rows.len() as i64) < TASKS_AT_ONCE;
        self.after = rows.last().filter(|_| !is_last).map_or(0, |row| row.id.0);
        let mut tx = app.store.begin().await?;
        for name in gone {
            workers::delete(&mut tx, &name).await?;
        }
        let mut pulled = 0;
        for row in &rows {
            pulled += u64::from(pull_back(&mut tx, row, now).await?);
        }
        let ended = corrections::end_waits(&mut tx, latest(settings, now), now).await?;
        pull_summaries_back(&mut tx, now).await?;
        tx.commit().await?;
        if ended > 0 {
            tracing::warn!(count = ended, "reset retry times that a wrong clock had set too far ahead");
        }
        if pulled > 0 {
            metrics::counter!("holdfast_tasks_pulled_back_total").increment(pulled);
        }
        Ok(())
    }

    /// Whether a live worker has a clock ahead of ours, and the workers that are gone but left a heartbeat in the
    /// future.
    fn compare(&mut self, own: &str, known: &[WorkerRow], now: Timestamp) -> (bool, Vec<String>) {
        let limit = later(now, TOLERANCE_SECS);
        let mut ahead = HashMap::new();
        for worker in known.iter().filter(|worker| worker.name != own && worker.seen_at.0 > limit) {
            let sign = worker.seen_at.0.as_microsecond();
            let looks = match self.ahead.get(&worker.name) {
                Some((before, looks)) if *before == sign => looks + 1,
                _ => 0,
            };
            ahead.insert(worker.name.clone(), (sign, looks));
        }
        self.ahead = ahead;
        let is_gone = |looks: u32| looks >= SILENT_LOOKS;
        let gone = self.ahead.iter().filter(|(_, (_, looks))| is_gone(*looks)).map(|(name, _)| name.clone()).collect();
        (self.ahead.values().any(|(_, looks)| !is_gone(*looks)), gone)
    }
}

fn latest(settings: &Settings, now: Timestamp) -> Latest {
    let seconds =
        |span: std::time::Duration| i64::try_from(span.as_secs()).unwrap_or(HOUR_SECS).min(30 * 24 * HOUR_SECS);
    Latest {
        // Runs that lost a worker together are retried up to eight times as late, and when the window of their task opens.
        retry: later(now, 8 * seconds(settings.retry_after) + LONGEST_CLOSED_SECS + HOUR_SECS),
        notice: later(now, LATEST_NOTICE_SECS),
        removal: later(now, LATEST_REMOVAL_SECS),
        upload: later(now, 10 * seconds(settings.lease) + HOUR_SECS),
        catalogue: later(now, LATEST_CATALOGUE_SECS),
    }
}

/// Returns true if a time of the task lay too far ahead.
async fn pull_back(tx: &mut Tx, row: &AheadRow, now: Timestamp) -> Result<bool, StoreError> {
    // A schedule that cannot be read is reported by the scheduler.
    let Ok(schedule) = row.schedule() else { return Ok(false) };
    let (planned, overdue) = (row.next_run_at.0, row.overdue_at.map(|at| at.0));
    let next = slots::corrected_next(&schedule, planned, now);
    let sooner = overdue.and_then(|at| notice::corrected_overdue(&schedule, at, now));
    if next.is_none() && sooner.is_none() {
        return Ok(false);
    }
    let due = next.unwrap_or(planned);
    if !corrections::pull_task_back(tx, row, due, sooner.or(overdue), now).await? {
        return Ok(false);
    }
    let (from, to) = (rfc3339(planned), rfc3339(due));
    tracing::warn!(task = row.id.0, from, to, "the next run was too far ahead for its schedule, and is pulled back");
    if next.is_some() {
        let detail = format!("{} {}: next run {from} → {to}", row.id, row.label);
        let owner = Some(row.user_id);
        audit::insert(tx, DbTime(now), owner, &Origin::default(), AuditAction::BackupTaskNextRunCorrected, &detail)
            .await?;
    }
    Ok(true)
}

async fn pull_summaries_back(tx: &mut Tx, now: Timestamp) -> Result<(), StoreError> {
    let late = corrections::list_summaries_after(tx, later(now, LATEST_SUMMARY_SECS), SUMMARIES_AT_ONCE).await?;
    for (user, due, zone) in late {
        users::move_summary(tx, user, due, notice::next_summary(now, &zone_or_utc(&zone))).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str, seen: i64) -> WorkerRow {
        let at = DbTime(Timestamp::from_second(seen).unwrap());
        WorkerRow { name: name.to_owned(), version: String::new(), started_at: at, seen_at: at, is_draining: false }
    }

    #[test]
    fn a_worker_ahead_counts_while_it_sends_heartbeats() {
        let mut corrector = Corrector::default();
        let now = Timestamp::from_second(1_000_000).unwrap();
        let mut look = |rows: &[WorkerRow]| corrector.compare("own", rows, now);
        let near = [worker("own", 9_000_000), worker("near", 1_000_100)];
        assert_eq!(look(&near), (false, Vec::new()));
        for beat in 0..9 {
            assert!(look(&[worker("far", 2_000_000 + beat * 60)]).0, "alive");
        }
        for _ in 0..2 {
            assert_eq!(look(&[worker("far", 2_000_480)]), (true, Vec::new()));
        }
        assert_eq!(look(&[worker("far", 2_000_480)]), (false, vec!["far".to_owned()]));
        assert_eq!(look(&[]), (false, Vec::new()));
    }
}
