//! What every kind of run has: its work, what it records, and what it leaves behind. One file per kind implements it.

use async_trait::async_trait;
use holdfast_app::{AppError, Outage, OutageCause};
use holdfast_core::Timestamp;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::ServerId;
use holdfast_engine::ssh::Target;
use holdfast_engine::{Context, EngineError, Server};
use holdfast_store::runs::RunRow;
use holdfast_store::tasks::TaskRow;
use holdfast_store::{StoreError, Tx};

use crate::services::Services;

/// One run, with what it has found out so far. The work comes first; the rest follows in the transaction that ends the
/// run, which may be tried more than once.
#[async_trait]
pub(super) trait Job: Send + Sync {
    /// Does the work and keeps its result.
    async fn work(&mut self, working: &Working<'_>, contacted: &mut ContactedServers) -> Result<(), EngineError>;

    /// The last line in the log of a success.
    fn summary(&self) -> String;

    /// Compares the result with earlier ones, before the end is written.
    async fn assess(
        &mut self,
        _tx: &mut Tx,
        _ending: &Ending<'_>,
        _task: Option<&TaskRow>,
    ) -> Result<Assessed, StoreError> {
        Ok(Assessed::default())
    }

    /// Records a success.
    async fn record(&self, tx: &mut Tx, ending: &Ending<'_>) -> Result<(), StoreError>;

    /// Records what a failure means beyond the run itself.
    async fn record_failure(&self, _tx: &mut Tx, _ending: &Ending<'_>, _error: &EngineError) -> Result<(), StoreError> {
        Ok(())
    }

    /// Reports to users how it ended.
    async fn tell(&self, _tx: &mut Tx, _services: &Services, _outcome: &RunOutcome<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether [`Job::tell`] reports failures, so that a server that cannot be reached needs no separate notice.
    fn tells_of_failures(&self) -> bool {
        false
    }

    /// The code with which a run that took too long fails. Only short runs have such a limit.
    fn timeout_code(&self) -> FailureCode {
        FailureCode::Timeout
    }

    /// Cleans up, in the background, after work that was stopped because it took too long.
    fn clear_up(&self, _services: &Services) {}

    /// Removes what was stored but is not on record: the run was lost to another worker, or could not be ended.
    async fn discard(&self, _services: &Services) {}

    /// What a run that was interrupted in its work may have left behind, for its log.
    async fn left_behind(&self, _tx: &mut Tx, _run: &RunRow) -> Result<String, StoreError> {
        Ok(String::new())
    }
}

/// What a run is given for its work.
pub(super) struct Working<'a> {
    pub services: &'a Services,
    pub run: &'a RunRow,
    pub context: &'a Context,
}

/// What the transaction that ends a run is given.
pub(super) struct Ending<'a> {
    pub services: &'a Services,
    pub run: &'a RunRow,
    pub context: &'a Context,
    pub contacted: &'a ContactedServers,
    pub now: Timestamp,
}

/// What is logged in addition to the job's own lines.
#[derive(Default)]
pub(super) struct Assessed {
    pub lines: Vec<String>,
    /// How many of these lines are warnings.
    pub warnings: i64,
}

/// What follows for a task from the end of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    Retry,
    Pause,
}

/// How a run ended, as reported to users.
pub(super) struct RunOutcome<'a> {
    pub run: &'a RunRow,
    /// `None` after a success.
    pub failure: Option<(FailureCode, &'a str)>,
    pub next: Next,
    pub warnings: i64,
    pub now: Timestamp,
}

/// The servers that a run connected to.
#[derive(Default)]
pub(super) struct ContactedServers {
    pub server: Option<ContactedServer>,
    pub jump: Option<ContactedServer>,
}

/// A server, and the address at which the run contacted it.
pub(super) struct ContactedServer {
    pub id: ServerId,
    pub host: String,
    pub port: i64,
}

impl ContactedServers {
    pub(super) fn note(&mut self, server: &Server, id: ServerId, jump: Option<ServerId>) {
        let at =
            |id: ServerId, target: &Target| ContactedServer { id, host: target.host.clone(), port: target.port.into() };
        self.server = Some(at(id, &server.target));
        self.jump = jump.zip(server.jump.as_ref()).map(|(id, target)| at(id, target));
    }
}

/// An unavailable database or master key is not the fault of the run, which can be tried again.
pub(super) fn of_app(error: AppError) -> EngineError {
    match error {
        AppError::Unavailable(Outage { cause: OutageCause::NoKey, reason }) => {
            tracing::error!(reason, "a run needs a secret that cannot be opened");
            EngineError::new(FailureCode::KeyMissing, "The master key of Holdfast is missing or cannot be used.")
        }
        AppError::Unavailable(outage) => {
            tracing::warn!(reason = outage.reason, "the database did not answer a run");
            EngineError::new(FailureCode::DatabaseAway, "Holdfast's own database did not answer.")
        }
        error => EngineError::internal(format!("{error:?}")),
    }
}

pub(super) fn of_store(error: StoreError) -> EngineError {
    of_app(error.into())
}
