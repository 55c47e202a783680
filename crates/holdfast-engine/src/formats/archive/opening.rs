//! Reads stored archives and checks the bytes of their objects.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_core::backup::EntryKind;
use holdfast_core::failure::FailureCode;

use crate::archive::tar::{Expanded, Reader};
use crate::archive::{Archive, Bounded, Entry, KeyDerivation, Manifest, plain};
use crate::context::Context;
use crate::destination::{BlobStore, Blocks, ObjectReader};
use crate::error::{EngineError, Result, classify};
use crate::format::{PlainReader, StoredEntries};
use crate::plan::StoredBackup;
use crate::sha256::Sha256;
use crate::thread::on_thread;

/// Checks that the object exists and has the recorded size.
pub(super) async fn stat(store: &dyn BlobStore, backup: &StoredBackup) -> Result<()> {
    match store.stat(&backup.locator).await? {
        None => Err(EngineError::new(FailureCode::Missing, "The backup is gone from its destination.")),
        Some(stat) if stat.size != backup.size_bytes => Err(EngineError::corrupt(format!(
            "The destination has {} bytes; the backup has {}.",
            stat.size, backup.size_bytes
        ))),
        Some(_) => Ok(()),
    }
}

pub(super) fn plain_reader(
    reader: ObjectReader,
    backup: &StoredBackup,
    key_derivation: &KeyDerivation,
    context: Context,
) -> Result<PlainReader> {
    let blocks = backup.proven.as_ref().map(|_| Blocks::default());
    let stored = Arc::new(Mutex::new(StoredHashes { blocks, ..StoredHashes::default() }));
    let stop = context.cancel.clone();
    let counted = Counting { reader, stored: stored.clone(), context };
    let plain = plain(counted, backup.is_encrypted, backup.password.as_ref(), key_derivation, &stop)?;
    let recorded = backup.sha256.clone();
    let confirm = move || {
        let mut stored = locked(&stored);
        if stored.sha256() != recorded {
            return Err(EngineError::corrupt("The stored bytes are not the ones that were written."));
        }
        Ok(stored.blocks.take())
    };
    Ok(PlainReader::new(Box::new(Bounded::new(plain, backup.plain_bytes, stop)), Box::new(confirm)))
}

/// Reads a whole object and checks that its hash is that of the bytes sent.
pub(super) async fn read_back(
    store: Arc<dyn BlobStore>,
    key: &str,
    size: u64,
    sha256: &str,
    context: &Context,
) -> Result<()> {
    let stored = Arc::new(Mutex::new(StoredHashes::default()));
    let reader = ObjectReader::new(store, key, size).until(context.cancel.clone());
    // These bytes were already counted when they were read from the server.
    let context = Context { progress: Arc::default(), ..context.clone() };
    let mut counting = Counting { reader, stored: stored.clone(), context };
    on_thread(move || {
        io::copy(&mut counting, &mut io::sink())
            .map_err(|error| classify(&error, FailureCode::DestinationFailed, "The backup cannot be read back"))?;
        Ok(())
    })
    .await?;
    if locked(&stored).sha256() != sha256 {
        let message = "The bytes at the destination differ from those that were sent.";
        return Err(EngineError::new(FailureCode::DestinationFailed, message));
    }
    Ok(())
}

/// Hashes of the stored bytes that were read.
#[derive(Default)]
struct StoredHashes {
    hash: Sha256,
    /// Hashes of each block, to check later readings.
    blocks: Option<Blocks>,
}

impl StoredHashes {
    fn sha256(&self) -> String {
        self.hash.hex()
    }
}

fn locked(stored: &Mutex<StoredHashes>) -> MutexGuard<'_, StoredHashes> {
    stored.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts and hashes bytes from the destination, and stops when the run is cancelled.
struct Counting {
    reader: ObjectReader,
    stored: Arc<Mutex<StoredHashes>>,
    context: Context,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.context.cancel.is_cancelled() {
            return Err(EngineError::cancelled().into());
        }
        let read = self.reader.read(buffer)?;
        let mut stored = locked(&self.stored);
        stored.hash.update(&buffer[..read]);
        if let Some(blocks) = &mut stored.blocks {
            blocks.update(&buffer[..read]);
        }
        drop(stored);
        self.context.progress.add_read(read as u64);
        Ok(read)
    }
}

impl StoredEntries for Archive<ObjectReader> {
    fn manifest(&mut self) -> Result<Option<Manifest>> {
        self.manifest()
    }

    fn visit(&mut self, visitor: &mut dyn FnMut(&Entry) -> Result<bool>) -> Result<()> {
        self.visit(visitor)
    }

    fn open_file(&mut self, path: &str) -> Result<(Entry, Box<dyn Read + '_>)> {
        let (entry, frames) = find_file(self, path)?;
        let stretch = self.stretch(&frames, entry.start, entry.end)?;
        let mut members = Reader::new(stretch);
        let found = members.next().map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))?;
        let Some((member, place)) = found else { return Err(EngineError::corrupt("The index points to nothing.")) };
        let found = Entry::of(&member, place);
        if found.path != entry.path || found.kind != entry.kind || found.size != entry.size {
            return Err(EngineError::corrupt("The index points to a different entry."));
        }
        let content: Box<dyn Read + '_> = match member.parts {
            Some(parts) => Box::new(Expanded::new(members, parts, member.size)),
            None => Box::new(members),
        };
        Ok((entry, content))
    }
}

/// Finds a file by its path, and the frames of the archive; a hard link is resolved to its file.
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
