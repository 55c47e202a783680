//! Signing in and out, and claiming the first account through its one-time link.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use holdfast_app::accounts::{self, Credentials};
use holdfast_app::{AppError, Context};
use holdfast_core::Secret;
use holdfast_core::clock;
use holdfast_core::input::{Errors, Field};
use holdfast_core::user::{UserDraft, check_password};

use crate::Ui;
use crate::form::{Form, csrf_token};
use crate::page::{FormErrors, PageResult, message, render};
use crate::session::{self, SignedIn};

#[derive(Template, Default)]
#[template(path = "sign_in.html")]
struct SignInPage {
    csrf: String,
    email: String,
    asks_otp: bool,
    /// The run whose page somebody wanted to see.
    run: Option<i64>,
    errors: FormErrors,
}

#[derive(Template, Default)]
#[template(path = "set_up.html")]
struct SetUpPage {
    csrf: String,
    link: String,
    name: String,
    email: String,
    timezone: String,
    zones: Vec<String>,
    errors: FormErrors,
}

/// What the page's address may carry.
#[derive(serde::Deserialize)]
pub(crate) struct Wanted {
    run: Option<String>,
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, Query(wanted): Query<Wanted>, headers: HeaderMap) -> Response {
    let run = wanted.run.and_then(|id| id.parse().ok());
    visitor_page(&ui, &headers, StatusCode::OK, |csrf| SignInPage { csrf, run, ..SignInPage::default() })
}

pub(crate) async fn submit(
    State(ui): State<Arc<Ui>>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
    form: Form,
) -> PageResult {
    let email = form.text("email");
    let run: Option<i64> = form.text("run").parse().ok();
    let otp = form.text("otp");
    let credentials = Credentials {
        email: Field::Value(email.clone()),
        password: Field::Value(form.text("password")),
        otp: if otp.is_empty() { Field::Absent } else { Field::Value(otp) },
    };
    match accounts::sign_in(&ui.app, &credentials, &context.origin("session")).await {
        Ok(secret) => Ok(signed_in(&ui, &secret, run)),
        Err(AppError::Invalid(errors)) => {
            let asks_otp = errors.has("otp");
            Ok(visitor_page(&ui, &headers, StatusCode::UNPROCESSABLE_ENTITY, |csrf| SignInPage {
                csrf,
                email,
                asks_otp,
                run,
                errors: FormErrors(errors),
            }))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn show_set_up(State(ui): State<Arc<Ui>>, Path(link): Path<String>, headers: HeaderMap) -> PageResult {
    if !accounts::is_link_valid(&ui.app, &link).await? {
        let text = "It has expired or was used before. If nobody has signed in yet, restart Holdfast: it prints a new \
            one.";
        return Ok(message(StatusCode::NOT_FOUND, "This link does not work any more", text));
    }
    let page = SetUpPage { link, timezone: "UTC".into(), zones: clock::zone_names(), ..SetUpPage::default() };
    Ok(visitor_page(&ui, &headers, StatusCode::OK, |csrf| SetUpPage { csrf, ..page }))
}

pub(crate) async fn submit_set_up(
    State(ui): State<Arc<Ui>>,
    Extension(context): Extension<Context>,
    Path(link): Path<String>,
    headers: HeaderMap,
    form: Form,
) -> PageResult {
    let password = Secret::new(form.text("password"));
    let draft = UserDraft::check(&form.text("name"), &form.text("email"), &form.text("timezone"), true);
    let claimed = match (draft, check_password(&password)) {
        (Ok(draft), Ok(())) => accounts::claim(&ui.app, &link, &draft, &password, &context.origin("session")).await,
        (draft, password) => Err(AppError::Invalid(join(draft.err(), password.err()))),
    };
    match claimed {
        Ok(secret) => Ok(signed_in(&ui, &secret, None)),
        Err(AppError::Invalid(errors)) => {
            let page = SetUpPage {
                link,
                name: form.text("name"),
                email: form.text("email"),
                timezone: form.text("timezone"),
                zones: clock::zone_names(),
                errors: FormErrors(errors),
                ..SetUpPage::default()
            };
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            Ok(visitor_page(&ui, &headers, status, |csrf| SetUpPage { csrf, ..page }))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn sign_out(State(ui): State<Arc<Ui>>, person: SignedIn, _: Form) -> PageResult {
    accounts::sign_out(&ui.app, &person.secret, &person.caller).await?;
    let mut response = Redirect::to("/sign-in").into_response();
    session::end(&mut response, ui.secure_cookies);
    Ok(response)
}

fn signed_in(ui: &Ui, secret: &Secret, run: Option<i64>) -> Response {
    let wanted = run.map_or_else(|| "/account".to_owned(), |run| format!("/runs/{run}"));
    let mut response = Redirect::to(&wanted).into_response();
    session::start(&mut response, secret, ui.secure_cookies);
    response
}

/// A page with a form for somebody who is not signed in.
fn visitor_page<T: Template>(
    ui: &Ui,
    headers: &HeaderMap,
    status: StatusCode,
    page: impl FnOnce(String) -> T,
) -> Response {
    let secret = session::visitor_secret(headers);
    let mut response = render(status, &page(csrf_token(&secret)));
    session::remember_visitor(&mut response, &secret, ui.secure_cookies);
    response
}

fn join(first: Option<Errors>, second: Option<Errors>) -> Errors {
    let mut all = first.unwrap_or_default();
    for (field, texts) in second.unwrap_or_default().iter() {
        texts.iter().for_each(|text| all.add(field, text.clone()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_render_with_hostile_input() {
        let hostile = "\"><script>alert(1)</script>".to_owned();
        let errors = || FormErrors(Errors::one("email", "<b>bad</b>"));
        let pages = [
            SignInPage { email: hostile.clone(), asks_otp: true, errors: errors(), ..SignInPage::default() }.render(),
            SetUpPage { name: hostile, link: "x".into(), errors: errors(), ..SetUpPage::default() }.render(),
        ];
        for html in pages {
            let html = html.unwrap();
            assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        }
    }
}
