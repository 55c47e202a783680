//! The entries of a snapshot, as those of an archive: paths below the source, folders before what is in them.

use std::collections::HashMap;
use std::io::{self, Read};

use holdfast_core::backup::{EntryKind, name_bytes, name_text};
use holdfast_core::failure::FailureCode;
use holdfast_repository::{Attribute, BlobKind, Id, Node, NodeKind, Snapshot, Tree};

use super::blob_reader::BlobReader;
use super::comparing::Parent;
use super::place::of_repository;
use super::storing::MANIFEST;
use crate::archive::tar::{Member, MemberKind, Time};
use crate::archive::{Entry, Manifest};
use crate::error::{EngineError, Result};
use crate::format::StoredEntries;
use crate::scope::Scope;

/// How deep folders may be nested. Linux accepts paths of 4,096 bytes, so deeper ones were not read from it.
const MOST_DEPTH: usize = 2048;
/// How many files with several links are remembered while a snapshot is read.
const MOST_LINKED: usize = 4_000_000;

pub(super) struct SnapshotReader {
    blobs: BlobReader,
    snapshot: Snapshot,
    /// Only what is in it is walked through.
    scope: Scope,
}

/// An entry, and whether it is a hard link to an earlier one.
pub(super) struct Found {
    /// Below the source; the source itself has the empty path.
    pub path: Vec<u8>,
    pub node: Node,
    /// The path of the file that it is a hard link to.
    pub link: Option<Vec<u8>>,
}

impl SnapshotReader {
    pub(super) fn new(blobs: BlobReader, snapshot: Snapshot, scope: Scope) -> Self {
        Self { blobs, snapshot, scope }
    }

    fn nodes(&mut self, tree: &Id) -> Result<Vec<Node>> {
        let json = self.blobs.read(BlobKind::Tree, tree)?;
        Tree::nodes(&json).map_err(of_repository)
    }

    fn find_in(&mut self, tree: &Id, name: &[u8]) -> Result<Option<Node>> {
        let json = self.blobs.read(BlobKind::Tree, tree)?;
        let mut found = None;
        let mut look = |node: Node| {
            if node.name == name {
                found = Some(node);
            }
            found.is_none()
        };
        Tree::visit(&json, &mut look).map_err(of_repository)?;
        Ok(found)
    }

    /// The source: a folder, with its tree, or the folder above a single file, with the name of that.
    fn source(&mut self) -> Result<Source> {
        let whole = Source { tree: self.snapshot.tree, node: None, only: None };
        let [path] = &self.snapshot.paths[..] else { return Ok(whole) };
        let path = path.clone();
        let names: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        let mut source = whole;
        for (index, name) in names.iter().enumerate() {
            let Some(node) = self.find_in(&source.tree, name)? else {
                // Snapshots of relative paths begin with the last folder.
                return Ok(Source { tree: self.snapshot.tree, node: None, only: None });
            };
            match node.subtree {
                Some(tree) => source = Source { tree, node: Some(node), only: None },
                None if index + 1 == names.len() => source.only = Some(name.to_vec()),
                None => return Err(EngineError::corrupt("The path of this snapshot leads through a file.")),
            }
        }
        Ok(source)
    }

    /// Passes every entry in scope to `visitor` until that returns `false`. A file with several links is a file where it
    /// is first passed, and a hard link to that from then on.
    pub(super) fn walk(&mut self, visitor: &mut dyn FnMut(&mut BlobReader, Found) -> Result<bool>) -> Result<()> {
        let Source { tree, node, only } = self.source()?;
        if let Some(node) = node.filter(|_| only.is_none())
            && !visitor(&mut self.blobs, Found { path: Vec::new(), node, link: None })?
        {
            return Ok(());
        }
        let mut linked: HashMap<(u64, u64), (Vec<u8>, Id)> = HashMap::new();
        // The rest of each open folder, in reverse, with the path of the folder.
        let mut open = vec![(Vec::new(), reversed(self.nodes(&tree)?, only.as_deref()))];
        while let Some((above, nodes)) = open.last_mut() {
            let Some(node) = nodes.pop() else {
                open.pop();
                continue;
            };
            let path = if above.is_empty() { node.name.clone() } else { [above, &b"/"[..], &node.name].concat() };
            let mut subtree = node.subtree;
            if !self.scope.is_everything() {
                let text = name_text(&path);
                if !self.scope.has(&text, node.kind == NodeKind::Folder) {
                    continue;
                }
                subtree = subtree.filter(|_| self.scope.leads_into(&text));
            }
            let mut link = None;
            if node.kind == NodeKind::File && node.links > 1 && node.inode > 0 {
                let (inode, content) = ((node.device_id, node.inode), content_id(&node));
                match linked.get(&inode) {
                    // One with other content was replaced while it was backed up.
                    Some((first, same)) => link = (*same == content).then(|| first.clone()),
                    None if linked.len() < MOST_LINKED => drop(linked.insert(inode, (path.clone(), content))),
                    None => {}
                }
            }
            if !visitor(&mut self.blobs, Found { path: path.clone(), node, link })? {
                return Ok(());
            }
            if let Some(subtree) = subtree {
                if open.len() == MOST_DEPTH {
                    return Err(EngineError::corrupt("Folders of this snapshot are nested too deeply."));
                }
                open.push((path, reversed(self.nodes(&subtree)?, None)));
            }
        }
        Ok(())
    }

    /// A file by its path below the source.
    fn find(&mut self, path: &[u8]) -> Result<Node> {
        let missing =
            || EngineError::new(FailureCode::EntryMissing, format!("There is no {} in this backup.", name_text(path)));
        let mut tree = self.source()?.tree;
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            let node = self.find_in(&tree, name)?.ok_or_else(missing)?;
            match (names.peek(), node.subtree) {
                (None, _) => return Ok(node),
                (Some(_), Some(subtree)) => tree = subtree,
                (Some(_), None) => return Err(missing()),
            }
        }
        Err(missing())
    }

    /// The file that a dump is.
    pub(super) fn find_dump(&mut self) -> Result<Node> {
        let nodes = self.nodes(&self.snapshot.tree.clone())?;
        let mut files =
            nodes.into_iter().filter(|node| node.kind == NodeKind::File && node.name != MANIFEST.as_bytes());
        match (files.next(), files.next()) {
            (Some(dump), None) => Ok(dump),
            _ => Err(EngineError::corrupt("This snapshot is not that of one dump.")),
        }
    }

    /// The source, to compare another listing of it with; `None` unless it is a folder.
    pub(super) fn into_parent(mut self) -> Result<Option<Parent>> {
        let Source { tree, node, only } = self.source()?;
        Ok(only.is_none().then_some(Parent { blobs: self.blobs, tree, node }))
    }

    pub(super) fn content(&mut self, node: Node) -> FileContent<'_> {
        FileContent::new(&mut self.blobs, node)
    }

    /// The content of a file, which owns what it needs.
    pub(super) fn into_content(self, node: Node) -> OwnedContent {
        OwnedContent { blobs: self.blobs, chunks: Chunks::of(node) }
    }
}

/// The same for files with the same content.
fn content_id(node: &Node) -> Id {
    let chunks = node.content.iter().flatten().flat_map(|chunk| *chunk.as_bytes());
    Id::of(&chunks.collect::<Vec<u8>>())
}

struct Source {
    tree: Id,
    node: Option<Node>,
    /// The only entry of the tree that belongs to the source.
    only: Option<Vec<u8>>,
}

fn reversed(mut nodes: Vec<Node>, only: Option<&[u8]>) -> Vec<Node> {
    nodes.retain(|node| only.is_none_or(|only| node.name == only));
    nodes.reverse();
    nodes
}

/// An extended attribute as a record of a tar archive. An access control list is one that tar knows by another name,
/// as text: it does not restore the attribute itself.
fn record_of(attribute: &Attribute) -> (Vec<u8>, Vec<u8>) {
    let list = match attribute.name.as_str() {
        "system.posix_acl_access" => Some(&b"SCHILY.acl.access"[..]),
        "system.posix_acl_default" => Some(&b"SCHILY.acl.default"[..]),
        _ => None,
    };
    match list.and_then(|name| Some((name, access_list_text(&attribute.value)?))) {
        Some((name, text)) => (name.to_vec(), text.into_bytes()),
        None => {
            let name = attribute.name.replace('%', "%25").replace('=', "%3D");
            ([b"SCHILY.xattr.", name.as_bytes()].concat(), attribute.value.clone())
        }
    }
}

/// An access control list as text, from how Linux stores it: a version, and for each entry its kind, rights and id.
/// `None` if it is none.
fn access_list_text(stored: &[u8]) -> Option<String> {
    const VERSION: u32 = 2;
    let (version, entries) = stored.split_first_chunk()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
        return None;
    }
    let text = entries.iter().map(|[kind, kind_high, rights, rights_high, id @ ..]| {
        let (kind, rights) = (u16::from_le_bytes([*kind, *kind_high]), u16::from_le_bytes([*rights, *rights_high]));
        let id = u32::from_le_bytes(*id);
        let whose = match kind {
            0x01 => "user:".to_owned(),
            0x02 => format!("user:{id}"),
            0x04 => "group:".to_owned(),
            0x08 => format!("group:{id}"),
            0x10 => "mask:".to_owned(),
            0x20 => "other:".to_owned(),
            _ => return None,
        };
        let right = |bit: u16, letter: char| if rights & bit == 0 { '-' } else { letter };
        Some(format!("{whose}:{}{}{}", right(4, 'r'), right(2, 'w'), right(1, 'x')))
    });
    text.collect::<Option<Vec<String>>>().map(|entries| entries.join(","))
}

impl Found {
    /// As a member of a tar archive. restic's sockets, and kinds that we do not know, have none.
    pub(super) fn member(&self) -> Option<Member> {
        let Self { path, node, link } = self;
        let kind = match node.kind {
            _ if link.is_some() => MemberKind::Hardlink,
            NodeKind::File => MemberKind::File,
            NodeKind::Folder => MemberKind::Directory,
            NodeKind::Symlink => MemberKind::Symlink,
            NodeKind::Fifo => MemberKind::Fifo,
            NodeKind::CharDevice => {
                MemberKind::CharDevice { major: rustix::fs::major(node.device), minor: rustix::fs::minor(node.device) }
            }
            NodeKind::BlockDevice => {
                MemberKind::BlockDevice { major: rustix::fs::major(node.device), minor: rustix::fs::minor(node.device) }
            }
            NodeKind::Socket | NodeKind::Irregular => return None,
        };
        let below = |path: &[u8]| if path.is_empty() { b".".to_vec() } else { [b"./", path].concat() };
        let target = match (link, kind) {
            (Some(link), _) => below(link),
            (None, MemberKind::Symlink) => node.link_target.clone(),
            (None, _) => Vec::new(),
        };
        Some(Member {
            link: target,
            mode: node.mode,
            uid: node.uid.into(),
            gid: node.gid.into(),
            user: node.user.clone(),
            group: node.group.clone(),
            modified: Time { seconds: node.modified.seconds, nanos: node.modified.nanos },
            size: if kind == MemberKind::File { node.size } else { 0 },
            attributes: node.attributes.iter().map(record_of).collect(),
            ..Member::new(&below(path), kind)
        })
    }

    pub(super) fn entry(&self) -> Option<Entry> {
        let member = self.member()?;
        Some(Entry::of(&member, crate::archive::tar::MemberRange { start: 0, end: 0 }))
    }
}

impl StoredEntries for SnapshotReader {
    fn manifest(&mut self) -> Result<Option<Manifest>> {
        let Some(node) = self.find_in(&self.snapshot.tree.clone(), MANIFEST.as_bytes())? else { return Ok(None) };
        if node.kind != NodeKind::File {
            return Ok(None);
        }
        let mut json = Vec::new();
        self.content(node)
            .take(16 * 1024 * 1024)
            .read_to_end(&mut json)
            .map_err(|error| crate::error::classify(&error, FailureCode::Corrupt, "This backup is damaged"))?;
        serde_json::from_slice(&json)
            .map(Some)
            .map_err(|error| EngineError::corrupt(format!("The description of this backup is damaged: {error}.")))
    }

    fn visit(&mut self, visitor: &mut dyn FnMut(&Entry) -> Result<bool>) -> Result<()> {
        self.walk(&mut |_, found| found.entry().map_or(Ok(true), |entry| visitor(&entry)))
    }

    fn open_file(&mut self, path: &str) -> Result<(Entry, Box<dyn Read + '_>)> {
        let bytes = name_bytes(path);
        let node = self.find(&bytes)?;
        let found = Found { path: bytes, node, link: None };
        let entry = found.entry().filter(|entry| entry.kind == EntryKind::File).ok_or_else(|| {
            let message = "This entry is not a file; only files can be downloaded individually.";
            EngineError::new(FailureCode::EntryMissing, message)
        })?;
        Ok((entry, Box::new(self.content(found.node))))
    }
}

/// The chunks of a file that are still to be read.
struct Chunks {
    ids: std::vec::IntoIter<Id>,
    chunk: io::Cursor<Vec<u8>>,
    /// How many bytes must follow.
    left: u64,
}

impl Chunks {
    fn of(node: Node) -> Self {
        let ids = node.content.unwrap_or_default().into_iter();
        Self { ids, chunk: io::Cursor::default(), left: node.size }
    }

    fn read(&mut self, blobs: &mut BlobReader, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.chunk.read(buffer)?;
            if read > 0 {
                self.left = self.left.checked_sub(read as u64).ok_or_else(different_size)?;
                return Ok(read);
            }
            match self.ids.next() {
                Some(id) => self.chunk = io::Cursor::new(blobs.read(BlobKind::Data, &id)?),
                None if self.left > 0 => return Err(different_size()),
                None => return Ok(0),
            }
        }
    }
}

fn different_size() -> io::Error {
    EngineError::corrupt("A file of this backup has another size than was recorded.").into()
}

/// The content of a file.
pub(super) struct FileContent<'a> {
    blobs: &'a mut BlobReader,
    chunks: Chunks,
}

impl<'a> FileContent<'a> {
    pub(super) fn new(blobs: &'a mut BlobReader, node: Node) -> Self {
        Self { blobs, chunks: Chunks::of(node) }
    }

    /// Nothing may follow what was read.
    pub(super) fn confirm_end(&mut self) -> io::Result<()> {
        if self.read(&mut [0])? == 0 { Ok(()) } else { Err(different_size()) }
    }
}

impl Read for FileContent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.chunks.read(self.blobs, buffer)
    }
}

pub(super) struct OwnedContent {
    blobs: BlobReader,
    chunks: Chunks,
}

impl Read for OwnedContent {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.chunks.read(&mut self.blobs, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_control_lists_become_text() {
        let entry = |kind: u16, rights: u16, id: u32| {
            [&kind.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let entries = [
            entry(1, 6, none),
            entry(2, 7, 1000),
            entry(4, 0, none),
            entry(8, 5, 33),
            entry(0x10, 7, none),
            entry(0x20, 0, none),
        ];
        let stored = [2_u32.to_le_bytes().to_vec(), entries.concat()].concat();
        let text = "user::rw-,user:1000:rwx,group::---,group:33:r-x,mask::rwx,other::---";
        assert_eq!(access_list_text(&stored).as_deref(), Some(text));
        let attribute = Attribute { name: "system.posix_acl_default".to_owned(), value: stored.clone() };
        assert_eq!(record_of(&attribute), (b"SCHILY.acl.default".to_vec(), text.as_bytes().to_vec()));
        for wrong in [&stored[..stored.len() - 1], &[1, 0, 0, 0], &[2, 0], &[]] {
            assert_eq!(access_list_text(wrong), None);
        }
        let other = Attribute { name: "user.note".to_owned(), value: b"x".to_vec() };
        assert_eq!(record_of(&other), (b"SCHILY.xattr.user.note".to_vec(), b"x".to_vec()));
    }
}
