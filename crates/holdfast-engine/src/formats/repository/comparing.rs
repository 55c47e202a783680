//! Compares the listing of a source with its last snapshot: what has not changed is kept, the rest is read. As restic
//! does, a file counts as unchanged if its size, its inode and the times of its last changes are the same.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use bytes::Bytes;
use holdfast_core::failure::FailureCode;
use holdfast_core::source::FilesSource;
use holdfast_repository::{BlobKind, GoTime, Id, Node, NodeKind, Tree};
use tokio::sync::mpsc;

use super::blob_reader::BlobReader;
use super::folders::{Folders, split};
use super::place::of_repository;
use super::wanted::{Wanted, WantedWriter};
use crate::archive::tar::Time;
use crate::error::{EngineError, Result};
use crate::source::listing::{Lines, Listed};

/// The source in the last snapshot.
pub(super) struct Parent {
    pub blobs: BlobReader,
    pub tree: Id,
    /// The source folder itself.
    pub node: Option<Node>,
}

impl Parent {
    /// The entries of a folder; `None` if the repository has lost its tree.
    fn known(&mut self, tree: &Id) -> Result<Option<HashMap<Vec<u8>, Known>>> {
        let json = match self.blobs.read(BlobKind::Tree, tree) {
            Err(error) if error.code == FailureCode::Corrupt => {
                self.blobs.note_lost(BlobKind::Tree, tree);
                return Ok(None);
            }
            json => json?,
        };
        let mut known = HashMap::new();
        let visited = Tree::visit(&json, &mut |node| {
            let is_whole = node.content.iter().flatten().all(|chunk| self.blobs.has(BlobKind::Data, chunk));
            let entry = Known::of(known.len(), &node, is_whole);
            known.insert(node.name, entry);
            true
        });
        visited.map_err(of_repository)?;
        Ok(Some(known))
    }
}

/// What was found.
pub(super) struct Compared {
    pub folders: Folders,
    pub parent: Option<Parent>,
    /// The source folder itself, if it has not changed.
    pub source: Option<Node>,
    pub wanted: Wanted,
    pub kept: Kept,
    /// The kept files that have several links, by device and inode.
    pub linked: HashSet<(u64, u64)>,
}

/// What is not read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kept {
    pub entries: u64,
    pub bytes: u64,
    pub has_data: bool,
}

/// What the last snapshot knows of an entry.
struct Known {
    index: usize,
    kind: NodeKind,
    size: u64,
    modified: GoTime,
    changed: GoTime,
    inode: u64,
    subtree: Option<Id>,
    is_whole: bool,
}

impl Known {
    fn of(index: usize, node: &Node, is_whole: bool) -> Self {
        let Node { kind, size, modified, changed, inode, subtree, .. } = *node;
        Self { index, kind, size, modified, changed, inode, subtree, is_whole }
    }

    /// Whether it need not be read: the same, and everything that it needs is in the repository.
    fn is_unchanged(&self, listed: &Listed) -> bool {
        if !self.is_whole {
            return false;
        }
        let kind = match self.kind {
            NodeKind::File => b'f',
            NodeKind::Folder => b'd',
            NodeKind::Symlink => b'l',
            NodeKind::BlockDevice => b'b',
            NodeKind::CharDevice => b'c',
            NodeKind::Fifo => b'p',
            NodeKind::Socket | NodeKind::Irregular => return false,
        };
        kind == listed.kind
            && (kind != b'f' || self.size == listed.size)
            && self.modified == go_time(listed.modified)
            && self.changed == go_time(listed.changed)
            && self.inode == listed.inode
            && !self.changed.is_unknown()
    }
}

pub(super) fn go_time(time: Time) -> GoTime {
    GoTime { seconds: time.seconds, nanos: time.nanos }
}

/// A folder of which not everything has been listed yet.
struct OpenFolder {
    path: Vec<u8>,
    number: u32,
    known: HashMap<Vec<u8>, Known>,
}

struct Comparison {
    folders: Folders,
    parent: Option<Parent>,
    source: Option<Node>,
    wanted: WantedWriter,
    kept: Kept,
    /// The kept files that have several links, by device and inode.
    linked: HashSet<(u64, u64)>,
    open: Vec<OpenFolder>,
    listed: u64,
}

/// How many entries a source may have. What has to be read of them is kept in a temporary file, as long as there is room.
const MOST_LISTED: u64 = 50_000_000;

/// Reads a whole listing. Blocks, so it runs on a separate thread.
pub(super) fn compare(
    mut pieces: mpsc::Receiver<Bytes>,
    parent: Option<Parent>,
    source: &FilesSource,
    spool_folder: &Path,
) -> Result<Compared> {
    let mut comparison = Comparison {
        folders: Folders::new(spool_folder)?,
        parent,
        source: None,
        wanted: WantedWriter::new(spool_folder)?,
        kept: Kept::default(),
        linked: HashSet::new(),
        open: Vec::new(),
        listed: 0,
    };
    let mut lines = Lines::new(source);
    while let Some(piece) = pieces.blocking_recv() {
        lines.feed(&piece, &mut |listed| comparison.add(&listed))?;
    }
    lines.finish()?;
    let Comparison { folders, parent, source, wanted, kept, linked, .. } = comparison;
    Ok(Compared { folders, parent, source, wanted: wanted.finish()?, kept, linked })
}

impl Comparison {
    fn add(&mut self, listed: &Listed) -> Result<()> {
        self.listed += 1;
        if self.listed > MOST_LISTED {
            let message = format!("The source has more than {MOST_LISTED} entries. Split it into several tasks.");
            return Err(EngineError::new(FailureCode::TooLarge, message));
        }
        // tar leaves out sockets, and so does restic.
        if !matches!(listed.kind, b'f' | b'd' | b'l' | b'b' | b'c' | b'p') {
            return Ok(());
        }
        if listed.path.is_empty() {
            return self.add_source(listed);
        }
        let (above, name) = split(&listed.path);
        while self.open.last().is_some_and(|folder| folder.path != above) {
            self.open.pop();
        }
        let Some(folder) = self.open.last() else {
            return Err(EngineError::incomplete("The server listed an entry before its folder."));
        };
        let known = folder.known.get(name);
        let unchanged = known.filter(|known| known.is_unchanged(listed)).map(|known| known.index);
        let (parent, base) = (folder.number, known.and_then(|known| known.subtree));
        let mut number = None;
        if listed.kind == b'd' {
            number = Some(self.open_folder(&listed.path, base)?);
        }
        match unchanged {
            Some(index) => {
                self.folders.keep(parent, index, number);
                self.kept.entries += 1;
                // Each file counts once, however many links it has, as when it is read.
                let has_links = listed.kind == b'f' && listed.links > 1;
                let is_counted = !has_links || self.linked.insert((listed.device, listed.inode));
                if listed.kind == b'f' && is_counted {
                    self.kept.bytes += listed.size;
                }
                self.kept.has_data |= listed.kind != b'd' && (listed.kind != b'f' || listed.size > 0);
                Ok(())
            }
            None => self.wanted.add(listed),
        }
    }

    fn add_source(&mut self, listed: &Listed) -> Result<()> {
        let (base, node) = self.parent.as_ref().map_or((None, None), |parent| (Some(parent.tree), parent.node.clone()));
        self.open_folder(b"", base)?;
        self.source = node.filter(|node| Known::of(0, node, true).is_unchanged(listed));
        if self.source.is_some() {
            self.kept.entries += 1;
            return Ok(());
        }
        self.wanted.add(listed)
    }

    /// Begins a folder, with what the last snapshot knows of its entries. If the repository has lost that, nothing is
    /// known.
    fn open_folder(&mut self, path: &[u8], base: Option<Id>) -> Result<u32> {
        let known = match (&mut self.parent, base) {
            (Some(parent), Some(tree)) => parent.known(&tree)?.map(|known| (tree, known)),
            _ => None,
        };
        let number = self.folders.open(path, known.as_ref().map(|(tree, known)| (*tree, known.len())))?;
        let known = known.map(|(_, known)| known).unwrap_or_default();
        self.open.push(OpenFolder { path: path.to_vec(), number, known });
        Ok(number)
    }
}
