//! Key files: the master key, sealed with a key derived from a password. Each password of a repository has one.

use holdfast_core::{Secret, random};
use scrypt::{Params, scrypt};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::key::Key;
use crate::time::GoTime;
use crate::{RepositoryError, Result};

const KDF: &str = "scrypt";
const SALT_BYTES: usize = 64;

/// The work of deriving a key from a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScryptCost {
    /// A power of two.
    pub log_n: u8,
    pub r: u32,
    pub p: u32,
}

impl ScryptCost {
    /// 32 MiB of memory for a tenth of a second, and the least that restic uses itself.
    pub const OURS: Self = Self { log_n: 15, r: 8, p: 1 };
    /// The most that is done for a key file that somebody else has written: 256 MiB. restic uses up to 2^17 or so, as
    /// far as a machine manages in half a second.
    const MOST_MEMORY_BYTES: u64 = 256 * 1024 * 1024;
    const MOST_WORK_BYTES: u64 = 1024 * 1024 * 1024;

    fn of_file(file: &KeyFile) -> Option<Self> {
        let log_n = u8::try_from(file.n.checked_ilog2()?).ok()?;
        let cost = Self { log_n, r: file.r, p: file.p };
        let memory = 128_u64.checked_mul(u64::from(file.r))?.checked_mul(file.n)?;
        let work = memory.checked_mul(u64::from(file.p))?;
        let is_bearable = memory <= Self::MOST_MEMORY_BYTES && work <= Self::MOST_WORK_BYTES && file.p > 0;
        (file.n.is_power_of_two() && log_n > 0 && file.r > 0 && is_bearable).then_some(cost)
    }
}

/// A file below `keys/`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyFile {
    pub created: GoTime,
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    pub hostname: String,
    kdf: String,
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
    #[serde(with = "crate::go_text::base64")]
    salt: Vec<u8>,
    #[serde(with = "crate::go_text::base64")]
    data: Vec<u8>,
}

impl KeyFile {
    /// Seals `master` with a password, which takes as long and as much memory as `cost` says.
    pub fn seal(master: &Key, password: &Secret, cost: ScryptCost, created: GoTime, hostname: &str) -> Result<Self> {
        let salt = random::bytes::<SALT_BYTES>().to_vec();
        let data = derive(password, &salt, cost)?.seal(&master.to_json())?;
        Ok(Self {
            created,
            username: "holdfast".to_owned(),
            hostname: hostname.to_owned(),
            kdf: KDF.to_owned(),
            n: 1 << cost.log_n,
            r: cost.r,
            p: cost.p,
            salt,
            data,
        })
    }

    pub fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| RepositoryError::damaged(error.to_string()))
    }

    pub fn from_json(json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json)
            .map_err(|error| RepositoryError::damaged(format!("A key file of this repository is damaged: {error}.")))
    }

    /// How many bytes its derivation writes into memory, which takes a second for each gigabyte or two.
    pub fn work_bytes(&self) -> u64 {
        let of = |cost: ScryptCost| (128 * u64::from(cost.r) * u64::from(cost.p)) << cost.log_n;
        ScryptCost::of_file(self).map_or(0, of)
    }

    /// The master key, if this is the file of the password.
    pub fn open(&self, password: &Secret) -> Result<Key> {
        if self.kdf != KDF {
            return Err(RepositoryError::Unsupported(format!("Keys derived with {} are not supported.", self.kdf)));
        }
        let Some(cost) = ScryptCost::of_file(self) else {
            let message = "A key file of this repository asks for more work than any that restic writes.";
            return Err(RepositoryError::Unsupported(message.to_owned()));
        };
        let derived = derive(password, &self.salt, cost)?;
        let mut data = Zeroizing::new(self.data.clone());
        let json = derived.open(&mut data).map_err(|_| RepositoryError::WrongPassword)?;
        Key::from_json(json)
    }
}

fn derive(password: &Secret, salt: &[u8], cost: ScryptCost) -> Result<Key> {
    let refused =
        |_| RepositoryError::Unsupported("The key derivation of this repository is not supported.".to_owned());
    let params = Params::new(cost.log_n, cost.r, cost.p).map_err(|_| refused(()))?;
    let mut bytes = Zeroizing::new([0; 64]);
    scrypt(password.reveal().as_bytes(), salt, &params, &mut *bytes).map_err(|_| refused(()))?;
    Ok(Key::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: ScryptCost = ScryptCost { log_n: 4, r: 1, p: 1 };

    fn password(text: &str) -> Secret {
        Secret::new(text)
    }

    #[test]
    fn only_the_password_opens_a_key_file() {
        let master = Key::random();
        let file = KeyFile::seal(&master, &password("secret"), CHEAP, GoTime::default(), "host").unwrap();
        let file = KeyFile::from_json(&file.to_json().unwrap()).unwrap();
        assert_eq!(file.open(&password("secret")).unwrap(), master);
        assert_eq!(file.open(&password("Secret")).unwrap_err(), RepositoryError::WrongPassword);
    }

    #[test]
    fn a_key_file_cannot_ask_for_any_amount_of_work() {
        let good = KeyFile::seal(&Key::random(), &password("a"), CHEAP, GoTime::default(), "").unwrap();
        for (n, r, p) in [
            (1 << 30, 8, 1),
            (1 << 15, 1 << 30, 1),
            (1 << 15, 8, 1_000_000),
            (0, 8, 1),
            (3, 8, 1),
            (16, 0, 1),
            (16, 1, 0),
            (1, 1, 1),
            (u64::MAX, 8, 1),
        ] {
            let file = KeyFile { n, r, p, ..good.clone() };
            assert!(matches!(file.open(&password("a")), Err(RepositoryError::Unsupported(_))), "{n} {r} {p}");
        }
        assert!(ScryptCost::of_file(&KeyFile { n: 1 << 17, r: 8, p: 1, ..good }).is_some());
    }
}
