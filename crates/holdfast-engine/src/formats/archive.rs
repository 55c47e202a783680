//! Archives: each backup is one object, whose key is the locator.

mod opening;
mod storing;

use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::archive::Archive;
use crate::context::Context;
use crate::destination::{BlobStore, DestinationPlan, ObjectReader, Opened};
use crate::download::Download;
use crate::error::Result;
use crate::format::{BackupFormat, BackupWriter, PlainReader, StoredEntries};
use crate::plan::{BackupPlan, StoredBackup};
use crate::thread::{on_thread, until_dropped};

pub(super) struct ArchiveFormat;

#[async_trait]
impl BackupFormat for ArchiveFormat {
    async fn begin(
        &self,
        engine: &Engine,
        plan: &BackupPlan,
        store: Arc<dyn BlobStore>,
    ) -> Result<Box<dyn BackupWriter>> {
        Ok(Box::new(storing::ArchiveWriter::begin(engine, plan, store).await?))
    }

    async fn open_plain(&self, engine: &Engine, backup: &StoredBackup, context: &Context) -> Result<PlainReader> {
        context.progress.set_total(backup.size_bytes, 0);
        let reader = open(engine, backup, &context.cancel).await?;
        let (key_derivation, backup, context) = (engine.key_derivation.clone(), backup.clone(), context.clone());
        on_thread(move || opening::plain_reader(reader, &backup, &key_derivation, context)).await
    }

    async fn open_entries(
        &self,
        engine: &Engine,
        backup: &StoredBackup,
        stop: &CancellationToken,
    ) -> Result<Box<dyn StoredEntries>> {
        let reader = open(engine, backup, stop).await?;
        let (key_derivation, backup, stop) = (engine.key_derivation.clone(), backup.clone(), stop.clone());
        on_thread(move || {
            let archive = Archive::open_stored(reader, &backup, &key_derivation, &stop)?;
            Ok(Box::new(archive) as Box<dyn StoredEntries>)
        })
        .await
    }

    async fn download(
        &self,
        engine: &Engine,
        backup: &StoredBackup,
        range: Option<Range<u64>>,
    ) -> Result<(u64, Download)> {
        let (stop, guard) = until_dropped();
        let mut reader = open(engine, backup, &stop).await?;
        let whole = 0..backup.size_bytes;
        let range = range.unwrap_or(whole.clone());
        let size = range.end.saturating_sub(range.start);
        let (sha256, hold) = (backup.sha256.clone(), backup.hold.clone());
        let download = Download::start(guard, move |pieces| {
            if range == whole {
                pieces.send_checked(&mut reader, &sha256);
            } else {
                // Whoever puts the parts together compares the hash of the whole.
                match reader.seek(SeekFrom::Start(range.start)) {
                    Ok(_) => pieces.send_all(&mut reader.take(size)),
                    Err(error) => pieces.send_last(Err(error)),
                }
            }
            // Moves it into the closure, so that the object is kept until the download ends.
            drop(hold);
        });
        Ok((size, download))
    }

    async fn is_there(&self, engine: &Engine, backup: &StoredBackup, context: &Context) -> Result<bool> {
        let keys = std::slice::from_ref(&backup.locator);
        let sizes = engine.object_sizes(&backup.destination, keys, context).await?;
        sizes.into_iter().next().transpose().map(|size| size.flatten().is_some())
    }

    async fn remove(&self, engine: &Engine, destination: &DestinationPlan, locator: &str) -> Result<()> {
        engine.remove_object(destination, locator).await
    }
}

/// Opens a reader for the object, after checking that it exists and has the recorded size.
async fn open(engine: &Engine, backup: &StoredBackup, stop: &CancellationToken) -> Result<ObjectReader> {
    let Opened { store, .. } = engine.settings.destination.open_known(&backup.destination).await?;
    opening::stat(store.as_ref(), backup).await?;
    let reader = ObjectReader::new(store, &backup.locator, backup.size_bytes);
    Ok(reader.like(backup.proven.as_ref()).until(stop.clone()))
}
