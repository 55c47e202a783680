//! Reads a whole stored backup, and records whether it is what was written.

use async_trait::async_trait;
use holdfast_core::backup::Verification;
use holdfast_core::ids::BackupId;
use holdfast_engine::{EngineError, StoredBackup};
use holdfast_store::{StoreError, Tx};

use super::findings::{note_readable, note_unreadable, note_verification};
use super::job::{ContactedServers, Ending, Job, Working, of_app};

pub(super) struct Verify {
    pub backup: BackupId,
}

#[async_trait]
impl Job for Verify {
    async fn work(&mut self, working: &Working<'_>, _contacted: &mut ContactedServers) -> Result<(), EngineError> {
        let services = working.services;
        let stored = services.planner.stored_by_id(&services.app.store, self.backup).await.map_err(of_app)?;
        let stored = StoredBackup { opened_at: Some(services.app.now()), ..stored };
        working.context.log.line(format!("Reading {} back, {} bytes.", stored.locator, stored.size_bytes));
        services.engine.verify(&stored, working.context).await
    }

    fn summary(&self) -> String {
        "Everything was read back, and it is what was written.".to_owned()
    }

    async fn record(&self, tx: &mut Tx, ending: &Ending<'_>) -> Result<(), StoreError> {
        note_verification(tx, ending, self.backup, Verification::Verified).await?;
        note_readable(tx, ending, self.backup).await
    }

    async fn record_failure(&self, tx: &mut Tx, ending: &Ending<'_>, error: &EngineError) -> Result<(), StoreError> {
        note_unreadable(tx, ending, self.backup, error).await
    }
}
