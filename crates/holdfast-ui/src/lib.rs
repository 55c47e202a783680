//! The HTML pages: sign-in, the first account, the account page with its API tokens and messages, and a run's log. Server-rendered, no script.

mod account;
mod form;
mod hearing;
mod page;
mod run;
mod session;
mod sign_in;

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::routing::{get, post};
use holdfast_app::App;

/// What every page reaches.
pub struct Ui {
    pub app: Arc<App>,
    /// Cookies are for https alone when people reach the service that way.
    pub secure_cookies: bool,
}

/// All pages. Everything else that is not an API path is a page that does not exist.
pub fn router(ui: Arc<Ui>) -> Router {
    Router::new()
        .route("/", get(account::start))
        .route("/sign-in", get(sign_in::show).post(sign_in::submit))
        .route("/set-up/{link}", get(sign_in::show_set_up).post(sign_in::submit_set_up))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/account", get(account::show))
        .route("/account/tokens", post(account::create_token))
        .route("/account/tokens/{id}/revoke", post(account::revoke_token))
        .route("/account/messages", post(hearing::update))
        .route("/account/notices/{id}/retry", post(hearing::retry))
        .route("/runs/{id}", get(run::show))
        .route("/assets/holdfast.css", get(stylesheet))
        .fallback(page::not_found)
        .with_state(ui)
}

async fn stylesheet() -> ([(header::HeaderName, &'static str); 2], &'static str) {
    let headers = [(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "max-age=3600")];
    (headers, include_str!("../assets/holdfast.css"))
}
