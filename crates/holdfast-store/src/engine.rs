//! The two databases behind one face: `Store` opens them, `Tx` is what queries run on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::clock::SharedClock;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnection, SqlitePool};
use sqlx::{Postgres, Sqlite};

use crate::error::{StartError, StoreError};
use crate::master_key::MasterKeySource;
use crate::sealing::Sealer;
use crate::sqlite::{WriteGuard, Writer};
use crate::{Result, migrate, sealing, sqlite};

/// Runs one expression on whichever engine `$tx` belongs to. Inside, `Db` is the engine's type and `$conn` its
/// connection; the SQL text is the same for both.
macro_rules! on {
    ($tx:expr, $conn:ident => $body:expr) => {
        match $tx.engine() {
            $crate::engine::Engine::Sqlite($conn) => {
                #[allow(dead_code, reason = "statements without rows name no engine")]
                type Db = sqlx::Sqlite;
                $body
            }
            $crate::engine::Engine::Postgres($conn) => {
                #[allow(dead_code, reason = "statements without rows name no engine")]
                type Db = sqlx::Postgres;
                $body
            }
        }
    };
}

/// The rows of a query as a `Vec` of `$row`.
macro_rules! fetch_all {
    ($tx:expr, $row:ty, $sql:expr $(, $bind:expr)* $(,)?) => {
        on!($tx, conn => sqlx::query_as::<Db, $row>($sql)$(.bind($bind))*.fetch_all(conn).await)
            .map_err($crate::StoreError::from)
    };
}

/// The first row of a query, if there is one.
macro_rules! fetch_optional {
    ($tx:expr, $row:ty, $sql:expr $(, $bind:expr)* $(,)?) => {
        on!($tx, conn => sqlx::query_as::<Db, $row>($sql)$(.bind($bind))*.fetch_optional(conn).await)
            .map_err($crate::StoreError::from)
    };
}

/// The single value of a query that always has one.
macro_rules! fetch_scalar {
    ($tx:expr, $value:ty, $sql:expr $(, $bind:expr)* $(,)?) => {
        on!($tx, conn => sqlx::query_scalar::<Db, $value>($sql)$(.bind($bind))*.fetch_one(conn).await)
            .map_err($crate::StoreError::from)
    };
}

/// Runs a statement and gives the number of rows it changed.
macro_rules! execute {
    ($tx:expr, $sql:expr $(, $bind:expr)* $(,)?) => {
        on!($tx, conn => sqlx::query::<Db>($sql)$(.bind($bind))*.execute(conn).await.map(|done| done.rows_affected()))
            .map_err($crate::StoreError::from)
    };
}

#[derive(Debug, Clone)]
pub struct Options {
    /// `sqlite://path` or `postgres://…`.
    pub url: String,
    pub max_connections: u32,
    /// How long a request waits for a free connection before it is told to come back later.
    pub acquire_timeout: Duration,
    pub master_key: MasterKeySource,
    pub migrations: Migrations,
}

/// Whether opening may change the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrations {
    /// Bring it up to date.
    Apply,
    /// Make it where there is none, and refuse to touch an older one: a service may be running on it.
    OnlyCreate,
}

/// The database and the keys to its secrets. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pools: Pools,
    sealer: Arc<Sealer>,
}

#[derive(Clone)]
enum Pools {
    Sqlite { readers: SqlitePool, writer: Writer },
    Postgres(PgPool),
}

impl Store {
    /// Opens the database, checks the master key against it, brings the schema up to date and makes the first data
    /// key. With a wrong or missing key nothing is changed.
    pub async fn open(options: &Options, clock: &SharedClock) -> std::result::Result<Self, StartError> {
        let pools = Pools::open(options).await?;
        let mut tx = pools.begin(Arc::new(Sealer::new(options.master_key.clone()))).await?;
        sealing::check_master_key(&mut tx, &options.master_key).await?;
        migrate::run(&mut tx, options.migrations, clock.now()).await?;
        sealing::ensure_data_key(&mut tx, clock.now()).await?;
        let sealer = tx.sealer.clone();
        tx.commit().await?;
        Ok(Self { pools, sealer })
    }

    /// For reading: no transaction, each statement sees the newest state.
    pub async fn read(&self) -> Result<Tx> {
        let inner = match &self.pools {
            Pools::Sqlite { readers, .. } => Inner::SqliteRead(readers.acquire().await?),
            Pools::Postgres(pool) => Inner::PostgresRead(pool.acquire().await?),
        };
        Ok(Tx { inner, sealer: self.sealer.clone() })
    }

    /// For a unit of work: everything until `commit` happens or nothing does. On SQLite writers queue here.
    pub async fn begin(&self) -> Result<Tx> {
        self.pools.begin(self.sealer.clone()).await
    }

    pub fn is_sqlite(&self) -> bool {
        matches!(self.pools, Pools::Sqlite { .. })
    }

    /// Answers when the database does.
    pub async fn ping(&self) -> Result<()> {
        let mut tx = self.read().await?;
        fetch_scalar!(tx, i64, "SELECT COUNT(*) FROM data_keys").map(drop)
    }

    pub async fn close(&self) {
        match &self.pools {
            Pools::Sqlite { readers, writer } => {
                readers.close().await;
                writer.close().await;
            }
            Pools::Postgres(pool) => pool.close().await,
        }
    }
}

impl Pools {
    async fn open(options: &Options) -> std::result::Result<Self, StartError> {
        if let Some(path) = sqlite_path(&options.url) {
            let (readers, writer) = sqlite::open(&path, options).await?;
            return Ok(Self::Sqlite { readers, writer });
        }
        let connect: PgConnectOptions = options.url.parse().map_err(|_| {
            StartError::Database("the database URL is neither sqlite://PATH nor a valid postgres:// URL".to_owned())
        })?;
        let pool = PgPoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(options.acquire_timeout)
            .test_before_acquire(false)
            .before_acquire(|conn, meta| Box::pin(check_idle_connection(conn, meta.idle_for)))
            .connect_with(connect)
            .await
            .map_err(|error| StartError::Database(format!("cannot reach PostgreSQL: {error}")))?;
        Ok(Self::Postgres(pool))
    }

    async fn begin(&self, sealer: Arc<Sealer>) -> Result<Tx> {
        let inner = match self {
            Self::Sqlite { writer, .. } => Inner::SqliteWrite(writer.begin().await?),
            Self::Postgres(pool) => Inner::PostgresWrite(pool.begin().await?),
        };
        Ok(Tx { inner, sealer })
    }
}

/// A connection that was just used is taken as it is; one that rested is asked first, so that a restarted database
/// costs a reconnect and not a failed request.
async fn check_idle_connection(conn: &mut PgConnection, idle_for: Duration) -> std::result::Result<bool, sqlx::Error> {
    if idle_for < Duration::from_secs(1) {
        return Ok(true);
    }
    Ok(sqlx::Connection::ping(conn).await.is_ok())
}

/// The file of a `sqlite:` URL.
pub(crate) fn sqlite_path(url: &str) -> Option<PathBuf> {
    let rest = url.strip_prefix("sqlite:")?;
    Some(PathBuf::from(rest.strip_prefix("//").unwrap_or(rest)))
}

/// What queries run on: a reader, or the unit of work of one use case. Dropped without `commit`, it leaves no trace.
pub struct Tx {
    inner: Inner,
    pub(crate) sealer: Arc<Sealer>,
}

enum Inner {
    SqliteRead(PoolConnection<Sqlite>),
    SqliteWrite(WriteGuard),
    PostgresRead(PoolConnection<Postgres>),
    PostgresWrite(sqlx::Transaction<'static, Postgres>),
}

pub(crate) enum Engine<'a> {
    Sqlite(&'a mut SqliteConnection),
    Postgres(&'a mut PgConnection),
}

impl Tx {
    pub(crate) fn engine(&mut self) -> Engine<'_> {
        match &mut self.inner {
            Inner::SqliteRead(conn) => Engine::Sqlite(conn),
            Inner::SqliteWrite(guard) => Engine::Sqlite(guard.connection()),
            Inner::PostgresRead(conn) => Engine::Postgres(conn),
            Inner::PostgresWrite(transaction) => Engine::Postgres(transaction),
        }
    }

    /// Makes the work durable. It is on disk when this returns.
    pub async fn commit(self) -> Result<()> {
        match self.inner {
            Inner::SqliteRead(_) | Inner::PostgresRead(_) => Ok(()),
            Inner::SqliteWrite(guard) => guard.commit().await,
            Inner::PostgresWrite(transaction) => transaction.commit().await.map_err(StoreError::from),
        }
    }
}
