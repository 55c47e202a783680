//! Looks something up on a server for a user who is creating a task: a folder, its databases, or the size of a source.

use async_trait::async_trait;
use holdfast_core::ids::ServerId;
use holdfast_core::probe::Answer;
use holdfast_engine::EngineError;
use holdfast_store::{StoreError, Tx, probes};

use super::job::{ContactedServers, Ending, Job, Working, of_app};
use crate::plans::gone;

pub(super) struct Probe {
    server: ServerId,
    answer: Option<Answer>,
}

impl Probe {
    pub(super) fn new(server: ServerId) -> Self {
        Self { server, answer: None }
    }
}

#[async_trait]
impl Job for Probe {
    async fn work(&mut self, working: &Working<'_>, contacted: &mut ContactedServers) -> Result<(), EngineError> {
        let (services, run) = (working.services, working.run);
        let (server, probe) = async {
            let question = probes::find_question(&mut services.app.store.read().await?, run.id).await?;
            let question = question.ok_or_else(|| gone("question"))?;
            let (server, row) = services.planner.server(&services.app, run.user_id, self.server).await?;
            contacted.note(&server, self.server, row.jump_server_id);
            Ok((server, services.planner.probe(&services.app, &row, question).await?))
        }
        .await
        .map_err(of_app)?;
        self.answer = Some(services.engine.probe(&server, &probe, working.context).await?);
        Ok(())
    }

    fn summary(&self) -> String {
        "The server answered.".to_owned()
    }

    async fn record(&self, tx: &mut Tx, ending: &Ending<'_>) -> Result<(), StoreError> {
        match &self.answer {
            Some(answer) => probes::update_answer(tx, ending.run.id, answer).await,
            None => Ok(()),
        }
    }
}
