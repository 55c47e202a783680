use std::time::Duration;

use holdfast_core::queue::ConcurrencyLimits;
use holdfast_testkit::{Engine, Receiver, Settings, SshServer, TestApp, TestUser, on_both_engines};
use serde_json::json;

use crate::bench::Bench;
use crate::notices::{stream, titles};
use crate::queue::claim;

/// Enough for many workers' runs at once, and for the messages to be a nuisance.
const MANY: usize = 300;

/// Tasks with a server each, on which nothing listens.
async fn make_tasks(user: &TestUser, stream: i64, count: usize) -> Vec<i64> {
    let destination = user.destination().await;
    let mut tasks = Vec::new();
    for number in 0..count {
        let body = json!({
            "remote_server_id": user.server().await,
            "backup_destination_id": destination,
            "label": format!("task {number}"),
            "type": "files",
            "source_path": "/var/www",
            "frequency": "daily",
            "time_to_run_at": "03:00",
            "notification_stream_ids": [stream],
        });
        tasks.push(user.client.post("/api/backup-tasks", body).await.id(201));
    }
    tasks
}

async fn hundreds_of_servers_go_away(engine: Engine) {
    let mut settings = Settings::default();
    settings.work.retry_after = Duration::from_secs(60);
    let app = TestApp::start_with(engine, settings).await;
    let user = app.admin("ada").await;
    let hook = Receiver::start().await;
    let stream = stream(&user, &hook, false, true).await;
    let tasks = make_tasks(&user, stream, MANY).await;
    let worker = app.worker();
    let tidy = async || {
        worker.tidy().await.unwrap();
        worker.report_overdue().await.unwrap();
        worker.deliver_due().await.unwrap();
    };

    app.clock.set("2025-03-04T03:00:01Z");
    app.run_until_idle().await;
    let told = hook.take();
    assert_eq!(told.len(), 1, "although all will be retried");
    let text = told[0].json().to_string();
    assert!(text.contains("Many backups of several servers fail") && text.contains("3 tasks have failed"), "{text}");
    app.clock.advance_secs(61);
    app.run_until_idle().await;
    tidy().await;
    assert!(hook.received().is_empty(), "the second attempts are no news");
    app.clock.advance_secs(3600);
    tidy().await;
    let told = hook.take();
    assert_eq!(told.len(), 1);
    let text = told[0].json().to_string();
    assert!(text.contains("More backups of several servers fail") && text.contains("300 tasks have failed"), "{text}");
    for time in ["2025-03-04T04:30:00Z", "2025-03-04T15:00:01Z", "2025-03-05T03:00:01Z", "2025-03-05T15:00:01Z"] {
        app.clock.set(time);
        app.run_until_idle().await;
        tidy().await;
        assert!(hook.received().is_empty(), "neither overdue nor a reminder at {time}");
    }
    let (last, others) = tasks.split_last().unwrap();
    for task in others {
        user.client.act(&format!("/api/backup-tasks/{task}/pause")).await.expect(200);
    }
    tidy().await;
    assert!(hook.received().is_empty(), "one is left");
    user.client.delete(&format!("/api/backup-tasks/{last}")).await.expect(200);
    tidy().await;
    assert_eq!(titles(&hook), ["Backups of several servers no longer fail"]);
    tidy().await;
    assert!(hook.received().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_servers_that_go_away_are_one_message_on_sqlite() {
    hundreds_of_servers_go_away(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_servers_that_go_away_are_one_message_on_postgres() {
    hundreds_of_servers_go_away(Engine::Postgres).await;
}

async fn the_service_was_down(engine: Engine) {
    let app = TestApp::start(engine).await;
    let (user, other) = (app.admin("ada").await, app.admin("eve").await);
    let (hook, theirs) = (Receiver::start().await, Receiver::start().await);
    let stream_id = stream(&user, &hook, false, true).await;
    let mut tasks = make_tasks(&user, stream_id, MANY).await;
    let few = stream(&other, &theirs, false, true).await;
    for _ in 0..2 {
        let mut body = other.task_body().await;
        body["notification_stream_ids"] = json!([few]);
        other.client.post("/api/backup-tasks", body).await.id(201);
    }
    let worker = app.worker();
    let tidy = async || {
        worker.tidy().await.unwrap();
        worker.report_overdue().await.unwrap();
        worker.deliver_due().await.unwrap();
    };

    // Three slots of each passed.
    app.clock.set("2025-03-07T12:00:00Z");
    while worker.tick().await.unwrap() > 0 {}
    tidy().await;
    assert_eq!(titles(&hook), ["Many backups were missed"]);
    assert_eq!(titles(&theirs), ["Backup missed: web files"; 2], "two tasks are no incident");
    for hours in [1, 5, 12] {
        app.clock.advance_secs(hours * 3600);
        tidy().await;
        assert!(hook.received().is_empty(), "neither overdue nor a reminder");
    }
    let last = tasks.pop().unwrap();
    for task in tasks {
        user.client.act(&format!("/api/backup-tasks/{task}/pause")).await.expect(200);
    }
    tidy().await;
    assert!(hook.received().is_empty(), "one is left");
    user.client.act(&format!("/api/backup-tasks/{last}/pause")).await.expect(200);
    tidy().await;
    assert_eq!(titles(&hook), ["Backups that were missed no longer fail"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_tasks_that_miss_their_slots_are_one_message_on_sqlite() {
    the_service_was_down(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_tasks_that_miss_their_slots_are_one_message_on_postgres() {
    the_service_was_down(Engine::Postgres).await;
}

async fn a_worker_was_lost(engine: Engine) {
    const RUNS: usize = 50;
    let mut settings = Settings::default();
    settings.work.retry_after = Duration::from_secs(600);
    let app = TestApp::start_with(engine, settings).await;
    let user = app.admin("ada").await;
    let hook = Receiver::start().await;
    let stream = stream(&user, &hook, false, true).await;
    let tasks = make_tasks(&user, stream, RUNS).await;
    app.clock.set("2025-03-04T03:00:01Z");
    assert_eq!(app.worker().tick().await.unwrap(), RUNS);
    let limits = ConcurrencyLimits { per_server: RUNS, per_destination: RUNS, per_user: RUNS, checks_per_user: 1 };
    assert_eq!(claim(&app, RUNS, limits).await.len(), RUNS);
    app.pass_secs(61).await;
    assert_eq!(titles(&hook), ["Many backups were interrupted"]);
    let (last, others) = tasks.split_last().unwrap();
    for task in others {
        user.client.act(&format!("/api/backup-tasks/{task}/pause")).await.expect(200);
    }
    app.worker().tidy().await.unwrap();
    app.worker().deliver_due().await.unwrap();
    assert!(hook.received().is_empty(), "one is left");
    user.client.act(&format!("/api/backup-tasks/{last}/pause")).await.expect(200);
    app.worker().tidy().await.unwrap();
    app.worker().deliver_due().await.unwrap();
    assert_eq!(titles(&hook), ["Backups that were interrupted no longer fail"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_runs_that_are_lost_with_one_worker_are_one_message_on_sqlite() {
    a_worker_was_lost(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_runs_that_are_lost_with_one_worker_are_one_message_on_postgres() {
    a_worker_was_lost(Engine::Postgres).await;
}

/// A server with tasks of these streams, which is away.
async fn away(app: TestApp, streams: &[&[i64]], user: TestUser) -> (Bench, Vec<i64>) {
    let bench = Bench::of(app, SshServer::start(), user).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let mut tasks = Vec::new();
    for streams in streams {
        tasks.push(bench.task(json!({"notification_stream_ids": streams})).await);
    }
    move_server(&bench, 1).await;
    (bench, tasks)
}

async fn move_server(bench: &Bench, port: u16) {
    let path = format!("/api/remote-servers/{}", bench.server);
    bench.user.client.put(&path, json!({"port": port})).await.expect(200);
}

on_both_engines! {
    async fn a_server_that_goes_away_and_comes_back_is_two_messages(app: TestApp) {
        let user = app.admin("ada").await;
        let (first, second) = (Receiver::start().await, Receiver::start().await);
        let (ours, theirs) = (stream(&user, &first, true, true).await, stream(&user, &second, false, true).await);
        let (bench, tasks) = away(app, &[&[ours], &[ours], &[ours], &[theirs]], user).await;
        bench.run(tasks[0]).await;
        bench.run(tasks[1]).await;
        assert_eq!(titles(&first), ["Backup failed: Web files", "Backup failed: Web files"]);
        bench.run(tasks[2]).await;
        assert_eq!(titles(&first), ["Many backups of web fail"]);
        bench.run(tasks[0]).await;
        assert!(first.received().is_empty() && second.received().is_empty());
        bench.run(tasks[3]).await;
        assert_eq!(titles(&second), ["Many backups of web fail"], "its stream did not know");
        assert!(first.received().is_empty());

        move_server(&bench, bench.ssh.port()).await;
        for task in &tasks[..3] {
            bench.back_up(*task).await;
        }
        assert_eq!(titles(&first), ["Backup done: Web files"; 3], "as every success, and not as a recovery");
        bench.back_up(tasks[3]).await;
        for hook in [&first, &second] {
            assert_eq!(titles(hook), ["Backups of web no longer fail"]);
        }
        move_server(&bench, 1).await;
        bench.app.clock.advance_secs(3600);
        bench.run(tasks[3]).await;
        assert_eq!(titles(&second), ["Backup failed: Web files"], "a new failure of one task");
    }

    async fn a_task_that_fails_for_another_reason_is_reported_alone(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        let ours = stream(&user, &hook, false, true).await;
        let (bench, tasks) = away(app, &[&[ours], &[ours], &[ours]], user).await;
        for task in &tasks {
            bench.run(*task).await;
        }
        assert_eq!(hook.take().len(), 3);
        move_server(&bench, bench.ssh.port()).await;
        let path = format!("/api/backup-tasks/{}", tasks[0]);
        bench.user.client.put(&path, json!({"source_path": "/nowhere", "label": "Moved"})).await.expect(200);
        bench.run(tasks[0]).await;
        assert_eq!(titles(&hook), ["Backup failed: Moved"]);
        bench.back_up(tasks[1]).await;
        assert!(hook.received().is_empty());
        bench.back_up(tasks[2]).await;
        assert_eq!(titles(&hook), ["Backups of web no longer fail"], "this is over, whatever else is wrong");
    }

    async fn one_server_that_turns_out_to_be_several_is_reported_as_such(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        let ours = stream(&user, &hook, false, true).await;
        let mut body = user.task_body().await;
        body["notification_stream_ids"] = json!([ours]);
        let mut tasks = Vec::new();
        for _ in 0..3 {
            tasks.push(user.client.post("/api/backup-tasks", body.clone()).await.id(201));
        }
        body["remote_server_id"] = json!(user.server().await);
        tasks.push(user.client.post("/api/backup-tasks", body).await.id(201));
        for task in &tasks {
            user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
            app.run_until_idle().await;
        }
        let told = titles(&hook);
        assert_eq!(told[2..], ["Many backups of web-1 fail", "Many backups of several servers fail"]);
        for task in &tasks {
            user.client.act(&format!("/api/backup-tasks/{task}/pause")).await.expect(200);
        }
        app.worker().tidy().await.unwrap();
        app.worker().deliver_due().await.unwrap();
        assert_eq!(titles(&hook), ["Backups of several servers no longer fail"]);
    }
}
