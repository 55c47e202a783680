//! Whether workers run, queue what is due and start runs, judged by when they last reported.

use holdfast_core::Timestamp;
use holdfast_core::lease::is_silent;
use holdfast_store::workers::{self, WorkerRow};
use holdfast_store::{Tx, figures};

use crate::checks::Check;
use crate::{App, Result};

/// Schedulers check every second; a slot that has waited for this long was seen by none.
const LAG_SECS: i64 = 120;

/// Why a queued run does not start, apart from other runs before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// No worker has reported for minutes.
    Worker,
    /// All workers were told to start nothing.
    DrainEnd,
    /// Nothing starts during maintenance.
    MaintenanceEnd,
}

/// The workers that count as running, and when any worker was last heard from.
pub(crate) struct Workers {
    pub(crate) living: Vec<WorkerRow>,
    /// For how many seconds none has reported; `None` if there is none that stopped without saying so.
    silent_for: Option<i64>,
}

impl Workers {
    pub(crate) async fn find(tx: &mut Tx, now: Timestamp) -> Result<Self> {
        let known = workers::list(tx).await?;
        let silent_for = known.iter().map(|worker| seconds_since(now, worker.seen_at.0).max(0)).min();
        let living = known.into_iter().filter(|worker| !is_silent(worker.seen_at.0, now)).collect();
        Ok(Self { living, silent_for })
    }

    /// How many of them start no runs.
    pub(crate) fn draining(&self) -> usize {
        self.living.iter().filter(|worker| worker.is_draining).count()
    }

    fn starts_runs(&self) -> bool {
        self.draining() < self.living.len()
    }

    /// What a queued run waits for, if no worker would start it.
    pub(crate) fn hold_up_runs(&self) -> Option<WaitsFor> {
        match self.living.is_empty() {
            true => Some(WaitsFor::Worker),
            false => (!self.starts_runs()).then_some(WaitsFor::DrainEnd),
        }
    }

    /// Why nothing runs, if no worker counts as running.
    fn silence(&self) -> Option<String> {
        let remedy = "start `holdfast worker`, or `holdfast serve` with HOLDFAST_WORKERS";
        match (self.living.is_empty(), self.silent_for) {
            (false, _) => None,
            (true, Some(seconds)) => Some(format!("no worker has reported for {seconds} s; {remedy}")),
            (true, None) => Some(format!("no worker is running; {remedy}")),
        }
    }

    fn heard(&self) -> String {
        format!("last heard from {} s ago", self.silent_for.unwrap_or_default())
    }

    fn check(&self) -> Check {
        let idle = if self.starts_runs() { "" } else { "; none starts runs" };
        let detail = format!("{} running, {}{idle}", self.living.len(), self.heard());
        Check { detail: Some(detail), ..Check::new("workers", self.silence()) }
    }

    /// Workers queue what is due. If none is known, nobody expects them to, unless something waits.
    fn check_scheduler(&self, late: i64) -> Check {
        let waits = || format!("a slot has waited for {late} s: no scheduler runs; start `holdfast worker`");
        let silence = self.silent_for.and_then(|_| self.silence());
        let problem = if late > LAG_SECS { Some(waits()) } else { silence };
        Check { detail: Some(format!("running, {}", self.heard())), ..Check::new("scheduler", problem) }
    }

    /// Workers that were told to start no runs are wanted.
    fn tell_draining(&self) -> Option<Check> {
        let note = match self.draining() {
            0 => return None,
            _ if !self.starts_runs() => {
                "no run starts: all workers were told so; `holdfast drain off NAME` ends it".to_owned()
            }
            some => format!("{some} of {} workers start no runs", self.living.len()),
        };
        Some(Check { note: Some(note), halts_runs: !self.starts_runs(), ..Check::new("drain", None) })
    }
}

/// The checks `scheduler` and `workers`, and `drain` if there is something to tell.
pub(crate) async fn check(app: &App) -> Result<Vec<Check>> {
    let mut tx = app.store.read().await?;
    let now = app.now();
    let found = Workers::find(&mut tx, now).await?;
    let slot = figures::find_next_slot(&mut tx).await?;
    let late = slot.map_or(0, |at| seconds_since(now, at.0));
    Ok([found.check_scheduler(late), found.check()].into_iter().chain(found.tell_draining()).collect())
}

fn seconds_since(now: Timestamp, at: Timestamp) -> i64 {
    now.as_second() - at.as_second()
}
