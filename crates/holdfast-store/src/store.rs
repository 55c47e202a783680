//! Opens the database and hands out connections to it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use holdfast_core::Timestamp;
use holdfast_core::clock::SharedClock;
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::sqlite::SqliteConnectOptions;

use crate::condition::{self, DamageSigns};
use crate::damage::Damage;
use crate::database_file::DatabaseFile;
use crate::error::{StartError, StoreError};
use crate::options::{Migrations, Options, sqlite_path};
use crate::pool::{self, Pool};
use crate::sealer::Sealer;
use crate::sqlite::Writer;
use crate::tx::{QUEUE_CHANNEL, Tx};
use crate::{Result, migrate, sealing, snapshot, sqlite};

/// The database and the keys to its secrets. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pools: Pools,
    sealer: Arc<Sealer>,
    damage: Arc<Damage>,
}

#[derive(Clone)]
enum Pools {
    Sqlite { readers: Pool<SqliteConnectOptions>, writer: Writer, file: DatabaseFile },
    Postgres { pool: Pool<PgConnectOptions>, connect: Box<PgConnectOptions> },
}

impl Store {
    /// Opens the database, checks the master key against it, brings the schema up to date and creates the first data
    /// key. If the key is wrong or missing, nothing is changed.
    pub async fn open(options: &Options, clock: &SharedClock) -> std::result::Result<Self, StartError> {
        let pools = Pools::open(options).await?;
        let damage = Arc::new(Damage::default());
        let sealer = Arc::new(Sealer::new(options.master_key.clone()));
        if let (Pools::Sqlite { readers, .. }, Migrations::Apply) = (&pools, options.migrations) {
            let mut tx = Tx::read_sqlite(readers, sealer.clone(), damage.clone()).await?;
            snapshot::before_migration(&mut tx, &options.url).await?;
        }
        let mut tx = pools.begin_first(sealer, damage.clone()).await?;
        sealing::check_master_key(&mut tx, &options.master_key).await?;
        migrate::run(&mut tx, options.migrations, clock.now()).await?;
        // Check again: another process that started at the same time may have created the keys meanwhile.
        sealing::check_master_key(&mut tx, &options.master_key).await?;
        sealing::ensure_data_key(&mut tx, clock.now()).await?;
        let sealer = tx.sealer.clone();
        tx.commit().await?;
        Ok(Self { pools, sealer, damage })
    }

    /// For reading: no transaction, each statement sees the latest state.
    pub fn read(&self) -> BoxFuture<'_, Result<Tx>> {
        let (sealer, damage) = (self.sealer.clone(), self.damage.clone());
        match &self.pools {
            Pools::Sqlite { readers, .. } => Box::pin(Tx::read_sqlite(readers, sealer, damage)),
            Pools::Postgres { pool, .. } => Box::pin(Tx::read_postgres(pool, sealer, damage)),
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
        self.pools.begin(self.sealer.clone(), self.damage.clone())
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

    /// Succeeds if the database can be written and no damage is known.
    pub async fn check_writable(&self, now: Timestamp) -> Result<()> {
        if let Pools::Sqlite { file, .. } = &self.pools {
            file.check()?;
        }
        condition::write(self.begin().await?, now).await?;
        self.damage.seen().map_or(Ok(()), |text| Err(StoreError::Damaged(text)))
    }

    /// The process that keeps this one from writing to SQLite, as far as it can be told.
    pub fn find_lock_holder(&self) -> Option<String> {
        match &self.pools {
            Pools::Sqlite { file, .. } => file.find_lock_holder(),
            Pools::Postgres { .. } => None,
        }
    }

    /// What tells, without a check of the whole database, that it should be checked again.
    pub async fn find_damage_signs(&self) -> Result<DamageSigns> {
        condition::find_signs(&mut self.read().await?).await
    }

    /// Checks the whole database for damage, which takes long for a large one, and remembers the result.
    pub async fn find_damage(&self, now: Timestamp) -> Result<Option<String>> {
        let found = condition::find_damage(&mut self.read().await?, now).await?;
        self.damage.set(found.clone());
        Ok(found)
    }

    /// Damage that the last check found, or that a statement has run into since.
    pub fn known_damage(&self) -> Option<String> {
        self.damage.seen()
    }

    /// Returns when a statement runs into damage.
    pub async fn damage_noticed(&self) {
        self.damage.noticed().await;
    }

    /// The free space on the disk of the database; `None` if that is another machine's.
    pub fn free_bytes(&self) -> Option<u64> {
        match &self.pools {
            Pools::Sqlite { file, .. } => file.free_bytes(),
            Pools::Postgres { .. } => None,
        }
    }

    pub async fn close(&self) {
        self.pools.close().await;
    }
}

/// Whether the database holds no installation yet. Creates nothing.
pub async fn is_new(options: &Options) -> std::result::Result<bool, StartError> {
    if sqlite_path(&options.url).is_some_and(|path| !std::fs::metadata(path).is_ok_and(|meta| meta.len() > 0)) {
        return Ok(true);
    }
    let pools = Pools::open(&Options { migrations: Migrations::Never, ..options.clone() }).await?;
    let sealer = Arc::new(Sealer::new(options.master_key.clone()));
    let mut tx = pools.begin(sealer, Arc::new(Damage::default())).await?;
    let has_schema = migrate::has_schema(&mut tx).await?;
    drop(tx);
    pools.close().await;
    Ok(!has_schema)
}

impl Pools {
    async fn close(&self) {
        match self {
            Self::Sqlite { readers, writer, .. } => {
                readers.close();
                writer.close().await;
            }
            Self::Postgres { pool, .. } => pool.close(),
        }
    }

    async fn open(options: &Options) -> std::result::Result<Self, StartError> {
        if let Some(path) = sqlite_path(&options.url) {
            let (readers, writer) = sqlite::open(&path, options).await?;
            return Ok(Self::Sqlite { readers, writer, file: DatabaseFile::new(&path) });
        }
        let connect: PgConnectOptions = options.url.parse().map_err(|_| {
            StartError::Database("the database URL is neither sqlite://PATH nor a valid postgres:// URL".to_owned())
        })?;
        // Our statements are few, so each is planned once per connection. Where the plan depends on a value, that is part
        // of the text, or the transaction plans each time (`Tx::plan_for_values`).
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
        first.map(drop).map_err(|error| match error {
            StoreError::Refused { .. } => StartError::Database(error.to_string()),
            error => StartError::Database(format!(
                "cannot reach PostgreSQL: {error}; start it, or correct HOLDFAST_DATABASE_URL"
            )),
        })?;
        Ok(Self::Postgres { pool, connect: Box::new(connect) })
    }

    /// Begins the first unit of work, which may find that another process has locked the database. If that can only be
    /// read, it is a reader.
    async fn begin_first(&self, sealer: Arc<Sealer>, damage: Arc<Damage>) -> std::result::Result<Tx, StartError> {
        if let Self::Sqlite { readers, writer, .. } = self
            && writer.refusal().await.is_some()
        {
            return Ok(Tx::read_sqlite(readers, sealer, damage).await?);
        }
        self.begin(sealer, damage).await.map_err(|error| match (self, error) {
            (Self::Sqlite { file, .. }, StoreError::Locked(text)) => sqlite::locked_at_start(file.path(), &text),
            (_, error) => error.into(),
        })
    }

    fn begin(&self, sealer: Arc<Sealer>, damage: Arc<Damage>) -> BoxFuture<'_, Result<Tx>> {
        match self {
            Self::Sqlite { writer, .. } => Box::pin(Tx::begin_sqlite(writer, sealer, damage)),
            Self::Postgres { pool, .. } => Box::pin(Tx::begin_postgres(pool.clone(), sealer, damage)),
        }
    }
}
