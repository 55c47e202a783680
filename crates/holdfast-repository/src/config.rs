//! The file `config`: the version, the id of the repository, and the polynomial of its chunks.

use holdfast_core::random;
use serde::{Deserialize, Serialize};

use crate::chunker::Polynomial;
use crate::id::Id;
use crate::key::Key;
use crate::{RepositoryError, Result};

const VERSION: u32 = 2;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    version: u32,
    pub id: Id,
    pub chunker_polynomial: Polynomial,
}

impl Config {
    /// The configuration of a new repository.
    pub fn random() -> Self {
        let chunker_polynomial = Polynomial::random(|| u64::from_le_bytes(random::bytes()));
        Self { version: VERSION, id: Id::from_bytes(random::bytes()), chunker_polynomial }
    }

    /// The bytes of the file. They are never compressed.
    pub fn seal(&self, key: &Key) -> Result<Vec<u8>> {
        key.seal(&serde_json::to_vec(self).map_err(|error| RepositoryError::damaged(error.to_string()))?)
    }

    pub fn unseal(sealed: &mut [u8], key: &Key) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let damaged =
            |error| RepositoryError::damaged(format!("The configuration of this repository is damaged: {error}."));
        let json = key.open(sealed)?;
        let Version { version } = serde_json::from_slice(json).map_err(damaged)?;
        if version != VERSION {
            let advice = if version < VERSION { "; `restic migrate upgrade_repo_v2` upgrades it" } else { "" };
            let message =
                format!("This repository has version {version} of the format, and version 2 is supported{advice}.");
            return Err(RepositoryError::Unsupported(message));
        }
        serde_json::from_slice(json).map_err(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_survives_its_file_and_other_versions_are_refused() {
        let (key, config) = (Key::random(), Config::random());
        assert_eq!(Config::unseal(&mut config.seal(&key).unwrap(), &key).unwrap(), config);
        for version in [1, 3] {
            let other = Config { version, ..config.clone() };
            let refused = Config::unseal(&mut other.seal(&key).unwrap(), &key).unwrap_err();
            assert!(matches!(refused, RepositoryError::Unsupported(_)), "{refused}");
        }
    }
}
