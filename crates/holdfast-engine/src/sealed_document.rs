//! Small stored documents: compressed and, with a password, encrypted, so that `age -d | zstd -d` can open them.

use std::io::{self, Read as _, Write as _};

use holdfast_core::Secret;
use holdfast_core::failure::FailureCode;

use crate::archive::{KeyDerivation, WINDOW_LOG, WrittenBy, decompress};
use crate::error::{EngineError, Result};

/// The size limit of a document, which is held in memory; none of ours comes near it.
const LIMIT: u64 = 1 << 30;
/// How much a document may expand to, relative to its size. Real ones shrink to a fiftieth at most, because they are
/// full of digests and ids. A small file that expands to a gigabyte was made to exhaust the memory.
const FREE: u64 = 16 << 20;
const MOST_EXPANSION: u64 = 200;
const LEVEL: i32 = 6;

fn damaged(error: &io::Error) -> EngineError {
    EngineError::corrupt(format!("This file cannot be read to its end: {error}"))
}

/// Compresses what is written to it.
pub struct Packer {
    encoder: zstd::stream::write::Encoder<'static, Vec<u8>>,
    taken: u64,
}

impl Packer {
    pub fn new() -> Result<Self> {
        let encoder = zstd::stream::write::Encoder::new(Vec::new(), LEVEL);
        Ok(Self { encoder: encoder.map_err(|error| internal(&error))?, taken: 0 })
    }

    pub fn finish(self) -> Result<Vec<u8>> {
        let packed = self.encoder.finish().map_err(|error| internal(&error))?;
        // Refuse to write what could not be read again.
        if self.taken > limit(packed.len()) {
            return Err(EngineError::new(FailureCode::TooLarge, "The document is too large."));
        }
        Ok(packed)
    }
}

impl io::Write for Packer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.taken += bytes.len() as u64;
        // Refuse to write what could not be read again.
        if self.taken > LIMIT {
            return Err(io::Error::other("the document is too large"));
        }
        self.encoder.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encoder.flush()
    }
}

/// The size limit of a document that takes this much when it is compressed.
fn limit(packed: usize) -> u64 {
    LIMIT.min(FREE + (packed as u64).saturating_mul(MOST_EXPANSION))
}

fn internal(error: &io::Error) -> EngineError {
    EngineError::new(FailureCode::Internal, error.to_string())
}

pub fn expand(packed: &[u8]) -> Result<Vec<u8>> {
    let (mut plain, limit) = (Vec::new(), limit(packed.len()));
    let decoder = decompress(packed, WINDOW_LOG).map_err(|error| damaged(&error))?;
    decoder.take(limit + 1).read_to_end(&mut plain).map_err(|error| damaged(&error))?;
    if plain.len() as u64 > limit {
        return Err(EngineError::corrupt("This file expands to more than a document may hold."));
    }
    Ok(plain)
}

/// Encrypts the output of a [`Packer`].
pub fn seal(packed: &[u8], password: &Secret) -> Result<Vec<u8>> {
    let sealed = KeyDerivation::default().seal(Vec::new(), password).and_then(|mut writer| {
        writer.write_all(packed)?;
        writer.finish()
    });
    sealed.map_err(|error| internal(&error))
}

/// Decrypts and expands a sealed document. A wrong password is distinguished from a damaged file.
pub fn open(sealed: &[u8], password: &Secret) -> Result<Vec<u8>> {
    let mut packed = Vec::new();
    let reader = KeyDerivation::default().open(sealed, password, WrittenBy::Anybody)?;
    reader.take(LIMIT).read_to_end(&mut packed).map_err(|error| damaged(&error))?;
    expand(&packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(plain: &[u8]) -> Vec<u8> {
        let mut packer = Packer::new().unwrap();
        packer.write_all(plain).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn a_sealed_document_opens_only_with_its_password() {
        let (password, plain) = (Secret::new("correct horse".to_owned()), b"all that somebody has".repeat(1000));
        let sealed = seal(&packed(&plain), &password).unwrap();
        assert!(sealed.starts_with(b"age-encryption.org/v1"), "standard tools open it");
        assert_eq!(open(&sealed, &password).unwrap(), plain);
        let wrong = open(&sealed, &Secret::new("correct hors".to_owned())).unwrap_err();
        assert_eq!(wrong.code, FailureCode::WrongPassword);
        for broken in [&sealed[..sealed.len() - 1], &sealed[..40], b"", b"rubbish"] {
            assert_eq!(open(broken, &password).unwrap_err().code, FailureCode::Corrupt);
        }
    }

    #[test]
    fn what_was_compressed_expands_and_rubbish_does_not() {
        assert_eq!(expand(&packed(b"abc")).unwrap(), b"abc");
        assert!(expand(b"abc").is_err());
    }

    #[test]
    fn a_small_file_does_not_expand_to_fill_the_memory() {
        let bomb = zstd::encode_all(io::repeat(b' ').take(256 << 20), 1).unwrap();
        assert!(bomb.len() < 64 << 10, "{}", bomb.len());
        assert_eq!(expand(&bomb).unwrap_err().code, FailureCode::Corrupt);
    }
}
