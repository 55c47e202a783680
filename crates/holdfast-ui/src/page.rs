//! Rendering: templates to answers, with the headers that every page has, and errors as pages.

use askama::Template;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use holdfast_app::AppError;
use holdfast_core::input::Errors;

/// Nothing runs and nothing is loaded but our own style sheet.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";

pub(crate) fn render(status: StatusCode, template: &impl Template) -> Response {
    let html = match template.render() {
        Ok(html) => html,
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let mut response = (status, Html(html)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    // Not "no-referrer": browsers would then send our own forms with `Origin: null`.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

#[derive(Template)]
#[template(path = "message.html")]
pub(crate) struct MessagePage {
    pub title: String,
    pub text: String,
}

pub(crate) fn message(status: StatusCode, title: &str, text: impl Into<String>) -> Response {
    render(status, &MessagePage { title: title.to_owned(), text: text.into() })
}

pub(crate) async fn not_found() -> Response {
    message(StatusCode::NOT_FOUND, "There is no such page", "The address may be mistyped, or the page has moved.")
}

/// The errors of a form, looked up by the template next to each field.
#[derive(Default)]
pub(crate) struct FormErrors(pub Errors);

impl FormErrors {
    pub(crate) fn of(&self, field: &str) -> Vec<String> {
        let own = self.0.iter().find(|(name, _)| *name == field);
        own.map(|(_, texts)| texts.to_vec()).unwrap_or_default()
    }
}

/// What stops a page from being shown.
pub(crate) enum PageError {
    App(AppError),
    /// The form did not come from our own page.
    Forged,
}

impl From<AppError> for PageError {
    fn from(error: AppError) -> Self {
        Self::App(error)
    }
}

pub(crate) type PageResult = Result<Response, PageError>;

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let error = match self {
            Self::Forged => {
                let text = "The form was not sent from Holdfast's own page, or was open for too long. Go back, reload \
                    the page and try again. Nothing was changed.";
                return message(StatusCode::FORBIDDEN, "This form is not valid any more", text);
            }
            Self::App(error) => error,
        };
        let text = error.to_string();
        match error {
            AppError::Unauthenticated => Redirect::to("/sign-in").into_response(),
            AppError::TooManyRequests { .. } => message(StatusCode::TOO_MANY_REQUESTS, "Too many tries", text),
            AppError::MissingScope(_) | AppError::Forbidden(_) => message(StatusCode::FORBIDDEN, "Not allowed", text),
            AppError::NotFound(_) | AppError::Missing(_) => message(StatusCode::NOT_FOUND, "Not found", text),
            AppError::Conflict(_) => message(StatusCode::CONFLICT, "Not possible now", text),
            AppError::Invalid(errors) => {
                let texts: Vec<&str> = errors.iter().flat_map(|(_, texts)| texts).map(String::as_str).collect();
                message(StatusCode::UNPROCESSABLE_ENTITY, "Something is missing", texts.join(" "))
            }
            AppError::Unavailable(reason) => {
                tracing::warn!(reason, "unavailable");
                message(StatusCode::SERVICE_UNAVAILABLE, "Holdfast is busy", text)
            }
            AppError::Internal(reason) => {
                tracing::error!(reason, "internal error");
                message(StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong", text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_typed_shows_as_text() {
        let page = MessagePage { title: "<img src=x onerror=alert(1)>".into(), text: "a & b".into() };
        let html = page.render().unwrap();
        assert!(!html.contains("<img") && html.contains("a &#38; b"), "{html}");
    }
}
