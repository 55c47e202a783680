//! Opens and creates repositories.

use holdfast_core::failure::FailureCode;
use holdfast_core::{Secret, Timestamp};
use holdfast_repository::{Config, Id, Key, KeyFile, RepositoryError, ScryptCost, Snapshot};

use super::place::{FileKind, Place, of_repository};
use crate::Engine;
use crate::error::{EngineError, Result};
use crate::file_cache::{Cache, CacheSettings};
use crate::known_keys::KnownKeys;

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
    pub shared: Shared<'a>,
}

/// What all repositories share.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub keys: &'a KnownKeys,
    /// Where local copies of files are kept, for those that may read them.
    pub cache: Option<&'a CacheSettings>,
}

impl<'a> Shared<'a> {
    /// For what reads everything from the destination.
    pub(super) fn of(engine: &'a Engine) -> Self {
        Self { keys: &engine.known_keys, cache: None }
    }

    /// For what may read local copies.
    pub(super) fn with_cache(engine: &'a Engine) -> Self {
        Self { cache: Some(&engine.settings.cache), ..Self::of(engine) }
    }
}

/// An open repository.
#[derive(Clone)]
pub(super) struct Repository {
    pub place: Place,
    pub key: Key,
    pub config: Config,
    pub cache: Option<Cache>,
}

impl Repository {
    /// Opens the repository with one of these passwords; `None` if there is no repository.
    pub(super) async fn open(place: &Place, passwords: &[Secret], shared: Shared<'_>) -> Result<Option<Self>> {
        let Some(sealed) = place.read_config().await? else { return Ok(None) };
        let (key, _) = find_key(place, passwords, &sealed, shared.keys).await?;
        let config = Config::unseal(&mut sealed.clone(), &key).map_err(of_repository)?;
        Ok(Some(Self { place: place.clone(), key, config, cache: Cache::of(shared.cache, &sealed) }))
    }

    /// Opens the repository, and removes the keys of earlier passwords, after writing one for the present password if
    /// there is none.
    pub(super) async fn open_as(place: &Place, opener: &Opener<'_>) -> Result<Option<Self>> {
        let Some(sealed) = place.read_config().await? else { return Ok(None) };
        let (present, keys) = (std::slice::from_ref(opener.password), opener.shared.keys);
        let known = match find_key(place, present, &sealed, keys).await {
            Err(error) if error.code == FailureCode::WrongPassword && !opener.earlier_passwords.is_empty() => {
                let (key, _) = find_key(place, opener.earlier_passwords, &sealed, keys).await?;
                write_key(place, &key, opener).await?
            }
            found => found?.1,
        };
        for earlier in opener.earlier_passwords {
            for _ in 0..MOST_KEYS {
                match find_key(place, std::slice::from_ref(earlier), &sealed, keys).await {
                    Ok((_, name)) if name != known => place.remove(FileKind::Key, &name).await?,
                    Err(error) if error.code != FailureCode::WrongPassword => return Err(error),
                    Ok(_) | Err(_) => break,
                }
            }
        }
        Self::open(place, present, opener.shared).await
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
        let sealed = config.seal(&key).map_err(of_repository)?;
        let cache = Cache::of(opener.shared.cache, &sealed);
        place.write_config(sealed).await?;
        Ok(Self { place: place.clone(), key, config, cache })
    }

    pub(super) async fn find_snapshot(&self, id: &Id) -> Result<Option<Snapshot>> {
        let json = self.place.read_json(FileKind::Snapshot, id, &self.key).await?;
        json.map(|json| Snapshot::from_json(&json).map_err(of_repository)).transpose()
    }
}

/// Writes a key file for the password, and returns its name.
async fn write_key(place: &Place, key: &Key, opener: &Opener<'_>) -> Result<Id> {
    let (key, password, hostname, now) = (key.clone(), opener.password.clone(), opener.hostname.to_owned(), opener.now);
    let seal = move || KeyFile::seal(&key, &password, ScryptCost::OURS, now.into(), &hostname)?.to_json();
    let file = opener.shared.keys.seal(seal).await?.map_err(of_repository)?;
    let name = Id::of(&file);
    place.write(FileKind::Key, &name, file.into()).await?;
    Ok(name)
}

/// The master key that opens the configuration, from a key file that one of the passwords opens, and the name of that.
async fn find_key(place: &Place, passwords: &[Secret], config: &[u8], keys: &KnownKeys) -> Result<(Key, Id)> {
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
            match keys.open(json, password).await? {
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
