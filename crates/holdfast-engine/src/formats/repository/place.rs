//! Where the files of a repository are at its destination, and how each of them is read and written.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_core::failure::FailureCode;
use holdfast_repository::{Id, Key, RepositoryError, seal_json, unseal};
use serde::Serialize;

use crate::destination::{BlobStore, ListedObject, put_confirmed};
use crate::error::{EngineError, Result};

/// The longest pack or index that is read as a whole: many times what either has.
const LONG_BYTES: u64 = 256 * 1024 * 1024;
/// The longest snapshot: its excludes and paths may be many.
const SNAPSHOT_BYTES: u64 = 16 * 1024 * 1024;
/// The longest of the other files, which have less than a kilobyte.
const SHORT_BYTES: u64 = 64 * 1024;
/// How many files of one kind a repository may have. Ten terabytes are less than a million packs.
const MOST_FILES: usize = 4_000_000;

/// The kinds of files that are named after the hash of their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    Index,
    Key,
    Lock,
    Pack,
    Snapshot,
}

impl FileKind {
    const fn most_bytes(self) -> u64 {
        match self {
            Self::Index | Self::Pack => LONG_BYTES,
            Self::Snapshot => SNAPSHOT_BYTES,
            Self::Key | Self::Lock => SHORT_BYTES,
        }
    }

    const fn folder(self) -> &'static str {
        match self {
            Self::Index => "index/",
            Self::Key => "keys/",
            Self::Lock => "locks/",
            Self::Pack => "data/",
            Self::Snapshot => "snapshots/",
        }
    }
}

/// A folder of a destination that holds a repository.
#[derive(Clone)]
pub(super) struct Place {
    store: Arc<dyn BlobStore>,
    /// Before the names of all files; empty, or with a slash at its end.
    prefix: String,
}

impl Place {
    pub(super) fn new(store: Arc<dyn BlobStore>, folder: &str) -> Self {
        let folder = folder.trim_matches('/');
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        Self { store, prefix }
    }

    fn config_key(&self) -> String {
        format!("{}config", self.prefix)
    }

    pub(super) fn key_of(&self, kind: FileKind, id: &Id) -> String {
        let (prefix, folder, name) = (&self.prefix, kind.folder(), id.to_string());
        match kind {
            FileKind::Pack => format!("{prefix}{folder}{}/{name}", &name[..2]),
            FileKind::Index | FileKind::Key | FileKind::Lock | FileKind::Snapshot => format!("{prefix}{folder}{name}"),
        }
    }

    /// The configuration as it is stored; `None` if there is no repository.
    pub(super) async fn read_config(&self) -> Result<Option<Vec<u8>>> {
        self.read_key(&self.config_key(), SHORT_BYTES).await
    }

    /// Removes the configuration: there is no repository any more.
    pub(super) async fn remove_config(&self) -> Result<()> {
        self.store.remove(&self.config_key()).await
    }

    pub(super) async fn write_config(&self, sealed: Vec<u8>) -> Result<()> {
        put_confirmed(&self.store, &self.config_key(), sealed.into()).await
    }

    /// Writes a file that is not there, named after its bytes.
    pub(super) async fn write(&self, kind: FileKind, id: &Id, bytes: Bytes) -> Result<()> {
        put_confirmed(&self.store, &self.key_of(kind, id), bytes).await
    }

    /// Seals and writes a file of JSON, and returns its name.
    pub(super) async fn write_json(&self, kind: FileKind, value: &(impl Serialize + Sync), key: &Key) -> Result<Id> {
        let (id, bytes) = seal_json(value, key).map_err(of_repository)?;
        self.write(kind, &id, bytes.into()).await?;
        Ok(id)
    }

    /// Reads a file as it is stored; `None` if it is not there.
    pub(super) async fn read(&self, kind: FileKind, id: &Id) -> Result<Option<Vec<u8>>> {
        self.read_key(&self.key_of(kind, id), kind.most_bytes()).await
    }

    /// Reads and opens a file of JSON; `None` if it is not there.
    pub(super) async fn read_json(&self, kind: FileKind, id: &Id, key: &Key) -> Result<Option<Vec<u8>>> {
        let Some(mut sealed) = self.read(kind, id).await? else { return Ok(None) };
        unseal(&mut sealed, Some(*id), key).map(Some).map_err(of_repository)
    }

    async fn read_key(&self, key: &str, most: u64) -> Result<Option<Vec<u8>>> {
        match self.store.stat(key).await? {
            Some(stat) => self.read_sized_key(key, stat.size, most).await,
            None => Ok(None),
        }
    }

    /// The size of a file; `None` if it is not there.
    pub(super) async fn size(&self, kind: FileKind, id: &Id) -> Result<Option<u64>> {
        Ok(self.store.stat(&self.key_of(kind, id)).await?.map(|stat| stat.size))
    }

    /// Reads a file whose size is known; `None` if it is not there.
    pub(super) async fn read_sized(&self, kind: FileKind, id: &Id, size: u64) -> Result<Option<Vec<u8>>> {
        self.read_sized_key(&self.key_of(kind, id), size, kind.most_bytes()).await
    }

    async fn read_sized_key(&self, key: &str, size: u64, most: u64) -> Result<Option<Vec<u8>>> {
        if size > most {
            let message = format!("{key} has {size} bytes, more than such a file can have.");
            return Err(EngineError::corrupt(message));
        }
        match self.store.read(key, 0..size).await {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) if error.code == FailureCode::Missing => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a part of a pack.
    pub(super) async fn read_range(&self, pack: &Id, range: std::ops::Range<u64>) -> Result<Bytes> {
        self.store.read(&self.key_of(FileKind::Pack, pack), range).await
    }

    /// The names of all files of a kind. Whatever else is there is not ours to judge, and left out.
    pub(super) async fn list(&self, kind: FileKind) -> Result<Vec<Id>> {
        Ok(self.list_sizes(kind).await?.into_iter().map(|(id, _)| id).collect())
    }

    /// The same with the sizes, where the destination tells them.
    pub(super) async fn list_sizes(&self, kind: FileKind) -> Result<Vec<(Id, Option<u64>)>> {
        let folder = format!("{}{}", self.prefix, kind.folder());
        let objects = self.store.list_objects(&folder, MOST_FILES).await?;
        if objects.len() >= MOST_FILES {
            let message = format!("{folder} has more than {MOST_FILES} files, more than a repository can have.");
            return Err(EngineError::new(FailureCode::NotSupported, message));
        }
        let named = |object: ListedObject| Some((object.key.rsplit('/').next()?.parse().ok()?, object.size));
        Ok(objects.into_iter().filter_map(named).collect())
    }

    /// Removes a file; one that is not there is not an error.
    pub(super) async fn remove(&self, kind: FileKind, id: &Id) -> Result<()> {
        self.store.remove(&self.key_of(kind, id)).await
    }
}

/// What is wrong with a repository, as an error of a run.
#[expect(clippy::needless_pass_by_value, reason = "the signature that map_err needs")]
pub(super) fn of_repository(error: RepositoryError) -> EngineError {
    let code = match &error {
        RepositoryError::WrongPassword => FailureCode::WrongPassword,
        RepositoryError::Damaged(_) => FailureCode::Corrupt,
        RepositoryError::Unsupported(_) => FailureCode::NotSupported,
    };
    EngineError::new(code, error.to_string())
}
