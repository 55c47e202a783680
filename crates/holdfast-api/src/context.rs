//! The context of every request, to the API or a page: an id, the client's address, and the service's own URL.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use holdfast_app::{App, Context};
use holdfast_core::network::Network;
use holdfast_core::random;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tracing::Instrument as _;

use crate::error::ApiError;
use crate::long_responses::{refusal, while_accepted};

/// The settings that decide how the context of a request is derived.
#[derive(Debug, Clone, Default)]
pub struct ContextSettings {
    /// The public URL of the service. Without it, links are built from the request's own origin.
    pub base_url: Option<String>,
    /// Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted.
    pub trusted_proxies: Vec<Network>,
}

const REQUEST_ID: &str = "x-request-id";

/// Adds the context to every request and the request id to its log lines, turns a panic into a 500, and ends long
/// responses whose caller is no longer let in.
pub fn with_context(router: Router, app: Arc<App>, settings: ContextSettings) -> Router {
    let state = (app, Arc::new(settings));
    router.layer(CatchPanicLayer::new()).layer(middleware::from_fn_with_state(state, add_context))
}

async fn add_context(
    State((app, settings)): State<(Arc<App>, Arc<ContextSettings>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let context = settings.read(&request);
    let request_id = HeaderValue::from_str(&context.request_id).ok();
    let span = tracing::info_span!("request", id = %context.request_id);
    let started = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("unknown", MatchedPath::as_str).to_owned();
    // Outside the API a path can contain a secret, such as a set-up link; the route pattern never does.
    let path = if route.starts_with("/api/") { request.uri().path().to_owned() } else { route.clone() };
    // Cancels `gone` when this future is dropped, which happens when the client disconnects.
    let waiting = context.gone.clone().drop_guard();
    let shown = context.shown.clone();
    request.extensions_mut().insert(context);
    // Spawned, so that a client that disconnects does not stop a use case between two statements. Long reads on behalf
    // of the client watch `gone`, which is also cancelled if the client is no longer let in.
    let mut response = match refused(request.uri()) {
        Some(error) => error.into_response(),
        None => {
            let mut answering = tokio::spawn(next.run(request).instrument(span.clone()));
            let answered = tokio::select! {
                answered = &mut answering => answered,
                () = refusal(&app, &shown) => {
                    drop(waiting);
                    answering.await
                }
            };
            let response = answered.unwrap_or_else(|error| {
                tracing::error!(%error, "a request handler failed");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            });
            while_accepted(&app, &shown, response)
        }
    };
    let (status, elapsed) = (response.status(), started.elapsed());
    span.in_scope(|| {
        let elapsed_ms = elapsed.as_millis() as u64;
        // Readiness probes are frequent, and the response already reports the problem.
        if status.is_server_error() && route != "/readyz" {
            tracing::error!(%method, path, status = status.as_u16(), elapsed_ms, "request failed");
        } else {
            tracing::debug!(%method, path, status = status.as_u16(), elapsed_ms, "request completed");
        }
    });
    let labels =
        [("method", known_method(&method).to_owned()), ("route", route), ("status", status.as_str().to_owned())];
    metrics::counter!("holdfast_http_requests_total", &labels).increment(1);
    metrics::histogram!("holdfast_http_request_seconds").record(elapsed.as_secs_f64());
    if let Some(request_id) = request_id {
        response.headers_mut().insert(REQUEST_ID, request_id);
    }
    // Responses contain one user's private data, so no cache on the way may store them.
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Longer than any address of a client: a search text of 255 characters, and a path of 4096 bytes, both encoded.
const LONGEST_URI: usize = 16 * 1024;

/// Addresses that no route gets to see. `//api/…` would be answered as an unknown page.
fn refused(uri: &Uri) -> Option<ApiError> {
    if uri.path().len() + uri.query().map_or(0, str::len) > LONGEST_URI {
        return Some(ApiError::LongUri);
    }
    let path = uri.path();
    (path.starts_with("//") && path.trim_start_matches('/').starts_with("api")).then_some(ApiError::UnknownPath)
}

/// The method as a metric label. Clients can invent methods, and each would create a time series that is kept forever.
fn known_method(method: &Method) -> &str {
    let known = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS];
    if known.contains(method) { method.as_str() } else { "other" }
}

impl ContextSettings {
    pub(crate) fn read(&self, request: &Request) -> Context {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip().to_canonical());
        let behind_proxy = peer.is_some_and(|peer| self.is_trusted(peer));
        let address = if behind_proxy { self.forwarded_for(request.headers()).or(peer) } else { peer };
        Context {
            request_id: random::hex(&random::bytes::<16>()),
            address,
            base_url: self
                .base_url
                .clone()
                .unwrap_or_else(|| own_origin(request.uri(), request.headers(), behind_proxy)),
            gone: CancellationToken::new(),
            shown: Arc::default(),
        }
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(address))
    }

    /// Read from the right, because each trusted proxy appends the address it saw. The first address that is not a
    /// trusted proxy is the client; anything to its left could be forged.
    fn forwarded_for(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let values = headers.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes);
        // Split as bytes: invalid text sent by a client must not hide what the proxy appended to the same header.
        let chain: Vec<&[u8]> = values.flat_map(|value| value.split(|byte| *byte == b',')).collect();
        let mut nearest = None;
        for part in chain.into_iter().rev() {
            let address: IpAddr = std::str::from_utf8(part.trim_ascii()).ok()?.parse().ok()?;
            let address = address.to_canonical();
            nearest = Some(address);
            if !self.is_trusted(address) {
                break;
            }
        }
        nearest
    }
}

fn own_origin(uri: &Uri, headers: &HeaderMap, behind_proxy: bool) -> String {
    let forwarded = headers.get("x-forwarded-proto").filter(|_| behind_proxy);
    let scheme = if forwarded.is_some_and(|proto| proto.as_bytes() == b"https") { "https" } else { "http" };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).or(uri.host()).unwrap_or("localhost");
    // Only characters that are valid in a host: the client controls this header, and it ends up in links.
    let clean = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-_[]".contains(&byte));
    format!("{scheme}://{}", if clean { host } else { "localhost" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(peer: &str, headers: &[(&'static str, &str)]) -> Request {
        let mut request = Request::new(axum::body::Body::empty());
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        request
    }

    #[test]
    fn forwarded_addresses_count_only_from_trusted_proxies() {
        let forged = [("x-forwarded-for", "203.0.113.9"), ("x-forwarded-proto", "https"), ("host", "a.example")];
        let direct = ContextSettings::default().read(&request("127.0.0.1", &forged));
        assert_eq!(direct.address, Some("127.0.0.1".parse().unwrap()));
        assert_eq!(direct.base_url, "http://a.example");
        let trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        let settings = ContextSettings { trusted_proxies, ..ContextSettings::default() };
        let proxied = settings.read(&request("127.0.0.1", &forged));
        assert_eq!(proxied.address, Some("203.0.113.9".parse().unwrap()));
        assert_eq!(proxied.base_url, "https://a.example");
        let chain = [("x-forwarded-for", "198.51.100.1, 203.0.113.9, 127.0.0.2")];
        assert_eq!(settings.read(&request("127.0.0.1", &chain)).address, Some("203.0.113.9".parse().unwrap()));
        let forged = [("x-forwarded-for", "198.51.100.1, x, 203.0.113.9")];
        assert_eq!(settings.read(&request("127.0.0.1", &forged)).address, Some("203.0.113.9".parse().unwrap()));
        let mapped = [("x-forwarded-for", "::ffff:203.0.113.9")];
        assert_eq!(settings.read(&request("127.0.0.1", &mapped)).address, Some("203.0.113.9".parse().unwrap()));
        let rubbish = [("x-forwarded-for", "198.51.100.1, x")];
        assert_eq!(settings.read(&request("127.0.0.1", &rubbish)).address, Some("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn invalid_bytes_from_a_client_do_not_hide_what_a_proxy_added() {
        let trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        let settings = ContextSettings { trusted_proxies, ..ContextSettings::default() };
        let mut odd = request("127.0.0.1", &[]);
        odd.headers_mut().insert("x-forwarded-for", HeaderValue::from_bytes(b"\xff, 203.0.113.9").unwrap());
        assert_eq!(settings.read(&odd).address, Some("203.0.113.9".parse().unwrap()));
        let mapped = [("x-forwarded-for", "::ffff:203.0.113.9, ::ffff:127.0.0.2")];
        assert_eq!(settings.read(&request("127.0.0.1", &mapped)).address, Some("203.0.113.9".parse().unwrap()));
    }

    #[test]
    fn a_configured_base_url_wins_and_odd_hosts_are_not_echoed() {
        let settings = ContextSettings { base_url: Some("https://b.example".into()), ..ContextSettings::default() };
        assert_eq!(settings.read(&request("127.0.0.1", &[("host", "evil")])).base_url, "https://b.example");
        let odd = request("127.0.0.1", &[("host", "a\"><script>")]);
        assert_eq!(ContextSettings::default().read(&odd).base_url, "http://localhost");
    }
}
