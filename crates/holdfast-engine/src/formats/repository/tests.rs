//! Pruning, with restic as the second opinion, and with an end at every step.

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use holdfast_core::Secret;
use holdfast_testkit::random;

use super::place::FileKind;
use super::*;
use crate::destination::{Accepted, ListedObject, Local, PartBody, PartLayout, Stat};
use std::time::Duration;

const PASSWORD: &str = "correct horse";

/// A store whose process is killed after some changes.
struct Mortal {
    inner: Local,
    left: AtomicUsize,
}

impl Mortal {
    fn live(&self) -> Result<()> {
        let spend = |left: usize| left.checked_sub(1);
        let spent = self.left.try_update(Ordering::SeqCst, Ordering::SeqCst, spend);
        spent.map(drop).map_err(|_| EngineError::internal("killed"))
    }

    fn is_dead(&self) -> Result<()> {
        if self.left.load(Ordering::SeqCst) == 0 { Err(EngineError::internal("killed")) } else { Ok(()) }
    }
}

#[async_trait]
impl BlobStore for Mortal {
    fn part_layout(&self, expected_bytes: u64) -> PartLayout {
        self.inner.part_layout(expected_bytes)
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Accepted> {
        self.live()?;
        self.inner.put(key, body).await
    }

    async fn begin(&self, key: &str) -> Result<String> {
        self.inner.begin(key).await
    }

    async fn put_part(&self, key: &str, upload_id: &str, index: usize, body: PartBody) -> Result<String> {
        self.inner.put_part(key, upload_id, index, body).await
    }

    async fn complete(&self, key: &str, upload_id: &str, parts: Vec<String>) -> Result<Accepted> {
        self.inner.complete(key, upload_id, parts).await
    }

    async fn abort(&self, key: &str, upload_id: Option<&str>) -> Result<()> {
        self.inner.abort(key, upload_id).await
    }

    async fn stat(&self, key: &str) -> Result<Option<Stat>> {
        self.is_dead()?;
        self.inner.stat(key).await
    }

    async fn read(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        self.is_dead()?;
        self.inner.read(key, range).await
    }

    async fn remove(&self, key: &str) -> Result<()> {
        self.live()?;
        self.inner.remove(key).await
    }

    async fn list_objects(&self, prefix: &str, limit: usize) -> Result<Vec<ListedObject>> {
        self.is_dead()?;
        self.inner.list_objects(prefix, limit).await
    }
}

fn restic(repository: &Path, arguments: &[&str]) -> String {
    let done = Command::new("restic")
        .args(["--no-cache", "--repo"])
        .arg(repository)
        .args(arguments)
        .env("RESTIC_PASSWORD", PASSWORD)
        .output()
        .expect("restic is installed");
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "restic {arguments:?}: {text}");
    text
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

/// Makes a repository of which most is unused: of three snapshots of ten files, the last one is left.
fn littered(folder: &Path) {
    let (source, repository) = (folder.join("source"), folder.join("repository"));
    std::fs::create_dir(&source).unwrap();
    restic(&repository, &["init", "--repository-version", "2"]);
    for round in 0..3_u64 {
        for file in 0..10_u64 {
            // Every other file changes with each snapshot.
            let seed = if file.is_multiple_of(2) { file + 1 } else { 1000 + 100 * round + file };
            std::fs::write(source.join(file.to_string()), random(seed, 300_000)).unwrap();
        }
        restic(&repository, &["backup", "--pack-size", "4", source.to_str().unwrap()]);
    }
    restic(&repository, &["forget", "--keep-last", "1"]);
}

async fn prune_at(at: &Path, steps: usize) -> Result<PruneReport> {
    let (inner, _) = Local::open(at, None).await.unwrap();
    let store: Arc<dyn BlobStore> = Arc::new(Mortal { inner, left: AtomicUsize::new(steps) });
    let keys = crate::known_keys::KnownKeys::default();
    let shared = Shared { keys: &keys, cache: None };
    let place = Place::new(store, "repository");
    let opened = Repository::open(&place, &[Secret::new(PASSWORD)], shared).await?.expect("a repository");
    let (context, _lines) = Context::new(CancellationToken::new());
    let settings = crate::destination::DestinationSettings::default();
    let holder = Holder::new(&settings, holdfast_core::clock::Clock::now(&holdfast_core::clock::SystemClock));
    // Written to the folder itself: the steps are those of the prune.
    let (inner, _) = Local::open(at, None).await.unwrap();
    let lasting = Repository { place: Place::new(Arc::new(inner), "repository"), ..opened.clone() };
    let lock = HeldLock::acquire(&lasting, &holder, true, &context).await?;
    let pruned = pruning::prune(&opened, Duration::MAX, &lock, &context).await;
    lock.release(&context).await;
    pruned
}

fn assert_whole(folder: &Path) {
    let repository = folder.join("repository");
    restic(&repository, &["check", "--read-data"]);
    let target = folder.join("target");
    restic(&repository, &["restore", "latest", "--target", target.to_str().unwrap()]);
    let source = folder.join("source");
    let restored = target.join(source.strip_prefix("/").unwrap());
    for file in 0..10 {
        let name = file.to_string();
        assert!(std::fs::read(source.join(&name)).unwrap() == std::fs::read(restored.join(&name)).unwrap(), "{name}");
    }
    std::fs::remove_dir_all(target).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prune_removes_what_is_unused_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    littered(folder.path());
    let report = prune_at(folder.path(), usize::MAX).await.unwrap();
    assert_eq!(report.snapshots, 1);
    assert!(report.freed_bytes > 2_500_000 && report.repacked_packs > 0, "{report:?}");
    assert!(report.unused_bytes * 20 <= report.used_bytes + report.unused_bytes, "{report:?}");
    assert_whole(folder.path());
    let again = prune_at(folder.path(), usize::MAX).await.unwrap();
    assert_eq!((again.removed_packs, again.repacked_packs, again.freed_bytes), (0, 0, 0), "{again:?}");
    // restic agrees that there is nothing to do.
    let text = restic(&folder.path().join("repository"), &["prune", "--dry-run"]);
    assert!(text.contains("to delete:") && text.contains(" 0 B"), "{text}");
    assert_whole(folder.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prune_that_ends_at_any_step_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    littered(folder.path());
    let (repository, kept) = (folder.path().join("repository"), folder.path().join("kept"));
    copy(&repository, &kept);
    let mut steps = 1;
    while prune_at(folder.path(), steps).await.is_err() {
        assert_whole(folder.path());
        prune_at(folder.path(), usize::MAX).await.unwrap();
        assert_whole(folder.path());
        std::fs::remove_dir_all(&repository).unwrap();
        copy(&kept, &repository);
        steps += 1;
    }
    assert!(steps > 4, "only {steps} steps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_that_misses_something_is_not_pruned() {
    let folder = tempfile::tempdir().unwrap();
    littered(folder.path());
    let (repository, kept) = (folder.path().join("repository"), folder.path().join("kept"));
    copy(&repository, &kept);
    let packs = || {
        let folders = std::fs::read_dir(repository.join("data")).unwrap().map(|folder| folder.unwrap().path());
        let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
        files.map(|file| file.unwrap().path()).collect::<Vec<_>>()
    };
    let (mut refused, all) = (0, packs());
    for pack in &all {
        std::fs::remove_file(pack).unwrap();
        match prune_at(folder.path(), usize::MAX).await {
            Err(error) => {
                assert_eq!(error.code, FailureCode::Corrupt, "{error}");
                assert_eq!(packs().len(), all.len() - 1, "nothing was removed");
                refused += 1;
            }
            Ok(_) => assert_whole(folder.path()),
        }
        std::fs::remove_dir_all(&repository).unwrap();
        copy(&kept, &repository);
    }
    assert!(refused > 0 && refused < all.len(), "{refused} of {}", all.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_somebody_removes_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    restic(&folder.path().join("repository"), &["init", "--repository-version", "2"]);
    let (inner, _) = Local::open(folder.path(), None).await.unwrap();
    let place = Place::new(Arc::new(inner), "repository");
    let keys = crate::known_keys::KnownKeys::default();
    let shared = Shared { keys: &keys, cache: None };
    let repository = Repository::open(&place, &[Secret::new(PASSWORD)], shared).await.unwrap().unwrap();
    let settings = crate::destination::DestinationSettings::default();
    let holder = Holder::new(&settings, holdfast_core::clock::Clock::now(&holdfast_core::clock::SystemClock));
    let (context, _lines) = Context::new(CancellationToken::new());
    let lock = HeldLock::acquire(&repository, &holder, true, &context).await.unwrap();
    lock.confirm().await.unwrap();
    drop(lock);
    while !place.list(FileKind::Lock).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let lock = HeldLock::acquire(&repository, &holder, true, &context).await.unwrap();
    restic(&folder.path().join("repository"), &["unlock", "--remove-all"]);
    let error = lock.confirm().await.unwrap_err();
    assert_eq!(error.code, FailureCode::Locked, "{error}");
    drop(lock);
    // Also if it would have been written again since.
    let often = crate::destination::DestinationSettings { lock_refresh: Duration::from_millis(20), ..settings };
    let holder = Holder::new(&often, holdfast_core::clock::Clock::now(&holdfast_core::clock::SystemClock));
    let lock = HeldLock::acquire(&repository, &holder, false, &context).await.unwrap();
    restic(&folder.path().join("repository"), &["unlock", "--remove-all"]);
    lock.wait_until_lost().await;
    assert!(place.list(FileKind::Lock).await.unwrap().is_empty(), "no other one takes its place");
    assert_eq!(lock.confirm().await.unwrap_err().code, FailureCode::Locked);
}
