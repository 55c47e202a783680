//! Plans, which contain everything the engine needs for a run, and its reports. A plan is made once, when a run starts:
//! changes made to a task during a run apply to the next one.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::backup::RestoreOptions;
use holdfast_core::content::Content;
use holdfast_core::database::DatabaseEngine;
use holdfast_core::destination::DestinationIdentity;
use holdfast_core::storage::{Format, Storage};
use holdfast_core::{Secret, Timestamp};

use crate::archive::Counted;
use crate::destination::{DestinationPlan, VerifiedBlocks};
use crate::remote::Server;
use crate::scope::Scope;
pub use crate::source::database::{DatabasePlan, Login};
pub use holdfast_core::source::FilesSource;

#[derive(Debug, Clone)]
pub enum Source {
    Files(FilesSource),
    Database(DatabasePlan),
}

impl Source {
    /// The path of files.
    pub(crate) fn folder_path(&self) -> Option<String> {
        match self {
            Self::Files(files) => Some(files.path.clone()),
            Self::Database(_) => None,
        }
    }

    pub(crate) fn excludes(&self) -> &[String] {
        match self {
            Self::Files(files) => &files.excluded,
            Self::Database(_) => &[],
        }
    }

    /// A description of the source for users.
    pub fn text(&self) -> String {
        match self {
            Self::Files(files) => files.path.clone(),
            Self::Database(database) => {
                let is_file = database.engine.is_some_and(DatabaseEngine::is_file);
                let path = database.database.path.as_ref().filter(|_| is_file);
                let place = path.or(database.database.name.as_ref());
                place.cloned().unwrap_or_else(|| "all databases".to_owned())
            }
        }
    }
}

/// The repository of a task.
#[derive(Debug, Clone)]
pub struct RepositoryPlan {
    /// Its folder at the destination.
    pub folder: String,
    /// The passwords of earlier backups, if the task has a new one since. The repository then gets the new one.
    pub earlier_passwords: Vec<Secret>,
    /// The locator of the last backup of the same source, to compare with.
    pub parent: Option<String>,
}

/// Where a repository is, and what opens it.
#[derive(Debug, Clone)]
pub struct RepositoryAccess {
    pub destination: DestinationPlan,
    pub folder: String,
    /// All that may open it, the newest first.
    pub passwords: Vec<Secret>,
    pub started_at: Timestamp,
}

/// A repository from which what no snapshot needs is removed.
#[derive(Debug, Clone)]
pub struct PrunePlan {
    pub repository: RepositoryAccess,
    /// After this time, no more packs are written again.
    pub budget: Duration,
    /// Nothing will be stored in it any more, so that it is removed as a whole if it has no snapshot.
    pub is_abandoned: bool,
    /// The locators of the backups on record. If the snapshot of one is not there, nothing is removed.
    pub on_record: Vec<String>,
}

/// A repository whose structure is checked, and of whose packs a share is read.
#[derive(Debug, Clone)]
pub struct CheckPlan {
    pub repository: RepositoryAccess,
    /// The pack after which the reading continues; `None` from the beginning.
    pub position: Option<String>,
    /// The share of all packs: one in so many.
    pub one_in: u32,
    /// The locators of the backups on record.
    pub on_record: Vec<String>,
}

#[derive(Clone)]
pub struct BackupPlan {
    pub server: Server,
    pub source: Source,
    pub destination: DestinationPlan,
    pub password: Option<Secret>,
    pub label: String,
    pub storage: Storage,
    pub started_at: Timestamp,
    /// Plain bytes and files of the previous backup, as an estimate for this one.
    pub last: Option<(u64, u64)>,
    /// For the format of that name.
    pub repository: Option<RepositoryPlan>,
}

/// A backup that is stored and confirmed.
#[derive(Debug, Clone)]
pub struct BackupReport {
    pub content: Content,
    pub format: Format,
    /// Where it is at the destination; the format says what this is.
    pub locator: String,
    pub stored_bytes: u64,
    pub stored_sha256: String,
    pub plain_bytes: u64,
    pub plain_sha256: String,
    pub entries: u64,
    /// Whether it contains no data: only folders and empty files, or no table.
    pub is_empty: bool,
    /// How much the repository has now, of a backup in one.
    pub repository_bytes: Option<u64>,
    /// What identifies its destination.
    pub identity: DestinationIdentity,
}

/// A stored backup, as it was recorded.
#[derive(Debug, Clone)]
pub struct StoredBackup {
    pub destination: DestinationPlan,
    pub format: Format,
    pub locator: String,
    pub content: Content,
    pub size_bytes: u64,
    pub sha256: String,
    pub plain_bytes: u64,
    pub plain_sha256: String,
    /// Files, folders, links; tables of a dump.
    pub entries: u64,
    pub is_encrypted: bool,
    pub password: Option<Secret>,
    /// Further passwords that may open its repository, while that of its task is being changed.
    pub other_passwords: Vec<Secret>,
    /// When a reading of all of it begins; a repository is locked from then on. `None` to look around in it.
    pub opened_at: Option<Timestamp>,
    /// For operations that read the backup more than once: later readings return only bytes that the first one
    /// verified.
    pub proven: Option<VerifiedBlocks>,
    /// What of it is read.
    pub scope: Scope,
    /// Held by every thread that reads the backup until the thread ends, such as a permit from a limit on concurrent
    /// readers.
    pub hold: Option<Arc<dyn Any + Send + Sync>>,
}

#[derive(Clone)]
pub struct RestorePlan {
    pub backup: StoredBackup,
    pub server: Server,
    pub overwrite: bool,
    pub options: RestoreOptions,
    pub target: RestoreTarget,
}

#[derive(Debug, Clone)]
pub enum RestoreTarget {
    /// Files, or a database that is a single file. Empty `entries` means everything.
    Path { path: String, entries: Vec<String> },
    /// Without a name, a backup of a whole server is restored.
    Database { name: Option<String>, login: Login },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoreReport {
    pub counted: Counted,
    pub plain_bytes: u64,
    /// Nothing was written; the counts say what would have been.
    pub is_dry: bool,
}

/// What a server offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// Tools by name, with their version output, in a fixed order.
    pub tools: Vec<(String, String)>,
    pub has_sftp: bool,
}
