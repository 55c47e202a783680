//! Signing in with an external account, and linking one.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use holdfast_app::identities::{self, SignInAttempt};
use holdfast_app::refusal::{Conflict, Missing};
use holdfast_app::{AppError, Context};
use holdfast_core::random;

use crate::cookies;
use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::page::{done, render};
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;

/// Redirects to the provider. A link, not a form: the content security policy allows forms only to our own pages.
pub(crate) async fn leave(
    State(ui): State<Arc<Ui>>,
    Extension(context): Extension<Context>,
    Path(provider): Path<String>,
) -> PageResult {
    let secret = random::token("").reveal().to_owned();
    let attempt = SignInAttempt { provider: &provider, secret: &secret, base_url: &context.base_url };
    let address = attempt.authorization_url(&ui.app, &context.origin("session")).await?;
    let mut response = Redirect::to(&address).into_response();
    cookies::begin_attempt(&mut response, &secret, ui.secure_cookies);
    Ok(response)
}

/// The return from the provider. If the user asked to link the account and confirmed it with their password, links it;
/// otherwise signs in with it.
pub(crate) async fn back(
    State(ui): State<Arc<Ui>>,
    Extension(context): Extension<Context>,
    Path(provider): Path<String>,
    person: Result<SignedIn, PageError>,
    uri: Uri,
    headers: HeaderMap,
) -> PageResult {
    let query = Form::of_query(uri.query());
    let (state, code) = (query.text("state"), query.text("code"));
    // Without the cookie, the sign-in did not start in this browser.
    let secret = cookies::attempt(&headers).ok_or(AppError::Conflict(Conflict::SignInNotBegun))?;
    let attempt = SignInAttempt { provider: &provider, secret: &secret, base_url: &context.base_url };
    let mut response = arrived(&ui, &attempt, person, &context, &headers, &state, &code).await?;
    cookies::end_attempt(&mut response, ui.secure_cookies);
    Ok(response)
}

async fn arrived(
    ui: &Ui,
    attempt: &SignInAttempt<'_>,
    person: Result<SignedIn, PageError>,
    context: &Context,
    headers: &HeaderMap,
    state: &str,
    code: &str,
) -> Result<Response, PageError> {
    match person {
        Ok(person) if cookies::wants_link(headers, &person.secret) => {
            attempt.link(&ui.app, &person.caller, state, code).await?;
            Ok(done("/account/security#identities", "identity-linked"))
        }
        Ok(_) | Err(PageError::SignIn { .. }) => {
            let device = cookies::device(headers);
            let secret = attempt.sign_in(&ui.app, state, code, &device, &context.origin("session")).await?;
            let mut response = Redirect::to("/").into_response();
            cookies::start(&mut response, &secret, ui.secure_cookies);
            Ok(response)
        }
        Err(error) => Err(error),
    }
}

#[derive(Template)]
#[template(path = "identity.html")]
struct LeavePage {
    frame: Frame,
    provider: String,
    name: String,
}

/// A linked external account gives lasting access to this account, so the password is required. The response contains a
/// link to the provider, because the content security policy allows forms only to our own pages.
pub(crate) async fn link(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(provider): Path<String>,
    form: Form,
) -> PageResult {
    let known = identities::list_providers(&ui.app).into_iter().find(|known| known.id == provider);
    let known = known.ok_or(AppError::Missing(Missing::Page))?;
    if let Err(answer) = super::security::confirmed(&ui, &person, &form).await? {
        return Ok(answer);
    }
    let page = LeavePage { frame: person.frame(&ui, Section::Account).await?, provider: known.id, name: known.name };
    let mut response = render(StatusCode::OK, &page);
    cookies::remember_link(&mut response, &person.secret, ui.secure_cookies);
    Ok(response)
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let page = LeavePage { frame: frame.clone(), provider: "oidc".into(), name: hostile.into() };
    vec![page.render().unwrap()]
}

pub(crate) async fn unlink(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(provider): Path<String>,
    _: Form,
) -> PageResult {
    identities::unlink(&ui.app, &person.caller, &provider).await?;
    Ok(done("/account/security#identities", "identity-unlinked"))
}
