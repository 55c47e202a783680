//! Reads blobs. Packs are read in windows, of which the last ones are kept: what is needed next is mostly close to what
//! was read last. Folders are read from local copies of their packs, where the repository has them. Everything here blocks.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use holdfast_core::failure::FailureCode;
use holdfast_repository::{BlobKind, Id, Location, MasterIndex};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::opening::Repository;
use super::place::{FileKind, of_repository};
use crate::error::{EngineError, Result};
use crate::file_cache::{CopyKind, MOST_FILE_BYTES};

/// How much is read at a time: a few hundred files of a usual folder, or half of an average chunk.
const WINDOW_BYTES: u64 = 512 * 1024;
/// How many windows are kept, and how many copies of packs open.
const KEPT: usize = 32;
/// How many windows are read ahead while a pack is read from its beginning towards its end.
const AHEAD: u64 = 4;

type WindowKey = (Id, u64);

/// The index of a repository, which grows while a backup is written.
pub(super) type SharedIndex = Arc<RwLock<MasterIndex>>;

pub(super) struct BlobReader {
    repository: Repository,
    index: SharedIndex,
    runtime: Handle,
    stop: CancellationToken,
    /// The most recently used ones come last.
    windows: VecDeque<(WindowKey, Window)>,
    last: Option<WindowKey>,
    /// Local copies of packs with folders; `None` of what cannot be copied.
    copies: VecDeque<(Id, Option<File>)>,
}

enum Window {
    Coming(AbortOnDropHandle<Result<Bytes>>),
    There(Bytes),
}

impl BlobReader {
    /// Must be called within a runtime, which then reads the packs.
    pub(super) fn new(repository: Repository, index: SharedIndex, stop: CancellationToken) -> Self {
        let (runtime, windows) = (Handle::current(), VecDeque::new());
        Self { repository, index, runtime, stop, windows, last: None, copies: VecDeque::new() }
    }

    /// Reads a blob, and checks that its content is the recorded one.
    pub(super) fn read(&mut self, kind: BlobKind, id: &Id) -> Result<Vec<u8>> {
        let locations: Vec<Location> = self.index().locations(kind, id).collect();
        let mut failure = EngineError::corrupt(format!("The repository has no blob {id}, which this backup needs."));
        for location in locations {
            match self.read_at(&location) {
                // Another pack may have it as well.
                Err(error) if error.code == FailureCode::Corrupt => failure = error,
                read => return read,
            }
        }
        Err(failure)
    }

    /// Notes that a blob cannot be read, so that a backup that needs it stores it again.
    pub(super) fn note_lost(&self, kind: BlobKind, id: &Id) {
        self.index.write().unwrap_or_else(PoisonError::into_inner).note_lost(kind, id);
    }

    fn read_at(&mut self, location: &Location) -> Result<Vec<u8>> {
        location.blob.confirm_length().map_err(|error| in_pack(location, &of_repository(error)))?;
        if location.blob.kind == BlobKind::Tree
            && let Some(blob) = self.read_copy(location)?
        {
            return Ok(blob);
        }
        let start = u64::from(location.blob.offset);
        let mut stored = self.range(location, start..start + u64::from(location.blob.length))?;
        location.blob.open(&mut stored, &self.repository.key).map_err(|error| in_pack(location, &of_repository(error)))
    }

    /// Reads a blob from the local copy of its pack, which is fetched as a whole if there is none. `None` if that cannot
    /// be had.
    fn read_copy(&mut self, location: &Location) -> Result<Option<Vec<u8>>> {
        let Some(cache) = self.repository.cache.clone() else { return Ok(None) };
        let pack = location.pack;
        if self.copies.iter().all(|(known, _)| *known != pack) {
            let mut copy = cache.open(CopyKind::Pack, &pack);
            if copy.is_none() {
                copy = self.fetch_pack(&pack)?.and_then(|bytes| {
                    cache.keep(CopyKind::Pack, &pack, &bytes);
                    cache.open(CopyKind::Pack, &pack)
                });
            }
            self.copies.push_back((pack, copy));
            if self.copies.len() > KEPT {
                self.copies.pop_front();
            }
        }
        let Some((_, Some(copy))) = self.copies.iter().find(|(known, _)| *known == pack) else { return Ok(None) };
        let mut stored = vec![0; location.blob.length as usize];
        let read = copy.read_exact_at(&mut stored, u64::from(location.blob.offset)).is_ok();
        let blob = if read { location.blob.open(&mut stored, &self.repository.key).ok() } else { None };
        if blob.is_none() {
            // The copy is damaged, and is not read again.
            cache.drop_copy(CopyKind::Pack, &pack);
            self.copies.retain(|(known, _)| *known != pack);
            self.copies.push_back((pack, None));
        }
        Ok(blob)
    }

    /// A whole pack; `None` if it is too long to keep, damaged or gone. What reads a part of it says what is wrong.
    fn fetch_pack(&self, pack: &Id) -> Result<Option<Vec<u8>>> {
        if self.index().blob_bytes(pack) > MOST_FILE_BYTES {
            return Ok(None);
        }
        let (place, pack, stop) = (self.repository.place.clone(), *pack, self.stop.clone());
        let read = self.runtime.block_on(async move {
            tokio::select! {
                read = place.read(FileKind::Pack, &pack) => read,
                () = stop.cancelled() => Err(EngineError::cancelled()),
            }
        });
        match read {
            Err(error) if error.code == FailureCode::Corrupt => Ok(None),
            read => Ok(read?.filter(|bytes| Id::of(bytes) == pack)),
        }
    }

    pub(super) fn has(&self, kind: BlobKind, id: &Id) -> bool {
        self.index().contains(kind, id)
    }

    fn index(&self) -> RwLockReadGuard<'_, MasterIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn range(&mut self, location: &Location, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(usize::try_from(range.end - range.start).unwrap_or_default());
        let mut at = range.start;
        while at < range.end {
            let number = at / WINDOW_BYTES;
            let start = number * WINDOW_BYTES;
            let window = self.window((location.pack, number))?;
            let part = (at - start)..(range.end - start).min(WINDOW_BYTES);
            let part =
                usize::try_from(part.start).unwrap_or(usize::MAX)..usize::try_from(part.end).unwrap_or(usize::MAX);
            let part = window
                .get(part)
                .ok_or_else(|| in_pack(location, &EngineError::corrupt("It is shorter than was recorded.")))?;
            bytes.extend_from_slice(part);
            at += part.len() as u64;
        }
        Ok(bytes)
    }

    fn window(&mut self, key: WindowKey) -> Result<Bytes> {
        if self.stop.is_cancelled() {
            return Err(EngineError::cancelled());
        }
        let is_ahead =
            self.last.is_some_and(|(pack, number)| pack == key.0 && (number + 1 == key.1 || number == key.1));
        self.last = Some(key);
        let found = self.windows.iter().position(|(known, _)| *known == key);
        let window = match found.and_then(|index| self.windows.remove(index)) {
            Some((_, window)) => window,
            None => self.fetch(key),
        };
        if is_ahead {
            let end = self.index().blob_bytes(&key.0).div_ceil(WINDOW_BYTES);
            for number in key.1 + 1..(key.1 + AHEAD + 1).min(end) {
                let next = (key.0, number);
                if self.windows.iter().all(|(known, _)| *known != next) {
                    let window = self.fetch(next);
                    self.keep(next, window);
                }
            }
        }
        let bytes = match window {
            Window::There(bytes) => bytes,
            Window::Coming(coming) => {
                let stop = self.stop.clone();
                self.runtime.block_on(async move {
                    tokio::select! {
                        bytes = coming => bytes.map_err(EngineError::internal)?,
                        () = stop.cancelled() => Err(EngineError::cancelled()),
                    }
                })?
            }
        };
        self.keep(key, Window::There(bytes.clone()));
        Ok(bytes)
    }

    fn fetch(&self, (pack, number): WindowKey) -> Window {
        let place = self.repository.place.clone();
        let end = self.index().blob_bytes(&pack).min((number + 1) * WINDOW_BYTES);
        let range = number * WINDOW_BYTES..end;
        Window::Coming(AbortOnDropHandle::new(self.runtime.spawn(async move {
            place.read_range(&pack, range).await.map_err(|error| match error.code {
                FailureCode::Missing => EngineError::corrupt(format!("Pack {pack} is gone from the destination.")),
                _ => error,
            })
        })))
    }

    fn keep(&mut self, key: WindowKey, window: Window) {
        self.windows.push_back((key, window));
        if self.windows.len() > KEPT {
            self.windows.pop_front();
        }
    }
}

fn in_pack(location: &Location, error: &EngineError) -> EngineError {
    error.reworded(format!("Pack {} of the repository is damaged. {}", location.pack, error.message))
}
