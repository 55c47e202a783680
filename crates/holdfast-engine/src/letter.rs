//! Small documents at rest: compressed, and with a password encrypted, so that `age -d | zstd -d` opens what we wrote.

use std::io::{self, Read as _, Write as _};

use holdfast_core::Secret;
use holdfast_core::run::FailureCode;

use crate::archive::KeyTurn;
use crate::error::{EngineError, Result};

/// A document is held in memory; none of ours comes near this.
const LIMIT: u64 = 1 << 30;
const LEVEL: i32 = 6;

fn damaged(error: &io::Error) -> EngineError {
    EngineError::corrupt(format!("This file cannot be read to its end: {error}"))
}

pub fn compress(plain: &[u8]) -> Result<Vec<u8>> {
    if plain.len() as u64 > LIMIT {
        return Err(EngineError::new(FailureCode::Internal, "There is more than one document can hold."));
    }
    let packed = zstd::stream::encode_all(plain, LEVEL);
    packed.map_err(|error| EngineError::new(FailureCode::Internal, error.to_string()))
}

pub fn expand(packed: &[u8]) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    let decoder = zstd::stream::Decoder::new(packed).map_err(|error| damaged(&error))?;
    decoder.take(LIMIT + 1).read_to_end(&mut plain).map_err(|error| damaged(&error))?;
    if plain.len() as u64 > LIMIT {
        return Err(EngineError::corrupt("This file expands to more than a document of ours has."));
    }
    Ok(plain)
}

/// Compressed, and encrypted with the password.
pub fn seal(plain: &[u8], password: &Secret) -> Result<Vec<u8>> {
    let packed = compress(plain)?;
    let sealed = KeyTurn::default().seal(Vec::new(), password).and_then(|mut writer| {
        writer.write_all(&packed)?;
        writer.finish()
    });
    sealed.map_err(|error| EngineError::new(FailureCode::Internal, error.to_string()))
}

/// What `seal` was given. A wrong password is told apart from a damaged file.
pub fn open(sealed: &[u8], password: &Secret) -> Result<Vec<u8>> {
    let mut packed = Vec::new();
    let reader = KeyTurn::default().open(sealed, password)?;
    reader.take(LIMIT).read_to_end(&mut packed).map_err(|error| damaged(&error))?;
    expand(&packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_with_its_password_alone() {
        let (password, plain) = (Secret::new("correct horse".to_owned()), b"all that somebody has".repeat(1000));
        let sealed = seal(&plain, &password).unwrap();
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
        assert_eq!(expand(&compress(b"abc").unwrap()).unwrap(), b"abc");
        assert!(expand(b"abc").is_err());
    }
}
