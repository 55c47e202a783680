//! Files over SFTP, for accounts that may run no commands: we walk the tree and write the tar archive ourselves, and
//! take one apart to put files back. Slower than tar, and the protocol tells neither hard links nor fractions of a
//! second; everything else is kept.

use std::io::{self, Read};
use std::time::Duration;

use bytes::Bytes;
use holdfast_core::probe::FolderItem;
use holdfast_core::run::FailureCode;
use russh_sftp::client::SftpSession;
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::protocol::{FileAttributes, OpenFlags, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Handle;

use super::Outlet;
use super::files::{FilesSource, Pattern, patterns};
use crate::archive::{Facts, Target, shown};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::remote::{RemoteSettings, stalled};
use crate::ssh::Connection;

/// A file is read in pieces of this size, several of which are asked for at once.
const PIECE_BYTES: usize = 256 * 1024;

pub(crate) async fn open(connection: &Connection, settings: &RemoteSettings) -> Result<SftpSession> {
    let channel = connection.sftp_channel().await.map_err(|_| {
        EngineError::new(FailureCode::ToolMissing, "The server runs no commands for this user and offers no SFTP.")
    })?;
    let session = SftpSession::new(channel).await.map_err(|error| failed("SFTP", &error))?;
    session.set_timeout(settings.stall.as_secs().max(1));
    Ok(session)
}

fn failed(what: &str, error: &SftpError) -> EngineError {
    let code = match error {
        SftpError::Status(status) if status.status_code == StatusCode::NoSuchFile => FailureCode::SourceMissing,
        SftpError::Status(status) if status.status_code == StatusCode::PermissionDenied => {
            FailureCode::SourceUnreadable
        }
        SftpError::Timeout => FailureCode::Stalled,
        SftpError::IO(_) => FailureCode::Lost,
        _ => FailureCode::RemoteFailed,
    };
    EngineError::new(code, format!("{what}: {error}"))
}

/// The kind of a file in its mode; the library's own questions take a link for a file.
const KIND: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

fn is(meta: &FileAttributes, kind: u32) -> bool {
    meta.permissions.unwrap_or(0) & KIND == kind
}

fn is_status(error: &SftpError, code: StatusCode) -> bool {
    matches!(error, SftpError::Status(status) if status.status_code == code)
}

/// Sends a tar stream of the source to `outlet`.
pub(crate) async fn pump(
    connection: &Connection,
    source: &FilesSource,
    settings: &RemoteSettings,
    context: &Context,
    outlet: &mut Outlet,
) -> Result<()> {
    let session = open(connection, settings).await?;
    context.log.line("The server runs no tar for this user; reading over SFTP.");
    let root = if source.path.len() > 1 { source.path.trim_end_matches('/') } else { &source.path };
    let meta = session.metadata(root).await.map_err(|error| failed(root, &error))?;
    let mut walk = Walk { session, patterns: patterns(source), stall: settings.stall, context, outlet };
    let mut unreadable = Vec::new();
    if is(&meta, DIRECTORY) {
        walk.send_header(".", &meta, "").await?;
        walk.directory(root, &mut unreadable).await?;
    } else {
        let name = root.rsplit('/').next().unwrap_or(root);
        walk.file(root, &format!("./{name}"), &meta, &mut unreadable).await?;
    }
    walk.outlet.send(Bytes::from_static(&[0; 1024])).await?;
    if unreadable.is_empty() {
        return Ok(());
    }
    for path in &unreadable {
        context.log.line(path);
    }
    let message = format!("{} files cannot be read, the first is {}.", unreadable.len(), unreadable[0]);
    Err(EngineError::new(FailureCode::SourceUnreadable, message))
}

/// Links of a folder that are followed: each costs a question.
const LINKS: usize = 100;

/// What is in a folder, folders first, and whether there is more.
pub(crate) async fn list(session: &SftpSession, path: &str, limit: usize) -> Result<(Vec<FolderItem>, bool)> {
    let listed = session.read_dir(path).await.map_err(|error| failed(path, &error))?;
    let (mut items, mut looked): (Vec<FolderItem>, usize) = (Vec::new(), 0);
    for entry in listed {
        let meta = entry.metadata();
        let mut is_folder = is(&meta, DIRECTORY);
        let name = entry.file_name();
        if is(&meta, SYMLINK) && looked < LINKS {
            looked += 1;
            // A link to a folder can be looked into like one.
            let target = session.metadata(format!("{}/{name}", path.trim_end_matches('/'))).await;
            is_folder = target.is_ok_and(|meta| is(&meta, DIRECTORY));
        }
        items.push(FolderItem { name, is_folder, size: if is_folder { 0 } else { meta.len() } });
    }
    items.sort_by(|a, b| b.is_folder.cmp(&a.is_folder).then_with(|| a.name.cmp(&b.name)));
    let is_cut = items.len() > limit;
    items.truncate(limit);
    Ok((items, is_cut))
}

struct Walk<'a> {
    session: SftpSession,
    patterns: Vec<Pattern>,
    stall: Duration,
    context: &'a Context,
    outlet: &'a mut Outlet,
}

impl Walk<'_> {
    /// Everything below a folder, depth first, each folder in order of names.
    async fn directory(&mut self, root: &str, unreadable: &mut Vec<String>) -> Result<()> {
        let base = root.trim_end_matches('/');
        let mut waiting = vec![String::new()];
        while let Some(below) = waiting.pop() {
            if self.context.cancel.is_cancelled() {
                return Err(EngineError::cancelled());
            }
            let path = format!("{base}{below}");
            if below.is_empty() {
                waiting.extend(self.children(root, "", unreadable).await?);
                continue;
            }
            let member = format!(".{below}");
            let meta = match self.session.symlink_metadata(&path).await {
                Err(error) if is_status(&error, StatusCode::NoSuchFile) => {
                    self.context.log.warn(format!("{member}: File removed before we read it"));
                    continue;
                }
                meta => meta.map_err(|error| failed(&path, &error))?,
            };
            if is(&meta, SYMLINK) {
                let link = self.session.read_link(&path).await.map_err(|error| failed(&path, &error))?;
                self.send_header(&member, &meta, &link).await?;
            } else if is(&meta, DIRECTORY) {
                self.send_header(&member, &meta, "").await?;
                waiting.extend(self.children(&path, &below, unreadable).await?);
            } else if is(&meta, REGULAR) {
                self.file(&path, &member, &meta, unreadable).await?;
            } else {
                self.context.log.line(format!("{member}: neither file nor folder; left out"));
            }
        }
        Ok(())
    }

    /// The names in a folder that are not excluded, the last one first, as a stack wants them.
    async fn children(&self, path: &str, below: &str, unreadable: &mut Vec<String>) -> Result<Vec<String>> {
        let listed = match self.session.read_dir(path).await {
            Err(error) if is_status(&error, StatusCode::PermissionDenied) => {
                unreadable.push(format!(".{below}"));
                return Ok(Vec::new());
            }
            listed => listed.map_err(|error| failed(path, &error))?,
        };
        let mut names: Vec<String> = listed.map(|entry| format!("{below}/{}", entry.file_name())).collect();
        names.retain(|name| !is_excluded(&self.patterns, name.trim_start_matches('/')));
        names.sort_by(|a, b| b.cmp(a));
        Ok(names)
    }

    async fn file(
        &mut self,
        path: &str,
        member: &str,
        meta: &FileAttributes,
        unreadable: &mut Vec<String>,
    ) -> Result<()> {
        let mut file = match self.session.open(path).await {
            Err(error) if is_status(&error, StatusCode::PermissionDenied) => {
                unreadable.push(member.to_owned());
                return Ok(());
            }
            Err(error) if is_status(&error, StatusCode::NoSuchFile) => {
                self.context.log.warn(format!("{member}: File removed before we read it"));
                return Ok(());
            }
            file => file.map_err(|error| failed(path, &error))?,
        };
        let size = meta.len();
        self.send_header(member, meta, "").await?;
        let mut left = size;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let mut piece = vec![0; wanted];
            let reading = tokio::time::timeout(self.stall, file.read(&mut piece));
            let read = tokio::select! {
                () = self.context.cancel.cancelled() => return Err(EngineError::cancelled()),
                read = reading => read.map_err(|_| stalled(self.stall))?,
            };
            let read = read.map_err(|error| EngineError::new(FailureCode::Lost, format!("{member}: {error}")))?;
            if read == 0 {
                self.context.log.warn(format!("{member}: File shrank by {left} bytes; padding with zeros"));
                self.send_zeros(left).await?;
                break;
            }
            piece.truncate(read);
            left -= read as u64;
            self.outlet.send(piece.into()).await?;
        }
        self.send_zeros(size.next_multiple_of(512) - size).await
    }

    async fn send_zeros(&mut self, mut count: u64) -> Result<()> {
        while count > 0 {
            let now = count.min(PIECE_BYTES as u64);
            self.outlet.send(vec![0; usize::try_from(now).unwrap_or(PIECE_BYTES)].into()).await?;
            count -= now;
        }
        Ok(())
    }

    async fn send_header(&mut self, member: &str, meta: &FileAttributes, link: &str) -> Result<()> {
        self.outlet.send(header(member, meta, link).map_err(EngineError::internal)?.into()).await
    }
}

/// A member's headers; names and sizes of any length go into a POSIX header before it.
fn header(member: &str, meta: &FileAttributes, link: &str) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    let name = if is(meta, DIRECTORY) { format!("{}/", member.trim_end_matches('/')) } else { member.to_owned() };
    let size = if is(meta, REGULAR) { meta.len() } else { 0 };
    let size_text = size.to_string();
    let mut extensions: Vec<(&str, &[u8])> = Vec::new();
    if name.len() > 99 || !name.is_ascii() {
        extensions.push(("path", name.as_bytes()));
    }
    if link.len() > 99 || !link.is_ascii() {
        extensions.push(("linkpath", link.as_bytes()));
    }
    if size >= 1 << 33 {
        extensions.push(("size", size_text.as_bytes()));
    }
    builder.append_pax_extensions(extensions)?;
    let mut header = tar::Header::new_ustar();
    copy_text(&mut header.as_old_mut().name, &name);
    copy_text(&mut header.as_old_mut().linkname, link);
    header.set_entry_type(match (is(meta, DIRECTORY), is(meta, SYMLINK)) {
        (true, _) => tar::EntryType::Directory,
        (_, true) => tar::EntryType::Symlink,
        _ => tar::EntryType::Regular,
    });
    header.set_mode(meta.permissions.unwrap_or(0o644) & 0o7777);
    header.set_uid(meta.uid.unwrap_or(0).into());
    header.set_gid(meta.gid.unwrap_or(0).into());
    header.set_mtime(meta.mtime.unwrap_or(0).into());
    header.set_size(if size >= 1 << 33 { 0 } else { size });
    header.set_cksum();
    builder.append(&header, io::empty())?;
    Ok(builder.get_ref().clone())
}

fn copy_text(field: &mut [u8], text: &str) {
    let length = text.len().min(field.len() - 1);
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
}

/// The same rules as for tar: a name anywhere, or a path from the source on.
pub(crate) fn is_excluded(patterns: &[Pattern], path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    patterns.iter().any(|pattern| match pattern {
        Pattern::Name(text) => matches(text.as_bytes(), name.as_bytes()),
        Pattern::Path(text) => matches(text.as_bytes(), path.as_bytes()),
    })
}

/// Shell patterns: `*` and `?` match anything but a slash, `[…]` one of a set. Goes back to the last star alone, which
/// is enough, so that no pattern takes long.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        if let Some(width) = match_one(&pattern[p.min(pattern.len())..], text[t]) {
            (p, t) = (p + width, t + 1);
            continue;
        }
        match star {
            Some((after, from)) if text[from] != b'/' => {
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
            _ => return false,
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// How much of the pattern stands for this byte.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => (byte != b'/').then_some(1),
        [b'[', rest @ ..] => match rest.iter().skip(1).position(|end| *end == b']') {
            Some(end) => in_set(&rest[..=end], byte).then_some(end + 3),
            None => (byte == b'[').then_some(1),
        },
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [wanted, ..] => (*wanted == byte).then_some(1),
        [] => None,
    }
}

fn in_set(set: &[u8], byte: u8) -> bool {
    let (is_negated, set) = match set {
        [b'!' | b'^', rest @ ..] => (true, rest),
        set => (false, set),
    };
    let mut at = 0;
    let mut found = false;
    while at < set.len() {
        if at + 2 < set.len() && set[at + 1] == b'-' {
            found |= (set[at]..=set[at + 2]).contains(&byte);
            at += 3;
        } else {
            found |= set[at] == byte;
            at += 1;
        }
    }
    found != is_negated && byte != b'/'
}

/// Puts members back over SFTP. Used from a thread that may block.
pub(crate) struct SftpTarget<'a> {
    pub session: SftpSession,
    pub root: String,
    pub overwrite: bool,
    pub runtime: Handle,
    pub context: &'a Context,
    /// Times and modes of folders wait until everything is in them.
    pub folders: Vec<(String, FileAttributes)>,
}

impl SftpTarget<'_> {
    fn path(&self, path: &[u8]) -> io::Result<String> {
        let path = std::str::from_utf8(path).map_err(|_| io::Error::other("SFTP takes names in UTF-8 alone"))?;
        Ok(if path.is_empty() { self.root.clone() } else { format!("{}/{path}", self.root.trim_end_matches('/')) })
    }

    fn run<T>(&self, work: impl Future<Output = std::result::Result<T, SftpError>>) -> io::Result<T> {
        self.runtime.block_on(async {
            tokio::select! {
                () = self.context.cancel.cancelled() => Err(EngineError::cancelled().into()),
                done = work => done.map_err(io::Error::other),
            }
        })
    }

    fn attributes(&self, facts: Facts) -> FileAttributes {
        let mtime = u32::try_from(facts.modified_micros.div_euclid(1_000_000)).unwrap_or(0);
        FileAttributes {
            permissions: Some(facts.mode),
            atime: Some(mtime),
            mtime: Some(mtime),
            ..FileAttributes::empty()
        }
    }

    /// Ownership is given away where the account may; tar does the same.
    fn give(&self, path: &str, facts: Facts) {
        let owner = FileAttributes {
            uid: u32::try_from(facts.uid).ok(),
            gid: u32::try_from(facts.gid).ok(),
            ..FileAttributes::empty()
        };
        if let Err(error) = self.run(self.session.set_metadata(path, owner)) {
            tracing::debug!(path, %error, "the owner stays");
        }
    }

    /// Whether something is in the way that must stay.
    fn is_taken(&self, path: &str, is_dir: bool) -> io::Result<bool> {
        let Ok(found) = self.run(self.session.symlink_metadata(path)) else { return Ok(false) };
        if is(&found, DIRECTORY) {
            return if is_dir { Ok(true) } else { Err(io::Error::other("a folder is in the way")) };
        }
        if !self.overwrite {
            self.context.log.warn(format!("{path}: left as it is"));
            return Ok(true);
        }
        self.run(self.session.remove_file(path)).map(|()| false)
    }

    fn make_parents(&self, path: &str) -> io::Result<()> {
        let parents = path.match_indices('/').map(|(at, _)| &path[..at]).filter(|parent| !parent.is_empty());
        for parent in parents.filter(|parent| parent.len() > self.root.len()) {
            if !self.run(self.session.try_exists(parent))? {
                self.run(self.session.create_dir(parent))?;
            }
        }
        Ok(())
    }
}

impl Target for SftpTarget<'_> {
    fn directory(&mut self, path: &[u8], facts: Facts) -> io::Result<()> {
        let path = self.path(path)?;
        self.make_parents(&path)?;
        if !self.is_taken(&path, true)? {
            self.run(self.session.create_dir(&path))?;
        } else if !self.overwrite {
            return Ok(());
        }
        self.give(&path, facts);
        self.folders.push((path, self.attributes(facts)));
        Ok(())
    }

    fn file(&mut self, path: &[u8], facts: Facts, content: &mut dyn Read) -> io::Result<()> {
        let path = self.path(path)?;
        self.make_parents(&path)?;
        if self.is_taken(&path, false)? {
            return Ok(());
        }
        let flags = OpenFlags::CREATE | OpenFlags::WRITE | OpenFlags::TRUNCATE | OpenFlags::EXCLUDE;
        let mut file = self.run(self.session.open_with_flags(&path, flags))?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = content.read(&mut piece)?;
            if read == 0 {
                break;
            }
            self.runtime.block_on(file.write_all(&piece[..read]))?;
        }
        self.runtime.block_on(file.shutdown())?;
        self.give(&path, facts);
        self.run(self.session.set_metadata(&path, self.attributes(facts)))
    }

    fn symlink(&mut self, path: &[u8], link: &[u8], _facts: Facts) -> io::Result<()> {
        let path = self.path(path)?;
        let link = std::str::from_utf8(link).map_err(|_| io::Error::other("SFTP takes names in UTF-8 alone"))?;
        self.make_parents(&path)?;
        if self.is_taken(&path, false)? {
            return Ok(());
        }
        // The other way round than the protocol's text has it: so OpenSSH does, and everybody after it.
        self.run(self.session.symlink(link, &path))
    }

    fn hardlink(&mut self, path: &[u8], target: &[u8]) -> io::Result<()> {
        let (path, target) = (self.path(path)?, self.path(target)?);
        self.make_parents(&path)?;
        if self.is_taken(&path, false)? {
            return Ok(());
        }
        match self.run(self.session.hardlink(&target, &path))? {
            true => Ok(()),
            false => Err(io::Error::other("the server's SFTP knows no hard links")),
        }
    }

    fn other(&mut self, path: &[u8]) -> io::Result<()> {
        self.context.log.warn(format!("{}: neither file nor folder; left out", shown(path)));
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        // Deepest first: setting the time of a folder's content changes nothing above it.
        for (path, attributes) in std::mem::take(&mut self.folders).into_iter().rev() {
            self.run(self.session.set_metadata(&path, attributes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_patterns_match_as_in_a_shell() {
        let yes = [("*.log", "a.log"), ("a*b", "ab"), ("?x", "yx"), ("[a-c]1", "b1"), ("a/*/c", "a/b/c"), ("\\*", "*")];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        let no = [("*.log", "a/b.log"), ("a*b", "abc"), ("?", "/"), ("[!a]x", "ax"), ("", "a"), ("a", "")];
        for (pattern, text) in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }
}
