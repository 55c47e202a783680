//! Opens and creates repositories.

use holdfast_core::failure::FailureCode;
use holdfast_core::{Secret, Timestamp};
use holdfast_repository::{Config, Id, Key, KeyFile, RepositoryError, ScryptCost, Snapshot};

use super::place::{FileKind, Place, of_repository};
use crate::archive::KeyDerivation;
use crate::error::{EngineError, Result};
use crate::thread::on_thread;

/// How many keys are tried with a password. Each takes a tenth of a second and 32 MiB, or more if restic wrote it.
const MOST_KEYS: usize = 20;

/// How much all keys together may have scrypt write into memory: that of restic writes a third of a gigabyte.
const MOST_WORK_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// Who opens or creates a repository, and with what.
pub(super) struct Opener<'a> {
    pub password: &'a Secret,
    pub earlier_passwords: &'a [Secret],
    pub hostname: &'a str,
    pub now: Timestamp,
    pub key_derivation: &'a KeyDerivation,
}

/// An open repository.
#[derive(Clone)]
pub(super) struct Repository {
    pub place: Place,
    pub key: Key,
    pub config: Config,
}

impl Repository {
    /// Opens the repository with one of these passwords; `None` if there is no repository.
    pub(super) async fn open(
        place: &Place,
        passwords: &[Secret],
        key_derivation: &KeyDerivation,
    ) -> Result<Option<Self>> {
        let Some(sealed) = place.read_config().await? else { return Ok(None) };
        let (key, _) = find_key(place, passwords, &sealed, key_derivation).await?;
        let config = Config::unseal(&mut sealed.clone(), &key).map_err(of_repository)?;
        Ok(Some(Self { place: place.clone(), key, config }))
    }

    /// Opens the repository, after replacing the key of an earlier password if only that opens it.
    pub(super) async fn open_as(place: &Place, opener: &Opener<'_>) -> Result<Option<Self>> {
        let password = std::slice::from_ref(opener.password);
        let opened = Self::open(place, password, opener.key_derivation).await;
        let is_refused = matches!(&opened, Err(error) if error.code == FailureCode::WrongPassword);
        if !is_refused || opener.earlier_passwords.is_empty() {
            return opened;
        }
        let Some(sealed) = place.read_config().await? else { return Ok(None) };
        let (key, name) = find_key(place, opener.earlier_passwords, &sealed, opener.key_derivation).await?;
        write_key(place, &key, opener).await?;
        place.remove(FileKind::Key, &name).await?;
        Self::open(place, password, opener.key_derivation).await
    }

    /// Creates a repository with one key. The configuration is written last: without it there is no repository.
    pub(super) async fn create(place: &Place, opener: &Opener<'_>) -> Result<Self> {
        // What is there may be all that is left of the backups, and another key would make it useless.
        for kind in [FileKind::Snapshot, FileKind::Index, FileKind::Pack] {
            if !place.list(kind).await?.is_empty() {
                let message = "The repository has lost its configuration, the file config. Put back a copy of it, or set \
                               another folder for the task to begin a new repository.";
                return Err(EngineError::corrupt(message));
            }
        }
        // A run that was lost while it created the repository may have left a key.
        for id in place.list(FileKind::Key).await? {
            place.remove(FileKind::Key, &id).await?;
        }
        let (key, config) = (Key::random(), Config::random());
        write_key(place, &key, opener).await?;
        place.write_config(config.seal(&key).map_err(of_repository)?).await?;
        Ok(Self { place: place.clone(), key, config })
    }

    pub(super) async fn find_snapshot(&self, id: &Id) -> Result<Option<Snapshot>> {
        let json = self.place.read_json(FileKind::Snapshot, id, &self.key).await?;
        json.map(|json| Snapshot::from_json(&json).map_err(of_repository)).transpose()
    }
}

/// Writes a key file for the password.
async fn write_key(place: &Place, key: &Key, opener: &Opener<'_>) -> Result<()> {
    let (key, password, hostname) = (key.clone(), opener.password.clone(), opener.hostname.to_owned());
    let (key_derivation, now) = (opener.key_derivation.clone(), opener.now);
    let seal = move || KeyFile::seal(&key, &password, ScryptCost::OURS, now.into(), &hostname)?.to_json();
    let file = on_thread(move || key_derivation.take(seal).map_err(of_repository)).await?;
    place.write(FileKind::Key, &Id::of(&file), file.into()).await
}

/// The master key that opens the configuration, from a key file that one of the passwords opens, and the name of that.
async fn find_key(
    place: &Place,
    passwords: &[Secret],
    config: &[u8],
    key_derivation: &KeyDerivation,
) -> Result<(Key, Id)> {
    let mut files = Vec::new();
    for name in place.list(FileKind::Key).await?.into_iter().take(MOST_KEYS) {
        match place.read(FileKind::Key, &name).await {
            // Too long to be a key.
            Err(error) if error.code == FailureCode::Corrupt => {}
            json => files.extend(json?.map(|json| (name, json))),
        }
    }
    let (mut refused, mut work) = (None, 0_u64);
    for password in passwords {
        for (name, json) in &files {
            // Others wait for their turn meanwhile.
            work = work.saturating_add(KeyFile::from_json(json).map_or(0, |file| file.work_bytes()));
            if work > MOST_WORK_BYTES {
                let message = "The keys of the repository ask for more work than any repository needs.";
                return Err(EngineError::new(FailureCode::NotSupported, message));
            }
            let (json, password, key_derivation) = (json.clone(), password.clone(), key_derivation.clone());
            let opened = on_thread(move || {
                let file = KeyFile::from_json(&json);
                Ok(file.and_then(|file| key_derivation.take(|| file.open(&password))))
            });
            match opened.await? {
                Ok(key) => match Config::unseal(&mut config.to_vec(), &key) {
                    Ok(_) => return Ok((key, *name)),
                    Err(error) => refused = Some(error),
                },
                // Another password, or a file that something else has damaged; one of the others may open.
                Err(error) => {
                    refused = Some(refused.filter(|known| *known == RepositoryError::WrongPassword).unwrap_or(error));
                }
            }
        }
    }
    Err(refused.map_or_else(|| EngineError::corrupt("The repository has no key."), of_repository))
}
