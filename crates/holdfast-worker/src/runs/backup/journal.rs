//! Records uploads before they exist, so that what a lost run leaves at a destination is found. A run whose lease was
//! lost cannot record a new one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdfast_app::{App, AppError};
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{DestinationId, RunId};
use holdfast_engine::{EngineError, Journal};
use holdfast_store::runs::RunRow;
use holdfast_store::uploads;

use crate::runs::job::of_app;
use crate::services::Services;

/// The pause between attempts while the database is unavailable.
const TRY_AGAIN: Duration = Duration::from_millis(500);

pub(super) struct RunJournal {
    app: Arc<App>,
    patience: Duration,
    run: RunId,
    epoch: i64,
    destination: DestinationId,
}

#[derive(Clone, Copy)]
enum Note<'a> {
    Begins { key: &'a str },
    Begun { upload_id: &'a str },
}

impl RunJournal {
    pub(super) fn new(services: &Services, run: &RunRow, destination: DestinationId) -> Self {
        let (app, patience) = (services.app.clone(), services.settings.lease);
        Self { app, patience, run: run.id, epoch: run.lease_epoch, destination }
    }

    /// Tries until the database answers, or the lease would have expired.
    async fn note(&self, note: Note<'_>) -> Result<(), EngineError> {
        let deadline = tokio::time::Instant::now() + self.patience;
        loop {
            match self.try_note(note).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(EngineError::new(FailureCode::WorkerLost, "Another worker has this run.")),
                Err(AppError::Unavailable(outage)) if tokio::time::Instant::now() < deadline => {
                    let reason = outage.reason;
                    tracing::warn!(run = self.run.0, reason, "an upload is not recorded yet; trying again");
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                Err(error) => return Err(of_app(error)),
            }
        }
    }

    async fn try_note(&self, note: Note<'_>) -> Result<bool, AppError> {
        let mut tx = self.app.store.begin().await?;
        let is_ours = match note {
            Note::Begins { key } => {
                uploads::insert(&mut tx, self.run, self.epoch, self.destination, key, self.app.now()).await?
            }
            Note::Begun { upload_id } => uploads::update_id(&mut tx, self.run, upload_id).await?,
        };
        tx.commit().await?;
        Ok(is_ours)
    }
}

#[async_trait]
impl Journal for RunJournal {
    async fn upload_begins(&self, key: &str) -> Result<(), EngineError> {
        self.note(Note::Begins { key }).await
    }

    async fn upload_begun(&self, _key: &str, upload_id: &str) -> Result<(), EngineError> {
        self.note(Note::Begun { upload_id }).await
    }
}
