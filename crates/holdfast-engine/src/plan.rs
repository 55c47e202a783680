//! Plans, which contain everything the engine needs for a run, and its reports. A plan is made once, when a run starts:
//! changes made to a task during a run apply to the next one.

use std::any::Any;
use std::sync::Arc;

use holdfast_core::backup::RestoreOptions;
use holdfast_core::content::Content;
use holdfast_core::database::DatabaseEngine;
use holdfast_core::destination::DestinationIdentity;
use holdfast_core::storage::{Format, Storage};
use holdfast_core::{Secret, Timestamp};

use crate::archive::Counted;
use crate::destination::{DestinationPlan, VerifiedBlocks};
use crate::remote::Server;
pub use crate::source::database::{DatabasePlan, Login};
pub use holdfast_core::source::FilesSource;

#[derive(Debug, Clone)]
pub enum Source {
    Files(FilesSource),
    Database(DatabasePlan),
}

impl Source {
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
    /// For operations that read the backup more than once: later readings return only bytes that the first one
    /// verified.
    pub proven: Option<VerifiedBlocks>,
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
