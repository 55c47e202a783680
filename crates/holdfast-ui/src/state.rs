//! The state shared by all pages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use holdfast_app::App;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The maximum number of event streams. Each queries the database once a second.
pub(crate) const STREAMS: usize = 500;

pub struct Ui {
    pub app: Arc<App>,
    /// Whether cookies have the `Secure` attribute, that is, whether the public URL uses HTTPS.
    pub secure_cookies: bool,
    /// Ends event streams, which would otherwise delay shutdown.
    pub(crate) stop: CancellationToken,
    pub(crate) streams: Arc<Semaphore>,
    /// The number of open event streams per user.
    pub(crate) streams_of: Mutex<HashMap<i64, usize>>,
}

impl Ui {
    pub fn new(app: Arc<App>, secure_cookies: bool, stop: CancellationToken) -> Self {
        Self { app, secure_cookies, stop, streams: Arc::new(Semaphore::new(STREAMS)), streams_of: Mutex::default() }
    }
}
