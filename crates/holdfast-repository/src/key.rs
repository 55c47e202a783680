//! Encryption of everything but key files: AES-256 in counter mode, and a Poly1305 code whose one-time key is made with
//! AES. A sealed message is a random nonce, the encrypted bytes, and the code of those.

use aes::Aes128;
use aes::cipher::{Block, BlockCipherEncrypt as _, KeyInit as _};
use aws_lc_rs::cipher::{
    AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use holdfast_core::random;
use poly1305::Poly1305;
use poly1305::universal_hash::UniversalHash as _;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use crate::{RepositoryError, Result};

const NONCE_BYTES: usize = 16;
const CODE_BYTES: usize = 16;
/// How much longer a sealed message is.
pub const SEAL_BYTES: usize = NONCE_BYTES + CODE_BYTES;

/// The master key of a repository, or one derived from a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    encrypt: [u8; 32],
    /// Makes a one-time key from a nonce.
    code_key: [u8; 16],
    /// The other half of every one-time key.
    code_point: [u8; 16],
}

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key")
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.encrypt.zeroize();
        self.code_key.zeroize();
        self.code_point.zeroize();
    }
}

/// A key as it is in a key file.
#[derive(Serialize, Deserialize)]
struct StoredKey {
    mac: StoredCodeKey,
    #[serde(with = "crate::go_text::base64")]
    encrypt: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct StoredCodeKey {
    #[serde(with = "crate::go_text::base64")]
    k: Vec<u8>,
    #[serde(with = "crate::go_text::base64")]
    r: Vec<u8>,
}

impl Drop for StoredKey {
    fn drop(&mut self) {
        self.encrypt.zeroize();
        self.mac.k.zeroize();
        self.mac.r.zeroize();
    }
}

impl Key {
    pub fn random() -> Self {
        Self::from_bytes(&Zeroizing::new(random::bytes()))
    }

    /// The key made of these bytes, which come from a key derivation.
    pub(crate) fn from_bytes(bytes: &[u8; 64]) -> Self {
        let mut key = Self { encrypt: [0; 32], code_key: [0; 16], code_point: [0; 16] };
        key.encrypt.copy_from_slice(&bytes[..32]);
        key.code_key.copy_from_slice(&bytes[32..48]);
        key.code_point.copy_from_slice(&bytes[48..]);
        clamp(&mut key.code_point);
        key
    }

    /// The key as JSON, as restic stores it and as the database keeps it, sealed.
    pub fn to_json(&self) -> Zeroizing<Vec<u8>> {
        let stored = StoredKey {
            mac: StoredCodeKey { k: self.code_key.to_vec(), r: self.code_point.to_vec() },
            encrypt: self.encrypt.to_vec(),
        };
        Zeroizing::new(serde_json::to_vec(&stored).unwrap_or_default())
    }

    pub fn from_json(json: &[u8]) -> Result<Self> {
        let wrong = || RepositoryError::damaged("The master key of this repository is damaged.");
        let stored: StoredKey = serde_json::from_slice(json).map_err(|_| wrong())?;
        let mut key = Self { encrypt: [0; 32], code_key: [0; 16], code_point: [0; 16] };
        let parts: [(&mut [u8], &[u8]); 3] = [
            (&mut key.encrypt, &stored.encrypt),
            (&mut key.code_key, &stored.mac.k),
            (&mut key.code_point, &stored.mac.r),
        ];
        for (part, bytes) in parts {
            if part.len() != bytes.len() {
                return Err(wrong());
            }
            part.copy_from_slice(bytes);
        }
        clamp(&mut key.code_point);
        Ok(key)
    }

    /// Seals what `message` has from `from` on, in place: a nonce is put before it and a code behind it.
    pub fn seal_from(&self, message: &mut Vec<u8>, from: usize) -> Result<()> {
        let nonce: [u8; NONCE_BYTES] = random::bytes();
        let length = message.len() - from;
        message.resize(message.len() + SEAL_BYTES, 0);
        message.copy_within(from..from + length, from + NONCE_BYTES);
        message[from..from + NONCE_BYTES].copy_from_slice(&nonce);
        let body = from + NONCE_BYTES..from + NONCE_BYTES + length;
        let cipher = EncryptingKey::ctr(self.cipher_key()?).map_err(|_| failed())?;
        let context = EncryptionContext::Iv128(FixedLength::from(nonce));
        cipher.less_safe_encrypt(&mut message[body.clone()], context).map_err(|_| failed())?;
        let code = self.code(&nonce, &message[body.clone()]);
        message[body.end..].copy_from_slice(&code);
        Ok(())
    }

    pub fn seal(&self, plain: &[u8]) -> Result<Vec<u8>> {
        let mut message = Vec::with_capacity(plain.len() + SEAL_BYTES);
        message.extend_from_slice(plain);
        self.seal_from(&mut message, 0)?;
        Ok(message)
    }

    /// Opens a sealed message in place and returns its content. Nothing is decrypted unless the code is right.
    pub fn open<'a>(&self, sealed: &'a mut [u8]) -> Result<&'a [u8]> {
        let changed = || RepositoryError::damaged("The encrypted bytes are not the ones that were written.");
        let (nonce, rest) = sealed.split_first_chunk_mut::<NONCE_BYTES>().ok_or_else(changed)?;
        let (body, code) = rest.split_last_chunk_mut::<CODE_BYTES>().ok_or_else(changed)?;
        if !random::equal(&self.code(nonce, body), code) {
            return Err(changed());
        }
        let cipher = DecryptingKey::ctr(self.cipher_key()?).map_err(|_| failed())?;
        let context = DecryptionContext::Iv128(FixedLength::from(*nonce));
        cipher.decrypt(body, context).map_err(|_| failed())?;
        Ok(body)
    }

    fn cipher_key(&self) -> Result<UnboundCipherKey> {
        UnboundCipherKey::new(&AES_256, &self.encrypt).map_err(|_| failed())
    }

    fn code(&self, nonce: &[u8; NONCE_BYTES], body: &[u8]) -> [u8; CODE_BYTES] {
        let mut mask = Block::<Aes128>::from(*nonce);
        Aes128::new(&self.code_key.into()).encrypt_block(&mut mask);
        let mut one_time = Zeroizing::new([0; 32]);
        one_time[..16].copy_from_slice(&self.code_point);
        one_time[16..].copy_from_slice(&mask);
        let mut code = Poly1305::new(&(*one_time).into());
        let (blocks, rest) = poly1305::Block::slice_as_chunks(body);
        code.update(blocks);
        code.compute_unpadded(rest).into()
    }
}

fn failed() -> RepositoryError {
    RepositoryError::Unsupported("The cipher of repositories does not work on this machine.".to_owned())
}

/// Poly1305 ignores these bits; restic stores keys without them.
fn clamp(point: &mut [u8; 16]) {
    for index in [3, 7, 11, 15] {
        point[index] &= 0x0f;
    }
    for index in [4, 8, 12] {
        point[index] &= 0xfc;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_and_nothing_else_does() {
        let key = Key::random();
        for length in [0, 1, 15, 16, 17, 1000, 100_000] {
            let plain = vec![7; length];
            let sealed = key.seal(&plain).unwrap();
            assert_eq!(sealed.len(), length + SEAL_BYTES);
            assert_eq!(key.open(&mut sealed.clone()).unwrap(), plain);
            for place in [0, 15, 16, sealed.len() / 2, sealed.len() - 1] {
                let mut changed = sealed.clone();
                changed[place] ^= 1;
                assert!(key.open(&mut changed).is_err(), "byte {place} of {length}");
            }
            assert!(key.open(&mut sealed[..sealed.len() - 1].to_vec()).is_err());
            assert!(Key::random().open(&mut sealed.clone()).is_err());
        }
        assert!(key.open(&mut [0; SEAL_BYTES - 1]).is_err());
        assert_ne!(key.seal(b"same").unwrap(), key.seal(b"same").unwrap(), "a nonce is used once");
    }

    #[test]
    fn sealing_leaves_what_is_before_it() {
        let key = Key::random();
        let mut message = b"before, after".to_vec();
        key.seal_from(&mut message, 8).unwrap();
        let (before, sealed) = message.split_at_mut(8);
        assert_eq!(before, b"before, ");
        assert_eq!(key.open(sealed).unwrap(), b"after");
    }

    #[test]
    fn a_key_survives_its_text() {
        let key = Key::random();
        assert_eq!(Key::from_json(&key.to_json()).unwrap(), key);
        for wrong in ["", "{}", r#"{"mac":{"k":"AA==","r":"AA=="},"encrypt":"AA=="}"#] {
            assert!(Key::from_json(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
