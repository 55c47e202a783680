//! Decrypts values of Laravel: base64 of JSON with an initialisation vector, an AES-256-CBC ciphertext, and an HMAC.

use std::path::Path;

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockModeDecrypt as _, KeyIvInit as _};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_core::random;
use serde_json::Value;
use sha2::Sha256;

use crate::failure::Failure;

/// The maximum number of encryption layers. Vanguard encrypted some values twice.
const LAYERS: usize = 3;

/// The application key and previous ones.
#[derive(Default)]
pub struct Keys(Vec<[u8; 32]>);

impl Keys {
    /// Reads Vanguard's `.env`, or a file that contains only the key.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::io(&error, path))?;
        let named = |name: &str| {
            let value = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
            value.map(|value| value.trim().trim_matches(['"', '\'']).to_owned())
        };
        let all = match named("APP_KEY") {
            Some(key) => [key, named("APP_PREVIOUS_KEYS").unwrap_or_default()].join(","),
            None => text.trim().to_owned(),
        };
        let keys: Option<Vec<[u8; 32]>> = all.split(',').filter(|key| !key.is_empty()).map(parse).collect();
        match keys {
            Some(keys) if !keys.is_empty() => Ok(Self(keys)),
            _ => Err(Failure::settings(format!("{} does not contain Vanguard's APP_KEY", path.display()))),
        }
    }

    /// Decrypts a value. A value that is not encrypted is returned as it is, because older versions did not encrypt.
    pub fn open(&self, text: &str) -> Result<String, String> {
        let mut text = text.to_owned();
        for _ in 0..LAYERS {
            let Some(payload) = payload(&text) else { return Ok(text) };
            if self.0.is_empty() {
                return Err("it is encrypted; pass Vanguard's .env with --app-key-file".to_owned());
            }
            let opened = self.0.iter().find_map(|key| decrypt(key, &payload));
            text = opened.ok_or("the application key does not open it")?;
        }
        Ok(text)
    }
}

fn parse(text: &str) -> Option<[u8; 32]> {
    let bytes = match text.strip_prefix("base64:") {
        Some(encoded) => BASE64_STANDARD.decode(encoded).ok()?,
        None => text.as_bytes().to_vec(),
    };
    bytes.try_into().ok()
}

fn payload(text: &str) -> Option<Value> {
    let decoded = BASE64_STANDARD.decode(text).ok()?;
    let payload: Value = serde_json::from_slice(&decoded).ok()?;
    let is_whole = ["iv", "value", "mac"].iter().all(|name| payload[*name].is_string());
    is_whole.then_some(payload)
}

fn decrypt(key: &[u8; 32], payload: &Value) -> Option<String> {
    let text = |name: &str| payload[name].as_str().unwrap_or_default();
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(text("iv").as_bytes());
    mac.update(text("value").as_bytes());
    mac.verify_slice(&random::from_hex(text("mac"))?).ok()?;
    let iv: [u8; 16] = BASE64_STANDARD.decode(text("iv")).ok()?.try_into().ok()?;
    let mut body = BASE64_STANDARD.decode(text("value")).ok()?;
    let plain = cbc::Decryptor::<aes::Aes256>::new(key.into(), &iv.into()).decrypt_padded::<Pkcs7>(&mut body).ok()?;
    String::from_utf8(plain.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generated with `openssl enc -aes-256-cbc` and Python's HMAC, combined as in Laravel.
    const ONCE: &str = "eyJpdiI6IkFBRUNBd1FGQmdjSUNRb0xEQTBPRHc9PSIsInZhbHVlIjoiVjJsaU1hdHJSY1dLakw4aWV0Y09RUT09IiwibWFjIjoiNGMzYmRkYzFmMzRlNGM4ZjBlMDc3YmViYTNkMzQyOWJjZmQ4Y2FhMmFmMTFmMzNlNmViZmY2MjRiMWQyNGNhZCIsInRhZyI6IiJ9";
    const TWICE: &str = "eyJpdiI6IkVCRVNFeFFWRmhjWUdSb2JIQjBlSHc9PSIsInZhbHVlIjoiMGlOL3pxMVZlbVgzVngyK25uSk9JeG0xUnUwbk5hNzk3UEpQOXpJb0MzRjJabFhEZFV3ZXVsRDl1ZEZ3bEMrRENNaElGRldHWFdCTUo2cmh3Q2xRUHpzamgwTDY1N2FkdVlENTdTRURHUHFDcHVyQmc2aVA3UjV1QVlaSE5QaEV2Znp5U2MvNkRyU3JqMU9RUmVFbVd6MEdPMEFPa04vUEpaSWQwVXY1MThHSGxkTGlZRUZxSTcvMndoYXFuR2tLeEhkT09NZE9yWkRnOVMrTTBscHRZOXF0Qi8zayt2c0x6WTIxT256ZkRCV0RvQUZ5c29nZlVQUHlUamRVRWl5dkU4b05nWWt0MUhCR3RhejJGaGx3SUE9PSIsIm1hYyI6IjhkMmRhODJiYzI1NzJlYTgwOTFiN2JhMTcxMTc5NDMxNTA5NGJlMGUyMjUyMDFlYzYzMTBlMmM0NTZiY2ExYWEiLCJ0YWciOiIifQ==";

    fn keys(text: &str) -> Result<Keys, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Keys::read(file.path()).map_err(|failure| failure.message)
    }

    #[test]
    fn values_encrypted_by_laravel_are_decrypted() {
        let env = "APP_NAME=Vanguard\nAPP_KEY=base64:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n";
        let previous = "APP_KEY=\"base64:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\"\n\
                        APP_PREVIOUS_KEYS=base64:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
        for text in [env, previous, "0123456789abcdef0123456789abcdef\n"] {
            let keys = keys(text).unwrap();
            for sealed in [ONCE, TWICE, "AKIAEXAMPLE"] {
                assert_eq!(keys.open(sealed).unwrap(), "AKIAEXAMPLE");
            }
        }
    }

    #[test]
    fn a_wrong_or_missing_key_is_reported() {
        assert!(Keys::default().open(ONCE).unwrap_err().contains("--app-key-file"));
        let other = keys("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA").unwrap();
        assert!(other.open(ONCE).unwrap_err().contains("does not open"));
        assert!(keys("APP_KEY=\n").is_err() && keys("short").is_err());
    }
}
