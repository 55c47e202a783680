use holdfast_core::clock::from_micros;
use holdfast_core::input::{Errors, Input};
use holdfast_core::task::TaskDraft;
use holdfast_store::{tasks, upcoming};
use holdfast_testkit::{TestApp, on_both_engines};
use sqlx::{Connection as _, PgConnection, Row as _, SqliteConnection};

const TASKS: i64 = 10_000;

fn draft(server: i64, destination: i64) -> TaskDraft {
    let input = Input::default()
        .with("remote_server_id", server)
        .with("backup_destination_id", destination)
        .with("label", "one of many")
        .with("type", "files")
        .with("source_path", "/srv")
        .with("frequency", "daily")
        .with("time_to_run_at", "03:00");
    TaskDraft::check(&mut Errors::default(), &input, None, false, from_micros(0)).unwrap()
}

/// The query plan of the statement that lists the next runs.
async fn plan(app: &TestApp) -> String {
    const SELECT: &str = "SELECT t.id, t.label FROM backup_tasks t WHERE t.user_id = 1 AND t.next_run_at IS NOT NULL
        ORDER BY t.next_run_at, t.id LIMIT 20";
    if app.app.store.is_sqlite() {
        let mut connection = SqliteConnection::connect(&app.options.url).await.unwrap();
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {SELECT}"));
        let rows = sqlx::query(explain).fetch_all(&mut connection).await.unwrap();
        rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("\n")
    } else {
        let mut connection = PgConnection::connect(&app.options.url).await.unwrap();
        sqlx::query("ANALYZE backup_tasks").execute(&mut connection).await.unwrap();
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN {SELECT}"));
        let rows = sqlx::query(explain).fetch_all(&mut connection).await.unwrap();
        rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
    }
}

on_both_engines! {
    async fn ten_thousand_tasks_of_one_user_are_read_from_the_index(app: TestApp) {
        let user = app.user("ada").await;
        let draft = draft(user.server().await, user.destination().await);
        let start = app.app.now();
        let other = app.user("eve").await;
        let others = self::draft(other.server().await, other.destination().await);
        let mut tx = app.app.store.begin().await.unwrap();
        // Another user's tasks are due sooner: an index without the owner would have to skip all of them.
        for number in 0..TASKS {
            let due = from_micros(start.as_microsecond() - number - 1);
            tasks::insert(&mut tx, other.id, &others, Some(due), start).await.unwrap();
        }
        for number in 0..TASKS {
            // Later tasks are due sooner, so that the order of insertion is not the expected order.
            let due = from_micros(start.as_microsecond() + (TASKS - number) * 1_000_000);
            tasks::insert(&mut tx, user.id, &draft, Some(due), start).await.unwrap();
        }
        tx.commit().await.unwrap();
        let rows = upcoming::list(&mut app.app.store.read().await.unwrap(), user.id, 100).await.unwrap();
        assert_eq!(rows.len(), 100);
        let due: Vec<i64> = rows.iter().map(|row| row.next_run_at.0.as_microsecond() - start.as_microsecond()).collect();
        assert_eq!(due, (1..=100).map(|second| second * 1_000_000).collect::<Vec<_>>());
        let shown = user.client.get("/api/backup-tasks/upcoming").await.data(200);
        assert_eq!(shown.as_array().unwrap().len(), 20);
        let plan = plan(&app).await;
        assert!(plan.contains("backup_tasks_upcoming") && !plan.to_uppercase().contains("SORT"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
}
