//! The signed-in user, identified by the session cookie.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use holdfast_app::{AppError, Caller, Context, Credential, overview, sessions};
use holdfast_store::users::UserRow;

use crate::cookies::{Theme, session_secret};
use crate::form::{Form, csrf_token};
use crate::frame::{Frame, Section};
use crate::human::Reader;
use crate::problem::PageError;
use crate::state::Ui;
use crate::translator::Translator;

/// The header that the script sends when it fetches a page again.
const PART: &str = "x-holdfast-part";

/// A signed-in user, and the data of their request.
pub(crate) struct SignedIn {
    pub caller: Caller,
    pub user: UserRow,
    /// The session's secret, used to end the session and to derive form tokens.
    pub secret: String,
    pub reader: Reader,
    pub base_url: String,
    /// The query parameters.
    pub query: Form,
    theme: Theme,
    said: Option<String>,
    address: String,
    /// Only the live parts of the page are needed.
    pub is_part: bool,
    /// The change marker, read before any other data, so that every later change results in a different one.
    sign: String,
}

impl FromRequestParts<Arc<Ui>> for SignedIn {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, ui: &Arc<Ui>) -> Result<Self, PageError> {
        let sign_in = || {
            let address = parts.uri.path_and_query().map(|address| address.as_str().to_owned());
            PageError::SignIn { then: address.filter(|_| parts.method == Method::GET) }
        };
        let secret = session_secret(&parts.headers).ok_or_else(sign_in)?;
        let context = context(parts)?;
        let found = sessions::caller(&ui.app, &secret, context.origin("session")).await;
        let (mut caller, user) = match found {
            Err(AppError::Unauthenticated) => return Err(sign_in()),
            found => found?,
        };
        caller.gone = context.gone.clone();
        context.show(Credential::session(&secret));
        let t = Translator::of(&user.language);
        let reader = Reader { t, zone: caller.zone.clone(), now: ui.app.now() };
        let query = Form::of_query(parts.uri.query());
        let said = t.find(&format!("said-{}", query.text("said")));
        let (theme, base_url) = (Theme::of(&parts.headers), context.base_url);
        let is_page = parts.method == Method::GET;
        let own = parts.uri.path_and_query().filter(|_| is_page).map(|address| without_said(address.as_str()));
        let address = own.unwrap_or_else(|| "/".to_owned());
        let is_part = parts.headers.contains_key(PART);
        let sign = if is_page { overview::sign(&ui.app, &caller).await? } else { String::new() };
        Ok(Self { caller, user, secret, reader, base_url, query, theme, said, address, is_part, sign })
    }
}

impl SignedIn {
    pub(crate) fn t(&self) -> Translator {
        self.reader.t
    }

    pub(crate) fn csrf(&self) -> String {
        csrf_token(&self.secret)
    }

    /// The frame of every page.
    pub(crate) async fn frame(&self, ui: &Ui, place: Section) -> Result<Frame, AppError> {
        let counts = overview::live_counts(&ui.app, &self.caller).await?;
        Ok(Frame {
            t: self.t(),
            csrf: self.csrf(),
            theme: self.theme,
            place,
            name: self.user.name.clone(),
            is_signed_in: true,
            is_admin: self.user.is_admin,
            running: counts.running,
            undelivered: counts.undelivered,
            sign: self.sign.clone(),
            said: self.said.clone(),
            address: self.address.clone(),
        })
    }
}

/// The address without its `said` parameter, so that a confirmation is not shown again.
fn without_said(address: &str) -> String {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("said=")).collect();
    if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
}

pub(crate) fn context(parts: &Parts) -> Result<Context, PageError> {
    let context = parts.extensions.get::<Context>().cloned();
    context.ok_or_else(|| AppError::Internal("a request without context".to_owned()).into())
}
