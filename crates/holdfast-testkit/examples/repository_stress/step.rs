//! One backup, prune or check of the repository in a folder, by the engine, in a process that may be killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdfast_core::Secret;
use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_core::retention::RetentionPolicy;
use holdfast_core::storage::{Format, Storage};
use holdfast_engine::ssh::{Credential, KeySeed, Target};
use holdfast_engine::{
    BackupPlan, CacheSettings, CheckPlan, Context, DestinationPlan, DestinationSettings, Engine, EngineError,
    FilesSource, Journal, PrunePlan, RepositoryAccess, RepositoryPlan, Server, Settings, Source,
};
use holdfast_testkit::SshServer;
use tokio_util::sync::CancellationToken;

pub const PASSWORD: &str = "correct horse";
/// A key of 32 sevens.
const SEED: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
const PUBLIC_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOpKbGPinFIKvvVQexMuxfmVR3auvr57kkIe6mkURtIs test";
/// The repository below the destination.
const BELOW: &str = "repository";

struct NoJournal;

#[async_trait]
impl Journal for NoJournal {
    async fn upload_begins(&self, _key: &str) -> Result<(), EngineError> {
        Ok(())
    }

    async fn upload_begun(&self, _key: &str, _upload_id: &str) -> Result<(), EngineError> {
        Ok(())
    }
}

/// A source, a destination with a repository, and a server.
pub struct Scene {
    pub folder: tempfile::TempDir,
    ssh: SshServer,
}

impl Scene {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("source")).expect("our own folder");
        let ssh = SshServer::start();
        ssh.authorize(PUBLIC_KEY);
        Self { folder, ssh }
    }

    pub fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    pub fn repository(&self) -> PathBuf {
        self.folder.path().join("destination").join(BELOW)
    }

    /// A step, which prints the locator of a backup and the most memory that it took.
    pub fn step(&self, what: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["step", what]).arg(self.folder.path()).arg(self.ssh.port().to_string());
        command.stdin(Stdio::null());
        command
    }

    pub fn restic(&self) -> Command {
        let mut restic = Command::new("restic");
        restic.args(["--no-cache", "--repo"]).arg(self.repository()).env("RESTIC_PASSWORD", PASSWORD);
        restic
    }
}

/// The names of the snapshots in a repository.
pub fn snapshots(repository: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(repository.join("snapshots")).into_iter().flatten();
    let names = entries.map(|entry| entry.expect("a readable folder").file_name().into_string().expect("a plain name"));
    names.filter(|name| !name.starts_with('.')).collect()
}

pub fn run(what: &str, folder: &Path, port: u16) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        match what {
            "backup" => back_up(folder, port).await,
            "prune" => prune(folder).await,
            "check" => check(folder).await,
            other => panic!("{other} is no step"),
        }
    });
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    println!("peak {}", peak.trim().trim_end_matches(" kB"));
}

fn engine(folder: &Path) -> Engine {
    let destination = DestinationSettings {
        spool_folder: folder.join("spool"),
        // What a killed step has left is stale within a second or two.
        lock_refresh: Duration::from_millis(400),
        lock_limit: Duration::from_secs(3),
        ..DestinationSettings::default()
    };
    let cache = CacheSettings { folder: folder.join("cache"), most_bytes: 4 << 30 };
    Engine::new(Settings { destination, cache, ..Settings::default() }).expect("an engine")
}

fn destination(folder: &Path) -> DestinationPlan {
    let folder = folder.join("destination");
    let marker = std::fs::read_to_string(folder.join(".holdfast-destination")).ok();
    DestinationPlan::local(folder, marker.map(|marker| marker.trim().to_owned()))
}

fn access(folder: &Path) -> RepositoryAccess {
    RepositoryAccess {
        destination: destination(folder),
        folder: BELOW.to_owned(),
        passwords: vec![Secret::new(PASSWORD)],
        started_at: SystemClock.now(),
    }
}

/// The backups that are there, as a service would have them on record.
fn on_record(folder: &Path) -> Vec<String> {
    let names = snapshots(&folder.join("destination").join(BELOW));
    names.into_iter().map(|name| format!("{BELOW}/snapshots/{name}")).collect()
}

async fn back_up(folder: &Path, port: u16) {
    let source = folder.join("source").to_str().expect("a plain path").to_owned();
    let repository = folder.join("destination").join(BELOW);
    let newest = snapshots(&repository).into_iter().max_by_key(|name| {
        let path = repository.join("snapshots").join(name);
        std::fs::metadata(path).and_then(|facts| facts.modified()).ok()
    });
    let credential = Credential::Key(KeySeed(Secret::new(SEED)));
    let username = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let target =
        Target { host: "127.0.0.1".to_owned(), port, username, credential, pinned_host_key: None, round_trip: None };
    let plan = BackupPlan {
        server: Server { target, jump: None, allow_private: true },
        source: Source::Files(FilesSource { path: source, excluded: Vec::new(), one_file_system: false }),
        destination: destination(folder),
        password: Some(Secret::new(PASSWORD)),
        label: "files".to_owned(),
        storage: Storage {
            retention: RetentionPolicy::of_number(5),
            appended_filename: None,
            path: "/".to_owned(),
            format: Format::Repository,
        },
        started_at: SystemClock.now(),
        last: None,
        repository: Some(RepositoryPlan {
            folder: BELOW.to_owned(),
            earlier_passwords: Vec::new(),
            parent: newest.map(|name| format!("{BELOW}/snapshots/{name}")),
        }),
    };
    let (context, _lines) = Context::new(CancellationToken::new());
    let report = engine(folder).back_up(&plan, &context, Arc::new(NoJournal)).await;
    println!("stored {}", report.unwrap_or_else(|error| panic!("{error}")).locator);
}

async fn prune(folder: &Path) {
    let budget = Duration::from_secs(3600);
    let plan = PrunePlan { repository: access(folder), budget, is_abandoned: false, on_record: on_record(folder) };
    let (context, _lines) = Context::new(CancellationToken::new());
    let report = engine(folder).prune(&plan, &context).await.unwrap_or_else(|error| panic!("{error}"));
    println!("{report:?}");
}

async fn check(folder: &Path) {
    let plan = CheckPlan { repository: access(folder), position: None, one_in: 1, on_record: on_record(folder) };
    let (context, _lines) = Context::new(CancellationToken::new());
    let report = engine(folder).check_repository(&plan, &context).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.problems.is_empty() && report.damaged.is_empty() && report.missing.is_empty(), "{report:?}");
}
