use std::time::Duration;

use holdfast_testkit::{Engine, Settings, TestApp, free_port, on_both_engines};
use serde_json::{Value, json};

use crate::bench::{Bench, assert_failed, assert_successful, output};

/// A task that may start between ten and six at night.
async fn nightly(bench: &Bench, changes: Value) -> i64 {
    let mut body = json!({"window_start": "22:00", "window_end": "06:00"});
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    bench.task(body).await
}

async fn count_logs(bench: &Bench, task: i64) -> u64 {
    let logs = bench.user.client.get(&format!("/api/backup-tasks/{task}/logs")).await.expect(200);
    logs["meta"]["total"].as_u64().unwrap()
}

async fn at(bench: &Bench, time: &str) {
    bench.app.clock.set(time);
    bench.app.run_until_idle().await;
}

on_both_engines! {
    async fn scheduled_runs_wait_for_the_window_and_manual_ones_do_not(app: TestApp) {
        let bench = Bench::new(app).await;
        let task = nightly(&bench, json!({"frequency": "hourly", "time_to_run_at": "00:30"})).await;
        let upcoming = bench.user.client.get("/api/backup-tasks/upcoming").await.data(200);
        assert_eq!(upcoming[0]["next_run"], "2025-03-03T22:00:00.000000Z");
        at(&bench, "2025-03-03T12:31:00Z").await;
        assert_eq!(count_logs(&bench, task).await, 0, "the slots of the day wait");
        assert_successful(&bench.run(task).await);
        assert_eq!(bench.latest_log(task).await["trigger"], "manual");
        at(&bench, "2025-03-03T22:00:01Z").await;
        assert_eq!(count_logs(&bench, task).await, 2, "one run for all that waited");
        let log = bench.latest_log(task).await;
        assert_eq!((&log["trigger"], &log["status"]), (&json!("schedule"), &json!("successful")));
        at(&bench, "2025-03-03T22:30:01Z").await;
        assert_eq!(count_logs(&bench, task).await, 3);
    }

    async fn a_run_that_cannot_start_before_the_window_closes_waits_for_the_next(app: TestApp) {
        let bench = Bench::new(app).await;
        let task = nightly(&bench, json!({"time_to_run_at": "05:59"})).await;
        bench.app.clock.set("2025-03-04T05:59:30Z");
        // Queued, but all workers are busy.
        assert_eq!(bench.app.worker().tick().await.unwrap(), 1);
        at(&bench, "2025-03-04T06:00:30Z").await;
        let put_off = bench.latest_log(task).await;
        assert_eq!((&put_off["status"], &put_off["error_code"]), (&json!("cancelled"), &json!("window_closed")));
        assert!(output(&put_off).contains("when the window of this task opens, at 2025-03-04T22:00:00"), "{put_off}");
        at(&bench, "2025-03-04T21:59:00Z").await;
        assert_eq!(count_logs(&bench, task).await, 1);
        at(&bench, "2025-03-04T22:00:01Z").await;
        let log = bench.latest_log(task).await;
        assert_successful(&log);
        assert_eq!(count_logs(&bench, task).await, 2);
    }

    async fn a_slot_found_after_the_window_has_closed_runs_when_it_opens(app: TestApp) {
        let bench = Bench::new(app).await;
        // 2025-03-04 is a Tuesday.
        let task = nightly(&bench, json!({"frequency": "weekly", "day_of_week": 2, "time_to_run_at": "05:00"})).await;
        at(&bench, "2025-03-04T09:00:00Z").await;
        assert_eq!(count_logs(&bench, task).await, 0, "it is neither run nor missed");
        at(&bench, "2025-03-04T22:00:01Z").await;
        let log = bench.latest_log(task).await;
        assert_eq!((&log["trigger"], &log["status"]), (&json!("catch-up"), &json!("successful")));
        let upcoming = bench.user.client.get("/api/backup-tasks/upcoming").await.data(200);
        assert_eq!(upcoming[0]["next_run"], "2025-03-11T05:00:00.000000Z");
    }
}

async fn a_retry_waits_for_the_window(engine: Engine) {
    let mut settings = Settings::default();
    settings.work.retry_after = Duration::from_secs(30);
    let bench = Bench::new(TestApp::start_with(engine, settings).await).await;
    let gone = json!({"port": free_port()});
    bench.user.client.put(&format!("/api/remote-servers/{}", bench.server), gone).await.expect(200);
    let task = nightly(&bench, json!({"time_to_run_at": "05:59"})).await;
    at(&bench, "2025-03-04T05:59:50Z").await;
    let failed = bench.latest_log(task).await;
    assert_failed(&failed, "connect");
    assert!(
        output(&failed).contains("retried once when the window of this task opens, at 2025-03-04T22:00"),
        "{failed}"
    );
    at(&bench, "2025-03-04T06:01:00Z").await;
    assert_eq!(count_logs(&bench, task).await, 1);
    at(&bench, "2025-03-04T22:00:01Z").await;
    assert_eq!(count_logs(&bench, task).await, 2);
    // A retry of a run that somebody requested does not wait.
    bench.app.clock.set("2025-03-05T12:00:00Z");
    let other = nightly(&bench, json!({"time_to_run_at": "05:59"})).await;
    assert_failed(&bench.run(other).await, "connect");
    at(&bench, "2025-03-05T12:00:31Z").await;
    assert_eq!(count_logs(&bench, other).await, 2);
}

#[tokio::test]
async fn a_retry_waits_for_the_window_sqlite() {
    a_retry_waits_for_the_window(Engine::Sqlite).await;
}

#[tokio::test]
async fn a_retry_waits_for_the_window_postgres() {
    a_retry_waits_for_the_window(Engine::Postgres).await;
}
