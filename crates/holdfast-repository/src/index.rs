//! Indexes: which blobs are in which packs. The files of a repository, and all of them together in memory.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::id::Id;
use crate::key::SEAL_BYTES;
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

/// All indexes of a repository. Entries are kept in one list for each first byte of their ids, so that growing never
/// copies all of them at once.
pub struct MasterIndex {
    packs: Vec<Id>,
    /// Where the last blob of each pack ends.
    ends: Vec<u32>,
    numbers: HashMap<Id, u32>,
    /// Sorted by id and kind. A blob that is in several packs has several entries.
    lists: Vec<Vec<Entry>>,
    /// How many entries there are before those whose ids begin with these sixteen bits.
    starts: Vec<u32>,
    /// What was added since the lists were sorted.
    added: HashMap<(Id, BlobKind), Entry>,
    /// What turned out to be unreadable wherever it should be, and has not been added again.
    lost: HashSet<(Id, BlobKind)>,
    /// Whether any of the trees that were loaded may be.
    trees_are_in_doubt: bool,
}

/// How many blobs may be added before they are sorted in; from so many on, this share of what is sorted. Each takes
/// three times the memory of a sorted one.
const MOST_ADDED: usize = 64 * 1024;
const ADDED_SHARE: usize = 16;

impl Default for MasterIndex {
    fn default() -> Self {
        Self {
            packs: Vec::new(),
            ends: Vec::new(),
            numbers: HashMap::new(),
            lists: vec![Vec::new(); 1 << 8],
            starts: vec![0; (1 << 16) + 1],
            added: HashMap::new(),
            lost: HashSet::new(),
            trees_are_in_doubt: false,
        }
    }
}

impl MasterIndex {
    /// Adds the packs of a file. Call [`Self::sort`] after the last one.
    pub fn load(&mut self, file: &IndexFile) -> Result<()> {
        for pack in &file.packs {
            // What was written cannot overlap, and whoever lists a pack again says the same of it.
            let stored: u64 = pack.blobs.iter().map(|blob| u64::from(blob.length)).sum();
            let end = pack.blobs.iter().map(|blob| u64::from(blob.offset) + u64::from(blob.length)).max();
            let is_long_enough = pack.blobs.iter().all(|blob| blob.length as usize >= SEAL_BYTES);
            if stored > end.unwrap_or(0) || !is_long_enough {
                return Err(RepositoryError::damaged(format!(
                    "An index lists blobs of pack {} that overlap.",
                    pack.id
                )));
            }
            let number = self.number(pack.id)?;
            for blob in &pack.blobs {
                self.extend(number, blob.offset, blob.length);
                self.lists[usize::from(blob.id.as_bytes()[0])].push(entry(number, blob));
            }
        }
        Ok(())
    }

    /// How many entries have been loaded so far.
    pub fn loaded(&self) -> usize {
        self.lists.iter().map(Vec::len).sum()
    }

    /// Makes what was loaded searchable.
    pub fn sort(&mut self) -> Result<()> {
        self.starts.fill(0);
        for list in &mut self.lists {
            // Mostly sorted already when more is added.
            list.sort_by_key(|entry| (entry.key(), entry.pack, entry.offset));
            // Several indexes may list the same pack.
            list.dedup_by_key(|entry| (entry.key(), entry.pack, entry.offset));
            for entry in list {
                self.starts[prefix(&entry.id) + 1] += 1;
            }
        }
        let mut before = 0_u32;
        for start in &mut self.starts {
            let too_many = || RepositoryError::Unsupported("This repository has too many blobs.".to_owned());
            before = before.checked_add(*start).ok_or_else(too_many)?;
            *start = before;
        }
        Ok(())
    }

    /// Adds a pack that was just written.
    pub fn add(&mut self, pack: Id, blobs: &[PackedBlob]) -> Result<()> {
        let number = self.number(pack)?;
        for blob in blobs {
            self.extend(number, blob.offset, blob.length);
            let entry = entry(number, &blob.into());
            self.lost.remove(&entry.key());
            self.added.entry(entry.key()).or_insert(entry);
        }
        if self.added.len() > MOST_ADDED.max(self.sorted_len() / ADDED_SHARE) {
            for (_, entry) in std::mem::take(&mut self.added) {
                self.lists[usize::from(entry.id.as_bytes()[0])].push(entry);
            }
            self.sort()?;
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

    /// Notes that a blob cannot be read from any of its packs, so that it is stored again when it is needed.
    pub fn note_lost(&mut self, kind: BlobKind, id: &Id) {
        self.lost.insert((*id, kind));
    }

    /// Notes that trees cannot be read, and it is not known which: all that are needed are stored again.
    pub fn doubt_trees(&mut self) {
        self.trees_are_in_doubt = true;
    }

    pub fn contains(&self, kind: BlobKind, id: &Id) -> bool {
        if kind == BlobKind::Tree && self.trees_are_in_doubt {
            return self.added.contains_key(&(*id, kind));
        }
        !self.lost.contains(&(*id, kind)) && self.is_listed(kind, id)
    }

    fn is_listed(&self, kind: BlobKind, id: &Id) -> bool {
        self.position(kind, id).is_some() || self.added.contains_key(&(*id, kind))
    }

    pub fn locate(&self, kind: BlobKind, id: &Id) -> Option<Location> {
        self.locations(kind, id).next()
    }

    /// All packs that have a blob: mostly one.
    pub fn locations(&self, kind: BlobKind, id: &Id) -> impl Iterator<Item = Location> {
        let key = (*id, kind);
        let list = &self.lists[usize::from(id.as_bytes()[0])];
        let sorted = &list[self.index_in_list(kind, id).unwrap_or(list.len())..];
        let sorted = sorted.iter().take_while(move |entry| entry.key() == key);
        sorted.chain(self.added.get(&key)).map(|entry| self.location(entry))
    }

    fn location(&self, entry: &Entry) -> Location {
        let Entry { id, offset, length, plain_length, .. } = *entry;
        let plain_length = (plain_length > 0).then_some(plain_length);
        let pack = self.packs[(entry.pack & !TREE_BIT) as usize];
        Location { pack, blob: PackedBlob { id, kind: entry.kind(), offset, length, plain_length } }
    }

    /// Where the first entry of a blob is in the list of its first byte.
    fn index_in_list(&self, kind: BlobKind, id: &Id) -> Option<usize> {
        let (prefix, first) = (prefix(id), usize::from(id.as_bytes()[0]) << 8);
        let place = |prefix: usize| (self.starts[prefix] - self.starts[first]) as usize;
        let range = place(prefix)..place(prefix + 1);
        let (list, key) = (&self.lists[first >> 8], (*id, kind));
        let index = range.start + list[range.clone()].partition_point(|entry| entry.key() < key);
        (index < range.end && list[index].key() == key).then_some(index)
    }

    /// The place of a blob in the order of all, the first if it has several; `None` if it is not there, or was just
    /// added.
    pub fn position(&self, kind: BlobKind, id: &Id) -> Option<usize> {
        let before = self.starts[usize::from(id.as_bytes()[0]) << 8] as usize;
        self.index_in_list(kind, id).map(|index| before + index)
    }

    /// Everything that was loaded and sorted, in the order of the places.
    pub fn iter(&self) -> impl Iterator<Item = Location> {
        self.lists.iter().flatten().map(|entry| self.location(entry))
    }

    fn sorted_len(&self) -> usize {
        self.starts[1 << 16] as usize
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.sorted_len() + self.added.len()
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

    /// Forgets these packs, and what is in them.
    pub fn forget(&mut self, gone: &HashSet<Id>) -> Result<()> {
        let numbers: HashSet<u32> = gone.iter().filter_map(|pack| self.numbers.remove(pack)).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        for number in &numbers {
            self.ends[*number as usize] = 0;
        }
        for list in &mut self.lists {
            list.retain(|entry| !numbers.contains(&(entry.pack & !TREE_BIT)));
        }
        self.sort()
    }

    pub fn packs(&self) -> impl ExactSizeIterator<Item = Id> {
        self.numbers.keys().copied()
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
            (0..10_000).map(|number| blob(&number.to_string(), BlobKind::Data, number * 101)).collect();
        // The content of a file may be the JSON of a folder.
        let twins = vec![blob("twin", BlobKind::Data, 0), blob("twin", BlobKind::Tree, 100)];
        let first = file(&[("first", many.clone()), ("second", twins.clone())]);
        let json = serde_json::to_vec(&first).unwrap();
        let mut index = MasterIndex::default();
        assert!(!index.contains(BlobKind::Data, &many[0].id));
        index.load(&IndexFile::from_json(&json).unwrap()).unwrap();
        // Several files may list the same pack, and several packs have the same blob.
        index.load(&first).unwrap();
        let overlapping = file(&[("fifth", vec![blob("one", BlobKind::Data, 0), blob("two", BlobKind::Data, 50)])]);
        assert!(index.load(&overlapping).is_err());
        index.load(&file(&[("third", many[..10].to_vec())])).unwrap();
        index.sort().unwrap();
        assert_eq!((index.len(), index.packs().len()), (10_012, 3));
        for blob in &many {
            let found = index.locate(BlobKind::Data, &blob.id).unwrap();
            assert_eq!((found.pack, found.blob), (Id::of(b"first"), *blob));
            assert!(!index.contains(BlobKind::Tree, &blob.id));
        }
        for blob in &twins {
            assert_eq!(index.locate(blob.kind, &blob.id).unwrap().blob, *blob);
        }
        assert_eq!(index.blob_bytes(&Id::of(b"second")), 200);
        assert_eq!(index.iter().count(), index.len());
        for (place, location) in index.iter().enumerate() {
            let Location { blob: PackedBlob { kind, id, .. }, pack } = location;
            let first = index.position(kind, &id).unwrap();
            assert!(first == place || pack != Id::of(b"first") && first + 1 == place, "{place}");
        }
        let packs =
            |blob: &PackedBlob| index.locations(blob.kind, &blob.id).map(|found| found.pack).collect::<Vec<_>>();
        assert_eq!(packs(&many[9]), [Id::of(b"first"), Id::of(b"third")]);
        assert_eq!(packs(&many[10]), [Id::of(b"first")]);
        let late = blob("late", BlobKind::Tree, 0);
        assert!(!index.contains(late.kind, &late.id));
        index.add(Id::of(b"fourth"), &[late]).unwrap();
        assert_eq!(index.locate(late.kind, &late.id), Some(Location { pack: Id::of(b"fourth"), blob: late }));
        index.note_lost(late.kind, &late.id);
        assert!(!index.contains(late.kind, &late.id), "what cannot be read is stored again");
        index.add(Id::of(b"sixth"), &[late]).unwrap();
        assert!(index.contains(late.kind, &late.id));
        assert!(index.contains(twins[1].kind, &twins[1].id));
        index.doubt_trees();
        assert!(!index.contains(twins[1].kind, &twins[1].id) && index.contains(late.kind, &late.id));
        index.forget(&HashSet::from([Id::of(b"first")])).unwrap();
        assert!(index.contains(many[9].kind, &many[9].id) && !index.contains(many[10].kind, &many[10].id));
        assert_eq!((index.packs().len(), index.blob_bytes(&Id::of(b"first"))), (4, 0));
    }

    #[test]
    fn many_blobs_are_sorted_in_as_they_are_added() {
        let mut index = MasterIndex::default();
        let blob = |number: usize| blob(&number.to_string(), BlobKind::Data, 0);
        assert!(!index.contains(BlobKind::Data, &blob(1).id));
        let packs = 3 * MOST_ADDED / 1000;
        for pack in 0..packs {
            let blobs: Vec<PackedBlob> = (pack * 1000..(pack + 1) * 1000).map(blob).collect();
            index.add(Id::of(&pack.to_le_bytes()), &blobs).unwrap();
        }
        assert!(index.added.len() <= MOST_ADDED && index.sorted_len() > MOST_ADDED);
        assert_eq!(index.len(), packs * 1000);
        for number in 0..packs * 1000 {
            let found = index.locate(BlobKind::Data, &blob(number).id).unwrap();
            assert_eq!(found.pack, Id::of(&(number / 1000).to_le_bytes()));
        }
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
