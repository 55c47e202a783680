//! The JSON API: routes with their scopes, wire types, error bodies, pagination, and the document that describes them.

mod answer;
mod backups;
mod body;
mod call;
mod context;
mod destinations;
mod device;
mod docs;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod list;
mod logs;
mod notices;
mod openapi;
mod operations;
mod routes;
mod servers;
mod ssh_key;
mod streams;
mod table;
mod tags;
mod tasks;
mod triggers;
mod user;

use std::sync::Arc;

use axum::Router;
use axum::routing::any;
use holdfast_app::App;

pub use context::{ContextSettings, with_context};
pub use openapi::document;
pub use operations::{MetricsRenderer, operations_router};
pub use routes::routes;
pub use table::{Access, Route};

/// What every handler reaches.
pub struct Api {
    pub app: Arc<App>,
    pub metrics: Option<MetricsRenderer>,
}

/// Everything below `/api`, the trigger URLs, the documentation and the endpoints for operators.
pub fn router(api: Arc<Api>) -> Router {
    let mut router = Router::new();
    let mut served = routes();
    // Switched off, it is a path that does not exist, whatever the method.
    served.retain(|route| api.app.device_auth_enabled || route.path != routes::DEVICE_TOKEN);
    for (path, methods) in table::by_path(served, &api) {
        router = router.route(path, methods);
    }
    router
        .route("/api", any(error::unknown_path))
        .route("/api/", any(error::unknown_path))
        .route("/api/{*rest}", any(error::unknown_path))
        .route("/webhooks/{*rest}", any(error::unknown_path))
        .merge(operations::router())
        .merge(docs::router())
        .method_not_allowed_fallback(error::method_not_allowed)
        .with_state(api)
}
