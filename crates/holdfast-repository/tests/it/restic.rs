use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_repository::{BlobKind, Id, NodeKind, Tables, Tree};
use holdfast_testkit::{Fingerprint, Ignore, SampleTree, assert_same_but, random};

use crate::folder::{Repository, chunk_lengths};

const PASSWORD: &str = "correct horse";

/// restic stores times after 2262 and restores them wrongly.
const TOO_LATE: &[u8] = b"times/in 2300";

/// A folder with something to back up and a place for a repository.
struct Scene {
    _folder: tempfile::TempDir,
    source: PathBuf,
    repository: PathBuf,
    target: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        SampleTree::create(&source);
        // Long enough for several chunks.
        std::fs::write(source.join("random 20 MiB"), random(9, 20 * 1024 * 1024)).unwrap();
        let (repository, target) = (folder.path().join("repository"), folder.path().join("target"));
        Self { _folder: folder, source, repository, target }
    }

    /// Runs restic, and returns its output and whether it succeeded.
    fn try_restic(&self, arguments: &[&str]) -> (String, bool) {
        let done = Command::new("restic")
            .args(["--no-cache", "--repo"])
            .arg(&self.repository)
            .args(arguments)
            .env("RESTIC_PASSWORD", PASSWORD)
            .env("TZ", "UTC")
            .output()
            .expect("restic is installed");
        let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        (text, done.status.success())
    }

    fn restic(&self, arguments: &[&str]) -> String {
        let (text, has_succeeded) = self.try_restic(arguments);
        assert!(has_succeeded, "restic {arguments:?}: {text}");
        text
    }

    /// Restores the only snapshot with restic, and compares.
    fn assert_restic_restores(&self, snapshot: &str) {
        let target = self.target.join(snapshot);
        // It does not replace links.
        if target.exists() {
            std::fs::remove_dir_all(&target).unwrap();
        }
        self.restic(&["restore", snapshot, "--target", target.to_str().unwrap()]);
        let restored = target.join(self.source.strip_prefix("/").unwrap());
        // It leaves out sockets, and does not restore holes and the times of links.
        let (mut expected, mut restored) = (Fingerprint::of(&self.source), Fingerprint::of(&restored));
        expected.0.retain(|_, facts| format!("{:?}", facts.kind) != "Socket");
        for facts in [&mut expected, &mut restored].into_iter().flat_map(|found| found.0.get_mut(TOO_LATE)) {
            facts.mtime = (0, 0);
        }
        let ignore = Ignore { holes: true, link_times: true, ..Ignore::default() };
        assert_same_but(&expected, &restored, ignore);
    }
}

fn visit(repository: &Repository, tree: &Id, path: &Path, visitor: &mut dyn FnMut(&Path, &[Id])) {
    let json = repository.blob(BlobKind::Tree, tree);
    let nodes = Tree::nodes(&json).unwrap();
    let mut again = Tree::default();
    for node in &nodes {
        again.add(node).unwrap();
    }
    assert_eq!(String::from_utf8_lossy(&again.finish()), String::from_utf8_lossy(&json), "the tree of {path:?}");
    for node in &nodes {
        let path =
            path.join(std::ffi::OsStr::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&node.name)));
        if node.kind == NodeKind::File {
            visitor(&path, node.content.as_deref().unwrap());
        }
        if let Some(subtree) = &node.subtree {
            visit(repository, subtree, &path, visitor);
        }
    }
}

/// The tree of a folder in a snapshot.
fn tree_at(repository: &Repository, snapshot: Id, path: &Path) -> Id {
    path.strip_prefix("/").unwrap().iter().fold(snapshot, |tree, name| {
        let nodes = Tree::nodes(&repository.blob(BlobKind::Tree, &tree)).unwrap();
        nodes.iter().find(|node| node.name == name.as_encoded_bytes()).unwrap().subtree.unwrap()
    })
}

#[test]
fn what_restic_writes_is_read_and_written_again_with_the_same_bytes() {
    let scene = Scene::new();
    scene.restic(&["init", "--repository-version", "2"]);
    scene.restic(&["backup", scene.source.to_str().unwrap()]);
    let repository = Repository::open(&scene.repository, PASSWORD);
    let tables = Tables::new(repository.config.chunker_polynomial);
    let snapshots = repository.snapshots();
    assert_eq!(snapshots[0].paths, [scene.source.to_str().unwrap()]);
    let (mut files, mut chunks) = (0, 0);
    visit(&repository, &snapshots[0].tree, Path::new("/"), &mut |path, content| {
        let bytes = std::fs::read(path).unwrap();
        let mut start = 0;
        let ours: Vec<Id> = chunk_lengths(&tables, &bytes)
            .into_iter()
            .map(|length| {
                start += length;
                Id::of(&bytes[start - length..start])
            })
            .collect();
        assert_eq!(ours, content, "the chunks of {path:?}");
        let stored: Vec<u8> = content.iter().flat_map(|id| repository.blob(BlobKind::Data, id)).collect();
        assert!(stored == bytes, "the content of {path:?}");
        (files, chunks) = (files + 1, chunks + content.len());
    });
    assert!(files > 30 && chunks > 50, "{files} files, {chunks} chunks");
}

#[test]
fn restic_checks_and_restores_what_we_write_and_writes_the_same_trees() {
    let scene = Scene::new();
    let repository = Repository::create(&scene.repository, PASSWORD);
    let tree = repository.back_up(&scene.source);
    scene.restic(&["check", "--read-data"]);
    assert!(scene.restic(&["snapshots", "--tag", "ours"]).contains("1 snapshots"));
    scene.assert_restic_restores("latest");
    // Its own backup of the same files adds nothing but a snapshot, because each tree is the same.
    scene.restic(&["backup", "--force", "--tag", "theirs", scene.source.to_str().unwrap()]);
    let reopened = Repository::open(&scene.repository, PASSWORD);
    // What is above the source has changed in between.
    let trees: Vec<Id> =
        reopened.snapshots().iter().map(|found| tree_at(&reopened, found.tree, &scene.source)).collect();
    assert_eq!(trees, [tree_at(&reopened, tree, &scene.source); 2]);
    // What restic makes of it is still understood.
    scene.restic(&["forget", "--tag", "theirs", "--keep-last", "1", "--prune", "--max-unused", "0"]);
    scene.restic(&["rebuild-index", "--read-all-packs"]);
    scene.restic(&["check", "--read-data"]);
    let pruned = Repository::open(&scene.repository, PASSWORD);
    visit(&pruned, &tree, Path::new("/"), &mut |_, _| {});
    scene.assert_restic_restores("latest");
}

#[test]
fn restic_honours_our_locks() {
    let scene = Scene::new();
    let repository = Repository::create(&scene.repository, PASSWORD);
    repository.back_up(&scene.source);
    let shared = repository.lock(false);
    assert_eq!(scene.restic(&["list", "locks"]).lines().count(), 1);
    scene.restic(&["backup", scene.source.join("small").to_str().unwrap()]);
    let (text, has_succeeded) = scene.try_restic(&["prune"]);
    assert!(!has_succeeded && text.contains("another-host"), "{text}");
    std::fs::remove_file(shared).unwrap();
    let exclusive = repository.lock(true);
    let (text, has_succeeded) = scene.try_restic(&["backup", scene.source.to_str().unwrap()]);
    assert!(!has_succeeded && text.contains("another-host"), "{text}");
    std::fs::remove_file(exclusive).unwrap();
    scene.restic(&["prune"]);
}
