//! Indexes: which blobs are in which packs. The files of a repository, and all of them together in memory.

use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::id::Id;
use crate::pack::{BlobKind, PackedBlob};
use crate::{RepositoryError, Result};

/// How many blobs a file of the index has at most; restic starts another one after that many, too.
const MOST_BLOBS: usize = 50_000;

/// A file below `index/`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexFile {
    /// Indexes that this one replaces. Old versions of restic wrote them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supersedes: Vec<Id>,
    pub packs: Vec<IndexedPack>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedPack {
    pub id: Id,
    pub blobs: Vec<IndexedBlob>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedBlob {
    pub id: Id,
    #[serde(rename = "type")]
    pub kind: BlobKind,
    pub offset: u32,
    pub length: u32,
    #[serde(default, rename = "uncompressed_length", skip_serializing_if = "Option::is_none")]
    pub plain_length: Option<u32>,
}

impl From<&PackedBlob> for IndexedBlob {
    fn from(blob: &PackedBlob) -> Self {
        let PackedBlob { id, kind, offset, length, plain_length } = *blob;
        Self { id, kind, offset, length, plain_length }
    }
}

impl From<&IndexedBlob> for PackedBlob {
    fn from(blob: &IndexedBlob) -> Self {
        let IndexedBlob { id, kind, offset, length, plain_length } = *blob;
        Self { id, kind, offset, length, plain_length }
    }
}

impl IndexFile {
    pub fn from_json(json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json)
            .map_err(|error| RepositoryError::damaged(format!("An index of this repository is damaged: {error}.")))
    }

    /// Adds a pack. Returns the file that is full by it, and begins the next one.
    pub fn add(&mut self, pack: Id, blobs: &[PackedBlob]) -> Option<Self> {
        let blobs: Vec<IndexedBlob> = blobs.iter().map(IndexedBlob::from).collect();
        self.packs.push(IndexedPack { id: pack, blobs });
        let count: usize = self.packs.iter().map(|pack| pack.blobs.len()).sum();
        (count >= MOST_BLOBS).then(|| std::mem::take(self))
    }
}

/// Where a blob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    pub pack: Id,
    pub blob: PackedBlob,
}

/// A blob of the index: 48 bytes.
#[derive(Clone, Copy)]
struct Entry {
    id: Id,
    /// Which pack; the highest bit is set for trees.
    pack: u32,
    offset: u32,
    length: u32,
    /// 0 if it is not compressed. An empty blob exists nowhere.
    plain_length: u32,
}

const TREE_BIT: u32 = 1 << 31;

impl Entry {
    fn kind(&self) -> BlobKind {
        if self.pack & TREE_BIT == 0 { BlobKind::Data } else { BlobKind::Tree }
    }

    fn key(&self) -> (Id, BlobKind) {
        (self.id, self.kind())
    }
}

/// All indexes of a repository.
#[derive(Default)]
pub struct MasterIndex {
    packs: Vec<Id>,
    /// Where the last blob of each pack ends.
    ends: Vec<u32>,
    numbers: HashMap<Id, u32>,
    /// Sorted by id and kind.
    entries: Vec<Entry>,
    /// Where the entries begin whose ids begin with these sixteen bits.
    starts: Vec<u32>,
    added: HashMap<(Id, BlobKind), Entry>,
}

impl MasterIndex {
    /// Adds the packs of a file. Call [`Self::sort`] after the last one.
    pub fn load(&mut self, file: &IndexFile) -> Result<()> {
        for pack in &file.packs {
            let number = self.number(pack.id)?;
            pack.blobs.iter().for_each(|blob| self.extend(number, blob.offset, blob.length));
            self.entries.extend(pack.blobs.iter().map(|blob| entry(number, blob)));
        }
        Ok(())
    }

    /// Makes what was loaded searchable. A blob that is in several packs is taken from one of them.
    pub fn sort(&mut self) -> Result<()> {
        self.entries.sort_unstable_by_key(|entry| (entry.key(), entry.pack, entry.offset));
        self.entries.dedup_by_key(|entry| entry.key());
        self.entries.shrink_to_fit();
        if u32::try_from(self.entries.len()).is_err() {
            return Err(RepositoryError::Unsupported("This repository has too many blobs.".to_owned()));
        }
        self.starts = vec![0; (1 << 16) + 1];
        for entry in &self.entries {
            self.starts[prefix(&entry.id) + 1] += 1;
        }
        for index in 1..self.starts.len() {
            self.starts[index] += self.starts[index - 1];
        }
        Ok(())
    }

    /// Adds a pack that was just written.
    pub fn add(&mut self, pack: Id, blobs: &[PackedBlob]) -> Result<()> {
        let number = self.number(pack)?;
        for blob in blobs {
            self.extend(number, blob.offset, blob.length);
            let entry = entry(number, &blob.into());
            self.added.entry(entry.key()).or_insert(entry);
        }
        Ok(())
    }

    fn extend(&mut self, number: u32, offset: u32, length: u32) {
        let end = &mut self.ends[number as usize];
        *end = offset.saturating_add(length).max(*end);
    }

    fn number(&mut self, pack: Id) -> Result<u32> {
        if let Some(number) = self.numbers.get(&pack) {
            return Ok(*number);
        }
        let number = u32::try_from(self.packs.len()).ok().filter(|number| number & TREE_BIT == 0);
        let too_many = || RepositoryError::Unsupported("This repository has too many packs.".to_owned());
        let number = number.ok_or_else(too_many)?;
        self.packs.push(pack);
        self.ends.push(0);
        self.numbers.insert(pack, number);
        Ok(number)
    }

    pub fn contains(&self, kind: BlobKind, id: &Id) -> bool {
        self.find(kind, id).is_some()
    }

    pub fn locate(&self, kind: BlobKind, id: &Id) -> Option<Location> {
        self.find(kind, id).map(|entry| self.location(entry))
    }

    fn find(&self, kind: BlobKind, id: &Id) -> Option<&Entry> {
        let found = self.position(kind, id).map(|index| &self.entries[index]);
        found.or_else(|| self.added.get(&(*id, kind)))
    }

    /// The loaded entries whose ids begin as this one.
    fn bucket(&self, id: &Id) -> Range<usize> {
        let prefix = prefix(id);
        let bounds = self.starts.get(prefix).zip(self.starts.get(prefix + 1));
        bounds.map_or(0..0, |(from, until)| *from as usize..*until as usize)
    }

    fn location(&self, entry: &Entry) -> Location {
        let Entry { id, offset, length, plain_length, .. } = *entry;
        let plain_length = (plain_length > 0).then_some(plain_length);
        let pack = self.packs[(entry.pack & !TREE_BIT) as usize];
        Location { pack, blob: PackedBlob { id, kind: entry.kind(), offset, length, plain_length } }
    }

    /// The place of a loaded blob in the order of all; `None` if it is not there, or was added later.
    pub fn position(&self, kind: BlobKind, id: &Id) -> Option<usize> {
        let bucket = self.bucket(id);
        let from = bucket.start;
        self.entries[bucket].binary_search_by_key(&(*id, kind), Entry::key).ok().map(|index| from + index)
    }

    /// Where the blob at this place is.
    pub fn at(&self, position: usize) -> Option<Location> {
        self.entries.get(position).map(|entry| self.location(entry))
    }

    pub fn len(&self) -> usize {
        self.entries.len() + self.added.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes of blobs a pack has, without its header; 0 if it is not known.
    pub fn blob_bytes(&self, pack: &Id) -> u64 {
        self.numbers.get(pack).map_or(0, |number| u64::from(self.ends[*number as usize]))
    }

    /// How many bytes of blobs all packs have.
    pub fn all_bytes(&self) -> u64 {
        self.ends.iter().map(|end| u64::from(*end)).sum()
    }

    pub fn packs(&self) -> &[Id] {
        &self.packs
    }
}

fn prefix(id: &Id) -> usize {
    let [high, low, ..] = *id.as_bytes();
    usize::from(high) << 8 | usize::from(low)
}

fn entry(number: u32, blob: &IndexedBlob) -> Entry {
    let pack = if blob.kind == BlobKind::Tree { number | TREE_BIT } else { number };
    Entry { id: blob.id, pack, offset: blob.offset, length: blob.length, plain_length: blob.plain_length.unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(name: &str, kind: BlobKind, offset: u32) -> PackedBlob {
        let plain_length = offset.is_multiple_of(2).then_some(500);
        PackedBlob { id: Id::of(name.as_bytes()), kind, offset, length: 100, plain_length }
    }

    fn file(packs: &[(&str, Vec<PackedBlob>)]) -> IndexFile {
        let mut file = IndexFile::default();
        for (name, blobs) in packs {
            assert!(file.add(Id::of(name.as_bytes()), blobs).is_none());
        }
        file
    }

    #[test]
    fn blobs_are_found_where_they_are() {
        let many: Vec<PackedBlob> =
            (0..10_000).map(|number| blob(&number.to_string(), BlobKind::Data, number * 100 + number % 2)).collect();
        // The content of a file may be the JSON of a folder.
        let twins = vec![blob("twin", BlobKind::Data, 0), blob("twin", BlobKind::Tree, 100)];
        let first = file(&[("first", many.clone()), ("second", twins.clone())]);
        let json = serde_json::to_vec(&first).unwrap();
        let mut index = MasterIndex::default();
        assert!(!index.contains(BlobKind::Data, &many[0].id));
        index.load(&IndexFile::from_json(&json).unwrap()).unwrap();
        // The same blob in another pack counts once.
        index.load(&file(&[("third", many[..10].to_vec())])).unwrap();
        index.sort().unwrap();
        assert_eq!((index.len(), index.packs().len()), (10_002, 3));
        for blob in &many {
            let found = index.locate(BlobKind::Data, &blob.id).unwrap();
            assert_eq!((found.pack, found.blob), (Id::of(b"first"), *blob));
            assert!(!index.contains(BlobKind::Tree, &blob.id));
        }
        for blob in &twins {
            assert_eq!(index.locate(blob.kind, &blob.id).unwrap().blob, *blob);
        }
        assert_eq!(index.blob_bytes(&Id::of(b"second")), 200);
        let position = index.position(BlobKind::Tree, &twins[1].id).unwrap();
        assert_eq!(index.at(position), index.locate(BlobKind::Tree, &twins[1].id));
        let late = blob("late", BlobKind::Tree, 0);
        assert!(!index.contains(late.kind, &late.id));
        index.add(Id::of(b"fourth"), &[late]).unwrap();
        assert_eq!(index.locate(late.kind, &late.id), Some(Location { pack: Id::of(b"fourth"), blob: late }));
    }

    #[test]
    fn a_full_file_is_ended() {
        let blobs: Vec<PackedBlob> = (0..30_000).map(|number| blob(&number.to_string(), BlobKind::Data, 0)).collect();
        let mut file = IndexFile::default();
        assert!(file.add(Id::of(b"a"), &blobs).is_none());
        let full = file.add(Id::of(b"b"), &blobs).unwrap();
        assert_eq!((full.packs.len(), file.packs.len()), (2, 0));
    }
}
