//! Restores members of an archive as files on a server, over SFTP. Nothing is written through a link.

use std::io::{self, Read};

use holdfast_core::failure::FailureCode;
use tokio::runtime::Handle;

use super::{NAMED, PIECE_BYTES, failed, note_folder, trimmed};
use crate::archive::{Facts, FileContent, Target, shown};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::sftp::{Attributes, Client, FileKind, FileWriter, OpenMode, SftpError, StatusCode};

/// Creates the target folder of a restore, and the folders above it, if they are missing.
pub(crate) async fn prepare_target(client: &mut Client, path: &str, context: &Context) -> Result<()> {
    let unwritable = |error: &SftpError| match failed(path.as_bytes(), error) {
        error if matches!(error.code, FailureCode::SourceMissing | FailureCode::SourceUnreadable) => {
            EngineError { code: FailureCode::TargetUnwritable, ..error }
        }
        error => error,
    };
    let mut missing = Vec::new();
    let mut folder = trimmed(path);
    loop {
        match client.stat(folder).await {
            Err(error) if error.is(StatusCode::NoSuchFile) && folder.len() > 1 => {
                missing.push(folder);
                folder = parent(folder);
            }
            found => match found.map_err(|error| unwritable(&error))?.kind() {
                Some(FileKind::Directory) => break,
                _ => {
                    let message = format!("{} is not a folder.", String::from_utf8_lossy(folder));
                    return Err(EngineError::new(FailureCode::TargetUnwritable, message));
                }
            },
        }
    }
    for folder in missing.into_iter().rev() {
        client.mkdir(folder, Attributes::default()).await.map_err(|error| unwritable(&error))?;
    }
    note_folder(client, trimmed(path), context).await;
    Ok(())
}

/// The folder above an absolute path.
fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(end @ 1..) => trimmed_bytes(&path[..end]),
        Some(0) | None => b"/",
    }
}

fn trimmed_bytes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
    &path[..end]
}

/// Restores members over SFTP. Used from a thread that may block.
pub(crate) struct SftpTarget<'a> {
    client: Client,
    root: Vec<u8>,
    overwrite: bool,
    no_owner: bool,
    has_lost_attributes: bool,
    /// How many members have a time that the protocol cannot express.
    odd_times: u64,
    runtime: Handle,
    context: &'a Context,
    /// Folders whose time and mode are set at the end, when everything is in them.
    folders: Vec<(Vec<u8>, Attributes)>,
    /// The folder that was checked last: it and all its parents are folders, not links.
    proven: Vec<u8>,
}

impl<'a> SftpTarget<'a> {
    pub(crate) fn new(
        client: Client,
        root: &str,
        (overwrite, no_owner): (bool, bool),
        runtime: Handle,
        context: &'a Context,
    ) -> Self {
        let root = root.trim_end_matches('/').as_bytes().to_vec();
        Self {
            client,
            proven: root.clone(),
            root,
            overwrite,
            no_owner,
            has_lost_attributes: false,
            odd_times: 0,
            runtime,
            context,
            folders: Vec::new(),
        }
    }

    /// The protocol has no status for a full disk: OpenSSH reports "Failure" for every error without its own status. So
    /// the server is asked how much space is left, if it can tell.
    fn or_full(&mut self, done: io::Result<()>) -> io::Result<()> {
        /// Less than this counts as full: requests in flight fail together with the first one that finds no space.
        const NEARLY_NONE: u64 = 1024 * 1024;
        let Err(error) = done else { return Ok(()) };
        let said = error.get_ref().and_then(|inner| inner.downcast_ref::<SftpError>());
        if !said.is_some_and(|said| said.is(StatusCode::Failure)) {
            return Err(error);
        }
        let root = self.path(b"");
        match self.runtime.block_on(self.client.space(&root)) {
            Ok(space) if space.free_bytes < NEARLY_NONE || space.free_files == Some(0) => {
                Err(io::Error::new(io::ErrorKind::StorageFull, "the server's disk is full"))
            }
            _ => Err(error),
        }
    }

    fn path(&self, path: &[u8]) -> Vec<u8> {
        if path.is_empty() && self.root.is_empty() {
            return b"/".to_vec();
        }
        if path.is_empty() { self.root.clone() } else { [&self.root, &b"/"[..], path].concat() }
    }

    /// What is at a path. Only the status "no such file" counts as nothing.
    fn look(&mut self, path: &[u8]) -> io::Result<Option<FileKind>> {
        match self.runtime.block_on(self.client.lstat(path)) {
            Ok(found) => {
                found.kind().map(Some).ok_or_else(|| io::Error::other("the server does not tell what is there"))
            }
            Err(error) if error.is(StatusCode::NoSuchFile) => Ok(None),
            Err(error) => Err(unwritten(error)),
        }
    }

    /// Sets the owner if the account may do so, like tar.
    fn give(&mut self, path: &[u8], facts: Facts) -> io::Result<()> {
        if self.no_owner {
            return Ok(());
        }
        let given = self.runtime.block_on(self.client.setstat(path, owner(facts)));
        ignore_refusal(given, path)
    }

    /// Warns about times before 1970 and after 2106, which become the nearest possible time.
    fn note_time(&mut self, path: &[u8], facts: Facts) {
        if u32::try_from(facts.modified.seconds).is_ok() {
            return;
        }
        self.odd_times += 1;
        if self.odd_times <= NAMED {
            let text = format!("{}: SFTP cannot set its time, which is before 1970 or after 2106", shown(path));
            self.context.log.warn(text);
        }
    }

    /// Whether something is in the way that must stay; if so, logs it.
    fn is_taken(&mut self, path: &[u8]) -> io::Result<bool> {
        match self.look(path)? {
            None => Ok(false),
            Some(FileKind::Directory) => Err(io::Error::other("a folder is in the way")),
            Some(_) if !self.overwrite => {
                self.context.log.warn(format!("{}: left as it is", shown(path)));
                Ok(true)
            }
            Some(_) => self.runtime.block_on(self.client.remove(path)).map(|()| false).map_err(unwritten),
        }
    }

    /// Creates the missing parent folders of a path. False if one of them is something else, such as a link: nothing is
    /// written through it.
    fn make_parents(&mut self, path: &[u8]) -> io::Result<bool> {
        let Some(end) = path.iter().rposition(|byte| *byte == b'/').filter(|end| *end > self.root.len()) else {
            return Ok(true);
        };
        if is_within(&self.proven, &path[..end]) {
            return Ok(true);
        }
        let ends = (self.root.len() + 1..=end).filter(|place| path[*place] == b'/');
        for parent in ends.map(|place| &path[..place]) {
            if is_within(&self.proven, parent) {
                continue;
            }
            match self.look(parent)? {
                Some(FileKind::Directory) => {}
                Some(_) => {
                    let text = format!("{}: left out because {} is not a folder", shown(path), shown(parent));
                    self.context.log.warn(text);
                    return Ok(false);
                }
                None => {
                    self.runtime.block_on(self.client.mkdir(parent, Attributes::default())).map_err(unwritten)?;
                }
            }
        }
        self.proven = path[..end].to_vec();
        Ok(true)
    }

    fn make_directory(&mut self, path: &[u8], facts: Facts) -> io::Result<()> {
        let path = self.path(path);
        if !self.make_parents(&path)? {
            return Ok(());
        }
        match self.look(&path)? {
            None => {
                // Nobody else may enter it before its mode is set at the end.
                let attributes = Attributes { permissions: Some(0o700), ..Attributes::default() };
                self.runtime.block_on(self.client.mkdir(&path, attributes)).map_err(unwritten)?;
            }
            Some(FileKind::Directory) if self.overwrite => {}
            Some(FileKind::Directory) => return Ok(()),
            Some(_) => {
                self.context.log.warn(format!("{}: left as it is, although it is not a folder", shown(&path)));
                return Ok(());
            }
        }
        self.note_time(&path, facts);
        self.give(&path, facts)?;
        self.folders.push((path, mode_and_times(facts)));
        Ok(())
    }

    fn write_file(&mut self, path: &[u8], facts: Facts, content: FileContent<'_>) -> io::Result<()> {
        let FileContent { data, parts, size } = content;
        let path = self.path(path);
        if !self.make_parents(&path)? || self.is_taken(&path)? {
            return Ok(());
        }
        self.note_time(&path, facts);
        let (runtime, client) = (&self.runtime, &mut self.client);
        // Its final mode may allow others to read it before its owner is set.
        let private = Attributes { permissions: Some(0o600), ..Attributes::default() };
        let opening = FileWriter::open(client, &path, OpenMode::CreateNew, private);
        let mut writer = runtime.block_on(opening).map_err(unwritten)?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut copy = |writer: &mut FileWriter, data: &mut dyn Read| {
            let mut copied = 0;
            loop {
                let read = data.read(&mut piece)?;
                if read == 0 {
                    return Ok::<u64, io::Error>(copied);
                }
                runtime.block_on(writer.write(client, &piece[..read])).map_err(unwritten)?;
                copied += read as u64;
            }
        };
        match parts {
            None => drop(copy(&mut writer, data)?),
            Some(parts) => {
                for part in parts {
                    writer.skip_to(part.offset);
                    if copy(&mut writer, &mut (&mut *data).take(part.length))? < part.length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
        let handle = runtime.block_on(writer.finish(client)).map_err(unwritten)?;
        if parts.is_some() {
            let size = Attributes { size: Some(size), ..Attributes::default() };
            runtime.block_on(client.fsetstat(&handle, size)).map_err(unwritten)?;
        }
        if !self.no_owner {
            ignore_refusal(runtime.block_on(client.fsetstat(&handle, owner(facts))), &path)?;
        }
        runtime.block_on(client.fsetstat(&handle, mode_and_times(facts))).map_err(unwritten)?;
        runtime.block_on(client.close(&handle)).map_err(unwritten)
    }

    fn make_symlink(&mut self, path: &[u8], link: &[u8], facts: Facts) -> io::Result<()> {
        let path = self.path(path);
        if !self.make_parents(&path)? || self.is_taken(&path)? {
            return Ok(());
        }
        self.runtime.block_on(self.client.symlink(link, &path)).map_err(unwritten)?;
        if self.client.extensions().lsetstat {
            self.note_time(&path, facts);
            let owner = Some(owner(facts)).filter(|_| !self.no_owner);
            for attributes in owner.into_iter().chain([times(facts)]) {
                let set = self.runtime.block_on(self.client.lsetstat(&path, attributes));
                ignore_refusal(set, &path)?;
            }
        }
        Ok(())
    }
}

/// Whether `folder` is `proven` or above it.
fn is_within(proven: &[u8], folder: &[u8]) -> bool {
    proven.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn owner(facts: Facts) -> Attributes {
    let owner = u32::try_from(facts.uid).ok().zip(u32::try_from(facts.gid).ok());
    Attributes { owner, ..Attributes::default() }
}

fn mode_and_times(facts: Facts) -> Attributes {
    Attributes { permissions: Some(facts.mode), ..times(facts) }
}

fn times(facts: Facts) -> Attributes {
    let seconds = facts.modified.seconds.clamp(0, u32::MAX.into());
    let seconds = u32::try_from(seconds).unwrap_or(0);
    Attributes { times: Some((seconds, seconds)), ..Attributes::default() }
}

/// Ignores a refusal by the server; any other error ends the restore.
fn ignore_refusal(done: std::result::Result<(), SftpError>, path: &[u8]) -> io::Result<()> {
    match done {
        Err(error @ SftpError::Status { .. }) => {
            tracing::debug!(path = shown(path), %error, "the server refused to set attributes");
            Ok(())
        }
        done => done.map_err(unwritten),
    }
}

/// Converts a write error. The caller adds the name of the member to a status; any other error means that the
/// connection or the run has ended.
fn unwritten(error: SftpError) -> io::Error {
    match error {
        SftpError::Status { .. } | SftpError::NotOffered(_) | SftpError::Limit(_) => io::Error::other(error),
        error => failed(b"SFTP", &error).into(),
    }
}

impl Target for SftpTarget<'_> {
    fn directory(&mut self, path: &[u8], facts: Facts) -> io::Result<()> {
        let made = self.make_directory(path, facts);
        self.or_full(made)
    }

    fn file(&mut self, path: &[u8], facts: Facts, content: FileContent<'_>) -> io::Result<()> {
        let written = self.write_file(path, facts, content);
        self.or_full(written)
    }

    fn symlink(&mut self, path: &[u8], link: &[u8], facts: Facts) -> io::Result<()> {
        let made = self.make_symlink(path, link, facts);
        self.or_full(made)
    }

    fn hardlink(&mut self, path: &[u8], target: &[u8]) -> io::Result<()> {
        let (path, target) = (self.path(path), self.path(target));
        if !self.make_parents(&target)? || !self.make_parents(&path)? || self.is_taken(&path)? {
            return Ok(());
        }
        self.runtime.block_on(self.client.hardlink(&target, &path)).map_err(unwritten)
    }

    fn other(&mut self, path: &[u8]) -> io::Result<()> {
        self.context.log.warn(format!("{}: neither file nor folder; left out", shown(path)));
        Ok(())
    }

    fn lose_attributes(&mut self, _path: &[u8]) {
        if !std::mem::replace(&mut self.has_lost_attributes, true) {
            self.context.log.warn("Access control lists and extended attributes cannot be restored over SFTP.");
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.odd_times > NAMED {
            let more = self.odd_times - NAMED;
            self.context.log.warn(format!("{more} further times cannot be set by SFTP either"));
        }
        // Deepest first: setting the time of a folder's content changes nothing above it.
        for (path, attributes) in std::mem::take(&mut self.folders).into_iter().rev() {
            self.runtime.block_on(self.client.setstat(&path, attributes)).map_err(unwritten)?;
        }
        Ok(())
    }
}
