//! `cargo xtask bench repository`: backups of the built service into repositories beside restic, borg and rsync in the
//! same run, over a real sshd, at no and at 20 ms round trip, to a folder and to S3; and a million files beside `find`.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

#[path = "repository_bench/measuring.rs"]
mod measuring;
#[path = "repository_bench/report.rs"]
mod report;
#[path = "repository_bench/rivals.rs"]
mod rivals;
#[path = "repository_bench/service.rs"]
mod service;
#[path = "repository_bench/sources.rs"]
mod sources;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use holdfast_testkit::{FaultProxy, S3Server, SshServer};

use crate::measuring::{Cost, cpu_of_tree, find_sshd, run, stored_mb, timed};
use crate::report::Row;
use crate::rivals::{Bucket, Rivals, Tool, has_fuse, inspect};
use crate::service::{Service, Target};
use crate::sources::{Kind, Source, make_tiny_files, settle, thousands};

const ONE_WAY: Duration = Duration::from_millis(10);
const BUCKET: &str = "bench";
/// The same fields as in the listing that the service asks for.
const FIND_FORMAT: &str = "%y %s %T@ %C@ %i %D %n %P\\0";

#[tokio::main]
async fn main() {
    let bench = Bench::start(Options::parse(std::env::args().skip(1)));
    bench.run().await;
}

struct Options {
    binary: PathBuf,
    repeats: usize,
    latency: bool,
    s3: bool,
    million: bool,
    small: bool,
    /// Prints the log of each run of Holdfast.
    logs: bool,
    /// Measures only what has this in its name, for a look at one thing.
    only: Option<String>,
    chart: Option<PathBuf>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Self {
        let binary = PathBuf::from(arguments.next().expect("the path of the built service"));
        let (latency, s3, million, small, logs) = (false, false, false, false, false);
        let mut options = Self { binary, repeats: 3, latency, s3, million, small, logs, only: None, chart: None };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value"));
            match argument.as_str() {
                "--repeats" => options.repeats = value().parse().expect("a number of repeats"),
                "--only" => options.only = Some(value()),
                "--chart" => options.chart = Some(PathBuf::from(value())),
                "--latency" => options.latency = true,
                "--s3" => options.s3 = true,
                "--million" => options.million = true,
                "--small" => options.small = true,
                "--logs" => options.logs = true,
                _ => panic!("{argument} is unknown"),
            }
        }
        options
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only))
    }
}

/// How far away the server is.
#[derive(Clone, Copy)]
struct Line {
    rtt: u32,
    /// A host of the configuration of ssh.
    host: &'static str,
    port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Folder,
    S3,
}

impl To {
    fn title(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::S3 => "S3",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scenario {
    First,
    Unchanged,
    Changed,
}

impl Scenario {
    const ALL: [Self; 3] = [Self::First, Self::Unchanged, Self::Changed];

    fn title(self, source: &Source) -> &'static str {
        match self {
            Self::First => "first",
            Self::Unchanged => "unchanged",
            Self::Changed => source.title_of_change(),
        }
    }

    /// How many times as long as Holdfast a rival should take at least, without latency and into a folder.
    fn goals(self, kind: Kind) -> &'static [(Tool, f64)] {
        match (kind, self) {
            (Kind::Files, Self::First) => &[(Tool::Restic, 1.0), (Tool::ResticOverSshfs, 3.0)],
            (Kind::Files, Self::Unchanged) => &[(Tool::Restic, 1.5), (Tool::ResticOverSshfs, 2.5)],
            (Kind::Files, Self::Changed) => &[(Tool::Restic, 1.5), (Tool::ResticOverSshfs, 2.0)],
            (Kind::Large, Self::First) => &[(Tool::Restic, 1.0)],
            (Kind::Large, Self::Unchanged) => &[(Tool::Restic, 1.5)],
            (Kind::Large, Self::Changed) => &[],
        }
    }
}

struct Bench {
    options: Options,
    folder: tempfile::TempDir,
    ssh: SshServer,
    /// The process id of sshd.
    sshd: u32,
    far: FaultProxy,
    has_fuse: bool,
}

/// Where backups go, while one source is measured.
struct Store {
    to: To,
    s3: S3Server,
    /// The port of the S3 server, as seen from the server that is backed up.
    remote_port: u16,
    /// Delays what a rival on the server sends to S3.
    _far: FaultProxy,
}

impl Store {
    async fn start(to: To, line: Line) -> Self {
        let s3 = S3Server::start(&[BUCKET]).await.expect("an S3 server");
        let near = s3.endpoint().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let far = FaultProxy::start(near);
        far.delay(ONE_WAY);
        Self { to, s3, remote_port: if line.rtt == 0 { near } else { far.port() }, _far: far }
    }

    fn target(&self) -> Target<'_> {
        match self.to {
            To::Folder => Target::Folder,
            To::S3 => Target::Bucket(&self.s3, BUCKET),
        }
    }

    fn bucket(&self, round: usize) -> Option<Bucket> {
        let name = format!("restic-{round}");
        let url = format!("s3:http://127.0.0.1:{}/{BUCKET}/{name}", self.remote_port);
        (self.to == To::S3).then(|| Bucket { url, folder: self.s3.root().join(BUCKET).join(name) })
    }
}

impl Bench {
    fn start(options: Options) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ssh = SshServer::start();
        let far = FaultProxy::start(ssh.port());
        far.delay(ONE_WAY);
        let key = folder.path().join("id");
        run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key));
        ssh.authorize(&std::fs::read_to_string(key.with_extension("pub")).expect("the key's public half"));
        let host = |name: &str, port: u16| format!("Host {name}\n Port {port}\n");
        let config = format!(
            "{}{}Host *\n HostName 127.0.0.1\n User {}\n IdentityFile {}\n Ciphers aes256-gcm@openssh.com\n \
             StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n",
            host("near", ssh.port()),
            host("far", far.port()),
            ssh.username(),
            key.display()
        );
        std::fs::write(folder.path().join("ssh_config"), config).expect("a temporary file");
        let has_fuse = has_fuse();
        if !has_fuse {
            println!("/dev/fuse cannot be used here: restic over sshfs is left out");
        }
        Self { sshd: find_sshd(), options, folder, ssh, far, has_fuse }
    }

    async fn run(&self) {
        print_versions();
        let (mut rows, mut notes) = (Vec::new(), Vec::new());
        for kind in [Kind::Files, Kind::Large] {
            let wanted = self.wanted(kind);
            if wanted.is_empty() {
                continue;
            }
            println!("making the source: {}", kind.name());
            let mut source = self.source(kind);
            for (line, to) in wanted {
                let (measured, note) = self.measure(&mut source, line, to).await;
                rows.extend(measured);
                notes.push(note);
            }
            std::fs::remove_dir_all(&source.folder).expect("the source");
        }
        let million =
            if self.options.million && self.options.wants("million") { Some(self.million().await) } else { None };
        if !rows.is_empty() {
            println!("\n{}\n\n{}\n\n{}", report::seconds(&rows), report::costs(&rows), notes.join("\n"));
        }
        if let Some(million) = million {
            println!("\n{million}");
        }
        if let Some(path) = self.options.chart.as_ref().filter(|_| !rows.is_empty()) {
            std::fs::write(path, report::chart(&rows)).expect("the folder for the chart");
        }
    }

    fn wanted(&self, kind: Kind) -> Vec<(Line, To)> {
        let near = Line { rtt: 0, host: "near", port: self.ssh.port() };
        let far = Line { rtt: 20, host: "far", port: self.far.port() };
        let lines = [Some(near), self.options.latency.then_some(far)];
        let targets = [Some(To::Folder), self.options.s3.then_some(To::S3)];
        let all = lines.into_iter().flatten().flat_map(|line| targets.into_iter().flatten().map(move |to| (line, to)));
        all.filter(|(line, to)| self.options.wants(&name(kind, *line, *to))).collect()
    }

    fn source(&self, kind: Kind) -> Source {
        let folder = self.folder.path().join(kind.name());
        match kind {
            Kind::Files => Source::files(folder, if self.options.small { 200 } else { 20_000 }),
            Kind::Large => Source::large(folder, if self.options.small { 5_000_000 } else { 512_000_000 }),
        }
    }

    /// All runs over one source; the tools take turns, so that all of them meet the machine in the same states.
    async fn measure(&self, source: &mut Source, line: Line, to: To) -> (Vec<Row>, String) {
        let store = Store::start(to, line).await;
        let service = self.service().await;
        let server = service.add_server(&self.ssh, line.port).await;
        let destination = service.add_destination(store.target()).await;
        let idle = service.memory_mib();
        let name = name(source.kind, line, to);
        let mut costs = Vec::new();
        let mut blobs = 0;
        for round in 0..self.options.repeats {
            let tools = self.tools(line, to, round);
            let rivals = Rivals {
                folder: self.folder.path().join("rivals"),
                ssh_config: self.ssh_config(),
                host: line.host,
                source: source.folder.clone(),
                bucket: store.bucket(round),
            };
            rivals.prepare(&tools);
            let task = service.add_task(server, destination, &source.folder).await;
            for (number, scenario) in Scenario::ALL.into_iter().enumerate() {
                match scenario {
                    Scenario::First => source.reset(),
                    Scenario::Unchanged => {}
                    Scenario::Changed => source.change(),
                }
                for tool in &tools {
                    settle(source.changed).await;
                    let cost = match tool {
                        Tool::Holdfast => self.ours(&service, task, store.target()).await,
                        _ => self.beside_sshd(async || rivals.back_up(*tool, number)).await,
                    };
                    println!("{name}, {}: {}: {:.2} s", scenario.title(source), tool.title(), cost.wall);
                    costs.push((scenario, *tool, cost));
                }
            }
            std::fs::remove_dir_all(&rivals.folder).expect("the repositories of the rivals");
            if round + 1 == self.options.repeats {
                blobs = inspect(&service.repository(task, store.target()).await.expect("a repository"));
            }
        }
        let of_run = |scenario, tool| {
            let of_it = costs.iter().filter(|(at, by, _)| (*at, *by) == (scenario, tool)).map(|(_, _, cost)| *cost);
            Some(of_it.collect::<Vec<_>>()).filter(|costs| !costs.is_empty()).map(|costs| (tool, Cost::median(costs)))
        };
        let rows = Scenario::ALL.map(|scenario| Row {
            what: source.title(),
            scenario: scenario.title(source),
            rtt: line.rtt,
            to: to.title(),
            costs: Tool::ALL.into_iter().filter_map(|tool| of_run(scenario, tool)).collect(),
            goals: if line.rtt == 0 && to == To::Folder { scenario.goals(source.kind) } else { &[] },
        });
        let own = costs.iter().filter(|(_, tool, _)| *tool == Tool::Holdfast);
        let peak = own.map(|(_, _, cost)| cost.peak_mib).fold(0.0, f64::max);
        (rows.into(), memory_note(&name, blobs, [idle, peak, service.memory_mib()]))
    }

    fn tools(&self, line: Line, to: To, round: usize) -> Vec<Tool> {
        let mut tools = match to {
            To::Folder => Tool::ALL.to_vec(),
            To::S3 => Tool::OF_BUCKETS.to_vec(),
        };
        // Each file costs sshfs several round trips, one after the other: minutes at 20 ms, so this is done once.
        let is_over_sshfs = self.has_fuse && (line.rtt == 0 || round == 0);
        tools.retain(|tool| is_over_sshfs || *tool != Tool::ResticOverSshfs);
        let first = round % tools.len();
        tools.rotate_left(first);
        tools
    }

    async fn ours(&self, service: &Service, task: i64, target: Target<'_>) -> Cost {
        let stored = async || service.repository(task, target).await.map_or(0.0, |folder| stored_mb(&folder));
        let before = stored().await;
        let cost = self.beside_sshd(async || service.back_up(task).await).await;
        Cost { added_mb: stored().await - before, ..cost }
    }

    /// Adds the processor time of sshd to what a run costs.
    async fn beside_sshd(&self, measured: impl AsyncFnOnce() -> Cost) -> Cost {
        let before = cpu_of_tree(self.sshd);
        let cost = measured().await;
        Cost { far_cpu: cpu_of_tree(self.sshd) - before, ..cost }
    }

    async fn service(&self) -> Service {
        let data = self.folder.path().join("data");
        Service::start(&self.options.binary, data, &self.ssh, self.options.logs).await
    }

    fn ssh_config(&self) -> PathBuf {
        self.folder.path().join("ssh_config")
    }

    /// Very many files of which none has changed, beside the `find` that lists them.
    async fn million(&self) -> String {
        const GOAL: f64 = 1.5;
        const GOAL_MIB: f64 = 256.0;
        let count = if self.options.small { 10_000 } else { 1_000_000 };
        let folder = self.folder.path().join("tiny");
        println!("making {} files", thousands(count));
        make_tiny_files(&folder, count);
        let made = std::time::Instant::now();
        let service = self.service().await;
        let server = service.add_server(&self.ssh, self.ssh.port()).await;
        let destination = service.add_destination(Target::Folder).await;
        let idle = service.memory_mib();
        let task = service.add_task(server, destination, &folder).await;
        settle(made).await;
        let first = self.ours(&service, task, Target::Folder).await;
        println!("million, first: Holdfast: {:.2} s", first.wall);
        let (mut ours, mut finds) = (Vec::new(), Vec::new());
        for _ in 0..self.options.repeats {
            ours.push(self.ours(&service, task, Target::Folder).await);
            finds.push(self.beside_sshd(async || self.find(&folder)).await);
            let last = (ours.last().expect("a run").wall, finds.last().expect("a run").wall);
            println!("million, unchanged: Holdfast: {:.2} s; find: {:.2} s", last.0, last.1);
        }
        let blobs = inspect(&service.repository(task, Target::Folder).await.expect("a repository"));
        let [ours, find] = [ours, finds].map(Cost::median);
        let ratio = ours.wall / find.wall;
        let outcome = |is_reached: bool| if is_reached { "reached" } else { "missed" };
        let files = thousands(count);
        let (in_time, in_memory) = (outcome(ratio <= GOAL), outcome(ours.peak_mib <= GOAL_MIB));
        [
            "| what | run | s | of find | CPU s | CPU s at the other end | peak MiB | added MB | goal |".to_owned(),
            "|---|---|---|---|---|---|---|---|---|".to_owned(),
            million_row(&files, "`find -printf` over ssh", find, "", ""),
            million_row(&files, "Holdfast, first", first, "", ""),
            million_row(
                &files,
                "Holdfast, unchanged",
                ours,
                &format!("{ratio:.2} ×"),
                &format!("≤ {GOAL} ×: {in_time}; ≤ {GOAL_MIB} MiB: {in_memory}"),
            ),
            String::new(),
            memory_note("million", blobs, [idle, first.peak_mib.max(ours.peak_mib), service.memory_mib()]),
        ]
        .join("\n")
    }

    fn find(&self, folder: &Path) -> Cost {
        let mut ssh = Command::new("ssh");
        ssh.arg("-F").arg(self.ssh_config()).arg("near");
        timed(ssh.arg(format!("find '{}' -printf '{FIND_FORMAT}'", folder.display())))
    }
}

fn million_row(files: &str, run: &str, cost: Cost, ratio: &str, goal: &str) -> String {
    let Cost { wall, cpu, far_cpu, peak_mib, added_mb } = cost;
    format!(
        "| {files} files | {run} | {wall:.2} | {ratio} | {cpu:.2} | {far_cpu:.2} | {peak_mib:.0} | {added_mb:.2} | {goal} |"
    )
}

fn name(kind: Kind, line: Line, to: To) -> String {
    format!("{}, {} ms, {}", kind.name(), line.rtt, to.title())
}

/// What restic says about the repository, and the memory that the service had before the first run, at most, and after
/// the last one.
fn memory_note(name: &str, blobs: usize, [before, peak, after]: [f64; 3]) -> String {
    let goal = 160.0 + blobs as f64 * 60.0 / (1024.0 * 1024.0);
    let outcome = if peak <= goal { "reached" } else { "missed" };
    format!(
        "{name}: `restic check --read-data` finds the repository of Holdfast sound; it has {} blobs. Memory: \
         {before:.0} MiB before the first run, at most {peak:.0} MiB (goal: {goal:.0}, {outcome}), {after:.0} MiB after \
         the last one.",
        thousands(blobs)
    )
}

fn print_versions() {
    for (program, argument) in [("restic", "version"), ("borg", "--version"), ("rsync", "--version"), ("ssh", "-V")] {
        let output = Command::new(program).arg(argument).output().unwrap_or_else(|error| panic!("{program}: {error}"));
        // OpenSSH prints it to its standard error.
        let text = [output.stdout, output.stderr].concat();
        println!("{}", String::from_utf8_lossy(&text).lines().next().unwrap_or_default());
    }
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    println!("{processors} processors");
}
