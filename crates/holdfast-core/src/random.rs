//! Unguessable values. Everything random in Holdfast comes from the operating system through here.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::Secret;

/// Fills an array from the operating system's generator.
///
/// # Panics
/// If the system cannot provide randomness: nothing safe can be done then.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    getrandom::fill(&mut out).expect("the operating system gives random bytes");
    out
}

/// A secret with 256 random bits behind a prefix that people and scanners recognise.
pub fn token(prefix: &str) -> Secret {
    Secret::new(format!("{prefix}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes::<32>())))
}

/// What is stored of a random token: enough to recognise it, useless to whoever steals it.
pub fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Lower-case hexadecimal, for hashes that people see.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        write!(out, "{byte:02x}").expect("writing to a string");
        out
    })
}

/// The bytes that hexadecimal digits stand for.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    text.as_bytes().chunks(2).map(hex_byte).collect()
}

/// The byte that two hexadecimal digits stand for; a sign is not a digit.
pub fn hex_byte(pair: &[u8]) -> Option<u8> {
    let [high, low] = pair else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

/// Compares secrets in a time that does not depend on where they differ.
pub fn equal(left: &[u8], right: &[u8]) -> bool {
    subtle::ConstantTimeEq::ct_eq(left, right).into()
}
