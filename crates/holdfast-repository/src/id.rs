//! Names of files and blobs: the SHA-256 of their bytes.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The SHA-256 of a file as it is stored, or of a blob before it is compressed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Id([u8; 32]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id has 64 hexadecimal digits")]
pub struct InvalidId;

impl Id {
    pub fn of(bytes: &[u8]) -> Self {
        let mut id = Self::default();
        id.0.copy_from_slice(digest(&SHA256, bytes).as_ref());
        id
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

impl FromStr for Id {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(InvalidId);
        }
        let mut id = Self::default();
        for (byte, pair) in id.0.iter_mut().zip(digits.as_chunks::<2>().0) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(id)
    }
}

/// Only lower case, so that each id has one text.
fn digit(character: u8) -> Result<u8, InvalidId> {
    match character {
        b'0'..=b'9' => Ok(character - b'0'),
        b'a'..=b'f' => Ok(character - b'a' + 10),
        _ => Err(InvalidId),
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_exactly_one_text() {
        let id = Id::of(b"abc");
        assert_eq!(id.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "ba78", &id.to_string().to_uppercase(), &format!("{id}0"), &"g".repeat(64), &"ü".repeat(32)]
        {
            assert_eq!(wrong.parse::<Id>(), Err(InvalidId), "{wrong}");
        }
    }
}
