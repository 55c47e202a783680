//! Static files: one style sheet, one script, one icon. Each URL contains the file's digest, so that browsers can cache
//! the file forever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use holdfast_core::random;

struct Asset {
    address: String,
    kind: &'static str,
    text: &'static str,
}

impl Asset {
    fn new(name: &str, kind: &'static str, text: &'static str) -> Self {
        let digest = random::hex(&random::digest(text)[..6]);
        Self { address: format!("/assets/{digest}-{name}"), kind, text }
    }
}

static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("holdfast.css", "text/css; charset=utf-8", include_str!("../assets/holdfast.css")));
static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("holdfast.js", "text/javascript; charset=utf-8", include_str!("../assets/holdfast.js"))
});
static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")));

pub(crate) fn style() -> &'static str {
    &STYLE.address
}

pub(crate) fn script() -> &'static str {
    &SCRIPT.address
}

pub(crate) fn icon() -> &'static str {
    &ICON.address
}

pub(crate) async fn show(Path(name): Path<String>) -> Response {
    let assets = [&STYLE, &SCRIPT, &ICON];
    let wanted = assets.into_iter().find(|asset| asset.address.rsplit('/').next() == Some(&name));
    let Some(asset) = wanted else { return StatusCode::NOT_FOUND.into_response() };
    let headers = [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, asset.text).into_response()
}
