//! Rendering of templates to responses, with the headers of every page, and of errors as pages.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Redirect, Response};
use holdfast_app::AppError;
use holdfast_app::refusal::Missing;

use crate::cookies::{self, Theme};
use crate::frame::Frame;
use crate::problem::{PageError, Problem};
use crate::state::Ui;
use crate::translator::Translator;

/// Only our own script, style sheet and images may be loaded.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(crate) fn render(status: StatusCode, template: &impl Template) -> Response {
    let html = match template.render() {
        Ok(html) => html,
        Err(error) => {
            tracing::error!(%error, "could not render a page");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    (status, Html(html)).into_response()
}

#[derive(Template)]
#[template(path = "message.html")]
pub(crate) struct MessagePage {
    pub frame: Frame,
    pub title: String,
    pub text: String,
    pub back: Option<String>,
}

pub(crate) async fn not_found() -> Response {
    PageError::App(AppError::Missing(Missing::Page)).into_response()
}

fn problem_page(problem: &Problem, t: Translator, theme: Theme, back: Option<String>) -> MessagePage {
    let text = match &problem.error {
        Some(error) => t.refused(error),
        None => t.say(&format!("{}-text", problem.key)),
    };
    MessagePage { frame: Frame::visitor(t, theme, String::new()), title: t.say(problem.key), text, back }
}

/// The last step of every response: renders problems as pages and adds the security headers.
pub(crate) async fn finish(State(_): State<Arc<Ui>>, request: Request, next: Next) -> Response {
    let headers = request.headers().clone();
    let mut response = next.run(request).await;
    if let Some(problem) = response.extensions().get::<Problem>().cloned() {
        let page = problem_page(&problem, cookies::language(&headers), Theme::of(&headers), own_referer(&headers));
        response = render(response.status(), &page);
    }
    let is_html =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    if is_html {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        // Not "no-referrer": browsers would then send our own forms with `Origin: null`.
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    }
    response
}

/// The address of the page that the user came from, if it is one of ours.
pub(crate) fn own_referer(headers: &HeaderMap) -> Option<String> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let (_, rest) = text(header::REFERER)?.split_once("://")?;
    let (host, path) = rest.split_once('/')?;
    let address = format!("/{path}");
    (Some(host) == text(header::HOST) && own_address(&address).is_some()).then_some(address)
}

/// The address if it leads to one of our pages. Browsers ignore tabs and line breaks in it, and treat a backslash as a
/// slash.
pub(crate) fn own_address(address: &str) -> Option<&str> {
    let mut chars = address.chars();
    let is_own = chars.next() == Some('/') && !matches!(chars.next(), Some('/' | '\\'));
    let is_clean = !address.contains(|c: char| c.is_control() || c == '\\');
    (is_own && is_clean && address.len() <= holdfast_core::limits::URL_CHARS).then_some(address)
}

/// Redirects to one of our pages, which then shows the confirmation message `said-<said>`.
pub(crate) fn done(address: &str, said: &str) -> Response {
    let (path, fragment) = address.split_once('#').map_or((address, None), |(path, part)| (path, Some(part)));
    let sign = if path.contains('?') { '&' } else { '?' };
    let fragment = fragment.map(|part| format!("#{part}")).unwrap_or_default();
    Redirect::to(&format!("{path}{sign}said={said}{fragment}")).into_response()
}

#[cfg(test)]
mod tests {
    use holdfast_app::refusal::Conflict;

    use super::*;
    use crate::problem::sign_in_address;

    #[test]
    fn user_input_is_escaped() {
        let message = "<img src=x onerror=alert(1)> a & b".to_owned();
        let conflict = Conflict::Unreadable { failure: "corrupt".into(), message };
        let error = Some(Arc::new(AppError::Conflict(conflict)));
        let problem = Problem { key: "problem-conflict", error };
        let html =
            problem_page(&problem, Translator::default(), Theme::Dark, Some("/a\"><b>".into())).render().unwrap();
        assert!(!html.contains("<img") && !html.contains("<b>") && html.contains("data-theme=\"dark\""), "{html}");
    }

    #[test]
    fn redirects_stay_on_our_own_pages() {
        assert_eq!(sign_in_address(Some("/runs/7?a=b")), "/sign-in?then=%2Fruns%2F7%3Fa%3Db");
        assert_eq!(sign_in_address(Some("/")), "/sign-in");
        let headers = |referer: &str| {
            let host = (header::HOST, "a.example".parse().unwrap());
            HeaderMap::from_iter([(header::REFERER, referer.parse().unwrap()), host])
        };
        assert_eq!(own_referer(&headers("http://a.example/tasks?x=1")), Some("/tasks?x=1".into()));
        assert_eq!(own_referer(&headers("http://b.example/tasks")), None);
    }

    #[test]
    fn addresses_of_other_sites_are_rejected() {
        assert_eq!(own_address("/runs/7?a=b"), Some("/runs/7?a=b"));
        for bad in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nb", "/\t/evil.example"] {
            assert_eq!(own_address(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_confirmation_goes_into_the_query_before_the_fragment() {
        let location = |address: &str| {
            let response = done(address, "saved");
            response.headers()[header::LOCATION].to_str().unwrap().to_owned()
        };
        assert_eq!(location("/account#messages"), "/account?said=saved#messages");
        assert_eq!(location("/tasks?tag=1"), "/tasks?tag=1&said=saved");
    }
}
