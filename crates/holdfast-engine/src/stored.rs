//! Reads stored backups for verification, listings, downloads and restores.

use holdfast_core::backup::EntryKind;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use holdfast_core::random;
use holdfast_core::run::FailureCode;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Engine;
use crate::archive::tar::{Expanded, Reader};
use crate::archive::{Archive, Bounded, Entry, Manifest, forward, inspect, plain};
use crate::context::Context;
use crate::destination::{BlobStore, Blocks, ObjectReader, Opened};
use crate::error::{EngineError, Result, classify};
use crate::plan::StoredBackup;

/// The size of one piece of a download.
const PIECE_BYTES: usize = 256 * 1024;

/// A stream of bytes to a client; the last item may be an error. Dropping it ends the reading thread.
pub struct Download {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    _stop: DropGuard,
}

impl Download {
    pub async fn recv(&mut self) -> Option<io::Result<Bytes>> {
        self.pieces.recv().await
    }
}

impl Engine {
    /// Reads the whole backup and checks size and hash of the stored object, the archive or dump inside it to its end,
    /// and the hash of its plain bytes.
    pub async fn verify(&self, backup: &StoredBackup, context: &Context) -> Result<()> {
        let mut whole = self.open_whole(backup, context).await?;
        let (backup, context) = (backup.clone(), context.clone());
        on_thread(move || {
            inspect(backup.content, &mut whole.plain, FailureCode::Corrupt, &mut |_| {
                context.progress.add_file();
                Ok(())
            })?;
            whole.finish(&backup)
        })
        .await
    }

    /// Passes the entries of the backup to the visitor until it breaks. Dropping this future stops the reading.
    pub async fn visit<T: Send + 'static>(
        &self,
        backup: &StoredBackup,
        start: T,
        mut visitor: impl FnMut(&mut T, &Entry) -> ControlFlow<()> + Send + 'static,
    ) -> Result<T> {
        let (stop, _guard) = until_dropped();
        let (reader, turn, backup) = (self.open(backup, &stop).await?, self.turn.clone(), backup.clone());
        on_thread(move || {
            let mut state = start;
            let mut archive = Archive::open_stored(reader, &backup, &turn, &stop)?;
            archive.visit(&mut |entry| Ok(visitor(&mut state, entry).is_continue()))?;
            Ok(state)
        })
        .await
    }

    /// The manifest of a backup; `None` if it has no index.
    pub(crate) async fn manifest(&self, backup: &StoredBackup) -> Result<Option<Manifest>> {
        let (stop, _guard) = until_dropped();
        let (reader, turn, backup) = (self.open(backup, &stop).await?, self.turn.clone(), backup.clone());
        on_thread(move || Archive::open_stored(reader, &backup, &turn, &stop)?.manifest()).await
    }

    /// Downloads the object as it is stored.
    pub async fn download(&self, backup: &StoredBackup) -> Result<(u64, Download)> {
        let (stop, _stop) = until_dropped();
        let (mut reader, backup) = (self.open(backup, &stop).await?, backup.clone());
        let (sender, pieces) = mpsc::channel(4);
        let size = backup.size_bytes;
        tokio::task::spawn_blocking(move || send_checked(&mut reader, &backup.sha256, &sender));
        Ok((size, Download { pieces, _stop }))
    }

    /// Downloads one file of the backup; also returns its entry.
    pub async fn download_entry(&self, backup: &StoredBackup, path: &str) -> Result<(Entry, Download)> {
        let (stop, _stop) = until_dropped();
        let (reader, turn, backup) = (self.open(backup, &stop).await?, self.turn.clone(), backup.clone());
        let path = path.to_owned();
        let (sender, pieces) = mpsc::channel(4);
        let (found, waiting) = tokio::sync::oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let opened = Archive::open_stored(reader, &backup, &turn, &stop);
            let mut archive = match opened {
                Ok(archive) => archive,
                Err(error) => return drop(found.send(Err(error))),
            };
            let (entry, frames) = match find_file(&mut archive, &path) {
                Ok(place) => place,
                Err(error) => return drop(found.send(Err(error))),
            };
            if found.send(Ok(entry.clone())).is_err() {
                return;
            }
            let sent = send_entry(&mut archive, &entry, &frames, &sender);
            if let Err(error) = sent {
                let _gone = sender.blocking_send(Err(error.into()));
            }
        });
        let entry = waiting.await.map_err(EngineError::internal)??;
        Ok((entry, Download { pieces, _stop }))
    }

    /// Downloads a folder of the backup as a tar archive, terminated by an empty piece. If the backup turns out to be
    /// damaged, the download ends with an error instead.
    pub async fn download_folder(&self, backup: &StoredBackup, path: &str) -> Result<Download> {
        let mut selection = self.choose(backup, &[path.to_owned()]).await?;
        let (stop, _stop) = until_dropped();
        let (context, _lines) = Context::new(stop);
        let mut whole = self.open_whole(backup, &context).await?;
        let (sender, pieces) = mpsc::channel(4);
        let backup = backup.clone();
        tokio::task::spawn_blocking(move || {
            let mut out = io::BufWriter::with_capacity(PIECE_BYTES, Piecewise(sender.clone()));
            let forwarded = forward(&mut whole.plain, &mut selection, &mut |_| {}, (&mut out, false));
            // The last piece is held back until everything has been verified.
            let sent = forwarded.and_then(|_| whole.finish(&backup)).and_then(|()| {
                io::Write::flush(&mut out)
                    .map_err(|error| classify(&error, FailureCode::Lost, "The download was interrupted"))
            });
            // Discard what is still buffered.
            drop(out.into_parts());
            // An empty piece marks the end; without it the download is incomplete.
            let last = sent.map(|()| Bytes::new()).map_err(io::Error::from);
            let _gone = sender.blocking_send(last);
        });
        Ok(Download { pieces, _stop })
    }

    /// Opens a reader for the object, after checking that it exists and has the recorded size.
    async fn open(&self, backup: &StoredBackup, stop: &CancellationToken) -> Result<ObjectReader> {
        let Opened { store, .. } = self.settings.destination.open_known(&backup.destination).await?;
        stat(store.as_ref(), backup).await?;
        let reader = ObjectReader::new(store, &backup.key, backup.size_bytes);
        Ok(reader.like(backup.proven.as_ref()).until(stop.clone()))
    }

    /// Opens the whole backup for reading, with progress towards its size. Reports a wrong password.
    pub(crate) async fn open_whole(&self, backup: &StoredBackup, context: &Context) -> Result<Whole> {
        context.progress.set_total(backup.size_bytes, 0);
        let reader = self.open(backup, &context.cancel).await?;
        let (turn, backup, context) = (self.turn.clone(), backup.clone(), context.clone());
        on_thread(move || Whole::open(reader, &backup, &turn, context)).await
    }

    /// Removes the object of a backup; a missing object is not an error.
    pub async fn remove(&self, destination: &crate::DestinationPlan, key: &str) -> Result<()> {
        let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
        store.remove(key).await
    }

    /// Stores a small object, completely or not at all.
    pub async fn put(&self, destination: &crate::DestinationPlan, key: &str, body: Bytes) -> Result<()> {
        let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
        store.put(key, body).await.map(drop)
    }

    /// Returns up to `limit` keys at a destination that start with `prefix`.
    pub async fn list(&self, destination: &crate::DestinationPlan, prefix: &str, limit: usize) -> Result<Vec<String>> {
        let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
        store.list(prefix, limit).await
    }

    /// The size of each of these objects, in the same order: `None` for a missing one, an error for one that could not
    /// be checked. An object counts as missing only if the destination was there before and after it was looked for.
    pub async fn sizes(
        &self,
        destination: &crate::DestinationPlan,
        keys: &[String],
        context: &Context,
    ) -> Result<Vec<Result<Option<u64>>>> {
        let looking = async {
            let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
            let mut sizes = object_sizes(store.as_ref(), keys.iter()).await;
            let missing: Vec<usize> = (0..keys.len()).filter(|at| matches!(sizes[*at], Ok(None))).collect();
            if !missing.is_empty() {
                let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
                let again = object_sizes(store.as_ref(), missing.iter().map(|at| &keys[*at])).await;
                missing.into_iter().zip(again).for_each(|(at, size)| sizes[at] = size);
                self.settings.destination.open_known(destination).await?;
            }
            Ok(sizes)
        };
        tokio::select! {
            () = context.cancel.cancelled() => Err(EngineError::cancelled()),
            sizes = looking => sizes,
        }
    }

    /// Reads a whole object of up to `most` bytes.
    pub async fn get(&self, destination: &crate::DestinationPlan, key: &str, most: u64) -> Result<Bytes> {
        let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
        let missing = || EngineError::new(FailureCode::Missing, format!("{key} is not there."));
        let stat = store.stat(key).await?.ok_or_else(missing)?;
        if stat.size > most {
            return Err(EngineError::corrupt(format!("{key} is larger than expected.")));
        }
        store.read(key, 0..stat.size).await
    }

    /// Removes what an unfinished run may have left: its upload, and an object that was not recorded.
    pub async fn discard(
        &self,
        destination: &crate::DestinationPlan,
        key: &str,
        upload_id: Option<&str>,
    ) -> Result<()> {
        let Opened { store, .. } = self.settings.destination.open_known(destination).await?;
        store.abort(key, upload_id).await?;
        store.remove(key).await
    }
}

async fn object_sizes<'a>(store: &dyn BlobStore, keys: impl Iterator<Item = &'a String>) -> Vec<Result<Option<u64>>> {
    /// The number of concurrent requests.
    const AT_ONCE: usize = 8;
    let mut stats = Vec::new();
    for key in keys {
        stats.push(store.stat(key));
    }
    stream::iter(stats).buffered(AT_ONCE).map(|stat| stat.map(|stat| stat.map(|stat| stat.size))).collect().await
}

/// A token that is cancelled when the guard is dropped, to stop a thread.
fn until_dropped() -> (CancellationToken, DropGuard) {
    let stop = CancellationToken::new();
    (stop.clone(), stop.drop_guard())
}

async fn stat(store: &dyn BlobStore, backup: &StoredBackup) -> Result<()> {
    match store.stat(&backup.key).await? {
        None => Err(EngineError::new(FailureCode::Missing, "The backup is gone from its destination.")),
        Some(stat) if stat.size != backup.size_bytes => Err(EngineError::corrupt(format!(
            "The destination has {} bytes of a backup of {}.",
            stat.size, backup.size_bytes
        ))),
        Some(_) => Ok(()),
    }
}

/// Reads a whole object and checks that its hash is that of the bytes sent.
pub(crate) async fn read_back(
    store: Arc<dyn BlobStore>,
    key: &str,
    size: u64,
    sha256: &str,
    context: &Context,
) -> Result<()> {
    let taken = Arc::new(Mutex::new(Taken::default()));
    let reader = ObjectReader::new(store, key, size).until(context.cancel.clone());
    // These bytes were already counted when they were read from the server.
    let context = Context { progress: Arc::default(), ..context.clone() };
    let mut counting = Counting { reader, taken: taken.clone(), context };
    on_thread(move || {
        io::copy(&mut counting, &mut io::sink())
            .map_err(|error| classify(&error, FailureCode::DestinationFailed, "The backup cannot be read back"))?;
        Ok(())
    })
    .await?;
    if locked(&taken).sha256() != sha256 {
        let message = "The destination has other bytes than it was sent.";
        return Err(EngineError::new(FailureCode::DestinationFailed, message));
    }
    Ok(())
}

/// Hashes of the stored bytes that were read.
#[derive(Default)]
struct Taken {
    hash: Sha256,
    /// Hashes of each block, to check later readings.
    blocks: Option<Blocks>,
}

impl Taken {
    fn sha256(&self) -> String {
        random::hex(&self.hash.clone().finalize())
    }
}

fn locked(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(EngineError::internal)?
}

/// A backup that is read completely, with the hashes of its stored and of its plain bytes.
pub(crate) struct Whole {
    pub plain: Hashing<Box<dyn Read + Send>>,
    stored: Arc<Mutex<Taken>>,
}

impl Whole {
    fn open(
        reader: ObjectReader,
        backup: &StoredBackup,
        turn: &crate::archive::KeyDerivation,
        context: Context,
    ) -> Result<Self> {
        let blocks = backup.proven.as_ref().map(|_| Blocks::default());
        let stored = Arc::new(Mutex::new(Taken { blocks, ..Taken::default() }));
        let stop = context.cancel.clone();
        let counted = Counting { reader, taken: stored.clone(), context };
        let plain = plain(counted, backup.is_encrypted, backup.password.as_ref(), turn, &stop)?;
        let plain: Box<dyn Read + Send> = Box::new(Bounded::new(plain, backup.plain_bytes, stop));
        Ok(Self { plain: Hashing { reader: plain, hash: Sha256::new(), bytes: 0 }, stored })
    }

    /// Reads the rest and compares both hashes with the recorded ones.
    pub(crate) fn finish(mut self, backup: &StoredBackup) -> Result<()> {
        io::copy(&mut self.plain, &mut io::sink())
            .map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))?;
        if locked(&self.stored).sha256() != backup.sha256 {
            return Err(EngineError::corrupt("The stored bytes are not the ones that were written."));
        }
        if random::hex(&self.plain.hash.finalize()) != backup.plain_sha256 {
            return Err(EngineError::corrupt("The content differs from what was backed up."));
        }
        if let (Some(proven), Some(blocks)) = (&backup.proven, locked(&self.stored).blocks.take()) {
            blocks.prove(proven);
        }
        Ok(())
    }
}

pub(crate) struct Hashing<R> {
    reader: R,
    hash: Sha256,
    pub bytes: u64,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Counts and hashes bytes from the destination, and stops when the run is cancelled.
struct Counting {
    reader: ObjectReader,
    taken: Arc<Mutex<Taken>>,
    context: Context,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.context.cancel.is_cancelled() {
            return Err(EngineError::cancelled().into());
        }
        let read = self.reader.read(buffer)?;
        let mut taken = locked(&self.taken);
        taken.hash.update(&buffer[..read]);
        if let Some(blocks) = &mut taken.blocks {
            blocks.update(&buffer[..read]);
        }
        drop(taken);
        self.context.progress.add_read(read as u64);
        Ok(read)
    }
}

/// Finds a file by its path; a hard link is resolved to its file.
fn find_file(archive: &mut Archive<ObjectReader>, path: &str) -> Result<(Entry, Vec<u32>)> {
    let (entry, frames) = archive.find(path)?;
    match entry.kind {
        EntryKind::File => Ok((entry, frames)),
        EntryKind::Hardlink => {
            let link = entry.link.clone().unwrap_or_default();
            let target = link.strip_prefix("./").unwrap_or(&link);
            let (target, frames) = archive.find(target)?;
            if target.kind == EntryKind::File { Ok((target, frames)) } else { Err(no_file()) }
        }
        EntryKind::Directory | EntryKind::Symlink | EntryKind::Other => Err(no_file()),
    }
}

fn no_file() -> EngineError {
    EngineError::new(FailureCode::EntryMissing, "This entry is not a file; only files can be downloaded individually.")
}

fn send_entry(
    archive: &mut Archive<ObjectReader>,
    entry: &Entry,
    frames: &[u32],
    sender: &mpsc::Sender<io::Result<Bytes>>,
) -> Result<()> {
    let damaged = |error: &io::Error| classify(error, FailureCode::Corrupt, "This backup is damaged");
    let stretch = archive.stretch(frames, entry.start, entry.end)?;
    let mut members = Reader::new(stretch);
    let found = members.next().map_err(|error| damaged(&error))?;
    let Some((member, place)) = found else { return Err(EngineError::corrupt("The index points to nothing.")) };
    let found = Entry::of(&member, place);
    if found.path != entry.path || found.kind != entry.kind || found.size != entry.size {
        return Err(EngineError::corrupt("The index points to a different entry."));
    }
    match &member.parts {
        Some(parts) => send_all(&mut Expanded::new(&mut members, parts, member.size), sender),
        None => send_all(&mut members, sender),
    }
    Ok(())
}

/// Sends each write as one piece.
struct Piecewise(mpsc::Sender<io::Result<Bytes>>);

impl io::Write for Piecewise {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone");
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends a whole object. The last piece is held back until the hash of all bytes has been verified; if the object was
/// replaced, the download ends with an error.
fn send_checked(reader: &mut dyn Read, sha256: &str, sender: &mpsc::Sender<io::Result<Bytes>>) {
    let (mut hash, mut held) = (Sha256::new(), None::<Bytes>);
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let item = match reader.read(&mut piece) {
            Ok(0) if random::hex(&hash.clone().finalize()) == sha256 => held.take().map(Ok),
            Ok(0) => Some(Err(EngineError::corrupt("The stored bytes are not the ones that were written.").into())),
            Ok(read) => {
                piece.truncate(read);
                hash.update(&piece);
                let before = held.replace(Bytes::from(piece));
                if before.is_some_and(|before| sender.blocking_send(Ok(before)).is_err()) {
                    return;
                }
                continue;
            }
            Err(error) => Some(Err(error)),
        };
        if let Some(item) = item {
            // If the client is gone, nobody needs this item.
            let _gone = sender.blocking_send(item);
        }
        return;
    }
}

/// Sends pieces until the end, the first error, or until the receiver is gone.
fn send_all(reader: &mut dyn Read, sender: &mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let item = match reader.read(&mut piece) {
            Ok(0) => return,
            Ok(read) => {
                piece.truncate(read);
                Ok(Bytes::from(piece))
            }
            Err(error) => Err(error),
        };
        let is_last = item.is_err();
        if sender.blocking_send(item).is_err() || is_last {
            return;
        }
    }
}
