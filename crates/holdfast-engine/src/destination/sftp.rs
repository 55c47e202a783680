//! A folder on a server, accessed over SFTP. There is one connection, used by one request at a time; if it breaks, the
//! next request opens another one, and an upload continues where its last part ended.
//!
//! A new connection may reach a server that has restarted, and may have lost what it had not flushed, or whose disk is
//! no longer mounted. So every connection checks the folder's marker, and an upload that was not written over a single
//! connection is not proven: it is read back. Requests of an abandoned connection may still arrive later; they cannot
//! do harm, because every attempt writes to a file with a name of its own, and nothing is replaced.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use holdfast_core::backup::{is_object_key, name_text};
use holdfast_core::destination::{DestinationIdentity, SftpDestination};
use holdfast_core::failure::FailureCode;
use holdfast_core::random;
use tokio_util::sync::CancellationToken;

use super::local::{MARKER, unmarked, unmounted};
use super::{
    Accepted, BlobStore, DestinationPlan, DestinationSettings, ListedObject, PartBody, PartLayout, PartPlan, Stat,
};
use crate::egress::Egress;
use crate::error::{EngineError, Result};
use crate::sftp::{
    Attributes, Client, FileKind, FileReader, FileWriter, Folder, FolderLimits, Handle, OpenMode, SftpError, StatusCode,
};
use crate::ssh::{Connection, Credential, SshError, Target, Timeouts};

/// The server confirms each part, so a part must be large enough to be worth a round trip.
const PART_BYTES: u64 = 8 * 1024 * 1024;
/// How often data is flushed, so that the end of an upload does not have to wait for all of it.
const FLUSH_BYTES: u64 = 64 * 1024 * 1024;
/// The most that is read of a marker, which has 32 characters.
const MARKER_BYTES: u64 = 64;
/// The maximum number of names that a listing reads. An installation has far fewer objects at one destination.
const LISTED_NAMES: usize = 4_000_000;
/// If less space than this is free, a failed write is attributed to a full disk.
const LEAST_FREE_BYTES: u64 = 1024 * 1024;

pub struct Sftp {
    target: Target,
    egress: Egress,
    connect_within: Duration,
    /// The time limit for one whole request.
    request_within: Duration,
    /// The time limit for one reply of the server.
    reply_within: Duration,
    root: String,
    can_flush: bool,
    /// The marker that the folder must carry, from the moment that it is known.
    marker: OnceLock<String>,
    /// How many connections were opened.
    connections: AtomicU64,
    /// `None` while not connected. A request that takes the session and is cancelled leaves `None`.
    session: tokio::sync::Mutex<Option<Session>>,
    /// The uploads in progress, by the path of their part file.
    uploads: Mutex<HashMap<String, Progress>>,
    /// The part files that attempts to store an object may have created, by key.
    attempts: Mutex<HashMap<String, Vec<String>>>,
}

/// How far an upload has come.
struct Progress {
    /// The end offset of each part.
    ends: Vec<u64>,
    /// The connection over which the upload began.
    connection: u64,
    /// Whether everything was written over that connection.
    is_continuous: bool,
}

struct Session {
    number: u64,
    client: Client,
    /// The file of the upload that was written to last.
    open_file: Option<(String, Handle)>,
    connection: Connection,
}

impl Sftp {
    /// Connects and opens the folder. If no marker is expected, the folder is created and marked; otherwise it must
    /// carry exactly the expected marker.
    pub async fn open(
        settings: &SftpDestination,
        plan: &DestinationPlan,
        how: &DestinationSettings,
    ) -> Result<(Self, DestinationIdentity)> {
        let mut store = Self::new(settings, plan, how)?;
        let (host_key, can_flush) = how.retry.persist("connect", || store.connect()).await?;
        // Later connections must reach the same server, even before its key is recorded.
        store.target.pinned_host_key = Some(host_key.clone());
        store.can_flush = can_flush;
        let found = how.retry.persist("marker", || store.read_marker()).await?;
        let marker = match (plan.marker.as_deref(), found) {
            (Some(expected), Some(found)) if expected == found => found,
            (Some(_), _) => return Err(unmounted()),
            (None, Some(found)) => found,
            (None, None) => how.retry.persist("mark", || store.mark()).await?,
        };
        let marker = store.marker.get_or_init(|| marker).clone();
        let identity = DestinationIdentity { marker: Some(marker), host_key: Some(host_key) };
        Ok((store, identity))
    }

    /// Reads the marker of a folder that was used before.
    pub async fn find_marker(
        settings: &SftpDestination,
        plan: &DestinationPlan,
        how: &DestinationSettings,
    ) -> Result<String> {
        let store = Self::new(settings, plan, how)?;
        how.retry.persist("marker", || store.read_marker()).await?.ok_or_else(|| unmarked(&settings.to_string()))
    }

    fn new(settings: &SftpDestination, plan: &DestinationPlan, how: &DestinationSettings) -> Result<Self> {
        let credential = match (&plan.secret_key, &plan.owner_key) {
            (Some(password), _) if settings.has_password => Credential::Password(password.clone()),
            (_, Some(key)) if !settings.has_password => Credential::Key(key.clone()),
            _ => return Err(denied("there is neither a password nor an SSH key to sign in with.")),
        };
        Ok(Self {
            target: Target {
                host: settings.host.clone(),
                port: settings.port,
                username: settings.username.clone(),
                credential,
                pinned_host_key: settings.host_key.clone(),
                round_trip: None,
            },
            egress: how.egress(plan),
            connect_within: Timeouts::default().connect.min(how.request_timeout),
            request_within: how.request_timeout,
            reply_within: how.stall.min(how.request_timeout),
            root: settings.path.clone(),
            can_flush: false,
            marker: OnceLock::new(),
            connections: AtomicU64::new(0),
            session: tokio::sync::Mutex::default(),
            uploads: Mutex::default(),
            attempts: Mutex::default(),
        })
    }
}

/// The session, for the duration of one request. It is returned only when the request is complete: an interrupted
/// request leaves replies behind that nobody waits for.
struct Lease<'a> {
    slot: tokio::sync::MutexGuard<'a, Option<Session>>,
    session: Session,
}

impl Lease<'_> {
    fn give_back(mut self) {
        *self.slot = Some(self.session);
    }

    /// Returns the session, unless the result says that it is over.
    fn settle<T>(self, done: Result<T, SftpError>) -> Result<T, SftpError> {
        if !done.as_ref().is_err_and(SftpError::is_final) {
            self.give_back();
        }
        done
    }
}

impl Sftp {
    async fn lease(&self) -> Result<Lease<'_>> {
        let mut slot = self.session.lock().await;
        let session = match slot.take().filter(|session| !session.connection.is_closed()) {
            Some(session) => session,
            None => self.start().await?,
        };
        Ok(Lease { slot, session })
    }

    async fn start(&self) -> Result<Session> {
        let timeouts = Timeouts { connect: self.connect_within, ..Timeouts::default() };
        let connection =
            Connection::open(&self.target, None, timeouts, &self.egress).await.map_err(|error| not_reached(&error))?;
        let channel = connection.sftp_channel().await.map_err(|error| match error {
            SshError::ExecRefused => {
                EngineError::new(FailureCode::DestinationFailed, "The destination's server does not offer SFTP.")
            }
            error => not_reached(&error),
        })?;
        let started = Client::start(channel, self.reply_within, CancellationToken::new()).await;
        let mut client = started.map_err(|error| failed("cannot open SFTP", &error))?;
        self.check_marker(&mut client).await?;
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        Ok(Session { number, client, open_file: None, connection })
    }

    /// Fails if the folder is no longer the one that was opened: its disk may have been unmounted meanwhile.
    async fn check_marker(&self, client: &mut Client) -> Result<()> {
        let Some(expected) = self.marker.get() else { return Ok(()) };
        match marker_of(client, &self.root).await {
            Ok(found) if found.as_ref() == Some(expected) => Ok(()),
            Ok(_) => Err(unmounted()),
            Err(error) => Err(failed("cannot read the folder's marker", &error)),
        }
    }

    /// Returns the fingerprint of the server's host key, and whether the server can flush files.
    async fn connect(&self) -> Result<(String, bool)> {
        self.within(async {
            let lease = self.lease().await?;
            let host_key = lease.session.connection.host_key().to_owned();
            let can_flush = lease.session.client.extensions().fsync;
            lease.give_back();
            Ok((host_key, can_flush))
        })
        .await
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let late = || {
            let message = "The destination's server did not answer in time.";
            Err(EngineError::new(FailureCode::DestinationUnavailable, message))
        };
        tokio::time::timeout(self.request_within, work).await.unwrap_or_else(|_| late())
    }

    fn uploads(&self) -> MutexGuard<'_, HashMap<String, Progress>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new part file for an object.
    fn new_part(&self, key: &str, path: &str) -> String {
        let part = part_path(path, &random::hex(&random::bytes::<8>()));
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.entry(key.to_owned()).or_default().push(part.clone());
        part
    }

    /// Removes what other attempts to store an object left, now that one has succeeded.
    async fn remove_attempts(&self, client: &mut Client, key: &str) -> Result<(), SftpError> {
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        for part in attempts.into_iter().flatten() {
            absent_is_fine(client.remove(part.as_bytes()).await)?;
        }
        Ok(())
    }

    fn path(&self, key: &str) -> Result<String> {
        if is_object_key(key) {
            return Ok(join(&self.root, key));
        }
        Err(EngineError::internal(format!("{key:?} is not an object key")))
    }

    async fn read_marker(&self) -> Result<Option<String>> {
        self.within(async {
            let mut lease = self.lease().await?;
            let read = marker_of(&mut lease.session.client, &self.root).await;
            lease.settle(read).map_err(|error| failed("cannot read the folder's marker", &error))
        })
        .await
    }

    /// Creates and marks the folder, and returns the marker that it has from then on: the first one that any run has
    /// set.
    async fn mark(&self) -> Result<String> {
        let marker = random::hex(&random::bytes::<16>());
        let (path, temporary) = (join(&self.root, MARKER), join(&self.root, &format!("{MARKER}-{marker}")));
        let mark = async {
            let mut lease = self.lease().await?;
            let client = &mut lease.session.client;
            let marked = async {
                make_folders(client, &self.root, None).await?;
                let written = match write_file(client, &temporary, marker.as_bytes()).await {
                    Ok(()) => client.rename(temporary.as_bytes(), path.as_bytes()).await,
                    failed => failed,
                };
                match written {
                    Err(error) if error.is_final() => Err(error),
                    // Another run may have been first.
                    Err(error) => {
                        absent_is_fine(client.remove(temporary.as_bytes()).await)?;
                        if exists(client, &path).await? { Ok(()) } else { Err(error) }
                    }
                    Ok(()) => Ok(()),
                }
            };
            let marked = marked.await;
            Ok(lease.settle(marked))
        };
        if let Err(error) = self.within(mark).await? {
            return Err(self.write_failed("cannot mark the folder", error).await);
        }
        let unmarked = || EngineError::new(FailureCode::DestinationFailed, "Cannot mark the destination's folder.");
        self.read_marker().await?.ok_or_else(unmarked)
    }

    /// Determines why a write failed: SFTP has no status code for a full disk.
    async fn write_failed(&self, doing: &str, error: SftpError) -> EngineError {
        if !error.is(StatusCode::Failure) {
            return failed(doing, &error);
        }
        let space = async {
            let mut lease = self.lease().await?;
            let space = lease.session.client.space(self.root.as_bytes()).await;
            lease.settle(space).map_err(|error| failed("cannot query the free space", &error))
        };
        match self.within(space).await {
            Ok(space) if space.free_bytes < LEAST_FREE_BYTES || space.free_files == Some(0) => {
                EngineError::new(FailureCode::DestinationFull, "The disk of the destination's server is full.")
            }
            Ok(_) | Err(_) => {
                let message = format!("The destination's server: {doing}: {error}. A quota may be used up.");
                EngineError::new(FailureCode::DestinationFailed, message)
            }
        }
    }

    async fn list_below(
        &self,
        client: &mut Client,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<ListedObject>, SftpError> {
        let mut found = Vec::new();
        let mut folders = vec![String::new()];
        let mut looked_at = 0;
        while let Some(folder) = folders.pop() {
            let path = if folder.is_empty() { self.root.clone() } else { join(&self.root, &folder) };
            let mut reading = match Folder::open(client, path.as_bytes(), FolderLimits::default()).await {
                // It has been removed in the meantime.
                Err(error) if error.is(StatusCode::NoSuchFile) && !folder.is_empty() => continue,
                opened => opened?,
            };
            while let Some(page) = reading.next_page(client).await? {
                looked_at += page.len();
                if looked_at > LISTED_NAMES {
                    return Err(SftpError::Limit("The destination holds too many files to list.".to_owned()));
                }
                for name in page {
                    // Names that are not UTF-8 are not keys, so they are not ours; hidden files are unfinished uploads
                    // or markers.
                    let Ok(text) = String::from_utf8(name.name) else { continue };
                    let key = if folder.is_empty() { text.clone() } else { format!("{folder}/{text}") };
                    if text.starts_with('.') || !is_object_key(&key) {
                        continue;
                    }
                    let attributes = match name.attributes.kind() {
                        Some(_) => name.attributes,
                        None => client.lstat(join(&self.root, &key).as_bytes()).await?,
                    };
                    match attributes.kind() {
                        // Enter only folders that can contain matching keys.
                        Some(FileKind::Directory)
                            if prefix.starts_with(&format!("{key}/")) || key.starts_with(prefix) =>
                        {
                            folders.push(key);
                        }
                        Some(FileKind::Regular) if key.starts_with(prefix) => {
                            found.push(ListedObject { key, size: attributes.size });
                        }
                        Some(
                            FileKind::Directory
                            | FileKind::Regular
                            | FileKind::Symlink
                            | FileKind::Socket
                            | FileKind::Special,
                        )
                        | None => {}
                    }
                    if found.len() == limit {
                        reading.close(client)?;
                        return Ok(found);
                    }
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

#[async_trait]
impl BlobStore for Sftp {
    fn part_layout(&self, _expected_bytes: u64) -> PartLayout {
        PartLayout { parts: PartPlan::fixed(PART_BYTES), parallel: 1, has_etags: false }
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Accepted> {
        let path = self.path(key)?;
        let part = self.new_part(key, &path);
        let put = async {
            let mut lease = self.lease().await?;
            let client = &mut lease.session.client;
            let written = async {
                make_folders(client, parent(&path), Some(&self.root)).await?;
                if let Err(error) = write_file(client, &part, &body).await {
                    if !error.is_final() {
                        absent_is_fine(client.remove(part.as_bytes()).await)?;
                    }
                    return Err(error);
                }
                let accepted = match client.rename(part.as_bytes(), path.as_bytes()).await {
                    // The server of this connection need not offer what the first one did.
                    Ok(()) => self.accepted(client.extensions().fsync),
                    Err(error) if error.is_final() => return Err(error),
                    // An earlier attempt may have succeeded without our learning of it.
                    Err(error) if !holds(client, &path, &body).await? => return Err(error),
                    Err(_) => Accepted::Unconfirmed,
                };
                flush_folder(client, parent(&path)).await?;
                self.remove_attempts(client, key).await?;
                Ok(accepted)
            };
            let written = written.await;
            let checked = if written.is_ok() { self.check_marker(client).await } else { Ok(()) };
            let written = lease.settle(written);
            checked.map(|()| written)
        };
        match self.within(put).await? {
            Ok(accepted) => Ok(accepted),
            Err(error) if error.is(StatusCode::NoSuchFile) => Err(unmounted()),
            Err(error) => Err(self.write_failed("cannot write a file", error).await),
        }
    }

    async fn begin(&self, key: &str) -> Result<String> {
        let part = self.new_part(key, &self.path(key)?);
        let begin = async {
            let mut lease = self.lease().await?;
            let connection = lease.session.number;
            let client = &mut lease.session.client;
            let opened = async {
                make_folders(client, parent(&part), Some(&self.root)).await?;
                client.open(part.as_bytes(), OpenMode::CreateNew, private(0o600)).await
            };
            let opened = opened.await;
            if let Ok(handle) = &opened {
                lease.session.open_file = Some((part.clone(), handle.clone()));
            }
            Ok(lease.settle(opened.map(|_| connection)))
        };
        match self.within(begin).await? {
            Ok(connection) => {
                let progress = Progress { ends: Vec::new(), connection, is_continuous: true };
                self.uploads().insert(part.clone(), progress);
                Ok(part)
            }
            Err(error) if error.is(StatusCode::NoSuchFile) => Err(unmounted()),
            Err(error) => Err(self.write_failed("cannot create a file", error).await),
        }
    }

    async fn put_part(&self, _key: &str, upload_id: &str, index: usize, body: PartBody) -> Result<String> {
        let begins = self.uploads().get(upload_id).and_then(|upload| match index {
            0 => Some(0),
            index => upload.ends.get(index - 1).copied(),
        });
        let begins = begins.ok_or_else(|| EngineError::internal("a part of an upload that is not open"))?;
        let ends = begins + body.size_bytes();
        let flushes = self.can_flush && begins / FLUSH_BYTES != ends / FLUSH_BYTES;
        let put = async {
            let mut lease = self.lease().await?;
            let handle = match self.handle(&mut lease.session, upload_id, begins).await {
                Ok(handle) => handle,
                Err(error) => return Ok(lease.settle(Err(error))),
            };
            let client = &mut lease.session.client;
            let written = async {
                let mut writer = FileWriter::at(handle.clone(), begins);
                match body {
                    PartBody::Memory(chunks) => {
                        for chunk in chunks {
                            writer.write(client, &chunk).await?;
                        }
                    }
                    PartBody::File(part) => {
                        let mut offset = 0;
                        let lost = |error: std::io::Error| SftpError::Limit(format!("A part is lost: {error}."));
                        while let Some(piece) = part.piece(offset).map_err(lost)? {
                            offset += piece.len() as u64;
                            writer.write(client, &piece).await?;
                        }
                    }
                }
                writer.finish(client).await?;
                if flushes { client.fsync(&handle).await } else { Ok(()) }
            };
            let written = written.await;
            // After an error, replies to other pieces are still outstanding, so the session is not used again.
            if written.is_ok() {
                lease.give_back();
            }
            Ok(written)
        };
        if let Err(error) = self.within(put).await? {
            return Err(self.write_failed("cannot write", error).await);
        }
        if let Some(upload) = self.uploads().get_mut(upload_id) {
            upload.ends.truncate(index);
            upload.ends.push(ends);
        }
        Ok(String::new())
    }

    async fn complete(&self, key: &str, upload_id: &str, _parts: Vec<String>) -> Result<Accepted> {
        let path = self.path(key)?;
        let expected = self.uploads().get(upload_id).map(|upload| upload.ends.last().copied().unwrap_or(0));
        let expected = expected.ok_or_else(|| EngineError::internal("the end of an upload that is not open"))?;
        let complete = async {
            let mut lease = self.lease().await?;
            let handle = self.handle(&mut lease.session, upload_id, expected).await;
            lease.session.open_file = None;
            let client = &mut lease.session.client;
            let placed = async {
                let handle = handle?;
                if self.can_flush {
                    client.fsync(&handle).await?;
                }
                let attributes = client.fstat(&handle).await?;
                client.close(&handle).await?;
                if attributes.size != Some(expected) {
                    return Err(SftpError::Limit(format!(
                        "the file has {} bytes of {expected}",
                        attributes.size.map_or("an unknown number of".to_owned(), |size| size.to_string())
                    )));
                }
                if exists(client, &path).await? {
                    return Err(SftpError::Limit(format!("{} already exists", name_text(path.as_bytes()))));
                }
                client.rename(upload_id.as_bytes(), path.as_bytes()).await?;
                flush_folder(client, parent(&path)).await?;
                self.remove_attempts(client, key).await
            };
            let placed = placed.await;
            let checked = if placed.is_ok() { self.check_marker(client).await } else { Ok(()) };
            let placed = lease.settle(placed);
            checked.map(|()| placed)
        };
        match self.within(complete).await? {
            Ok(()) => {
                let upload = self.uploads().remove(upload_id);
                Ok(self.accepted(upload.is_some_and(|upload| upload.is_continuous)))
            }
            Err(error) => Err(self.write_failed("cannot put the file in its place", error).await),
        }
    }

    async fn abort(&self, key: &str, upload_id: Option<&str>) -> Result<()> {
        // The part files of this key are removed, whatever the id says: an attempt may have created one without our
        // learning of it.
        let path = self.path(key)?;
        drop(upload_id.map(|id| self.uploads().remove(id)));
        self.within(async {
            let mut lease = self.lease().await?;
            let left = lease.session.open_file.take_if(|(open, _)| is_part_of(&path, open));
            let client = &mut lease.session.client;
            let removed = async {
                if let Some((_, handle)) = left {
                    client.close_later(&handle)?;
                }
                for part in parts_of(client, &path).await? {
                    absent_is_fine(client.remove(part.as_bytes()).await)?;
                }
                Ok(())
            };
            let removed = removed.await;
            lease.settle(removed).map_err(|error| failed("cannot remove a part file", &error))
        })
        .await
    }

    async fn stat(&self, key: &str) -> Result<Option<Stat>> {
        let path = self.path(key)?;
        self.within(async {
            let mut lease = self.lease().await?;
            let found = lease.session.client.lstat(path.as_bytes()).await;
            match lease.settle(found) {
                Ok(found) if found.kind().is_some_and(|kind| kind != FileKind::Regular) => Ok(None),
                Ok(Attributes { size: Some(size), .. }) => Ok(Some(Stat { size, etag: None, is_versioned: false })),
                Ok(_) => Err(failed("cannot stat the file", &SftpError::Protocol("a file without a size"))),
                Err(error) if error.is(StatusCode::NoSuchFile) => Ok(None),
                Err(error) => Err(failed("cannot stat the file", &error)),
            }
        })
        .await
    }

    async fn read(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let path = self.path(key)?;
        let wanted = range.end.saturating_sub(range.start);
        self.within(async {
            let mut lease = self.lease().await?;
            let read = read_range(&mut lease.session.client, &path, range).await;
            match lease.settle(read) {
                Ok(body) if body.len() as u64 == wanted => Ok(body),
                Ok(_) => Err(EngineError::corrupt("The stored file is shorter than it was.")),
                Err(error) => Err(failed("cannot read", &error)),
            }
        })
        .await
    }

    async fn remove(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        self.within(async {
            let mut lease = self.lease().await?;
            let removed = absent_is_fine(lease.session.client.remove(path.as_bytes()).await);
            lease.settle(removed).map_err(|error| failed("cannot remove a file", &error))
        })
        .await
    }

    async fn list_objects(&self, prefix: &str, limit: usize) -> Result<Vec<ListedObject>> {
        self.within(async {
            let mut lease = self.lease().await?;
            let found = self.list_below(&mut lease.session.client, prefix, limit).await;
            lease.settle(found).map_err(|error| failed("cannot list", &error))
        })
        .await
    }
}

impl Sftp {
    fn accepted(&self, is_continuous: bool) -> Accepted {
        if self.can_flush && is_continuous { Accepted::Flushed } else { Accepted::Unconfirmed }
    }

    /// The open file of an upload, of which `sent` bytes were confirmed. It is reopened after a reconnect; what the
    /// server may have lost meanwhile is found by reading the object back.
    async fn handle(&self, session: &mut Session, upload_id: &str, sent: u64) -> Result<Handle, SftpError> {
        if let Some(upload) = self.uploads().get_mut(upload_id) {
            upload.is_continuous &= upload.connection == session.number;
        }
        match &session.open_file {
            Some((open, handle)) if open == upload_id => return Ok(handle.clone()),
            Some((_, other)) => session.client.close_later(other)?,
            None => {}
        }
        let handle = session.client.open(upload_id.as_bytes(), OpenMode::Write, Attributes::default()).await?;
        let size = session.client.fstat(&handle).await?.size;
        if size.is_none_or(|size| size < sent) {
            session.client.close_later(&handle)?;
            return Err(SftpError::Limit("the server has lost a part of the upload that it had confirmed".to_owned()));
        }
        session.open_file = Some((upload_id.to_owned(), handle.clone()));
        Ok(handle)
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.ends_with('/') { format!("{folder}{name}") } else { format!("{folder}/{name}") }
}

fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((parent, _)) => parent,
        None => ".",
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The path of an unfinished upload: a hidden file next to its final name.
fn part_path(path: &str, attempt: &str) -> String {
    join(parent(path), &format!(".{}.{attempt}.part", file_name(path)))
}

/// Whether a path is that of an unfinished upload of the object with the other path.
fn is_part_of(path: &str, part: &str) -> bool {
    let rest = file_name(part).strip_prefix('.').and_then(|rest| rest.strip_prefix(file_name(path)));
    let attempt = rest.and_then(|rest| rest.strip_suffix(".part"));
    // Without an attempt: as named by versions that had one file for all attempts.
    let is_attempt = |attempt: &str| {
        let attempt = attempt.strip_prefix('.');
        attempt.is_some_and(|text| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    parent(path) == parent(part) && attempt.is_some_and(|attempt| attempt.is_empty() || is_attempt(attempt))
}

/// The unfinished uploads of an object.
async fn parts_of(client: &mut Client, path: &str) -> Result<Vec<String>, SftpError> {
    let folder = parent(path);
    let mut reading = match Folder::open(client, folder.as_bytes(), FolderLimits::default()).await {
        Err(error) if error.is(StatusCode::NoSuchFile) => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut found = Vec::new();
    while let Some(page) = reading.next_page(client).await? {
        let names = page.into_iter().filter_map(|name| String::from_utf8(name.name).ok());
        found.extend(names.map(|name| join(folder, &name)).filter(|part| is_part_of(path, part)));
    }
    Ok(found)
}

/// What the marker of a folder says; `None` if it has none.
async fn marker_of(client: &mut Client, root: &str) -> Result<Option<String>, SftpError> {
    match read_range(client, &join(root, MARKER), 0..MARKER_BYTES).await {
        Ok(text) => Ok(Some(String::from_utf8_lossy(&text).trim().to_owned())),
        Err(error) if error.is(StatusCode::NoSuchFile) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the file has exactly this content.
async fn holds(client: &mut Client, path: &str, body: &[u8]) -> Result<bool, SftpError> {
    match client.lstat(path.as_bytes()).await {
        Ok(found) if found.kind() == Some(FileKind::Regular) && found.size == Some(body.len() as u64) => {
            Ok(read_range(client, path, 0..body.len() as u64).await? == body)
        }
        Ok(_) => Ok(false),
        Err(error) if error.is(StatusCode::NoSuchFile) => Ok(false),
        Err(error) => Err(error),
    }
}

fn private(mode: u32) -> Attributes {
    Attributes { permissions: Some(mode), ..Attributes::default() }
}

fn absent_is_fine(done: Result<(), SftpError>) -> Result<(), SftpError> {
    match done {
        Err(error) if error.is(StatusCode::NoSuchFile) => Ok(()),
        done => done,
    }
}

async fn exists(client: &mut Client, path: &str) -> Result<bool, SftpError> {
    match client.lstat(path.as_bytes()).await {
        Ok(_) => Ok(true),
        Err(error) if error.is(StatusCode::NoSuchFile) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates a folder and its missing parents, below `root` if it is given: a root that was there before is never created
/// again.
async fn make_folders(client: &mut Client, folder: &str, root: Option<&str>) -> Result<(), SftpError> {
    let mut missing = Vec::new();
    let mut at = folder;
    while Some(at) != root && !is_folder(client, at).await? {
        missing.push(at);
        at = parent(at);
        if matches!(at, "/" | ".") {
            break;
        }
    }
    for folder in missing.into_iter().rev() {
        match client.mkdir(folder.as_bytes(), private(0o700)).await {
            // Another run may have created it at the same time.
            Err(error) if !error.is_final() && is_folder(client, folder).await? => {}
            made => made?,
        }
    }
    Ok(())
}

async fn is_folder(client: &mut Client, path: &str) -> Result<bool, SftpError> {
    match client.stat(path.as_bytes()).await {
        Ok(found) => Ok(found.kind().is_none_or(|kind| kind == FileKind::Directory)),
        Err(error) if error.is(StatusCode::NoSuchFile) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes a small new file and flushes it if the server can.
async fn write_file(client: &mut Client, path: &str, body: &[u8]) -> Result<(), SftpError> {
    let mut writer = FileWriter::open(client, path.as_bytes(), OpenMode::CreateNew, private(0o600)).await?;
    writer.write(client, body).await?;
    let handle = writer.finish(client).await?;
    if client.extensions().fsync {
        client.fsync(&handle).await?;
    }
    client.close(&handle).await
}

/// Flushes a new name to disk if the server supports it: some servers cannot open folders, in which case nothing can be
/// done.
async fn flush_folder(client: &mut Client, folder: &str) -> Result<(), SftpError> {
    if !client.extensions().fsync {
        return Ok(());
    }
    let flushed = match client.open(folder.as_bytes(), OpenMode::Read, Attributes::default()).await {
        Ok(handle) => {
            let flushed = client.fsync(&handle).await;
            client.close_later(&handle)?;
            flushed
        }
        Err(error) => Err(error),
    };
    match flushed {
        Err(error) if error.is_final() => Err(error),
        Err(error) => {
            tracing::debug!(folder, %error, "the server does not flush folders");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Reads the bytes of a range, or fewer at the end of the file.
async fn read_range(client: &mut Client, path: &str, range: Range<u64>) -> Result<Bytes, SftpError> {
    let mut reader = FileReader::open_range(client, path.as_bytes(), range).await?;
    let mut body = BytesMut::new();
    while let Some(piece) = reader.next(client).await? {
        body.extend_from_slice(&piece);
    }
    reader.finish(client).await?;
    Ok(body.freeze())
}

fn denied(why: &str) -> EngineError {
    EngineError::new(FailureCode::DestinationDenied, format!("The destination's server: {why}"))
}

/// The error for a failure to connect.
fn not_reached(error: &SshError) -> EngineError {
    let code = match error {
        SshError::Auth("key") => {
            return denied("it refused your SSH key. Install the key there for this user, or set a password.");
        }
        SshError::Auth(_) => return denied("it refused the user or the password."),
        SshError::HostKeyChanged { .. } => FailureCode::DestinationKeyChanged,
        SshError::Forbidden(_) => FailureCode::ForbiddenAddress,
        SshError::Connect(_) | SshError::Unreachable | SshError::Dns(_) | SshError::Timeout | SshError::Lost(_) => {
            FailureCode::DestinationUnavailable
        }
        SshError::Protocol(_) | SshError::ExecRefused => FailureCode::DestinationFailed,
    };
    EngineError::new(code, format!("The destination's server: {error}."))
}

fn failed(doing: &str, error: &SftpError) -> EngineError {
    let code = match error {
        SftpError::Status { code: StatusCode::NoSuchFile, .. } => FailureCode::Missing,
        SftpError::Status { code: StatusCode::PermissionDenied, .. } => FailureCode::DestinationReadOnly,
        SftpError::Stalled(_) => FailureCode::Stalled,
        SftpError::Lost(_) => FailureCode::DestinationUnavailable,
        SftpError::Cancelled => return EngineError::cancelled(),
        SftpError::Status { .. } | SftpError::Protocol(_) | SftpError::NotOffered(_) | SftpError::Limit(_) => {
            FailureCode::DestinationFailed
        }
    };
    EngineError::new(code, format!("The destination's server: {doing}: {error}."))
}
