//! Server-sent events: one connection per tab, which reports when something of the user's has changed. The page then
//! fetches itself again and replaces the parts that differ.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use holdfast_app::{Place, overview};
use tokio::time::Instant;

use crate::session::SignedIn;
use crate::state::Ui;

/// Progress is written once a second, so polling more often would show nothing new.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval of keep-alive events. Proxies close connections that are idle for a minute, and a page that receives
/// nothing for longer reconnects.
const BREATH_EVERY: Duration = Duration::from_secs(20);
/// The longest life of a connection. The browser then reconnects.
const LONGEST: Duration = Duration::from_secs(300);

struct LiveStream {
    ui: Arc<Ui>,
    person: SignedIn,
    last: Option<String>,
    breathed: Instant,
    end: Instant,
    _place: Place,
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn) -> Response {
    let busy = || (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "30")]).into_response();
    let Some(place) = ui.app.open_stream(&person.caller) else { return busy() };
    let now = Instant::now();
    let watch = LiveStream { ui: ui.clone(), person, last: None, breathed: now, end: now + LONGEST, _place: place };
    let body = axum::body::Body::from_stream(Box::pin(stream::unfold(watch, next)));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    // Otherwise nginx buffers the events.
    (headers, [("x-accel-buffering", "no")], body).into_response()
}

async fn next(mut watch: LiveStream) -> Option<(Result<String, Infallible>, LiveStream)> {
    loop {
        let is_first = watch.last.is_none();
        if !is_first {
            tokio::select! {
                () = watch.ui.stop.cancelled() => return None,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        if Instant::now() >= watch.end {
            return None;
        }
        // If the database does not respond, try again; the page itself shows that it is out of date.
        let Ok(sign) = overview::sign(&watch.ui.app, &watch.person.caller).await else {
            watch.last.get_or_insert_default();
            continue;
        };
        if watch.last.as_ref() != Some(&sign) {
            let event = format!("retry: 2000\nevent: sign\ndata: {sign}\n\n");
            watch.last = Some(sign);
            watch.breathed = Instant::now();
            return Some((Ok(event), watch));
        }
        if watch.breathed.elapsed() >= BREATH_EVERY {
            watch.breathed = Instant::now();
            return Some((Ok("event: breath\ndata: \n\n".to_owned()), watch));
        }
    }
}
