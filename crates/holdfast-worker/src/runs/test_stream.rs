//! Sends a sample through a notification stream, and records what the channel answered.

use async_trait::async_trait;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::StreamId;
use holdfast_engine::EngineError;
use holdfast_store::{StoreError, Tx, streams, users};

use super::job::{ContactedServers, Ending, Job, Working, of_app, of_store};
use crate::notices::dispatcher::stream_channel;

pub(super) struct TestStream {
    stream: StreamId,
    answer: String,
}

impl TestStream {
    pub(super) fn new(stream: StreamId) -> Self {
        Self { stream, answer: String::new() }
    }
}

#[async_trait]
impl Job for TestStream {
    async fn work(&mut self, working: &Working<'_>, _contacted: &mut ContactedServers) -> Result<(), EngineError> {
        let services = working.services;
        let mut tx = services.app.store.read().await.map_err(of_store)?;
        let channel = stream_channel(&mut tx, self.stream).await.map_err(of_app)?;
        let stream = streams::find(&mut tx, self.stream).await.map_err(of_store)?;
        let user = users::find(&mut tx, working.run.user_id).await.map_err(of_store)?;
        drop(tx);
        let (Some((_, channel)), Some(stream), Some(user)) = (channel, stream, user) else {
            return Err(EngineError::internal("the stream of this run is gone"));
        };
        let sample = services.outbox.sample(&stream.label, &user.timezone, services.app.now());
        let delivered = services.sender.deliver(&channel, &sample, user.is_admin).await;
        self.answer = delivered.map_err(|refusal| EngineError::new(FailureCode::NotDelivered, refusal.text))?;
        Ok(())
    }

    fn summary(&self) -> String {
        format!("A sample was delivered. {}", self.answer)
    }

    async fn record(&self, tx: &mut Tx, ending: &Ending<'_>) -> Result<(), StoreError> {
        streams::update_test(tx, self.stream, true, &self.answer, ending.now).await
    }

    async fn record_failure(&self, tx: &mut Tx, ending: &Ending<'_>, error: &EngineError) -> Result<(), StoreError> {
        streams::update_test(tx, self.stream, false, &error.message, ending.now).await
    }

    fn timeout_code(&self) -> FailureCode {
        FailureCode::NotDelivered
    }
}
