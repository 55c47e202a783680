//! Writes archives: source → archive → destination, confirmed before it counts.

use std::sync::Arc;

use async_trait::async_trait;
use holdfast_core::backup::object_key;
use holdfast_core::content::Content;
use holdfast_core::failure::FailureCode;
use tokio::task::JoinHandle;

use super::opening::read_back;
use crate::Engine;
use crate::archive::{Manifest, Out, Packed, Packing, Received, pack};
use crate::context::Context;
use crate::destination::{BlobStore, Sink, Upload, UploadReceiver, Uploaded};
use crate::error::{EngineError, Result};
use crate::format::{BackupJob, BackupWriter, WrittenBackup};
use crate::plan::BackupPlan;
use crate::source::PlainSink;
use crate::thread::on_thread;

pub(super) struct ArchiveWriter {
    store: Arc<dyn BlobStore>,
    out: Out<Sink>,
    written: UploadReceiver,
}

impl ArchiveWriter {
    /// Derives the key of an encrypted archive, so that the memory this takes is freed before the first byte arrives.
    pub(super) async fn begin(engine: &Engine, plan: &BackupPlan, store: Arc<dyn BlobStore>) -> Result<Self> {
        let (sink, written) = Sink::new();
        let (key_derivation, password) = (engine.key_derivation.clone(), plan.password.clone());
        let out = on_thread(move || Out::open(sink, password.as_ref(), &key_derivation)).await?;
        Ok(Self { store, out, written })
    }
}

#[async_trait]
impl BackupWriter for ArchiveWriter {
    /// Runs three stages concurrently: this task reads from the server, a thread packs, another task uploads. The first
    /// stage to fail stops the others, and its error is the one returned.
    async fn write(self: Box<Self>, engine: &Engine, job: BackupJob<'_>) -> Result<WrittenBackup> {
        let BackupJob { at, plan, input, manifest, expected_bytes, journal } = job;
        let Self { store, out, written } = *self;
        let (content, context) = (input.content(), at.context);
        let key = object_key(
            &plan.storage.path,
            plan.storage.appended_filename.as_deref(),
            &plan.label,
            content,
            plan.password.is_some(),
            plan.started_at,
        );
        let upload = Upload {
            store: store.clone(),
            key: key.clone(),
            expected_bytes,
            memory: engine.memory.clone(),
            spool_folder: engine.settings.destination.spool_folder.clone(),
            journal,
            cancel: context.cancel.clone(),
        };
        let (mut sink, receiver) = PlainSink::new();
        let uploading = upload.start(written);
        let packing = start_packing(engine, (content, manifest), Received::new(receiver), out, context);
        let sent = input.send(at, plan, &mut sink).await;
        sink.close(sent).await;
        let packed = packing.await.map_err(EngineError::internal)?;
        let uploaded = uploading.await.map_err(EngineError::internal)?;
        if context.cancel.is_cancelled() && (packed.is_err() || uploaded.is_err()) {
            return Err(EngineError::cancelled());
        }
        match (packed, uploaded) {
            (Ok(packed), Ok(uploaded)) => {
                confirm(store, &key, &packed, &uploaded, context).await?;
                Ok(WrittenBackup { locator: key, packed, repository_bytes: None })
            }
            // An upload that was cancelled because another stage failed does not know the reason.
            (_, Err(error)) if error.code != FailureCode::Cancelled => Err(error),
            (Err(error), _) => Err(error),
            (Ok(_), Err(error)) => Err(error),
        }
    }
}

fn start_packing(
    engine: &Engine,
    (content, manifest): (Content, Manifest),
    received: Received,
    out: Out<Sink>,
    context: &Context,
) -> JoinHandle<Result<Packed>> {
    let (pool, progress) = (engine.pool.clone(), context.progress.clone());
    tokio::task::spawn_blocking(move || {
        let packing = Packing { content, manifest, pool: &pool, progress };
        let (packed, sink) = pack(&packing, received, out)?;
        sink.finish().map_err(|_| EngineError::cancelled())?;
        Ok(packed)
    })
}

/// Checks that the destination has what was written.
async fn confirm(
    store: Arc<dyn BlobStore>,
    key: &str,
    packed: &Packed,
    uploaded: &Uploaded,
    context: &Context,
) -> Result<()> {
    if uploaded.size != packed.stored_bytes {
        let message = format!("{} of {} bytes were stored.", uploaded.size, packed.stored_bytes);
        return Err(EngineError::new(FailureCode::DestinationFailed, message));
    }
    if !uploaded.is_confirmed {
        context.log.line("The destination provides no matching checksum, so the backup is read back.");
        read_back(store, key, uploaded.size, &packed.stored_sha256, context).await?;
    }
    if uploaded.is_versioned {
        context.log.line(
            "The bucket keeps versions: deleted backups remain there as older versions and take up space until a \
             lifecycle rule of the bucket removes them.",
        );
    }
    Ok(())
}
