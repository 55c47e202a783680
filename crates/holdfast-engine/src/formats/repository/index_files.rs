//! Loads the index of a repository from its files, and replaces files of it.

use std::collections::{HashMap, HashSet};

use futures_util::stream::{self, StreamExt as _};
use holdfast_core::failure::FailureCode;
use holdfast_repository::{Id, IndexFile, IndexedPack, MasterIndex, PackedBlob, RepositoryError, SEAL_BYTES, unseal};
use tokio::sync::Semaphore;

use super::locks::HeldLock;
use super::opening::Repository;
use super::place::{FileKind, of_repository};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::file_cache::CopyKind;
use crate::thread::on_thread;

/// How many files are read at the same time.
const AT_ONCE: u32 = 8;
/// A file that is longer than this is read alone, so that what is read at the same time takes some 200 MiB at most. The
/// usual ones have less than three.
const LONG_BYTES: u64 = 4 * 1024 * 1024;
/// What a blob takes in a pack at least: its seal, and its entry in the header.
const LEAST_BLOB_BYTES: u64 = SEAL_BYTES as u64 + 37;
/// How often the index is read if the repository changes meanwhile.
const READINGS: usize = 5;

/// What a file of the index lists, or why it cannot be read.
type ReadIndex = std::result::Result<IndexFile, RepositoryError>;

/// The index of a repository, and what is wrong with it.
pub(super) struct LoadedIndex {
    pub index: MasterIndex,
    /// The packs that each index file lists.
    pub files: HashMap<Id, Vec<Id>>,
    /// Packs that the index lists and the destination does not have, or not to their ends. They are left out of the index,
    /// so that what they should contain is stored again by the next backup that needs it.
    pub missing: HashSet<Id>,
    /// Packs that no readable index lists: those of runs that have not ended, or were lost.
    pub unlisted: Vec<Id>,
    /// Index files that cannot be read any more.
    pub damaged: Vec<Id>,
}

impl LoadedIndex {
    /// The first damaged index file is an error, where nothing may be missing from the index.
    pub(super) fn confirm_whole(&self) -> Result<()> {
        match self.damaged.first() {
            None => Ok(()),
            Some(id) => Err(EngineError::corrupt(format!(
                "Index {id} of this repository is damaged. A check of the repository builds it again from the packs."
            ))),
        }
    }
}

/// Whether a pack is at the destination, with all blobs that an index lists.
fn is_there(pack: &IndexedPack, there: &HashMap<Id, Option<u64>>) -> bool {
    let end = pack.blobs.iter().map(|blob| u64::from(blob.offset) + u64::from(blob.length)).max().unwrap_or(0);
    there.get(&pack.id).is_some_and(|size| size.is_none_or(|size| size >= end))
}

impl Repository {
    pub(super) async fn load_index(&self) -> Result<LoadedIndex> {
        // What is stored while the index is read is unlisted, and not missing: then it is read once more.
        for _ in 0..READINGS {
            let (loaded, has_new) = self.load_index_once().await?;
            if !has_new {
                return Ok(loaded);
            }
        }
        let message = "The repository changes faster than its index can be read.";
        Err(EngineError::new(FailureCode::DestinationFailed, message))
    }

    /// Also returns whether a pack has appeared that the index lists and that was missing before.
    async fn load_index_once(&self) -> Result<(LoadedIndex, bool)> {
        let before = self.place.list_sizes(FileKind::Pack).await?;
        let before: HashMap<Id, Option<u64>> = before.into_iter().collect();
        // Each blob takes as much in the pack, and several indexes may list it.
        let stored: Option<u64> = before.values().copied().sum();
        let most_blobs =
            stored.map_or(usize::MAX, |bytes| usize::try_from(bytes / LEAST_BLOB_BYTES * 4).unwrap_or(usize::MAX));
        let names = self.place.list(FileKind::Index).await?;
        let (mut index, mut files, mut damaged) = (MasterIndex::default(), HashMap::new(), Vec::new());
        let (mut missing, turns) = (HashSet::new(), Semaphore::new(AT_ONCE as usize));
        let mut reading = stream::iter(names.clone())
            .map(|name| {
                let turns = &turns;
                async move { self.read_index(&name, turns).await.map(|file| (name, file)) }
            })
            .buffer_unordered(AT_ONCE as usize);
        while let Some(read) = reading.next().await {
            let (name, file) = read?;
            // Gone since it was listed.
            let Some(file) = file else { continue };
            let Ok(mut file) = file else {
                damaged.push(name);
                continue;
            };
            let packs = file.packs.iter().map(|pack| pack.id).collect();
            let gone = file.packs.extract_if(.., |pack| !is_there(pack, &before));
            missing.extend(gone.map(|pack| pack.id));
            if index.loaded() > most_blobs {
                let message = "The index of this repository lists more than its packs can contain.";
                return Err(EngineError::corrupt(message));
            }
            match index.load(&file) {
                Ok(()) => drop(files.insert(name, packs)),
                Err(_) => damaged.push(name),
            }
        }
        drop(reading);
        let has_new = match missing.is_empty() {
            true => false,
            false => self.place.list(FileKind::Pack).await?.iter().any(|pack| {
                // One that is too short does not become longer.
                missing.contains(pack) && !before.contains_key(pack)
            }),
        };
        let cache = self.cache.clone();
        let loaded = on_thread(move || {
            index.sort().map_err(of_repository)?;
            let listed: HashSet<Id> = index.packs().chain(missing.iter().copied()).collect();
            let there: HashSet<Id> = before.into_keys().collect();
            let mut unlisted: Vec<Id> = there.difference(&listed).copied().collect();
            unlisted.sort();
            damaged.sort();
            if let Some(cache) = cache {
                cache.retain(CopyKind::Index, &names.into_iter().collect());
                cache.retain(CopyKind::Pack, &there.difference(&missing).copied().collect());
            }
            Ok(LoadedIndex { index, files, missing, unlisted, damaged })
        });
        Ok((loaded.await?, has_new))
    }

    /// Reads a file of the index, of which the local copy is as good; `None` if it is not there.
    async fn read_index(&self, name: &Id, turns: &Semaphore) -> Result<Option<ReadIndex>> {
        let turn = turns.acquire().await.map_err(EngineError::internal)?;
        if let Some(cache) = self.cache.clone() {
            let copied = *name;
            if let Some(copy) = on_thread(move || Ok(cache.read(CopyKind::Index, &copied))).await?
                && let Ok(file) = self.open_index(*name, copy).await?
            {
                return Ok(Some(Ok(file)));
            }
        }
        let Some(size) = self.place.size(FileKind::Index, name).await? else { return Ok(None) };
        drop(turn);
        let _turns =
            turns.acquire_many(if size > LONG_BYTES { AT_ONCE } else { 1 }).await.map_err(EngineError::internal)?;
        let sealed = match self.place.read_sized(FileKind::Index, name, size).await {
            // Too long to be one.
            Err(error) if error.code == FailureCode::Corrupt => {
                return Ok(Some(Err(RepositoryError::Damaged(error.message))));
            }
            read => read?,
        };
        let Some(sealed) = sealed else { return Ok(None) };
        self.keep_copy(CopyKind::Index, *name, sealed.clone()).await?;
        self.open_index(*name, sealed).await.map(Some)
    }

    async fn open_index(&self, name: Id, mut sealed: Vec<u8>) -> Result<ReadIndex> {
        let key = self.key.clone();
        on_thread(move || Ok(unseal(&mut sealed, Some(name), &key).and_then(|json| IndexFile::from_json(&json)))).await
    }

    /// Keeps a local copy of a file, if there are any.
    pub(super) async fn keep_copy(
        &self,
        kind: CopyKind,
        id: Id,
        bytes: impl AsRef<[u8]> + Send + 'static,
    ) -> Result<()> {
        let Some(cache) = self.cache.clone() else { return Ok(()) };
        on_thread(move || {
            cache.keep(kind, &id, bytes.as_ref());
            Ok(())
        })
        .await
    }

    /// Stores the index of what was written again and of what stays in those of the index `files` that list packs that are
    /// `gone`, and then removes these, and those that are `damaged`. Others stay as they are.
    pub(super) async fn replace_indexes(
        &self,
        files: &mut HashMap<Id, Vec<Id>>,
        (gone, damaged): (&HashSet<Id>, &[Id]),
        mut index: IndexFile,
        (lock, context): (&HeldLock, &Context),
    ) -> Result<()> {
        let mut old = damaged.to_vec();
        old.extend(
            files.iter().filter(|(_, packs)| packs.iter().any(|pack| gone.contains(pack))).map(|(name, _)| *name),
        );
        let mut new = HashMap::new();
        let turns = Semaphore::new(AT_ONCE as usize);
        for name in &old[damaged.len()..] {
            let Some(file) = self.read_index(name, &turns).await? else { continue };
            for pack in file.map_err(of_repository)?.packs.into_iter().filter(|pack| !gone.contains(&pack.id)) {
                let blobs: Vec<PackedBlob> = pack.blobs.iter().map(PackedBlob::from).collect();
                if let Some(full) = index.add(pack.id, &blobs) {
                    self.write_index(&full, &mut new).await?;
                }
            }
        }
        if !index.packs.is_empty() {
            self.write_index(&index, &mut new).await?;
        }
        // If nothing has changed, the new one is the old one.
        for name in old.into_iter().filter(|name| !new.contains_key(name)) {
            if context.cancel.is_cancelled() {
                return Err(EngineError::cancelled());
            }
            lock.confirm().await?;
            self.place.remove(FileKind::Index, &name).await?;
            files.remove(&name);
        }
        files.extend(new);
        Ok(())
    }

    async fn write_index(&self, file: &IndexFile, written: &mut HashMap<Id, Vec<Id>>) -> Result<()> {
        let name = self.place.write_json(FileKind::Index, file, &self.key).await?;
        written.insert(name, file.packs.iter().map(|pack| pack.id).collect());
        Ok(())
    }
}
