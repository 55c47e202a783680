//! Restores a stored backup to a server.

use std::sync::Arc;

use async_trait::async_trait;
use holdfast_app::App;
use holdfast_core::backup::{RestoreDraft, RestoreTarget};
use holdfast_core::content::Content;
use holdfast_core::extent::Extent;
use holdfast_core::ids::{BackupId, RunId, UserId};
use holdfast_core::source::TaskKind;
use holdfast_engine::{Context, Counted, Engine, EngineError, RestoreRecords, RestoreReport, ServerFindings};
use holdfast_store::restores::WriteTarget;
use holdfast_store::runs::RunRow;
use holdfast_store::{StoreError, Tx, backups, restores, servers};

use super::findings::{note_readable, note_unreadable};
use super::job::{ContactedServers, Ending, Job, Working, of_app, of_store};
use crate::plans::gone;

pub(super) struct Restore {
    backup: BackupId,
    report: Option<RestoreReport>,
}

impl Restore {
    pub(super) fn new(backup: BackupId) -> Self {
        Self { backup, report: None }
    }

    async fn content(&self, tx: &mut Tx) -> Result<Option<Content>, StoreError> {
        Ok(backups::find(tx, self.backup).await?.map(|backup| backup.content))
    }
}

#[async_trait]
impl Job for Restore {
    async fn work(&mut self, working: &Working<'_>, contacted: &mut ContactedServers) -> Result<(), EngineError> {
        let (services, run) = (working.services, working.run);
        let mut tx = services.app.store.read().await.map_err(of_store)?;
        let backup = backups::find(&mut tx, self.backup).await.map_err(of_store)?;
        let draft = restores::find(&mut tx, run.id).await.map_err(of_store)?;
        drop(tx);
        let backup = backup.ok_or_else(|| of_app(gone("backup")))?;
        let draft = draft.ok_or_else(|| EngineError::internal("the request of this restore is gone"))?;
        let (plan, jump) = services.planner.restore(&services.app, &backup, &draft).await.map_err(of_app)?;
        contacted.note(&plan.server, draft.server, jump);
        working.context.log.line(format!("Restoring {}.", plan.backup.locator));
        let records = Records {
            app: services.app.clone(),
            run: run.id,
            epoch: run.lease_epoch,
            user: backup.user_id,
            draft: draft.clone(),
        };
        let context = Context { restores: Some(Arc::new(records)), ..working.context.clone() };
        self.report = Some(Box::pin(services.engine.restore(&plan, &context)).await?);
        Ok(())
    }

    fn summary(&self) -> String {
        self.report.as_ref().map(summary).unwrap_or_default()
    }

    async fn record(&self, tx: &mut Tx, ending: &Ending<'_>) -> Result<(), StoreError> {
        note_readable(tx, ending, self.backup).await
    }

    async fn record_failure(&self, tx: &mut Tx, ending: &Ending<'_>, error: &EngineError) -> Result<(), StoreError> {
        note_unreadable(tx, ending, self.backup, error).await
    }

    async fn left_behind(&self, tx: &mut Tx, run: &RunRow) -> Result<String, StoreError> {
        let content = self.content(tx).await?;
        let left = |has_written| content.map_or("", |content| Engine::left_behind(content, has_written));
        if !restores::has_written(tx, run.id).await? {
            return Ok(format!("What was there was not changed. {}", left(false)).trim_end().to_owned());
        }
        Ok(match restores::find(tx, run.id).await?.map(|draft| draft.target) {
            Some(RestoreTarget::Path { .. }) if content.is_some_and(|content| content.kind() == TaskKind::Database) => {
                left(true).to_owned()
            }
            Some(RestoreTarget::Path { path, .. }) => format!(
                "Files may have been written to {path} on the server, and the last ones may be incomplete. Restore \
                 again with overwrite, or into an empty folder, to get complete ones."
            ),
            Some(RestoreTarget::Database { .. }) => left(true).to_owned(),
            None => String::new(),
        })
    }
}

/// The records of a user's restores, for one of them.
struct Records {
    app: Arc<App>,
    run: RunId,
    epoch: i64,
    user: UserId,
    draft: RestoreDraft,
}

impl Records {
    /// Commits what was noted, if this worker still has the run.
    async fn commit(tx: Tx, noted: Result<bool, StoreError>) -> Result<(), String> {
        match noted.map_err(|error| error.to_string())? {
            true => tx.commit().await.map_err(|error| error.to_string()),
            false => Err("This worker no longer has the run.".to_owned()),
        }
    }

    async fn try_find_unfinished(&self, findings: &ServerFindings) -> Result<Option<RunId>, StoreError> {
        let RestoreTarget::Path { path, .. } = &self.draft.target else { return Ok(None) };
        let mut tx = self.app.store.read().await?;
        let Some(host) = servers::find_host(&mut tx, self.draft.server).await? else { return Ok(None) };
        let host = host.with_key(findings.host_key.clone());
        let extents: Vec<Extent> = [path].into_iter().chain(&findings.folder).cloned().map(Extent::Files).collect();
        let now = self.app.now();
        restores::find_unfinished(&mut tx, self.user, &host, &extents, (now, now)).await
    }
}

#[async_trait]
impl RestoreRecords for Records {
    async fn find_unfinished(&self, findings: &ServerFindings) -> Result<Option<RunId>, String> {
        self.try_find_unfinished(findings).await.map_err(|error| error.to_string())
    }

    async fn begin(&self, findings: &ServerFindings) -> Result<(), String> {
        let target = WriteTarget {
            folder: findings.folder.as_deref(),
            was_empty: findings.folder_was_empty,
            host_key: findings.host_key.as_deref(),
        };
        let mut tx = self.app.store.begin().await.map_err(|error| error.to_string())?;
        let noted = restores::begin_writing(&mut tx, self.run, self.epoch, target, self.app.now()).await;
        Self::commit(tx, noted).await
    }

    async fn note_undone(&self) -> Result<(), String> {
        let mut tx = self.app.store.begin().await.map_err(|error| error.to_string())?;
        let noted = restores::note_undone(&mut tx, self.run, self.epoch).await;
        Self::commit(tx, noted).await
    }
}

/// What a restore did, in figures.
fn summary(report: &RestoreReport) -> String {
    let Counted { restored, kept, skipped } = report.counted;
    if report.is_dry {
        return format!("Dry run: {restored} entries would be written, {kept} kept as they are, {skipped} skipped.");
    }
    let read = format!("from {} bytes", report.plain_bytes);
    match report.counted {
        Counted { restored: 0, kept: 0, skipped: 0 } => format!("Restored {read}."),
        Counted { kept: 0, skipped: 0, .. } => format!("Restored {restored} entries {read}."),
        Counted { restored: 0, kept: 1.., .. } => format!(
            "Restored no entries {read}; {kept} existed and were kept, {skipped} were skipped. To replace what exists, \
             restore with overwrite."
        ),
        _ => format!("Restored {restored} entries {read}; {kept} existed and were kept, {skipped} were skipped."),
    }
}
