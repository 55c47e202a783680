//! Packs: files of many blobs, each sealed separately, with a sealed header at their end that lists them.

use serde::{Deserialize, Serialize};
use zstd::bulk::Compressor;

use crate::id::Id;
use crate::key::{Key, SEAL_BYTES};
use crate::unpacked::decompress;
use crate::{RepositoryError, Result};

/// What a blob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BlobKind {
    /// A chunk of a file.
    Data,
    /// The entries of a folder.
    Tree,
}

/// A blob in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedBlob {
    pub id: Id,
    pub kind: BlobKind,
    pub offset: u32,
    /// As it is stored, sealed.
    pub length: u32,
    /// How long it is once it is decompressed; `None` if it is not compressed.
    pub plain_length: Option<u32>,
}

/// The longest chunk that is read, however well it is compressed; restic and we write at most 8 MiB.
const MOST_DATA_BYTES: u32 = 16 * 1024 * 1024;
/// The longest tree: of a folder with a million files, or of fewer large ones.
const MOST_TREE_BYTES: u32 = 512 * 1024 * 1024;
/// What is longer than the longest chunk may be compressed to one part in so many.
const MOST_COMPRESSED: usize = 100;

impl PackedBlob {
    /// The blob with its stored bytes, for another pack.
    pub fn sealed(&self, bytes: Vec<u8>) -> SealedBlob {
        SealedBlob { id: self.id, kind: self.kind, bytes, plain_length: self.plain_length }
    }

    /// Refuses a blob that is longer than any that is written. Call it before its bytes are read.
    pub fn confirm_length(&self) -> Result<()> {
        let most = match self.kind {
            BlobKind::Data => MOST_DATA_BYTES,
            BlobKind::Tree => MOST_TREE_BYTES,
        };
        // What cannot be compressed becomes a little longer.
        let longest = self.plain_length.unwrap_or(0).max(self.length - self.length / 16);
        if longest > most {
            return Err(RepositoryError::damaged(format!("Blob {} is longer than any that is written.", self.id)));
        }
        Ok(())
    }

    /// Checks, decrypts and decompresses the stored bytes of the blob.
    pub fn open(&self, stored: &mut [u8], key: &Key) -> Result<Vec<u8>> {
        self.confirm_length()?;
        let opened = key.open(stored)?;
        let plain = match self.plain_length {
            None => opened.to_vec(),
            Some(length) => {
                let length = length as usize;
                // Names and hashes are never as compressible as this; only somebody who wants to fill the memory of
                // others writes it.
                if length > MOST_DATA_BYTES as usize && length / MOST_COMPRESSED > opened.len() {
                    return Err(RepositoryError::damaged(format!("Blob {} is compressed too much.", self.id)));
                }
                decompress(opened, length)?
            }
        };
        if Id::of(&plain) != self.id {
            return Err(RepositoryError::damaged(format!("The content of blob {} is not the recorded one.", self.id)));
        }
        Ok(plain)
    }
}

const LENGTH_BYTES: usize = 4;
const PLAIN_ENTRY_BYTES: usize = 1 + 4 + 32;
const COMPRESSED_ENTRY_BYTES: usize = PLAIN_ENTRY_BYTES + 4;
/// The longest header that is read: of a pack of 128 MiB with nothing but the smallest blobs.
const MOST_HEADER_BYTES: u32 = 128 * 1024 * 1024;

/// A blob that is ready to be put into a pack.
pub struct SealedBlob {
    pub id: Id,
    pub kind: BlobKind,
    pub bytes: Vec<u8>,
    pub plain_length: Option<u32>,
}

/// Compresses and seals a blob; one that would not become smaller is stored as it is.
pub fn seal_blob(
    (kind, id): (BlobKind, Id),
    plain: &[u8],
    compressor: &mut Compressor<'_>,
    key: &Key,
) -> Result<SealedBlob> {
    let too_long = |_| RepositoryError::damaged("A blob is too long.");
    let length = u32::try_from(plain.len()).map_err(too_long)?;
    let mut bytes = compressor.compress(plain).map_err(|error| RepositoryError::damaged(error.to_string()))?;
    // restic always compresses trees, and takes one that is not for one of the first version of the format.
    let is_smaller = bytes.len() < plain.len() || kind == BlobKind::Tree;
    if !is_smaller {
        bytes.clear();
        bytes.extend_from_slice(plain);
    }
    bytes.reserve_exact(SEAL_BYTES);
    key.seal_from(&mut bytes, 0)?;
    Ok(SealedBlob { id, kind, bytes, plain_length: is_smaller.then_some(length) })
}

/// Collects blobs for one pack.
#[derive(Default)]
pub struct PackBuilder {
    bytes: Vec<u8>,
    blobs: Vec<PackedBlob>,
}

impl PackBuilder {
    pub fn add(&mut self, blob: &SealedBlob) -> Result<()> {
        let too_long = |_| RepositoryError::damaged("A pack is too long.");
        let offset = u32::try_from(self.bytes.len()).map_err(too_long)?;
        let length = u32::try_from(blob.bytes.len()).map_err(too_long)?;
        let SealedBlob { id, kind, plain_length, .. } = *blob;
        self.bytes.extend_from_slice(&blob.bytes);
        self.blobs.push(PackedBlob { id, kind, offset, length, plain_length });
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }

    /// Adds the header. Returns the name and bytes of the pack, and what is in it.
    pub fn finish(mut self, key: &Key) -> Result<(Id, Vec<u8>, Vec<PackedBlob>)> {
        let start = self.bytes.len();
        for blob in &self.blobs {
            let kind = match (blob.kind, blob.plain_length) {
                (BlobKind::Data, None) => 0,
                (BlobKind::Tree, None) => 1,
                (BlobKind::Data, Some(_)) => 2,
                (BlobKind::Tree, Some(_)) => 3,
            };
            self.bytes.push(kind);
            self.bytes.extend(blob.length.to_le_bytes());
            if let Some(length) = blob.plain_length {
                self.bytes.extend(length.to_le_bytes());
            }
            self.bytes.extend(blob.id.as_bytes());
        }
        key.seal_from(&mut self.bytes, start)?;
        let too_long = |_| RepositoryError::damaged("A pack is too long.");
        let length = u32::try_from(self.bytes.len() - start).map_err(too_long)?;
        self.bytes.extend(length.to_le_bytes());
        Ok((Id::of(&self.bytes), self.bytes, self.blobs))
    }
}

/// From the last four bytes of a pack of this size, how many bytes its header takes, including these four.
pub fn read_header_length(end: [u8; LENGTH_BYTES], pack_bytes: u64) -> Result<u64> {
    let length = u32::from_le_bytes(end);
    let whole = u64::from(length) + LENGTH_BYTES as u64;
    let is_possible = length as usize >= SEAL_BYTES && length <= MOST_HEADER_BYTES && whole <= pack_bytes;
    is_possible
        .then_some(whole)
        .ok_or_else(|| RepositoryError::damaged("The header of a pack has an impossible length."))
}

/// Reads the header of a pack of this size: its last bytes, as many as [`read_header_length`] says.
pub fn read_header(header: &mut [u8], pack_bytes: u64, key: &Key) -> Result<Vec<PackedBlob>> {
    let damaged = || RepositoryError::damaged("The header of a pack is damaged.");
    let length = header.len();
    let sealed = header.split_last_chunk_mut::<LENGTH_BYTES>().ok_or_else(damaged)?.0;
    let mut entries = key.open(sealed)?;
    let (mut blobs, mut offset) = (Vec::new(), 0_u32);
    while let Some(&kind) = entries.first() {
        let (kind, is_compressed) = match kind {
            0 => (BlobKind::Data, false),
            1 => (BlobKind::Tree, false),
            2 => (BlobKind::Data, true),
            3 => (BlobKind::Tree, true),
            _ => return Err(damaged()),
        };
        let size = if is_compressed { COMPRESSED_ENTRY_BYTES } else { PLAIN_ENTRY_BYTES };
        let (entry, rest) = entries.split_at_checked(size).ok_or_else(damaged)?;
        let number = |at: usize| entry[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let id = Id::from_bytes(*entry.last_chunk().ok_or_else(damaged)?);
        let (length, plain_length) = (number(1), is_compressed.then(|| number(5)));
        blobs.push(PackedBlob { id, kind, offset, length, plain_length });
        offset = offset.checked_add(length).ok_or_else(damaged)?;
        entries = rest;
    }
    if u64::from(offset) + length as u64 != pack_bytes {
        return Err(RepositoryError::damaged("The header of a pack does not describe all of it."));
    }
    Ok(blobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(key: &Key, plains: &[(BlobKind, Vec<u8>)]) -> (Id, Vec<u8>, Vec<PackedBlob>) {
        let (mut builder, mut compressor) = (PackBuilder::default(), Compressor::new(3).unwrap());
        for (kind, plain) in plains {
            let sealed = seal_blob((*kind, Id::of(plain)), plain, &mut compressor, key).unwrap();
            builder.add(&sealed).unwrap();
        }
        builder.finish(key).unwrap()
    }

    fn header(pack: &mut [u8]) -> (&mut [u8], u64) {
        let size = pack.len() as u64;
        let length = read_header_length(*pack.last_chunk().unwrap(), size).unwrap();
        let start = usize::try_from(size - length).unwrap();
        (&mut pack[start..], size)
    }

    #[test]
    fn what_is_in_a_pack_is_read_from_its_header() {
        let key = Key::random();
        let noise: Vec<u8> = holdfast_core::random::bytes::<1000>().to_vec();
        let plains = [(BlobKind::Data, vec![1; 5000]), (BlobKind::Data, noise), (BlobKind::Tree, b"{}".to_vec())];
        let (id, mut bytes, blobs) = pack(&key, &plains);
        assert_eq!(id, Id::of(&bytes));
        assert_eq!(blobs.iter().map(|blob| blob.plain_length.is_some()).collect::<Vec<_>>(), [true, false, true]);
        let (header, size) = header(&mut bytes);
        assert_eq!(read_header(header, size, &key).unwrap(), blobs);
        for (blob, (_, plain)) in blobs.iter().zip(&plains) {
            let stored = blob.offset as usize..(blob.offset + blob.length) as usize;
            assert_eq!(blob.open(&mut bytes[stored].to_vec(), &key).unwrap(), *plain);
        }
    }

    #[test]
    fn a_blob_is_only_what_was_recorded() {
        let key = Key::random();
        let (_, bytes, blobs) = pack(&key, &[(BlobKind::Data, vec![1; 5000]), (BlobKind::Data, vec![2; 5000])]);
        let stored = |blob: &PackedBlob| bytes[blob.offset as usize..(blob.offset + blob.length) as usize].to_vec();
        // Another blob in its place, and less room than it needs.
        assert!(blobs[0].open(&mut stored(&blobs[1]), &key).is_err());
        let short = PackedBlob { plain_length: Some(4999), ..blobs[0] };
        assert!(short.open(&mut stored(&blobs[0]), &key).is_err());
        let plain = PackedBlob { plain_length: None, ..blobs[0] };
        assert!(plain.open(&mut stored(&blobs[0]), &key).is_err());
    }

    #[test]
    fn headers_that_do_not_fit_their_pack_are_refused() {
        let key = Key::random();
        let (_, mut bytes, _) = pack(&key, &[(BlobKind::Data, vec![1; 5000])]);
        let (header, size) = header(&mut bytes);
        for wrong in [size - 1, size + 1, 0] {
            assert!(read_header(&mut header.to_vec(), wrong, &key).is_err());
        }
        for (end, size) in [([0; 4], 100), ([31, 0, 0, 0], 100), ([97, 0, 0, 0], 100), ([255; 4], u64::MAX)] {
            assert!(read_header_length(end, size).is_err(), "{end:?}");
        }
        for length in 0..header.len() {
            assert!(read_header(&mut header[..length].to_vec(), size, &key).is_err());
        }
    }
}
