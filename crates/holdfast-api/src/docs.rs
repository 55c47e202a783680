//! The OpenAPI document and Swagger UI, both embedded in the binary; the files of Swagger UI are compressed.

use std::io::Read as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use flate2::read::GzDecoder;
use utoipa_swagger_ui::Config;

use crate::error::ApiError;
use crate::state::Api;

/// An OpenAPI 3.1 document.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes the answer for the document")]
pub(crate) struct OpenApiDocument {
    openapi: String,
}

/// Swagger UI has no inline scripts, but its scripts set inline styles.
const DOCS_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' \
    data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) fn router() -> Router<Arc<Api>> {
    Router::new()
        .route("/docs", get(|| async { Redirect::permanent("/docs/") }))
        .route("/docs/", get(|headers: HeaderMap| async move { file("index.html", &headers) }))
        .route(
            "/docs/{*file}",
            get(|headers: HeaderMap, name: Result<Path<String>, PathRejection>| async move {
                name.map_or_else(|_| ApiError::UnknownPath.into_response(), |Path(name)| file(&name, &headers))
            }),
        )
}

pub(crate) async fn show_document(State(api): State<Arc<Api>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], (api.document)()).into_response()
}

fn file(name: &str, request: &HeaderMap) -> Response {
    let config = Arc::new(Config::from("/api/openapi.json").try_it_out_enabled(false).persist_authorization(false));
    let file = match utoipa_swagger_ui::serve(name, config) {
        Ok(Some(file)) => file,
        Ok(None) => return ApiError::UnknownPath.into_response(),
        Err(error) => return failed(name, error.as_ref()),
    };
    let headers = [
        (header::CONTENT_TYPE, file.content_type),
        (header::CONTENT_SECURITY_POLICY, DOCS_POLICY.to_owned()),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::VARY, "accept-encoding".to_owned()),
    ];
    if !file.gzpipped {
        return (StatusCode::OK, headers, file.bytes.into_owned()).into_response();
    }
    let accepted = request.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    if accepted.is_some_and(|accepted| accepted.contains("gzip")) {
        return (StatusCode::OK, headers, [(header::CONTENT_ENCODING, "gzip")], file.bytes.into_owned())
            .into_response();
    }
    let mut plain = Vec::new();
    match GzDecoder::new(file.bytes.as_ref()).read_to_end(&mut plain) {
        Ok(_) => (StatusCode::OK, headers, plain).into_response(),
        Err(error) => failed(name, &error),
    }
}

fn failed(name: &str, error: &dyn std::error::Error) -> Response {
    tracing::error!(%error, name, "could not serve the API documentation");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}
