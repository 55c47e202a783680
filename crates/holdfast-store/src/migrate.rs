//! Brings the schema up to date in one transaction: if it is interrupted, nothing has changed.

use holdfast_core::Timestamp;
use holdfast_core::rules::search_form;

use crate::Result;
use crate::error::{StartError, StoreError};
use crate::options::Migrations;
use crate::tx::{Backend, Tx};

/// One migration, in both dialects. A test checks that the two match.
struct Migration {
    version: i64,
    sqlite: &'static str,
    postgres: &'static str,
}

macro_rules! migration {
    ($version:expr, $file:literal) => {
        Migration {
            version: $version,
            sqlite: include_str!(concat!("../migrations/sqlite/", $file)),
            postgres: include_str!(concat!("../migrations/postgres/", $file)),
        }
    };
}

const MIGRATIONS: &[Migration] = &[
    migration!(1, "0001_initial.sql"),
    migration!(2, "0002_backups.sql"),
    migration!(3, "0003_queue.sql"),
    migration!(4, "0004_notices.sql"),
    migration!(5, "0005_pages.sql"),
    migration!(6, "0006_catalogue.sql"),
    migration!(7, "0007_restore_options.sql"),
    migration!(8, "0008_retention_hold.sql"),
    migration!(9, "0009_versions.sql"),
    migration!(10, "0010_confirmed.sql"),
    migration!(11, "0011_restores_that_write.sql"),
    migration!(12, "0012_databases.sql"),
    migration!(13, "0013_written_hosts.sql"),
    migration!(14, "0014_undone_restores.sql"),
    migration!(15, "0015_task_specs.sql"),
    migration!(16, "0016_destination_specs.sql"),
    migration!(17, "0017_backup_copies.sql"),
    migration!(18, "0018_long_runs.sql"),
    migration!(19, "0019_restores_into_empty_folders.sql"),
    migration!(20, "0020_stopping_workers.sql"),
    migration!(21, "0021_idempotency_keys.sql"),
    migration!(SEARCH_LABELS, "0022_search_labels.sql"),
    migration!(23, "0023_removed_backups.sql"),
    migration!(24, "0024_events.sql"),
    migration!(25, "0025_suspended_accounts.sql"),
    migration!(26, "0026_incidents.sql"),
    migration!(27, "0027_transferred_accounts.sql"),
    migration!(28, "0028_totals.sql"),
    migration!(29, "0029_lists.sql"),
    migration!(30, "0030_statistics.sql"),
    migration!(31, "0031_draining_workers.sql"),
    migration!(32, "0032_versions_of_responses.sql"),
    migration!(33, "0033_paused_together.sql"),
    migration!(34, "0034_idempotency_actors.sql"),
    migration!(35, "0035_totals_of_streams.sql"),
    migration!(36, "0036_repositories.sql"),
    migration!(37, "0037_repository_totals.sql"),
];

/// Applies missing migrations. Several processes may start at once: on PostgreSQL a lock lets one through at a time, on
/// SQLite the transaction itself does.
pub(crate) async fn run(tx: &mut Tx, migrations: Migrations, now: Timestamp) -> std::result::Result<(), StartError> {
    if let Backend::Postgres(conn) = tx.backend() {
        // Another process may be migrating for longer than the usual lock timeout.
        let lock = "SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(4846202401)";
        sqlx::raw_sql(lock).execute(conn).await.map_err(StoreError::from)?;
    }
    if migrations == Migrations::Never && !has_schema(tx).await? {
        return Err(StartError::Database("this database does not contain a Holdfast installation".to_owned()));
    }
    if migrations != Migrations::Never {
        execute!(
            tx,
            "CREATE TABLE IF NOT EXISTS schema_migrations (version BIGINT PRIMARY KEY, applied_at BIGINT NOT NULL)"
        )?;
    }
    let applied = find_version(tx).await?;
    if applied > newest() {
        return Err(StartError::NewerDatabase { found: applied });
    }
    let is_behind = applied > 0 && MIGRATIONS.iter().any(|migration| migration.version > applied);
    if is_behind && migrations != Migrations::Apply {
        return Err(StartError::Database(
            "the database is from an older version; run `holdfast migrate` first".to_owned(),
        ));
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > applied) {
        apply(tx, migration, now).await?;
        tracing::debug!(version = migration.version, "migrated the database");
    }
    match applied {
        0 => tracing::info!(version = newest(), "created the tables of a new installation"),
        from if from < newest() => tracing::info!(from, to = newest(), "migrated the database"),
        _ => {}
    }
    Ok(())
}

async fn apply(tx: &mut Tx, migration: &Migration, now: Timestamp) -> Result<()> {
    match tx.backend() {
        Backend::Sqlite(conn) => sqlx::raw_sql(migration.sqlite).execute(conn).await.map(drop)?,
        Backend::Postgres(conn) => sqlx::raw_sql(migration.postgres).execute(conn).await.map(drop)?,
    }
    if migration.version == SEARCH_LABELS {
        renew_search_labels(tx).await?;
    }
    execute!(
        tx,
        "INSERT INTO schema_migrations (version, applied_at) VALUES ($1, $2)",
        migration.version,
        now.as_microsecond()
    )?;
    Ok(())
}

/// The version since which labels are searched in a form that only code can compute.
const SEARCH_LABELS: i64 = 22;

async fn renew_search_labels(tx: &mut Tx) -> Result<()> {
    macro_rules! renew {
        ($($table:literal),*) => {$(
            for (id, label, known) in
                fetch_all!(tx, (i64, String, String), concat!("SELECT id, label, search_label FROM ", $table))?
            {
                let form = search_form(&label);
                if form != known {
                    execute!(tx, concat!("UPDATE ", $table, " SET search_label = $1 WHERE id = $2"), form, id)?;
                }
            }
        )*};
    }
    renew!("notification_streams", "backup_tasks", "backup_destinations", "remote_servers", "tags");
    Ok(())
}

/// The newest version of the schema.
pub(crate) fn newest() -> i64 {
    MIGRATIONS.last().map_or(0, |last| last.version)
}

/// The version of a schema that exists.
pub(crate) async fn find_version(tx: &mut Tx) -> Result<i64> {
    fetch_scalar!(tx, i64, "SELECT COALESCE(MAX(version), 0) FROM schema_migrations")
}

/// True once the first migration has run.
pub(crate) async fn has_schema(tx: &mut Tx) -> Result<bool> {
    let tables: i64 = match tx.backend() {
        Backend::Sqlite(conn) => {
            sqlx::query_scalar("SELECT COUNT(*) FROM sqlite_master WHERE name = 'data_keys'").fetch_one(conn).await?
        }
        Backend::Postgres(conn) => {
            sqlx::query_scalar("SELECT COUNT(*) FROM pg_class WHERE oid = to_regclass('data_keys')")
                .fetch_one(conn)
                .await?
        }
    };
    Ok(tables > 0)
}

#[cfg(test)]
mod tests {
    use holdfast_core::backup::server_address;
    use holdfast_core::database::DatabaseEngine;
    use holdfast_core::destination::{DestinationSpec, LocalDestination, S3Settings};
    use holdfast_core::retention::RetentionPolicy;
    use holdfast_core::schedule::{Frequency, Schedule, TimeOfDay};
    use holdfast_core::task::TaskSpec;
    use sqlx::{Connection as _, SqliteConnection};

    use super::*;
    use crate::spec;

    #[tokio::test]
    async fn older_backups_get_the_server_of_their_task() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let (before, after): (Vec<_>, Vec<_>) = MIGRATIONS.iter().partition(|migration| migration.version < 8);
        for migration in before {
            sqlx::raw_sql(migration.sqlite).execute(&mut connection).await.unwrap();
        }
        let rows = "
            PRAGMA foreign_keys = OFF;
            INSERT INTO remote_servers (id, user_id, label, search_label, host, port, username, connectivity, created_at,
                updated_at, jump_server_id)
            VALUES (1, 1, 'gate', 'gate', 'gate', 22, 'root', 'unknown', 0, 0, NULL),
                (2, 1, 'web', 'web', '10.0.0.5', 2222, 'backup', 'unknown', 0, 0, 1);
            INSERT INTO backup_tasks (id, user_id, remote_server_id, backup_destination_id, label, search_label, kind,
                excluded_paths, frequency, day_of_week, day_of_month, max_backups, store_path, created_at, updated_at,
                streams_count, tags_count)
            VALUES (1, 1, 1, 1, 'a', 'a', 'files', '', 'daily', 0, 1, 5, '/', 0, 0, 0, 0),
                (2, 1, 2, 1, 'b', 'b', 'files', '', 'daily', 0, 1, 5, '/', 0, 0, 0, 0);
            INSERT INTO backups (id, user_id, task_id, destination_id, task_label, source, content, format, object_key,
                size_bytes, sha256, plain_bytes, plain_sha256, entries, is_encrypted, verification, created_at,
                remove_attempts, deleted_at, remove_after)
            VALUES (1, 1, 1, 1, 'a', '/srv', 'files', 'archive', '1', 1, '', 1, '', 1, FALSE, 'unverified', 0, 0, NULL, NULL),
                (2, 1, 2, 1, 'b', '/srv', 'files', 'archive', '2', 1, '', 1, '', 1, FALSE, 'unverified', 0, 0, NULL, NULL),
                (3, 1, NULL, 1, 'c', '/srv', 'files', 'archive', '3', 1, '', 1, '', 1, FALSE, 'unverified', 0, 0, 8, 9);";
        sqlx::raw_sql(rows).execute(&mut connection).await.unwrap();
        for migration in after {
            sqlx::raw_sql(migration.sqlite).execute(&mut connection).await.unwrap();
        }
        let servers: Vec<String> = sqlx::query_scalar("SELECT source_server FROM backups ORDER BY id")
            .fetch_all(&mut connection)
            .await
            .unwrap();
        let behind = server_address(("backup", "10.0.0.5", 2222), Some(("root", "gate", 22)));
        assert_eq!(servers, [server_address(("root", "gate", 22), None), behind, String::new()]);
        let copies: Vec<(i64, i64, i64, String, i64, Option<i64>)> = sqlx::query_as(
            "SELECT backup_id, destination_id, position, locator, size_bytes, remove_after FROM backup_copies ORDER BY id",
        )
        .fetch_all(&mut connection)
        .await
        .unwrap();
        let copy = |backup: i64, gone: Option<i64>| (backup, 1, 0, backup.to_string(), 1, gone);
        assert_eq!(copies, [copy(1, None), copy(2, None), copy(3, Some(9))]);
    }

    /// Rows as the first release wrote them, with everything that a field could hold.
    const OLD_TASKS: &str = r#"
        INSERT INTO users (id, name, email, timezone, language, is_admin, weekly_summary_enabled, totp_last_step, created_at,
            updated_at)
        VALUES (1, 'a', 'a@example.org', 'UTC', 'en', FALSE, FALSE, 0, 0, 0);
        INSERT INTO remote_servers (id, user_id, label, search_label, host, port, username, connectivity, created_at,
            updated_at)
        VALUES (1, 1, 'web', 'web', 'web', 22, 'root', 'unknown', 0, 0);
        INSERT INTO backup_destinations (id, user_id, label, search_label, kind, s3_bucket, s3_region, s3_endpoint,
            s3_path_style, status, created_at, updated_at)
        VALUES (1, 1, 'disk', 'disk', 'local', NULL, NULL, NULL, FALSE, 'unknown', 0, 0),
            (2, 1, 'aws', 'aws', 's3', 'a.b', 'eu-west-1', NULL, FALSE, 'unknown', 0, 0),
            (3, 1, 'own', 'own', 'custom_s3', 'A_b', 'us-east-1', 'https://s3.example.org', TRUE, 'unknown', 0, 0);
        INSERT INTO backup_tasks (id, user_id, remote_server_id, backup_destination_id, label, search_label, kind,
            source_path, database_name, database_engine, excluded_tables, excluded_paths, one_file_system, frequency,
            time_to_run_at, day_of_week, day_of_month, custom_cron, max_backups, appended_filename, store_path, created_at,
            updated_at, streams_count, tags_count)
        VALUES
            (1, 1, 1, 1, 'a', 'a', 'files', '/srv/ü "x" \\n', NULL, NULL, NULL, '*.log
a \\n "b"
ü/c', TRUE, 'weekly', '03:07', 6, 28, NULL, 0, 'web', 'x/y', 0, 0, 0, 0),
            (2, 1, 1, 1, 'b', 'b', 'files', NULL, NULL, NULL, NULL, '', FALSE, 'hourly', NULL, 0, 1, NULL, 5, NULL, '/',
                0, 0, 0, 0),
            (3, 1, 1, 1, 'c', 'c', 'database', '/left', 'my shop', 'mysql', 'logs,sess\\ions', '', FALSE, 'daily', '23:59',
                0, 1, '*/5 * * * *', 1000, NULL, '/', 0, 0, 0, 0),
            (4, 1, 1, 1, 'd', 'd', 'database', NULL, NULL, NULL, NULL, '', FALSE, 'custom', NULL, 3, 9, '0 4 * * *', 5, NULL,
                '/', 0, 0, 0, 0),
            (5, 1, 1, 1, 'e', 'e', 'database', NULL, NULL, 'oracle', NULL, '', FALSE, 'daily', 'xx', 7, 31,
                '0 0 , * MON', 5000, NULL, '/', 0, 0, 0, 0);"#;

    fn assert_tasks_came_over(rows: &[(String, String, String)]) {
        let specs: Vec<TaskSpec> = rows.iter().map(|(_, _, spec)| spec::task(spec).expect(spec)).collect();
        let columns: Vec<(&str, &str)> = rows.iter().map(|(kind, frequency, _)| (&**kind, &**frequency)).collect();
        assert_eq!(
            columns,
            [
                ("files", "weekly"),
                ("files", "hourly"),
                ("database", "custom"),
                ("database", "custom"),
                ("database", "custom")
            ]
        );
        let files = specs[0].source.files().unwrap();
        assert_eq!(files.path, "/srv/ü \"x\" \\\\n");
        assert_eq!(files.excluded, ["*.log", "a \\\\n \"b\"", "ü/c"]);
        assert!(files.one_file_system);
        let Schedule { frequency, time, day_of_week, day_of_month, cron, zone, spread, window } = &specs[0].schedule;
        assert_eq!((zone, spread, window), (&None, &None, &None));
        assert_eq!((*frequency, *time, cron), (Frequency::Weekly, TimeOfDay::parse("03:07"), &None));
        assert_eq!((*day_of_week, *day_of_month), (6, 28));
        let storage = &specs[0].storage;
        assert_eq!((storage.retention, storage.path.as_str()), (RetentionPolicy::All, "x/y"));
        assert_eq!(storage.appended_filename.as_deref(), Some("web"));
        assert!(specs[1].source.files().unwrap().excluded.is_empty(), "{:?}", specs[1]);
        assert_eq!(specs[2].source.engine(), Some(DatabaseEngine::Mysql));
        let database = specs[2].source.database().unwrap();
        assert_eq!((database.name.as_deref(), database.path.as_deref()), (Some("my shop"), Some("/left")));
        assert_eq!(database.excluded_tables, ["logs", "sess\\\\ions"]);
        assert_eq!(specs[2].schedule.frequency, Frequency::Daily, "the frequency that the expression overrides");
        assert_eq!(specs[2].schedule.cron.as_ref().unwrap().as_str(), "*/5 * * * *");
        assert_eq!((specs[3].source.engine(), specs[3].schedule.frequency), (None, Frequency::Custom));
        // Values that validation would refuse today are still read, but not accepted in an import.
        assert_eq!((specs[4].source.engine(), specs[4].schedule.time), (None, None));
        assert_eq!((specs[4].schedule.day_of_month, specs[4].storage.retention.number()), (31, 5000));
        assert_eq!(specs[4].schedule.cron.as_ref().unwrap().as_str(), "0 0 , * MON");
        let sound: Vec<bool> = rows.iter().map(|(_, _, spec)| spec::sound_task(spec).is_some()).collect();
        assert_eq!(sound, [true, true, true, true, false]);
    }

    fn assert_destinations_came_over(rows: &[(String,)]) {
        let specs: Vec<DestinationSpec> = rows.iter().map(|(spec,)| spec::destination(spec).expect(spec)).collect();
        let s3 = |bucket: &str, region: &str, endpoint: Option<&str>| S3Settings {
            bucket: bucket.to_owned(),
            region: region.to_owned(),
            endpoint: endpoint.map(str::to_owned),
            path_style: endpoint.is_some(),
        };
        assert_eq!(
            specs,
            [
                DestinationSpec::Local(LocalDestination),
                DestinationSpec::S3(s3("a.b", "eu-west-1", None)),
                DestinationSpec::CustomS3(s3("A_b", "us-east-1", Some("https://s3.example.org"))),
            ]
        );
    }

    #[tokio::test]
    async fn tasks_and_destinations_become_specifications() {
        const DESTINATIONS: &str = "SELECT spec FROM backup_destinations ORDER BY id";
        const SELECT: &str = "SELECT kind, frequency, spec FROM backup_tasks ORDER BY id";
        let (before, after): (Vec<_>, Vec<_>) = MIGRATIONS.iter().partition(|migration| migration.version < 15);
        let mut sqlite = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        for sql in before.iter().map(|step| step.sqlite).chain([OLD_TASKS]).chain(after.iter().map(|step| step.sqlite))
        {
            sqlx::raw_sql(sql).execute(&mut sqlite).await.unwrap();
        }
        assert_tasks_came_over(&sqlx::query_as(SELECT).fetch_all(&mut sqlite).await.unwrap());
        assert_destinations_came_over(&sqlx::query_as(DESTINATIONS).fetch_all(&mut sqlite).await.unwrap());

        let url = holdfast_testkit::PostgresServer::shared().create_database().await;
        let mut postgres = sqlx::PgConnection::connect(&url).await.unwrap();
        let steps = before.iter().map(|step| step.postgres).chain([OLD_TASKS]);
        for sql in steps.chain(after.iter().map(|step| step.postgres)) {
            sqlx::raw_sql(sql).execute(&mut postgres).await.unwrap();
        }
        assert_tasks_came_over(&sqlx::query_as(SELECT).fetch_all(&mut postgres).await.unwrap());
        assert_destinations_came_over(&sqlx::query_as(DESTINATIONS).fetch_all(&mut postgres).await.unwrap());
    }
}
