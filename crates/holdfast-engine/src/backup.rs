//! A backup run: source → archive → destination, confirmed before it counts.

use std::sync::Arc;

use holdfast_core::backup::object_key;
use holdfast_core::clock::rfc3339;
use holdfast_core::content::Content;
use holdfast_core::run::FailureCode;

use crate::Engine;
use crate::archive::{FRAME_BYTES, Manifest, Out, Packed, Packing, Received, pack};
use crate::context::Context;
use crate::destination::{BlobStore, Journal, Metered, Opened, Sink, Upload, Uploaded, Written};
use crate::dialect::Dialect;
use crate::dialects;
use crate::error::{EngineError, Result};
use crate::plan::{BackupPlan, BackupReport, DatabasePlan, FilesSource, Source};
use crate::remote::{Remote, connect, leave};
use crate::source::{Outlet, files};
use crate::ssh::Connection;
use crate::stored::read_back;

/// What a backup copies, once the engine of a database is known.
#[derive(Clone, Copy)]
enum Work<'a> {
    Files(&'a FilesSource),
    Database(&'static dyn Dialect, &'a DatabasePlan),
}

impl Work<'_> {
    fn content(self) -> Content {
        match self {
            Self::Files(_) => Content::Files,
            Self::Database(dialect, source) => Content::of_database(dialect.engine(), source.name.is_some()),
        }
    }
}

impl Engine {
    /// Runs a backup to completion. A reported backup is stored and confirmed; on error, everything left behind at the
    /// destination is recorded in the journal.
    pub async fn back_up(
        &self,
        plan: &BackupPlan,
        context: &Context,
        journal: Arc<dyn Journal>,
    ) -> Result<BackupReport> {
        // Open the destination first: if it is unavailable, there is no need to contact the server.
        let Opened { store, identity } = self.settings.destination.open(&plan.destination).await?;
        let (sink, written) = Sink::new();
        let sealing = self.seal(sink, plan);
        let connection = connect(&plan.server, &self.settings.remote, context).await?;
        let out = sealing.await?;
        let work = self.work_of(&connection, plan, context).await?;
        let content = work.content();
        let key = object_key(
            &plan.store_path,
            plan.appended.as_deref(),
            &plan.label,
            content,
            plan.password.is_some(),
            plan.started_at,
        );
        let store: Arc<dyn BlobStore> = Arc::new(Metered::new(store, context.progress.clone()));
        let expected = self.expected(&connection, plan, context).await?;
        if let Some((bytes, files)) = expected {
            context.progress.set_total(bytes, files);
        }
        let mut manifest = Manifest {
            holdfast: 1,
            content: content.as_str().to_owned(),
            created_at: rfc3339(plan.started_at),
            label: plan.label.clone(),
            source: plan.source.text(),
            frame_bytes: FRAME_BYTES as u64,
            mysql: None,
            postgres: None,
        };
        if let Work::Database(dialect, source) = work {
            dialect.describe(self.at(&connection, context), source, &mut manifest).await?;
        }
        let upload = Upload {
            store: store.clone(),
            key: key.clone(),
            expected_bytes: expected.map_or(0, |(bytes, _)| bytes),
            memory: self.memory.clone(),
            spool_folder: self.settings.destination.spool_folder.clone(),
            journal,
            cancel: context.cancel.clone(),
        };
        let packed = self.stream(&connection, plan, (work, manifest), out, (upload, written), context).await?;
        leave(connection, context).await;
        for note in &packed.notes {
            context.log.line(note);
        }
        for warning in &packed.warnings {
            context.log.warn(warning);
        }
        Ok(BackupReport {
            content,
            format: plan.format,
            key,
            stored_bytes: packed.stored_bytes,
            stored_sha256: packed.stored_sha256,
            plain_bytes: packed.plain_bytes,
            plain_sha256: packed.plain_sha256,
            entries: packed.entries,
            is_empty: packed.is_empty,
            identity,
        })
    }

    /// Estimates the size of the backup: that of the previous one or, for a first backup of files, a count with a time
    /// limit. The estimate also determines how the upload is divided into parts.
    async fn expected(
        &self,
        connection: &Connection,
        plan: &BackupPlan,
        context: &Context,
    ) -> Result<Option<(u64, u64)>> {
        let (None, Source::Files(source)) = (plan.last, &plan.source) else { return Ok(plan.last) };
        let counting = files::estimate(connection, source, &self.settings.remote, context);
        match tokio::time::timeout(files::COUNT_LIMIT, counting).await {
            Ok(Ok(counted)) => Ok(counted),
            Ok(Err(error)) if error.code == FailureCode::Cancelled => Err(error),
            // The server has no GNU find, or too many files to count in time.
            _ => Ok(None),
        }
    }

    fn at<'a>(&'a self, connection: &'a Connection, context: &'a Context) -> Remote<'a> {
        Remote { connection, settings: &self.settings.remote, context }
    }

    async fn work_of<'a>(&self, connection: &Connection, plan: &'a BackupPlan, context: &Context) -> Result<Work<'a>> {
        Ok(match &plan.source {
            Source::Files(source) => Work::Files(source),
            Source::Database(source) => {
                Work::Database(dialects::find(self.at(connection, context), source).await?, source)
            }
        })
    }

    /// Runs three stages concurrently: this task reads from the server, a thread packs, another task uploads. The first
    /// stage to fail stops the others, and its error is the one returned.
    async fn stream(
        &self,
        connection: &Connection,
        plan: &BackupPlan,
        (work, manifest): (Work<'_>, Manifest),
        out: Out<Sink>,
        (upload, written): (Upload, Written),
        context: &Context,
    ) -> Result<Packed> {
        let (mut outlet, inlet) = Outlet::new();
        let (store, key) = (upload.store.clone(), upload.key.clone());
        let uploading = upload.start(written);
        let packing = self.start_packing(work.content(), manifest, Received::new(inlet), out, context);
        let at = self.at(connection, context);
        let pumped = match work {
            Work::Files(source) => {
                files::pump(connection, source, at.settings, context, (&mut outlet, plan.started_at)).await
            }
            Work::Database(dialect, source) => dialect.dump(at, source, &mut outlet).await,
        };
        outlet.close(pumped).await;
        let packed = packing.await.map_err(EngineError::internal)?;
        let uploaded = uploading.await.map_err(EngineError::internal)?;
        if context.cancel.is_cancelled() && (packed.is_err() || uploaded.is_err()) {
            return Err(EngineError::cancelled());
        }
        match (packed, uploaded) {
            (Ok(packed), Ok(Uploaded { size, is_proven, is_versioned })) if size == packed.stored_bytes => {
                if !is_proven {
                    context.log.line("The destination provides no matching checksum, so the backup is read back.");
                    read_back(store, &key, size, &packed.stored_sha256, context).await?;
                }
                if is_versioned {
                    context.log.line(
                        "The bucket keeps versions: deleted backups remain there as older versions and take up \
                         space until a lifecycle rule of the bucket removes them.",
                    );
                }
                Ok(packed)
            }
            (Ok(packed), Ok(Uploaded { size, .. })) => Err(EngineError::new(
                FailureCode::DestinationFailed,
                format!("{size} of {} bytes were stored.", packed.stored_bytes),
            )),
            // An upload that was cancelled because another stage failed does not know the reason.
            (_, Err(error)) if error.code != FailureCode::Cancelled => Err(error),
            (Err(error), _) => Err(error),
            (Ok(_), Err(error)) => Err(error),
        }
    }

    /// Derives the key while the connection is being established, so that the memory this takes is freed before the
    /// first byte arrives.
    fn seal(&self, sink: Sink, plan: &BackupPlan) -> impl Future<Output = Result<Out<Sink>>> + use<> {
        let (turn, password) = (self.turn.clone(), plan.password.clone());
        let sealing = tokio::task::spawn_blocking(move || Out::open(sink, password.as_ref(), &turn));
        async { sealing.await.map_err(EngineError::internal)? }
    }

    fn start_packing(
        &self,
        content: Content,
        manifest: Manifest,
        received: Received,
        out: Out<Sink>,
        context: &Context,
    ) -> tokio::task::JoinHandle<Result<Packed>> {
        let (pool, progress) = (self.pool.clone(), context.progress.clone());
        tokio::task::spawn_blocking(move || {
            let packing = Packing { content, manifest, pool: &pool, progress };
            let (packed, sink) = pack(&packing, received, out)?;
            sink.finish().map_err(|_| EngineError::cancelled())?;
            Ok(packed)
        })
    }
}
