//! All pages, each with its handler.

use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Router, middleware};
use tower_http::compression::CompressionLayer;

use crate::pages::{
    account, administration, audit, backups, destinations, form_resource, identity, notices, overview, person,
    person_acts, probe, restore, runs, search, security, servers, sign_in, streams, tags, task_form, task_repository,
    tasks,
};
use crate::state::Ui;
use crate::{assets, live, page};

/// All pages. Any other path outside the API gets the "not found" page.
pub fn router(ui: Arc<Ui>) -> Router {
    let pages = Router::new()
        .merge(visitors())
        .merge(account_pages())
        .merge(task_pages())
        .merge(backup_pages())
        .merge(resource_pages())
        .route("/", get(overview::show))
        .route("/search", get(search::show))
        .route("/theme", post(sign_in::set_theme))
        .route("/administration", get(administration::show))
        .route("/administration/invite", post(administration::invite))
        .route(
            "/administration/registration",
            get(administration::ask_to_open_registration).post(administration::set_registration),
        )
        .merge(person_pages())
        .route("/administration/people/{id}/link", post(administration::renew_link))
        .route("/assets/{name}", get(assets::show))
        .fallback(page::not_found)
        .method_not_allowed_fallback(page::not_found)
        .layer(middleware::from_fn_with_state(ui.clone(), page::finish))
        // Outermost, so that error pages are compressed too. Not for downloads, which are compressed already.
        .layer(CompressionLayer::new());
    let plain = Router::new()
        .route("/live", get(live::show))
        .route("/backups/{id}/download", get(backups::download))
        .layer(middleware::from_fn_with_state(ui.clone(), page::finish));
    pages.merge(plain).with_state(ui)
}

fn visitors() -> Router<Arc<Ui>> {
    Router::new()
        .route("/sign-in", get(sign_in::show).post(sign_in::submit))
        .route("/sign-in/{provider}", get(identity::leave))
        .route("/sign-in/{provider}/back", get(identity::back))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/set-up/{link}", get(sign_in::show_link).post(sign_in::submit_link))
        .route("/register", get(sign_in::show_register).post(sign_in::register))
        .route("/forgotten", get(sign_in::show_forgotten).post(sign_in::forgotten))
}

fn account_pages() -> Router<Arc<Ui>> {
    Router::new()
        .route("/account", get(account::show))
        .route("/account/profile", post(account::update_profile))
        .route("/account/messages", post(account::update_notification_settings))
        .route("/account/tokens", post(account::create_token))
        .route("/account/tokens/{id}/revoke", post(account::revoke_token))
        .route("/account/delete", get(account::show_delete).post(account::delete))
        .route("/account/security", get(security::show))
        .route("/account/password", post(security::change_password))
        .route("/account/two-factor", get(security::show_two_factor).post(security::confirm_two_factor))
        .route("/account/two-factor/change", post(security::change_two_factor))
        .route("/account/sessions/{id}/revoke", post(security::revoke_session))
        .route("/account/identities/{provider}/link", post(identity::link))
        .route("/account/identities/{provider}/unlink", post(identity::unlink))
        .route("/audit", get(audit::show))
        .route("/notices", get(notices::list))
        .route("/notices/{id}/retry", post(notices::retry))
}

fn person_pages() -> Router<Arc<Ui>> {
    Router::new()
        .route("/administration/people/{id}", get(person::show))
        .route("/administration/people/{id}/resume", post(person::resume))
        .route("/administration/people/{id}/{act}", get(person_acts::ask).post(person_acts::submit))
        .route("/administration/people/{id}/tasks/{task}/{act}", post(person::act_on_task))
        .route("/administration/people/{id}/runs/{run}/cancel", post(person::cancel_run))
}

fn task_pages() -> Router<Arc<Ui>> {
    Router::new()
        .route("/tasks", get(tasks::list))
        .route("/tasks/bulk", post(tasks::bulk))
        .route("/tasks/preview", get(task_form::show_preview))
        .route("/tasks/new", get(task_form::show_new).post(task_form::create))
        .route("/tasks/{id}", get(tasks::show))
        .route("/tasks/{id}/edit", get(task_form::show_edit).post(task_form::update))
        .route("/tasks/{id}/copy", get(task_form::show_copy))
        .route("/tasks/{id}/run", post(tasks::run))
        .route("/tasks/{id}/cancel", post(tasks::cancel))
        .route("/tasks/{id}/pause", post(tasks::pause))
        .route("/tasks/{id}/repository/prune", post(task_repository::prune))
        .route("/tasks/{id}/repository/check", post(task_repository::check_repository))
        .route("/tasks/{id}/resume", post(tasks::resume))
        .route("/tasks/{id}/release", get(tasks::show_release).post(tasks::release))
        .route("/tasks/{id}/trigger", get(tasks::show_trigger).post(tasks::rotate_trigger))
        .route("/tasks/{id}/delete", get(tasks::show_delete).post(tasks::delete))
        .route("/runs", get(runs::list))
        .route("/runs/{id}", get(runs::show))
        .route("/runs/{id}/cancel", post(runs::cancel))
        .route("/runs/{id}/delete", post(runs::delete))
}

fn backup_pages() -> Router<Arc<Ui>> {
    Router::new()
        .route("/backups", get(backups::list))
        .route("/backups/{id}", get(backups::show))
        .route("/backups/{id}/verify", post(backups::verify))
        .route("/backups/{id}/restore", get(restore::show).post(restore::submit))
        .route("/backups/{id}/delete", get(backups::show_delete).post(backups::delete))
}

fn resource_pages() -> Router<Arc<Ui>> {
    Router::new()
        .merge(form_resource::routes::<servers::Server>())
        .merge(form_resource::routes::<destinations::Destination>())
        .merge(form_resource::routes::<streams::Stream>())
        .merge(form_resource::routes::<tags::Tag>())
        .route("/servers", get(servers::list))
        .route("/servers/{id}", get(servers::show))
        .route("/servers/{id}/check", post(servers::check))
        .route("/servers/{id}/accept-key", post(servers::accept_key))
        .route("/servers/{id}/browse", get(probe::show_browse))
        .route("/destinations", get(destinations::list))
        .route("/destinations/{id}", get(destinations::show))
        .route("/destinations/{id}/check", post(destinations::check))
        .route("/destinations/{id}/inventory", post(destinations::take_inventory))
        .route("/notifications", get(streams::list))
        .route("/notifications/{id}/test", post(streams::test))
        .route("/tags", get(tags::list))
}
