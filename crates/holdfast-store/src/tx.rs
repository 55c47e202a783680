//! The two databases behind one face: `Store` opens them, `Tx` is what queries run on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::clock::SharedClock;
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use crate::error::{StartError, StoreError};
use crate::master_key::MasterKeySource;
use crate::pool::{self, Pool, Pooled};
use crate::sealing::Sealer;
use crate::sqlite::{WriteGuard, Writer};
use crate::{Result, migrate, sealing, sqlite};

/// Runs one expression on whichever engine `$tx` belongs to. Inside, `Db` is the engine's type and `$conn` its
/// connection; the SQL text is the same for both.
macro_rules! with_conn {
    ($tx:expr, $conn:ident => $body:expr) => {{
        let result = match $tx.engine() {
            $crate::engine::Engine::Sqlite($conn) => {
                type Db = sqlx::Sqlite;
                $body
            }
            $crate::engine::Engine::Postgres($conn) => {
                type Db = sqlx::Postgres;
                $body
            }
        };
        $tx.checked(result)
    }};
}

/// The rows of a query as a `Vec` of `$row`.
macro_rules! fetch_all {
    ($tx:expr, $row:ty, $sql:expr $(, $bind:expr)* $(,)?) => {
        with_conn!($tx, conn => sqlx::query_as::<Db, $row>($sql)$(.bind($bind))*.fetch_all(conn).await)
    };
}

/// The first row of a query, if there is one.
macro_rules! fetch_optional {
    ($tx:expr, $row:ty, $sql:expr $(, $bind:expr)* $(,)?) => {
        with_conn!($tx, conn => sqlx::query_as::<Db, $row>($sql)$(.bind($bind))*.fetch_optional(conn).await)
    };
}

/// The single value of a query that always has one.
macro_rules! fetch_scalar {
    ($tx:expr, $value:ty, $sql:expr $(, $bind:expr)* $(,)?) => {
        with_conn!($tx, conn => sqlx::query_scalar::<Db, $value>($sql)$(.bind($bind))*.fetch_one(conn).await)
    };
}

/// Runs a statement and gives the number of rows it changed.
macro_rules! execute {
    ($tx:expr, $sql:expr $(, $bind:expr)* $(,)?) => {
        with_conn!($tx, conn => sqlx::query::<Db>($sql)$(.bind($bind))*.execute(conn).await.map(|done| done.rows_affected()))
    };
}

/// Where PostgreSQL carries the news that a run was queued.
pub(crate) const QUEUE_CHANNEL: &str = "holdfast_queue";

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
    /// Only look at what is there, of this version.
    Never,
}

/// The database and the keys to its secrets. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pools: Pools,
    sealer: Arc<Sealer>,
}

#[derive(Clone)]
enum Pools {
    Sqlite { readers: Pool<SqliteConnectOptions>, writer: Writer },
    Postgres { pool: Pool<PgConnectOptions>, connect: Box<PgConnectOptions> },
}

impl Store {
    /// Opens the database, checks the master key against it, brings the schema up to date and makes the first data
    /// key. With a wrong or missing key nothing is changed.
    pub async fn open(options: &Options, clock: &SharedClock) -> std::result::Result<Self, StartError> {
        let pools = Pools::open(options).await?;
        let mut tx = pools.begin(Arc::new(Sealer::new(options.master_key.clone()))).await?;
        sealing::check_master_key(&mut tx, &options.master_key).await?;
        migrate::run(&mut tx, options.migrations, clock.now()).await?;
        // Again, now that other processes that started at the same time have had their turn.
        sealing::check_master_key(&mut tx, &options.master_key).await?;
        sealing::ensure_data_key(&mut tx, clock.now()).await?;
        let sealer = tx.sealer.clone();
        tx.commit().await?;
        Ok(Self { pools, sealer })
    }

    /// For reading: no transaction, each statement sees the newest state.
    pub async fn read(&self) -> Result<Tx> {
        let inner = match &self.pools {
            Pools::Sqlite { readers, .. } => Inner::SqliteRead(pool::acquire(readers).await?),
            Pools::Postgres { pool, .. } => Inner::PostgresRead(pool::acquire(pool).await?),
        };
        Ok(Tx::new(inner, self.sealer.clone()))
    }

    /// For reading a lot that belongs together: all of it as it was at one moment. The connection is not used again.
    pub async fn read_steadily(&self) -> Result<Tx> {
        let mut tx = self.read().await?;
        tx.broken = true;
        let begin = if tx.is_sqlite() { "BEGIN" } else { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" };
        execute!(tx, begin)?;
        Ok(tx)
    }

    /// For a unit of work: everything until `commit` happens or nothing does. On SQLite writers queue here.
    pub async fn begin(&self) -> Result<Tx> {
        self.pools.begin(self.sealer.clone()).await
    }

    pub fn is_sqlite(&self) -> bool {
        matches!(self.pools, Pools::Sqlite { .. })
    }

    /// Hears of runs that other processes queue, until the database goes away. On SQLite there are no others, and this
    /// waits for ever.
    pub async fn hear_queued(&self, mut heard: impl FnMut()) -> Result<()> {
        let Pools::Postgres { connect, .. } = &self.pools else { return std::future::pending().await };
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(connect.as_ref().clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen(QUEUE_CHANNEL).await?;
        // Whatever was queued before is there to be found.
        heard();
        loop {
            listener.recv().await?;
            heard();
        }
    }

    /// Whether the master key is there and opens what is sealed.
    pub async fn check_master_key(&self) -> Result<()> {
        sealing::check_current(&mut self.read().await?).await
    }

    /// Answers when the database does.
    pub async fn ping(&self) -> Result<()> {
        let mut tx = self.read().await?;
        fetch_scalar!(tx, i64, "SELECT COUNT(*) FROM data_keys").map(drop)
    }

    pub async fn close(&self) {
        match &self.pools {
            Pools::Sqlite { readers, writer } => {
                readers.close();
                writer.close().await;
            }
            Pools::Postgres { pool, .. } => pool.close(),
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
        // Our statements are few and their plans do not depend on the values, so each is planned once per connection.
        // A node that dies while it holds a row must not stop the others for hours.
        let connect = connect.options([
            ("plan_cache_mode", "force_generic_plan"),
            ("jit", "off"),
            ("lock_timeout", "10s"),
            ("idle_in_transaction_session_timeout", "30s"),
            ("tcp_keepalives_idle", "30"),
        ]);
        let connect = connect.disable_statement_logging();
        let pool = pool::open(connect.clone(), options.max_connections, options.acquire_timeout);
        // Opened here rather than by the first request: a wrong address stops the start.
        let first = pool::acquire(&pool).await;
        first.map(drop).map_err(|error| StartError::Database(format!("cannot reach PostgreSQL: {error}")))?;
        Ok(Self::Postgres { pool, connect: Box::new(connect) })
    }

    async fn begin(&self, sealer: Arc<Sealer>) -> Result<Tx> {
        match self {
            Self::Sqlite { writer, .. } => Ok(Tx::new(Inner::SqliteWrite(writer.begin().await?), sealer)),
            Self::Postgres { pool, .. } => begin_postgres(pool.clone(), sealer).await,
        }
    }
}

/// Runs as a task of its own, for the same reason as on SQLite: a caller that goes away must not leave a transaction
/// behind that nobody knows of.
async fn begin_postgres(pool: Pool<PgConnectOptions>, sealer: Arc<Sealer>) -> Result<Tx> {
    let begun = tokio::spawn(async move {
        let mut connection = pool::acquire(&pool).await?;
        match say(&mut connection, "BEGIN").await {
            // Made here, so that it is rolled back also when nobody waits for it any more.
            Ok(()) => Ok(Tx::new(Inner::PostgresWrite(connection), sealer)),
            Err(error) => {
                drop(Pooled::take(connection));
                Err(error)
            }
        }
    });
    begun.await.map_err(|error| StoreError::Broken(error.to_string()))?
}

async fn commit_postgres(mut connection: Pooled<PgConnectOptions>) -> Result<()> {
    let committed = tokio::spawn(async move {
        let committed = say(&mut connection, "COMMIT").await;
        if committed.is_err() {
            drop(Pooled::take(connection));
        }
        committed
    });
    committed.await.map_err(|error| StoreError::Broken(error.to_string()))?
}

async fn roll_back_postgres(mut connection: Pooled<PgConnectOptions>) {
    if say(&mut connection, "ROLLBACK").await.is_err() {
        drop(Pooled::take(connection));
    }
}

/// A database that does not answer, as one without power does, must not keep a connection of the pool for ever. A commit
/// that was not answered may have happened.
async fn say(connection: &mut Pooled<PgConnectOptions>, word: &'static str) -> Result<()> {
    const ANSWER_LIMIT: Duration = Duration::from_secs(15);
    match tokio::time::timeout(ANSWER_LIMIT, sqlx::raw_sql(word).execute(&mut **connection)).await {
        Ok(said) => said.map(drop).map_err(StoreError::from),
        Err(_) => Err(StoreError::Unavailable(format!("no answer to {word}"))),
    }
}

/// The file of a `sqlite:` URL.
pub fn sqlite_path(url: &str) -> Option<PathBuf> {
    let rest = url.strip_prefix("sqlite:")?;
    Some(PathBuf::from(rest.strip_prefix("//").unwrap_or(rest)))
}

/// What queries run on: a reader, or the unit of work of one use case. Dropped without `commit`, it leaves no trace.
pub struct Tx {
    /// Taken out by `commit`.
    inner: Option<Inner>,
    pub(crate) sealer: Arc<Sealer>,
    /// A statement failed: PostgreSQL would answer a commit with a silent rollback.
    failed: bool,
    /// The connection itself failed and must not be used again.
    broken: bool,
}

enum Inner {
    SqliteRead(Pooled<SqliteConnectOptions>),
    SqliteWrite(WriteGuard),
    PostgresRead(Pooled<PgConnectOptions>),
    PostgresWrite(Pooled<PgConnectOptions>),
}

pub(crate) enum Engine<'a> {
    Sqlite(&'a mut SqliteConnection),
    Postgres(&'a mut PgConnection),
}

impl Tx {
    fn new(inner: Inner, sealer: Arc<Sealer>) -> Self {
        Self { inner: Some(inner), sealer, failed: false, broken: false }
    }

    pub(crate) fn engine(&mut self) -> Engine<'_> {
        match self.inner.as_mut().expect("only commit takes it out, and that ends the Tx") {
            Inner::SqliteRead(connection) => Engine::Sqlite(connection),
            Inner::SqliteWrite(guard) => Engine::Sqlite(guard.connection()),
            Inner::PostgresRead(connection) | Inner::PostgresWrite(connection) => Engine::Postgres(connection),
        }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self.inner, Some(Inner::SqliteRead(_) | Inner::SqliteWrite(_)))
    }

    /// Sorts a statement's error, and remembers what it means for the connection.
    pub(crate) fn checked<T>(&mut self, result: std::result::Result<T, sqlx::Error>) -> Result<T> {
        result.map_err(|error| {
            let error = StoreError::from(error);
            self.failed = true;
            self.broken |= matches!(error, StoreError::Unavailable(_));
            error
        })
    }

    /// Makes the work durable. It is on disk when this returns.
    pub async fn commit(mut self) -> Result<()> {
        if self.failed {
            return Err(StoreError::Broken("a statement failed before the commit".to_owned()));
        }
        match self.inner.take() {
            None | Some(Inner::SqliteRead(_) | Inner::PostgresRead(_)) => Ok(()),
            Some(Inner::SqliteWrite(guard)) => guard.commit().await,
            Some(Inner::PostgresWrite(connection)) => commit_postgres(connection).await,
        }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        match self.inner.take() {
            // The writer undoes abandoned work by itself, and keeps its one connection.
            None | Some(Inner::SqliteWrite(_)) => {}
            Some(Inner::SqliteRead(connection)) if self.broken => drop(Pooled::take(connection)),
            Some(Inner::PostgresRead(connection) | Inner::PostgresWrite(connection)) if self.broken => {
                drop(Pooled::take(connection));
            }
            Some(Inner::SqliteRead(_) | Inner::PostgresRead(_)) => {}
            Some(Inner::PostgresWrite(connection)) => {
                tokio::spawn(roll_back_postgres(connection));
            }
        }
    }
}

/// The ids of an `IN (…)`, which is never empty.
pub(crate) fn push_ids<Db: sqlx::Database>(query: &mut sqlx::QueryBuilder<Db>, ids: &[i64])
where
    i64: for<'q> sqlx::Encode<'q, Db> + sqlx::Type<Db>,
{
    let mut list = query.separated(", ");
    for id in ids {
        list.push_bind(*id);
    }
}
