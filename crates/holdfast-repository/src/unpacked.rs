//! Files that are not packs: indexes, snapshots and locks are JSON, compressed and sealed.

use serde::Serialize;

use crate::id::Id;
use crate::key::Key;
use crate::{RepositoryError, Result};

/// Before what is compressed. JSON itself begins with a bracket.
const COMPRESSED: u8 = 2;
const LEVEL: i32 = 3;
/// Up to this size, a file is read however well it is compressed: a snapshot may list many similar paths.
const ALWAYS_READ: usize = 16 * 1024 * 1024;
/// A longer one, which is an index, may be this many times as long as it is stored. Hashes are never more compressible;
/// only somebody who wants to fill the memory of others writes more.
const MOST_COMPRESSED: usize = 8;

/// The bytes of a file with this content, and its name.
pub fn seal_json(value: &impl Serialize, key: &Key) -> Result<(Id, Vec<u8>)> {
    let json = serde_json::to_vec(value).map_err(|error| RepositoryError::damaged(error.to_string()))?;
    let mut plain = vec![COMPRESSED];
    plain.extend(zstd::bulk::compress(&json, LEVEL).map_err(|error| RepositoryError::damaged(error.to_string()))?);
    let sealed = key.seal(&plain)?;
    Ok((Id::of(&sealed), sealed))
}

/// The content of a file. `name` is its name, or `None` where the caller has compared it.
pub fn unseal(sealed: &mut [u8], name: Option<Id>, key: &Key) -> Result<Vec<u8>> {
    if name.is_some_and(|name| Id::of(sealed) != name) {
        return Err(RepositoryError::damaged("The stored bytes are not the ones that were written."));
    }
    let plain = key.open(sealed)?;
    match plain.first() {
        Some(b'{' | b'[') => Ok(plain.to_vec()),
        Some(&COMPRESSED) => decompress(&plain[1..], ALWAYS_READ.max(plain.len() * MOST_COMPRESSED)),
        _ => Err(RepositoryError::Unsupported("A file of this repository has an unknown encoding.".to_owned())),
    }
}

/// Decompresses one frame, into at most `most` bytes.
pub(crate) fn decompress(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    use std::io::Read as _;
    let damaged = |error: std::io::Error| RepositoryError::damaged(format!("Compressed bytes are damaged: {error}."));
    let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(damaged)?;
    let mut plain = Vec::new();
    decoder.by_ref().take(most as u64 + 1).read_to_end(&mut plain).map_err(damaged)?;
    if plain.len() > most {
        return Err(RepositoryError::damaged("Compressed bytes are longer than was recorded."));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_survives_and_damage_is_found() {
        let key = Key::random();
        let (name, sealed) = seal_json(&vec!["text"; 1000], &key).unwrap();
        let (_, mut bomb) = seal_json(&vec!["text"; 3_000_000], &key).unwrap();
        assert!(unseal(&mut bomb, None, &key).is_err());
        assert!(sealed.len() < 200, "it is compressed");
        let plain = unseal(&mut sealed.clone(), Some(name), &key).unwrap();
        assert_eq!(serde_json::from_slice::<Vec<String>>(&plain).unwrap().len(), 1000);
        assert!(unseal(&mut sealed.clone(), Some(Id::default()), &key).is_err());
        let mut uncompressed = key.seal(b"[1]").unwrap();
        assert_eq!(unseal(&mut uncompressed, None, &key).unwrap(), b"[1]");
        assert!(unseal(&mut key.seal(b"\x03").unwrap(), None, &key).is_err());
        assert!(unseal(&mut key.seal(b"").unwrap(), None, &key).is_err());
    }

    #[test]
    fn decompression_is_bounded() {
        let packed = zstd::bulk::compress(&vec![0; 10_000_000], 3).unwrap();
        assert_eq!(decompress(&packed, 10_000_000).unwrap().len(), 10_000_000);
        assert!(decompress(&packed, 9_999_999).is_err());
    }
}
