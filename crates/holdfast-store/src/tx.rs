//! What queries run on: one interface for both databases.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use crate::Result;
use crate::damage::Damage;
use crate::error::StoreError;
use crate::pool::{self, Pool, Pooled};
use crate::sealer::Sealer;
use crate::sqlite::{self, WriteGuard};

/// Runs one expression on whichever engine `$tx` belongs to. Inside, `Db` is the engine's type and `$conn` its
/// connection; the SQL text is the same for both.
macro_rules! with_conn {
    ($tx:expr, $conn:ident => $body:expr) => {{
        let result = match $tx.begin_statement() {
            $crate::tx::Backend::Sqlite($conn) => {
                type Db = sqlx::Sqlite;
                $body
            }
            $crate::tx::Backend::Postgres($conn) => {
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
        with_conn!($tx, conn => {
            let query = sqlx::query::<Db>($sql)$(.bind($bind))*;
            $crate::statement::Statement::all(query, conn).await.and_then($crate::statement::decode_all::<$row, _>)
        })
    };
}

/// The first row of a query, if there is one.
macro_rules! fetch_optional {
    ($tx:expr, $row:ty, $sql:expr $(, $bind:expr)* $(,)?) => {
        with_conn!($tx, conn => {
            let query = sqlx::query::<Db>($sql)$(.bind($bind))*;
            $crate::statement::Statement::first(query, conn).await.and_then($crate::statement::decode_first::<$row, _>)
        })
    };
}

/// The single value of a query that always has one.
macro_rules! fetch_scalar {
    ($tx:expr, $value:ty, $sql:expr $(, $bind:expr)* $(,)?) => {
        with_conn!($tx, conn => {
            let query = sqlx::query::<Db>($sql)$(.bind($bind))*;
            $crate::statement::Statement::first(query, conn).await.and_then($crate::statement::decode_one::<($value,), _>)
        })
        .map(|(value,)| value)
    };
}

/// Runs a statement and returns the number of rows it changed.
macro_rules! execute {
    ($tx:expr, $sql:expr $(, $bind:expr)* $(,)?) => {
        with_conn!($tx, conn => $crate::statement::Statement::run(sqlx::query::<Db>($sql)$(.bind($bind))*, conn).await)
    };
}

/// The PostgreSQL channel that announces queued runs.
pub(crate) const QUEUE_CHANNEL: &str = "holdfast_queue";

/// What queries run on: a reader, or the unit of work of one use case. Dropped without `commit`, it changes nothing.
pub struct Tx {
    /// Taken out by `commit`.
    inner: Option<Inner>,
    pub(crate) sealer: Arc<Sealer>,
    damage: Arc<Damage>,
    /// A statement failed: PostgreSQL would answer a commit with a silent rollback.
    failed: bool,
    /// The connection itself failed and must not be used again.
    broken: bool,
    /// A statement was sent, and its result has not been read. If that never happens, because whoever waited for it has
    /// given up, the connection is not used again.
    is_under_way: bool,
}

enum Inner {
    SqliteRead(Pooled<SqliteConnectOptions>),
    SqliteWrite(WriteGuard),
    PostgresRead(Pooled<PgConnectOptions>),
    PostgresWrite(Pooled<PgConnectOptions>),
}

pub(crate) enum Backend<'a> {
    Sqlite(&'a mut SqliteConnection),
    Postgres(&'a mut PgConnection),
}

impl Tx {
    fn new(inner: Inner, sealer: Arc<Sealer>, damage: Arc<Damage>) -> Self {
        Self { inner: Some(inner), sealer, damage, failed: false, broken: false, is_under_way: false }
    }

    pub(crate) async fn read_sqlite(
        readers: &Pool<SqliteConnectOptions>,
        sealer: Arc<Sealer>,
        damage: Arc<Damage>,
    ) -> Result<Self> {
        Ok(Self::new(Inner::SqliteRead(pool::acquire(readers).await?), sealer, damage))
    }

    pub(crate) async fn read_postgres(
        pool: &Pool<PgConnectOptions>,
        sealer: Arc<Sealer>,
        damage: Arc<Damage>,
    ) -> Result<Self> {
        Ok(Self::new(Inner::PostgresRead(pool::acquire(pool).await?), sealer, damage))
    }

    pub(crate) async fn begin_sqlite(
        writer: &sqlite::Writer,
        sealer: Arc<Sealer>,
        damage: Arc<Damage>,
    ) -> Result<Self> {
        Ok(Self::new(Inner::SqliteWrite(writer.begin().await?), sealer, damage))
    }

    /// Runs as a separate task, for the same reason as on SQLite: a caller that is cancelled must not leave an open
    /// transaction behind.
    pub(crate) async fn begin_postgres(
        pool: Pool<PgConnectOptions>,
        sealer: Arc<Sealer>,
        damage: Arc<Damage>,
    ) -> Result<Self> {
        let begun = tokio::spawn(async move {
            let mut connection = pool::acquire(&pool).await?;
            match say(&mut connection, "BEGIN").await {
                // Created here, so that it is rolled back even if nobody waits for it any more.
                Ok(()) => Ok(Self::new(Inner::PostgresWrite(connection), sealer, damage)),
                Err(error) => {
                    drop(Pooled::take(connection));
                    Err(error)
                }
            }
        });
        begun.await.map_err(|error| StoreError::Broken(error.to_string()))?
    }

    /// Plans every statement for its values until the end of the transaction. For work on many rows, where a plan that
    /// fits all values may read a whole table for a few of them. SQLite needs nothing of the kind.
    pub async fn plan_for_values(&mut self) -> Result<()> {
        if self.is_sqlite() {
            return Ok(());
        }
        execute!(self, "SET LOCAL plan_cache_mode TO force_custom_plan").map(drop)
    }

    /// Reads everything from one snapshot from now on. The connection is not reused.
    pub(crate) async fn begin_snapshot(&mut self) -> Result<()> {
        self.broken = true;
        let begin = if self.is_sqlite() { "BEGIN" } else { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" };
        execute!(self, begin).map(drop)
    }

    pub(crate) fn backend(&mut self) -> Backend<'_> {
        match self.inner.as_mut().expect("only commit takes it out, and that ends the Tx") {
            Inner::SqliteRead(connection) => Backend::Sqlite(connection),
            Inner::SqliteWrite(guard) => Backend::Sqlite(guard.connection()),
            Inner::PostgresRead(connection) | Inner::PostgresWrite(connection) => Backend::Postgres(connection),
        }
    }

    pub(crate) fn begin_statement(&mut self) -> Backend<'_> {
        self.is_under_way = true;
        self.backend()
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self.inner, Some(Inner::SqliteRead(_) | Inner::SqliteWrite(_)))
    }

    /// Classifies a statement's error, and remembers what it means for the connection.
    pub(crate) fn checked<T>(&mut self, result: std::result::Result<T, sqlx::Error>) -> Result<T> {
        self.is_under_way = false;
        result.map_err(|error| {
            let error = StoreError::from(error);
            self.damage.note(&error);
            self.failed = true;
            self.broken |= error.is_outage();
            error
        })
    }

    /// Makes the work durable. It is on disk when this returns.
    pub fn commit(mut self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            if self.failed {
                return Err(StoreError::Broken("a statement failed before the commit".to_owned()));
            }
            match self.inner.take() {
                None | Some(Inner::SqliteRead(_) | Inner::PostgresRead(_)) => Ok(()),
                Some(Inner::SqliteWrite(guard)) => guard.commit().await.inspect_err(|error| self.damage.note(error)),
                Some(Inner::PostgresWrite(connection)) => commit_postgres(connection).await,
            }
        })
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let is_unusable = self.broken || self.is_under_way;
        match self.inner.take() {
            // The writer undoes abandoned work by itself, and keeps its one connection.
            None | Some(Inner::SqliteWrite(_)) => {}
            Some(Inner::SqliteRead(connection)) if is_unusable => drop(Pooled::take(connection)),
            Some(Inner::PostgresRead(connection) | Inner::PostgresWrite(connection)) if is_unusable => {
                drop(Pooled::take(connection));
            }
            Some(Inner::SqliteRead(_) | Inner::PostgresRead(_)) => {}
            Some(Inner::PostgresWrite(connection)) => {
                tokio::spawn(roll_back_postgres(connection));
            }
        }
    }
}

/// Pushes the ids of an `IN (…)`, which must not be empty.
pub(crate) fn push_ids<Db: sqlx::Database>(query: &mut sqlx::QueryBuilder<Db>, ids: &[i64])
where
    i64: for<'q> sqlx::Encode<'q, Db> + sqlx::Type<Db>,
{
    let mut list = query.separated(", ");
    for id in ids {
        list.push_bind(*id);
    }
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

/// Sends a statement with a time limit: a database that does not answer, for example after a power failure, must not
/// keep a pooled connection for ever. A commit that was not answered may have happened.
async fn say(connection: &mut Pooled<PgConnectOptions>, word: &'static str) -> Result<()> {
    const ANSWER_LIMIT: Duration = Duration::from_secs(15);
    match tokio::time::timeout(ANSWER_LIMIT, sqlx::raw_sql(word).execute(&mut **connection)).await {
        Ok(said) => said.map(drop).map_err(StoreError::from),
        Err(_) => Err(StoreError::Unavailable(format!("no answer to {word}"))),
    }
}
