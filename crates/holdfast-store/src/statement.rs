//! Runs statements on either database.
//!
//! The functions of sqlx are generic, and the future of an async function is compiled in every crate that awaits it, so
//! each crate above the store used to compile the drivers again. These functions are not generic and their futures are
//! boxed: the drivers are compiled once, here.

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Database, Error, FromRow, PgConnection, Postgres, Row, Sqlite, SqliteConnection};

pub(crate) trait Statement<'a, Db: Database> {
    /// All rows.
    fn all(self, connection: &'a mut Db::Connection) -> BoxFuture<'a, Result<Vec<Db::Row>, Error>>;

    /// The first row, if there is one.
    fn first(self, connection: &'a mut Db::Connection) -> BoxFuture<'a, Result<Option<Db::Row>, Error>>;

    /// Runs it, and returns the number of rows it changed.
    fn run(self, connection: &'a mut Db::Connection) -> BoxFuture<'a, Result<u64, Error>>;
}

impl<'a> Statement<'a, Sqlite> for Query<'a, Sqlite, SqliteArguments> {
    fn all(self, connection: &'a mut SqliteConnection) -> BoxFuture<'a, Result<Vec<SqliteRow>, Error>> {
        Box::pin(self.fetch_all(connection))
    }

    fn first(self, connection: &'a mut SqliteConnection) -> BoxFuture<'a, Result<Option<SqliteRow>, Error>> {
        Box::pin(self.fetch_optional(connection))
    }

    fn run(self, connection: &'a mut SqliteConnection) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async { self.execute(connection).await.map(|done| done.rows_affected()) })
    }
}

impl<'a> Statement<'a, Postgres> for Query<'a, Postgres, PgArguments> {
    fn all(self, connection: &'a mut PgConnection) -> BoxFuture<'a, Result<Vec<PgRow>, Error>> {
        Box::pin(self.fetch_all(connection))
    }

    fn first(self, connection: &'a mut PgConnection) -> BoxFuture<'a, Result<Option<PgRow>, Error>> {
        Box::pin(self.fetch_optional(connection))
    }

    fn run(self, connection: &'a mut PgConnection) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async { self.execute(connection).await.map(|done| done.rows_affected()) })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that and_then needs")]
pub(crate) fn decode_all<T, R: Row>(rows: Vec<R>) -> Result<Vec<T>, Error>
where
    T: for<'r> FromRow<'r, R>,
{
    rows.iter().map(T::from_row).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that and_then needs")]
pub(crate) fn decode_first<T, R: Row>(row: Option<R>) -> Result<Option<T>, Error>
where
    T: for<'r> FromRow<'r, R>,
{
    row.as_ref().map(T::from_row).transpose()
}

/// The row of a query that always has one.
#[expect(clippy::needless_pass_by_value, reason = "the signature that and_then needs")]
pub(crate) fn decode_one<T, R: Row>(row: Option<R>) -> Result<T, Error>
where
    T: for<'r> FromRow<'r, R>,
{
    T::from_row(row.as_ref().ok_or(Error::RowNotFound)?)
}
