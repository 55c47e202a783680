//! The account page: who is signed in, their API tokens, their SSH key.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use holdfast_app::tokens::{self, TokenRequest};
use holdfast_app::{AppError, ssh_key};
use holdfast_core::clock;
use holdfast_core::ids::TokenId;
use holdfast_core::input::Errors;
use holdfast_core::scope::{Scope, ScopeSet};

use crate::Ui;
use crate::form::{Form, csrf_token};
use crate::hearing::HearingPart;
use crate::page::{FormErrors, PageResult, render};
use crate::session::SignedIn;

#[derive(Template, Default)]
#[template(path = "account.html")]
struct AccountPage {
    csrf: String,
    name: String,
    email: String,
    timezone: String,
    new_token: Option<String>,
    tokens: Vec<TokenLine>,
    form_name: String,
    scopes: Vec<ScopeChoice>,
    errors: FormErrors,
    install_command: String,
    fingerprint: String,
    hearing: HearingPart,
}

struct TokenLine {
    id: i64,
    name: String,
    scopes: String,
    last_used: String,
    expires: String,
}

struct ScopeChoice {
    name: &'static str,
    chosen: bool,
}

/// What the token form held, to show it again next to its errors.
#[derive(Default)]
pub(crate) struct TokenForm {
    name: String,
    scopes: ScopeSet,
    errors: Errors,
}

pub(crate) async fn start(person: Result<SignedIn, crate::page::PageError>) -> Response {
    match person {
        Ok(_) => Redirect::to("/account").into_response(),
        Err(error) => error.into_response(),
    }
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let hearing = HearingPart::load(&ui, &person).await?;
    page(&ui, &person, StatusCode::OK, None, TokenForm::default(), hearing).await
}

pub(crate) async fn create_token(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    let days: Option<i64> = form.text("expires_in_days").parse().ok().filter(|days| (1..=3650).contains(days));
    let request = TokenRequest {
        name: form.text("name"),
        scopes: chosen_scopes(&form),
        expires_at: days.map(|days| clock::from_micros(ui.app.now().as_microsecond() + days * 86_400_000_000)),
    };
    match tokens::create(&ui.app, person.caller.user, &person.caller.origin, &request).await {
        Ok(secret) => {
            let shown = Some(secret.reveal().to_owned());
            let hearing = HearingPart::load(&ui, &person).await?;
            page(&ui, &person, StatusCode::CREATED, shown, TokenForm::default(), hearing).await
        }
        Err(AppError::Invalid(errors)) => {
            let form = TokenForm { name: request.name, scopes: request.scopes, errors };
            let hearing = HearingPart::load(&ui, &person).await?;
            page(&ui, &person, StatusCode::UNPROCESSABLE_ENTITY, None, form, hearing).await
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn revoke_token(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    _: Form,
) -> PageResult {
    let id = id.parse().map_err(|_| AppError::Missing("API token not found"))?;
    tokens::revoke(&ui.app, person.caller.user, &person.caller.origin, TokenId(id)).await?;
    Ok(Redirect::to("/account").into_response())
}

fn chosen_scopes(form: &Form) -> ScopeSet {
    if form.texts("scopes").any(|scope| scope == "everything") {
        return ScopeSet::all();
    }
    form.texts("scopes").filter_map(Scope::parse).collect()
}

pub(crate) async fn page(
    ui: &Ui,
    person: &SignedIn,
    status: StatusCode,
    new_token: Option<String>,
    form: TokenForm,
    hearing: HearingPart,
) -> PageResult {
    let zone = &person.caller.zone;
    let shown = |at: clock::Instant| clock::local_date_time(at, zone);
    let rows = tokens::list(&ui.app, person.caller.user).await?;
    let lines = rows.into_iter().map(|row| TokenLine {
        id: row.id,
        scopes: describe_scopes(&row.scopes),
        last_used: row.last_used_at.map_or_else(|| "never".to_owned(), |at| shown(at.0)),
        expires: row.expires_at.map_or_else(|| "never".to_owned(), |at| shown(at.0)),
        name: row.name,
    });
    let key = ssh_key::show(&ui.app, &person.caller).await?;
    let page = AccountPage {
        csrf: csrf_token(&person.secret),
        name: person.name.clone(),
        email: person.email.clone(),
        timezone: person.timezone.clone(),
        new_token,
        tokens: lines.collect(),
        form_name: form.name,
        scopes: Scope::ALL
            .iter()
            .map(|scope| ScopeChoice { name: scope.as_str(), chosen: form.scopes.contains(*scope) })
            .collect(),
        errors: FormErrors(form.errors),
        install_command: key.install_command,
        fingerprint: key.fingerprint,
        hearing,
    };
    Ok(render(status, &page))
}

fn describe_scopes(text: &str) -> String {
    let scopes = ScopeSet::from_text(text);
    if scopes == ScopeSet::all() { "everything".to_owned() } else { scopes.to_text().replace(' ', ", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_named_like_markup_shows_as_text() {
        let hostile = "<img src=x onerror=alert(1)>".to_owned();
        let line = TokenLine {
            id: 1,
            name: hostile,
            scopes: "manage-tags".into(),
            last_used: "never".into(),
            expires: "never".into(),
        };
        let page = AccountPage { tokens: vec![line], new_token: Some("hf_x".into()), ..AccountPage::default() };
        let html = page.render().unwrap();
        assert!(!html.contains("<img") && html.contains("hf_x"), "{html}");
    }
}
