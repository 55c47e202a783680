//! Collects the entries of a source in any order, and writes the tree of each folder at the end. What is known of the
//! entries is kept in a temporary file without a name: a million of them take a few hundred megabytes.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;
use holdfast_repository::{Id, Node, NodeKind, RepositoryError, Tree};

use super::place::of_repository;
use crate::error::{EngineError, Result};

/// The longest record: a name, and the JSON of a file whose list of chunks may be long.
const RECORD_BYTES: u32 = 1024 * 1024 * 1024;
const HEAD_BYTES: usize = 12;

/// How a folder that nobody described is stored.
pub(super) const UNKNOWN_FOLDER_MODE: u32 = 0o755;

struct Folder {
    /// Its path below the source, without slashes at its ends.
    path: Vec<u8>,
    depth: usize,
    /// Where the records of its entries are.
    records: Vec<u64>,
    /// Whether an entry describes the folder itself.
    is_described: bool,
    base: Option<Base>,
}

/// The folder as it was in the last snapshot.
struct Base {
    tree: Id,
    /// What became of each of its entries.
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Gone,
    Kept,
    /// A folder that is the same itself; what is in it may have changed.
    Folder(u32),
}

struct Record {
    name: Vec<u8>,
    json: String,
    /// Its number plus one, for a folder.
    folder: u32,
}

/// A hard link, which gets the content of its file at the end.
struct Link {
    path: Vec<u8>,
    target: Vec<u8>,
    json: String,
}

/// The entries of a source.
pub(super) struct Folders {
    folders: Vec<Folder>,
    numbers: HashMap<Vec<u8>, u32>,
    file: BufWriter<File>,
    written: u64,
    links: Vec<Link>,
    entries: u64,
}

/// Reads the entries of a tree of the last snapshot.
pub(super) type LastTrees<'a> = dyn FnMut(&Id) -> Result<Vec<Node>> + 'a;

/// Stores a tree, and returns its id.
pub(super) trait TreeSink {
    fn store(&mut self, tree: Vec<u8>) -> Result<Id>;
}

/// So much of the disk with the temporary files stays free: the database may be there, too.
const FREE_BYTES: u64 = 512 * 1024 * 1024;
/// After how much more that is looked at.
const LOOK_AGAIN_BYTES: u64 = 64 * 1024 * 1024;

/// Fails if a temporary file has taken what must stay free. `before` and `after` are its sizes before and after a write.
pub(super) fn confirm_room(file: &File, before: u64, after: u64) -> Result<()> {
    if before / LOOK_AGAIN_BYTES == after / LOOK_AGAIN_BYTES {
        return Ok(());
    }
    let disk = rustix::fs::fstatvfs(file).map_err(|error| failed(&error.into()))?;
    if disk.f_bavail.saturating_mul(disk.f_frsize) >= FREE_BYTES {
        return Ok(());
    }
    let message = format!(
        "The list of the entries of this source takes {} MiB on the disk of the data folder, which is nearly full. Free \
         some space there, or split the source into several tasks.",
        after >> 20
    );
    Err(EngineError::new(FailureCode::TooLarge, message))
}

pub(super) fn failed(error: &io::Error) -> EngineError {
    EngineError::internal(format!("A temporary file cannot be used: {error}."))
}

impl Folders {
    /// Keeps the entries in a file in this folder.
    pub(super) fn new(spool_folder: &Path) -> Result<Self> {
        let file = std::fs::create_dir_all(spool_folder).and_then(|()| tempfile::tempfile_in(spool_folder));
        let file = BufWriter::new(file.map_err(|error| failed(&error))?);
        let root = Folder { path: Vec::new(), depth: 0, records: Vec::new(), is_described: true, base: None };
        let numbers = HashMap::from([(Vec::new(), 0)]);
        Ok(Self { folders: vec![root], numbers, file, written: 0, links: Vec::new(), entries: 0 })
    }

    /// Adds an entry by its path below the source. The last one of a path counts.
    pub(super) fn add(&mut self, path: &[u8], node: &Node) -> Result<()> {
        let (above, _) = split(path);
        let parent = self.number(above)?;
        let folder = if node.kind == NodeKind::Folder {
            let number = self.number(path)?;
            self.folders[number as usize].is_described = true;
            number + 1
        } else {
            0
        };
        let at = self.append(&Record { name: node.name.clone(), json: node.to_json(), folder })?;
        self.folders[parent as usize].records.push(at);
        self.entries += 1;
        Ok(())
    }

    /// Adds a hard link to a file that was added before the end.
    pub(super) fn add_link(&mut self, path: &[u8], target: &[u8], node: &Node) {
        self.links.push(Link { path: path.to_vec(), target: target.to_vec(), json: node.to_json() });
    }

    /// Begins a folder whose tree in the last snapshot is known, with the number of its entries there. Returns its
    /// number here.
    pub(super) fn open(&mut self, path: &[u8], base: Option<(Id, usize)>) -> Result<u32> {
        let number = self.number(path)?;
        let base = base.map(|(tree, entries)| Base { tree, entries: vec![Entry::Gone; entries] });
        self.folders[number as usize].base = base;
        Ok(number)
    }

    /// Keeps an entry of the last snapshot, by its place in the tree; of a folder, also its own number.
    pub(super) fn keep(&mut self, folder: u32, index: usize, number: Option<u32>) {
        if let Some(number) = number {
            self.folders[number as usize].is_described = true;
        }
        let base = self.folders[folder as usize].base.as_mut();
        if let Some(entry) = base.and_then(|base| base.entries.get_mut(index)) {
            *entry = number.map_or(Entry::Kept, Entry::Folder);
        }
    }

    fn number(&mut self, path: &[u8]) -> Result<u32> {
        if let Some(number) = self.numbers.get(path) {
            return Ok(*number);
        }
        // First what is above it.
        let (above, _) = split(path);
        self.number(above)?;
        let number = u32::try_from(self.folders.len()).map_err(EngineError::internal)?;
        let depth = path.split(|byte| *byte == b'/').count();
        let folder = Folder { path: path.to_vec(), depth, records: Vec::new(), is_described: false, base: None };
        self.folders.push(folder);
        self.numbers.insert(path.to_vec(), number);
        Ok(number)
    }

    fn append(&mut self, record: &Record) -> Result<u64> {
        let length = |bytes: usize| u32::try_from(bytes).ok().filter(|length| *length <= RECORD_BYTES);
        let (name, json) = length(record.name.len())
            .zip(length(record.json.len()))
            .ok_or_else(|| EngineError::internal(format!("{} has too many chunks.", name_text(&record.name))))?;
        let at = self.written;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        for number in [name, json, record.folder] {
            head.extend(number.to_le_bytes());
        }
        for part in [&head, &record.name, record.json.as_bytes()] {
            self.file.write_all(part).map_err(|error| failed(&error))?;
            self.written += part.len() as u64;
        }
        confirm_room(self.file.get_ref(), at, self.written)?;
        Ok(at)
    }

    fn read(&self, at: u64) -> Result<Record> {
        let read =
            |buffer: &mut [u8], at| self.file.get_ref().read_exact_at(buffer, at).map_err(|error| failed(&error));
        let mut head = [0; HEAD_BYTES];
        read(&mut head, at)?;
        let number =
            |index: usize| head[index * 4..].first_chunk().map_or(0, |bytes: &[u8; 4]| u32::from_le_bytes(*bytes));
        let (mut name, mut json) = (vec![0; number(0) as usize], vec![0; number(1) as usize]);
        read(&mut name, at + HEAD_BYTES as u64)?;
        read(&mut json, at + HEAD_BYTES as u64 + name.len() as u64)?;
        let json = String::from_utf8(json).map_err(EngineError::internal)?;
        Ok(Record { name, json, folder: number(2) })
    }

    /// The entries of a folder by name, without those that a later one of the same name replaces.
    fn records(&self, folder: usize) -> Result<Vec<(u64, Record)>> {
        let at = self.folders[folder].records.iter();
        let mut records = at.map(|at| Ok((*at, self.read(*at)?))).collect::<Result<Vec<_>>>()?;
        records.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
        let mut kept: Vec<(u64, Record)> = Vec::with_capacity(records.len());
        for record in records {
            kept.pop_if(|(_, last)| last.name == record.1.name);
            kept.push(record);
        }
        Ok(kept)
    }

    /// Stores the trees of all folders, from the deepest on, and returns that of the source. `last` reads trees of the
    /// last snapshot.
    pub(super) fn finish(mut self, last: &mut LastTrees<'_>, sink: &mut dyn TreeSink) -> Result<Id> {
        self.resolve_links()?;
        // From the deepest on, so that a folder counts as soon as something in it does.
        for number in self.deepest_first() {
            let folder = &self.folders[number];
            // One that went away while the source was read has nothing in it.
            let is_empty = folder.records.is_empty()
                && folder.base.as_ref().is_none_or(|base| base.entries.iter().all(|entry| *entry == Entry::Gone));
            if number > 0 && !folder.is_described && !is_empty {
                let path = self.folders[number].path.clone();
                let name = split(&path).1;
                self.add(&path, &Node { mode: UNKNOWN_FOLDER_MODE, ..Node::new(name, NodeKind::Folder) })?;
            }
        }
        self.file.flush().map_err(|error| failed(&error))?;
        let mut trees = vec![Id::default(); self.folders.len()];
        for number in self.deepest_first() {
            if let Some(tree) = self.unchanged(number, &trees) {
                trees[number] = tree;
                continue;
            }
            let mut nodes: BTreeMap<Vec<u8>, (String, Option<Id>)> = BTreeMap::new();
            if let Some(Base { tree, entries }) = &self.folders[number].base {
                for (node, entry) in last(tree)?.into_iter().zip(entries) {
                    let subtree = match entry {
                        Entry::Gone => continue,
                        Entry::Kept => node.subtree,
                        Entry::Folder(folder) => Some(trees[*folder as usize]),
                    };
                    let json = Node { subtree: None, ..node.clone() }.to_json();
                    nodes.insert(node.name, (json, subtree));
                }
            }
            for (_, record) in self.records(number)? {
                let subtree = (record.folder as usize).checked_sub(1).map(|folder| trees[folder]);
                nodes.insert(record.name, (record.json, subtree));
            }
            let mut tree = Tree::default();
            for (name, (json, subtree)) in nodes {
                tree.add_json(&name, &json, subtree.as_ref()).map_err(of_repository)?;
            }
            trees[number] = sink.store(tree.finish())?;
        }
        Ok(trees[0])
    }

    fn deepest_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.folders.len()).collect();
        order.sort_by_key(|number| std::cmp::Reverse(self.folders[*number].depth));
        order
    }

    /// The tree of the folder in the last snapshot, if it is the same now.
    fn unchanged(&self, number: usize, trees: &[Id]) -> Option<Id> {
        let Folder { records, base, .. } = &self.folders[number];
        let Base { tree, entries } = base.as_ref().filter(|_| records.is_empty())?;
        let is_same = |entry: &Entry| match entry {
            Entry::Gone => false,
            Entry::Kept => true,
            Entry::Folder(folder) => {
                let of_folder = self.folders[*folder as usize].base.as_ref();
                of_folder.is_some_and(|base| base.tree == trees[*folder as usize])
            }
        };
        entries.iter().all(is_same).then_some(*tree)
    }

    /// Where the record of a name is among those of a folder, the last one if there are several. Names of the folder that
    /// was asked for last are remembered: many links may refer to files of one.
    fn find_record(&self, folder: u32, name: &[u8], names: &mut FolderNames) -> Result<Option<usize>> {
        if names.folder != Some(folder) {
            let records = &self.folders[folder as usize].records;
            let named = records.iter().enumerate().map(|(index, at)| Ok((self.read(*at)?.name, index)));
            *names = FolderNames { folder: Some(folder), places: named.collect::<Result<_>>()? };
        }
        Ok(names.places.get(name).copied())
    }

    /// Makes the files that hard links refer to and the links equal: the same content, inode and number of links.
    fn resolve_links(&mut self) -> Result<()> {
        self.file.flush().map_err(|error| failed(&error))?;
        let mut links = std::mem::take(&mut self.links);
        links.sort_by(|one, other| one.target.cmp(&other.target));
        let mut names = FolderNames::default();
        for (number, of_file) in (1_u64..).zip(links.chunk_by(|one, other| one.target == other.target)) {
            let (above, name) = split(&of_file[0].target);
            let folder = *self.numbers.get(above).ok_or_else(|| no_target(&of_file[0]))?;
            let index = self.find_record(folder, name, &mut names)?.ok_or_else(|| no_target(&of_file[0]))?;
            let folder = folder as usize;
            let record = self.read(self.folders[folder].records[index])?;
            let mut file = Node::from_json(record.json.as_bytes()).map_err(of_repository)?;
            // A listing tells them; without one, a number of our own ties them together.
            if file.inode == 0 {
                (file.inode, file.device_id, file.links) = (number, 1, of_file.len() as u64 + 1);
            }
            let at = self.append(&Record { json: file.to_json(), ..record })?;
            self.folders[folder].records[index] = at;
            for link in of_file {
                let node = Node::from_json(link.json.as_bytes()).map_err(of_repository)?;
                self.add(&link.path, &Node { name: node.name, ..file.clone() })?;
            }
            self.file.flush().map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

/// The names in a folder.
#[derive(Default)]
struct FolderNames {
    folder: Option<u32>,
    places: HashMap<Vec<u8>, usize>,
}

fn no_target(link: &Link) -> EngineError {
    let (path, target) = (name_text(&link.path), name_text(&link.target));
    of_repository(RepositoryError::Damaged(format!("{path} is a hard link to {target}, which is not there.")))
}

/// What is above, and the name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Default)]
    struct Stored(BTreeMap<Id, Vec<u8>>);

    impl TreeSink for Stored {
        fn store(&mut self, tree: Vec<u8>) -> Result<Id> {
            let id = Id::of(&tree);
            self.0.insert(id, tree);
            Ok(id)
        }
    }

    impl Stored {
        /// Every path with its entry.
        fn paths(&self, tree: Id, above: &str, found: &mut BTreeMap<String, Node>) {
            for node in Tree::nodes(&self.0[&tree]).unwrap() {
                let path = format!("{above}/{}", String::from_utf8_lossy(&node.name));
                if let Some(subtree) = node.subtree {
                    self.paths(subtree, &path, found);
                }
                found.insert(path, node);
            }
        }
    }

    fn file(name: &str, content: &str) -> Node {
        Node { content: Some(vec![Id::of(content.as_bytes())]), links: 1, ..Node::new(name.as_bytes(), NodeKind::File) }
    }

    fn nothing(_tree: &Id) -> Result<Vec<Node>> {
        panic!("there was no snapshot before")
    }

    fn finish(folders: Folders) -> (Id, BTreeMap<String, Node>) {
        let (mut stored, mut found) = (Stored::default(), BTreeMap::new());
        let tree = folders.finish(&mut nothing, &mut stored).unwrap();
        stored.paths(tree, "", &mut found);
        (tree, found)
    }

    #[test]
    fn entries_may_come_in_any_order() {
        let place = tempfile::tempdir().unwrap();
        let mut entries = vec![
            ("a", Node { mode: 0o700, ..Node::new(b"a", NodeKind::Folder) }),
            ("a/z", file("z", "1")),
            ("a/b", Node { mode: 0o711, ..Node::new(b"b", NodeKind::Folder) }),
            ("a/b/c", file("c", "2")),
            ("B", file("B", "3")),
        ];
        let add = |entries: &[(&str, Node)]| {
            let mut folders = Folders::new(place.path()).unwrap();
            for (path, node) in entries {
                folders.add(path.as_bytes(), node).unwrap();
            }
            finish(folders)
        };
        let (tree, found) = add(&entries);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["/B", "/a", "/a/b", "/a/b/c", "/a/z"]);
        assert_eq!((found["/a"].mode, found["/a/b"].mode), (0o700, 0o711));
        entries.reverse();
        assert_eq!(add(&entries).0, tree);
    }

    #[test]
    fn folders_that_nobody_described_exist() {
        let place = tempfile::tempdir().unwrap();
        let mut folders = Folders::new(place.path()).unwrap();
        folders.add(b"a/b/c", &file("c", "1")).unwrap();
        let (_, found) = finish(folders);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(found["/a/b"].mode, UNKNOWN_FOLDER_MODE);
        let (empty, _) = finish(Folders::new(place.path()).unwrap());
        assert_eq!(empty, Id::of(b"{\"nodes\":[]}\n"));
    }

    #[test]
    fn what_has_not_changed_is_taken_from_the_last_snapshot() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| Node::new(name.as_bytes(), NodeKind::Folder);
        let mut folders = Folders::new(place.path()).unwrap();
        for (path, node) in [
            ("a", folder("a")),
            ("a/1", file("1", "1")),
            ("a/2", file("2", "2")),
            ("b", folder("b")),
            ("b/3", file("3", "3")),
        ] {
            folders.add(path.as_bytes(), &node).unwrap();
        }
        let mut stored = Stored::default();
        let first = folders.finish(&mut nothing, &mut stored).unwrap();
        let roots = Tree::nodes(&stored.0[&first]).unwrap();
        let (a, b) = (roots[0].subtree.unwrap(), roots[1].subtree.unwrap());
        let known = stored.0.clone();
        let mut last = |tree: &Id| Ok(Tree::nodes(&known[tree]).unwrap());

        // Nothing has changed: no tree is stored.
        let begin = || {
            let mut folders = Folders::new(place.path()).unwrap();
            assert_eq!(folders.open(b"", Some((first, 2))).unwrap(), 0);
            let numbers = [folders.open(b"a", Some((a, 2))).unwrap(), folders.open(b"b", Some((b, 1))).unwrap()];
            for (index, number) in numbers.iter().enumerate() {
                folders.keep(0, index, Some(*number));
            }
            (folders, numbers)
        };
        let (mut folders, [of_a, of_b]) = begin();
        folders.keep(of_a, 0, None);
        folders.keep(of_a, 1, None);
        folders.keep(of_b, 0, None);
        let mut again = Stored::default();
        assert_eq!(folders.finish(&mut last, &mut again).unwrap(), first);
        assert!(again.0.is_empty());

        // One file is gone, one has changed, and one is new.
        let (mut folders, [of_a, _]) = begin();
        folders.keep(of_a, 1, None);
        folders.add(b"a/0", &file("0", "new")).unwrap();
        folders.add(b"b/3", &file("3", "changed")).unwrap();
        let tree = folders.finish(&mut last, &mut stored).unwrap();
        let mut found = BTreeMap::new();
        stored.paths(tree, "", &mut found);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["/a", "/a/0", "/a/2", "/b", "/b/3"]);
        assert_eq!((&found["/a/2"], &found["/b/3"]), (&file("2", "2"), &file("3", "changed")));
    }

    #[test]
    fn the_last_entry_of_a_path_counts() {
        let place = tempfile::tempdir().unwrap();
        let mut folders = Folders::new(place.path()).unwrap();
        for content in ["1", "2", "3"] {
            folders.add(b"a", &file("a", content)).unwrap();
        }
        let (_, found) = finish(folders);
        assert_eq!(found["/a"], file("a", "3"));
    }

    #[test]
    fn hard_links_share_content_and_inode() {
        let place = tempfile::tempdir().unwrap();
        let mut folders = Folders::new(place.path()).unwrap();
        let link = |name: &str| Node::new(name.as_bytes(), NodeKind::File);
        folders.add_link(b"x/one", b"a", &link("one"));
        folders.add(b"a", &file("a", "1")).unwrap();
        folders.add(b"b", &file("b", "2")).unwrap();
        folders.add_link(b"two", b"a", &link("two"));
        folders.add_link(b"three", b"b", &link("three"));
        let (_, found) = finish(folders);
        for path in ["/a", "/x/one", "/two"] {
            assert_eq!((found[path].links, &found[path].content), (3, &file("a", "1").content), "{path}");
            assert_eq!(found[path].inode, found["/a"].inode);
        }
        assert_ne!(found["/a"].inode, found["/three"].inode);
        assert_eq!(found["/three"].content, file("b", "2").content);

        let mut folders = Folders::new(place.path()).unwrap();
        folders.add_link(b"one", b"missing", &link("one"));
        assert!(folders.finish(&mut nothing, &mut Stored::default()).is_err());
    }
}
