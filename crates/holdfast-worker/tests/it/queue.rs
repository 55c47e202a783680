use std::time::Duration;

use holdfast_core::Timestamp;
use holdfast_core::content::Content;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{BackupId, DestinationId, RunId, TaskId};
use holdfast_core::queue::{ConcurrencyLimits, LongRunCapacity};
use holdfast_core::run::{RunStatus, RunSubject, Trigger};
use holdfast_store::backups::NewBackup;
use holdfast_store::copies::NewCopy;
use holdfast_store::queue::{self, Capacity};
use holdfast_store::restores::WriteTarget;
use holdfast_store::runs::{self, NewRun, RunRow};
use holdfast_store::{DbTime, audit, due, notices, restores, tasks, users, workers};
use holdfast_testkit::{Engine, FaultProxy, Receiver, Settings, SshServer, TestApp, TestUser, on_both_engines};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, assert_failed};
use crate::faults::wait_for;
use crate::notices::stream;

const PLENTY: ConcurrencyLimits =
    ConcurrencyLimits { per_server: 100, per_destination: 100, per_user: 100, checks_per_user: 100 };

/// Claims runs like a worker in another process, without working on them.
pub async fn claim(app: &TestApp, room: usize, limits: ConcurrencyLimits) -> Vec<RunRow> {
    let mut tx = app.app.store.begin().await.unwrap();
    let now = app.app.now();
    let room = Capacity { long: LongRunCapacity { free: room, reserved: 0 }, short: room };
    let claimed = queue::claim(&mut tx, "elsewhere", room, limits, now, now).await.unwrap();
    tx.commit().await.unwrap();
    claimed
}

async fn end(app: &TestApp, run: &RunRow, status: RunStatus) {
    let mut tx = app.app.store.begin().await.unwrap();
    assert!(runs::finish(&mut tx, run.id, run.lease_epoch, status, None, app.app.now()).await.unwrap());
    tx.commit().await.unwrap();
}

async fn logs(user: &TestUser, task: i64) -> Vec<Value> {
    let logs = user.client.get(&format!("/api/backup-tasks/{task}/logs?per_page=100")).await.expect(200);
    logs["data"].as_array().unwrap().clone()
}

async fn run(user: &TestUser, task: i64) {
    user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
}

/// An app with retries after half a minute.
async fn retrying(engine: Engine) -> TestApp {
    let mut settings = Settings::default();
    settings.work.retry_after = Duration::from_secs(30);
    TestApp::start_with(engine, settings).await
}

/// Requests and claims a restore, which begins to write below `folder`, if given.
async fn begin_restore(bench: &Bench, backup: &Value, changes: Value, folder: Option<&str>) -> RunRow {
    let mut body = json!({"remote_server_id": bench.server, "overwrite": true});
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    bench.ask_restore(backup, body).await.expect(202);
    let run = claim(&bench.app, 1, PLENTY).await.remove(0);
    if folder.is_some() {
        let mut tx = bench.app.app.store.begin().await.unwrap();
        let (id, now) = (run.id, bench.app.app.now());
        let target = WriteTarget { folder, ..WriteTarget::default() };
        assert!(restores::begin_writing(&mut tx, id, run.lease_epoch, target, now).await.unwrap());
        assert!(!restores::begin_writing(&mut tx, id, run.lease_epoch + 1, target, now).await.unwrap());
        tx.commit().await.unwrap();
    }
    run
}

async fn end_early(bench: &Bench, run: &RunRow, status: RunStatus, code: FailureCode) {
    let mut tx = bench.app.app.store.begin().await.unwrap();
    let (id, now) = (run.id, bench.app.app.now());
    assert!(runs::finish(&mut tx, id, run.lease_epoch, status, Some(code), now).await.unwrap());
    tx.commit().await.unwrap();
}

async fn newest(bench: &Bench, task: i64) -> Value {
    bench.backups(task).await.into_iter().max_by_key(|backup| backup["id"].as_i64()).unwrap()
}

/// Makes the next backup of the task; returns whether removal is on hold then.
pub async fn is_held_later(bench: &Bench, task: i64) -> bool {
    bench.app.clock.advance_secs(60);
    bench.back_up(task).await;
    bench.app.run_until_idle().await;
    let shown = bench.user.client.get(&format!("/api/backup-tasks/{task}")).await.data(200);
    shown["protection"]["retention_held"].as_bool().unwrap()
}

on_both_engines! {
    async fn a_slot_that_meets_a_live_run_is_shown_as_skipped(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.task().await;
        run(&user, task).await;
        let live = claim(&app, 1, PLENTY).await.remove(0);
        app.clock.set("2025-03-04T03:00:01Z");
        app.run_until_idle().await;
        let shown = logs(&user, task).await;
        assert_eq!(shown.len(), 2);
        assert_eq!((&shown[1]["status"], &shown[1]["error_code"]), (&json!("cancelled"), &json!("skipped")));
        assert!(shown[1]["output"].as_str().unwrap().contains("still in progress"));
        let latest = user.client.get(&format!("/api/backup-tasks/{task}/latest-log")).await.data(200);
        assert_eq!(latest["id"], json!(live.id.0), "the run, and not the slot that it kept from running");
        end(&app, &live, RunStatus::Successful).await;
        app.clock.set("2025-03-05T03:00:01Z");
        app.run_until_idle().await;
        assert_eq!(logs(&user, task).await.len(), 3, "the next slot runs again");
    }

    async fn schedules_go_on_after_a_clock_that_ran_ahead_is_set_right(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.task().await;
        let body = json!({"label": "by cron", "custom_cron": "30 4 * * *"});
        let mut by_cron = user.task_body().await;
        by_cron.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let by_cron = user.client.post("/api/backup-tasks", by_cron).await.id(201);
        let worker = app.worker();
        let next = async || {
            let upcoming = user.client.get("/api/backup-tasks/upcoming").await.data(200);
            let of = |task: i64| {
                let (task, mut rows) = (task.to_string(), upcoming.as_array().unwrap().iter());
                rows.find(|row| row["backup_task_id"].as_str() == Some(&*task)).unwrap()["next_run"].clone()
            };
            (of(task), of(by_cron))
        };
        let started = app.app.now();
        worker.tidy().await.unwrap();
        let right = next().await;
        assert_eq!(right, (json!("2025-03-04T03:00:00.000000Z"), json!("2025-03-04T04:30:00.000000Z")));
        for days in [1, 5, 400] {
            app.clock.advance_secs(days * 86_400);
            app.run_until_idle().await;
            worker.tidy().await.unwrap();
            assert_ne!(next().await, right);
            app.clock.set(&started.to_string());
            app.run_until_idle().await;
            worker.tidy().await.unwrap();
            assert_eq!(next().await, right, "after {days} days");
        }
        // Slots that were run or recorded as missed while the clock was wrong run when they are due.
        let before = logs(&user, task).await.len();
        for day in 4..=9 {
            app.clock.set(&format!("2025-03-{day:02}T03:00:01Z"));
            app.run_until_idle().await;
            worker.tidy().await.unwrap();
        }
        let after = logs(&user, task).await;
        let run = |log: &Value| log["trigger"] == "schedule" && log["error_code"] != "missed" && log["error_code"] != "skipped";
        assert_eq!(after[before..].iter().filter(|log| run(log)).count(), 6, "{after:?}");
        assert_eq!(next().await.0, "2025-03-10T03:00:00.000000Z");
    }

    async fn an_overdue_task_is_reported_after_a_fast_clock_is_corrected(app: TestApp) {
        let user = app.user("ada").await;
        let stream = user.stream().await;
        let mut body = user.task_body().await;
        body["notification_stream_ids"] = json!([stream]);
        let task = TaskId(user.client.post("/api/backup-tasks", body).await.id(201));
        let started = app.app.now();
        let worker = app.worker();
        // A success while the clock is a year ahead.
        app.clock.advance_secs(365 * 86_400);
        app.run_until_idle().await;
        let mut tx = app.app.store.begin().await.unwrap();
        let schedule = tasks::find(&mut tx, task).await.unwrap().unwrap().spec.schedule;
        let late = holdfast_core::notice::overdue_at(&schedule, app.app.now());
        notices::note_success(&mut tx, task, late).await.unwrap();
        tx.commit().await.unwrap();
        app.clock.set(&started.to_string());
        worker.tidy().await.unwrap();
        // No worker runs until the task is overdue.
        app.clock.set("2025-03-04T15:00:01Z");
        let waiting = queue::find_waiting(&mut app.app.store.read().await.unwrap(), app.app.now()).await.unwrap();
        assert!(waiting.has_overdue, "half a period after its slot");
    }

    async fn waits_are_corrected_after_a_fast_clock(app: TestApp) {
        let user = app.user("ada").await;
        let task = TaskId(user.task().await);
        let (worker, started) = (app.worker(), app.app.now());
        app.clock.advance_secs(365 * 86_400);
        let weekly = json!({"weekly_summary_enabled": true});
        user.client.put("/api/notification-settings", weekly).await.expect(200);
        let mut tx = app.app.store.begin().await.unwrap();
        assert!(due::plan_retry(&mut tx, task, RunId(1), app.app.now()).await.unwrap());
        tx.commit().await.unwrap();
        app.clock.set(&started.to_string());
        worker.tidy().await.unwrap();
        let mut tx = app.app.store.read().await.unwrap();
        assert_eq!(due::list_retries(&mut tx, app.app.now(), 10).await.unwrap().len(), 1);
        // The next Monday at eight.
        let monday: Timestamp = "2025-03-10T08:00:00Z".parse().unwrap();
        assert_eq!(users::list_summaries(&mut tx, monday, 10).await.unwrap().len(), 1);
    }

    async fn workers_with_different_clocks_do_not_undo_each_others_corrections(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.task().await;
        let (worker, started) = (app.worker(), app.app.now());
        let next = async || user.client.get("/api/backup-tasks/upcoming").await.data(200)[0]["next_run"].clone();
        app.clock.advance_secs(30 * 86_400);
        app.run_until_idle().await;
        let (far, ahead) = (next().await, app.app.now());
        app.clock.set(&started.to_string());
        // Another worker keeps sending heartbeats that are a month ahead.
        for beat in 0..5 {
            let mut tx = app.app.store.begin().await.unwrap();
            let seen = Timestamp::from_second(ahead.as_second() + beat * 60).unwrap();
            workers::upsert(&mut tx, "elsewhere", "1", ahead, seen).await.unwrap();
            tx.commit().await.unwrap();
            worker.tidy().await.unwrap();
            assert_eq!(next().await, far);
        }
        // It dies; its last heartbeat does not count for long.
        for _ in 0..3 {
            app.clock.advance_secs(60);
            worker.tidy().await.unwrap();
        }
        assert_eq!(next().await, "2025-03-04T03:00:00.000000Z");
        let rows = workers::list(&mut app.app.store.read().await.unwrap()).await.unwrap();
        assert!(rows.iter().all(|row| row.name != "elsewhere"), "{rows:?} {task}");
    }

    async fn slots_without_a_worker_are_shown_as_missed(app: TestApp) {
        let user = app.user("ada").await;
        let mut body = user.task_body().await;
        body["frequency"] = json!("hourly");
        body["time_to_run_at"] = json!("00:30");
        let task = user.client.post("/api/backup-tasks", body).await.id(201);
        app.clock.set("2025-03-03T15:40:00Z");
        app.run_until_idle().await;
        let shown = logs(&user, task).await;
        let missed: Vec<&Value> = shown.iter().filter(|log| log["error_code"] == "missed").collect();
        assert_eq!(missed.len(), 5, "10:30 to 14:30");
        assert!(missed.iter().all(|log| log["status"] == "failed"));
        let figure = async || holdfast_app::health::render_figures(&app.app).await;
        assert!(figure().await.contains("\nholdfast_slots_missed_last_day 5\n"), "{}", figure().await);
        let ran: Vec<&Value> = shown.iter().filter(|log| log["error_code"] != "missed").collect();
        assert_eq!((ran.len(), &ran[0]["trigger"]), (1, &json!("catch-up")));
        // A clock that jumps back and forth runs nothing twice.
        for time in ["2025-03-03T14:00:00Z", "2025-03-03T15:41:00Z", "2025-03-02T15:41:00Z", "2025-03-03T15:42:00Z"] {
            app.clock.set(time);
            app.run_until_idle().await;
        }
        assert_eq!(logs(&user, task).await.len(), 6);
    }

    async fn turns_are_fair_between_users_and_limits_hold(app: TestApp) {
        let (busy, calm) = (app.user("busy").await, app.user("calm").await);
        let mut busy_tasks = Vec::new();
        for _ in 0..6 {
            busy_tasks.push(busy.task().await);
        }
        for task in &busy_tasks {
            run(&busy, *task).await;
        }
        let calm_task = calm.task().await;
        run(&calm, calm_task).await;
        let order: Vec<i64> = claim(&app, 3, PLENTY).await.iter().map(|run| run.subject.task().unwrap().0).collect();
        assert_eq!(order, [busy_tasks[0], calm_task, busy_tasks[1]], "everybody's first before anybody's second");
        let limits = ConcurrencyLimits { per_server: 2, per_destination: 100, per_user: 3, checks_per_user: 100 };
        assert_eq!(claim(&app, 10, limits).await.len(), 1, "the busy one has two, and may have three");
        // A check does not wait for other runs.
        busy.client.act(&format!("/api/remote-servers/{}/check", busy.server().await)).await.expect(202);
        let claimed = claim(&app, 10, limits).await;
        assert_eq!(claimed.iter().map(|run| run.kind().as_str()).collect::<Vec<_>>(), ["check-server"]);
    }

    async fn checks_of_one_user_leave_places_for_everybody_else(app: TestApp) {
        let limits = holdfast_worker::Settings::default().at_once;
        let check = async |user: &TestUser, count: usize| {
            for _ in 0..count {
                user.client.act(&format!("/api/remote-servers/{}/check", user.server().await)).await.expect(202);
            }
        };
        let users = [app.user("ada").await, app.user("bob").await, app.user("cyd").await, app.user("dan").await];
        let of = |claimed: &[RunRow], user: &TestUser| claimed.iter().filter(|run| run.user_id == user.id).count();
        check(&users[0], 12).await;
        let first = claim(&app, 8, limits).await;
        assert_eq!(of(&first, &users[0]), 4, "half of the places, and no more");
        check(&users[1], 12).await;
        let second = claim(&app, 4, limits).await;
        assert_eq!((of(&second, &users[0]), of(&second, &users[1])), (0, 2), "the last places are for others");
        check(&users[2], 3).await;
        check(&users[3], 3).await;
        let third = claim(&app, 2, limits).await;
        assert_eq!((of(&third, &users[2]), of(&third, &users[3])), (1, 1));
        end(&app, &first[0], RunStatus::Failed).await;
        assert_eq!(claim(&app, 3, limits).await.len(), 1, "one ended, so one may start");
    }

    async fn a_server_has_no_more_runs_than_it_may(app: TestApp) {
        let user = app.user("ada").await;
        let mut body = user.task_body().await;
        for number in 0..5 {
            body["label"] = json!(format!("task {number}"));
            let task = user.client.post("/api/backup-tasks", body.clone()).await.id(201);
            run(&user, task).await;
        }
        let other = user.task().await;
        run(&user, other).await;
        let limits = ConcurrencyLimits { per_server: 2, per_destination: 100, per_user: 10, checks_per_user: 100 };
        let claimed = claim(&app, 10, limits).await;
        assert_eq!(claimed.len(), 3, "two of the one server, one of the other");
        assert!(claimed.iter().any(|run| run.subject.task() == Some(TaskId(other))), "those behind do not wait for those that must");
        assert_eq!(claim(&app, 10, limits).await.len(), 0);
        end(&app, &claimed[0], RunStatus::Failed).await;
        assert_eq!(claim(&app, 10, limits).await.len(), 1);
    }

    async fn a_destination_has_no_more_runs_than_it_may(app: TestApp) {
        let user = app.user("ada").await;
        let mut body = user.task_body().await;
        let mut tasks = Vec::new();
        for _ in 0..4 {
            body["remote_server_id"] = json!(user.server().await);
            tasks.push(user.client.post("/api/backup-tasks", body.clone()).await.id(201));
        }
        let other = user.task().await;
        for task in tasks.iter().chain([&other]) {
            run(&user, *task).await;
        }
        let limits = ConcurrencyLimits { per_destination: 2, ..PLENTY };
        let claimed = claim(&app, 10, limits).await;
        let of: Vec<_> = claimed.iter().filter_map(|run| run.subject.task()).collect();
        assert_eq!(of, [tasks[0], tasks[1], other].map(TaskId), "two to the one destination, one to the other");
        assert!(claim(&app, 10, limits).await.is_empty());
        // What reads from the destination counts, too.
        let backup = user.backup(&app, tasks[0], claimed[0].id.0).await;
        user.client.act(&format!("/api/backups/{backup}/verify")).await.expect(202);
        for run in &claimed[..2] {
            end(&app, run, RunStatus::Failed).await;
        }
        let next = claim(&app, 10, limits).await;
        assert_eq!(next.len(), 2);
        end(&app, &next[0], RunStatus::Failed).await;
        let last = claim(&app, 10, limits).await;
        assert_eq!(last.iter().map(|run| run.subject).collect::<Vec<_>>(), [RunSubject::Verify(BackupId(backup))]);
    }

    async fn nothing_is_backed_up_or_restored_where_a_restore_is_under_way(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({})).await;
        let database = json!({"type": "database", "database_engine": "postgresql", "database_name": "shop", "source_path": null});
        let shop = bench.task(database).await;
        let backup = bench.back_up(task).await;
        let restore = async |path: String, dry_run: bool| {
            let body = json!({"remote_server_id": bench.server, "path": path, "dry_run": dry_run});
            bench.ask_restore(&backup, body).await.expect(202);
        };
        let inside = format!("{}/below", bench.source().display());
        restore(inside.clone(), false).await;
        let under_way = claim(&bench.app, 9, PLENTY).await;
        assert_eq!(under_way.len(), 1);
        run(&bench.user, task).await;
        restore(inside.clone(), false).await;
        restore(inside, true).await;
        restore(bench.target().display().to_string(), false).await;
        run(&bench.user, shop).await;
        let mut apart = claim(&bench.app, 9, PLENTY).await;
        assert_eq!(apart.len(), 3, "the dry run, the restore elsewhere and the database: {apart:?}");
        assert_eq!(claim(&bench.app, 9, PLENTY).await.len(), 0);
        end(&bench.app, &under_way[0], RunStatus::Failed).await;
        let next = claim(&bench.app, 9, PLENTY).await;
        assert_eq!(next.iter().map(|run| run.kind().as_str()).collect::<Vec<_>>(), ["backup"], "one after the other");
        end(&bench.app, &next[0], RunStatus::Failed).await;
        apart.extend(claim(&bench.app, 9, PLENTY).await);
        assert_eq!(apart.len(), 4, "the second restore");
        for run in apart {
            end(&bench.app, &run, RunStatus::Failed).await;
        }
    }

    async fn a_backup_after_a_restore_that_ended_early_holds_removal(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::create_dir(bench.source().join("sub")).unwrap();
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({"maximum_backups_to_keep": 1})).await;
        let good = bench.back_up(task).await;
        let source = bench.source().display().to_string();
        // A restore that is refused before it writes leaves the target unchanged.
        for (status, code) in [(RunStatus::Failed, FailureCode::TargetNotEmpty), (RunStatus::Cancelled, FailureCode::Cancelled)] {
            let run = begin_restore(&bench, &good, json!({"path": source}), None).await;
            end_early(&bench, &run, status, code).await;
        }
        assert!(!is_held_later(&bench, task).await);
        let good = bench.backups(task).await[0].clone();
        let run = begin_restore(&bench, &good, json!({"path": source}), Some(&source)).await;
        end_early(&bench, &run, RunStatus::Cancelled, FailureCode::Cancelled).await;
        assert!(is_held_later(&bench, task).await);
        let reason = bench.user.client.get(&format!("/api/backup-tasks/{task}")).await.data(200)["protection"]["held_reason"].clone();
        assert!(reason.as_str().unwrap().contains("a restore into its source ended early"), "{reason}");
        assert!(bench.backups(task).await.iter().any(|backup| backup["id"] == good["id"]));
        assert!(is_held_later(&bench, task).await, "until a complete restore");
        // Only a complete restore ends the hold.
        let parts = [
            json!({"path": source, "overwrite": true, "entries": ["file"]}),
            json!({"path": bench.source().join("sub"), "overwrite": true}),
            json!({"path": bench.target(), "overwrite": true}),
        ];
        for part in parts {
            let done = bench.restore(&good, part.clone()).await;
            assert_eq!(done["status"], "successful", "{done}");
            assert!(is_held_later(&bench, task).await, "{part}");
        }
        let refused = bench.restore(&good, json!({"path": source, "overwrite": false})).await;
        assert_eq!(refused["error_code"], "target_not_empty", "{refused}");
        assert!(is_held_later(&bench, task).await, "nothing was written");
        std::fs::remove_dir_all(bench.source().join("sub")).unwrap();
        let done = bench.restore(&good, json!({"path": source, "overwrite": true})).await;
        assert_eq!(done["status"], "successful", "{done}");
        assert!(!is_held_later(&bench, task).await);
        // Releasing the hold ends it, too.
        let run = begin_restore(&bench, &bench.backups(task).await[0], json!({"path": source}), Some(&source)).await;
        end_early(&bench, &run, RunStatus::Failed, FailureCode::ToolMissing).await;
        assert!(is_held_later(&bench, task).await);
        bench.user.client.act(&format!("/api/backup-tasks/{task}/release-retention")).await.data(200);
        assert!(!is_held_later(&bench, task).await);
    }

    /// Without overwrite, what an interrupted restore left incomplete would be kept, however its folder is reached.
    async fn an_interrupted_restore_is_known_by_its_folder_and_machine(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let good = bench.back_up(bench.task(json!({})).await).await;
        let folder = |name: &str| bench.target().join(name);
        for name in ["one/x", "two/x"] {
            std::fs::create_dir_all(folder(name)).unwrap();
            std::fs::write(folder(name).join("file"), "conte").unwrap();
        }
        std::os::unix::fs::symlink(folder("one"), folder("link")).unwrap();
        let resolved = folder("one/x").canonicalize().unwrap().display().to_string();
        let run = begin_restore(&bench, &good, json!({"path": folder("link/x")}), Some(&resolved)).await;
        end_early(&bench, &run, RunStatus::Cancelled, FailureCode::Cancelled).await;
        let body = json!({"label": "same", "ip_address": "localhost", "port": bench.ssh.port(),
            "username": bench.ssh.username()});
        let same = bench.user.client.post("/api/remote-servers", body).await.id(201);
        let refused = async |body: Value| {
            let run = bench.restore(&good, body.clone()).await;
            assert_eq!((run["status"].as_str(), run["error_code"].as_str()), (Some("failed"), Some("target_not_empty")));
            assert!(run["output"].as_str().unwrap().contains("was interrupted"), "{body}: {run}");
        };
        refused(json!({"path": folder("one/x")})).await;
        refused(json!({"path": folder("one/x"), "remote_server_id": same})).await;
        refused(json!({"path": bench.target()})).await;
        let dry = bench.restore(&good, json!({"path": folder("one/x"), "dry_run": true})).await;
        assert_eq!(dry["status"], "successful", "{dry}");
        assert!(dry["output"].as_str().unwrap().contains("would be refused"), "{dry}");
        // The same path leads elsewhere now.
        std::fs::remove_file(folder("link")).unwrap();
        std::os::unix::fs::symlink(folder("two"), folder("link")).unwrap();
        let done = bench.restore(&good, json!({"path": folder("link/x"), "overwrite": true})).await;
        assert_eq!(done["status"], "successful", "{done}");
        refused(json!({"path": folder("one/x")})).await;
        assert_eq!(std::fs::read_to_string(folder("one/x/file")).unwrap(), "conte");
        // An empty folder has nothing incomplete in it.
        std::fs::remove_file(folder("one/x/file")).unwrap();
        for _ in 0..2 {
            let done = bench.restore(&good, json!({"path": folder("one/x")})).await;
            assert_eq!(done["status"], "successful", "{done}");
        }
        assert_eq!(std::fs::read_to_string(folder("one/x/file")).unwrap(), "content");
    }

    /// A partial restore is remembered when an older backup is restored over it, when its server changes or is deleted,
    /// when somebody approves a backup of another source, and whatever the clock says.
    async fn a_place_that_is_half_restored_stays_so_whatever_changes_around_it(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({"maximum_backups_to_keep": 2})).await;
        let old = bench.back_up(task).await;
        std::fs::write(bench.source().join("later"), "more").unwrap();
        assert!(!is_held_later(&bench, task).await);
        let good = newest(&bench, task).await;
        let source = bench.source().display().to_string();
        let half = async |changes: Value| {
            let mut body = json!({"path": source});
            body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            let run = begin_restore(&bench, &good, body, Some(&source)).await;
            end_early(&bench, &run, RunStatus::Cancelled, FailureCode::Cancelled).await;
        };
        let put_right = async || {
            let done = bench.restore(&good, json!({"path": source, "overwrite": true})).await;
            assert_eq!(done["status"], "successful", "{done}");
            assert!(!is_held_later(&bench, task).await);
        };
        half(json!({})).await;
        let done = bench.restore(&old, json!({"path": source, "overwrite": true})).await;
        assert_eq!(done["status"], "successful", "{done}");
        assert!(is_held_later(&bench, task).await, "what the older one lacks may be half there");
        assert!(bench.backups(task).await.iter().any(|backup| backup["id"] == good["id"]));
        put_right().await;
        let good = newest(&bench, task).await;

        let body = json!({"label": "same", "ip_address": "127.0.0.1", "port": bench.ssh.port(), "username": "other"});
        let same = bench.user.client.post("/api/remote-servers", body).await.id(201);
        let run = begin_restore(&bench, &good, json!({"path": source, "remote_server_id": same}), Some(&source)).await;
        end_early(&bench, &run, RunStatus::Cancelled, FailureCode::Cancelled).await;
        let path = format!("/api/remote-servers/{same}");
        bench.user.client.put(&path, json!({"ip_address": "127.0.0.99"})).await.expect(200);
        assert!(is_held_later(&bench, task).await, "the server has another address now");
        bench.user.client.delete(&path).await.expect(200);
        assert!(is_held_later(&bench, task).await, "the server is gone");

        // Somebody approves a backup of another folder.
        let task_path = format!("/api/backup-tasks/{task}");
        let other = bench.source().with_file_name("elsewhere");
        std::fs::create_dir(&other).unwrap();
        bench.user.client.put(&task_path, json!({"source_path": other})).await.expect(200);
        bench.back_up(task).await;
        bench.user.client.act(&format!("{task_path}/release-retention")).await.data(200);
        bench.user.client.put(&task_path, json!({"source_path": source})).await.expect(200);
        assert!(is_held_later(&bench, task).await, "nobody has looked at this one");
        bench.user.client.act(&format!("{task_path}/release-retention")).await.data(200);
        assert!(!is_held_later(&bench, task).await);

        // With a slow clock, and with one that was fast.
        bench.app.clock.advance_secs(-2 * 86_400);
        let good = newest(&bench, task).await;
        let run = begin_restore(&bench, &good, json!({"path": source}), Some(&source)).await;
        end_early(&bench, &run, RunStatus::Cancelled, FailureCode::Cancelled).await;
        bench.app.clock.advance_secs(2 * 86_400);
        assert!(is_held_later(&bench, task).await);
        bench.app.clock.advance_secs(300 * 86_400);
        let done = bench.restore(&good, json!({"path": source, "overwrite": true})).await;
        assert_eq!(done["status"], "successful", "{done}");
        bench.app.clock.advance_secs(-300 * 86_400);
        assert!(!is_held_later(&bench, task).await);
    }

    /// The same place under another name: through a symbolic link, and through another entry of the same machine.
    async fn a_restore_that_goes_to_the_same_place_by_another_name_counts(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({"maximum_backups_to_keep": 1})).await;
        let good = bench.back_up(task).await;
        let link = bench.source().with_file_name("link");
        std::os::unix::fs::symlink(bench.source(), &link).unwrap();
        let body = json!({"label": "same", "ip_address": "127.0.0.1", "port": bench.ssh.port(), "username": "other"});
        let same = bench.user.client.post("/api/remote-servers", body).await.id(201);
        let source = bench.source().canonicalize().unwrap().display().to_string();
        // The restore may run during a backup, because its real path was unknown; that backup is suspicious.
        let run = begin_restore(&bench, &good, json!({"path": link}), Some(&source)).await;
        assert!(is_held_later(&bench, task).await, "it is still running");
        assert!(bench.backups(task).await.iter().any(|backup| backup["id"] == good["id"]));
        end(&bench.app, &run, RunStatus::Successful).await;
        assert!(!is_held_later(&bench, task).await, "it has ended before");

        let good = bench.backups(task).await[0].clone();
        let run = begin_restore(&bench, &good, json!({"path": link}), Some(&source)).await;
        end_early(&bench, &run, RunStatus::Failed, FailureCode::WorkerLost).await;
        assert!(is_held_later(&bench, task).await);
        let done = bench.restore(&good, json!({"path": link, "overwrite": true})).await;
        let said = format!("A part of {} is a link: the target is {}.", link.display(), bench.source().display());
        assert!(done["output"].as_str().unwrap().contains(&said), "{done}");
        assert_eq!(done["status"], "successful", "{done}");
        assert!(!is_held_later(&bench, task).await, "by the same name, it is put right");

        let good = bench.backups(task).await[0].clone();
        let elsewhere = json!({"path": bench.source(), "remote_server_id": same});
        let run = begin_restore(&bench, &good, elsewhere, Some(&source)).await;
        bench.user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        assert_eq!(claim(&bench.app, 9, PLENTY).await.len(), 0, "it waits");
        end_early(&bench, &run, RunStatus::Failed, FailureCode::WorkerLost).await;
        bench.app.run_until_idle().await;
        assert!(is_held_later(&bench, task).await);
    }

    async fn other_processes_are_notified_of_queued_runs(app: TestApp) {
        if app.app.store.is_sqlite() {
            // SQLite has no other processes.
            return;
        }
        let user = app.user("ada").await;
        let task = user.task().await;
        let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let store = app.app.store.clone();
        tokio::spawn(async move { store.listen_for_queued(|| sender.send(()).unwrap_or_default()).await });
        heard.recv().await.expect("it listens");
        run(&user, task).await;
        tokio::time::timeout(Duration::from_secs(20), heard.recv()).await.expect("in time").expect("a word");
    }

    async fn a_drained_worker_starts_nothing_and_others_go_on(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.task().await;
        let drained = app.worker();
        drained.report_alive().await.unwrap();
        let name = holdfast_app::draining::list(&app.app).await.unwrap()[0].name.clone();
        let origin = holdfast_app::Origin::default();
        assert_eq!(holdfast_app::draining::set(&app.app, &origin, &name, true).await.unwrap(), std::slice::from_ref(&name));
        run(&user, task).await;
        drained.run_until_idle(&CancellationToken::new()).await.unwrap();
        assert_eq!(logs(&user, task).await[0]["status"], "queued");
        app.run_until_idle().await;
        assert_ne!(logs(&user, task).await[0]["status"], "queued", "another worker");
        run(&user, task).await;
        holdfast_app::draining::set(&app.app, &origin, &name, false).await.unwrap();
        drained.run_until_idle(&CancellationToken::new()).await.unwrap();
        assert!(logs(&user, task).await.iter().all(|log| log["status"] != "queued"));
    }

    async fn nothing_starts_during_maintenance(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.task().await;
        let origin = holdfast_app::Origin::default();
        let until = holdfast_core::clock::later(app.app.now(), 3600);
        holdfast_app::maintenance::begin(&app.app, &origin, until).await.unwrap();
        run(&user, task).await;
        app.run_until_idle().await;
        assert_eq!(logs(&user, task).await[0]["status"], "queued");
        app.clock.advance_secs(3601);
        app.run_until_idle().await;
        assert_ne!(logs(&user, task).await[0]["status"], "queued", "it ends by itself");
        holdfast_app::maintenance::begin(&app.app, &origin, holdfast_core::clock::later(app.app.now(), 60)).await.unwrap();
        run(&user, task).await;
        holdfast_app::maintenance::end(&app.app, &origin).await.unwrap();
        app.run_until_idle().await;
        let newest = logs(&user, task).await;
        assert_eq!(newest.len(), 2);
        assert!(newest.iter().all(|log| log["status"] != "queued"), "{newest:?}");
    }

    async fn destinations_and_people_are_left_alone_during_maintenance(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        let stream = stream(&user, &hook, false, true).await;
        let bench = Bench::of(app, SshServer::start(), user).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({"notification_stream_ids": [stream]})).await;
        let backup = bench.back_up(task).await;
        let (app, origin) = (&bench.app, holdfast_app::Origin::default());
        let until = "2025-03-05T00:00:00Z".parse().unwrap();
        holdfast_app::maintenance::begin(&app.app, &origin, until).await.unwrap();
        bench.user.client.delete(&format!("/api/backups/{}", backup["id"])).await.expect(200);
        app.clock.set("2025-03-04T16:00:00Z");
        app.run_until_idle().await;
        assert!(bench.stored_file(&backup).exists(), "nothing is removed");
        assert!(hook.received().is_empty(), "nobody is told that the task is overdue");
        holdfast_app::maintenance::end(&app.app, &origin).await.unwrap();
        app.run_until_idle().await;
        assert!(!bench.stored_file(&backup).exists());
    }

    /// One pass deletes more than one batch, and records of removed backups go, unless a restore of them has a log.
    async fn what_has_expired_is_deleted_at_the_pace_at_which_it_comes(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({"maximum_backups_to_keep": 1})).await;
        let restored = bench.back_up(task).await;
        bench.restore_all(&restored).await;
        for _ in 0..3 {
            bench.back_up(task).await;
        }
        let mut tx = bench.app.app.store.begin().await.unwrap();
        let (at, origin) = (DbTime(bench.app.app.now()), holdfast_app::Origin::default());
        for number in 0..1700 {
            let detail = format!("{number:04000}");
            let action = holdfast_core::audit::AuditAction::BackupTaskTriggered;
            audit::insert(&mut tx, at, Some(bench.user.id), &origin, action, &detail).await.unwrap();
        }
        tx.commit().await.unwrap();
        let on_record = async || {
            let all = bench.user.client.get("/api/backups?deleted=true&per_page=100").await.expect(200);
            all["meta"]["total"].as_i64().unwrap()
        };
        assert_eq!(on_record().await, 4);
        bench.user.client.act(&format!("/api/backup-tasks/{task}/pause")).await.expect(200);
        bench.app.clock.advance_secs(89 * 86_400);
        bench.app.worker().tidy().await.unwrap();
        assert_eq!(on_record().await, 4);
        bench.app.clock.advance_secs(2 * 86_400);
        bench.app.worker().tidy().await.unwrap();
        assert_eq!(on_record().await, 2, "the one that is stored, and the one that was restored");
        bench.app.clock.advance_secs(400 * 86_400);
        let bytes = async || {
            let mut tx = bench.app.app.store.read().await.unwrap();
            holdfast_store::figures::find_database_bytes(&mut tx).await.unwrap()
        };
        let before = bytes().await;
        bench.app.worker().tidy().await.unwrap();
        let mut tx = bench.app.app.store.read().await.unwrap();
        if bench.app.app.store.is_sqlite() {
            assert!(bytes().await < before - 4_000_000, "the file has shrunk from {before} to {}", bytes().await);
        }
        let events = audit::list(&mut tx, Some(bench.user.id), None, 5000).await.unwrap();
        assert!(events.iter().all(|event| event.detail.len() < 4000), "{}", events.len());
    }

    async fn old_logs_are_deleted_and_stored_backups_are_verified_again(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({"maximum_backups_to_keep": 2})).await;
        let mut stored = Vec::new();
        for _ in 0..3 {
            stored.push(bench.back_up(task).await);
        }
        let tidy = async || {
            bench.app.worker().tidy().await.unwrap();
            bench.app.run_until_idle().await;
        };
        tidy().await;
        assert_eq!(bench.show(&stored[2]).await["verification"]["status"], "unverified", "it is not due yet");
        // The same size: another size would be noticed without reading.
        let mut bytes = std::fs::read(bench.stored_file(&stored[1])).unwrap();
        bytes.reverse();
        std::fs::write(bench.stored_file(&stored[1]), bytes).unwrap();
        bench.user.client.act(&format!("/api/backup-tasks/{task}/pause")).await.expect(200);
        bench.app.clock.advance_secs(28 * 86_400);
        // Each round verifies one backup per user. Queued runs of other users do not matter.
        let eve = bench.app.user("eve").await;
        run(&eve, eve.task().await).await;
        tidy().await;
        assert_eq!(bench.user.client.get("/api/runs?kind=verify").await.expect(200)["meta"]["total"], 1);
        tidy().await;
        assert_eq!(bench.show(&stored[1]).await["verification"]["status"], "corrupt");
        assert_eq!(bench.show(&stored[2]).await["verification"]["status"], "verified");
        let reads = bench.user.client.get("/api/runs?kind=verify").await.expect(200);
        assert_eq!(reads["meta"]["total"], 2);
        tidy().await;
        let reads = bench.user.client.get("/api/runs?kind=verify").await.expect(200);
        assert_eq!(reads["meta"]["total"], 2, "nothing is read twice");
        bench.app.clock.advance_secs(401 * 86_400);
        bench.app.worker().tidy().await.unwrap();
        let left: Vec<Value> = logs(&bench.user, task).await.iter().map(|log| log["id"].clone()).collect();
        assert_eq!(left, [stored[1]["run_id"].clone(), stored[2]["run_id"].clone()], "what made a backup that is there");
    }
}

async fn tried_once_more(app: TestApp) {
    let user = app.user("ada").await;
    let task = user.task().await;
    run(&user, task).await;
    app.run_until_idle().await;
    let path = format!("/api/backup-tasks/{task}");
    assert_eq!(user.client.get(&format!("{path}/status")).await.data(200)["status"], "ready", "also while it waits");
    assert_eq!(logs(&user, task).await.len(), 1);
    app.clock.advance_secs(31);
    app.run_until_idle().await;
    app.clock.advance_secs(3000);
    app.run_until_idle().await;
    let shown = logs(&user, task).await;
    assert_eq!(shown.iter().map(|log| log["attempt"].clone()).collect::<Vec<_>>(), [json!(1), json!(2)]);
    assert_eq!(shown[1]["trigger"], "manual");
    assert!(shown[0]["output"].as_str().unwrap().contains("retried once"), "{}", shown[0]);
    assert_failed(&shown[1], "connect");
    // A manual run in between makes the retry unnecessary, and so does a pause.
    for step in ["run", "pause"] {
        run(&user, task).await;
        app.run_until_idle().await;
        let before = logs(&user, task).await.len();
        let answer = if step == "run" { 202 } else { 200 };
        user.client.act(&format!("{path}/{step}")).await.expect(answer);
        if step == "run" {
            let live = claim(&app, 1, PLENTY).await.remove(0);
            end(&app, &live, RunStatus::Successful).await;
        }
        app.clock.advance_secs(31);
        app.run_until_idle().await;
        let expected = before + usize::from(step == "run");
        assert_eq!(logs(&user, task).await.len(), expected, "{step}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transient_failures_are_retried_once_on_sqlite() {
    tried_once_more(retrying(Engine::Sqlite).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transient_failures_are_retried_once_on_postgres() {
    tried_once_more(retrying(Engine::Postgres).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permanent_failures_are_not_retried() {
    let bench = Bench::new(retrying(Engine::Sqlite).await).await;
    let task = bench.task(json!({"source_path": "/nowhere"})).await;
    assert_failed(&bench.run(task).await, "source_missing");
    bench.app.clock.advance_secs(3000);
    bench.app.run_until_idle().await;
    assert_eq!(logs(&bench.user, task).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_costs_three_workers_in_a_row_is_paused() {
    let app = retrying(Engine::Sqlite).await;
    let user = app.user("ada").await;
    let task = user.task().await;
    run(&user, task).await;
    for losses in 1..=3 {
        assert_eq!(claim(&app, 1, PLENTY).await.len(), 1, "{losses}");
        app.pass_secs(61).await;
        let shown = logs(&user, task).await;
        assert_failed(&shown[losses - 1], "worker_lost");
        let paused = user.client.get(&format!("/api/backup-tasks/{task}")).await.data(200)["paused_at"].clone();
        assert_eq!(paused.is_string(), losses == 3, "after {losses}");
        match losses {
            // The retry is queued without any worker claiming it.
            1 => queue_retry(&app).await,
            2 => run(&user, task).await,
            _ => assert!(shown[2]["output"].as_str().unwrap().contains("is paused")),
        }
    }
    let resumed = user.client.act(&format!("/api/backup-tasks/{task}/resume")).await.data(200);
    assert!(resumed["paused_at"].is_null());
}

/// A supervisor may kill a worker that takes too long to stop. Its runs are not the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_stop_is_no_loss_even_if_the_worker_is_killed() {
    let app = TestApp::start(Engine::Sqlite).await;
    let user = app.user("ada").await;
    let task = user.task().await;
    for stops in 1..=4 {
        run(&user, task).await;
        assert_eq!(claim(&app, 1, PLENTY).await.len(), 1, "{stops}");
        let mut tx = app.app.store.begin().await.unwrap();
        workers::upsert(&mut tx, "elsewhere", "1", app.app.now(), app.app.now()).await.unwrap();
        workers::mark_stopping(&mut tx, "elsewhere").await.unwrap();
        tx.commit().await.unwrap();
        app.pass_secs(61).await;
        assert_failed(&logs(&user, task).await[stops - 1], "worker_lost");
        let shown = user.client.get(&format!("/api/backup-tasks/{task}")).await.data(200);
        assert!(shown["paused_at"].is_null(), "after {stops}");
    }
}

/// Queues the retry without any worker claiming it.
async fn queue_retry(app: &TestApp) {
    // After a lost worker the wait may be up to eight times as long.
    app.clock.advance_secs(8 * 31);
    assert_eq!(app.worker().tick().await.unwrap(), 1);
}

/// A run that hangs in the middle, and the worker that claimed it.
async fn stuck(settings: Settings) -> (Bench, FaultProxy, i64, CancellationToken, tokio::task::JoinHandle<()>) {
    let bench = Bench::new(TestApp::start_with(Engine::Sqlite, settings).await).await;
    let proxy = FaultProxy::start(bench.ssh.port());
    let path = format!("/api/remote-servers/{}", bench.server);
    bench.user.client.put(&path, json!({"port": proxy.port()})).await.expect(200);
    std::fs::write(bench.source().join("large"), holdfast_testkit::random(5, 8 * 1024 * 1024)).unwrap();
    let task = bench.task(json!({})).await;
    proxy.silence_after(3_000_000);
    run(&bench.user, task).await;
    let (worker, stop) = (bench.app.worker(), CancellationToken::new());
    let told = stop.clone();
    let working = tokio::spawn(async move { worker.run(told).await });
    wait_for(async || {
        let log = bench.latest_log(task).await;
        (log["bytes_read"].as_i64().unwrap() > 1_000_000).then_some(())
    })
    .await;
    (bench, proxy, task, stop, working)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_worker_ends_long_runs_and_records_why() {
    let mut settings = Settings::default();
    settings.work.shutdown = Duration::from_millis(300);
    settings.work.retry_after = Duration::from_secs(30);
    let (bench, proxy, task, stop, working) = stuck(settings).await;
    stop.cancel();
    working.await.unwrap();
    assert_failed(&bench.latest_log(task).await, "worker_lost");
    // The remote side has ended too, and the next worker retries the run.
    proxy.heal();
    wait_for(async || (proxy.open_connections() == 0).then_some(())).await;
    bench.app.clock.advance_secs(31);
    bench.app.run_until_idle().await;
    let log = bench.latest_log(task).await;
    assert_eq!((&log["status"], &log["attempt"]), (&json!("successful"), &json!(2)), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_takes_no_run_from_its_worker() {
    let (bench, proxy, task, stop, working) = stuck(Settings::default()).await;
    for seconds in [86_400, -2 * 86_400, 3600, -3600] {
        bench.app.clock.advance_secs(seconds);
        bench.app.run_until_idle().await;
        assert_eq!(bench.latest_log(task).await["status"], "running");
    }
    bench.user.client.act(&format!("/api/backup-tasks/{task}/cancel")).await.expect(200);
    wait_for(async || (bench.latest_log(task).await["status"] == "cancelled").then_some(())).await;
    proxy.heal();
    wait_for(async || (proxy.open_connections() == 0).then_some(())).await;
    stop.cancel();
    working.await.unwrap();
    bench.app.clock.advance_secs(1200);
    bench.app.run_until_idle().await;
    assert_eq!(bench.stored_names(), [""; 0], "nothing stays behind");
}

/// The response to a commit may be lost after it was applied: the run has ended, and its object is recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_object_is_recognised() {
    let bench = Bench::new(TestApp::start(Engine::Sqlite).await).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let mut tx = bench.app.app.store.read().await.unwrap();
    let destination = DestinationId(bench.destination);
    let key = backup["key"].as_str().unwrap();
    assert!(holdfast_store::copies::is_recorded(&mut tx, destination, key).await.unwrap());
    assert!(!holdfast_store::copies::is_recorded(&mut tx, destination, "other").await.unwrap());
}

/// Verifications count towards the limit of their user, so that a thousand of them do not keep backups from running.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verifications_count_towards_the_limit_of_their_user() {
    let bench = Bench::new(TestApp::start(Engine::Sqlite).await).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let mut tx = bench.app.app.store.begin().await.unwrap();
    let owner = bench.user.id;
    let backup = BackupId(backup["id"].as_i64().unwrap());
    for _ in 0..5 {
        let new = NewRun::new(owner, RunSubject::Verify(backup), Trigger::Manual);
        assert!(runs::insert(&mut tx, &new, bench.app.app.now()).await.unwrap().is_some());
    }
    tx.commit().await.unwrap();
    assert_eq!(
        claim(
            &bench.app,
            10,
            ConcurrencyLimits { per_server: 2, per_destination: 100, per_user: 3, checks_per_user: 100 }
        )
        .await
        .len(),
        3
    );
}

/// An unreadable destination says nothing about the backup, and is no reason to retry every minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_backup_is_retried_another_day_and_delays_no_other() {
    let bench = Bench::new(TestApp::start(Engine::Sqlite).await).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let task = bench.task(json!({"maximum_backups_to_keep": 0})).await;
    let first = bench.back_up(task).await;
    bench.back_up(task).await;
    bench.user.client.act(&format!("/api/backup-tasks/{task}/pause")).await.expect(200);
    let marker = bench.stored_folder().join(".holdfast-destination");
    let mark = std::fs::read(&marker).unwrap();
    std::fs::remove_file(&marker).unwrap();
    let tidy = async || {
        bench.app.worker().tidy().await.unwrap();
        bench.app.run_until_idle().await;
        bench.user.client.get("/api/runs?kind=verify").await.expect(200)["meta"]["total"].as_i64().unwrap()
    };
    bench.app.clock.advance_secs(28 * 86_400);
    assert_eq!(tidy().await, 1);
    assert_eq!(tidy().await, 2, "the other one");
    assert_eq!(tidy().await, 2, "each once");
    assert_eq!(bench.show(&first).await["verification"]["status"], "unverified", "nothing is known about it");
    std::fs::write(&marker, mark).unwrap();
    bench.app.clock.advance_secs(86_401);
    assert_eq!(tidy().await, 3);
    assert_eq!(bench.show(&first).await["verification"]["status"], "verified");
}

/// A cancelled run is not retried, even if its worker never noticed the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_cancelled_is_not_tried_again() {
    let app = retrying(Engine::Sqlite).await;
    let user = app.user("ada").await;
    let task = user.task().await;
    run(&user, task).await;
    assert_eq!(claim(&app, 1, PLENTY).await.len(), 1);
    user.client.act(&format!("/api/backup-tasks/{task}/cancel")).await.expect(200);
    app.pass_secs(61).await;
    assert_failed(&logs(&user, task).await[0], "worker_lost");
    app.clock.advance_secs(3600);
    app.run_until_idle().await;
    assert_eq!(logs(&user, task).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_have_their_own_limit() {
    let app = TestApp::start(Engine::Sqlite).await;
    let user = app.user("ada").await;
    run(&user, user.task().await).await;
    user.client.act(&format!("/api/remote-servers/{}/check", user.server().await)).await.expect(202);
    let mut tx = app.app.store.begin().await.unwrap();
    let now = app.app.now();
    let room = Capacity { long: LongRunCapacity { free: 0, reserved: 0 }, short: 1 };
    let claimed = queue::claim(&mut tx, "full", room, PLENTY, now, now).await.unwrap();
    assert_eq!(claimed.iter().map(|run| run.kind().as_str()).collect::<Vec<_>>(), ["check-server"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_lost_its_worker_says_what_may_be_written() {
    let bench = Bench::new(retrying(Engine::Sqlite).await).await;
    std::fs::write(bench.source().join("a"), "text").unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let mut said = Vec::new();
    for folder in [None, Some("/srv/back")] {
        let run = begin_restore(&bench, &backup, json!({"path": "/srv/back"}), folder).await;
        bench.app.pass_secs(61).await;
        let run = bench.show_run(&json!({"id": run.id.0})).await;
        assert_failed(&run, "worker_lost");
        said.push(run["output"].as_str().unwrap().to_owned());
    }
    assert!(said[0].contains("What was there was not changed."), "{}", said[0]);
    assert!(said[1].contains("Files may have been written to /srv/back"), "{}", said[1]);

    let postgres =
        "Databases named holdfast_restore_… on the server can be dropped. If one has the name holdfast_old_…";
    let mysql = "Databases named holdfast_… on the server are copies of what was being restored, whole ones if";
    let expected = [
        (Content::PostgresDatabase, postgres, mysql),
        (Content::PostgresServer, postgres, mysql),
        (Content::PostgresServerSql, "What was there may be gone or half replaced. Restore again.", "holdfast_"),
        (Content::MysqlDatabase, mysql, "can be dropped"),
        (Content::MysqlServerSql, "What was there may be gone or half replaced. Restore again.", "holdfast_"),
        (Content::MysqlServer, mysql, "can be dropped"),
    ];
    for (content, said, unsaid) in expected {
        let new = NewBackup {
            task: TaskId(backup["backup_task_id"].as_i64().unwrap()),
            run: RunId(backup["run_id"].as_i64().unwrap()),
            task_label: "Shop".to_owned(),
            source: "shop".to_owned(),
            source_server: String::new(),
            signs: Vec::new(),
            content,
            format: holdfast_core::storage::Format::Archive,
            copies: vec![NewCopy {
                repository: None,
                destination: DestinationId(bench.destination),
                locator: format!("{}.dump", content.as_str()),
                size_bytes: 1,
                sha256: "0".repeat(64),
            }],
            plain_bytes: 1,
            plain_sha256: "0".repeat(64),
            entries: 1,
            databases: Vec::new(),
            password: None,
        };
        let app = &bench.app.app;
        let mut tx = app.store.begin().await.unwrap();
        let id = holdfast_store::backups::insert(&mut tx, bench.user.id, &new, app.now()).await.unwrap();
        tx.commit().await.unwrap();
        let is_whole = !matches!(content, Content::PostgresDatabase | Content::MysqlDatabase);
        let name = if is_whole { json!(null) } else { json!("shop") };
        let begin =
            async |folder| begin_restore(&bench, &json!({"id": id.0}), json!({"database_name": name}), folder).await;
        let before = begin(None).await;
        bench.app.pass_secs(61).await;
        let after = begin(Some("")).await;
        bench.app.pass_secs(61).await;
        let output = bench.show_run(&json!({"id": before.id.0})).await["output"].to_string();
        assert!(output.contains("What was there was not changed."), "{content:?}: {output}");
        let run = bench.show_run(&json!({"id": after.id.0})).await;
        assert_failed(&run, "worker_lost");
        let output = run["output"].as_str().unwrap();
        assert!(output.contains(said) && !output.contains(unsaid), "{content:?}: {output}");
    }
}
