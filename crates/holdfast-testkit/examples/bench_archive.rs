//! `cargo xtask bench archive`: the built service against `ssh tar | zstd -3 > file`, side by side in one run, over a
//! real sshd, at no and at 20 ms round trip, to a folder and to S3, with and without encryption.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_testkit::{Client, FaultProxy, S3Server, SshServer, free_port, random};
use serde_json::{Value, json};

const SMALL_FILES: usize = 20_000;
const SMALL_BYTES: usize = 8_900;
const LARGE_BYTES: usize = 1 << 30;
const ONE_WAY: Duration = Duration::from_millis(10);
const BUCKET: &str = "bench";
const MIB: f64 = 1024.0 * 1024.0;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let binary = PathBuf::from(arguments.next().expect("the path of the built service"));
    let docs = PathBuf::from(arguments.next().expect("the folder for the chart"));
    let repeats = arguments.next().map_or(3, |text| text.parse().expect("a number of repeats"));
    let only = arguments.next();
    let bench = Bench::start(&binary, repeats, only.clone()).await;
    let report = bench.run().await;
    if only.is_none() {
        std::fs::write(docs.join("archive.svg"), chart(&report.rows)).expect("the folder for the chart");
    }
    println!("\n{}", report.text);
}

struct Bench {
    folder: tempfile::TempDir,
    ssh: SshServer,
    key: PathBuf,
    near: u16,
    far: FaultProxy,
    s3: S3Server,
    service: Service,
    repeats: usize,
    /// Measures only what has this in its name, for a look at one thing.
    only: Option<String>,
}

/// The built binary with a data folder of its own.
struct Service {
    child: Child,
    client: Client,
}

struct Row {
    name: String,
    ours: f64,
    rival: f64,
}

#[derive(Default)]
struct Report {
    rows: Vec<Row>,
    text: String,
}

/// Wall and processor seconds, and the peak of memory.
#[derive(Clone, Copy, Debug)]
struct Cost {
    wall: f64,
    cpu: f64,
    peak_mib: f64,
}

impl Bench {
    async fn start(binary: &Path, repeats: usize, only: Option<String>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ssh = SshServer::start();
        let key = folder.path().join("id");
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
        assert!(made.is_ok_and(|status| status.success()), "ssh-keygen makes a key");
        ssh.authorize(&std::fs::read_to_string(folder.path().join("id.pub")).expect("the key's public half"));
        let far = FaultProxy::start(ssh.port());
        far.delay(ONE_WAY);
        println!("making {SMALL_FILES} small files and one of {} MiB", LARGE_BYTES >> 20);
        make_sources(folder.path());
        let service = Service::start(binary, &folder.path().join("data")).await;
        let key_line = service.client.get("/api/ssh-key").await.data(200);
        ssh.authorize(key_line["public_key"].as_str().expect("a key"));
        let s3 = S3Server::start(&[BUCKET]).await.expect("an S3 server");
        Self { near: ssh.port(), folder, ssh, key, far, s3, service, repeats, only }
    }

    async fn run(&self) -> Report {
        let mut report = Report::default();
        report.line("| what | round trip | to | encrypted | Holdfast s | pipeline s | ratio | CPU s | pipeline CPU s | peak MiB |");
        report.line("|---|---|---|---|---|---|---|---|---|---|");
        report.line(&format!("| nothing yet | | | | | | | | | {:.0} |", self.service.memory_mib("VmRSS:")));
        let folder = self.service.post("/api/backup-destinations", json!({"label": "folder", "type": "local"})).await;
        let bucket = json!({"label": "bucket", "type": "custom_s3", "s3_access_key": S3Server::ACCESS_KEY,
            "s3_secret_key": S3Server::SECRET_KEY, "s3_bucket_name": BUCKET, "custom_s3_endpoint": self.s3.endpoint()});
        let bucket = self.service.post("/api/backup-destinations", bucket).await;
        for (what, rtt, port) in [
            ("small", 0, self.near),
            ("large", 0, self.near),
            ("small", 20, self.far.port()),
            ("large", 20, self.far.port()),
        ] {
            let wanted = |to: &str, password: Option<&str>| self.wants(&name(what, rtt, to, password.is_some()));
            let choices = [("folder", folder), ("S3", bucket)].map(|(to, destination)| {
                [None, Some("correct horse battery")].map(|password| (to, destination, password))
            });
            let choices = choices.as_flattened().iter().filter(|(to, _, password)| wanted(to, *password));
            let choices: Vec<_> = choices.copied().collect();
            if choices.is_empty() {
                continue;
            }
            let rival = self.rival(what, port);
            let back = if rtt == 0 { self.rival_restore(what) } else { rival };
            let server =
                json!({"label": what, "ip_address": "127.0.0.1", "port": port, "username": self.ssh.username()});
            let server = self.service.post("/api/remote-servers", server).await;
            for (to, destination, password) in choices {
                let task = self.task(server, destination, what, password).await;
                let ours = self.ours(task).await;
                report.row(what, rtt, to, password.is_some(), ours, rival);
                if rtt == 0 && to == "folder" {
                    self.restore(&mut report, server, task, what, password.is_some(), (ours, back)).await;
                }
                self.forget(task).await;
            }
        }
        if self.wants("sizes") {
            self.sizes(&mut report, folder).await;
        }
        for (to, destination) in [("folder", folder), ("S3", bucket)] {
            if self.wants(&format!("many, {to}")) {
                self.many(&mut report, destination, to).await;
            }
        }
        report
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only))
    }

    fn source(&self, what: &str) -> PathBuf {
        self.folder.path().join(what)
    }

    /// The best that scripts do: one pipeline, the fastest cipher.
    fn rival(&self, what: &str, port: u16) -> Cost {
        let target = self.folder.path().join("rival.tar.zst");
        let script = format!(
            "TIMEFORMAT='%R %U %S'; time ({} tar -C {} -cf - . | zstd -3 -q -f -o {})",
            self.ssh_command(port),
            self.source(what).display(),
            target.display()
        );
        self.timed(&script)
    }

    /// What a script says last on its standard error, as bash's `time` does.
    fn timed(&self, script: &str) -> Cost {
        let measure = |_| {
            let output = Command::new("bash").args(["-c", script]).output().expect("bash");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [wall, user, system] = numbers[numbers.len() - 3..] else { panic!("no times in {text}") };
            Cost { wall, cpu: user + system, peak_mib: 0.0 }
        };
        median((0..self.repeats).map(measure).collect())
    }

    /// The same pipeline backwards, on what it made.
    fn rival_restore(&self, what: &str) -> Cost {
        let target = self.folder.path().join("rival-restored");
        let script = format!(
            "TIMEFORMAT='%R %U %S'; mkdir {1}; time (zstd -dcq {0} | {2} tar -C {1} -xpf -); rm -r {1}",
            self.folder.path().join("rival.tar.zst").display(),
            target.display(),
            self.ssh_command(self.near),
        );
        let cost = self.timed(&script);
        println!("the pipeline backwards, {what}: {:.2} s", cost.wall);
        cost
    }

    fn ssh_command(&self, port: u16) -> String {
        format!(
            "ssh -p {port} -i {} -c aes256-gcm@openssh.com -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
             -o LogLevel=ERROR {}@127.0.0.1",
            self.key.display(),
            self.ssh.username()
        )
    }

    async fn task(&self, server: i64, destination: i64, what: &str, password: Option<&str>) -> i64 {
        let body = json!({"label": what, "type": "files", "remote_server_id": server, "encryption_password": password,
            "backup_destination_id": destination, "source_path": self.source(what), "frequency": "monthly",
            "time_to_run_at": "03:00", "day_of_month": 1, "maximum_backups_to_keep": 1});
        self.service.post("/api/backup-tasks", body).await
    }

    async fn ours(&self, task: i64) -> Cost {
        // The first run also counts the files, as a first run does; the later ones are what a schedule sees.
        let mut costs = Vec::new();
        for _ in 0..=self.repeats {
            let path = format!("/api/backup-tasks/{task}");
            self.service.settle().await;
            self.service.client.act(&format!("{path}/run")).await.expect(202);
            costs.push(self.service.measure(&format!("{path}/latest-log")).await);
        }
        costs.remove(0);
        median(costs)
    }

    /// Into an empty folder, then over what is there, which reads the whole backup first; and that reading by itself.
    async fn restore(
        &self,
        report: &mut Report,
        server: i64,
        task: i64,
        what: &str,
        encrypted: bool,
        beside: (Cost, Cost),
    ) {
        let (backup, rival) = beside;
        let listed = self.service.client.get(&format!("/api/backups?backup_task_id={task}")).await.expect(200);
        let path = format!("/api/backups/{}", listed["data"][0]["id"]);
        let target = self.folder.path().join("restored");
        let (mut fresh, mut over, mut reading) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.repeats {
            for (overwrite, costs) in [(false, &mut fresh), (true, &mut over)] {
                let body = json!({"remote_server_id": server, "path": target, "overwrite": overwrite});
                costs.push(self.post_run(&format!("{path}/restores"), body).await);
            }
            std::fs::remove_dir_all(&target).expect("the restored files");
            reading.push(self.post_run(&format!("{path}/verify"), json!({})).await);
        }
        let [fresh, over, reading] = [fresh, over, reading].map(median);
        report.line(&format!(
            "| restore of {what} | 0 ms | server | {} | {:.2} | {:.2} | {:.2}; {:.2} of its backup | {:.2} | {:.2} | {:.0} |",
            yes(encrypted),
            fresh.wall,
            rival.wall,
            rival.wall / fresh.wall,
            fresh.wall / backup.wall,
            fresh.cpu,
            rival.cpu,
            fresh.peak_mib
        ));
        for (name, cost) in [("the same over what is there", over), ("of which reading first", reading)] {
            report.line(&format!(
                "| {name} | 0 ms | server | {} | {:.2} | | {:.2} of the restore | {:.2} | | {:.0} |",
                yes(encrypted),
                cost.wall,
                cost.wall / fresh.wall,
                cost.cpu,
                cost.peak_mib
            ));
        }
    }

    async fn post_run(&self, path: &str, body: Value) -> Cost {
        self.service.settle().await;
        let run = self.service.client.post(path, body).await.data(202);
        self.service.measure(&format!("/api/runs/{}", run["id"])).await
    }

    async fn forget(&self, task: i64) {
        self.service.client.delete(&format!("/api/backup-tasks/{task}?delete_backups=true")).await.expect(200);
    }

    /// Memory must not follow the size of the source.
    async fn sizes(&self, report: &mut Report, destination: i64) {
        let server =
            json!({"label": "sizes", "ip_address": "127.0.0.1", "port": self.near, "username": self.ssh.username()});
        let server = self.service.post("/api/remote-servers", server).await;
        let sparse = self.source("sparse");
        std::fs::create_dir(&sparse).expect("a folder");
        std::fs::File::create(sparse.join("file")).and_then(|file| file.set_len(8 << 30)).expect("a file with holes");
        for (what, size) in [("small", "178 MB in 20,000 files"), ("large", "1 GiB"), ("sparse", "8 GiB of holes")] {
            let task = self.task(server, destination, what, Some("correct horse battery")).await;
            let cost = self.ours(task).await;
            report.line(&format!(
                "| memory at {size} | 0 ms | folder | yes | {:.2} | | | {:.2} | | {:.0} |",
                cost.wall, cost.cpu, cost.peak_mib
            ));
            self.forget(task).await;
        }
    }

    /// Fifty at once, in one process.
    async fn many(&self, report: &mut Report, destination: i64, to: &str) {
        let source = self.source("many");
        if !source.exists() {
            std::fs::create_dir(&source).expect("a folder");
            std::fs::write(source.join("file"), random(9, 40_000_000)).expect("a file");
        }
        let server =
            json!({"label": "many", "ip_address": "127.0.0.1", "port": self.near, "username": self.ssh.username()});
        let server = self.service.post("/api/remote-servers", server).await;
        let mut tasks = Vec::new();
        for _ in 0..50 {
            tasks.push(self.task(server, destination, "many", None).await);
        }
        self.service.reset_peak();
        let started = Instant::now();
        for task in &tasks {
            self.service.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        }
        let mut most = 0;
        for task in &tasks {
            loop {
                let live = self.service.client.get("/api/backup-task-logs?status=running&per_page=1").await.expect(200);
                most = most.max(live["meta"]["total"].as_i64().unwrap_or(0));
                let log = self.service.client.get(&format!("/api/backup-tasks/{task}/latest-log")).await.data(200);
                match log["status"].as_str() {
                    Some("successful") => break,
                    Some("queued" | "running") => tokio::time::sleep(Duration::from_millis(100)).await,
                    _ => panic!("{log}"),
                }
            }
        }
        report.line(&format!(
            "| 50 runs of 40 MB ({most} at once) | 0 ms | {to} | no | {:.2} | | | | | {:.0} |",
            started.elapsed().as_secs_f64(),
            self.service.peak_mib()
        ));
        for task in tasks {
            self.forget(task).await;
        }
    }
}

fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|a, b| a.wall.total_cmp(&b.wall));
    costs[costs.len() / 2]
}

fn name(what: &str, rtt: u32, to: &str, encrypted: bool) -> String {
    format!("{what}, {rtt} ms, {to}{}", if encrypted { ", encrypted" } else { "" })
}

fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

impl Report {
    fn line(&mut self, line: &str) {
        println!("{line}");
        writeln!(self.text, "{line}").expect("writing to a string");
    }

    fn row(&mut self, what: &str, rtt: u32, to: &str, encrypted: bool, ours: Cost, rival: Cost) {
        self.line(&format!(
            "| {what} | {rtt} ms | {to} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} |",
            yes(encrypted),
            ours.wall,
            rival.wall,
            rival.wall / ours.wall,
            ours.cpu,
            rival.cpu,
            ours.peak_mib
        ));
        self.rows.push(Row { name: name(what, rtt, to, encrypted), ours: ours.wall, rival: rival.wall });
    }
}

impl Service {
    async fn start(binary: &Path, data: &Path) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        // Account and token come from the command line: hashing a password takes memory that is not a backup's.
        let account = "user create --email bench@example.org --name Bench --admin";
        command(binary, data, account, "correct horse battery\n");
        let token = command(binary, data, "token create --user bench@example.org --name bench --all-scopes", "");
        let mut child = Command::new(binary)
            .arg("serve")
            .env("HOLDFAST_DATA_DIR", data)
            .env("HOLDFAST_LISTEN", &address)
            .env("HOLDFAST_RUNS_AT_ONCE", "60")
            .env("HOLDFAST_RUNS_PER_SERVER", "60")
            .env("HOLDFAST_RUNS_PER_USER", "60")
            .env("HOLDFAST_RUNS_PER_MINUTE", "1000000")
            .env("HOLDFAST_RATE_PER_SECOND", "1000000")
            .env("HOLDFAST_LOG", "warn")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the built service");
        let mut greeting = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert!(greeting.next().is_some(), "the service greets");
        // Somebody has to read the rest.
        std::thread::spawn(move || greeting.for_each(drop));
        Self { child, client: Client::new(&format!("http://{address}"), Some(&token)) }
    }

    async fn post(&self, path: &str, body: Value) -> i64 {
        self.client.post(path, body).await.id(201)
    }

    /// Lets the threads of the run before end, so that a run's memory is its own, and starts to watch.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.reset_peak();
    }

    /// Waits for the end of a run; its own times count, not ours.
    async fn measure(&self, path: &str) -> Cost {
        let before = self.cpu_seconds();
        loop {
            let run = self.client.get(path).await.data(200);
            match run["status"].as_str() {
                Some("successful") => {
                    let wall = run["duration_ms"].as_f64().expect("a duration") / 1e3;
                    return Cost { wall, cpu: self.cpu_seconds() - before, peak_mib: self.peak_mib() };
                }
                Some("queued" | "running") => tokio::time::sleep(Duration::from_millis(20)).await,
                _ => panic!("{run}"),
            }
        }
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).expect("Linux")
    }

    fn reset_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").expect("our own process");
    }

    fn peak_mib(&self) -> f64 {
        self.memory_mib("VmHWM:")
    }

    fn memory_mib(&self, of: &str) -> f64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix(of)).expect("a line of memory");
        line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") * 1024.0 / MIB
    }

    /// Linux counts processor time in hundredths of a second; user and system are the 12th and 13th field after the name.
    fn cpu_seconds(&self) -> f64 {
        let stat = self.proc("stat");
        let (_, rest) = stat.rsplit_once(") ").expect("a name in parentheses");
        let fields: Vec<&str> = rest.split(' ').collect();
        let ticks = |index: usize| fields[index].parse::<f64>().expect("a number");
        (ticks(11) + ticks(12)) / 100.0
    }
}

/// Runs a command of the binary and gives what it printed.
fn command(binary: &Path, data: &Path, arguments: &str, input: &str) -> String {
    let mut command = Command::new(binary);
    command.args(arguments.split(' ')).env("HOLDFAST_DATA_DIR", data).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the built service");
    let written = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("its output");
    assert!(written.is_ok() && output.status.success(), "{arguments}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

impl Drop for Service {
    fn drop(&mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(asked.is_ok() && self.child.wait().is_ok(), "the service ends");
    }
}

fn make_sources(folder: &Path) {
    let text =
        |number: usize| format!("{number} some text as it is in logs and pages, with numbers {}\n", number * 7919);
    for number in 0..SMALL_FILES {
        let parent = folder.join("small").join(format!("{:03}", number % 200));
        std::fs::create_dir_all(&parent).expect("a folder");
        let mut content = text(number).repeat(SMALL_BYTES / 2 / 60).into_bytes();
        content.extend(random(number as u64 + 1, SMALL_BYTES - content.len()));
        std::fs::write(parent.join(format!("{number}.txt")), content).expect("a file");
    }
    let large = folder.join("large");
    std::fs::create_dir(&large).expect("a folder");
    let mut content = Vec::with_capacity(LARGE_BYTES + 64 * 1024);
    let mut number = 0;
    while content.len() < LARGE_BYTES {
        content.extend(random(number as u64 + 99, 32 * 1024));
        let lines: String = (0..600).map(|line| text(number * 600 + line)).collect();
        content.extend(&lines.as_bytes()[..32 * 1024]);
        number += 1;
    }
    content.truncate(LARGE_BYTES);
    std::fs::write(large.join("file.bin"), content).expect("a file");
}

/// Bars beside each other, one pair a row: shorter is better.
fn chart(rows: &[Row]) -> String {
    const ROW: usize = 34;
    const LEFT: usize = 230;
    const WIDTH: f64 = 420.0;
    let longest = rows.iter().map(|row| row.ours.max(row.rival)).fold(0.1, f64::max);
    let height = rows.len() * ROW + 50;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>text {{ fill: #334 }} .ours {{ fill: #2a7 }} .rival {{ fill: #99a }} \
         @media (prefers-color-scheme: dark) {{ text {{ fill: #dde }} }}</style>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">Seconds to back up; shorter is better</text>\n\
         <rect class=\"ours\" x=\"{LEFT}\" y=\"30\" width=\"12\" height=\"10\"/><text x=\"{}\" y=\"40\">Holdfast</text>\n\
         <rect class=\"rival\" x=\"{}\" y=\"30\" width=\"12\" height=\"10\"/><text x=\"{}\" y=\"40\">ssh tar | zstd -3 &gt; file</text>\n",
        LEFT + 18,
        LEFT + 100,
        LEFT + 118
    );
    for (number, row) in rows.iter().enumerate() {
        let y = number * ROW + 52;
        writeln!(svg, "<text x=\"10\" y=\"{}\">{}</text>", y + 15, row.name).expect("writing to a string");
        for (class, seconds, offset) in [("ours", row.ours, 0), ("rival", row.rival, 13)] {
            let width = (seconds / longest * WIDTH).max(1.0);
            writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{}\" width=\"{width:.1}\" height=\"11\"/>\
                 <text x=\"{:.1}\" y=\"{}\" font-size=\"10\">{seconds:.2}</text>",
                y + offset,
                LEFT as f64 + width + 5.0,
                y + offset + 9
            )
            .expect("writing to a string");
        }
    }
    svg.push_str("</svg>\n");
    svg
}
