//! Measures backups, prunes and checks of a repository with millions of small blobs, beside restic.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use holdfast_core::Secret;
use holdfast_repository::{
    BlobKind, GoTime, Id, IndexFile, Key, KeyFile, Node, NodeKind, PackBuilder, SealedBlob, Snapshot, Tree, seal_blob,
    seal_json,
};
use zstd::bulk::Compressor;

use crate::step::{PASSWORD, Scene, snapshots};

/// How many blobs a pack has, as one of a few megabytes with small files.
const BLOBS_OF_PACK: usize = 4000;
/// How many chunks each file has, and how many files a folder has.
const CHUNKS_OF_FILE: usize = 1000;
const FILES_OF_FOLDER: usize = 100;

pub fn run(count: usize) {
    let scene = Scene::new();
    std::fs::write(scene.source().join("file"), "content").expect("our own file");
    let first = measure(&scene, "backup");
    println!("| what | Holdfast s | MiB | restic s | MiB |\n|---|---|---|---|---|");
    println!("| backup into an empty repository | {:.1} | {:.0} | | |", first.0, first.1);
    let begun = Instant::now();
    let repository = scene.repository();
    let mut writer = Writer::open(&repository);
    // Two snapshots, each of which needs every other file.
    let written = writer.write(count);
    println!("wrote {written} blobs in {:.0} s", begun.elapsed().as_secs_f64());
    let goal = 160.0 + written as f64 * 60.0 / 1_048_576.0;
    let row = |what: &str, ours: (f64, f64), theirs: Option<(f64, f64)>| {
        let theirs = theirs.map_or_else(|| " | ".to_owned(), |(time, mib)| format!("{time:.1} | {mib:.0}"));
        println!("| {what} | {:.1} | {:.0} | {theirs} |", ours.0, ours.1);
    };
    let ours = measure(&scene, "backup");
    row("backup of one file", ours, Some(restic(&scene, &["backup", scene.source().to_str().expect("a plain path")])));
    // Without what they left in the cache of the system, neither has an advantage.
    let ours = measure(&scene, "check");
    row("check, all packs read", ours, Some(restic(&scene, &["check", "--read-data"])));
    std::fs::remove_file(scene.repository().join("snapshots").join(writer.second.to_string())).expect("a snapshot");
    let aside = scene.folder.path().join("aside");
    copy(&scene.repository(), &aside);
    let theirs = restic_at(&aside, &["prune"]);
    std::fs::remove_dir_all(&aside).expect("our own folder");
    row("prune after removing a half", measure(&scene, "prune"), Some(theirs));
    row("check, all packs read, of what is left", measure(&scene, "check"), None);
    let output = scene.restic().args(["check", "--read-data"]).output().expect("restic");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    println!("\n{written} blobs. Goal: {goal:.0} MiB. `restic check --read-data` finds it sound after the prune.");
}

/// Seconds and MiB of a step.
fn measure(scene: &Scene, what: &str) -> (f64, f64) {
    let begun = Instant::now();
    let output = scene.step(what).output().expect("a process");
    let seconds = begun.elapsed().as_secs_f64();
    let text = stdout_of(what, &output);
    let peak = text.lines().find_map(|line| line.strip_prefix("peak ")).and_then(|text| text.parse::<f64>().ok());
    (seconds, peak.expect("a peak") / 1024.0)
}

fn stdout_of(what: &str, output: &Output) -> String {
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn restic(scene: &Scene, arguments: &[&str]) -> (f64, f64) {
    restic_at(&scene.repository(), arguments)
}

fn restic_at(repository: &Path, arguments: &[&str]) -> (f64, f64) {
    let mut command = Command::new("/usr/bin/time");
    command.args(["--format", "peak %M", "restic", "--no-cache", "--repo"]).arg(repository).args(arguments);
    let begun = Instant::now();
    let output = command.env("RESTIC_PASSWORD", PASSWORD).output().expect("GNU time and restic");
    let seconds = begun.elapsed().as_secs_f64();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "restic {arguments:?}: {errors}");
    let peak = errors.lines().find_map(|line| line.strip_prefix("peak ")).and_then(|text| text.parse::<f64>().ok());
    (seconds, peak.expect("a peak") / 1024.0)
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["--recursive", "--link"]).args([from, to]).status().expect("cp");
    assert!(copied.success());
}

/// Writes what backups of many small files would have written.
struct Writer<'a> {
    repository: &'a Path,
    key: Key,
    compressor: Compressor<'static>,
    data: PackBuilder,
    trees: PackBuilder,
    in_pack: usize,
    index: IndexFile,
    second: Id,
}

impl<'a> Writer<'a> {
    fn open(repository: &'a Path) -> Self {
        let keys = std::fs::read_dir(repository.join("keys")).expect("a repository");
        let file = keys.map(|key| key.expect("a key").path()).next().expect("a key");
        let key = KeyFile::from_json(&std::fs::read(file).expect("a key")).expect("a key");
        let key = key.open(&Secret::new(PASSWORD)).expect("the password");
        Self {
            repository,
            key,
            compressor: Compressor::new(3).expect("a compressor"),
            data: PackBuilder::default(),
            trees: PackBuilder::default(),
            in_pack: 0,
            index: IndexFile::default(),
            second: Id::default(),
        }
    }

    fn write(&mut self, count: usize) -> usize {
        let mut folders: [Vec<Id>; 2] = Default::default();
        let mut number = 0_u64;
        while number < count as u64 {
            let mut trees = [Tree::default(), Tree::default()];
            for file in 0..FILES_OF_FOLDER {
                let chunks: Vec<Id> = (0..CHUNKS_OF_FILE)
                    .map(|_| {
                        number += 1;
                        self.chunk(number)
                    })
                    .collect();
                let name = format!("{file:03}");
                let size = (CHUNKS_OF_FILE * 8) as u64;
                let node = Node { size, content: Some(chunks), links: 1, ..Node::new(name.as_bytes(), NodeKind::File) };
                trees[file % 2].add(&node).expect("a name in order");
            }
            for (tree, folders) in trees.into_iter().zip(&mut folders) {
                folders.push(self.tree(&tree.finish()));
            }
        }
        for (which, folders) in folders.into_iter().enumerate() {
            let mut root = Tree::default();
            for (folder, tree) in folders.into_iter().enumerate() {
                let name = format!("{folder:05}");
                root.add(&Node { subtree: Some(tree), ..Node::new(name.as_bytes(), NodeKind::Folder) })
                    .expect("in order");
            }
            let tree = self.tree(&root.finish());
            self.end_pack(BlobKind::Data);
            self.end_pack(BlobKind::Tree);
            let snapshot = Snapshot {
                time: GoTime { seconds: 1_700_000_000 + which as i64, nanos: 0 },
                parent: None,
                tree,
                paths: vec!["/many".to_owned()],
                hostname: "host".to_owned(),
                username: "root".to_owned(),
                excludes: Vec::new(),
                tags: Vec::new(),
                original: None,
                program_version: "bench".to_owned(),
            };
            self.end_index();
            let (id, bytes) = seal_json(&snapshot, &self.key).expect("a snapshot");
            std::fs::write(self.repository.join("snapshots").join(id.to_string()), bytes).expect("space");
            self.second = id;
        }
        assert_eq!(snapshots(self.repository).len(), 3);
        usize::try_from(number).expect("a count")
    }

    /// Stores a chunk as it is: what is this small cannot be compressed.
    fn chunk(&mut self, number: u64) -> Id {
        let plain = number.to_le_bytes();
        let id = Id::of(&plain);
        let bytes = self.key.seal(&plain).expect("sealed");
        let blob = SealedBlob { id, kind: BlobKind::Data, bytes, plain_length: None };
        self.data.add(&blob).expect("room");
        self.in_pack += 1;
        if self.in_pack == BLOBS_OF_PACK {
            self.in_pack = 0;
            self.end_pack(BlobKind::Data);
        }
        id
    }

    fn tree(&mut self, json: &[u8]) -> Id {
        let id = Id::of(json);
        let blob = seal_blob((BlobKind::Tree, id), json, &mut self.compressor, &self.key).expect("sealed");
        self.trees.add(&blob).expect("room");
        if self.trees.len() > 16 << 20 {
            self.end_pack(BlobKind::Tree);
        }
        id
    }

    fn end_pack(&mut self, kind: BlobKind) {
        let pack = match kind {
            BlobKind::Data => std::mem::take(&mut self.data),
            BlobKind::Tree => std::mem::take(&mut self.trees),
        };
        if pack.is_empty() {
            return;
        }
        let (id, bytes, blobs) = pack.finish(&self.key).expect("a pack");
        let name = id.to_string();
        let folder = self.repository.join("data").join(&name[..2]);
        std::fs::create_dir_all(&folder).expect("our own folder");
        std::fs::write(folder.join(name), bytes).expect("space");
        if let Some(full) = self.index.add(id, &blobs) {
            self.write_index(&full);
        }
    }

    fn end_index(&mut self) {
        let rest = std::mem::take(&mut self.index);
        if !rest.packs.is_empty() {
            self.write_index(&rest);
        }
    }

    fn write_index(&self, file: &IndexFile) {
        let (id, bytes) = seal_json(file, &self.key).expect("an index");
        std::fs::write(self.repository.join("index").join(id.to_string()), bytes).expect("space");
    }
}
