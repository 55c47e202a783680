//! Cookies: the session, the theme, the language, and the secret that form tokens are derived from.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use holdfast_core::{Secret, random};

use crate::translator::Translator;

const SESSION: &str = "holdfast_session";
const VISITOR: &str = "holdfast_visitor";
const THEME: &str = "holdfast_theme";
const LANGUAGE: &str = "holdfast_language";
/// The secret that binds a sign-in at an external provider to this browser.
const ATTEMPT: &str = "holdfast_attempt";
/// Marks that the external account is to be linked to the signed-in account.
const LINK: &str = "holdfast_link";
/// How long an external sign-in may take.
const ATTEMPT_SECS: u32 = 15 * 60;
const MONTH_SECS: u32 = 30 * 24 * 3600;
const YEAR_SECS: u32 = 365 * 24 * 3600;

/// The chosen colour theme; by default that of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Theme {
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    pub(crate) const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let chosen = cookie(headers, THEME).unwrap_or_default();
        Self::ALL.into_iter().find(|theme| theme.as_str() == chosen).unwrap_or_default()
    }
}

/// The secret of this browser's session.
pub(crate) fn session_secret(headers: &HeaderMap) -> Option<String> {
    cookie(headers, SESSION)
}

/// The language of a visitor who may not be signed in: the one used last, otherwise the browser's preference.
pub(crate) fn language(headers: &HeaderMap) -> Translator {
    cookie(headers, LANGUAGE).map_or_else(|| Translator::of_browser(headers), |code| Translator::of(&code))
}

/// The browser's `User-Agent`.
pub(crate) fn device(headers: &HeaderMap) -> String {
    headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// The secret that form tokens are derived from: the session, or the visitor cookie if there is no session.
pub(crate) fn browser_secret(headers: &HeaderMap) -> Option<String> {
    cookie(headers, SESSION).or_else(|| cookie(headers, VISITOR))
}

/// Like [`browser_secret`], but generates a new secret if the browser has none.
pub(crate) fn form_secret(headers: &HeaderMap) -> String {
    browser_secret(headers).unwrap_or_else(|| random::token("").reveal().to_owned())
}

/// Sets the visitor cookie, unless there is a session: its secret must not be copied into another cookie, where it
/// would remain after signing out.
pub(crate) fn remember_visitor(response: &mut Response, headers: &HeaderMap, secret: &str, secure: bool) {
    if cookie(headers, SESSION).is_none() {
        set(response, VISITOR, secret, MONTH_SECS, secure);
    }
}

pub(crate) fn remember_theme(response: &mut Response, theme: Theme, secure: bool) {
    set(response, THEME, theme.as_str(), YEAR_SECS, secure);
}

pub(crate) fn remember_language(response: &mut Response, t: Translator, secure: bool) {
    set(response, LANGUAGE, t.code(), YEAR_SECS, secure);
}

pub(crate) fn begin_attempt(response: &mut Response, secret: &str, secure: bool) {
    set(response, ATTEMPT, secret, ATTEMPT_SECS, secure);
}

/// Removes the cookies of an external sign-in.
pub(crate) fn end_attempt(response: &mut Response, secure: bool) {
    set(response, ATTEMPT, "", 0, secure);
    set(response, LINK, "", 0, secure);
}

/// Marks that the external account is to be linked when the browser returns with this session.
pub(crate) fn remember_link(response: &mut Response, session: &str, secure: bool) {
    set(response, LINK, &link_sign(session), ATTEMPT_SECS, secure);
}

pub(crate) fn wants_link(headers: &HeaderMap, session: &str) -> bool {
    cookie(headers, LINK).is_some_and(|given| random::equal(given.as_bytes(), link_sign(session).as_bytes()))
}

fn link_sign(session: &str) -> String {
    random::hex(&random::digest(&format!("link {session}")))
}

pub(crate) fn attempt(headers: &HeaderMap) -> Option<String> {
    cookie(headers, ATTEMPT)
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
    // The values are ASCII words and URL-safe base64, so they are always valid in a header.
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| value.to_owned())
}
