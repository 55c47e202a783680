//! A client for SFTP version 3 over any byte stream. Paths, names and link targets are bytes, as the server has them;
//! every reply is limited in size and must arrive completely within a time limit.
//!
//! The client has one owner and no background task: the bytes of all requests are transferred while the owner waits for
//! a reply. Requests are queued and may be answered in any order, so that many reads or writes can be in flight at once
//! ([`FileReader`], [`FileWriter`]), and closing a file that was only read requires no waiting.

mod file;
mod folder;
pub mod packet;

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use holdfast_core::backup::name_text;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;
use tokio_util::sync::CancellationToken;

pub use file::{FileReader, FileWriter};
pub use folder::{Folder, FolderLimits};
pub use packet::{Attributes, FileKind, Handle, Name, OpenMode, Space, StatusCode};
use packet::{Expected, Malformed, Packet, Reply, Request};

/// The buffer space reserved for each read.
const READ_BYTES: usize = 64 * 1024;
/// The longest request: a piece of a file with its header, or two long paths.
const MAX_REQUEST_BYTES: usize = 128 * 1024;
/// The maximum number of unanswered requests. A server that leaves more unanswered is not going to reply at all.
const MAX_UNANSWERED: usize = 1024;

/// Why an operation failed. After anything except a status, a missing extension or a limit, the session is over.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SftpError {
    #[error("{}", describe(*.code, .message))]
    Status { code: StatusCode, message: String },
    #[error("SFTP protocol error: the server sent {0}")]
    Protocol(&'static str),
    #[error("no complete reply arrived within {} seconds", .0.as_secs())]
    Stalled(Duration),
    #[error("the run was cancelled")]
    Cancelled,
    #[error("the connection was lost: {0}")]
    Lost(String),
    #[error("the server's SFTP does not offer {0}")]
    NotOffered(&'static str),
    /// One of our own limits was exceeded; the message says which.
    #[error("{0}")]
    Limit(String),
}

impl SftpError {
    pub fn is(&self, code: StatusCode) -> bool {
        matches!(self, Self::Status { code: found, .. } if *found == code)
    }

    /// Whether this error ends the session.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Status { .. } | Self::NotOffered(_) | Self::Limit(_))
    }
}

impl From<Malformed> for SftpError {
    fn from(Malformed(what): Malformed) -> Self {
        Self::Protocol(what)
    }
}

fn describe(code: StatusCode, message: &str) -> String {
    let known = match code {
        StatusCode::NoSuchFile => "No such file",
        StatusCode::PermissionDenied => "Permission denied",
        StatusCode::Unsupported => "Operation unsupported",
        _ if !message.is_empty() => return message.to_owned(),
        StatusCode::Other(number) => return format!("the server refused with code {number}"),
        _ => "the server refused",
    };
    known.to_owned()
}

/// The byte stream that SFTP runs over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The extensions to version 3 that the server offers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extensions {
    pub posix_rename: bool,
    pub hardlink: bool,
    pub fsync: bool,
    pub lsetstat: bool,
    pub statvfs: bool,
}

impl Extensions {
    fn new(offered: &[(Vec<u8>, Vec<u8>)]) -> Self {
        let has_version = |name: &str, wanted: &[u8]| {
            offered.iter().any(|(offer, version)| offer == name.as_bytes() && version == wanted)
        };
        let has = |name: &str| has_version(name, b"1");
        Self {
            posix_rename: has(packet::POSIX_RENAME),
            hardlink: has(packet::HARDLINK),
            fsync: has(packet::FSYNC),
            lsetstat: has(packet::LSETSTAT),
            statvfs: has_version(packet::STATVFS, b"2"),
        }
    }
}

/// A request that was queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RequestId(u32);

#[derive(Debug)]
enum Slot {
    Waiting(Expected),
    /// The reply will be discarded.
    Abandoned,
    Answered(Reply),
}

pub struct Client {
    stream: Box<dyn Stream>,
    reply_limit: Duration,
    cancel: CancellationToken,
    incoming: BytesMut,
    outgoing: BytesMut,
    last_id: u32,
    slots: HashMap<RequestId, Slot>,
    extensions: Extensions,
    /// Why the session is over.
    broken: Option<SftpError>,
}

impl Client {
    /// Opens a session. Each reply must arrive completely within `reply_limit`, counted from the previous reply or from
    /// the start of the wait for it.
    pub async fn start(
        stream: impl Stream + 'static,
        reply_limit: Duration,
        cancel: CancellationToken,
    ) -> Result<Self, SftpError> {
        let mut client = Self {
            stream: Box::new(stream),
            reply_limit,
            cancel,
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            last_id: 0,
            slots: HashMap::new(),
            extensions: Extensions::default(),
            broken: None,
        };
        packet::encode_init(&mut client.outgoing);
        match client.next_packet().await? {
            Packet::Version { version: packet::VERSION, extensions } => {
                client.extensions = Extensions::new(&extensions);
                Ok(client)
            }
            Packet::Version { .. } => Err(SftpError::Protocol("a version that is not 3")),
            Packet::Reply { .. } => Err(SftpError::Protocol("a reply before its version")),
        }
    }

    /// Sets the time limit for further replies.
    pub fn set_reply_limit(&mut self, limit: Duration) {
        self.reply_limit = limit;
    }

    /// How long a reply may take.
    pub fn reply_limit(&self) -> Duration {
        self.reply_limit
    }

    pub fn extensions(&self) -> Extensions {
        self.extensions
    }

    /// The attributes of a path; symbolic links are not followed.
    pub async fn lstat(&mut self, path: &[u8]) -> Result<Attributes, SftpError> {
        self.ask_attributes(&Request::Lstat(path)).await
    }

    /// The attributes of a path; symbolic links are followed.
    pub async fn stat(&mut self, path: &[u8]) -> Result<Attributes, SftpError> {
        self.ask_attributes(&Request::Stat(path)).await
    }

    pub async fn fstat(&mut self, handle: &Handle) -> Result<Attributes, SftpError> {
        self.ask_attributes(&Request::Fstat(handle)).await
    }

    pub async fn setstat(&mut self, path: &[u8], attributes: Attributes) -> Result<(), SftpError> {
        self.ask(&Request::Setstat(path, attributes)).await
    }

    pub async fn fsetstat(&mut self, handle: &Handle, attributes: Attributes) -> Result<(), SftpError> {
        self.ask(&Request::Fsetstat(handle, attributes)).await
    }

    /// Like `setstat`, but changes a symbolic link itself.
    pub async fn lsetstat(&mut self, path: &[u8], attributes: Attributes) -> Result<(), SftpError> {
        offered(self.extensions.lsetstat, packet::LSETSTAT)?;
        self.ask(&Request::Lsetstat(path, attributes)).await
    }

    pub async fn open(&mut self, path: &[u8], mode: OpenMode, attributes: Attributes) -> Result<Handle, SftpError> {
        self.ask_handle(&Request::Open { path, mode, attributes }).await
    }

    /// Closes a file that was written to, and reports whether the server accepted everything.
    pub async fn close(&mut self, handle: &Handle) -> Result<(), SftpError> {
        self.ask(&Request::Close(handle)).await
    }

    /// Closes a file that was only read. The request is sent with the next one, and its reply is not waited for.
    pub fn close_later(&mut self, handle: &Handle) -> Result<(), SftpError> {
        let id = self.queue(&Request::Close(handle))?;
        self.abandon(id);
        Ok(())
    }

    /// Flushes a file's content to the server's disk.
    pub async fn fsync(&mut self, handle: &Handle) -> Result<(), SftpError> {
        offered(self.extensions.fsync, packet::FSYNC)?;
        self.ask(&Request::Fsync(handle)).await
    }

    pub async fn mkdir(&mut self, path: &[u8], attributes: Attributes) -> Result<(), SftpError> {
        self.ask(&Request::Mkdir(path, attributes)).await
    }

    pub async fn rmdir(&mut self, path: &[u8]) -> Result<(), SftpError> {
        self.ask(&Request::Rmdir(path)).await
    }

    /// Removes anything except a folder.
    pub async fn remove(&mut self, path: &[u8]) -> Result<(), SftpError> {
        self.ask(&Request::Remove(path)).await
    }

    /// Renames; fails if the new name already exists.
    pub async fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), SftpError> {
        self.ask(&Request::Rename { from, to }).await
    }

    /// Renames, replacing whatever has the new name.
    pub async fn posix_rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), SftpError> {
        offered(self.extensions.posix_rename, packet::POSIX_RENAME)?;
        self.ask(&Request::PosixRename { from, to }).await
    }

    pub async fn symlink(&mut self, target: &[u8], path: &[u8]) -> Result<(), SftpError> {
        self.ask(&Request::Symlink { target, path }).await
    }

    pub async fn hardlink(&mut self, target: &[u8], path: &[u8]) -> Result<(), SftpError> {
        offered(self.extensions.hardlink, packet::HARDLINK)?;
        self.ask(&Request::Hardlink { target, path }).await
    }

    /// Where a link points to.
    pub async fn readlink(&mut self, path: &[u8]) -> Result<Vec<u8>, SftpError> {
        self.ask_name(&Request::Readlink(path)).await
    }

    /// The absolute path, without links in it.
    pub async fn realpath(&mut self, path: &[u8]) -> Result<Vec<u8>, SftpError> {
        self.ask_name(&Request::Realpath(path)).await
    }

    /// The free space of the file system that a path is on.
    pub async fn space(&mut self, path: &[u8]) -> Result<Space, SftpError> {
        offered(self.extensions.statvfs, packet::STATVFS)?;
        let id = self.queue(&Request::Statvfs(path))?;
        match self.reply(id).await? {
            Reply::Space(space) => Ok(space),
            other => Err(self.refused(other)),
        }
    }

    async fn ask(&mut self, request: &Request<'_>) -> Result<(), SftpError> {
        let id = self.queue(request)?;
        self.status(id).await
    }

    async fn status(&mut self, id: RequestId) -> Result<(), SftpError> {
        match self.reply(id).await? {
            Reply::Status { code: StatusCode::Ok, .. } => Ok(()),
            other => Err(self.refused(other)),
        }
    }

    async fn ask_attributes(&mut self, request: &Request<'_>) -> Result<Attributes, SftpError> {
        let id = self.queue(request)?;
        self.attributes(id).await
    }

    async fn attributes(&mut self, id: RequestId) -> Result<Attributes, SftpError> {
        match self.reply(id).await? {
            Reply::Attributes(attributes) => Ok(attributes),
            other => Err(self.refused(other)),
        }
    }

    async fn ask_handle(&mut self, request: &Request<'_>) -> Result<Handle, SftpError> {
        let id = self.queue(request)?;
        match self.reply(id).await? {
            Reply::Handle(handle) => Ok(handle),
            other => Err(self.refused(other)),
        }
    }

    /// Sends a request whose reply is a single path.
    async fn ask_name(&mut self, request: &Request<'_>) -> Result<Vec<u8>, SftpError> {
        let id = self.queue(request)?;
        match self.reply(id).await? {
            Reply::Names(mut names) if names.len() == 1 && is_path(&names[0].name) => Ok(names.remove(0).name),
            Reply::Names(_) => Err(self.fail(SftpError::Protocol("an invalid path"))),
            other => Err(self.refused(other)),
        }
    }

    /// The next names of a folder; `None` after the last.
    async fn read_page(&mut self, handle: &Handle) -> Result<Option<Vec<Name>>, SftpError> {
        let id = self.queue(&Request::Readdir(handle))?;
        match self.reply(id).await? {
            Reply::Names(names) if names.is_empty() => {
                Err(self.fail(SftpError::Protocol("an empty page of folder entries")))
            }
            Reply::Names(names) => Ok(Some(names)),
            Reply::Status { code: StatusCode::Eof, .. } => Ok(None),
            other => Err(self.refused(other)),
        }
    }

    /// The error for a reply that is not the expected one.
    fn refused(&mut self, reply: Reply) -> SftpError {
        match reply {
            Reply::Status { code, message } if code != StatusCode::Ok => {
                SftpError::Status { code, message: name_text(&message) }
            }
            _ => self.fail(SftpError::Protocol("a reply of the wrong kind")),
        }
    }

    /// Ends the session if the error is final.
    fn fail(&mut self, error: SftpError) -> SftpError {
        if error.is_final() && self.broken.is_none() {
            self.broken = Some(error.clone());
        }
        error
    }

    /// Queues a request, which is sent while waiting for replies.
    fn queue(&mut self, request: &Request<'_>) -> Result<RequestId, SftpError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if self.slots.len() >= MAX_UNANSWERED {
            return Err(self.fail(SftpError::Protocol("too few replies to its requests")));
        }
        let id = loop {
            self.last_id = self.last_id.wrapping_add(1);
            if !self.slots.contains_key(&RequestId(self.last_id)) {
                break RequestId(self.last_id);
            }
        };
        let before = self.outgoing.len();
        request.encode(id.0, &mut self.outgoing);
        if self.outgoing.len() - before > MAX_REQUEST_BYTES {
            self.outgoing.truncate(before);
            return Err(SftpError::Limit("A path is too long for SFTP.".to_owned()));
        }
        self.slots.insert(id, Slot::Waiting(request.expects()));
        Ok(id)
    }

    /// Discards the reply to a request, now or when it arrives.
    fn abandon(&mut self, id: RequestId) {
        match self.slots.remove(&id) {
            Some(Slot::Waiting(_)) => drop(self.slots.insert(id, Slot::Abandoned)),
            Some(Slot::Abandoned | Slot::Answered(_)) | None => {}
        }
    }

    /// Waits for the reply to a request; other replies that arrive before it are kept.
    async fn reply(&mut self, id: RequestId) -> Result<Reply, SftpError> {
        loop {
            match self.slots.remove(&id) {
                Some(Slot::Answered(reply)) => return Ok(reply),
                Some(waiting) => drop(self.slots.insert(id, waiting)),
                None => return Err(SftpError::Protocol("a reply that was already taken")),
            }
            let packet = self.next_packet().await?;
            if let Err(error) = self.sort_in(packet) {
                return Err(self.fail(error));
            }
        }
    }

    /// Stores a reply with the request that it belongs to.
    fn sort_in(&mut self, packet: Packet) -> Result<(), SftpError> {
        let Packet::Reply { id, reply } = packet else { return Err(SftpError::Protocol("its version twice")) };
        let Some(slot) = self.slots.get_mut(&RequestId(id)) else {
            return Err(SftpError::Protocol("a reply to an unknown request"));
        };
        match slot {
            Slot::Waiting(expected) => {
                expected.accept(&reply)?;
                *slot = Slot::Answered(reply);
            }
            Slot::Abandoned => drop(self.slots.remove(&RequestId(id))),
            Slot::Answered(_) => return Err(SftpError::Protocol("two replies to one request")),
        }
        Ok(())
    }

    /// Receives the next complete packet while sending queued requests; limited in time and ended by cancellation.
    async fn next_packet(&mut self) -> Result<Packet, SftpError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let (cancel, limit) = (self.cancel.clone(), self.reply_limit);
        let coming = tokio::time::timeout(limit, poll_fn(|context| self.poll_packet(context)));
        let length = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(SftpError::Cancelled),
            length = coming => length.unwrap_or(Err(SftpError::Stalled(limit))),
        };
        let packet = length.and_then(|length| {
            let packet = packet::decode(&self.incoming[4..length])?;
            self.incoming.advance(length);
            Ok(packet)
        });
        packet.map_err(|error| self.fail(error))
    }

    /// Returns the length of the next packet once it has arrived completely.
    fn poll_packet(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, SftpError>> {
        loop {
            if let Poll::Ready(Err(error)) = self.poll_send(context) {
                return Poll::Ready(Err(error));
            }
            if let Some(length) = packet::packet_length(&self.incoming)?
                && self.incoming.len() >= length
            {
                return Poll::Ready(Ok(length));
            }
            self.incoming.reserve(READ_BYTES);
            let read = ready!(poll_read_buf(Pin::new(&mut self.stream), context, &mut self.incoming));
            match read {
                Ok(0) => return Poll::Ready(Err(SftpError::Lost("the server closed the SFTP session".to_owned()))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(SftpError::Lost(error.to_string()))),
            }
        }
    }

    /// Sends queued bytes, as far as the stream accepts them.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SftpError>> {
        while !self.outgoing.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(context, &self.outgoing)) {
                Ok(0) => return Poll::Ready(Err(SftpError::Lost("the server accepts no more data".to_owned()))),
                Ok(written) => self.outgoing.advance(written),
                Err(error) => return Poll::Ready(Err(SftpError::Lost(error.to_string()))),
            }
        }
        Pin::new(&mut self.stream).poll_flush(context).map_err(|error| SftpError::Lost(error.to_string()))
    }

    /// Sends queued bytes without waiting.
    async fn send_now(&mut self) -> Result<(), SftpError> {
        poll_fn(|context| match self.poll_send(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.fail(error))),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(())),
        })
        .await
    }
}

fn offered(is_offered: bool, name: &'static str) -> Result<(), SftpError> {
    if is_offered { Ok(()) } else { Err(SftpError::NotOffered(name)) }
}

/// Whether this can be a path or the target of a link.
fn is_path(path: &[u8]) -> bool {
    !path.is_empty() && !path.contains(&0)
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
