//! Turns what is read from a server into chunks and trees. Blocks, so it runs on a separate thread.

use std::collections::{HashSet, VecDeque};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_core::backup::{EntryKind, name_text};
use holdfast_core::content::Content;
use holdfast_core::failure::FailureCode;
use holdfast_repository::{Attribute, BlobKind, Chunker, GoTime, Id, Node, NodeKind, Tables, Tree};

use super::blobs::BlobWriter;
use super::comparing::{Compared, Kept, Parent, go_time};
use super::folders::{Folders, TreeSink as _, UNKNOWN_FOLDER_MODE};
use super::place::of_repository;
use super::wanted::Expected;
use crate::archive::tar::{Expanded, Member, MemberKind, MemberRange};
use crate::archive::{Entry, Inspected, MemberSink, Received, Tee, inspect, relative, repack};
use crate::context::Context;
use crate::error::{EngineError, Result, classify};
use crate::format::Hashing;

/// How many bytes are read from a file at a time.
const READ_BYTES: usize = 256 * 1024;

/// What was stored of a source.
pub(super) struct StoredSource {
    /// The tree of the snapshot, with the folders above the source.
    pub tree: Id,
    pub paths: Vec<String>,
    pub plain_bytes: u64,
    /// Of a dump; files are read in parts.
    pub plain_sha256: String,
    pub is_empty: bool,
    pub inspected: Inspected,
    /// What was asked for and did not arrive.
    pub missing: Vec<Vec<u8>>,
}

/// A file whose chunks are being stored.
struct OpenFile {
    path: Vec<u8>,
    node: Node,
    /// How many of its ids are not known yet; all have been handed over only if it has ended.
    waiting: usize,
    has_ended: bool,
}

/// Stores files one after the other.
struct SourceWriter<'a> {
    blobs: BlobWriter,
    chunker: Chunker<'a>,
    folders: Folders,
    /// In the order in which they came; chunks belong to the first that waits for some.
    files: VecDeque<OpenFile>,
    source: Option<Node>,
    bytes: u64,
    buffer: Vec<u8>,
    listing: Option<Reading>,
}

/// What is known from a listing of the files that are read.
struct Reading {
    expected: Expected,
    /// Reads the last snapshot.
    parent: Option<Parent>,
    /// The time of the server when it began to list.
    began: i64,
    /// The files that were listed with several links and have come with content of their own, by device and inode.
    with_links: HashSet<(u64, u64)>,
}

impl Reading {
    /// Adds to a node what only the listing tells. Of a file that was replaced since it was listed, that is no longer
    /// true: its content would be taken for that of the other links.
    fn complete(&mut self, path: &[u8], kind: MemberKind, node: &mut Node) -> io::Result<()> {
        let listed = self.expected.take(path)?;
        let listed = listed.ok_or_else(|| io::Error::other(format!("{} was not requested", name_text(path))))?;
        if kind == MemberKind::File && listed.links > 1 && !self.with_links.insert((listed.device, listed.inode)) {
            return Ok(());
        }
        node.inode = listed.inode;
        node.device_id = listed.device;
        if node.links > 0 {
            node.links = listed.links;
        }
        // What changes again within the same tick of a clock would look unchanged the next time.
        if listed.changed.seconds < self.began - 1 {
            node.changed = go_time(listed.changed);
        }
        Ok(())
    }
}

impl<'a> SourceWriter<'a> {
    fn new(blobs: BlobWriter, tables: &'a Tables, folders: Folders) -> Self {
        Self {
            blobs,
            chunker: Chunker::new(tables),
            folders,
            files: VecDeque::new(),
            source: None,
            bytes: 0,
            buffer: vec![0; READ_BYTES],
            listing: None,
        }
    }

    fn file(&mut self, path: &[u8], node: Node, content: &mut dyn Read) -> io::Result<()> {
        self.begin(path, node);
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            let read = content.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            self.write_all(&buffer[..read])?;
        }
        self.buffer = buffer;
        Ok(self.end()?)
    }

    /// Begins a file. What is then written becomes its content.
    fn begin(&mut self, path: &[u8], node: Node) {
        self.files.push_back(OpenFile { path: path.to_vec(), node, waiting: 0, has_ended: false });
    }

    fn end(&mut self) -> Result<()> {
        if let Some(chunk) = self.chunker.finish() {
            push(&mut self.blobs, &mut self.files, &mut self.folders, chunk)?;
        }
        if let Some(file) = self.files.back_mut() {
            file.has_ended = true;
        }
        settle(&mut self.files, &mut self.folders)
    }

    /// Waits for all chunks, and stores the trees, with those of the folders above the source. Returns the last of
    /// these, and the size of all files.
    fn finish(mut self, source: &str) -> Result<(Id, u64)> {
        let Self { blobs, files, folders, .. } = &mut self;
        blobs.drain(&mut |id| note(files, folders, id))?;
        if !self.files.is_empty() {
            return Err(EngineError::internal("a file waits for chunks that nobody stores"));
        }
        let mut parent = self.listing.and_then(|listing| listing.parent);
        let mut last = |tree: &Id| {
            let no_parent = || EngineError::internal("there is no last snapshot");
            let json = parent.as_mut().ok_or_else(no_parent)?.blobs.read(BlobKind::Tree, tree)?;
            Tree::nodes(&json).map_err(of_repository)
        };
        let mut tree = self.folders.finish(&mut last, &mut self.blobs)?;
        let mut described = self.source;
        for name in source.rsplit('/').filter(|name| !name.is_empty()) {
            let unknown = || Node { mode: UNKNOWN_FOLDER_MODE, ..Node::new(b"", NodeKind::Folder) };
            let node = described.take().unwrap_or_else(unknown);
            let mut above = Tree::default();
            above.add(&Node { name: name.into(), subtree: Some(tree), ..node }).map_err(of_repository)?;
            tree = self.blobs.store(above.finish())?;
        }
        self.blobs.finish()?;
        Ok((tree, self.bytes))
    }
}

fn push(blobs: &mut BlobWriter, files: &mut VecDeque<OpenFile>, folders: &mut Folders, chunk: Vec<u8>) -> Result<()> {
    if let Some(file) = files.back_mut() {
        file.waiting += 1;
    }
    blobs.push(chunk, &mut |id| note(files, folders, id))
}

/// Adds an id to the first file that waits for one.
fn note(files: &mut VecDeque<OpenFile>, folders: &mut Folders, id: Id) -> Result<()> {
    let waiting = files.iter_mut().find(|file| file.waiting > 0);
    let file = waiting.ok_or_else(|| EngineError::internal("a chunk belongs to no file"))?;
    file.waiting -= 1;
    file.node.content.get_or_insert_default().push(id);
    settle(files, folders)
}

/// Adds the files that are complete.
fn settle(files: &mut VecDeque<OpenFile>, folders: &mut Folders) -> Result<()> {
    while let Some(file) = files.pop_front_if(|file| file.has_ended && file.waiting == 0) {
        folders.add(&file.path, &file.node)?;
    }
    Ok(())
}

/// Writes to the file that was begun last.
impl Write for SourceWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { chunker, blobs, files, folders, .. } = self;
        chunker.push(bytes, |chunk| -> io::Result<Vec<u8>> {
            push(blobs, files, folders, chunk)?;
            Ok(Vec::new())
        })?;
        if let Some(file) = self.files.back_mut() {
            file.node.size += bytes.len() as u64;
        }
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MemberSink for SourceWriter<'_> {
    fn put(&mut self, member: &Member, data: &mut dyn Read) -> io::Result<MemberRange> {
        const NOWHERE: MemberRange = MemberRange { start: 0, end: 0 };
        let leads_out = || io::Error::other("a member leads out of the source");
        let path = relative(&member.path).ok_or_else(leads_out)?;
        let mut node = node_of(member, &path);
        if let Some(listing) = &mut self.listing {
            listing.complete(&path, member.kind, &mut node)?;
        }
        if path.is_empty() {
            self.source = Some(node);
            return Ok(NOWHERE);
        }
        match member.kind {
            MemberKind::Hardlink => {
                self.folders.add_link(&path, &relative(&member.link).ok_or_else(leads_out)?, &node);
            }
            MemberKind::File => match &member.parts {
                None => self.file(&path, node, &mut data.take(member.size))?,
                Some(parts) => self.file(&path, node, &mut Expanded::new(data, parts.clone(), member.size))?,
            },
            _ => self.folders.add(&path, &node)?,
        }
        Ok(NOWHERE)
    }
}

fn node_of(member: &Member, path: &[u8]) -> Node {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let kind = match member.kind {
        MemberKind::File | MemberKind::Hardlink => NodeKind::File,
        MemberKind::Directory => NodeKind::Folder,
        MemberKind::Symlink => NodeKind::Symlink,
        MemberKind::CharDevice { .. } => NodeKind::CharDevice,
        MemberKind::BlockDevice { .. } => NodeKind::BlockDevice,
        MemberKind::Fifo => NodeKind::Fifo,
    };
    let device = match member.kind {
        MemberKind::CharDevice { major, minor } | MemberKind::BlockDevice { major, minor } => {
            rustix::fs::makedev(major, minor)
        }
        _ => 0,
    };
    let modified = GoTime { seconds: member.modified.seconds, nanos: member.modified.nanos };
    // A number that is larger cannot exist on Linux; restic has no place for it either.
    let id = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Node {
        mode: member.mode & 0o7777,
        modified,
        accessed: modified,
        uid: id(member.uid),
        gid: id(member.gid),
        user: member.user.clone(),
        group: member.group.clone(),
        links: u64::from(!matches!(kind, NodeKind::Folder | NodeKind::Fifo)),
        link_target: if kind == NodeKind::Symlink { member.link.clone() } else { Vec::new() },
        attributes: attributes_of(member),
        device,
        ..Node::new(name, kind)
    }
}

/// Extended attributes, as pax records hold them.
fn attributes_of(member: &Member) -> Vec<Attribute> {
    const XATTR: &[u8] = b"SCHILY.xattr.";
    let of_record = |(name, value): &(Vec<u8>, Vec<u8>)| {
        let name = String::from_utf8(name.strip_prefix(XATTR)?.to_vec()).ok()?;
        // tar cannot have an equals sign in a keyword.
        let name = name.replace("%3D", "=").replace("%25", "%");
        Some(Attribute { name, value: value.clone() })
    };
    member.attributes.iter().filter_map(of_record).collect()
}

/// What is needed to store a source.
pub(super) struct Storing {
    pub content: Content,
    pub blobs: BlobWriter,
    pub tables: Arc<Tables>,
    pub spool_folder: PathBuf,
    /// Of files.
    pub source_path: Option<String>,
    pub context: Context,
}

impl Storing {
    /// Stores a tar archive of files: of all, or of those that a comparison with the last snapshot asked for, if it did.
    pub(super) fn files(self, source: Option<Received>, compared: Option<(Compared, i64)>) -> Result<StoredSource> {
        let folders = Folders::new(&self.spool_folder)?;
        let mut writer = SourceWriter::new(self.blobs, &self.tables, folders);
        let mut kept = Kept::default();
        if let Some((compared, began)) = compared {
            let Compared { folders, parent, source, wanted, kept: unread, linked } = compared;
            (writer.folders, writer.source, kept) = (folders, source, unread);
            writer.listing = Some(Reading { expected: Expected::of(&wanted), parent, began, with_links: linked });
        }
        let mut has_data = kept.has_data;
        let progress = self.context.progress.clone();
        let mut on_entry = |entry: &Entry| {
            progress.add_file();
            has_data |= match entry.kind {
                EntryKind::Directory => false,
                EntryKind::File => entry.size > 0,
                EntryKind::Symlink | EntryKind::Hardlink | EntryKind::Other => true,
            };
            Ok(())
        };
        let mut inspected = Inspected::default();
        if let Some(mut source) = source {
            source.count(self.context.progress.clone());
            inspected = repack(&mut source, &mut writer, &mut on_entry)
                .map_err(|error| classify(&error, FailureCode::Incomplete, "The stream is incomplete or damaged"))?;
            confirm_end(&mut source)?;
        }
        inspected.entries += kept.entries;
        let missing = match &mut writer.listing {
            None => Vec::new(),
            Some(listing) => listing.expected.missing()?,
        };
        // A relative path begins where the account's session begins; the server has told which folder that is.
        let given = self.source_path.filter(|path| path.starts_with('/'));
        let told = || self.context.with_findings(|findings| findings.folder.clone());
        let path = given.or_else(told).unwrap_or_default();
        let is_file = writer.source.is_none();
        let folder = if is_file { path.rsplit_once('/').map_or("", |(folder, _)| folder) } else { &path };
        let (tree, read_bytes) = writer.finish(folder)?;
        let (plain_sha256, is_empty, plain_bytes) = (String::new(), !has_data, kept.bytes + read_bytes);
        Ok(StoredSource { tree, paths: vec![path], plain_bytes, plain_sha256, is_empty, inspected, missing })
    }

    /// Stores a dump as one file, next to a file that describes it.
    pub(super) fn dump(self, mut source: Received, name: &str, manifest: &[u8], node: &Node) -> Result<StoredSource> {
        let (content, progress) = (self.content, self.context.progress.clone());
        source.count(progress.clone());
        let mut writer = SourceWriter::new(self.blobs, &self.tables, Folders::new(&self.spool_folder)?);
        let of_file = |name: &str| Node { name: name.into(), ..node.clone() };
        let mut hashing = Hashing::new(&mut source);
        writer.begin(name.as_bytes(), of_file(name));
        let mut tee = Tee { source: &mut hashing, copy: &mut writer };
        let inspected = inspect(content, &mut tee, FailureCode::Incomplete, &mut |_| Ok(()))?;
        progress.set_files(inspected.entries);
        let failed = |error: io::Error| classify(&error, FailureCode::Incomplete, "The dump cannot be stored");
        // Also store what the parser left unread.
        io::copy(&mut tee, &mut io::sink()).map_err(failed)?;
        writer.end()?;
        let (plain_sha256, plain_bytes) = (hashing.hex(), hashing.bytes);
        confirm_end(&mut source)?;
        let described = writer.file(MANIFEST.as_bytes(), of_file(MANIFEST), &mut &manifest[..]);
        described.map_err(|error| classify(&error, FailureCode::Internal, "The description cannot be stored"))?;
        let (tree, _) = writer.finish("")?;
        // A dump with notes has an unknown format, so its tables were not counted.
        let is_empty = inspected.entries == 0 && inspected.notes.is_empty();
        let paths = vec![format!("/{name}")];
        let missing = Vec::new();
        Ok(StoredSource { tree, paths, plain_bytes, plain_sha256, is_empty, inspected, missing })
    }
}

/// The name of the file that describes a dump.
pub(super) const MANIFEST: &str = "holdfast.json";

/// Reads to the end, which confirms that the server has finished.
fn confirm_end(source: &mut Received) -> Result<()> {
    let read = io::copy(source, &mut io::sink());
    read.map(drop).map_err(|error| classify(&error, FailureCode::Incomplete, "The stream is incomplete"))
}
