//! The state shared by all handlers.

use std::sync::Arc;

use holdfast_app::App;

/// Renders the metrics of this process in the Prometheus text format.
pub type MetricsRenderer = Arc<dyn Fn() -> String + Send + Sync>;

pub struct Api {
    pub app: Arc<App>,
    pub metrics: Option<MetricsRenderer>,
    /// Returns the OpenAPI document. A function, because the document describes the route that serves it.
    pub(crate) document: fn() -> &'static str,
}
