//! The services that the parts of a worker share.

use std::sync::Arc;

use holdfast_app::App;
use holdfast_engine::Engine;
use holdfast_notify::Sender;
use tokio_util::sync::CancellationToken;

use crate::notices::outbox::Outbox;
use crate::plans::Planner;
use crate::settings::Settings;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Services {
    pub app: Arc<App>,
    pub engine: Engine,
    pub planner: Planner,
    pub settings: Settings,
    /// Cancelled when the process ends and its runs have no more time.
    pub halt: CancellationToken,
    pub outbox: Outbox,
    pub sender: Sender,
}
