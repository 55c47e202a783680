//! Files over SFTP, for accounts that may not run commands: we walk the tree and write the tar archive ourselves, and
//! unpack one to restore files. This is slower than tar, and the protocol has no hard links, fractions of a second,
//! access control lists or extended attributes. Names are bytes, as on the server.

mod target;

use std::collections::HashSet;
use std::io;
use std::time::Instant;

use bytes::Bytes;
use holdfast_core::Timestamp;
use holdfast_core::failure::FailureCode;
use holdfast_core::probe::FolderItem;
use holdfast_core::source::FilesSource;

use super::PlainSink;
use super::patterns::{Pattern, is_excluded, patterns};
use crate::archive::tar::{Member, MemberKind, Time, Writer};
use crate::archive::{ExistingKind, shown};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::remote::{Pace, RemoteSettings};
use crate::sftp::{Attributes, Client, FileKind, FileReader, Folder, FolderLimits, SftpError, StatusCode};
use crate::ssh::{Connection, SshError};

pub(crate) use target::{SftpTarget, prepare_target};

/// How much is sent or written at once, where the server does not decide.
const PIECE_BYTES: usize = 256 * 1024;
/// How much memory a walk may use for names that wait to be read.
const WAITING_BYTES: usize = 128 * 1024 * 1024;
/// The longest path. Linux allows an eighth of this; a deeper tree has no end.
const PATH_BYTES: usize = 32 * 1024;
/// How many names with a time in the far future are remembered; there should be none.
const AHEAD_NAMES: usize = 100_000;
/// How many members are named in warnings of one kind; the rest are only counted.
const NAMED: u64 = 20;
/// A file that shrank by more than this while it was read is not padded with zeros.
const PADDING_BYTES: u64 = 64 << 30;

/// Opens SFTP on a connection.
pub(crate) async fn open(connection: &Connection, settings: &RemoteSettings, context: &Context) -> Result<Client> {
    let opened = tokio::select! {
        () = context.cancel.cancelled() => return Err(EngineError::cancelled()),
        opened = connection.sftp_channel() => opened,
    };
    let channel = opened.map_err(|error| match error {
        SshError::Timeout => error.into(),
        error if connection.is_closed() => error.into(),
        _ => {
            EngineError::new(FailureCode::ToolMissing, "The server runs no commands for this user and offers no SFTP.")
        }
    })?;
    let started = Client::start(channel, settings.answer.min(settings.stall), context.cancel.clone()).await;
    let mut client = started.map_err(|error| failed(b"SFTP", &error))?;
    client.set_reply_limit(settings.stall);
    Ok(client)
}

/// What an error means for a run; `what` is usually a path.
fn failed(what: &[u8], error: &SftpError) -> EngineError {
    let code = match error {
        SftpError::Status { code: StatusCode::NoSuchFile, .. } => FailureCode::SourceMissing,
        SftpError::Status { code: StatusCode::PermissionDenied, .. } => FailureCode::SourceUnreadable,
        SftpError::Stalled(_) => FailureCode::Stalled,
        SftpError::Lost(_) => FailureCode::Lost,
        SftpError::Cancelled => return EngineError::cancelled(),
        SftpError::Limit(sentence) => return EngineError::new(FailureCode::RemoteFailed, sentence),
        SftpError::Status { .. } | SftpError::Protocol(_) | SftpError::NotOffered(_) => FailureCode::RemoteFailed,
    };
    EngineError::new(code, format!("{}: {error}", shown(what)))
}

/// A path without trailing slashes, except for the root itself.
fn trimmed(path: &str) -> &[u8] {
    if path.len() > 1 { path.trim_end_matches('/').as_bytes() } else { path.as_bytes() }
}

/// Sends a tar stream of the source to `sink`.
pub(crate) async fn send(
    connection: &Connection,
    source: &FilesSource,
    settings: &RemoteSettings,
    context: &Context,
    (sink, now): (&mut PlainSink, Timestamp),
) -> Result<()> {
    let mut client = open(connection, settings, context).await?;
    context.log.line("The server runs no tar for this user; reading over SFTP.");
    note_folder(&mut client, trimmed(&source.path), context).await;
    send_within(Limits::default(), client, source, context, (sink, now)).await
}

async fn send_within(
    limits: Limits,
    mut client: Client,
    source: &FilesSource,
    context: &Context,
    (sink, now): (&mut PlainSink, Timestamp),
) -> Result<()> {
    let root = trimmed(&source.path);
    let meta = client.stat(root).await.map_err(|error| failed(root, &error))?;
    let (unreadable, pace) = (Unreadable::default(), Pace::new(client.reply_limit()));
    let now = now.as_second();
    let mut walk = Walk {
        client,
        patterns: patterns(source),
        context,
        sink,
        unreadable,
        limits,
        pace,
        now,
        started: Instant::now(),
        odd_times: 0,
        unowned: 0,
        undated: 0,
        ahead: HashSet::new(),
    };
    match meta.kind() {
        Some(FileKind::Directory) => {
            walk.send_header(b".", &meta, b"").await?;
            walk.tree(root).await?;
        }
        Some(FileKind::Regular) => {
            let name = root.rsplit(|byte| *byte == b'/').next().unwrap_or(root);
            if !walk.file(root, &[b"./", name].concat(), &meta).await? {
                return Err(EngineError::new(FailureCode::SourceMissing, format!("{}: No such file", shown(root))));
            }
        }
        _ => {
            let message = format!("{} is neither a file nor a folder.", shown(root));
            return Err(EngineError::new(FailureCode::SourceUnreadable, message));
        }
    }
    walk.sink.send(Bytes::from_static(&[0; 1024])).await?;
    if walk.odd_times > NAMED {
        let more = walk.odd_times - NAMED;
        context.log.warn(format!("{more} further times are taken for before 1970, too"));
    }
    for (count, untold) in [
        (walk.unowned, "who owns {}; stored as owned by user 0 and group 0"),
        (walk.undated, "when {} last changed; stored as changed in 1970"),
    ] {
        if count > 0 {
            let untold = untold.replace("{}", &format!("{count} of the entries"));
            context.log.warn(format!("The server does not tell {untold}."));
        }
    }
    walk.unreadable.judge()
}

/// What a restore finds at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderState {
    /// There is no such folder yet.
    Missing,
    Empty,
    /// It contains something, or cannot be listed.
    InUse,
}

/// Notes where a path leads, if the server says so.
async fn note_folder(client: &mut Client, path: &[u8], context: &Context) {
    if let Ok(folder) = client.realpath(path).await {
        context.note_folder(&String::from_utf8_lossy(&folder).replace(['\n', '\r'], "?"));
    }
}

/// Whether a folder exists, and whether it holds anything.
pub(crate) async fn folder_state(
    connection: &Connection,
    settings: &RemoteSettings,
    path: &str,
    context: &Context,
) -> Result<FolderState> {
    let mut client = open(connection, settings, context).await?;
    let path = trimmed(path);
    note_folder(&mut client, path, context).await;
    let mut folder = match Folder::open(&mut client, path, FolderLimits::default()).await {
        Err(error) if error.is(StatusCode::NoSuchFile) => return Ok(FolderState::Missing),
        // A folder that cannot be opened is not taken for empty.
        Err(SftpError::Status { .. }) => return Ok(FolderState::InUse),
        folder => folder.map_err(|error| failed(path, &error))?,
    };
    loop {
        match folder.next_page(&mut client).await.map_err(|error| failed(path, &error))? {
            Some(page) if page.is_empty() => {}
            page => return Ok(if page.is_none() { FolderState::Empty } else { FolderState::InUse }),
        }
    }
}

/// What is at each of these paths below `root`. They come in pieces, each path terminated by a zero byte.
pub(crate) async fn existing_kinds(
    connection: &Connection,
    settings: &RemoteSettings,
    root: &str,
    mut paths: tokio::sync::mpsc::Receiver<Vec<u8>>,
    context: &Context,
) -> Result<Vec<ExistingKind>> {
    let mut client = open(connection, settings, context).await?;
    let mut found = Vec::new();
    while let Some(piece) = paths.recv().await {
        for path in piece.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
            let path = joined(trimmed(root), path);
            found.push(match client.lstat(&path).await {
                Err(error) if error.is(StatusCode::NoSuchFile) => ExistingKind::Nothing,
                meta => match meta.map_err(|error| failed(&path, &error))?.kind() {
                    Some(FileKind::Directory) => ExistingKind::Directory,
                    Some(FileKind::Symlink) => ExistingKind::Symlink,
                    _ => ExistingKind::File,
                },
            });
        }
    }
    Ok(found)
}

/// How many links of a folder are followed: each needs a request.
const LINKS: usize = 100;
/// How many names of a folder are read; if there are more, the listing is incomplete.
const LISTED_NAMES: usize = 100_000;

/// What is in a folder, folders first, and whether there is more.
pub(crate) async fn list(client: &mut Client, path: &str, limit: usize) -> Result<(Vec<FolderItem>, bool)> {
    list_names(client, path.as_bytes(), limit).await.map_err(|error| failed(path.as_bytes(), &error))
}

async fn list_names(
    client: &mut Client,
    path: &[u8],
    limit: usize,
) -> std::result::Result<(Vec<FolderItem>, bool), SftpError> {
    let mut folder = Folder::open(client, path, FolderLimits::default()).await?;
    let mut listed = Vec::new();
    while let Some(page) = folder.next_page(client).await? {
        listed.extend(page);
        if listed.len() > LISTED_NAMES {
            folder.close(client)?;
            break;
        }
    }
    let mut is_cut = listed.len() > LISTED_NAMES;
    let (mut items, mut looked): (Vec<FolderItem>, usize) = (Vec::new(), 0);
    for entry in listed {
        let mut is_folder = entry.attributes.kind() == Some(FileKind::Directory);
        if entry.attributes.kind() == Some(FileKind::Symlink) && looked < LINKS {
            looked += 1;
            // A link to a folder can be opened like one.
            let target = match client.stat(&joined(path, &entry.name)).await {
                Err(error @ SftpError::Status { .. }) => Err(error),
                target => Ok(target?),
            };
            is_folder = target.is_ok_and(|target| target.kind() == Some(FileKind::Directory));
        }
        let size = if is_folder { 0 } else { entry.attributes.size.unwrap_or(0) };
        items.push(FolderItem { name: String::from_utf8_lossy(&entry.name).into_owned(), is_folder, size });
    }
    items.sort_by(|a, b| b.is_folder.cmp(&a.is_folder).then_with(|| a.name.cmp(&b.name)));
    is_cut |= items.len() > limit;
    items.truncate(limit);
    Ok((items, is_cut))
}

fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let base = folder.strip_suffix(b"/").unwrap_or(folder);
    [base, b"/", name].concat()
}

/// Entries that could not be read. The log names them, and the run fails at its end.
#[derive(Default)]
struct Unreadable {
    count: u64,
    first: String,
}

impl Unreadable {
    fn note(&mut self, member: &[u8], context: &Context) {
        self.note_as(member, "Permission denied", context);
    }

    fn note_as(&mut self, member: &[u8], reason: &str, context: &Context) {
        let name = shown(member);
        context.log.line(format!("{name}: {reason}"));
        if self.count == 0 {
            self.first = name;
        }
        self.count += 1;
    }

    fn judge(&self) -> Result<()> {
        let message = match self.count {
            0 => return Ok(()),
            1 => format!("{} cannot be read.", self.first),
            count => format!("{count} files cannot be read, the first is {}.", self.first),
        };
        Err(EngineError::new(FailureCode::SourceUnreadable, message))
    }
}

/// The longest path that servers open, and the longest name that may follow a folder's path, with its slash: servers do
/// not list names that would exceed the limit.
const LONGEST_PATH: usize = 4095;
const LONGEST_NAME: usize = 256;

/// How much of a tree is held at once.
#[derive(Clone, Copy)]
struct Limits {
    folder: FolderLimits,
    waiting_bytes: usize,
    path_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { folder: FolderLimits::default(), waiting_bytes: WAITING_BYTES, path_bytes: PATH_BYTES }
    }
}

/// The names of one folder that have not been read yet, packed together: there can be millions of them.
#[derive(Default)]
struct Names {
    text: Vec<u8>,
    /// The offset and length of each name.
    places: Vec<(u32, u32)>,
}

impl Names {
    fn push(&mut self, name: &[u8]) {
        let place = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.places.push((place(self.text.len()), place(name.len())));
        self.text.extend_from_slice(name);
    }

    /// Sorts the names so that `pop` returns the first one, and removes duplicates.
    fn sort(&mut self) {
        let text = &self.text;
        self.places.sort_unstable_by(|a, b| slice(text, *b).cmp(slice(text, *a)));
        self.places.dedup_by(|a, b| slice(text, *a) == slice(text, *b));
        self.places.shrink_to_fit();
        self.text.shrink_to_fit();
    }

    fn pop(&mut self) -> Option<&[u8]> {
        let place = self.places.pop()?;
        Some(slice(&self.text, place))
    }

    /// The memory that the names use; it stays the same from when they are sorted until all are popped.
    fn bytes(&self) -> usize {
        self.text.len() + self.places.capacity() * size_of::<(u32, u32)>()
    }
}

fn slice(text: &[u8], (start, length): (u32, u32)) -> &[u8] {
    text.get(start as usize..).and_then(|text| text.get(..length as usize)).unwrap_or_default()
}

/// A folder of the walk.
struct Level {
    names: Names,
    bytes: usize,
    /// The length of its path.
    path_length: usize,
}

struct Walk<'a> {
    client: Client,
    patterns: Vec<Pattern>,
    context: &'a Context,
    sink: &'a mut PlainSink,
    unreadable: Unreadable,
    limits: Limits,
    pace: Pace,
    /// When the run began.
    now: i64,
    /// When the walk began, shortly after `now`.
    started: Instant,
    odd_times: u64,
    /// How many entries have no owner or no time in what the server reports.
    unowned: u64,
    undated: u64,
    /// Entries that the server lists with a year from 2038 on: their time is really in the future, not one before 1970.
    ahead: HashSet<Vec<u8>>,
}

impl Walk<'_> {
    /// Sends everything below a folder, depth first, each folder in order of names.
    async fn tree(&mut self, root: &[u8]) -> Result<()> {
        let mut path = root.strip_suffix(b"/").unwrap_or(root).to_vec();
        let base = path.len();
        let names = self.names(root, b"", 0).await?;
        let mut waiting = names.bytes();
        let mut levels = vec![Level { bytes: waiting, names, path_length: base }];
        while let Some(level) = levels.last_mut() {
            path.truncate(level.path_length);
            let Some(name) = level.names.pop() else {
                waiting -= level.bytes;
                levels.pop();
                continue;
            };
            path.push(b'/');
            path.extend_from_slice(name);
            if path.len() > self.limits.path_bytes {
                let start = shown(&path[..path.len().min(200)]);
                let message = format!("Folders are nested too deep to be read over SFTP, below {start}.");
                return Err(EngineError::new(FailureCode::RemoteFailed, message));
            }
            if self.member(&path, base).await? {
                let names = self.names(&path, &path[base + 1..], waiting).await?;
                let bytes = names.bytes();
                waiting += bytes;
                levels.push(Level { names, bytes, path_length: path.len() });
            }
        }
        Ok(())
    }

    /// Sends one member; true for a folder, which is to be entered.
    async fn member(&mut self, path: &[u8], base: usize) -> Result<bool> {
        let member = [b".", &path[base..]].concat();
        let found = self.client.lstat(path).await;
        let Some(meta) = self.readable(found, path, &member)? else { return Ok(false) };
        match meta.kind() {
            Some(FileKind::Directory) => {
                self.send_header(&member, &meta, b"").await?;
                return Ok(true);
            }
            Some(FileKind::Symlink) => {
                let target = self.client.readlink(path).await;
                if let Some(target) = self.readable(target, path, &member)? {
                    self.send_header(&member, &meta, &target).await?;
                }
            }
            Some(FileKind::Regular) => {
                self.file(path, &member, &meta).await?;
            }
            Some(FileKind::Socket) => self.context.log.line(format!("{}: a socket; left out", shown(&member))),
            Some(FileKind::Special) => {
                let text = format!("{}: a pipe or device, which SFTP cannot read; left out", shown(&member));
                self.context.log.warn(text);
            }
            None => {
                let message = format!("{}: the server does not tell what kind of file this is.", shown(&member));
                return Err(EngineError::new(FailureCode::RemoteFailed, message));
            }
        }
        Ok(false)
    }

    /// What was found; `None` when this name, exactly as the server gave it, is gone, or may not be read.
    fn readable<T>(
        &mut self,
        found: std::result::Result<T, SftpError>,
        path: &[u8],
        member: &[u8],
    ) -> Result<Option<T>> {
        match found {
            Err(error) if error.is(StatusCode::NoSuchFile) => {
                self.context.log.warn(format!("{}: File removed before we read it", shown(member)));
                Ok(None)
            }
            Err(error) if error.is(StatusCode::PermissionDenied) => {
                self.unreadable.note(member, self.context);
                Ok(None)
            }
            found => found.map(Some).map_err(|error| failed(path, &error)),
        }
    }

    /// The names in a folder that are not excluded. `below` is its path relative to the source.
    async fn names(&mut self, path: &[u8], below: &[u8], waiting: usize) -> Result<Names> {
        let member = if below.is_empty() { b".".to_vec() } else { [b"./", below].concat() };
        let opened = Folder::open(&mut self.client, path, self.limits.folder).await;
        let mut names = Names::default();
        let Some(mut folder) = self.readable(opened, path, &member)? else { return Ok(names) };
        if path.len() + LONGEST_NAME > LONGEST_PATH {
            self.unreadable.note_as(
                &member,
                "Its path is so long that the server may not list all names in it",
                self.context,
            );
        }
        let mut is_empty = true;
        let mut relative = below.to_vec();
        if !below.is_empty() {
            relative.push(b'/');
        }
        let prefix = relative.len();
        loop {
            let page = folder.next_page(&mut self.client).await;
            let Some(Some(page)) = self.readable(page, path, &member)? else { break };
            is_empty &= page.is_empty();
            for entry in page {
                relative.truncate(prefix);
                relative.extend_from_slice(&entry.name);
                if !is_excluded(&self.patterns, &relative) {
                    names.push(&entry.name);
                    if entry.year.is_some_and(|year| year >= 2038) && self.ahead.len() < AHEAD_NAMES {
                        self.ahead.insert([b"./", &relative[..]].concat());
                    }
                }
            }
            if waiting + names.bytes() > self.limits.waiting_bytes {
                let message = format!(
                    "{}: more names wait to be read than the {} bytes that there is room for.",
                    shown(path),
                    self.limits.waiting_bytes
                );
                return Err(EngineError::new(FailureCode::RemoteFailed, message));
            }
        }
        if is_empty {
            // A server does not list names that it may not look at: a folder that may be read, but not entered, looks
            // empty.
            let found = self.client.lstat(&[path, b"/."].concat()).await;
            if found.is_err_and(|error| error.is(StatusCode::PermissionDenied)) {
                self.unreadable.note(&member, self.context);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Sends a file; false when it is gone.
    async fn file(&mut self, path: &[u8], member: &[u8], meta: &Attributes) -> Result<bool> {
        let opened = FileReader::open(&mut self.client, path, meta.size.unwrap_or(0)).await;
        let is_gone = opened.as_ref().is_err_and(|error| error.is(StatusCode::NoSuchFile));
        let Some((mut reader, meta)) = self.readable(opened, path, member)? else { return Ok(!is_gone) };
        let (Some(FileKind::Regular), Some(size)) = (meta.kind(), meta.size) else {
            let message = format!("{}: the server does not tell the size of this file.", shown(member));
            return Err(EngineError::new(FailureCode::RemoteFailed, message));
        };
        self.send_header(member, &meta, b"").await?;
        let opened_at = self.now + i64::try_from(self.started.elapsed().as_secs()).unwrap_or(i64::MAX / 2);
        let mut left = size;
        while let Some(data) = self.next_data(&mut reader).await?.map_err(|error| failed(path, &error))? {
            left -= data.len() as u64;
            self.sink.send(data).await?;
        }
        if left > 0 {
            let text = format!("{}: File shrank by {left} bytes; padding with zeros", shown(member));
            if left > PADDING_BYTES {
                return Err(EngineError::new(FailureCode::RemoteFailed, format!("{text} is not done for that many.")));
            }
            self.context.log.warn(text);
            self.send_zeros(left).await?;
        }
        self.send_zeros((512 - size % 512) % 512).await?;
        let after = reader.finish(&mut self.client).await.map_err(|error| failed(path, &error))?;
        let changed = |meta: &Attributes| (meta.size, meta.times.map(|(_, changed)| changed));
        if left == 0 && changed(&after) != changed(&meta) {
            self.context.log.warn(format!("{}: file changed as we read it", shown(member)));
        } else if left == 0 && is_too_fresh(&meta, opened_at) {
            self.context.log.warn(format!(
                "{}: the file changed in the second in which it was read; it may be half old and half new",
                shown(member)
            ));
        }
        Ok(true)
    }

    /// The next piece of a file; fails if too little has arrived for too long.
    async fn next_data(&mut self, reader: &mut FileReader) -> Result<std::result::Result<Option<Bytes>, SftpError>> {
        let bytes = |piece: &std::result::Result<Option<Bytes>, SftpError>| match piece {
            Ok(Some(data)) => data.len(),
            _ => 0,
        };
        self.pace.wait(&self.context.cancel, bytes, reader.next(&mut self.client)).await
    }

    async fn send_zeros(&mut self, mut count: u64) -> Result<()> {
        while count > 0 {
            if self.context.cancel.is_cancelled() {
                return Err(EngineError::cancelled());
            }
            let now = count.min(PIECE_BYTES as u64);
            self.sink.send(vec![0; usize::try_from(now).unwrap_or(PIECE_BYTES)].into()).await?;
            count -= now;
        }
        Ok(())
    }

    async fn send_header(&mut self, member: &[u8], meta: &Attributes, link: &[u8]) -> Result<()> {
        self.unowned += u64::from(meta.owner.is_none());
        self.undated += u64::from(meta.times.is_none());
        let is_ahead = self.ahead.remove(member);
        let seconds = meta.times.map_or(
            0,
            |(_, changed)| {
                if is_ahead { changed.into() } else { true_seconds(changed, self.now) }
            },
        );
        if seconds < 0 {
            self.odd_times += 1;
            if self.odd_times <= NAMED {
                self.context.log.warn(format!(
                    "{}: its time is before 1970 or after 2038, which SFTP cannot distinguish; assumed to be before 1970",
                    shown(member)
                ));
            }
        }
        self.sink.send(header(member, meta, link, seconds).map_err(EngineError::internal)?.into()).await
    }
}

/// Whether a file of more than one piece changed so shortly before it was opened that another change while it was read
/// may not show in its time: the protocol only has whole seconds.
fn is_too_fresh(meta: &Attributes, opened_at: i64) -> bool {
    // The server's clock may be slightly ahead of ours; a time in the far future is not a recent change.
    const AHEAD: i64 = 300;
    let is_fresh = |changed: u32| (opened_at - 1..=opened_at + AHEAD).contains(&changed.into());
    meta.size.is_some_and(|size| size > PIECE_BYTES as u64) && meta.times.is_some_and(|(_, changed)| is_fresh(changed))
}

/// The protocol has unsigned times of 32 bits, and servers cut off the rest: times before 1970 look like times of the
/// next century. A time after 2038 that is more than a year ahead is taken for one before 1970.
fn true_seconds(told: u32, now: i64) -> i64 {
    const AHEAD: i64 = 366 * 24 * 3600;
    let is_wrapped = told > i32::MAX.cast_unsigned() && i64::from(told) > now.saturating_add(AHEAD);
    if is_wrapped { told.cast_signed().into() } else { told.into() }
}

/// A member's headers.
fn header(member: &[u8], meta: &Attributes, link: &[u8], seconds: i64) -> io::Result<Vec<u8>> {
    let kind = match meta.kind() {
        Some(FileKind::Directory) => MemberKind::Directory,
        Some(FileKind::Symlink) => MemberKind::Symlink,
        _ => MemberKind::File,
    };
    let (uid, gid) = meta.owner.unwrap_or_default();
    let member = Member {
        link: link.to_vec(),
        mode: meta.permissions.unwrap_or(0o644) & 0o7777,
        uid: uid.into(),
        gid: gid.into(),
        modified: Time { seconds, nanos: 0 },
        size: if kind == MemberKind::File { meta.size.unwrap_or(0) } else { 0 },
        ..Member::new(member, kind)
    };
    let mut headers = Vec::new();
    Writer::new(&mut headers).begin(&member)?;
    Ok(headers)
}

#[cfg(test)]
mod tests;
