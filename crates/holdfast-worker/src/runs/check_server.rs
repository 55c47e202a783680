//! Connects to a server and looks for the tools that backups need there.

use async_trait::async_trait;
use holdfast_core::ids::ServerId;
use holdfast_engine::{EngineError, ServerReport};
use holdfast_store::{StoreError, Tx, servers};

use super::job::{ContactedServers, Ending, Job, Working, of_app};

pub(super) struct CheckServer {
    server: ServerId,
    report: Option<ServerReport>,
}

impl CheckServer {
    pub(super) fn new(server: ServerId) -> Self {
        Self { server, report: None }
    }
}

#[async_trait]
impl Job for CheckServer {
    async fn work(&mut self, working: &Working<'_>, contacted: &mut ContactedServers) -> Result<(), EngineError> {
        let services = working.services;
        let planned = services.planner.server(&services.app, working.run.user_id, self.server).await;
        let (server, row) = planned.map_err(of_app)?;
        contacted.note(&server, self.server, row.jump_server_id);
        self.report = Some(services.engine.check_server(&server, working.context).await?);
        Ok(())
    }

    fn summary(&self) -> String {
        "The server is online.".to_owned()
    }

    async fn record(&self, tx: &mut Tx, _ending: &Ending<'_>) -> Result<(), StoreError> {
        let Some(report) = &self.report else { return Ok(()) };
        let mut tools = report.tools.clone();
        if report.has_sftp {
            tools.push(("sftp".to_owned(), "available".to_owned()));
        }
        servers::update_tools(tx, self.server, &tools).await
    }
}
