//! Opens the database and hands out connections to it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use holdfast_core::clock::SharedClock;
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::sqlite::SqliteConnectOptions;

use crate::error::StartError;
use crate::options::{Options, sqlite_path};
use crate::pool::{self, Pool};
use crate::sealer::Sealer;
use crate::sqlite::Writer;
use crate::tx::{QUEUE_CHANNEL, Tx};
use crate::{Result, migrate, sealing, sqlite};

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
    /// Opens the database, checks the master key against it, brings the schema up to date and creates the first data
    /// key. If the key is wrong or missing, nothing is changed.
    pub async fn open(options: &Options, clock: &SharedClock) -> std::result::Result<Self, StartError> {
        let pools = Pools::open(options).await?;
        let mut tx = pools.begin(Arc::new(Sealer::new(options.master_key.clone()))).await?;
        sealing::check_master_key(&mut tx, &options.master_key).await?;
        migrate::run(&mut tx, options.migrations, clock.now()).await?;
        // Check again: another process that started at the same time may have created the keys meanwhile.
        sealing::check_master_key(&mut tx, &options.master_key).await?;
        sealing::ensure_data_key(&mut tx, clock.now()).await?;
        let sealer = tx.sealer.clone();
        tx.commit().await?;
        Ok(Self { pools, sealer })
    }

    /// For reading: no transaction, each statement sees the latest state.
    pub fn read(&self) -> BoxFuture<'_, Result<Tx>> {
        let sealer = self.sealer.clone();
        match &self.pools {
            Pools::Sqlite { readers, .. } => Box::pin(Tx::read_sqlite(readers, sealer)),
            Pools::Postgres { pool, .. } => Box::pin(Tx::read_postgres(pool, sealer)),
        }
    }

    /// For reading consistently: every statement sees the same snapshot. The connection is not reused.
    pub async fn read_snapshot(&self) -> Result<Tx> {
        let mut tx = self.read().await?;
        tx.begin_snapshot().await?;
        Ok(tx)
    }

    /// For a unit of work: either everything up to `commit` happens or nothing does. On SQLite, writers queue here.
    pub fn begin(&self) -> BoxFuture<'_, Result<Tx>> {
        self.pools.begin(self.sealer.clone())
    }

    pub fn is_sqlite(&self) -> bool {
        matches!(self.pools, Pools::Sqlite { .. })
    }

    /// Calls `heard` whenever another process queues a run, until the connection to the database fails. On SQLite there
    /// are no such notifications, and this never returns.
    pub async fn listen_for_queued(&self, mut heard: impl FnMut()) -> Result<()> {
        let Pools::Postgres { connect, .. } = &self.pools else { return std::future::pending().await };
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(connect.as_ref().clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen(QUEUE_CHANNEL).await?;
        // Runs may have been queued before listening began.
        heard();
        loop {
            listener.recv().await?;
            heard();
        }
    }

    /// Checks that the master key is available and opens the current data key.
    pub async fn check_master_key(&self) -> Result<()> {
        sealing::check_current(&mut self.read().await?).await
    }

    /// Succeeds if the database answers.
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
        // A node that dies while it holds a row lock must not block the others for hours.
        let connect = connect.options([
            ("plan_cache_mode", "force_generic_plan"),
            ("jit", "off"),
            ("lock_timeout", "10s"),
            ("idle_in_transaction_session_timeout", "30s"),
            ("tcp_keepalives_idle", "30"),
        ]);
        let connect = connect.disable_statement_logging();
        let pool = pool::open(connect.clone(), options.max_connections, options.acquire_timeout);
        // Connects here rather than on the first request, so that a wrong address prevents the start.
        let first = pool::acquire(&pool).await;
        first.map(drop).map_err(|error| StartError::Database(format!("cannot reach PostgreSQL: {error}")))?;
        Ok(Self::Postgres { pool, connect: Box::new(connect) })
    }

    fn begin(&self, sealer: Arc<Sealer>) -> BoxFuture<'_, Result<Tx>> {
        match self {
            Self::Sqlite { writer, .. } => Box::pin(Tx::begin_sqlite(writer, sealer)),
            Self::Postgres { pool, .. } => Box::pin(Tx::begin_postgres(pool.clone(), sealer)),
        }
    }
}
