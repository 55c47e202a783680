//! Who a browser is: its session cookie, or before sign-in a cookie that only ties forms to the browser.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use holdfast_app::{AppError, Caller, Context, accounts};
use holdfast_core::{Secret, random};

use crate::Ui;
use crate::page::PageError;

const SESSION: &str = "holdfast_session";
const VISITOR: &str = "holdfast_visitor";
const MONTH_SECS: u32 = 30 * 24 * 3600;

/// A signed-in person.
pub(crate) struct SignedIn {
    pub caller: Caller,
    pub name: String,
    pub email: String,
    pub timezone: String,
    /// The session's secret, to end it with and to derive form tokens from.
    pub secret: String,
}

impl FromRequestParts<Arc<Ui>> for SignedIn {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, ui: &Arc<Ui>) -> Result<Self, PageError> {
        let secret = cookie(&parts.headers, SESSION).ok_or(AppError::Unauthenticated)?;
        let context = context(parts)?;
        let (caller, user) = accounts::session_caller(&ui.app, &secret, context.origin("session")).await?;
        Ok(Self { caller, name: user.name, email: user.email, timezone: user.timezone, secret })
    }
}

pub(crate) fn context(parts: &Parts) -> Result<Context, PageError> {
    let context = parts.extensions.get::<Context>().cloned();
    context.ok_or_else(|| AppError::Internal("a request without context".to_owned()).into())
}

/// What ties forms to this browser: the session, or the visitor's cookie before there is one.
pub(crate) fn browser_secret(headers: &HeaderMap) -> Option<String> {
    cookie(headers, SESSION).or_else(|| cookie(headers, VISITOR))
}

/// The visitor's secret, new when the browser has none yet.
pub(crate) fn visitor_secret(headers: &HeaderMap) -> String {
    browser_secret(headers).unwrap_or_else(|| random::token("").reveal().to_owned())
}

pub(crate) fn remember_visitor(response: &mut Response, secret: &str, secure: bool) {
    set(response, VISITOR, secret, MONTH_SECS, secure);
}

pub(crate) fn start(response: &mut Response, secret: &Secret, secure: bool) {
    set(response, SESSION, secret.reveal(), MONTH_SECS, secure);
}

pub(crate) fn end(response: &mut Response, secure: bool) {
    set(response, SESSION, "", 0, secure);
}

fn set(response: &mut Response, name: &str, value: &str, max_age_secs: u32, secure: bool) {
    let secure = if secure { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Path=/; Max-Age={max_age_secs}; HttpOnly; SameSite=Lax{secure}");
    // Our own values are URL-safe base64, which every header can hold.
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| value.to_owned())
}
