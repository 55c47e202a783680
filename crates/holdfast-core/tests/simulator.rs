//! Simulates a month of an installation in a few milliseconds: several processes with different clocks tick, claim,
//! work, send heartbeats, crash, stall and wake up late on one database, while people edit, pause and delete. The
//! invariants must hold after every event. The decisions are made by the crate itself; the database is a few maps that
//! give the guarantees that the real one gives with its indexes and conditions.
//!
//! A failing seed is printed; add it to `KEPT`, so that it always runs from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_core::anomaly::{self, Finished, Judgement, Measure};
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{BackupId, RunId, ServerId, UserId};
use holdfast_core::lease::{Heartbeat, LeaseMonitor};
use holdfast_core::queue::{Chooser, ConcurrencyLimits, Load, LongRunCapacity, turn};
use holdfast_core::retention::{self, RetentionPolicy, Stored, Verdict};
use holdfast_core::run::RunStatus;
use holdfast_core::schedule::{Frequency, Schedule, Spread, TimeOfDay, Window, Zone};
use holdfast_core::{Timestamp, clock, slots};

const SEEDS: u64 = 1000;
const DAYS: i64 = 30;
/// Seeds that once failed: 242 found that a process that restarts begins again to measure the silence of others.
const KEPT: &[u64] = &[242];

const LEASE: Duration = Duration::from_secs(60);
/// A worker gives up its run when it could not renew the lease for this long.
const GIVES_UP_SECS: i64 = 50;
/// How long it may take to detect a lost worker: the lease, and the interval between checks.
const RECOVERY_SECS: i64 = 90;
const LONGEST_RUN_SECS: i64 = 700;
const LIMITS: ConcurrencyLimits =
    ConcurrencyLimits { per_server: 2, per_destination: 100, per_user: 3, checks_per_user: 100 };

/// A deterministic random number generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    fn number(&mut self, sides: u64) -> i64 {
        self.roll(sides) as i64
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.roll(chances) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.roll(from.len() as u64) as usize]) }
    }
}

struct Task {
    user: i64,
    server: i64,
    schedule: Schedule,
    next: Option<Timestamp>,
    is_paused: bool,
    keep: i64,
    retry_at: Option<Timestamp>,
    /// Whether the run to be retried waits for the window of the task.
    is_retry_bound: bool,
    losses: i64,
    /// Identifies what it backs up; people change it.
    source: i64,
    /// Whether the disk that it backs up is not mounted.
    is_source_empty: bool,
    /// Whether the removal of old backups is on hold.
    is_held: bool,
}

struct Run {
    task: i64,
    status: RunStatus,
    code: Option<FailureCode>,
    attempt: i64,
    /// Whether it waits for the window of the task; nobody requested it.
    is_bound: bool,
    turn: i64,
    epoch: i64,
    sign: i64,
    /// True time of the last heartbeat; no process can read it.
    signed_at: i64,
}

impl Run {
    fn is_live(&self) -> bool {
        matches!(self.status, RunStatus::Queued | RunStatus::Running)
    }
}

struct Backup {
    task: i64,
    run: i64,
    source: i64,
    is_empty: bool,
    is_suspicious: bool,
    is_damaged: bool,
    is_deleted: bool,
}

/// The content of the database.
#[derive(Default)]
struct Database {
    is_away: bool,
    tasks: BTreeMap<i64, Task>,
    runs: BTreeMap<i64, Run>,
    live: BTreeSet<i64>,
    backups: BTreeMap<i64, Backup>,
    /// Slots that have a run; a unique index in the real database.
    slots: BTreeSet<(i64, i64)>,
    /// The highest turn that was served, and the last turn of each user.
    served: Option<i64>,
    last_turns: BTreeMap<i64, i64>,
    /// Runs that were about to store an object, recorded beforehand.
    notes: BTreeSet<i64>,
    last_id: i64,
}

impl Database {
    fn id(&mut self) -> i64 {
        self.last_id += 1;
        self.last_id
    }

    fn with_status(&self, status: RunStatus) -> impl Iterator<Item = (i64, &Run)> {
        self.live.iter().map(|id| (*id, &self.runs[id])).filter(move |(_, run)| run.status == status)
    }

    fn is_running(&self, task: i64) -> bool {
        self.live.iter().any(|id| self.runs[id].task == task)
    }

    /// `INSERT … ON CONFLICT DO NOTHING` with both unique indexes.
    fn insert(&mut self, task: i64, slot: Option<Timestamp>, attempt: i64, is_bound: bool) -> bool {
        if self.is_running(task) || slot.is_some_and(|slot| self.slots.contains(&(task, slot.as_microsecond()))) {
            return false;
        }
        let user = self.tasks[&task].user;
        let turn = turn(true, self.served, self.last_turns.get(&user).copied());
        self.last_turns.insert(user, turn);
        let id = self.put(task, slot, RunStatus::Queued, None, turn);
        self.runs.entry(id).and_modify(|run| (run.attempt, run.is_bound) = (attempt, is_bound));
        true
    }

    fn insert_ended(&mut self, task: i64, slot: Timestamp, status: RunStatus, code: FailureCode) {
        if !self.slots.contains(&(task, slot.as_microsecond())) {
            self.put(task, Some(slot), status, Some(code), 0);
        }
    }

    fn put(
        &mut self,
        task: i64,
        slot: Option<Timestamp>,
        status: RunStatus,
        code: Option<FailureCode>,
        turn: i64,
    ) -> i64 {
        if let Some(slot) = slot {
            assert!(self.slots.insert((task, slot.as_microsecond())), "I4: slot {slot} has two runs");
        }
        let id = self.id();
        let run = Run { task, status, code, attempt: 1, is_bound: false, turn, epoch: 0, sign: 0, signed_at: 0 };
        if run.is_live() {
            assert!(!self.is_running(task), "I4: task {task} has two live runs");
            self.live.insert(id);
        }
        self.runs.insert(id, run);
        id
    }

    /// Ends a run, which must be running.
    fn end(&mut self, id: i64, status: RunStatus, code: Option<FailureCode>) {
        let run = self.runs.get_mut(&id).expect("a run");
        assert!(self.live.remove(&id) && run.status == RunStatus::Running, "run {id} ended twice");
        (run.status, run.code) = (status, code);
    }
}

/// A run that a process works on.
struct Held {
    run: i64,
    epoch: i64,
    done_at: i64,
    /// In monotonic time, which changes of the clock do not affect.
    renewed_at: i64,
    will_succeed: bool,
    /// The object is stored; the transaction that records it comes later, and much may happen in between.
    is_stored: bool,
}

struct Process {
    /// The error of its clock.
    skew_secs: i64,
    is_up: bool,
    /// Suspended by a signal, a hypervisor or a swap storm: it neither checks anything nor sends heartbeats.
    sleeps_until: i64,
    watch: LeaseMonitor,
    /// Since when it has been running, awake and connected to the database.
    watching_since: Option<i64>,
    held: Vec<Held>,
}

struct World {
    dice: Dice,
    /// True time, in seconds. No process can read it.
    at: i64,
    db: Database,
    processes: Vec<Process>,
    /// Objects at the destination, by run; each is either complete or absent.
    objects: BTreeSet<i64>,
    counts: Counts,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    runs: u64,
    lost: u64,
    missed: u64,
    skipped: u64,
    retried: u64,
    removed: u64,
    crashes: u64,
    fenced: u64,
    cleared: u64,
    corrected_next: u64,
    put_off: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let at = 1_740_000_000 + dice.number(86_400 * 365);
        let mut db = Database::default();
        for _ in 0..(2 + dice.roll(5)) {
            let user = 1 + dice.number(2);
            let (server, schedule, keep) = (user * 10 + dice.number(2), schedule(&mut dice), dice.number(4));
            let next = schedule.next_after(stamp(at));
            let id = db.id();
            let task = Task {
                user,
                server,
                schedule,
                next,
                is_paused: false,
                keep,
                retry_at: None,
                is_retry_bound: true,
                losses: 0,
                source: 1,
                is_source_empty: false,
                is_held: false,
            };
            db.tasks.insert(id, task);
        }
        let fresh = |_| Process {
            skew_secs: 0,
            is_up: true,
            sleeps_until: 0,
            watch: LeaseMonitor::default(),
            watching_since: Some(at),
            held: Vec::new(),
        };
        let processes = (0..=dice.roll(3)).map(fresh).collect();
        let counts = Counts::default();
        Self { dice, at, db, processes, objects: BTreeSet::new(), counts }
    }

    fn now_of(&self, process: usize) -> Timestamp {
        stamp(self.at + self.processes[process].skew_secs)
    }

    fn is_awake(&self, process: &Process) -> bool {
        process.is_up && process.sleeps_until <= self.at
    }

    /// Advances time: in long steps while nothing happens, by a few seconds while runs are live.
    fn step(&mut self) {
        let due = self.db.tasks.values().flat_map(|task| [task.next, task.retry_at]).flatten();
        let soonest = due.map(Timestamp::as_second).min().unwrap_or(i64::MAX);
        let quiet = (soonest.saturating_sub(self.at)).clamp(1, 1800);
        self.at += if self.db.live.is_empty() { quiet } else { 1 + self.dice.number(3) };
        self.disturb();
        for process in 0..self.processes.len() {
            if self.is_awake(&self.processes[process]) {
                self.work(process);
            }
        }
        self.check();
    }

    /// Injects faults.
    fn disturb(&mut self) {
        let process = self.dice.roll(self.processes.len() as u64) as usize;
        match self.dice.roll(600) {
            0..=3 if self.processes[process].is_up => {
                self.counts.crashes += 1;
                // Its memory is lost, and unfinished uploads are eventually removed.
                let process = &mut self.processes[process];
                (process.is_up, process.held, process.watch) = (false, Vec::new(), LeaseMonitor::default());
                process.watching_since = None;
            }
            4..=7 => {
                let nap = self.dice.pick(&[3, 20, 70, 700]).unwrap_or(3);
                self.processes[process].sleeps_until = self.at + nap;
            }
            8 => {
                let skew = self.dice.pick(&[0, 0, 3600, -3600, 86_400, -86_400, 400 * 86_400]).unwrap_or(0);
                self.processes[process].skew_secs = skew;
            }
            9 => self.db.is_away = true,
            10..=13 => self.edit(),
            _ => {}
        }
        // Processes come back after a while, the database sooner.
        for number in 0..self.processes.len() {
            if !self.processes[number].is_up && self.dice.one_in(20) {
                self.processes[number].is_up = true;
            }
        }
        if self.db.is_away && self.dice.one_in(10) {
            self.db.is_away = false;
        }
    }

    /// Makes a random edit, as people do.
    fn edit(&mut self) {
        let ids: Vec<i64> = self.db.tasks.keys().copied().collect();
        let Some(id) = self.dice.pick(&ids).filter(|_| !self.db.is_away) else { return };
        let now = self.now_of(0);
        let what = self.dice.roll(11);
        let is_running = self.db.is_running(id);
        let stored: Vec<i64> = self.db.backups.keys().copied().collect();
        let Some(task) = self.db.tasks.get_mut(&id) else { return };
        match what {
            0 => {
                task.schedule = schedule(&mut self.dice);
                task.next = if task.is_paused { None } else { task.schedule.next_after(now) };
            }
            1 => (task.is_paused, task.next, task.retry_at) = (true, None, None),
            2 | 3 if task.is_paused => {
                (task.is_paused, task.next, task.losses) = (false, task.schedule.next_after(now), 0);
            }
            4 => task.keep = self.dice.number(4),
            5 if !task.is_paused => {
                task.retry_at = if is_running { task.retry_at } else { None };
                self.db.insert(id, None, 1, false);
            }
            6 => {
                if let Some(backup) = self.dice.pick(&stored).and_then(|id| self.db.backups.get_mut(&id)) {
                    backup.is_damaged = true;
                }
            }
            // A task with a live run cannot be deleted; the backups of a deleted task stay.
            7 if ids.len() > 1 && !is_running => {
                self.db.tasks.remove(&id);
                self.db.runs.retain(|_, run| run.task != id);
                self.db.slots.retain(|(task, _)| *task != id);
            }
            8 => task.source = 1 + self.dice.number(2),
            // Nobody releases a hold in the simulation, so no empty backup may ever replace a real one.
            9 => task.is_source_empty = true,
            10 => task.is_source_empty = false,
            _ => {}
        }
    }

    /// One iteration of the main loop of a process, in the same order as the real one.
    fn work(&mut self, process: usize) {
        let now = self.now_of(process);
        if !self.db.is_away {
            self.pull_back(process, now);
            self.tick(now);
            self.recover(process, now);
            self.clear_away();
            self.claim(process, now);
        }
        self.go_on(process);
    }

    /// Corrects times that a fast clock set too far in the future, unless a running process has a faster clock.
    fn pull_back(&mut self, process: usize, now: Timestamp) {
        let skew = self.processes[process].skew_secs;
        if self.processes.iter().any(|other| other.is_up && other.skew_secs > skew) {
            return;
        }
        for (id, task) in &mut self.db.tasks {
            let Some(due) = task.next.and_then(|next| slots::corrected_next(&task.schedule, next, now)) else {
                continue;
            };
            task.next = Some(due);
            self.db.slots.retain(|(of, slot)| of != id || *slot <= now.as_microsecond());
            self.counts.corrected_next += 1;
        }
        let is_ahead =
            |task: &Task| task.next.is_some_and(|next| task.schedule.next_after(now).is_some_and(|due| due < next));
        assert!(!self.db.tasks.values().any(is_ahead), "a task would wait for longer than its schedule says");
    }

    fn tick(&mut self, now: Timestamp) {
        let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let due: Vec<i64> = self.db.tasks.iter().filter(|(_, task)| is_due(task.next)).map(|(id, _)| *id).collect();
        for id in due {
            let Some(task) = self.db.tasks.get_mut(&id) else { continue };
            let Some(slot) = task.next else { continue };
            let due = slots::due(&task.schedule, slot, now);
            assert!(due.next.is_none_or(|next| next > now), "a slot that has passed is no next one");
            task.next = due.next;
            for slot in due.missed {
                self.counts.missed += 1;
                self.db.insert_ended(id, slot, RunStatus::Failed, FailureCode::Missed);
            }
            let Some((slot, _)) = due.run else { continue };
            let opens = self.db.tasks[&id].schedule.may_start_from(now);
            assert_eq!(opens, now, "I6: a run is queued while the window is closed");
            if self.db.insert(id, Some(slot), 1, true) {
                self.forget_retry(id);
            } else {
                self.counts.skipped += 1;
                self.db.insert_ended(id, slot, RunStatus::Cancelled, FailureCode::Skipped);
            }
        }
        let again: Vec<i64> =
            self.db.tasks.iter().filter(|(_, task)| is_due(task.retry_at)).map(|(id, _)| *id).collect();
        for id in again {
            let task = self.db.tasks.get_mut(&id).expect("a task");
            let (opens, is_bound) = (task.schedule.may_start_from(now), task.is_retry_bound);
            if is_bound && opens > now {
                task.retry_at = Some(opens);
                continue;
            }
            self.forget_retry(id);
            self.counts.retried += u64::from(self.db.insert(id, None, 2, is_bound));
        }
    }

    fn forget_retry(&mut self, id: i64) {
        if let Some(task) = self.db.tasks.get_mut(&id) {
            task.retry_at = None;
        }
    }

    fn recover(&mut self, process: usize, now: Timestamp) {
        let running = self.db.with_status(RunStatus::Running);
        let beats: Vec<Heartbeat> =
            running.map(|(id, run)| Heartbeat { run: RunId(id), epoch: run.epoch, sign: run.sign }).collect();
        for lost in self.processes[process].watch.look(&beats, LEASE, now) {
            let id = lost.run.0;
            let quiet = self.at - self.db.runs[&id].signed_at;
            assert!(quiet >= GIVES_UP_SECS, "a worker that gave a sign {quiet} s ago lost run {id}");
            self.db.end(id, RunStatus::Failed, Some(FailureCode::WorkerLost));
            if let Some(run) = self.db.runs.get_mut(&id) {
                run.epoch += 1;
            }
            self.counts.lost += 1;
            self.follow_up(id, now, true);
        }
    }

    /// Removes the objects of unfinished runs: those in `notes` whose run has ended and that no backup refers to. The
    /// note stays, because the worker may wake up late.
    fn clear_away(&mut self) {
        for run in self.db.notes.clone() {
            let is_running = self.db.runs.get(&run).is_some_and(|run| run.status == RunStatus::Running);
            if !is_running && !self.db.backups.values().any(|backup| backup.run == run) {
                self.counts.cleared += u64::from(self.objects.remove(&run));
            }
        }
    }

    fn claim(&mut self, process: usize, now: Timestamp) {
        let load = |run: &Run| {
            let task = &self.db.tasks[&run.task];
            Load {
                user: UserId(task.user),
                server: Some(ServerId(task.server)),
                destination: None,
                access: None,
                repository: None,
            }
        };
        let free = 2_usize.saturating_sub(self.processes[process].held.len());
        let running = self.db.with_status(RunStatus::Running).map(|(_, run)| load(run));
        let mut chooser = Chooser::new(LIMITS, LongRunCapacity { free, reserved: 0 }, running);
        let mut queued: Vec<(i64, i64, Load)> =
            self.db.with_status(RunStatus::Queued).map(|(id, run)| (run.turn, id, load(run))).collect();
        queued.sort_unstable_by_key(|(turn, id, _)| (*turn, *id));
        for (_, id, load) in queued {
            if !chooser.may_start(load) {
                continue;
            }
            let takes = 1 + self.dice.number(100) * (1 + self.dice.number(7));
            let will_succeed = !self.dice.one_in(4);
            let Some(run) = self.db.runs.get_mut(&id) else { continue };
            (run.status, run.epoch, run.sign) = (RunStatus::Running, run.epoch + 1, now.as_microsecond());
            run.signed_at = self.at;
            let (task, is_bound) = (run.task, run.is_bound);
            self.counts.runs += 1;
            self.db.served = self.db.served.max(Some(run.turn));
            let (epoch, done_at, renewed_at) = (run.epoch, self.at + takes, self.at);
            let opens = self.db.tasks[&task].schedule.may_start_from(now);
            if is_bound && opens > now {
                self.counts.put_off += 1;
                self.db.end(id, RunStatus::Cancelled, Some(FailureCode::WindowClosed));
                self.follow_up(id, now, false);
                continue;
            }
            let held = Held { run: id, epoch, done_at, renewed_at, will_succeed, is_stored: false };
            self.processes[process].held.push(held);
        }
        let (mut servers, mut users) = (BTreeMap::new(), BTreeMap::new());
        for (_, run) in self.db.with_status(RunStatus::Running) {
            let task = &self.db.tasks[&run.task];
            *servers.entry(task.server).or_insert(0) += 1;
            *users.entry(task.user).or_insert(0) += 1;
        }
        assert!(servers.values().all(|count| *count <= LIMITS.per_server), "a server has too many runs");
        assert!(users.values().all(|count| *count <= LIMITS.per_user), "a user has too many runs");
    }

    /// Renews the leases of its runs, gives up those that it cannot renew, and ends those that are done.
    fn go_on(&mut self, process: usize) {
        let now = self.now_of(process);
        for mut held in std::mem::take(&mut self.processes[process].held) {
            let is_ours = |run: &&mut Run| run.status == RunStatus::Running && run.epoch == held.epoch;
            if !self.db.is_away {
                match self.db.runs.get_mut(&held.run).filter(is_ours) {
                    Some(run) => {
                        (run.sign, run.signed_at, held.renewed_at) = (now.as_microsecond(), self.at, self.at);
                    }
                    None => {
                        // It woke up late, and all of its writes are rejected.
                        self.counts.fenced += 1;
                        continue;
                    }
                }
            }
            if self.at - held.renewed_at > GIVES_UP_SECS {
                self.counts.fenced += 1;
            } else if held.done_at <= self.at && held.will_succeed && !held.is_stored && !self.db.is_away {
                // First the note, then the object; the object is recorded some time later.
                self.db.notes.insert(held.run);
                self.objects.insert(held.run);
                (held.is_stored, held.done_at) = (true, self.at + self.dice.number(8));
                self.processes[process].held.push(held);
            } else if held.done_at > self.at || self.db.is_away {
                self.processes[process].held.push(held);
            } else {
                self.finish(&held, now);
            }
        }
    }

    /// The transaction at the end of a run, fenced by its epoch.
    fn finish(&mut self, held: &Held, now: Timestamp) {
        assert_eq!(self.db.runs[&held.run].epoch, held.epoch, "I4: the end of a run is not fenced");
        if !held.will_succeed {
            self.db.end(held.run, RunStatus::Failed, Some(FailureCode::Lost));
            return self.follow_up(held.run, now, false);
        }
        self.db.notes.remove(&held.run);
        self.db.end(held.run, RunStatus::Successful, None);
        self.follow_up(held.run, now, false);
        let task = self.db.runs[&held.run].task;
        let id = self.db.id();
        let (source, is_empty) = (self.db.tasks[&task].source, self.db.tasks[&task].is_source_empty);
        let judgement = self.judge(task, source, is_empty);
        self.db.tasks.entry(task).and_modify(|task| task.is_held = judgement.hold.is_on());
        let backup = Backup {
            task,
            run: held.run,
            source,
            is_empty,
            is_suspicious: !judgement.signs.is_empty(),
            is_damaged: false,
            is_deleted: false,
        };
        self.db.backups.insert(id, backup);
        let own = self.db.backups.iter().filter(|(_, backup)| backup.task == task && !backup.is_deleted);
        let stored: Vec<Stored> = own
            .map(|(id, backup)| Stored {
                id: BackupId(*id),
                source: backup.source.to_string(),
                is_suspicious: backup.is_suspicious,
                is_damaged: backup.is_damaged,
                is_in_use: false,
            })
            .collect();
        let plan = match judgement.hold.is_on() {
            true => Vec::new(),
            false => {
                retention::plan(&stored, &source.to_string(), RetentionPolicy::of_number(self.db.tasks[&task].keep))
            }
        };
        let is_good = |id: i64, db: &Database| !db.backups[&id].is_damaged;
        for (id, verdict) in plan {
            if let Verdict::Remove(_) = verdict {
                // I3: only if there is a newer good backup, and only of the same task.
                let newer = stored.iter().filter(|other| other.id > id && is_good(other.id.0, &self.db)).count();
                assert!(newer > 0 && self.db.backups[&id.0].task == task, "I3: backup {id} was removed too early");
                let gone = &self.db.backups[&id.0];
                let replaces = |other: &&Stored| {
                    let other = (other.id, &self.db.backups[&other.id.0]);
                    other.0 > id && !other.1.is_damaged && !other.1.is_empty && other.1.source == gone.source
                };
                let is_replaced = gone.is_empty || stored.iter().any(|other| replaces(&other));
                assert!(is_replaced, "backup {id} was removed, and no newer one has what it had");
                self.db.backups.entry(id.0).and_modify(|backup| backup.is_deleted = true);
                self.objects.remove(&self.db.backups[&id.0].run);
                self.counts.removed += 1;
            }
        }
    }

    /// Judges a new backup of a task against the normal ones of the same source.
    fn judge(&self, task: i64, source: i64, is_empty: bool) -> Judgement {
        let measure = |is_empty: bool| match is_empty {
            true => Measure { plain_bytes: 10_240, stored_bytes: Some(200), entries: 1 },
            false => Measure { plain_bytes: 5_000_000, stored_bytes: Some(2_000_000), entries: 300 },
        };
        let is_normal = |backup: &&Backup| {
            let is_own = backup.task == task && backup.source == source;
            is_own && !backup.is_damaged && !backup.is_suspicious
        };
        let kept = self.db.backups.values().rev().filter(is_normal);
        let normal: Vec<Measure> = kept.map(|backup| measure(backup.is_empty)).collect();
        let is_held = self.db.tasks[&task].is_held;
        anomaly::judge(Finished {
            measure: measure(is_empty),
            is_empty,
            is_half_restored: false,
            lacking: &[],
            normal: &normal,
            is_held,
        })
    }

    fn follow_up(&mut self, run: i64, now: Timestamp, is_loss: bool) {
        let run = &self.db.runs[&run];
        let Some(task) = self.db.tasks.get_mut(&run.task) else { return };
        task.losses = if is_loss { task.losses + 1 } else { 0 };
        task.is_retry_bound = run.is_bound;
        if task.losses >= 3 {
            (task.is_paused, task.next, task.retry_at, task.losses) = (true, None, None, 0);
        } else if run.code == Some(FailureCode::WindowClosed) {
            task.retry_at = (!task.is_paused).then(|| task.schedule.may_start_from(now));
        } else if run.attempt == 1 && !task.is_paused && run.code.is_some_and(FailureCode::can_retry) {
            task.retry_at = Some(clock::from_micros(now.as_microsecond() + 60_000_000));
        }
    }

    fn check(&mut self) {
        for number in 0..self.processes.len() {
            let is_watching = !self.db.is_away && self.is_awake(&self.processes[number]);
            let process = &mut self.processes[number];
            process.watching_since = if is_watching { process.watching_since.or(Some(self.at)) } else { None };
        }
        let longest = self.processes.iter().filter_map(|process| process.watching_since).min();
        for (id, run) in self.db.with_status(RunStatus::Running) {
            // I5: a silent run is detected by a process that has watched it long enough.
            let quiet = (self.at - run.signed_at).min(longest.map_or(0, |since| self.at - since));
            assert!(quiet <= RECOVERY_SECS, "I5: run {id} has been silent for {quiet} s");
        }
        for (id, backup) in &self.db.backups {
            // I2: the object of every recorded backup exists.
            let is_there = self.objects.contains(&backup.run);
            assert!(backup.is_deleted || is_there, "I2: backup {id} is recorded, but its object is gone");
        }
        // And there are no unknown objects.
        for run in &self.objects {
            let is_recorded = self.db.backups.values().any(|backup| backup.run == *run && !backup.is_deleted);
            assert!(is_recorded || self.db.notes.contains(run), "the object of run {run} is unknown");
        }
    }
}

fn schedule(dice: &mut Dice) -> Schedule {
    let frequency = Frequency::ALL[dice.roll(4) as usize];
    let time = TimeOfDay::parse(&format!("{:02}:{:02}", dice.roll(24), dice.roll(60)));
    let zones = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"];
    // Time zones are slow to compute, so most schedules have none.
    let zone = (dice.roll(5) == 0).then(|| Zone::parse(zones[dice.roll(4) as usize])).flatten();
    // Less than half an hour fits every frequency.
    let spread = Spread::new(dice.number(30), dice.number(1_000_000));
    Schedule {
        frequency,
        time,
        day_of_week: dice.number(7),
        day_of_month: 1 + dice.number(28),
        cron: None,
        zone,
        spread,
        window: window(dice),
    }
}

/// Half of the tasks may start at any time, the others within a few hours.
fn window(dice: &mut Dice) -> Option<Window> {
    let (start, hours) = (dice.roll(24), 1 + dice.roll(8));
    let time = |hour: u64| TimeOfDay::parse(&format!("{:02}:00", hour % 24)).expect("a time");
    Window::new(time(start), time(start + hours)).filter(|_| dice.one_in(2))
}

fn stamp(second: i64) -> Timestamp {
    clock::from_micros(second * 1_000_000)
}

fn simulate(seed: u64) -> Counts {
    let mut world = World::new(seed);
    let until = world.at + DAYS * 86_400;
    while world.at < until {
        world.step();
    }
    // No more faults: everything comes back, and all runs end within a lease plus the longest run.
    world.db.is_away = false;
    for process in &mut world.processes {
        (process.is_up, process.sleeps_until, process.skew_secs) = (true, 0, 0);
    }
    for task in world.db.tasks.values_mut() {
        (task.next, task.retry_at, task.is_paused) = (None, None, true);
    }
    let waiting = i64::try_from(world.db.live.len()).unwrap_or(i64::MAX);
    let settled_by = world.at + RECOVERY_SECS + (waiting + 1) * LONGEST_RUN_SECS;
    while !world.db.live.is_empty() {
        assert!(world.at < settled_by, "I5: something is stuck");
        world.at += 1;
        for process in 0..world.processes.len() {
            world.work(process);
        }
        world.check();
    }
    world.clear_away();
    let kept = world.db.backups.values().filter(|backup| !backup.is_deleted).count();
    assert_eq!(kept, world.objects.len(), "in the end nothing is there but what is on record");
    world.counts
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.lost += other.lost;
        self.missed += other.missed;
        self.skipped += other.skipped;
        self.retried += other.retried;
        self.removed += other.removed;
        self.crashes += other.crashes;
        self.fenced += other.fenced;
        self.cleared += other.cleared;
        self.corrected_next += other.corrected_next;
        self.put_off += other.put_off;
    }
}

fn simulate_all(seeds: impl Iterator<Item = u64>) -> Counts {
    let mut all = Counts::default();
    for seed in seeds {
        let simulated = std::panic::catch_unwind(|| simulate(seed));
        all += simulated.unwrap_or_else(|_| panic!("seed {seed} fails; keep it in KEPT"));
    }
    all
}

#[test]
fn the_invariants_hold_during_a_month_of_faults() {
    simulate_all(KEPT.iter().copied());
    let halves = std::thread::scope(|scope| {
        let first = scope.spawn(|| simulate_all(0..SEEDS / 2));
        (simulate_all(SEEDS / 2..SEEDS), first.join())
    });
    let mut all = halves.0;
    all += halves.1.expect("the first half");
    // A simulation in which nothing happens proves nothing.
    let often = [all.runs, all.lost, all.missed, all.skipped, all.retried, all.removed, all.crashes, all.fenced];
    let seldom = [all.cleared, all.corrected_next, all.put_off];
    let is_enough = often.into_iter().all(|count| count > 500) && seldom.into_iter().all(|count| count > 50);
    assert!(is_enough, "too little happened: {all:?}");
}
