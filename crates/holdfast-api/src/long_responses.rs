//! Ends long requests and responses whose caller is no longer let in: the token was revoked or has expired, the session
//! has ended, or the account was suspended or deleted. This applies to every response with a body that is produced while
//! it is sent, so a route cannot forget it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use futures_util::stream::{self, StreamExt as _};
use holdfast_app::{App, Credential, is_accepted};
use tokio::sync::mpsc;

/// How often a caller is checked: a response ends within two seconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The type of responses that have no end of their own.
const EVENT_STREAM: &[u8] = b"text/event-stream";

type Piece = Result<Bytes, axum::Error>;

/// Resolves when the credential of a request, once there is one, is no longer accepted.
pub(crate) async fn refusal(app: &App, shown: &OnceLock<Credential>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(credential) = shown.get()
            && !is_accepted(app, credential).await
        {
            return;
        }
    }
}

/// The same response, which is cut off when its caller is no longer let in.
pub(crate) fn while_accepted(app: &Arc<App>, shown: &Arc<OnceLock<Credential>>, response: Response) -> Response {
    if response.body().size_hint().exact().is_some() || shown.get().is_none() {
        return response;
    }
    let (app, shown) = (app.clone(), shown.clone());
    let is_endless = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == EVENT_STREAM);
    response.map(|body| {
        let (sender, pieces) = mpsc::channel(1);
        // Separate from the connection, which does not ask for more while the client reads nothing. What the response
        // holds is released all the same.
        tokio::spawn(async move { forward(&app, &shown, body, sender, is_endless).await });
        Body::from_stream(stream::unfold(pieces, |mut pieces| async move { Some((pieces.recv().await?, pieces)) }))
    })
}

async fn forward(app: &App, shown: &OnceLock<Credential>, body: Body, sender: mpsc::Sender<Piece>, is_endless: bool) {
    let forwarding = async {
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            if sender.send(piece).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = forwarding => return,
        () = sender.closed() => return,
        () = refusal(app, shown) => {}
    }
    tracing::info!("a response was cut off because its caller is no longer let in");
    // A stream of events is never complete: its client opens the next one, which is refused.
    if is_endless {
        return;
    }
    // An error, so that a response that was cut off does not look complete. A client that is gone needs none.
    drop(sender.send(Err(axum::Error::new("the caller is no longer let in"))).await);
}
