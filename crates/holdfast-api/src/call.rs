//! An authorised request as handlers see it: the caller, the path and the parameters.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use holdfast_app::{App, AppError, Caller, Context, Resource, idempotency};
use holdfast_core::input::Errors;
use holdfast_core::page::{PageRequest, Position, Sort};
use holdfast_core::refusal::Rule;
use holdfast_core::{Timestamp, clock, limits, rules};
use holdfast_store::Listing;

use crate::cursor;
use crate::error::ApiError;
use crate::state::Api;

pub(crate) struct Call {
    pub app: Arc<App>,
    pub caller: Caller,
    pub context: Context,
    pub path: String,
    pub query: Query,
    id: Option<String>,
}

impl FromRequestParts<Arc<Api>> for Call {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        // Set by the guard. Public routes have no caller and must not use this extractor.
        let caller = parts.extensions.get::<Caller>().cloned().ok_or(AppError::Unauthenticated)?;
        let params = RawPathParams::from_request_parts(parts, api).await;
        let id = params.ok().and_then(|params| params.iter().next().map(|(_, value)| value.to_owned()));
        Ok(Self {
            app: api.app.clone(),
            caller,
            context: context(parts)?,
            path: parts.uri.path().to_owned(),
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            id,
        })
    }
}

pub(crate) fn context(parts: &Parts) -> Result<Context, ApiError> {
    let context = parts.extensions.get::<Context>().cloned();
    context.ok_or_else(|| AppError::Internal("a request without context".to_owned()).into())
}

impl Call {
    pub(crate) fn now(&self) -> Timestamp {
        self.app.now()
    }

    /// The id in the path. Anything other than a positive 64-bit integer is reported as not found.
    pub(crate) fn id<T: From<i64>>(&self, resource: Resource) -> Result<T, ApiError> {
        let id = self.id.as_deref().and_then(parse_id);
        Ok(T::from(id.ok_or(AppError::NotFound(resource))?))
    }

    /// The requested page, order and search text, restricted to the caller's own rows.
    pub(crate) fn listing(&self) -> Result<Listing, ApiError> {
        let page = PageRequest::parse(self.query.get("page"), self.query.get("per_page"))?;
        let mut errors = Errors::default();
        let search = self.query.get("search").filter(|text| !text.trim().is_empty());
        let search = search.and_then(|text| rules::line(&mut errors, "search", text, limits::TEXT_CHARS));
        let sort = self.query.word_filter(&mut errors, "sort", Sort::parse).unwrap_or(Sort::Id);
        let created_after = self.query.time_filter(&mut errors, "created_after");
        let updated_after = self.query.time_filter(&mut errors, "updated_after");
        if !errors.is_empty() {
            return Err(errors.into());
        }
        let after = self.cursor(sort)?;
        Ok(Listing { owner: self.caller.user, search, page, sort, after, created_after, updated_after })
    }

    /// Where the previous response ended, in a list of this order.
    pub(crate) fn cursor(&self, sort: Sort) -> Result<Option<Position>, ApiError> {
        let Some(text) = self.query.get("cursor").filter(|text| !text.is_empty()) else { return Ok(None) };
        match cursor::read(text, &self.list()).filter(|position| position.fits(sort)) {
            Some(position) => Ok(Some(position)),
            None => Err(Errors::one("cursor", Rule::Cursor).into()),
        }
    }

    /// Which list is requested: a cursor is a position in one list, in one order and, of the content of a backup, in one
    /// folder.
    pub(crate) fn list(&self) -> String {
        let given = |name: &str| self.query.get(name).unwrap_or_default();
        let sort = Sort::parse(given("sort")).unwrap_or(Sort::Id);
        let parts = [self.path.as_str(), sort.as_str(), given("path").trim_matches('/')];
        idempotency::request_id(&parts.map(str::as_bytes))[..16].to_owned()
    }

    /// Like `listing`, for rows without a label: they can be neither searched nor sorted by it.
    pub(crate) fn listing_without_labels(&self) -> Result<Listing, ApiError> {
        let listing = self.listing()?;
        if listing.sort == Sort::Label {
            return Err(Errors::one("sort", Rule::Choice).into());
        }
        Ok(Listing { search: None, ..listing })
    }
}

pub(crate) fn parse_id(text: &str) -> Option<i64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|id| *id > 0)
}

/// Query parameters in the order they were sent. If a parameter is repeated, its last value counts.
pub(crate) struct Query(pub Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        Self(url::form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A filter by id; `None` if it is missing or empty.
    pub(crate) fn id_filter(&self, errors: &mut Errors, name: &str) -> Option<i64> {
        let text = self.get(name).filter(|text| !text.is_empty())?;
        let id = parse_id(text);
        if id.is_none() {
            errors.add(name, Rule::Integer);
        }
        id
    }

    /// A filter by time; `None` if it is missing or empty.
    pub(crate) fn time_filter(&self, errors: &mut Errors, name: &str) -> Option<Timestamp> {
        let text = self.get(name).filter(|text| !text.is_empty())?;
        let time = clock::parse_rfc3339(text);
        if time.is_none() {
            errors.add(name, Rule::Time);
        }
        time
    }

    /// A boolean parameter, `false` by default.
    pub(crate) fn switch(&self, errors: &mut Errors, name: &str) -> bool {
        match self.get(name).unwrap_or_default() {
            "" | "false" | "0" => false,
            "true" | "1" => true,
            _ => {
                errors.add(name, Rule::Boolean);
                false
            }
        }
    }

    /// A filter by an enum value; `None` if it is missing or empty.
    pub(crate) fn word_filter<T>(
        &self,
        errors: &mut Errors,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.get(name).filter(|text| !text.is_empty())?;
        let word = parse(text);
        if word.is_none() {
            errors.add(name, Rule::Choice);
        }
        word
    }
}
