//! SHA-256 of the bytes that are moved. The assembly of AWS-LC needs half the time of portable code on processors
//! without instructions for it, and is in the binary for TLS and SSH anyway.
use std::fmt;

use aws_lc_rs::digest::{self, Context, SHA256};
use holdfast_core::random;

pub(crate) type Digest = [u8; 32];

#[derive(Clone)]
pub(crate) struct Sha256(Context);

impl Default for Sha256 {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sha256")
    }
}

impl Sha256 {
    pub(crate) fn of(bytes: &[u8]) -> Digest {
        sized(&digest::digest(&SHA256, bytes))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        sized(&self.0.finish())
    }

    /// Of everything so far.
    pub(crate) fn hex(&self) -> String {
        random::hex(&self.clone().finish())
    }
}

fn sized(digest: &digest::Digest) -> Digest {
    let mut sized = Digest::default();
    sized.copy_from_slice(digest.as_ref());
    sized
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the examples of FIPS 180-4.
    #[test]
    fn known_digests() {
        let mut hash = Sha256::default();
        assert_eq!(hash.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        hash.update(b"a");
        hash.update(b"bc");
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.hex(), expected);
        assert_eq!(random::hex(&hash.finish()), expected);
        assert_eq!(random::hex(&Sha256::of(b"abc")), expected);
    }
}
