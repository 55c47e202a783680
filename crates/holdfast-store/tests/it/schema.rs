use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_core::clock::{SharedClock, SystemClock};
use holdfast_store::{StartError, Store, ownership};
use holdfast_testkit::{Engine, PostgresServer, TestApp, on_both_engines};
use sqlx::{Connection as _, PgConnection, Row as _, SqliteConnection};

/// For each table, its columns and whether they are NOT NULL.
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

/// A key rotation covers every column named `…_sealed`.
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

/// Whoever adds a table or a column must decide whether exports contain it.
#[tokio::test]
async fn every_column_is_either_exported_or_left_out_on_purpose() {
    let app = TestApp::start(Engine::Sqlite).await;
    let (shape, _) = sqlite_shape(&app.options.url).await;
    let mut known: BTreeMap<String, BTreeSet<String>> = holdfast_store::transfer::columns()
        .into_iter()
        .map(|(table, columns)| (table.to_owned(), columns.into_iter().map(str::to_owned).collect()))
        .collect();
    for (table, columns) in shape {
        if holdfast_store::transfer::LEFT.contains(&table.as_str()) || table == "schema_migrations" {
            continue;
        }
        let columns: BTreeSet<String> = columns.keys().cloned().collect();
        assert_eq!(known.remove(&table), Some(columns), "{table}");
    }
    assert!(known.is_empty(), "{known:?}");
}

/// Whoever adds a table with an owner must decide whether its rows are transferred with everything else.
#[tokio::test]
async fn every_table_with_an_owner_is_transferred_or_stays_on_purpose() {
    let app = TestApp::start(Engine::Sqlite).await;
    let (shape, _) = sqlite_shape(&app.options.url).await;
    let owned = shape.into_iter().filter(|(_, columns)| columns.contains_key("user_id")).map(|(table, _)| table);
    let found: BTreeSet<String> = owned.collect();
    let known =
        ownership::HANDED_OVER.iter().chain(ownership::MERGED).chain(ownership::STAYING).chain(ownership::ENDED);
    assert_eq!(found, known.map(|table| (*table).to_owned()).collect());
}

/// Exported columns whose change alone is no reason to write a catalogue: their value is determined again, follows from
/// another column, or never changes.
const QUIET: &[(&str, &str)] = &[
    ("users", "totp_last_step summary_at"),
    ("api_tokens", "last_used_at expiry_told_at"),
    (
        "remote_servers",
        "offered_host_key connectivity last_connected_at last_checked_at last_error last_error_code latency_micros tools",
    ),
    ("backup_destinations", "status last_checked_at last_error last_error_code"),
    (
        "notification_streams",
        "last_test_succeeded last_test_message last_tested_at last_delivery_succeeded last_delivery_message \
         last_delivery_at",
    ),
    (
        "backup_tasks",
        "next_run_at last_run_at losses told_code told_at overdue_at last_status last_error_code last_warnings \
         last_success_at overdue_since paused_together proven_at held_signs held_reason held_told_at",
    ),
];
const QUIET_EVERYWHERE: &[&str] = &["user_id", "search_label", "created_at", "updated_at"];
/// Tables without triggers. A change of a link also changes the count in its task, which is watched; daily statistics
/// are written with the next catalogue; settings and audit events of the installation are in no user's catalogue.
const UNWATCHED: &[&str] = &["task_streams", "task_tags", "user_days", "settings", "audit_events"];
/// The identity and the location of a backup never change; its state is watched, and also decides whether it is
/// exported at all.
const BACKUPS_WATCHED: &str = "verification deleted_at password_sealed";
const COPIES_WATCHED: &str = "verification removed_at";

/// For each table, the columns whose change its triggers record, with `*` for all, and INSERT and DELETE.
type Watched = BTreeMap<String, BTreeSet<String>>;

async fn sqlite_watched(url: &str) -> Watched {
    let mut connection = SqliteConnection::connect(url).await.unwrap();
    let triggers =
        sqlx::query("SELECT tbl_name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%_wish%'");
    let mut watched = Watched::new();
    for row in triggers.fetch_all(&mut connection).await.unwrap() {
        let (table, sql): (String, String) = (row.get("tbl_name"), row.get("sql"));
        let events = sql.split_once(" AFTER ").unwrap().1;
        let events = events.split(&format!("ON {table}")).next().unwrap();
        let columns = watched.entry(table).or_default();
        match events.split_once("UPDATE") {
            None => drop(columns.insert(events.trim().to_owned())),
            Some((_, rest)) => match rest.trim().strip_prefix("OF") {
                None => drop(columns.insert("*".to_owned())),
                Some(names) => columns.extend(names.split(',').map(|name| name.trim().to_owned())),
            },
        }
    }
    watched
}

async fn postgres_watched(url: &str) -> Watched {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let triggers = sqlx::query(
        "SELECT t.event_object_table::text AS t, t.event_manipulation::text AS e, c.event_object_column::text AS c
         FROM information_schema.triggers t
         LEFT JOIN information_schema.triggered_update_columns c
             ON c.trigger_name = t.trigger_name AND c.event_object_table = t.event_object_table
             AND t.event_manipulation = 'UPDATE'
         WHERE t.trigger_name LIKE '%_wish%'",
    );
    let mut watched = Watched::new();
    for row in triggers.fetch_all(&mut connection).await.unwrap() {
        let (table, event, column): (String, String, Option<String>) = (row.get("t"), row.get("e"), row.get("c"));
        let all = if event == "UPDATE" { "*".to_owned() } else { event };
        watched.entry(table).or_default().insert(column.unwrap_or(all));
    }
    watched
}

/// The triggers list columns one by one, in two dialects. Whoever adds an exported column must add it to both, in a
/// migration that recreates the trigger, or list it above as a column whose change need not be recorded.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_catalogue_carries_is_watched_by_triggers_on_both_engines() {
    let sqlite = sqlite_watched(&TestApp::start(Engine::Sqlite).await.options.url).await;
    let postgres = postgres_watched(&TestApp::start(Engine::Postgres).await.options.url).await;
    assert_eq!(sqlite, postgres);
    for (table, columns) in holdfast_store::transfer::carried_columns() {
        let Some(watched) = sqlite.get(table) else {
            assert!(UNWATCHED.contains(&table), "{table} has no triggers");
            continue;
        };
        if table != "users" {
            assert!(watched.contains("INSERT") && watched.contains("DELETE"), "{table}: {watched:?}");
        }
        let named: BTreeSet<&str> =
            watched.iter().map(String::as_str).filter(|name| !["INSERT", "DELETE"].contains(name)).collect();
        if named.contains("*") {
            continue;
        }
        let quiet = QUIET.iter().find(|(of, _)| *of == table).map_or("", |(_, columns)| columns);
        let quiet: Vec<&str> = quiet.split_whitespace().chain(QUIET_EVERYWHERE.iter().copied()).collect();
        let expected: BTreeSet<&str> = match table {
            "backups" => BACKUPS_WATCHED.split_whitespace().collect(),
            "backup_copies" => COPIES_WATCHED.split_whitespace().collect(),
            _ => columns.iter().copied().filter(|column| !quiet.contains(column)).collect(),
        };
        assert_eq!(named, expected, "{table}");
    }
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
