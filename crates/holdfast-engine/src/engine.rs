//! The engine: the settings and resources that all runs share. Its work is implemented in `backup`, `restore`,
//! `stored`, `objects`, `server` and `probe`.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::archive::KeyDerivation;
use crate::destination::{self, DestinationPlan, DestinationSettings};
use crate::error::Result;
use crate::file_cache::CacheSettings;
use crate::known_keys::KnownKeys;
use crate::pool::Pool;
use crate::remote::RemoteSettings;

/// How this installation moves data.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub remote: RemoteSettings,
    pub destination: DestinationSettings,
    /// Where local copies of files of repositories are kept; by default, none are.
    pub cache: CacheSettings,
}

/// The memory limit for all uploads of a process together. A run takes about 30 MiB; one with the largest parts that
/// are kept in memory takes all of it.
const UPLOAD_MEMORY_BYTES: usize = 128 * 1024 * 1024;

/// The engine: the resources that runs share. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) settings: Arc<Settings>,
    pub(crate) pool: Pool,
    pub(crate) key_derivation: KeyDerivation,
    pub(crate) known_keys: KnownKeys,
    pub(crate) memory: Arc<Semaphore>,
}

impl Engine {
    pub fn new(settings: Settings) -> std::io::Result<Self> {
        let key_derivation = KeyDerivation::default();
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Self {
            settings: Arc::new(settings),
            pool: Pool::start(threads)?,
            known_keys: KnownKeys::new(key_derivation.clone()),
            key_derivation,
            memory: Arc::new(Semaphore::new(UPLOAD_MEMORY_BYTES / destination::PERMIT_BYTES)),
        })
    }

    /// The engine of an installation, whose locks on repositories say which one it is.
    #[must_use]
    pub fn of_installation(self, id: &str) -> Self {
        let mut settings = (*self.settings).clone();
        settings.destination.lock_hostname = format!("holdfast-{}", id.get(..8).unwrap_or(id));
        Self { settings: Arc::new(settings), ..self }
    }

    /// Checks that a destination can be written to, read, listed and deleted from.
    pub async fn check_destination(&self, plan: &DestinationPlan, probe_key: &str) -> Result<destination::Checked> {
        let destination::Opened { store, identity } = self.settings.destination.for_checks().open(plan).await?;
        let keeps_versions = destination::check(store.as_ref(), probe_key).await?;
        Ok(destination::Checked { identity, keeps_versions })
    }
}
