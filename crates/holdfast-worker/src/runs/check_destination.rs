//! Writes a small object to a destination, reads it back and removes it.

use std::time::Duration;

use async_trait::async_trait;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::DestinationId;
use holdfast_core::random;
use holdfast_engine::destination::Checked;
use holdfast_engine::{DestinationPlan, EngineError};
use holdfast_store::{StoreError, Tx, destinations};

use super::findings::{note_destination, note_lost_destination};
use super::job::{ContactedServers, Ending, Job, Working, of_app, of_store};
use crate::services::Services;

/// How long removing the object of a check that timed out may take.
const CLEAR_UP_LIMIT: Duration = Duration::from_secs(30);

pub(super) struct CheckDestination {
    destination: DestinationId,
    /// Where the check wrote, and under which key.
    written: Option<(DestinationPlan, String)>,
    checked: Option<Checked>,
}

impl CheckDestination {
    pub(super) fn new(destination: DestinationId) -> Self {
        Self { destination, written: None, checked: None }
    }
}

#[async_trait]
impl Job for CheckDestination {
    async fn work(&mut self, working: &Working<'_>, _contacted: &mut ContactedServers) -> Result<(), EngineError> {
        let services = working.services;
        let mut tx = services.app.store.read().await.map_err(of_store)?;
        let plan = services.planner.destination(&mut tx, self.destination).await.map_err(of_app)?;
        drop(tx);
        let key = format!("holdfast-check-{}", random::hex(&random::bytes::<8>()));
        self.written = Some((plan.clone(), key.clone()));
        self.checked = Some(services.engine.check_destination(&plan, &key).await?);
        Ok(())
    }

    fn summary(&self) -> String {
        "The destination is reachable.".to_owned()
    }

    async fn record(&self, tx: &mut Tx, ending: &Ending<'_>) -> Result<(), StoreError> {
        let (Some(checked), Some((plan, _))) = (&self.checked, &self.written) else { return Ok(()) };
        note_destination(tx, self.destination, &plan.spec, &checked.identity, ending.now).await?;
        destinations::update_keeps_versions(tx, self.destination, checked.keeps_versions).await
    }

    async fn record_failure(&self, tx: &mut Tx, ending: &Ending<'_>, error: &EngineError) -> Result<(), StoreError> {
        note_lost_destination(tx, ending, self.destination, error).await
    }

    fn timeout_code(&self) -> FailureCode {
        FailureCode::DestinationUnavailable
    }

    fn clear_up(&self, services: &Services) {
        let Some((destination, key)) = self.written.clone() else { return };
        let engine = services.engine.clone();
        tokio::spawn(async move {
            let discarded = tokio::time::timeout(CLEAR_UP_LIMIT, engine.discard_upload(&destination, &key, None)).await;
            if !matches!(discarded, Ok(Ok(()))) {
                tracing::warn!(key, "the object of a check that timed out may have been left at its destination");
            }
        });
    }
}
