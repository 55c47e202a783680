use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use holdfast_core::Secret;
use holdfast_core::backup::RestoreOptions;
use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_core::failure::FailureCode;
use holdfast_core::retention::RetentionPolicy;
use holdfast_core::storage::{Format, Storage};
use holdfast_engine::ssh::{Credential, KeySeed, Target};
use holdfast_engine::{
    BackupPlan, BackupReport, CacheSettings, CheckPlan, CheckReport, Context, DestinationPlan, DestinationSettings,
    Engine, FilesSource, Journal, RepositoryAccess, RepositoryPlan, RestorePlan, RestoreReport, RestoreTarget, Result,
    Scope, Server, Settings, Source, StoredBackup,
};
use holdfast_testkit::{Fingerprint, Ignore, SampleTree, SshServer, assert_same_but, random};
use tokio_util::sync::CancellationToken;

const PASSWORD: &str = "correct horse";

/// A key of 32 sevens.
const SEED: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
const PUBLIC_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOpKbGPinFIKvvVQexMuxfmVR3auvr57kkIe6mkURtIs test";

struct NoJournal;

#[async_trait]
impl Journal for NoJournal {
    async fn upload_begins(&self, _key: &str) -> Result<()> {
        Ok(())
    }

    async fn upload_begun(&self, _key: &str, _upload_id: &str) -> Result<()> {
        Ok(())
    }
}

/// A server with a source, and a destination with a repository.
struct Scene {
    folder: tempfile::TempDir,
    ssh: SshServer,
    key: KeySeed,
    engine: Engine,
    password: Secret,
    earlier_passwords: Vec<Secret>,
    parent: Option<String>,
    /// How many bytes the last backup read from the server, or the last restore from the repository.
    read: AtomicU64,
}

impl Scene {
    fn new() -> Self {
        Self::on(SshServer::start())
    }

    fn on(ssh: SshServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeySeed(Secret::new(SEED));
        ssh.authorize(PUBLIC_KEY);
        let spool_folder = folder.path().join("spool");
        let destination =
            DestinationSettings { spool_folder, lock_limit: Duration::ZERO, ..DestinationSettings::default() };
        let cache = CacheSettings { folder: folder.path().join("cache"), most_bytes: 64 * 1024 * 1024 };
        let engine = Engine::new(Settings { destination, cache, ..Settings::default() }).unwrap();
        std::fs::create_dir(folder.path().join("source")).unwrap();
        Self {
            folder,
            ssh,
            key,
            engine,
            password: Secret::new(PASSWORD),
            earlier_passwords: Vec::new(),
            parent: None,
            read: AtomicU64::default(),
        }
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    fn repository(&self) -> PathBuf {
        self.folder.path().join("destination/some/folder")
    }

    fn destination(&self) -> DestinationPlan {
        let folder = self.folder.path().join("destination");
        let marker = std::fs::read_to_string(folder.join(".holdfast-destination")).ok();
        DestinationPlan::local(folder, marker.map(|marker| marker.trim().to_owned()))
    }

    fn server(&self) -> Server {
        let target = Target {
            host: "127.0.0.1".to_owned(),
            port: self.ssh.port(),
            username: self.ssh.username().to_owned(),
            credential: Credential::Key(self.key.clone()),
            pinned_host_key: None,
            round_trip: None,
        };
        Server { target, jump: None, allow_private: true }
    }

    /// Waits until no file has changed in this second or the last one: such files count as changed.
    fn settle(&self) {
        let mut newest = 0;
        let mut folders = vec![self.source()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let facts = std::fs::symlink_metadata(&path).unwrap();
                newest = facts.ctime().max(newest);
                if facts.is_dir() {
                    folders.push(path);
                }
            }
            newest = std::fs::symlink_metadata(&folder).unwrap().ctime().max(newest);
        }
        while SystemClock.now().as_second() <= newest + 1 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Backs up after the last backup, and returns how many bytes were read from the server.
    async fn back_up_after(&mut self, last: &BackupReport) -> (BackupReport, u64) {
        self.parent = Some(last.locator.clone());
        let report = self.back_up().await;
        (report, self.read.load(Ordering::Relaxed))
    }

    async fn try_back_up(&self) -> (Result<BackupReport>, String) {
        let source = FilesSource {
            path: self.source().to_str().unwrap().to_owned(),
            excluded: Vec::new(),
            one_file_system: false,
        };
        let plan = BackupPlan {
            server: self.server(),
            source: Source::Files(source),
            destination: self.destination(),
            password: Some(self.password.clone()),
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
                folder: "some/folder".to_owned(),
                earlier_passwords: self.earlier_passwords.clone(),
                parent: self.parent.clone(),
            }),
        };
        let (context, mut lines) = Context::new(CancellationToken::new());
        let report = self.engine.back_up(&plan, &context, Arc::new(NoJournal)).await;
        lines.close();
        self.read.store(context.progress.counts().bytes_read, Ordering::Relaxed);
        let mut log = String::new();
        while let Ok(line) = lines.try_recv() {
            log += &(line + "\n");
        }
        (report, log)
    }

    async fn back_up(&self) -> BackupReport {
        let (report, log) = self.try_back_up().await;
        report.unwrap_or_else(|error| panic!("{error}\n{log}"))
    }

    fn stored(&self, report: &BackupReport) -> StoredBackup {
        StoredBackup {
            destination: self.destination(),
            format: report.format,
            locator: report.locator.clone(),
            content: report.content,
            size_bytes: report.stored_bytes,
            sha256: report.stored_sha256.clone(),
            plain_bytes: report.plain_bytes,
            plain_sha256: report.plain_sha256.clone(),
            entries: report.entries,
            is_encrypted: true,
            password: Some(self.password.clone()),
            other_passwords: Vec::new(),
            opened_at: Some(SystemClock.now()),
            proven: None,
            scope: Scope::default(),
            hold: None,
        }
    }

    /// The local copies of files of the repository.
    fn copies(&self) -> Vec<PathBuf> {
        let files = |folder: &Path| {
            let entries = std::fs::read_dir(folder).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        let repositories = files(&self.folder.path().join("cache"));
        repositories.iter().flat_map(|folder| files(folder)).flat_map(|kind| files(&kind)).collect()
    }

    async fn check(&self, on_record: &[&BackupReport]) -> CheckReport {
        let repository = RepositoryAccess {
            destination: self.destination(),
            folder: "some/folder".to_owned(),
            passwords: vec![self.password.clone()],
            started_at: SystemClock.now(),
        };
        let on_record = on_record.iter().map(|report| report.locator.clone()).collect();
        let plan = CheckPlan { repository, position: None, one_in: 1, on_record };
        let (context, _lines) = Context::new(CancellationToken::new());
        self.engine.check_repository(&plan, &context).await.unwrap()
    }

    async fn restore(&self, report: &BackupReport, to: &Path, entries: &[&str]) -> RestoreReport {
        let plan = RestorePlan {
            backup: self.stored(report),
            server: self.server(),
            overwrite: false,
            options: RestoreOptions::default(),
            target: RestoreTarget::Path {
                path: to.to_str().unwrap().to_owned(),
                entries: entries.iter().map(|entry| (*entry).to_owned()).collect(),
            },
        };
        let (context, _lines) = Context::new(CancellationToken::new());
        let report = self.engine.restore(&plan, &context).await.unwrap();
        self.read.store(context.progress.counts().bytes_read, Ordering::Relaxed);
        report
    }

    async fn verify(&self, report: &BackupReport) -> Result<()> {
        let (context, _lines) = Context::new(CancellationToken::new());
        self.engine.verify(&self.stored(report), &context).await
    }

    fn restic(&self, arguments: &[&str]) -> String {
        let done = Command::new("restic")
            .args(["--no-cache", "--repo"])
            .arg(self.repository())
            .args(arguments)
            .env("RESTIC_PASSWORD", self.password.reveal())
            .output()
            .expect("restic is installed");
        let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "restic {arguments:?}: {text}");
        text
    }

    fn packs(&self) -> Vec<PathBuf> {
        let folders = std::fs::read_dir(self.repository().join("data")).unwrap();
        let of = |folder: std::io::Result<std::fs::DirEntry>| std::fs::read_dir(folder.unwrap().path()).unwrap();
        folders.flat_map(of).map(|entry| entry.unwrap().path()).collect()
    }
}

/// What neither restic nor a repository keeps.
const IGNORED: Ignore = Ignore {
    holes: true,
    link_times: false,
    folder_times: false,
    nanoseconds: false,
    owners: false,
    hard_links: false,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_come_back_as_they_were_from_us_and_from_restic() {
    let scene = Scene::new();
    SampleTree::create(&scene.source());
    std::fs::write(scene.source().join("several chunks"), random(9, 12 * 1024 * 1024)).unwrap();
    let report = scene.back_up().await;
    scene.restic(&["check", "--read-data"]);
    scene.verify(&report).await.unwrap();

    let mut expected = Fingerprint::of(&scene.source());
    expected.0.retain(|_, facts| format!("{:?}", facts.kind) != "Socket");
    let target = scene.folder.path().join("ours");
    scene.restore(&report, &target, &[]).await;
    assert_same_but(&expected, &Fingerprint::of(&target), IGNORED);

    let target = scene.folder.path().join("restic");
    scene.restic(&["restore", "latest", "--target", target.to_str().unwrap()]);
    let mut restored = Fingerprint::of(&target.join(scene.source().strip_prefix("/").unwrap()));
    for facts in [&mut expected, &mut restored].into_iter().filter_map(|found| found.0.get_mut(&b"times/in 2300"[..])) {
        facts.mtime = (0, 0);
    }
    assert_same_but(&expected, &restored, Ignore { link_times: true, ..IGNORED });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_backup_stores_only_what_is_new() {
    let scene = Scene::new();
    SampleTree::create(&scene.source());
    std::fs::write(scene.source().join("large"), random(3, 20 * 1024 * 1024)).unwrap();
    scene.settle();
    let first = scene.back_up().await;
    let again = scene.back_up().await;
    assert!(again.stored_bytes < 2000, "{} bytes for nothing", again.stored_bytes);
    // One byte in the middle of a large file.
    let mut large = random(3, 20 * 1024 * 1024);
    large[10_000_000] ^= 1;
    std::fs::write(scene.source().join("large"), &large).unwrap();
    let changed = scene.back_up().await;
    assert!((500_000..17_000_000).contains(&changed.stored_bytes), "{} bytes", changed.stored_bytes);
    assert_eq!((first.entries, first.plain_bytes), (changed.entries, changed.plain_bytes));
    scene.restic(&["check", "--read-data"]);
    for (report, name) in [(&first, "first"), (&changed, "changed")] {
        let target = scene.folder.path().join(name);
        scene.restore(report, &target, &["large"]).await;
        let restored = std::fs::read(target.join("large")).unwrap();
        assert_eq!(restored == large, name == "changed", "{name}");
        assert_eq!(restored.len(), large.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_found_named_and_repaired_by_the_next_backup() {
    let scene = Scene::new();
    std::fs::write(scene.source().join("file"), random(3, 3 * 1024 * 1024)).unwrap();
    let report = scene.back_up().await;
    let packs = scene.packs();
    let largest = packs.iter().max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap();
    let good = std::fs::read(largest).unwrap();
    let name = largest.file_name().unwrap().to_str().unwrap();
    for place in [0, good.len() / 2] {
        let mut bad = good.clone();
        bad[place] ^= 1;
        std::fs::write(largest, bad).unwrap();
        let error = scene.verify(&report).await.unwrap_err();
        assert_eq!(error.code, FailureCode::Corrupt);
        assert!(error.message.contains(name), "{error}");
    }
    for bad in [&good[..good.len() / 3], &[]] {
        std::fs::write(largest, bad).unwrap();
        assert!(scene.verify(&report).await.is_err());
    }
    std::fs::remove_file(largest).unwrap();
    assert_eq!(scene.verify(&report).await.unwrap_err().code, FailureCode::Corrupt);
    // The next backup notices that the pack is gone, and stores its content again.
    let (next, log) = scene.try_back_up().await;
    assert!(log.contains("1 packs of this repository are gone"), "{log}");
    scene.verify(&next.unwrap()).await.unwrap();
    scene.verify(&report).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_password_opens_it_and_a_new_one_replaces_the_old() {
    let mut scene = Scene::new();
    std::fs::write(scene.source().join("file"), "content").unwrap();
    let report = scene.back_up().await;
    scene.password = Secret::new("another");
    assert_eq!(scene.verify(&report).await.unwrap_err().code, FailureCode::WrongPassword);
    assert_eq!(scene.try_back_up().await.0.unwrap_err().code, FailureCode::WrongPassword);
    scene.earlier_passwords = vec![Secret::new("never used"), Secret::new(PASSWORD)];
    scene.back_up().await;
    scene.verify(&report).await.unwrap();
    scene.restic(&["check", "--read-data"]);
    let keys = std::fs::read_dir(scene.repository().join("keys")).unwrap().count();
    assert_eq!(keys, 1, "the old password opens nothing any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_others_are_honoured_and_ours_are_removed() {
    let scene = Scene::new();
    std::fs::write(scene.source().join("file"), "content").unwrap();
    scene.back_up().await;
    assert_eq!(std::fs::read_dir(scene.repository().join("locks")).unwrap().count(), 0);
    // restic holds a shared lock while it waits for its input to end, and leaves it if it is killed.
    let mut restic = Command::new("restic")
        .args(["--no-cache", "--repo"])
        .arg(scene.repository())
        .args(["backup", "--stdin"])
        .env("RESTIC_PASSWORD", PASSWORD)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while std::fs::read_dir(scene.repository().join("locks")).unwrap().count() == 0 {
        std::thread::yield_now();
    }
    scene.back_up().await;
    restic.kill().unwrap();
    restic.wait().unwrap();
    scene.back_up().await;
    scene.restic(&["unlock", "--remove-all"]);
    scene.restic(&["prune"]);
    scene.restic(&["check", "--read-data"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_not_changed_is_not_read_and_equals_what_restic_stores() {
    let mut scene = Scene::new();
    SampleTree::create(&scene.source());
    scene.settle();
    let first = scene.back_up().await;
    let (again, read) = scene.back_up_after(&first).await;
    assert_eq!(read, 0, "nothing has changed");
    assert_eq!((again.entries, again.plain_bytes, again.is_empty), (first.entries, first.plain_bytes, false));
    scene.verify(&again).await.unwrap();
    // restic's own backup of the same files differs in nothing, not even in metadata.
    scene.restic(&["backup", "--force", scene.source().to_str().unwrap()]);
    let id = |report: &BackupReport| report.locator.rsplit('/').next().unwrap().to_owned();
    let ours = [id(&first), id(&again)];
    let snapshots = std::fs::read_dir(scene.repository().join("snapshots")).unwrap();
    let mut names = snapshots.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let theirs = names.find(|name| !ours.contains(name)).unwrap();
    let text = scene.restic(&["diff", "--metadata", &ours[1], &theirs]);
    let source = scene.source();
    let below = format!("{}/", source.to_str().unwrap());
    assert!(!text.lines().any(|line| line.contains(&below)), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_change_is_found() {
    let mut scene = Scene::new();
    SampleTree::create(&scene.source());
    let source = scene.source();
    let at = |name: &str| source.join(name);
    std::fs::create_dir_all(at("deep/er/still")).unwrap();
    for name in ["deep/er/still/a", "deep/er/b", "deep/c", "same size", "grows", "gone", "becomes a folder", "linked"] {
        std::fs::write(at(name), name).unwrap();
    }
    scene.settle();
    let mut last = scene.back_up().await;
    type Change<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let changes: Vec<Change<'_>> = vec![
        ("content of the same size, with its old time", {
            Box::new(|| {
                let times = std::fs::metadata(at("same size")).unwrap().modified().unwrap();
                std::fs::write(at("same size"), "SAME SIZE").unwrap();
                std::fs::File::options().write(true).open(at("same size")).unwrap().set_modified(times).unwrap();
            })
        }),
        ("a larger file, deep in the tree", Box::new(|| std::fs::write(at("deep/er/still/a"), [7; 5000]).unwrap())),
        ("a file is gone", Box::new(|| std::fs::remove_file(at("gone")).unwrap())),
        ("a folder is gone", Box::new(|| std::fs::remove_dir_all(at("deep/er/still")).unwrap())),
        ("a file becomes a folder", {
            Box::new(|| {
                std::fs::remove_file(at("becomes a folder")).unwrap();
                std::fs::create_dir(at("becomes a folder")).unwrap();
                std::fs::write(at("becomes a folder/x"), "x").unwrap();
            })
        }),
        ("a folder is renamed", Box::new(|| std::fs::rename(at("deep"), at("renamed")).unwrap())),
        (
            "another mode",
            Box::new(|| {
                std::fs::set_permissions(at("grows"), std::fs::Permissions::from_mode(0o4711)).unwrap();
            }),
        ),
        (
            "another mode of the source",
            Box::new(|| {
                std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o710)).unwrap();
            }),
        ),
        (
            "a hard link and a symbolic link",
            Box::new(|| {
                std::fs::hard_link(at("linked"), at("renamed/hard")).unwrap();
                symlink("linked", at("soft")).unwrap();
            }),
        ),
        ("nothing but a hole", Box::new(|| std::fs::File::create(at("hole")).unwrap().set_len(300_000).unwrap())),
        ("nothing", Box::new(|| {})),
    ];
    for (number, (what, change)) in changes.iter().enumerate() {
        change();
        scene.settle();
        let (report, _) = scene.back_up_after(&last).await;
        let target = scene.folder.path().join(number.to_string());
        scene.restore(&report, &target, &[]).await;
        let mut expected = Fingerprint::of(&source);
        expected.0.retain(|_, facts| format!("{:?}", facts.kind) != "Socket");
        let differences = expected.differences(&Fingerprint::of(&target), IGNORED);
        assert!(differences.is_empty(), "{what}: {}", differences.join("\n"));
        last = report;
    }
    scene.restic(&["check", "--read-data"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_last_snapshot_everything_is_read() {
    let mut scene = Scene::new();
    std::fs::write(scene.source().join("file"), [1; 100_000]).unwrap();
    scene.settle();
    let first = scene.back_up().await;
    std::fs::remove_file(scene.folder.path().join("destination").join(&first.locator)).unwrap();
    let (second, read) = scene.back_up_after(&first).await;
    assert!(read > 100_000, "{read}");
    scene.verify(&second).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_repository_has_lost_is_read_again_although_it_has_not_changed() {
    let mut scene = Scene::new();
    SampleTree::create(&scene.source());
    std::fs::write(scene.source().join("large"), random(3, 3 * 1024 * 1024)).unwrap();
    scene.settle();
    let first = scene.back_up().await;
    for pack in scene.packs() {
        let bytes = std::fs::read(&pack).unwrap();
        std::fs::remove_file(&pack).unwrap();
        let (next, _) = scene.back_up_after(&first).await;
        scene.verify(&next).await.unwrap();
        let target = scene.folder.path().join(pack.file_name().unwrap());
        scene.restore(&next, &target, &[]).await;
        let mut expected = Fingerprint::of(&scene.source());
        expected.0.retain(|_, facts| format!("{:?}", facts.kind) != "Socket");
        assert_same_but(&expected, &Fingerprint::of(&target), IGNORED);
        std::fs::create_dir_all(pack.parent().unwrap()).unwrap();
        std::fs::write(&pack, bytes).unwrap();
    }
    scene.restic(&["check", "--read-data"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_chosen_is_read() {
    let scene = Scene::new();
    let at = |name: &str| scene.source().join(name);
    for folder in ["chosen/below", "other"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    std::fs::write(at("chosen/below/small"), "small").unwrap();
    std::fs::write(at("other/large"), random(5, 20 * 1024 * 1024)).unwrap();
    // Which of the two is the file and which the link to it depends on the order in which tar sends them.
    std::fs::write(at("other/twin"), random(6, 2000)).unwrap();
    std::fs::hard_link(at("other/twin"), at("chosen/twin")).unwrap();
    let report = scene.back_up().await;
    let read = || scene.read.load(Ordering::Relaxed);
    let target = scene.folder.path().join("some");
    let restored = scene.restore(&report, &target, &["chosen"]).await;
    assert!(read() < 100_000, "{} bytes", read());
    assert_eq!(restored.counted.restored, 4, "two folders and two files");
    assert_eq!(std::fs::read(target.join("chosen/twin")).unwrap(), random(6, 2000));
    assert_eq!(std::fs::read_to_string(target.join("chosen/below/small")).unwrap(), "small");
    assert!(!target.join("other").exists());
    // Into a folder in use, where it is read first.
    scene.restore(&report, &target, &["other/twin"]).await;
    assert!(read() < 100_000, "{} bytes", read());
    assert_eq!(std::fs::read(target.join("other/twin")).unwrap(), random(6, 2000));
    scene.restore(&report, &target, &["chosen/twin", "other/twin", "other/large"]).await;
    assert_eq!(std::fs::read(target.join("other/large")).unwrap(), random(5, 20 * 1024 * 1024));
    let whole = scene.folder.path().join("whole");
    scene.restore(&report, &whole, &[]).await;
    assert_eq!(std::fs::metadata(whole.join("other/twin")).unwrap().nlink(), 2, "both of a pair stay one file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_copies_save_reading_and_decide_nothing() {
    let mut scene = Scene::new();
    SampleTree::create(&scene.source());
    scene.settle();
    let first = scene.back_up().await;
    let kept = scene.copies();
    assert!(kept.len() >= 2, "an index and a pack with folders: {kept:?}");
    for copy in &kept {
        assert_eq!(std::fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o600);
    }
    // Whatever is wrong with the copies, the backup is right.
    type Harm = fn(&Path);
    let flip: Harm = |copy| {
        let mut bytes = std::fs::read(copy).unwrap();
        bytes.iter_mut().step_by(100).for_each(|byte| *byte ^= 1);
        std::fs::write(copy, bytes).unwrap();
    };
    let cut: Harm = |copy| std::fs::File::options().write(true).open(copy).unwrap().set_len(10).unwrap();
    let remove: Harm = |copy| std::fs::remove_file(copy).unwrap();
    let block: Harm = |copy| {
        std::fs::remove_file(copy).unwrap();
        std::fs::create_dir(copy).unwrap();
    };
    for harm in [flip, cut, remove, block] {
        scene.copies().iter().filter(|copy| copy.is_file()).for_each(|copy| harm(copy));
        let (again, read) = scene.back_up_after(&first).await;
        assert_eq!(read, 0, "nothing has changed");
        scene.verify(&again).await.unwrap();
        scene.restic(&["check", "--read-data"]);
    }
    std::fs::remove_dir_all(scene.folder.path().join("cache")).unwrap();
    let (last, _) = scene.back_up_after(&first).await;
    assert!(!scene.copies().is_empty());
    // A good copy does not stand for what the destination has lost.
    for pack in scene.packs() {
        if scene.copies().iter().any(|copy| copy.file_name() == pack.file_name()) {
            let mut bytes = std::fs::read(&pack).unwrap();
            bytes[0] ^= 1;
            std::fs::write(&pack, bytes).unwrap();
        }
    }
    assert_eq!(scene.verify(&last).await.unwrap_err().code, FailureCode::Corrupt);
    let report = scene.check(&[&last]).await;
    assert_eq!(report.damaged.len(), 6, "every snapshot: {:?}", report.problems);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_good_pack_of_two_is_enough() {
    let scene = Scene::new();
    SampleTree::create(&scene.source());
    // Otherwise the times of what has just changed are in the second backup alone.
    scene.settle();
    let first = scene.back_up().await;
    let (indexes, aside) = (scene.repository().join("index"), scene.folder.path().join("aside"));
    let old = scene.packs();
    // Without its index everything is stored again; with it, everything is there twice.
    std::fs::rename(&indexes, &aside).unwrap();
    let second = scene.back_up().await;
    for index in std::fs::read_dir(&aside).unwrap() {
        let index = index.unwrap();
        std::fs::copy(index.path(), indexes.join(index.file_name())).unwrap();
    }
    let new: Vec<PathBuf> = scene.packs().into_iter().filter(|pack| !old.contains(pack)).collect();
    assert!(old.len() > 1 && new.len() > 1);
    for packs in [&old, &new] {
        let good: Vec<Vec<u8>> = packs.iter().map(|pack| std::fs::read(pack).unwrap()).collect();
        for (pack, good) in packs.iter().zip(&good) {
            let mut bad = good.clone();
            bad.iter_mut().step_by(50).for_each(|byte| *byte ^= 1);
            std::fs::write(pack, bad).unwrap();
        }
        scene.verify(&first).await.unwrap();
        scene.verify(&second).await.unwrap();
        packs.iter().zip(good).for_each(|(pack, good)| std::fs::write(pack, good).unwrap());
    }
    // A check names the bad packs and takes them out, and no backup is damaged.
    std::fs::write(&new[0], b"rubbish").unwrap();
    let report = scene.check(&[&first, &second]).await;
    assert_eq!((report.problems.len(), report.damaged.len()), (1, 0), "{:?}", report.problems);
    let report = scene.check(&[&first, &second]).await;
    assert_eq!((report.problems, report.damaged), (Vec::new(), Vec::new()));
    scene.verify(&second).await.unwrap();
}

/// Whatever is wrong with the packs that have the folders: what the next backup needs of them is stored again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_that_the_destination_has_lost_are_stored_again() {
    type Harm = fn(&mut Vec<u8>);
    let cut: Harm = |bytes| bytes.truncate(bytes.len() / 2);
    let empty: Harm = Vec::clear;
    let flip: Harm = |bytes| bytes.iter_mut().step_by(20).for_each(|byte| *byte ^= 1);
    // A copy of a pack that has other bytes now is not compared with it: only reading the pack tells.
    for (harm, keeps_copies) in [(cut, true), (cut, false), (empty, true), (flip, false)] {
        let mut scene = Scene::new();
        SampleTree::create(&scene.source());
        scene.settle();
        let first = scene.back_up().await;
        let copied: Vec<_> = scene.copies().iter().map(|copy| copy.file_name().unwrap().to_owned()).collect();
        for pack in scene.packs().iter().filter(|pack| copied.iter().any(|copy| pack.file_name() == Some(copy))) {
            let mut bytes = std::fs::read(pack).unwrap();
            harm(&mut bytes);
            std::fs::write(pack, bytes).unwrap();
        }
        if !keeps_copies {
            std::fs::remove_dir_all(scene.folder.path().join("cache")).unwrap();
        }
        assert!(scene.verify(&first).await.is_err());
        std::fs::write(scene.source().join("new"), "content").unwrap();
        scene.parent = Some(first.locator.clone());
        let (next, log) = scene.try_back_up().await;
        let next = next.unwrap_or_else(|error| panic!("{error}\n{log}"));
        scene.verify(&next).await.unwrap_or_else(|error| panic!("{error}\n{log}"));
        let target = scene.folder.path().join("restored");
        scene.restore(&next, &target, &[]).await;
        let mut expected = Fingerprint::of(&scene.source());
        expected.0.retain(|_, facts| format!("{:?}", facts.kind) != "Socket");
        assert_same_but(&expected, &Fingerprint::of(&target), IGNORED);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_replaced_while_it_is_backed_up_keeps_its_content() {
    let shims = tempfile::tempdir().unwrap();
    // Replaces the link right before tar reads it, after it has been listed.
    let script =
        "#!/bin/sh\ncase \"$*\" in *--version*) ;; *) [ ! -e .new ] || mv .new b ;; esac\nexec /usr/bin/tar \"$@\"\n";
    std::fs::write(shims.path().join("tar"), script).unwrap();
    std::fs::set_permissions(shims.path().join("tar"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let scene = Scene::on(SshServer::builder().with_path_shims(shims.path()).start());
    let at = |name: &str| scene.source().join(name);
    std::fs::write(at("a"), "content of both").unwrap();
    for link in ["b", "c"] {
        std::fs::hard_link(at("a"), at(link)).unwrap();
    }
    std::fs::write(at(".new"), "other content").unwrap();
    let (report, _) = scene.try_back_up().await;
    let report = report.unwrap();
    assert!(!at(".new").exists(), "it was replaced meanwhile");
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    let ours = scene.folder.path().join("ours");
    scene.restore(&report, &ours, &[]).await;
    let theirs = scene.folder.path().join("theirs");
    scene.restic(&["restore", "latest", "--target", theirs.to_str().unwrap()]);
    for folder in [ours, theirs.join(scene.source().strip_prefix("/").unwrap())] {
        assert_eq!(read(folder.join("b")), "other content", "{}", folder.display());
        assert_eq!(
            (read(folder.join("a")), read(folder.join("c"))),
            ("content of both".into(), "content of both".into())
        );
        let inode = |name: &str| std::fs::metadata(folder.join(name)).unwrap().ino();
        assert!(inode("a") == inode("c") && inode("a") != inode("b"));
    }
}
