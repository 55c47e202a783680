//! Repairs what a check has found: an index that was lost is built again from the headers of the packs, and a damaged
//! pack is taken out of the index, with what can still be read of it in a new one. The next backup then stores again what
//! is lacking, if the source still has it. Nothing is removed but indexes that were replaced.

use std::collections::{HashMap, HashSet};

use holdfast_core::failure::FailureCode;
use holdfast_repository::{Id, IndexFile, PackBuilder, PackedBlob, read_header, read_header_length};

use super::locks::HeldLock;
use super::opening::Repository;
use super::place::{FileKind, of_repository};
use crate::context::Context;
use crate::error::{EngineError, Result};

/// What is to be repaired.
pub(super) struct Repair {
    /// Packs that no index lists.
    pub unlisted: Vec<Id>,
    /// The packs that each file of the index lists.
    pub index_files: HashMap<Id, Vec<Id>>,
    pub damaged_indexes: Vec<Id>,
    /// Damaged packs, with the blobs in them that can be read.
    pub bad_packs: HashMap<Id, Vec<PackedBlob>>,
    /// Packs that an index lists and that are gone.
    pub missing: HashSet<Id>,
}

impl Repair {
    pub(super) fn is_needed(&self) -> bool {
        let Self { unlisted, index_files: _, damaged_indexes, bad_packs, missing } = self;
        !(unlisted.is_empty() && damaged_indexes.is_empty() && bad_packs.is_empty() && missing.is_empty())
    }
}

pub(super) async fn repair(repository: &Repository, repair: &Repair, lock: &HeldLock, context: &Context) -> Result<()> {
    let mut index = IndexFile::default();
    let mut found = 0;
    for pack in &repair.unlisted {
        if context.cancel.is_cancelled() {
            return Err(EngineError::cancelled());
        }
        let Some(blobs) = read_blobs(repository, pack).await? else { continue };
        found += 1;
        add(repository, &mut index, *pack, &blobs).await?;
    }
    if found > 0 {
        context.log.line(format!("Repaired: {found} packs were put into the index again."));
    }
    let saved = save_blobs(repository, &repair.bad_packs, &mut index).await?;
    let gone: HashSet<Id> = repair.bad_packs.keys().chain(&repair.missing).copied().collect();
    let mut files = repair.index_files.clone();
    repository.replace_indexes(&mut files, (&gone, &repair.damaged_indexes), index, (lock, context)).await?;
    if !gone.is_empty() {
        context.log.line(format!(
            "Repaired: {} packs were taken out of the index, and {saved} blobs of them saved. The next backup stores \
             again what else is lacking, if the source still has it.",
            gone.len()
        ));
    }
    Ok(())
}

/// What is in a pack, from its header; `None` if that cannot be read.
async fn read_blobs(repository: &Repository, pack: &Id) -> Result<Option<Vec<PackedBlob>>> {
    let bytes = match repository.place.read(FileKind::Pack, pack).await {
        // What has another name than its bytes is no pack, or a damaged one.
        Ok(Some(bytes)) if Id::of(&bytes) == *pack => bytes,
        Ok(_) => return Ok(None),
        Err(error) if error.code == FailureCode::Corrupt => return Ok(None),
        Err(error) => return Err(error),
    };
    let size = bytes.len() as u64;
    let blobs = bytes
        .last_chunk()
        .and_then(|end| read_header_length(*end, size).ok())
        .and_then(|length| bytes.len().checked_sub(usize::try_from(length).ok()?))
        .and_then(|start| read_header(&mut bytes[start..].to_vec(), size, &repository.key).ok());
    Ok(blobs)
}

/// Stores the readable blobs of damaged packs again.
async fn save_blobs(
    repository: &Repository,
    bad_packs: &HashMap<Id, Vec<PackedBlob>>,
    index: &mut IndexFile,
) -> Result<usize> {
    let mut saved = 0;
    for (pack, blobs) in bad_packs.iter().filter(|(_, blobs)| !blobs.is_empty()) {
        // Gone meanwhile, or damaged further: what it had is stored again by the next backup.
        let Some(bytes) = repository.place.read(FileKind::Pack, pack).await? else { continue };
        let mut of_kind: HashMap<_, PackBuilder> = HashMap::new();
        for blob in blobs {
            let (start, length) = (blob.offset as usize, blob.length as usize);
            let Some(stored) = start.checked_add(length).and_then(|end| bytes.get(start..end)) else { continue };
            if blob.open(&mut stored.to_vec(), &repository.key).is_ok() {
                of_kind.entry(blob.kind).or_default().add(&blob.sealed(stored.to_vec())).map_err(of_repository)?;
                saved += 1;
            }
        }
        for (_, builder) in of_kind {
            let (id, bytes, blobs) = builder.finish(&repository.key).map_err(of_repository)?;
            repository.place.write(FileKind::Pack, &id, bytes.into()).await?;
            add(repository, index, id, &blobs).await?;
        }
    }
    Ok(saved)
}

async fn add(repository: &Repository, index: &mut IndexFile, pack: Id, blobs: &[PackedBlob]) -> Result<()> {
    if let Some(full) = index.add(pack, blobs) {
        repository.place.write_json(FileKind::Index, &full, &repository.key).await?;
    }
    Ok(())
}
