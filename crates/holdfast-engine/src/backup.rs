//! A backup run: connects to the server, finds out what is to be copied, and has the format write it.

use std::sync::Arc;

use holdfast_core::clock::rfc3339;
use holdfast_core::failure::FailureCode;

use crate::Engine;
use crate::archive::{FRAME_BYTES, Manifest};
use crate::context::Context;
use crate::destination::{BlobStore, Journal, Metered, Opened};
use crate::dialects;
use crate::error::{EngineError, Result};
use crate::format::{BackupJob, ResolvedSource};
use crate::formats;
use crate::plan::{BackupPlan, BackupReport, Source};
use crate::remote::{Remote, connect, leave};
use crate::source::files;
use crate::ssh::Connection;

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
        let store: Arc<dyn BlobStore> = Arc::new(Metered::new(store, context.progress.clone()));
        let (writer, connection) = tokio::try_join!(
            formats::of(plan.storage.format).begin(self, plan, store),
            connect(&plan.server, &self.settings.remote, context)
        )?;
        let input = self.input_of(&connection, plan, context).await?;
        let content = input.content();
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
        let at = self.at(&connection, context);
        if let ResolvedSource::Database(dialect, source) = input {
            dialect.describe(at, source, &mut manifest).await?;
        }
        let expected_bytes = expected.map_or(0, |(bytes, _)| bytes);
        let job = BackupJob { at, plan, input, manifest, expected_bytes, journal };
        let written = match writer.write(self, job).await {
            Err(error) if error.code == FailureCode::Missing => return Err(self.why_lost(plan, error).await),
            written => written?,
        };
        leave(connection, context).await;
        let packed = written.packed;
        for note in &packed.notes {
            context.log.line(note);
        }
        for warning in &packed.warnings {
            context.log.warn(warning);
        }
        Ok(BackupReport {
            content,
            format: plan.storage.format,
            locator: written.locator,
            stored_bytes: packed.stored_bytes,
            stored_sha256: packed.stored_sha256,
            plain_bytes: packed.plain_bytes,
            plain_sha256: packed.plain_sha256,
            entries: packed.entries,
            is_empty: packed.is_empty,
            repository_bytes: written.repository_bytes,
            identity,
        })
    }

    /// What was being written is gone from the destination: mostly because the destination itself is.
    async fn why_lost(&self, plan: &BackupPlan, error: EngineError) -> EngineError {
        match self.settings.destination.open_known(&plan.destination).await {
            Err(error) => error,
            Ok(_) => EngineError::new(FailureCode::DestinationFailed, error.message),
        }
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

    async fn input_of<'a>(
        &self,
        connection: &Connection,
        plan: &'a BackupPlan,
        context: &Context,
    ) -> Result<ResolvedSource<'a>> {
        Ok(match &plan.source {
            Source::Files(source) => ResolvedSource::Files(source),
            Source::Database(source) => {
                ResolvedSource::Database(dialects::find(self.at(connection, context), source).await?, source)
            }
        })
    }
}
