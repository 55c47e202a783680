use std::collections::BTreeMap;

use holdfast_testkit::TestApp;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};

/// A connection of its own, for statements that no function of the store has.
pub enum Raw {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Raw {
    pub async fn open(app: &TestApp) -> Self {
        if app.app.store.is_sqlite() {
            Self::Sqlite(SqliteConnection::connect(&app.options.url).await.unwrap())
        } else {
            Self::Postgres(PgConnection::connect(&app.options.url).await.unwrap())
        }
    }

    pub async fn run(&mut self, sql: String) {
        let shown = sql.clone();
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        let done = match self {
            Self::Sqlite(connection) => sql.execute(connection).await.map(|done| done.rows_affected()),
            Self::Postgres(connection) => sql.execute(connection).await.map(|done| done.rows_affected()),
        };
        done.expect(&shown);
    }

    /// Rows of user, kind and status with their number and bytes.
    pub async fn group(&mut self, sql: &str) -> BTreeMap<(i64, String, String), (i64, i64)> {
        let rows: Vec<(i64, String, String, i64, i64)> = match self {
            Self::Sqlite(connection) => sqlx::query_as(AssertSqlSafe(sql)).fetch_all(connection).await.unwrap(),
            Self::Postgres(connection) => sqlx::query_as(AssertSqlSafe(sql)).fetch_all(connection).await.unwrap(),
        };
        rows.into_iter().map(|(user, kind, status, amount, bytes)| ((user, kind, status), (amount, bytes))).collect()
    }

    pub async fn count(&mut self, rows: &str) -> i64 {
        let sql = format!("SELECT COUNT(*) FROM {rows}");
        match self {
            Self::Sqlite(connection) => sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await.unwrap(),
            Self::Postgres(connection) => sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await.unwrap(),
        }
    }
}
