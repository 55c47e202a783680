//! What a run costs: seconds, processor time at both ends of the connection, memory, and what it stored.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const MIB: f64 = 1024.0 * 1024.0;
const MB: f64 = 1e6;

#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub wall: f64,
    /// Processor seconds of the tool and of everything that it starts on its own machine.
    pub cpu: f64,
    /// Processor seconds of sshd and of what it starts: the other end of the connection.
    pub far_cpu: f64,
    /// The largest process of the tool; of Holdfast, the whole service.
    pub peak_mib: f64,
    pub added_mb: f64,
}

impl Cost {
    /// The run with the median time, as it was.
    pub fn median(mut costs: Vec<Self>) -> Self {
        costs.sort_by(|a, b| a.wall.total_cmp(&b.wall));
        costs[costs.len() / 2]
    }
}

/// Runs a program to its end, which must be a success.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The same, measured, without its output. GNU time knows the processor time and the memory of ended processes, and as
/// the parent of the program it is small: the memory of a parent counts until a program is loaded.
pub fn timed(command: &Command) -> Cost {
    let figures = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut time = Command::new("/usr/bin/time");
    time.args(["--format=%U %S %M", "--output"]).arg(figures.path());
    time.arg(command.get_program()).args(command.get_args()).stdout(Stdio::null());
    time.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let started = Instant::now();
    run(&mut time);
    let wall = started.elapsed().as_secs_f64();
    let text = std::fs::read_to_string(figures.path()).expect("the figures");
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [user, system, peak_kib] = numbers[..] else { panic!("no figures in {text}") };
    Cost { wall, cpu: user + system, peak_mib: peak_kib * 1024.0 / MIB, ..Cost::default() }
}

struct Process {
    name: String,
    parent: u32,
    /// Hundredths of a second, with those of the children that have ended.
    ticks: f64,
}

impl Process {
    fn all() -> BTreeMap<u32, Self> {
        let entries = std::fs::read_dir("/proc").expect("Linux").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid| Some((pid, Self::of(pid)?))).collect()
    }

    /// `None` if it has ended.
    fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (start, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        // The 12th to 15th fields after the name: user and system time, own and of ended children.
        let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<f64>().ok()).sum();
        Some(Self { name: start.split_once('(')?.1.to_owned(), parent: fields.get(1)?.parse().ok()?, ticks })
    }
}

/// Processor seconds of a process and of everything that it has started, running or ended.
pub fn cpu_of_tree(root: u32) -> f64 {
    let processes = Process::all();
    let mut tree = BTreeSet::from([root]);
    loop {
        let children = processes.iter().filter(|(_, process)| tree.contains(&process.parent)).map(|(pid, _)| *pid);
        let grown: BTreeSet<u32> = tree.iter().copied().chain(children).collect();
        if grown.len() == tree.len() {
            break;
        }
        tree = grown;
    }
    tree.iter().filter_map(|pid| processes.get(pid)).map(|process| process.ticks).sum::<f64>() / 100.0
}

/// The sshd of the test support, which a shell of ours keeps.
pub fn find_sshd() -> u32 {
    let processes = Process::all();
    let is_ours = |pid: u32| processes.get(&pid).is_some_and(|keeper| keeper.parent == std::process::id());
    let found = processes.iter().find(|(_, process)| process.name == "sshd" && is_ours(process.parent));
    *found.expect("sshd runs").0
}

/// A figure of `/proc/PID/status`, as in `VmHWM`.
pub fn memory_mib(pid: u32, figure: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a running process");
    let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
    let kib = line.expect("a line of memory").trim().trim_end_matches(" kB").parse::<f64>().expect("a number");
    kib * 1024.0 / MIB
}

/// The size of all files in a folder; of hard links to one file, once. Zero if there is no such folder.
pub fn stored_mb(folder: &Path) -> f64 {
    let mut seen = BTreeSet::new();
    let (mut folders, mut bytes) = (vec![folder.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let facts = entry.metadata().expect("a file that stays");
            if facts.is_dir() {
                folders.push(entry.path());
            } else if facts.nlink() == 1 || seen.insert(facts.ino()) {
                bytes += facts.len();
            }
        }
    }
    bytes as f64 / MB
}
