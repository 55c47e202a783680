//! The axum router with all routes.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::routing::any;
use holdfast_app::App;

use crate::openapi::document;
use crate::routes::{self, routes};
use crate::state::{Api, MetricsRenderer};
use crate::{docs, error, operations, table};

static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());

impl Api {
    pub fn new(app: Arc<App>, metrics: Option<MetricsRenderer>) -> Self {
        Self { app, metrics, document: || &DOCUMENT }
    }
}

/// Everything below `/api`, the trigger URLs, the documentation and the endpoints for operators.
pub fn router(api: Arc<Api>) -> Router {
    let mut router = Router::new();
    let mut served = routes();
    // If it is disabled, the path does not exist for any method.
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
