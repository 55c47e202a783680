//! What every page reaches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use holdfast_app::App;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Each looks at the database once a second.
pub(crate) const STREAMS: usize = 500;

pub struct Ui {
    pub app: Arc<App>,
    /// Cookies are for https alone when people reach the service that way.
    pub secure_cookies: bool,
    /// Ends what would otherwise hold the service up: event streams.
    pub(crate) stop: CancellationToken,
    pub(crate) streams: Arc<Semaphore>,
    /// How many of them each user has.
    pub(crate) streams_of: Mutex<HashMap<i64, usize>>,
}

impl Ui {
    pub fn new(app: Arc<App>, secure_cookies: bool, stop: CancellationToken) -> Self {
        Self { app, secure_cookies, stop, streams: Arc::new(Semaphore::new(STREAMS)), streams_of: Mutex::default() }
    }
}
