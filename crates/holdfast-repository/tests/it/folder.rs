//! The simplest use of the format: everything in memory, one file after the other.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use holdfast_core::Secret;
use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_repository::{
    Attribute, BlobKind, Chunker, Config, GoTime, Id, IndexFile, Key, KeyFile, Lock, MasterIndex, Node, NodeKind,
    PackBuilder, ScryptCost, Snapshot, Tables, Tree, read_header, read_header_length, seal_blob, seal_json, unseal,
};
use zstd::bulk::Compressor;

pub struct Repository {
    pub folder: PathBuf,
    pub key: Key,
    pub config: Config,
    pub index: MasterIndex,
}

impl Repository {
    /// Opens the repository, and checks that every index agrees with the headers of its packs.
    pub fn open(folder: &Path, password: &str) -> Self {
        let password = Secret::new(password);
        let key = names(&folder.join("keys"))
            .iter()
            .find_map(|name| {
                KeyFile::from_json(&fs::read(folder.join("keys").join(name)).unwrap()).unwrap().open(&password).ok()
            })
            .expect("a key for the password");
        let config = Config::unseal(&mut fs::read(folder.join("config")).unwrap(), &key).unwrap();
        let mut index = MasterIndex::default();
        for name in names(&folder.join("index")) {
            let mut sealed = fs::read(folder.join("index").join(&name)).unwrap();
            let file = IndexFile::from_json(&unseal(&mut sealed, Some(name.parse().unwrap()), &key).unwrap()).unwrap();
            for pack in &file.packs {
                let mut bytes = fs::read(pack_path(folder, &pack.id)).unwrap();
                assert_eq!(Id::of(&bytes), pack.id);
                let size = bytes.len() as u64;
                let length = read_header_length(*bytes.last_chunk().unwrap(), size).unwrap();
                let start = usize::try_from(size - length).unwrap();
                let mut found: Vec<_> =
                    read_header(&mut bytes[start..], size, &key).unwrap().iter().map(Into::into).collect();
                let mut listed = pack.blobs.clone();
                found.sort_by_key(|blob: &holdfast_repository::IndexedBlob| blob.offset);
                listed.sort_by_key(|blob| blob.offset);
                assert_eq!(found, listed);
            }
            index.load(&file).unwrap();
        }
        index.sort().unwrap();
        Self { folder: folder.to_owned(), key, config, index }
    }

    pub fn create(folder: &Path, password: &str) -> Self {
        let (key, config) = (Key::random(), Config::random());
        for name in ["data", "index", "keys", "locks", "snapshots"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        fs::write(folder.join("config"), config.seal(&key).unwrap()).unwrap();
        let cost = ScryptCost { log_n: 10, ..ScryptCost::OURS };
        let file = KeyFile::seal(&key, &Secret::new(password), cost, SystemClock.now().into(), "host").unwrap();
        let json = file.to_json().unwrap();
        fs::write(folder.join("keys").join(Id::of(&json).to_string()), json).unwrap();
        Self { folder: folder.to_owned(), key, config, index: MasterIndex::default() }
    }

    pub fn blob(&self, kind: BlobKind, id: &Id) -> Vec<u8> {
        let location = self.index.locate(kind, id).expect("a blob of the index");
        let pack = fs::read(pack_path(&self.folder, &location.pack)).unwrap();
        let start = location.blob.offset as usize;
        location.blob.open(&mut pack[start..start + location.blob.length as usize].to_vec(), &self.key).unwrap()
    }

    pub fn snapshots(&self) -> Vec<Snapshot> {
        let read = |name: &String| {
            let mut sealed = fs::read(self.folder.join("snapshots").join(name)).unwrap();
            let json = unseal(&mut sealed, Some(name.parse().unwrap()), &self.key).unwrap();
            Snapshot::from_json(&json).unwrap()
        };
        names(&self.folder.join("snapshots")).iter().map(read).collect()
    }

    /// Stores a snapshot of `source`, as `restic backup` does.
    pub fn back_up(&self, source: &Path) -> Id {
        let mut writer = Writer {
            repository: self,
            tables: Tables::new(self.config.chunker_polynomial),
            data: PackBuilder::default(),
            trees: PackBuilder::default(),
            stored: BTreeSet::new(),
            index: IndexFile::default(),
        };
        let mut tree = writer.folder(source);
        let mut path = source.to_owned();
        while let Some(parent) = path.parent().map(Path::to_owned) {
            let mut node = node_of(&path);
            node.subtree = Some(tree);
            let mut above = Tree::default();
            above.add(&node).unwrap();
            tree = writer.tree(above);
            path = parent;
        }
        let Writer { data, trees, mut index, .. } = writer;
        for pack in [data, trees] {
            self.write_pack(pack, &mut index);
        }
        self.write_file("index", &index);
        let snapshot = Snapshot {
            time: SystemClock.now().into(),
            parent: None,
            tree,
            paths: vec![source.to_str().unwrap().to_owned()],
            hostname: "host".to_owned(),
            username: "holdfast".to_owned(),
            excludes: Vec::new(),
            tags: vec!["ours".to_owned()],
            original: None,
            program_version: String::new(),
        };
        self.write_file("snapshots", &snapshot);
        tree
    }

    pub fn lock(&self, exclusive: bool) -> PathBuf {
        let time = SystemClock.now().into();
        let (hostname, username) = ("another-host".to_owned(), "holdfast".to_owned());
        self.write_file("locks", &Lock { time, exclusive, hostname, username, pid: 7, uid: 0, gid: 0 })
    }

    fn write_pack(&self, pack: PackBuilder, index: &mut IndexFile) {
        let (id, bytes, blobs) = pack.finish(&self.key).unwrap();
        let path = pack_path(&self.folder, &id);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        assert!(index.add(id, &blobs).is_none());
    }

    fn write_file(&self, kind: &str, content: &impl serde::Serialize) -> PathBuf {
        let (name, bytes) = seal_json(content, &self.key).unwrap();
        let path = self.folder.join(kind).join(name.to_string());
        fs::write(&path, bytes).unwrap();
        path
    }
}

struct Writer<'a> {
    repository: &'a Repository,
    tables: Tables,
    data: PackBuilder,
    trees: PackBuilder,
    stored: BTreeSet<(BlobKind, Id)>,
    index: IndexFile,
}

impl Writer<'_> {
    fn folder(&mut self, path: &Path) -> Id {
        let mut tree = Tree::default();
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in names {
            let path = path.join(name);
            let mut node = node_of(&path);
            match node.kind {
                // restic leaves out sockets.
                NodeKind::Socket => continue,
                NodeKind::Folder => node.subtree = Some(self.folder(&path)),
                NodeKind::File => node.content = Some(self.chunks(&fs::read(&path).unwrap())),
                _ => {}
            }
            tree.add(&node).unwrap();
        }
        self.tree(tree)
    }

    fn tree(&mut self, tree: Tree) -> Id {
        let json = tree.finish();
        self.store(BlobKind::Tree, &json)
    }

    fn chunks(&mut self, bytes: &[u8]) -> Vec<Id> {
        chunk_lengths(&self.tables, bytes)
            .into_iter()
            .scan(0, |start, length| {
                let chunk = &bytes[*start..*start + length];
                *start += length;
                Some(self.store(BlobKind::Data, chunk))
            })
            .collect()
    }

    fn store(&mut self, kind: BlobKind, plain: &[u8]) -> Id {
        let id = Id::of(plain);
        if self.stored.insert((kind, id)) {
            let mut compressor = Compressor::new(3).unwrap();
            let sealed = seal_blob((kind, id), plain, &mut compressor, &self.repository.key).unwrap();
            let pack = if kind == BlobKind::Data { &mut self.data } else { &mut self.trees };
            pack.add(&sealed).unwrap();
            if pack.len() > 4 * 1024 * 1024 {
                let full = std::mem::take(pack);
                self.repository.write_pack(full, &mut self.index);
            }
        }
        id
    }
}

pub fn chunk_lengths(tables: &Tables, bytes: &[u8]) -> Vec<usize> {
    let (mut chunker, mut lengths) = (Chunker::new(tables), Vec::new());
    let done: Result<(), ()> = chunker.push(bytes, |chunk| {
        lengths.push(chunk.len());
        Ok(chunk)
    });
    done.unwrap();
    lengths.extend(chunker.finish().map(|chunk| chunk.len()));
    lengths
}

fn node_of(path: &Path) -> Node {
    let facts = fs::symlink_metadata(path).unwrap();
    let kind = match facts.file_type() {
        kind if kind.is_dir() => NodeKind::Folder,
        kind if kind.is_symlink() => NodeKind::Symlink,
        kind if kind.is_fifo() => NodeKind::Fifo,
        kind if kind.is_socket() => NodeKind::Socket,
        kind if kind.is_char_device() => NodeKind::CharDevice,
        kind if kind.is_block_device() => NodeKind::BlockDevice,
        _ => NodeKind::File,
    };
    let time = |seconds, nanos: i64| GoTime { seconds, nanos: u32::try_from(nanos).unwrap() };
    let modified = time(facts.mtime(), facts.mtime_nsec());
    let is_device = matches!(kind, NodeKind::CharDevice | NodeKind::BlockDevice);
    Node {
        mode: facts.permissions().mode() & 0o7777,
        modified,
        accessed: modified,
        changed: time(facts.ctime(), facts.ctime_nsec()),
        uid: facts.uid(),
        gid: facts.gid(),
        user: account("passwd", facts.uid()),
        group: account("group", facts.gid()),
        inode: facts.ino(),
        device_id: facts.dev(),
        size: if kind == NodeKind::File { facts.size() } else { 0 },
        links: if matches!(kind, NodeKind::Folder | NodeKind::Fifo) { 0 } else { facts.nlink() },
        link_target: fs::read_link(path).map_or_else(|_| Vec::new(), |target| target.into_os_string().into_vec()),
        attributes: attributes(path),
        device: if is_device { facts.rdev() } else { 0 },
        ..Node::new(path.file_name().unwrap().as_bytes(), kind)
    }
}

fn attributes(path: &Path) -> Vec<Attribute> {
    let mut list = vec![0; 64 * 1024];
    let length = rustix::fs::llistxattr(path, &mut list).unwrap_or(0);
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let read = |name: &[u8]| {
        let name = String::from_utf8(name.to_vec()).unwrap();
        let mut value = vec![0; 64 * 1024];
        let length = rustix::fs::lgetxattr(path, name.as_str(), &mut value).unwrap();
        value.truncate(length);
        Attribute { name, value }
    };
    names.map(read).collect()
}

/// The name of a user or group.
fn account(file: &str, number: u32) -> Vec<u8> {
    let text = fs::read_to_string(format!("/etc/{file}")).unwrap();
    let line = text.lines().find(|line| line.split(':').nth(2) == Some(&number.to_string()));
    line.and_then(|line| line.split(':').next()).unwrap_or_default().into()
}

fn pack_path(folder: &Path, id: &Id) -> PathBuf {
    let name = id.to_string();
    folder.join("data").join(&name[..2]).join(name)
}

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
