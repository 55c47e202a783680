//! The state shared by all pages.

use std::sync::Arc;

use holdfast_app::App;
use tokio_util::sync::CancellationToken;

pub struct Ui {
    pub app: Arc<App>,
    /// Whether cookies have the `Secure` attribute, that is, whether the public URL uses HTTPS.
    pub secure_cookies: bool,
    /// Ends event streams, which would otherwise delay shutdown.
    pub(crate) stop: CancellationToken,
}

impl Ui {
    pub fn new(app: Arc<App>, secure_cookies: bool, stop: CancellationToken) -> Self {
        Self { app, secure_cookies, stop }
    }
}
