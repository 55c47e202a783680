//! What every kind of run has: its work, what it records, and what it leaves behind. One file per kind implements it.

use async_trait::async_trait;
use holdfast_app::AppError;
use holdfast_core::Timestamp;
use holdfast_core::ids::ServerId;
use holdfast_core::run::FailureCode;
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
    /// Does the work, and keeps what came of it.
    async fn work(&mut self, working: &Working<'_>, contacts: &mut Contacts) -> Result<(), EngineError>;

    /// The last line in the log of a success.
    fn summary(&self) -> String;

    /// Looks at the result beside earlier ones, before the end is written.
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

    /// Tells people how it ended.
    async fn tell(&self, _tx: &mut Tx, _services: &Services, _outcome: &Outcome<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether [`Job::tell`] reports failures, so that a server that cannot be reached needs no notice of its own.
    fn tells_of_failures(&self) -> bool {
        false
    }

    /// How a run fails that took too long. Only short runs have such a limit.
    fn timeout_code(&self) -> FailureCode {
        FailureCode::Timeout
    }

    /// Clears up after work that was stopped because it took too long; nobody waits for this.
    fn clear_up(&self, _services: &Services) {}

    /// Takes away what was stored but is not on record: the run was lost to another worker, or could not be ended.
    async fn discard(&self, _services: &Services) {}

    /// What a run that ended in the middle of its work may have left, for its log.
    async fn left_behind(&self, _tx: &mut Tx, _run: &RunRow) -> Result<String, StoreError> {
        Ok(String::new())
    }
}

/// What the work of a run gets.
pub(super) struct Working<'a> {
    pub services: &'a Services,
    pub run: &'a RunRow,
    pub context: &'a Context,
}

/// What the transaction that ends a run knows.
pub(super) struct Ending<'a> {
    pub services: &'a Services,
    pub run: &'a RunRow,
    pub context: &'a Context,
    pub contacts: &'a Contacts,
    pub now: Timestamp,
}

/// What the log gets beside the job's own lines.
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

/// How a run ended, for people.
pub(super) struct Outcome<'a> {
    pub run: &'a RunRow,
    /// `None` after a success.
    pub failure: Option<(FailureCode, &'a str)>,
    pub next: Next,
    pub warnings: i64,
    pub now: Timestamp,
}

/// The servers that a run connected to.
#[derive(Default)]
pub(super) struct Contacts {
    pub server: Option<Contacted>,
    pub jump: Option<Contacted>,
}

/// A server, at the address where the run met it.
pub(super) struct Contacted {
    pub id: ServerId,
    pub host: String,
    pub port: i64,
}

impl Contacts {
    pub(super) fn note(&mut self, server: &Server, id: ServerId, jump: Option<ServerId>) {
        let at = |id: ServerId, target: &Target| Contacted { id, host: target.host.clone(), port: target.port.into() };
        self.server = Some(at(id, &server.target));
        self.jump = jump.zip(server.jump.as_ref()).map(|(id, target)| at(id, target));
    }
}

/// A database that is away is no fault of the run's: it can be tried again.
pub(super) fn of_app(error: AppError) -> EngineError {
    match error {
        AppError::Unavailable(reason) => {
            tracing::warn!(reason, "the database did not answer a run");
            EngineError::new(FailureCode::WorkerLost, "Holdfast's own database did not answer.")
        }
        error => EngineError::internal(format!("{error:?}")),
    }
}

pub(super) fn of_store(error: StoreError) -> EngineError {
    of_app(error.into())
}
