//! Access to this crate's private parsers for `cargo xtask fuzz` and the tests.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::HeaderMap;

use crate::ContextSettings;

/// The client's address and the service's own origin, derived from a request with these headers.
pub fn address_and_origin(settings: &ContextSettings, peer: IpAddr, headers: HeaderMap) -> (Option<IpAddr>, String) {
    let mut request = Request::new(axum::body::Body::empty());
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer, 1)));
    *request.headers_mut() = headers;
    let context = settings.read(&request);
    (context.address, context.base_url)
}
