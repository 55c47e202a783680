//! The paginated list envelope of the API document. With a cursor it has no totals, which would have to be counted.

use axum::http::StatusCode;
use holdfast_app::AppError;
use holdfast_core::page::Page;
use serde::Serialize;

use crate::answer::Answer;
use crate::call::Call;
use crate::cursor;
use crate::json::json;

#[derive(Serialize)]
struct Envelope<T> {
    data: Vec<T>,
    links: Links,
    meta: Meta,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Links {
    first: String,
    /// Missing if the request has a `cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    last: Option<String>,
    prev: Option<String>,
    next: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Meta {
    /// Missing if the request has a `cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = i64, required = false)]
    current_page: Option<i64>,
    /// Position of the first item on the page; null if there is none, or if the request has a `cursor`.
    from: Option<i64>,
    /// Missing if the request has a `cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = i64, required = false)]
    last_page: Option<i64>,
    path: String,
    per_page: i64,
    to: Option<i64>,
    /// Missing if the request has a `cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = i64, required = false)]
    total: Option<i64>,
    /// The `cursor` that continues the list behind this page, whatever is added or deleted meanwhile; null at its end.
    next_cursor: Option<String>,
}

/// A page of items, each converted by an infallible `shape`.
pub(crate) fn page<T, R: Serialize>(call: &Call, page: Page<T>, mut shape: impl FnMut(T) -> R) -> Answer {
    try_page(call, page, |item| Ok(shape(item)))
}

/// Like [`page`], with a fallible `shape`: if it fails for one item, the whole response is an error.
pub(crate) fn try_page<T, R: Serialize>(
    call: &Call,
    page: Page<T>,
    shape: impl FnMut(T) -> Result<R, AppError>,
) -> Answer {
    let (links, meta) = if call.query.get("cursor").is_some_and(|cursor| !cursor.is_empty()) {
        continued(call, &page)
    } else {
        numbered(call, &page)
    };
    let data = page.items.into_iter().map(shape).collect::<Result<_, _>>()?;
    Ok(json(StatusCode::OK, &Envelope { data, links, meta }))
}

/// Links and positions of a page that was requested by its number.
fn numbered<T>(call: &Call, page: &Page<T>) -> (Links, Meta) {
    let (current, last) = (page.request.page, page.last_page());
    let link = |number: i64| link(call, "page", &number.to_string());
    let links = Links {
        first: link(1),
        last: Some(link(last)),
        // Beyond the last page, the previous page is the last one that has items.
        prev: (current > 1).then(|| link((current - 1).min(last))),
        next: (current < last).then(|| link(current + 1)),
    };
    let from = (!page.items.is_empty()).then(|| page.request.offset() + 1);
    let meta = Meta {
        current_page: Some(current),
        from,
        last_page: Some(last),
        path: path(call),
        per_page: page.request.per_page,
        to: from.map(|from| from + page.items.len() as i64 - 1),
        total: Some(page.total),
        next_cursor: next_cursor(call, page),
    };
    (links, meta)
}

fn next_cursor<T>(call: &Call, page: &Page<T>) -> Option<String> {
    page.end.as_ref().map(|end| cursor::write(end, &call.list()))
}

/// Links of a page that was requested by a cursor.
fn continued<T>(call: &Call, page: &Page<T>) -> (Links, Meta) {
    let next_cursor = next_cursor(call, page);
    let next = next_cursor.as_ref().map(|cursor| link(call, "cursor", cursor));
    let links = Links { first: link(call, "page", "1"), last: None, prev: None, next };
    let meta = Meta {
        current_page: None,
        from: None,
        last_page: None,
        path: path(call),
        per_page: page.request.per_page,
        to: None,
        total: None,
        next_cursor,
    };
    (links, meta)
}

fn path(call: &Call) -> String {
    format!("{}{}", call.context.base_url, call.path)
}

/// The URL of the request at another place of the list.
fn link(call: &Call, name: &str, value: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in call.query.0.iter().filter(|(name, _)| name != "page" && name != "cursor") {
        query.append_pair(name, value);
    }
    format!("{}?{}", path(call), query.append_pair(name, value).finish())
}
