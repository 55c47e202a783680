//! Reads stored backups for verification, listings and downloads, and removes them. The format of a backup says how.

use std::io::{self, Read};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use holdfast_core::failure::FailureCode;
use holdfast_core::storage::Format;

use crate::Engine;
use crate::archive::{Entry, Manifest, inspect};
use crate::context::Context;
use crate::destination::DestinationPlan;
use crate::download::Download;
use crate::error::{EngineError, Result, classify};
use crate::format::PlainReader;
use crate::formats;
use crate::plan::StoredBackup;
use crate::thread::{on_thread, until_dropped};

impl Engine {
    /// Opens all of a backup for reading, with progress towards its size. Reports a wrong password.
    pub(crate) async fn open_plain(&self, backup: &StoredBackup, context: &Context) -> Result<PlainReader> {
        formats::of(backup.format).open_plain(self, backup, context).await
    }

    /// Reads the whole backup and checks the stored bytes, the archive or dump inside them to its end, and the hash of
    /// the plain bytes.
    pub async fn verify(&self, backup: &StoredBackup, context: &Context) -> Result<()> {
        match self.read_to_the_end(backup, context).await {
            Err(error) => Err(self.confirm_missing(backup, error, context).await),
            read => read,
        }
    }

    /// A backup may seem to be missing because its destination went away while it was read. Returns the error that
    /// describes what happened.
    pub(crate) async fn confirm_missing(
        &self,
        backup: &StoredBackup,
        error: EngineError,
        context: &Context,
    ) -> EngineError {
        if error.code != FailureCode::Missing {
            return error;
        }
        match formats::of(backup.format).is_there(self, backup, context).await {
            Ok(false) => error,
            Ok(true) => {
                let message = "The destination said that the backup was gone, but has it.";
                EngineError::new(FailureCode::DestinationFailed, message)
            }
            Err(error) => error,
        }
    }

    async fn read_to_the_end(&self, backup: &StoredBackup, context: &Context) -> Result<()> {
        let mut reader = self.open_plain(backup, context).await?;
        let (backup, context) = (backup.clone(), context.clone());
        on_thread(move || {
            inspect(backup.content, &mut reader.plain, FailureCode::Corrupt, &mut |_| {
                context.progress.add_file();
                Ok(())
            })?;
            reader.finish(&backup)
        })
        .await
    }

    /// Reads the whole backup before anything is changed: a backup that cannot be restored must not destroy existing
    /// data.
    pub(crate) async fn read_first(&self, backup: &StoredBackup, context: &Context) -> Result<()> {
        context.log.line("Reading the whole backup before anything is changed.");
        let reading = Context { progress: Arc::default(), ..context.clone() };
        self.verify(backup, &reading).await
    }

    /// Applies `read` to the whole plain stream, and checks the hashes as well.
    pub(crate) async fn read_as<T: Send + 'static>(
        &self,
        backup: &StoredBackup,
        context: &Context,
        read: impl FnOnce(&mut dyn Read) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let quiet = Context { progress: Arc::default(), ..context.clone() };
        let mut reader = self.open_plain(backup, &quiet).await?;
        let backup = backup.clone();
        on_thread(move || {
            let found = read(&mut reader.plain)
                .map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))?;
            reader.finish(&backup)?;
            Ok(found)
        })
        .await
    }

    /// Passes the entries of the backup to the visitor until it breaks. Dropping this future stops the reading.
    pub async fn visit<T: Send + 'static>(
        &self,
        backup: &StoredBackup,
        start: T,
        mut visitor: impl FnMut(&mut T, &Entry) -> ControlFlow<()> + Send + 'static,
    ) -> Result<T> {
        let (stop, _guard) = until_dropped();
        let mut entries = formats::of(backup.format).open_entries(self, backup, &stop).await?;
        let hold = backup.hold.clone();
        on_thread(move || {
            let mut state = start;
            entries.visit(&mut |entry| Ok(visitor(&mut state, entry).is_continue()))?;
            drop(hold);
            Ok(state)
        })
        .await
    }

    /// The manifest of a backup; `None` if it has none.
    pub(crate) async fn manifest(&self, backup: &StoredBackup) -> Result<Option<Manifest>> {
        let (stop, _guard) = until_dropped();
        let mut entries = formats::of(backup.format).open_entries(self, backup, &stop).await?;
        on_thread(move || entries.manifest()).await
    }

    /// Downloads the backup as one file, or a part of that; also returns how many bytes that are.
    pub async fn download(&self, backup: &StoredBackup, range: Option<Range<u64>>) -> Result<(u64, Download)> {
        formats::of(backup.format).download(self, backup, range).await
    }

    /// Downloads one file of the backup; also returns its entry.
    pub async fn download_entry(&self, backup: &StoredBackup, path: &str) -> Result<(Entry, Download)> {
        let (stop, guard) = until_dropped();
        let mut entries = formats::of(backup.format).open_entries(self, backup, &stop).await?;
        let (path, hold) = (path.to_owned(), backup.hold.clone());
        let (found, waiting) = tokio::sync::oneshot::channel();
        let download = Download::start(guard, move |pieces| {
            let (entry, mut content) = match entries.open_file(&path) {
                Ok(file) => file,
                Err(error) => return drop(found.send(Err(error))),
            };
            if found.send(Ok(entry)).is_ok() {
                pieces.send_all(&mut content);
            }
            drop(hold);
        });
        let entry = waiting.await.map_err(EngineError::internal)??;
        Ok((entry, download))
    }

    /// Removes a backup from its destination. One that is no longer there is not an error.
    pub async fn remove(&self, format: Format, destination: &DestinationPlan, locator: &str) -> Result<()> {
        formats::of(format).remove(self, destination, locator).await
    }
}
