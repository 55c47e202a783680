//! Loads the index of a repository from its files, and replaces files of it.

use std::collections::HashSet;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use holdfast_core::failure::FailureCode;
use holdfast_repository::{Id, IndexFile, MasterIndex, PackedBlob};

use super::locks::HeldLock;
use super::opening::Repository;
use super::place::{FileKind, of_repository};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::thread::on_thread;

/// How many files are read at the same time.
const AT_ONCE: usize = 8;

/// The index of a repository, and what is wrong with it.
pub(super) struct LoadedIndex {
    pub index: MasterIndex,
    /// Packs that the index lists and the destination does not have. They are left out of the index, so that what they
    /// should contain is stored again by the next backup that needs it.
    pub missing: HashSet<Id>,
    /// Packs that no readable index lists: those of runs that have not ended, or were lost.
    pub unlisted: Vec<Id>,
    /// Index files that cannot be read any more.
    pub damaged: Vec<Id>,
}

impl LoadedIndex {
    /// The index, if nothing may be missing from it.
    pub(super) fn whole(self) -> Result<(MasterIndex, HashSet<Id>)> {
        match self.damaged.first() {
            None => Ok((self.index, self.missing)),
            Some(id) => Err(EngineError::corrupt(format!(
                "Index {id} of this repository is damaged. A check of the repository builds it again from the packs."
            ))),
        }
    }
}

impl Repository {
    pub(super) async fn load_index(&self) -> Result<LoadedIndex> {
        // The packs are listed last: what is stored meanwhile is unlisted, and not missing.
        let (files, damaged) = self.read_index_files().await?;
        let there: HashSet<Id> = self.place.list(FileKind::Pack).await?.into_iter().collect();
        on_thread(move || {
            let (mut index, mut missing, mut listed) = (MasterIndex::default(), HashSet::new(), HashSet::new());
            for (_, mut file) in files {
                let gone = file.packs.extract_if(.., |pack| !there.contains(&pack.id));
                missing.extend(gone.map(|pack| pack.id));
                listed.extend(file.packs.iter().map(|pack| pack.id));
                index.load(&file).map_err(of_repository)?;
            }
            index.sort().map_err(of_repository)?;
            let mut unlisted: Vec<Id> = there.difference(&listed).copied().collect();
            unlisted.sort();
            Ok(LoadedIndex { index, missing, unlisted, damaged })
        })
        .await
    }

    /// All files of the index, and the names of those that are damaged.
    async fn read_index_files(&self) -> Result<(Vec<(Id, IndexFile)>, Vec<Id>)> {
        let read = |id: Id| async move {
            let json = match self.place.read_json(FileKind::Index, &id, &self.key).await {
                Err(error) if error.code == FailureCode::Corrupt => return Ok(Some((id, None))),
                json => json?,
            };
            Ok::<_, EngineError>(json.map(|json| (id, IndexFile::from_json(&json).ok())))
        };
        let names = self.place.list(FileKind::Index).await?;
        let all: Vec<(Id, Option<IndexFile>)> = stream::iter(names)
            .map(read)
            .buffer_unordered(AT_ONCE)
            .try_filter_map(|read| std::future::ready(Ok(read)))
            .try_collect()
            .await?;
        let damaged = all.iter().filter(|(_, file)| file.is_none()).map(|(id, _)| *id).collect();
        Ok((all.into_iter().filter_map(|(id, file)| Some((id, file?))).collect(), damaged))
    }

    /// Stores the index of what was written again and of what stays in indexes that list packs that are `gone`, and then
    /// removes these indexes, and those that are `damaged`. Other indexes stay as they are.
    pub(super) async fn replace_indexes(
        &self,
        gone: &HashSet<Id>,
        damaged: &[Id],
        mut index: IndexFile,
        (lock, context): (&HeldLock, &Context),
    ) -> Result<()> {
        let Self { place, key, .. } = self;
        let mut old = damaged.to_vec();
        let names = if gone.is_empty() { Vec::new() } else { place.list(FileKind::Index).await? };
        for name in names.into_iter().filter(|name| !damaged.contains(name)) {
            let Some(json) = place.read_json(FileKind::Index, &name, key).await? else { continue };
            let file = IndexFile::from_json(&json).map_err(of_repository)?;
            if !file.packs.iter().any(|pack| gone.contains(&pack.id)) {
                continue;
            }
            old.push(name);
            for pack in file.packs.into_iter().filter(|pack| !gone.contains(&pack.id)) {
                let blobs: Vec<PackedBlob> = pack.blobs.iter().map(PackedBlob::from).collect();
                if let Some(full) = index.add(pack.id, &blobs) {
                    place.write_json(FileKind::Index, &full, key).await?;
                }
            }
        }
        if !index.packs.is_empty() {
            let name = place.write_json(FileKind::Index, &index, key).await?;
            // Nothing has changed, which would make the new one the old one.
            old.retain(|old| *old != name);
        }
        for name in old {
            if context.cancel.is_cancelled() {
                return Err(EngineError::cancelled());
            }
            lock.confirm()?;
            place.remove(FileKind::Index, &name).await?;
        }
        Ok(())
    }
}
