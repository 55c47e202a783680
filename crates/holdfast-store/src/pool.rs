//! Connections kept for reuse.
//!
//! sqlx's own pool pings a connection each time it is returned, a round trip per request. Here a connection that was
//! just used is trusted, one that was idle is pinged, and one that failed is discarded.

use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{self, Metrics, Object, QueueMode, RecycleError, RecycleResult};
use sqlx::{ConnectOptions, Connection};

use crate::error::StoreError;

/// Opens connections with fixed options.
pub(crate) struct Opener<O>(O);

pub(crate) type Pool<O> = managed::Pool<Opener<O>>;
pub(crate) type Pooled<O> = Object<Opener<O>>;

/// A connection that was idle for longer is pinged before it is used, so that a restarted database costs a reconnect
/// and not a failed request.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

impl<O> managed::Manager for Opener<O>
where
    O: ConnectOptions<Connection: Sized>,
{
    type Type = O::Connection;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<O::Connection, sqlx::Error> {
        self.0.connect().await
    }

    async fn recycle(&self, connection: &mut O::Connection, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        if metrics.last_used() < TRUSTED_FOR {
            return Ok(());
        }
        connection.ping().await.map_err(RecycleError::Backend)
    }
}

pub(crate) fn open<O: ConnectOptions<Connection: Sized>>(options: O, size: u32, wait: Duration) -> Pool<O> {
    managed::Pool::builder(Opener(options))
        .max_size(size as usize)
        // The most recently used connection has warm caches.
        .queue_mode(QueueMode::Lifo)
        .wait_timeout(Some(wait))
        .create_timeout(Some(wait))
        .recycle_timeout(Some(wait))
        .runtime(Runtime::Tokio1)
        .build()
        .expect("a runtime is set, which is all that could be missing")
}

pub(crate) async fn acquire<O: ConnectOptions<Connection: Sized>>(pool: &Pool<O>) -> Result<Pooled<O>, StoreError> {
    pool.get().await.map_err(|error| match error {
        managed::PoolError::Backend(error) => match StoreError::from(error) {
            error if error.is_outage() => error,
            error => StoreError::Unavailable(error.to_string()),
        },
        error => StoreError::Unavailable(error.to_string()),
    })
}
