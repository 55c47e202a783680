//! The data plane of Holdfast: copies data from a server over SSH to a destination, and back. It knows nothing of tasks
//! or of Holdfast's own database; it takes a plan and returns a report.

mod archive;
mod backup;
mod context;
pub mod destination;
mod dialect;
mod dialects;
pub mod egress;
mod error;
mod extract;
#[doc(hidden)]
pub mod fuzzing;
mod mysql;
mod plan;
pub mod postgres;
mod probe;
mod progress;
mod remote;
mod restore;
pub mod sealed_document;
mod server;
pub mod sftp;
mod source;
pub mod ssh;
mod stored;

use std::sync::Arc;

use tokio::sync::Semaphore;

pub use archive::{Archive, Counted, Entry, FRAME_BYTES, Manifest};
pub use context::{Contact, Context, Log, OnWrite, WriteNote};
pub use destination::{DestinationPlan, DestinationSettings, Journal, Proven};
pub use egress::Egress;
pub use error::{EngineError, Result};
pub use extract::{decrypt, extract};
pub use plan::{
    BackupPlan, BackupReport, DatabasePlan, FilesSource, Login, RestorePlan, RestoreReport, RestoreTarget,
    ServerReport, Source, StoredBackup,
};
pub use probe::Probe;
pub use progress::{Counts, Progress};
pub use remote::{RemoteSettings, Server};
pub use stored::Download;

/// How this installation moves data.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub remote: RemoteSettings,
    pub destination: DestinationSettings,
}

/// The memory limit for all uploads of a process together. A run takes about 30 MiB; one with the largest parts that
/// are kept in memory takes all of it.
const UPLOAD_MEMORY_BYTES: usize = 128 * 1024 * 1024;

/// The engine: the resources that runs share. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    settings: Arc<Settings>,
    pool: archive::Pool,
    turn: archive::KeyDerivation,
    memory: Arc<Semaphore>,
}

impl Engine {
    pub fn new(settings: Settings) -> std::io::Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Self {
            settings: Arc::new(settings),
            pool: archive::Pool::start(threads)?,
            turn: archive::KeyDerivation::default(),
            memory: Arc::new(Semaphore::new(UPLOAD_MEMORY_BYTES / destination::PERMIT_BYTES)),
        })
    }

    /// Checks that a destination can be written to, read, listed and deleted from.
    pub async fn check_destination(&self, plan: &DestinationPlan, probe_key: &str) -> Result<destination::Checked> {
        let destination::Opened { store, identity } = self.settings.destination.for_checks().open(plan).await?;
        let keeps_versions = destination::check(store.as_ref(), probe_key).await?;
        Ok(destination::Checked { identity, keeps_versions })
    }
}
