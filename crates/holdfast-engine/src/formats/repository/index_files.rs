//! Loads the index of a repository from its files, and replaces files of it.

use std::collections::{HashMap, HashSet};

use futures_util::stream::{self, StreamExt as _};
use holdfast_core::failure::FailureCode;
use holdfast_repository::{Id, IndexFile, MasterIndex, PackedBlob, RepositoryError, unseal};
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

/// What a file of the index lists, or why it cannot be read.
type ReadIndex = std::result::Result<IndexFile, RepositoryError>;

/// The index of a repository, and what is wrong with it.
pub(super) struct LoadedIndex {
    pub index: MasterIndex,
    /// The packs that each index file lists.
    pub files: HashMap<Id, Vec<Id>>,
    /// Packs that the index lists and the destination does not have. They are left out of the index, so that what they
    /// should contain is stored again by the next backup that needs it.
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

impl Repository {
    pub(super) async fn load_index(&self) -> Result<LoadedIndex> {
        let names = self.place.list(FileKind::Index).await?;
        let (mut index, mut files, mut damaged) = (MasterIndex::default(), HashMap::new(), Vec::new());
        let turns = Semaphore::new(AT_ONCE as usize);
        let mut reading = stream::iter(names.clone())
            .map(|name| {
                let turns = &turns;
                async move { self.read_index(&name, turns).await.map(|file| (name, file)) }
            })
            .buffer_unordered(AT_ONCE as usize);
        while let Some(read) = reading.next().await {
            let (name, file) = read?;
            match file {
                // Gone since it was listed.
                None => {}
                Some(Err(_)) => damaged.push(name),
                Some(Ok(file)) => {
                    index.load(&file).map_err(of_repository)?;
                    files.insert(name, file.packs.iter().map(|pack| pack.id).collect());
                }
            }
        }
        drop(reading);
        // The packs are listed last: what is stored meanwhile is unlisted, and not missing.
        let there: HashSet<Id> = self.place.list(FileKind::Pack).await?.into_iter().collect();
        let cache = self.cache.clone();
        on_thread(move || {
            let listed: HashSet<Id> = index.packs().collect();
            let missing: HashSet<Id> = listed.difference(&there).copied().collect();
            index.sort().map_err(of_repository)?;
            index.forget(&missing).map_err(of_repository)?;
            let mut unlisted: Vec<Id> = there.difference(&listed).copied().collect();
            unlisted.sort();
            damaged.sort();
            if let Some(cache) = cache {
                cache.retain(CopyKind::Index, &names.into_iter().collect());
                cache.retain(CopyKind::Pack, &there);
            }
            Ok(LoadedIndex { index, files, missing, unlisted, damaged })
        })
        .await
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
