//! The paginated list envelope of the API document.

use axum::http::StatusCode;
use holdfast_app::AppError;
use holdfast_core::page::Page;
use serde::Serialize;

use crate::answer::Answer;
use crate::call::Call;
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
    last: String,
    prev: Option<String>,
    next: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Meta {
    current_page: i64,
    /// Position of the first item on the page; null when it is empty.
    from: Option<i64>,
    last_page: i64,
    path: String,
    per_page: i64,
    to: Option<i64>,
    total: i64,
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
    let path = format!("{}{}", call.context.base_url, call.path);
    let (current, last) = (page.request.page, page.last_page());
    let link = |number: i64| format!("{path}?{}", query_with_page(call, number));
    let links = Links {
        first: link(1),
        last: link(last),
        // Beyond the last page, the previous page is the last one that has items.
        prev: (current > 1).then(|| link((current - 1).min(last))),
        next: (current < last).then(|| link(current + 1)),
    };
    let from = (!page.items.is_empty()).then(|| page.request.offset() + 1);
    let meta = Meta {
        current_page: current,
        from,
        last_page: last,
        per_page: page.request.per_page,
        to: from.map(|from| from + page.items.len() as i64 - 1),
        total: page.total,
        path,
    };
    let data = page.items.into_iter().map(shape).collect::<Result<_, _>>()?;
    Ok(json(StatusCode::OK, &Envelope { data, links, meta }))
}

/// The query of the request with its `page` replaced.
fn query_with_page(call: &Call, page: i64) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in call.query.0.iter().filter(|(name, _)| name != "page") {
        query.append_pair(name, value);
    }
    query.append_pair("page", &page.to_string()).finish()
}
