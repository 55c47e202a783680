//! `cargo xtask bench`: measures the service under load from the same machine, compared with an empty handler of the
//! same web framework, and backups compared with a shell pipeline.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::commands::{PACKAGED, Result, cargo, output, root, step};
use crate::packages::{self, BORG, POSTGRESQL, RESTIC, RSYNC, SSHFS, TIME, WRK};

const USERS: &str = "1000";
const TASKS_EACH: &str = "100";
const CONNECTIONS: &str = "64";

pub fn api(arguments: &[&str]) -> Result<()> {
    let seconds = match arguments {
        [] => "10",
        ["--seconds", seconds] if seconds.parse::<u32>().is_ok() => seconds,
        _ => return Err("bench api takes only --seconds N".to_owned()),
    };
    packages::install(&[POSTGRESQL, WRK])?;
    build_support("bench_support")?;

    let mut table = Table::default();
    let mut empty = Running::start(Command::new(support("bench_support")).arg("empty"))?;
    let address = empty.line()?;
    table.yardstick = load(&address, seconds, "empty", None)?.per_second;
    drop(empty);
    table.row("–", "empty handler", &Measured { per_second: table.yardstick, ..Measured::default() }, "");

    measure("SQLite", None, seconds, &mut table)?;
    let mut postgres = Running::start(Command::new(support("bench_support")).arg("postgres"))?;
    let url = postgres.line()?;
    measure("PostgreSQL", Some(url), seconds, &mut table)?;
    println!("{}", table.text);
    Ok(())
}

/// Compares backups and restores with the pipeline that scripts use.
pub fn archive(arguments: &[&str]) -> Result<()> {
    let (mut repeats, mut only) = ("3", None);
    for pair in arguments.chunks(2) {
        match pair {
            ["--repeats", number] if number.parse::<u32>().is_ok_and(|number| number > 0) => repeats = number,
            ["--only", name] => only = Some(name),
            _ => return Err("bench archive takes --repeats N and --only NAME, as in 'large, 0 ms, S3'".to_owned()),
        }
    }
    packages::install(&[packages::SSHD, packages::ZSTD])?;
    build_support("bench_archive")?;
    let mut measure = in_memory("bench_archive");
    step("measure", measure.arg(target("holdfast")).arg(root().join("docs")).arg(repeats).args(only))
}

/// Compares backups into repositories with restic, borg and rsync.
pub fn repository(arguments: &[&str]) -> Result<()> {
    const USAGE: &str = "bench repository takes --repeats N, --latency, --s3, --million, --small, --logs, \
                         --only NAME, as in 'large, 0 ms, S3', and --binary PATH";
    let (mut passed, mut binary, mut rest) = (Vec::new(), None, arguments);
    while let [first, more @ ..] = rest {
        rest = match (*first, more) {
            ("--latency" | "--s3" | "--million" | "--small" | "--logs", _) => {
                passed.push(*first);
                more
            }
            ("--repeats", [number, more @ ..]) if number.parse::<u32>().is_ok_and(|number| number > 0) => {
                passed.extend(["--repeats", number]);
                more
            }
            ("--only", [name, more @ ..]) => {
                passed.extend(["--only", name]);
                more
            }
            ("--binary", [path, more @ ..]) => {
                binary = Some(PathBuf::from(path));
                more
            }
            _ => return Err(USAGE.to_owned()),
        };
    }
    packages::install(&[packages::SSHD, packages::SSH, RESTIC, BORG, SSHFS, RSYNC, TIME])?;
    match binary {
        Some(_) => build_example("bench_repository")?,
        None => build_support("bench_repository")?,
    }
    let mut measure = in_memory("bench_repository");
    measure.arg(binary.unwrap_or_else(|| target("holdfast"))).args(&passed);
    // A part of the measurements is no chart, and tiny sources are no measurement.
    if !passed.iter().any(|argument| ["--only", "--small"].contains(argument)) {
        measure.arg("--chart").arg(root().join("docs/repository.svg"));
    }
    step("measure", &mut measure)
}

/// What measures, in memory where possible, so that the speed of the disk does not affect the comparison.
fn in_memory(example: &str) -> Command {
    let mut measure = Command::new(support(example));
    if Path::new("/dev/shm").is_dir() {
        measure.env("TMPDIR", "/dev/shm");
    }
    measure
}

/// Kills and disturbs the service for the given time.
pub fn torture(arguments: &[&str]) -> Result<()> {
    let (mut seed, mut minutes, mut kills) = ("1", "10", "60");
    for pair in arguments.chunks(2) {
        match pair {
            ["--seed", number] => seed = number,
            ["--minutes", number] => minutes = number,
            ["--kills", number] => kills = number,
            _ => return Err("torture takes --seed N, --minutes N and --kills N".to_owned()),
        }
    }
    if [seed, minutes, kills].iter().any(|number| number.parse::<u64>().is_err()) {
        return Err("torture takes whole numbers".to_owned());
    }
    packages::install(&[packages::SSHD, packages::SSH, POSTGRESQL])?;
    build_support("torture")?;
    step("torture", Command::new(support("torture")).arg(target("holdfast")).args([seed, kills, minutes]))
}

/// Kills backups, prunes and checks of a repository, and has restic check what is left.
pub fn torture_repository(arguments: &[&str]) -> Result<()> {
    let (mut seed, mut kills) = ("1", "500");
    for pair in arguments.chunks(2) {
        match pair {
            ["--seed", number] if number.parse::<u64>().is_ok() => seed = number,
            ["--kills", number] if number.parse::<usize>().is_ok() => kills = number,
            _ => return Err("torture-repository takes --seed N and --kills N".to_owned()),
        }
    }
    packages::install(&[packages::SSHD, packages::SSH, RESTIC])?;
    build_example("repository_stress")?;
    step("torture", in_memory("repository_stress").args(["kills", kills, seed]))
}

/// Measures a repository with millions of blobs, beside restic.
pub fn blobs(arguments: &[&str]) -> Result<()> {
    let count = match arguments {
        [] => "10000000",
        ["--count", count] if count.parse::<usize>().is_ok() => count,
        _ => return Err("bench blobs takes only --count N".to_owned()),
    };
    packages::install(&[packages::SSHD, packages::SSH, RESTIC, TIME])?;
    build_example("repository_stress")?;
    step("measure", in_memory("repository_stress").args(["blobs", count]))
}

/// Measures many runs that become due at once, and the cost of idle tasks.
pub fn scheduler() -> Result<()> {
    packages::install(&[POSTGRESQL])?;
    build_support("bench_support")?;
    build_support("bench_scheduler")?;
    step("measure", Command::new(support("bench_scheduler")).arg(target("holdfast")).arg(support("bench_support")))
}

/// Measures how long pages take to load.
pub fn pages() -> Result<()> {
    packages::install(&[POSTGRESQL])?;
    build_support("bench_pages")?;
    step("measure", Command::new(support("bench_pages")).arg(target("holdfast")))
}

/// Measures lists and upkeep with millions of runs and backups.
pub fn growth(arguments: &[&str]) -> Result<()> {
    let (mut runs, mut backups, mut only) = ("5000000", "2000000", "both");
    for pair in arguments.chunks(2) {
        match pair {
            ["--runs", number] if number.parse::<u32>().is_ok() => runs = number,
            ["--backups", number] if number.parse::<u32>().is_ok() => backups = number,
            ["--only", name @ ("sqlite" | "postgres")] => only = name,
            _ => return Err("bench growth takes --runs N, --backups N and --only sqlite or postgres".to_owned()),
        }
    }
    packages::install(&[POSTGRESQL])?;
    build_support("bench_growth")?;
    step("measure", Command::new(support("bench_growth")).arg(target("holdfast")).args([runs, backups, only]))
}

/// Measures what users are told when many servers go away and come back.
pub fn incident(arguments: &[&str]) -> Result<()> {
    let servers = match arguments {
        [] => "500",
        ["--servers", number] if number.parse::<u32>().is_ok_and(|number| number > 3) => number,
        _ => return Err("bench incident takes only --servers N, more than 3".to_owned()),
    };
    packages::install(&[POSTGRESQL, packages::SSHD, packages::SSH])?;
    build_support("bench_incident")?;
    step("measure", Command::new(support("bench_incident")).arg(target("holdfast")).arg(servers))
}

/// Measures the idle service, next to the published figures of its peers.
pub fn footprint() -> Result<()> {
    const STARTS: usize = 7;
    step("build the service", &mut cargo(&["build", "--profile", PACKAGED, "--locked", "--package", "holdfast"]))?;
    let binary = target("holdfast");
    let size = std::fs::metadata(&binary).map_err(|error| error.to_string())?.len() as f64 / 1e6;
    let start = |folder: &Path| -> Result<(u128, Running)> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new(&binary);
        command.arg("serve").env("HOLDFAST_DATA_DIR", folder.join("data")).env("HOLDFAST_LISTEN", &address);
        let started = Instant::now();
        let service = Running::start(command.env("HOLDFAST_LOG", "warn"))?;
        wait_until_ready(&address)?;
        Ok((started.elapsed().as_millis(), service))
    };
    let (mut first_times, mut times, mut idle) = (Vec::new(), Vec::new(), None);
    for number in 0..STARTS {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        first_times.push(start(folder.path())?.0);
        let (time, service) = start(folder.path())?;
        times.push(time);
        if number + 1 == STARTS {
            idle = Some(Idle::watch(service.child.id())?);
        }
    }
    first_times.sort_unstable();
    times.sort_unstable();
    let idle = idle.ok_or("no process was measured")?;
    println!("| what | Holdfast, measured here | goal | peers, as published |\n|---|---|---|---|");
    println!(
        "| memory when idle | {:.1} MiB, {:.2} % CPU | ≤ 40 MiB | Databasus: at least 500 MB of RAM; others say nothing |",
        idle.memory_mib, idle.cpu_percent
    );
    println!(
        "| what is installed | {size:.1} MB, one file | ≤ 40 MB | Backrest: an image of 220 MB (2025); others say nothing |"
    );
    println!(
        "| start to readiness | {} ms, {} ms with an empty folder | ≤ 1 s | Databasus: up to about 2 minutes; others say nothing |",
        times[STARTS / 2],
        first_times[STARTS / 2]
    );
    Ok(())
}

fn build_support(example: &str) -> Result<()> {
    step("build the service", &mut cargo(&["build", "--profile", PACKAGED, "--locked", "--package", "holdfast"]))?;
    build_example(example)
}

fn build_example(example: &str) -> Result<()> {
    let build = ["build", "--profile", "profiling", "--locked", "--package", "holdfast-testkit", "--example", example];
    step("build the support", &mut cargo(&build))
}

fn target(name: &str) -> PathBuf {
    root().join("target").join(PACKAGED).join(name)
}

fn support(example: &str) -> PathBuf {
    root().join("target/profiling/examples").join(example)
}

/// Runs all measurements of one engine on a new database.
fn measure(engine: &str, url: Option<String>, seconds: &str, table: &mut Table) -> Result<()> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let url = url.unwrap_or_else(|| format!("sqlite://{}", folder.path().join("holdfast.db").display()));
    let (key, users) = (folder.path().join("master.key"), folder.path().join("users"));
    println!("── seed {engine} with {USERS} users of {TASKS_EACH} tasks");
    let started = Instant::now();
    let lines =
        output(Command::new(support("bench_support")).args(["seed", &url]).arg(&key).args([USERS, TASKS_EACH]))?;
    std::fs::write(&users, lines).map_err(|error| error.to_string())?;
    println!("── seeded in {:.0} s", started.elapsed().as_secs_f64());

    let port = free_port()?;
    let address = format!("127.0.0.1:{port}");
    let started = Instant::now();
    let mut command = Command::new(target("holdfast"));
    command.arg("serve").env("HOLDFAST_DATA_DIR", folder.path()).env("HOLDFAST_LISTEN", &address);
    command.env("HOLDFAST_DATABASE_URL", &url).env("HOLDFAST_LOG", "warn");
    let service = Running::start(&mut command)?;
    wait_until_ready(&address)?;
    let ready_ms = started.elapsed().as_millis();
    let idle = Idle::watch(service.child.id())?;
    table.note(&format!(
        "{engine}: ready after {ready_ms} ms; idle with 100,000 tasks: {:.1} MiB, {:.2} % CPU",
        idle.memory_mib, idle.cpu_percent
    ));
    for (kind, goal) in goals(engine) {
        let measured = load(&address, seconds, kind, Some(&users))?;
        table.row(engine, kind, &measured, goal);
    }
    let after = Idle::watch(service.child.id())?;
    table.note(&format!("{engine}: after the load: {:.1} MiB, {:.2} % CPU", after.memory_mib, after.cpu_percent));
    Ok(())
}

fn goals(engine: &str) -> [(&'static str, &'static str); 5] {
    let list = if engine == "SQLite" { "≥ 10,000/s, p99 ≤ 15 ms" } else { "≥ 6,000/s" };
    [("list", list), ("show", "≥ 15,000/s"), ("upcoming", ""), ("create", "≥ 250/s, max ≤ 1 s"), ("mixed", "")]
}

/// The result of one run of wrk.
#[derive(Default)]
struct Measured {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    failed: u64,
}

fn load(address: &str, seconds: &str, kind: &str, users: Option<&Path>) -> Result<Measured> {
    println!("── {kind} for {seconds} s");
    let mut wrk = Command::new("wrk");
    wrk.args([
        "--threads",
        "2",
        "--connections",
        CONNECTIONS,
        "--timeout",
        "10s",
        "--duration",
        &format!("{seconds}s"),
    ]);
    wrk.arg("--script").arg(root().join("xtask/src/bench.lua")).arg(format!("http://{address}")).args(["--", kind]);
    if let Some(users) = users {
        wrk.arg(users);
    }
    let printed = output(&mut wrk)?;
    let result = printed.lines().find_map(|line| line.strip_prefix("RESULT "));
    let result = result.ok_or_else(|| format!("wrk printed no result:\n{printed}"))?;
    let mut numbers = result.split(' ').map(|text| text.parse::<f64>().unwrap_or(f64::NAN));
    let mut next = || numbers.next().unwrap_or(f64::NAN);
    Ok(Measured { per_second: next(), p50_ms: next(), p99_ms: next(), max_ms: next(), failed: next() as u64 })
}

#[derive(Default)]
struct Table {
    yardstick: f64,
    text: String,
}

impl Table {
    fn row(&mut self, engine: &str, kind: &str, measured: &Measured, goal: &str) {
        if self.text.is_empty() {
            self.text.push_str("| database | request | per second | of the empty handler | p50 ms | p99 ms | max ms | failed | goal |\n");
            self.text.push_str("|---|---|---|---|---|---|---|---|---|\n");
        }
        let Measured { per_second, p50_ms, p99_ms, max_ms, failed } = measured;
        let share = per_second / self.yardstick * 100.0;
        let row = format!(
            "| {engine} | {kind} | {per_second:.0} | {share:.1} % | {p50_ms:.2} | {p99_ms:.2} | {max_ms:.1} | {failed} | {goal} |\n"
        );
        print!("{row}");
        self.text.push_str(&row);
    }

    fn note(&mut self, text: &str) {
        println!("{text}");
        self.text.push_str(&format!("| {text} |\n"));
    }
}

/// A running program; terminated when dropped.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Running {
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("cannot run {command:?}: {error}"))?;
        Ok(Self { stdin: child.stdin.take(), child })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The first line of its output.
    fn line(&mut self) -> Result<String> {
        let stdout = self.child.stdout.take().ok_or("the output was already read")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // The helper that runs PostgreSQL exits when its input closes; servers need a signal.
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        if asked.is_err() || self.child.wait().is_err() {
            eprintln!("process {} may still be running", self.child.id());
        }
    }
}

pub fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

pub fn wait_until_ready(address: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if is_ready(address).unwrap_or(false) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("the service did not become ready".to_owned())
}

fn is_ready(address: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line.contains(" 200 "))
}

/// Memory and processor time of a process that has nothing to do.
struct Idle {
    memory_mib: f64,
    cpu_percent: f64,
}

impl Idle {
    const SECONDS: u64 = 10;

    fn watch(pid: u32) -> Result<Self> {
        let before = cpu_ticks(pid)?;
        std::thread::sleep(Duration::from_secs(Self::SECONDS));
        let ticks = cpu_ticks(pid)? - before;
        // Linux counts processor time in hundredths of a second.
        Ok(Self { memory_mib: memory_mib(pid)?, cpu_percent: ticks as f64 / Self::SECONDS as f64 })
    }
}

fn cpu_ticks(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|error| error.to_string())?;
    // The name in parentheses may contain spaces; user and system time are the 12th and 13th fields after it.
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<_>>()).unwrap_or_default();
    let tick = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok());
    Ok(tick(11).ok_or("no user time")? + tick(12).ok_or("no system time")?)
}

fn memory_mib(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no memory figure")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().map_err(|_| "no memory figure")?;
    Ok(kib / 1024.0)
}
