//! The data plane of Holdfast: copies data from a server over SSH to a destination, and back. It knows nothing of tasks
//! or of Holdfast's own database; it takes a plan and returns a report.

mod archive;
mod backup;
mod context;
pub mod destination;
mod dialect;
mod dialects;
mod download;
pub mod egress;
mod engine;
mod entry_scan;
mod error;
mod extract;
mod file_cache;
mod folder_download;
mod format;
mod formats;
mod free_space;
#[doc(hidden)]
pub mod fuzzing;
mod known_keys;
mod mysql;
mod objects;
mod plan;
mod pool;
pub mod postgres;
mod probe;
mod progress;
mod remote;
mod repositories;
mod restore;
mod scope;
pub mod sealed_document;
mod server;
pub mod sftp;
mod sha256;
mod source;
pub mod ssh;
mod stored;
mod thread;

pub use archive::{Archive, Counted, Entry, FRAME_BYTES, Manifest};
pub use context::{Context, Log, RestoreRecords, ServerFindings};
pub use destination::{DestinationPlan, DestinationSettings, Journal, VerifiedBlocks};
pub use download::Download;
pub use egress::Egress;
pub use engine::{Engine, Settings};
pub use error::{EngineError, Result};
pub use extract::{decrypt, extract};
pub use file_cache::CacheSettings;
pub use formats::repository::{CheckReport, DamagedSnapshot, ForeignLock, PruneReport};
pub use free_space::FreeSpace;
pub use plan::{
    BackupPlan, BackupReport, CheckPlan, DatabasePlan, FilesSource, Login, PrunePlan, RepositoryAccess, RepositoryPlan,
    RestorePlan, RestoreReport, RestoreTarget, ServerReport, Source, StoredBackup,
};
pub use probe::Probe;
pub use progress::{Counts, Progress};
pub use remote::{RemoteSettings, Server};
pub use scope::Scope;
