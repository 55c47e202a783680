//! `cargo xtask fuzz`: every parser of foreign bytes under made-up and damaged inputs, each target in a process of its
//! own, so that one that aborts, takes too much memory or never ends takes nothing else with it.
//!
//! Arguments: seconds in all, a seed, how many processes at once, and names of targets, or none for all.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it does")]

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use holdfast_testkit::fuzz::{FuzzTarget, TARGETS};

/// What one input may take. The largest honest need is a key of age's at its highest cost that is accepted, 256 MiB.
const MEMORY_BYTES: u64 = 512 * 1024 * 1024;
/// Of the processor, so that a busy machine is no finding.
const LONGEST_INPUT: Duration = Duration::from_secs(2);
/// By the clock, for an input that waits for something that never comes.
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// A target that fails more often is left alone: the first few say enough.
const MOST_CRASHES: usize = 8;
/// Before the first input there are samples to make.
const LONGEST_START: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["one", name, seed, first, seconds, note] = arguments[..] {
        one(target(name), number(seed), number(first), Duration::from_secs(number(seconds)), Path::new(note));
        return ExitCode::SUCCESS;
    }
    let [seconds, seed, processes, names @ ..] = &arguments[..] else {
        eprintln!("seconds, a seed, a number of processes and names of targets are needed");
        return ExitCode::FAILURE;
    };
    let (seconds, seed, processes) = (number(seconds), number(seed), number(processes));
    let chosen: Vec<&FuzzTarget> = match names {
        [] => TARGETS.iter().collect(),
        names => names.iter().map(|name| target(name)).collect(),
    };
    let count = chosen.len() as u64;
    let seconds = (seconds * processes.clamp(1, count) / count).max(1);
    println!("seed {seed}, {seconds} s for each target");
    println!("{:<14} {:>12} {:>10} {:>9} {:>8}", "target", "inputs", "inputs/s", "accepted", "crashes");
    let waiting = Mutex::new(chosen.into_iter());
    let work = || {
        let mut crashes = 0;
        loop {
            let next = waiting.lock().expect("nobody panics with it").next();
            let Some(target) = next else { return crashes };
            crashes += watch(target, seed, Duration::from_secs(seconds));
        }
    };
    let crashes: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processes.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker ends")).sum()
    });
    if crashes == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("{crashes} inputs failed; they are kept in crates/holdfast-testkit/fuzz/cases");
    ExitCode::FAILURE
}

fn target(name: &str) -> &'static FuzzTarget {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    FuzzTarget::named(name).unwrap_or_else(|| panic!("{name} is no target; there are {}", names.join(", ")))
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

/// What the processes of one target have told.
#[derive(Default)]
struct Told {
    inputs: u64,
    accepted: u64,
    crashes: usize,
}

/// Runs one target for so long, in a new process after each that dies. Gives the number of crashes.
fn watch(target: &FuzzTarget, seed: u64, time: Duration) -> usize {
    let note = tempfile::NamedTempFile::new().expect("a temporary file");
    let started = Instant::now();
    let (mut told, mut first) = (Told::default(), 0);
    while let Some(left) = time.checked_sub(started.elapsed()).filter(|left| left.as_secs() > 0 || first == 0) {
        if told.crashes >= MOST_CRASHES {
            break;
        }
        set_note(note.as_file(), u64::MAX);
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["one", target.name, &seed.to_string(), &first.to_string(), &left.as_secs().max(1).to_string()]);
        let mut child = command.arg(note.path()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a child");
        let ended = follow(&mut child, note.as_file(), &mut told);
        let at = read_note(note.as_file());
        let Err(what) = ended else { break };
        let input = if at == u64::MAX { Vec::new() } else { target.input(seed, at) };
        let path = target.keep(&input).expect("a folder for cases");
        println!("{}: input {at} {what}: {}", target.name, path.display());
        told.crashes += 1;
        first = at.wrapping_add(1);
    }
    let seconds = started.elapsed().as_secs_f64();
    let Told { inputs, accepted, crashes } = told;
    let (speed, share) = (inputs as f64 / seconds, 100.0 * accepted as f64 / inputs.max(1) as f64);
    println!("{:<14} {inputs:>12} {speed:>10.0} {share:>8.1}% {crashes:>8}", target.name);
    crashes
}

/// Reads what a child tells, and ends it when it stays with one input for too long. An error says how it ended early.
fn follow(child: &mut Child, note: &File, told: &mut Told) -> Result<(), String> {
    let (sender, lines) = channel();
    let stdout = child.stdout.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line).map_err(drop))
    });
    let id = child.id();
    let (before, mut at) = ((told.inputs, told.accepted), u64::MAX);
    let (mut since, mut used) = (Instant::now(), processor_time(id));
    let is_hung = loop {
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => match line.split_once(' ') {
                Some(("crash", rest)) => {
                    println!("{rest}");
                    told.crashes += 1;
                }
                Some((inputs, accepted)) => {
                    told.inputs = before.0 + inputs.parse::<u64>().unwrap_or_default();
                    told.accepted = before.1 + accepted.parse::<u64>().unwrap_or_default();
                }
                None => {}
            },
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = read_note(note);
        if now != at {
            (at, since, used) = (now, Instant::now(), processor_time(id));
            continue;
        }
        let longest = if at == u64::MAX { LONGEST_START } else { LONGEST_INPUT };
        if processor_time(id).saturating_sub(used) > longest || since.elapsed() > LONGEST_WAIT {
            break true;
        }
    };
    if is_hung {
        child.kill().map_err(|error| error.to_string())?;
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    drop(lines);
    let _ended = reader.join();
    match (is_hung, status.success()) {
        (true, _) => Err(format!("took longer than {} s", LONGEST_INPUT.as_secs())),
        (false, true) => Ok(()),
        (false, false) => Err(format!("ended the process ({status}), as too much memory would")),
    }
}

/// What a process has had of the processors until now.
fn processor_time(process: u32) -> Duration {
    const TICKS_PER_SECOND: u64 = 100;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name before it may hold blanks and brackets.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// Which input is under way, for whoever watches.
fn set_note(note: &File, number: u64) {
    note.write_all_at(&number.to_le_bytes(), 0).expect("the note can be written");
}

fn read_note(note: &File) -> u64 {
    let mut number = [0; 8];
    note.read_exact_at(&mut number, 0).map_or(u64::MAX, |()| u64::from_le_bytes(number))
}

/// The child: cases first, then inputs by number, until the time is up.
fn one(target: &FuzzTarget, seed: u64, first: u64, time: Duration, note: &Path) {
    let limit = rustix::process::Rlimit { current: Some(MEMORY_BYTES), maximum: Some(MEMORY_BYTES) };
    rustix::process::setrlimit(rustix::process::Resource::Data, limit).expect("a limit can be lowered");
    std::panic::set_hook(Box::new(|_| {}));
    let note = File::options().write(true).open(note).expect("the note can be opened");
    if first == 0 {
        for (path, case) in target.cases() {
            if let Err(message) = target.check(&case) {
                println!("crash {}: {path} fails again: {}", target.name, one_line(&message));
            }
        }
    }
    let started = Instant::now();
    let (mut accepted, mut crashes, mut told) = (0_u64, 0, Instant::now());
    for number in first.. {
        set_note(&note, number);
        let input = target.input(seed, number);
        match target.check(&input) {
            Ok(was_accepted) => accepted += u64::from(was_accepted),
            Err(message) => {
                let path = target.keep(&input).expect("a folder for cases");
                let message = one_line(&message);
                println!("crash {}: input {number}: {message}: {}", target.name, path.display());
                crashes += 1;
            }
        }
        let is_over = started.elapsed() >= time || crashes >= MOST_CRASHES;
        if is_over || told.elapsed() > Duration::from_millis(500) {
            println!("{} {accepted}", number + 1 - first);
            told = Instant::now();
        }
        if is_over {
            return;
        }
    }
}

fn one_line(message: &str) -> String {
    let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    line.trim().to_owned()
}
