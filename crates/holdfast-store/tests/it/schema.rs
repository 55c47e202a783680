use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_core::clock::{SharedClock, SystemClock};
use holdfast_store::{StartError, Store};
use holdfast_testkit::{Engine, PostgresServer, TestApp, on_both_engines};
use sqlx::{Connection as _, PgConnection, Row as _, SqliteConnection};

/// Table to column to whether it must be there.
type Shape = BTreeMap<String, BTreeMap<String, bool>>;

async fn sqlite_shape(url: &str) -> (Shape, Vec<String>) {
    let mut connection = SqliteConnection::connect(url).await.unwrap();
    let columns = sqlx::query(
        "SELECT m.name AS t, c.name AS c, c.\"notnull\" > 0 OR c.pk > 0 AS n FROM sqlite_master m, pragma_table_info(m.name) c
         WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'",
    );
    let mut shape = Shape::new();
    for row in columns.fetch_all(&mut connection).await.unwrap() {
        shape.entry(row.get("t")).or_default().insert(row.get("c"), row.get("n"));
    }
    let indexes =
        sqlx::query_scalar("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY name");
    (shape, indexes.fetch_all(&mut connection).await.unwrap())
}

async fn postgres_shape(url: &str) -> (Shape, Vec<String>) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let columns = sqlx::query(
        "SELECT table_name::text AS t, column_name::text AS c, is_nullable = 'NO' AS n FROM information_schema.columns
         WHERE table_schema = 'public'",
    );
    let mut shape = Shape::new();
    for row in columns.fetch_all(&mut connection).await.unwrap() {
        shape.entry(row.get("t")).or_default().insert(row.get("c"), row.get("n"));
    }
    let indexes = sqlx::query_scalar(
        "SELECT indexname::text FROM pg_indexes WHERE schemaname = 'public' AND indexname NOT LIKE '%_pkey'
         AND indexname NOT LIKE '%_key' ORDER BY indexname COLLATE \"C\"",
    );
    (shape, indexes.fetch_all(&mut connection).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_engines_have_the_same_tables_columns_and_indexes() {
    let sqlite = TestApp::start(Engine::Sqlite).await;
    let postgres = TestApp::start(Engine::Postgres).await;
    let (left, right) = (sqlite_shape(&sqlite.options.url).await, postgres_shape(&postgres.options.url).await);
    assert_eq!(left.0, right.0);
    assert_eq!(left.1, right.1);
    assert!(left.0.len() > 15 && left.1.len() > 20);
}

/// Every column named `…_sealed` is one that a rotation reaches.
#[tokio::test]
async fn no_sealed_column_is_forgotten_by_the_rotation() {
    let app = TestApp::start(Engine::Sqlite).await;
    let (shape, _) = sqlite_shape(&app.options.url).await;
    let columns =
        shape.iter().flat_map(|(table, columns)| columns.keys().map(move |column| (table.clone(), column.clone())));
    let mut found: Vec<_> = columns.filter(|(_, column)| column.ends_with("_sealed")).collect();
    let mut known: Vec<_> =
        holdfast_store::SEALED_COLUMNS.iter().map(|(table, column)| (table.to_string(), column.to_string())).collect();
    found.sort();
    known.sort();
    assert_eq!(found, known);
}

/// Whoever adds a table or a column decides whether it moves with its owner.
#[tokio::test]
async fn every_column_is_carried_to_other_installations_or_left_behind_on_purpose() {
    let app = TestApp::start(Engine::Sqlite).await;
    let (shape, _) = sqlite_shape(&app.options.url).await;
    let mut known: BTreeMap<String, BTreeSet<String>> = holdfast_store::portable::columns()
        .into_iter()
        .map(|(table, columns)| (table.to_owned(), columns.into_iter().map(str::to_owned).collect()))
        .collect();
    for (table, columns) in shape {
        if holdfast_store::portable::LEFT.contains(&table.as_str()) || table == "schema_migrations" {
            continue;
        }
        let columns: BTreeSet<String> = columns.keys().cloned().collect();
        assert_eq!(known.remove(&table), Some(columns), "{table}");
    }
    assert!(known.is_empty(), "{known:?}");
}

on_both_engines! {
    async fn a_newer_database_is_refused(app: TestApp) {
        let insert = "INSERT INTO schema_migrations (version, applied_at) VALUES (99, 0)";
        if app.app.store.is_sqlite() {
            let mut connection = SqliteConnection::connect(&app.options.url).await.unwrap();
            sqlx::query(insert).execute(&mut connection).await.unwrap();
        } else {
            let mut connection = PgConnection::connect(&app.options.url).await.unwrap();
            sqlx::query(insert).execute(&mut connection).await.unwrap();
        }
        let clock: SharedClock = Arc::new(SystemClock);
        let error = Store::open(&app.options, &clock).await.map(drop).unwrap_err();
        assert!(matches!(error, StartError::NewerDatabase { found: 99 }), "{error}");
    }

    async fn several_processes_may_start_at_once(app: TestApp) {
        let mut options = app.options.clone();
        if app.app.store.is_sqlite() {
            options.url = format!("sqlite://{}", app.folder.path().join("fresh.db").display());
        } else {
            options.url = PostgresServer::shared().create_database().await;
        }
        let clock: SharedClock = Arc::new(SystemClock);
        let opening = (0..6).map(|_| {
            let (options, clock) = (options.clone(), clock.clone());
            tokio::spawn(async move { Store::open(&options, &clock).await.map(drop) })
        });
        for opened in opening.collect::<Vec<_>>() {
            opened.await.unwrap().unwrap();
        }
    }
}
