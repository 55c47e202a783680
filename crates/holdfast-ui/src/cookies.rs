//! What browsers keep for us: the session, the theme, the language, and what ties forms to them.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use holdfast_core::{Secret, random};

use crate::translator::Translator;

const SESSION: &str = "holdfast_session";
const VISITOR: &str = "holdfast_visitor";
const THEME: &str = "holdfast_theme";
const LANGUAGE: &str = "holdfast_language";
/// What binds a way to a sign-in provider to this browser.
const TRIP: &str = "holdfast_trip";
/// That the account there is to be linked to the one here.
const LINK: &str = "holdfast_link";
/// Nobody takes longer to sign in elsewhere.
const TRIP_SECS: u32 = 15 * 60;
const MONTH_SECS: u32 = 30 * 24 * 3600;
const YEAR_SECS: u32 = 365 * 24 * 3600;

/// Light or dark, as somebody chose; else what their system is set to.
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

/// The secret of the session that this browser is signed in with.
pub(crate) fn session_secret(headers: &HeaderMap) -> Option<String> {
    cookie(headers, SESSION)
}

/// The language of somebody who may not be signed in: the one they had last, else what their browser asks for.
pub(crate) fn language(headers: &HeaderMap) -> Translator {
    cookie(headers, LANGUAGE).map_or_else(|| Translator::of_browser(headers), |code| Translator::of(&code))
}

/// What a browser says it is.
pub(crate) fn device(headers: &HeaderMap) -> String {
    headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// What ties forms to this browser: the session, or the visitor's cookie before there is one.
pub(crate) fn browser_secret(headers: &HeaderMap) -> Option<String> {
    cookie(headers, SESSION).or_else(|| cookie(headers, VISITOR))
}

/// What ties forms to this browser; new when it has nothing yet.
pub(crate) fn form_secret(headers: &HeaderMap) -> String {
    browser_secret(headers).unwrap_or_else(|| random::token("").reveal().to_owned())
}

/// A browser with a session needs no visitor's cookie, and the session's secret belongs into no other cookie: it would stay
/// there after signing out.
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

pub(crate) fn begin_trip(response: &mut Response, secret: &str, secure: bool) {
    set(response, TRIP, secret, TRIP_SECS, secure);
}

/// The secret of the way that somebody is on; it is over with this answer.
pub(crate) fn end_trip(response: &mut Response, secure: bool) {
    set(response, TRIP, "", 0, secure);
    set(response, LINK, "", 0, secure);
}

/// Whoever comes back to this session wants to link what they come with.
pub(crate) fn remember_link(response: &mut Response, session: &str, secure: bool) {
    set(response, LINK, &link_sign(session), TRIP_SECS, secure);
}

pub(crate) fn wants_link(headers: &HeaderMap, session: &str) -> bool {
    cookie(headers, LINK).is_some_and(|given| random::equal(given.as_bytes(), link_sign(session).as_bytes()))
}

fn link_sign(session: &str) -> String {
    random::hex(&random::digest(&format!("link {session}")))
}

pub(crate) fn trip(headers: &HeaderMap) -> Option<String> {
    cookie(headers, TRIP)
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
