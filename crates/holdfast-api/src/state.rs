//! What every handler reaches.

use std::sync::Arc;

use holdfast_app::App;

/// Gives the figures of this process, as Prometheus reads them.
pub type MetricsRenderer = Arc<dyn Fn() -> String + Send + Sync>;

pub struct Api {
    pub app: Arc<App>,
    pub metrics: Option<MetricsRenderer>,
    /// Gives the document that describes all routes, which is one of them.
    pub(crate) document: fn() -> &'static str,
}
