use std::collections::HashMap;
use std::time::{Duration, Instant};

use holdfast_core::queue::ConcurrencyLimits;
use holdfast_testkit::{Answer, Engine, MailServer, Receiver, Settings, SshServer, TestApp, TestUser, on_both_engines};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bench::Bench;
use crate::faults::wait_for;

/// A Slack stream that delivers to `hook`.
pub async fn stream(user: &TestUser, hook: &Receiver, on_success: bool, on_failure: bool) -> i64 {
    let notifications = json!({"on_success": on_success, "on_failure": on_failure});
    let body = json!({"label": "ops", "type": "slack", "value": hook.url("/hook"), "notifications": notifications});
    user.client.post("/api/notification-streams", body).await.id(201)
}

/// A task that fails at once, with these streams.
async fn failing_task(user: &TestUser, streams: &[i64]) -> i64 {
    let mut body = user.task_body().await;
    body["notification_stream_ids"] = json!(streams);
    user.client.post("/api/backup-tasks", body).await.id(201)
}

async fn run(app: &TestApp, user: &TestUser, task: i64) {
    user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
    app.run_until_idle().await;
}

/// The titles of the messages received since the last call.
pub fn titles(hook: &Receiver) -> Vec<String> {
    hook.take().iter().map(|received| received.json()["text"].as_str().unwrap().to_owned()).collect()
}

async fn notices(user: &TestUser, query: &str) -> Vec<Value> {
    let body = user.client.get(&format!("/api/notices?per_page=100&{query}")).await.expect(200);
    body["data"].as_array().unwrap().clone()
}

on_both_engines! {
    async fn the_flags_of_a_stream_decide_what_it_hears(app: TestApp) {
        let admin = app.admin("ada").await;
        let (good, bad, both, other) =
            (Receiver::start().await, Receiver::start().await, Receiver::start().await, Receiver::start().await);
        let bench = Bench::of(app, SshServer::start(), admin).await;
        let user = &bench.user;
        let streams = [
            stream(user, &good, true, false).await,
            stream(user, &bad, false, true).await,
            stream(user, &both, true, true).await,
        ];
        stream(user, &other, true, true).await;
        std::fs::write(bench.source().join("a"), "one").unwrap();
        let task = bench.task(json!({"notification_stream_ids": streams})).await;

        bench.back_up(task).await;
        assert_eq!(titles(&good), ["Backup done: Web files"]);
        assert_eq!(titles(&both), ["Backup done: Web files"]);
        assert!(bad.received().is_empty());

        std::fs::rename(bench.source(), bench.target()).unwrap();
        assert_eq!(bench.run(task).await["error_code"], "source_missing");
        assert_eq!(titles(&bad), ["Backup failed: Web files"]);
        assert_eq!(titles(&both), ["Backup failed: Web files"]);
        assert!(good.received().is_empty());

        std::fs::rename(bench.target(), bench.source()).unwrap();
        std::fs::write(bench.source().join("b"), vec![b'x'; 5_000]).unwrap();
        bench.back_up(task).await;
        let arrived = both.received().remove(0).json().to_string();
        assert!(arrived.contains("Since the last backup") && arrived.contains("+1 entry"), "{arrived}");
        assert!(arrived.contains("/runs/"), "{arrived}");
        assert_eq!(titles(&good), ["Backup done: Web files"], "they never heard that anything was wrong");
        assert_eq!(titles(&bad), ["Backups work again: Web files"]);
        assert_eq!(titles(&both), ["Backups work again: Web files"], "one message, not two");
        assert!(other.received().is_empty(), "it is on no task");
        assert!(notices(user, "").await.iter().all(|notice| notice["status"] == "delivered"));
    }

    async fn a_failure_is_reported_once_until_it_changes_or_a_day_has_passed(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        let stream = stream(&user, &hook, false, true).await;
        let task = failing_task(&user, &[stream]).await;
        for _ in 0..5 {
            run(&app, &user, task).await;
            app.clock.advance_secs(600);
        }
        assert_eq!(titles(&hook), ["Backup failed: web files"], "the first of them");
        let server = user.client.get(&format!("/api/backup-tasks/{task}")).await.data(200)["remote_server_id"].clone();
        let path = format!("/api/remote-servers/{server}");
        user.client.put(&path, json!({"ip_address": "nowhere.invalid"})).await.expect(200);
        run(&app, &user, task).await;
        assert_eq!(titles(&hook).len(), 1, "another reason");
        run(&app, &user, task).await;
        assert!(hook.received().is_empty());
        app.clock.advance_secs(86_400);
        app.run_until_idle().await;
        hook.take();
        run(&app, &user, task).await;
        assert!(hook.received().is_empty(), "the slot of the night was the reminder of this day");
    }

    async fn a_reminder_is_marked_as_one(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        let stream = stream(&user, &hook, false, true).await;
        let task = failing_task(&user, &[stream]).await;
        run(&app, &user, task).await;
        assert_eq!(titles(&hook).len(), 1);
        app.clock.set("2025-03-04T10:00:01Z");
        app.run_until_idle().await;
        let reminders = hook.take();
        assert_eq!(reminders.len(), 1);
        assert!(reminders[0].json().to_string().contains("Still failing, as reported before."));
    }

    async fn what_cannot_be_delivered_is_tried_five_times_and_then_shown(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        hook.answer(Answer::Says(503, "busy".into()));
        let stream = stream(&user, &hook, false, true).await;
        let task = failing_task(&user, &[stream]).await;
        run(&app, &user, task).await;
        assert_eq!(hook.received().len(), 1);
        for (wait, tries) in [(29, 1), (1, 2), (119, 2), (1, 3), (599, 3), (1, 4), (3_599, 4), (1, 5), (86_000, 5)] {
            app.clock.advance_secs(wait);
            app.worker().deliver_due().await.unwrap();
            assert_eq!(hook.received().len(), tries, "after {wait}");
        }
        let [undelivered] = notices(&user, "status=undelivered").await.try_into().unwrap();
        assert_eq!(undelivered["answer"], "The channel answered 503: busy");
        assert_eq!((&undelivered["tries"], &undelivered["kind"]), (&json!(5), &json!("failure")));
        let shown = user.client.get(&format!("/api/notification-streams/{stream}")).await.data(200);
        assert_eq!(shown["last_delivery"]["succeeded"], false);
        let events: Vec<String> = hook.take().iter().map(|received| event_of(&received.json())).collect();
        assert!(events.iter().all(|event| *event == undelivered["event"]), "one event, however often it is told");

        hook.answer(Answer::Status(200));
        user.client.act(&format!("/api/notices/{}/retry", undelivered["id"])).await.expect(202);
        app.worker().deliver_due().await.unwrap();
        assert_eq!(hook.received().len(), 1);
        let [delivered] = notices(&user, "").await.try_into().unwrap();
        assert_eq!(delivered["status"], "delivered");
        user.client.act(&format!("/api/notices/{}/retry", delivered["id"])).await.expect(409);
        let bob = app.user("bob").await;
        assert!(notices(&bob, "").await.is_empty());
        bob.client.act(&format!("/api/notices/{}/retry", delivered["id"])).await.expect(403);
        bob.client.act("/api/notices/999999/retry").await.expect(404);
    }

    async fn retry_after_is_respected(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        hook.answer_once(Answer::Later(429, "300".into()));
        let stream = stream(&user, &hook, false, true).await;
        let task = failing_task(&user, &[stream]).await;
        run(&app, &user, task).await;
        app.clock.advance_secs(299);
        app.worker().deliver_due().await.unwrap();
        assert_eq!(hook.received().len(), 1);
        app.clock.advance_secs(1);
        app.worker().deliver_due().await.unwrap();
        assert_eq!(hook.received().len(), 2);
        assert_eq!(notices(&user, "status=delivered").await.len(), 1);
    }

    async fn retry_after_applies_to_all_notices_of_a_stream(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        let stream = stream(&user, &hook, false, true).await;
        let (one, two) = (failing_task(&user, &[stream]).await, failing_task(&user, &[stream]).await);
        hook.answer_once(Answer::Later(429, "300".into()));
        for task in [one, two] {
            user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        }
        app.run_until_idle().await;
        assert_eq!(hook.received().len(), 1, "the second was not even tried");
        app.clock.advance_secs(299);
        app.worker().deliver_due().await.unwrap();
        assert_eq!(hook.received().len(), 1);
        app.clock.advance_secs(1);
        app.worker().deliver_due().await.unwrap();
        assert_eq!(hook.received().len(), 3);
    }

    async fn failures_before_a_stream_was_added_do_not_count_as_reported(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        let task = failing_task(&user, &[]).await;
        run(&app, &user, task).await;
        let stream = stream(&user, &hook, false, true).await;
        let heard = json!({"notification_stream_ids": [stream]});
        user.client.put(&format!("/api/backup-tasks/{task}"), heard).await.expect(200);
        run(&app, &user, task).await;
        let arrived = hook.take();
        assert_eq!(arrived.len(), 1);
        assert!(!arrived[0].json().to_string().contains("as reported before"));
    }

    async fn permanent_refusals_are_not_retried(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        hook.answer(Answer::Says(404, "no_service".into()));
        let stream = stream(&user, &hook, false, true).await;
        let task = failing_task(&user, &[stream]).await;
        run(&app, &user, task).await;
        let [notice] = notices(&user, "status=undelivered").await.try_into().unwrap();
        assert_eq!(notice["answer"], "The channel answered 404: no_service");
        assert_eq!(hook.received().len(), 1);
    }

    async fn only_administrators_reach_private_addresses_with_tests_and_notices(app: TestApp) {
        let user = app.user("ada").await;
        let hook = Receiver::start().await;
        let stream = stream(&user, &hook, true, true).await;
        let task = failing_task(&user, &[stream]).await;
        run(&app, &user, task).await;
        let [notice] = notices(&user, "").await.try_into().unwrap();
        assert_eq!(notice["status"], "pending", "the operator may open it");
        assert!(notice["answer"].as_str().unwrap().contains("HOLDFAST_EGRESS_ALLOW"));
        user.client.act(&format!("/api/notification-streams/{stream}/test")).await.expect(202);
        app.run_until_idle().await;
        let shown = user.client.get(&format!("/api/notification-streams/{stream}")).await.data(200);
        assert_eq!(shown["last_test"]["succeeded"], false);
        assert!(shown["last_test"]["message"].as_str().unwrap().contains("HOLDFAST_EGRESS_ALLOW"));
        assert!(hook.received().is_empty());
    }

    async fn a_test_sends_a_message_and_shows_the_response(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        hook.answer(Answer::Says(200, "ok".into()));
        let stream = stream(&user, &hook, false, false).await;
        user.client.act(&format!("/api/notification-streams/{stream}/test")).await.expect(202);
        app.run_until_idle().await;
        assert_eq!(titles(&hook), ["Test message from Holdfast"]);
        let shown = user.client.get(&format!("/api/notification-streams/{stream}")).await.data(200);
        assert_eq!(shown["last_test"]["succeeded"], true);
        assert_eq!(shown["last_test"]["message"], "The channel answered 200: ok");
        hook.answer(Answer::Status(500));
        user.client.act(&format!("/api/notification-streams/{stream}/test")).await.expect(202);
        app.run_until_idle().await;
        let shown = user.client.get(&format!("/api/notification-streams/{stream}")).await.data(200);
        assert_eq!(shown["last_test"]["message"], "The channel answered 500.");
    }

    async fn notices_of_quiet_hours_are_delivered_as_one_digest(app: TestApp) {
        let user = app.admin("ada").await;
        let (hook, other) = (Receiver::start().await, Receiver::start().await);
        let (one, two) = (stream(&user, &hook, false, true).await, stream(&user, &other, false, true).await);
        let quiet = json!({"quiet_hours": {"from": "22:00", "until": "07:00"}});
        let set = user.client.put("/api/notification-settings", quiet).await.data(200);
        assert_eq!(set, json!({"weekly_summary_enabled": false, "quiet_hours": {"from": "22:00", "until": "07:00"}}));
        let tasks = [failing_task(&user, &[one]).await, failing_task(&user, &[one]).await, failing_task(&user, &[two]).await];
        // Three failures with one cause would be one notice.
        let path = format!("/api/backup-tasks/{}", tasks[2]);
        let server = user.client.get(&path).await.data(200)["remote_server_id"].clone();
        let path = format!("/api/remote-servers/{server}");
        user.client.put(&path, json!({"ip_address": "nowhere.invalid"})).await.expect(200);
        app.clock.set("2025-03-04T03:00:01Z");
        app.run_until_idle().await;
        assert!(hook.received().is_empty() && other.received().is_empty());
        let held = notices(&user, "status=pending").await;
        assert_eq!(held.len(), tasks.len());
        assert!(held.iter().all(|notice| notice["next_try_at"] == "2025-03-04T07:00:00.000000Z"));
        app.clock.set("2025-03-04T07:00:00Z");
        app.run_until_idle().await;
        assert_eq!(titles(&hook), ["During quiet hours: 2 failures"]);
        assert_eq!(titles(&other), ["Backup failed: web files"], "one alone comes as it is");
        assert_eq!(notices(&user, "status=delivered").await.len(), 3);
        user.client.put("/api/notification-settings", json!({"quiet_hours": null})).await.expect(200);
        let shown = user.client.get("/api/notification-settings").await.data(200);
        assert_eq!(shown["quiet_hours"], Value::Null);
        for bad in [json!({"from": "22:00"}), json!({"from": "25:00", "until": "07:00"}), json!("night"), json!({"from": "07:00", "until": "07:00"})] {
            user.client.put("/api/notification-settings", json!({"quiet_hours": bad})).await.expect(422);
        }
    }

    async fn missed_backups_are_reported_by_the_next_worker(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        let stream = stream(&user, &hook, false, true).await;
        let mut body = user.task_body().await;
        body["frequency"] = json!("weekly");
        body["day_of_week"] = json!(2);
        body["notification_stream_ids"] = json!([stream]);
        let task = user.client.post("/api/backup-tasks", body).await.id(201);
        // No worker ran for three weeks.
        app.clock.set("2025-03-21T12:00:00Z");
        app.worker().tick().await.unwrap();
        app.worker().deliver_due().await.unwrap();
        let told = titles(&hook);
        assert_eq!(told, ["Backup missed: web files"]);
        run(&app, &user, task).await;
        assert_eq!(titles(&hook), ["Backup failed: web files"], "another reason than that nobody was there");
        let path = format!("/api/backup-tasks/{task}");
        user.client.act(&format!("{path}/pause")).await.expect(200);
        app.clock.set("2025-04-20T12:00:00Z");
        app.run_until_idle().await;
        assert!(hook.received().is_empty(), "nobody waits for a paused task");
        user.client.act(&format!("{path}/resume")).await.expect(200);
    }

    async fn a_task_without_success_is_overdue_once_a_day(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        let stream = stream(&user, &hook, false, true).await;
        let task = failing_task(&user, &[stream]).await;
        // Its slots meet a live run without progress, as when a worker hangs but still sends heartbeats.
        user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        app.clock.set("2025-03-04T14:59:59Z");
        app.worker().report_overdue().await.unwrap();
        app.worker().deliver_due().await.unwrap();
        assert!(hook.received().is_empty());
        app.clock.set("2025-03-04T15:00:00Z");
        app.worker().report_overdue().await.unwrap();
        app.worker().deliver_due().await.unwrap();
        assert_eq!(titles(&hook), ["Backup overdue: web files"], "twelve hours after its slot");
        for (time, count) in [("2025-03-05T14:00:00Z", 0), ("2025-03-05T15:00:00Z", 1), ("2025-03-05T16:00:00Z", 0)] {
            app.clock.set(time);
            app.worker().report_overdue().await.unwrap();
            app.worker().deliver_due().await.unwrap();
            assert_eq!(titles(&hook).len(), count, "{time}");
        }
    }

    async fn heartbeats_reach_external_monitoring(app: TestApp) {
        let admin = app.admin("ada").await;
        let hook = Receiver::start().await;
        let bench = Bench::of(app, SshServer::start(), admin).await;
        std::fs::write(bench.source().join("a"), "one").unwrap();
        let task = bench.task(json!({"heartbeat_url": hook.url("/ping/abc")})).await;
        let path = format!("/api/backup-tasks/{task}");
        let shown = bench.user.client.get(&path).await.data(200);
        assert_eq!(shown["has_heartbeat_url"], true);
        assert!(!shown.to_string().contains("/ping/"), "it is a secret");
        let paths = |hook: &Receiver| hook.take().into_iter().map(|received| received.path).collect::<Vec<_>>();
        bench.back_up(task).await;
        assert_eq!(paths(&hook), ["/ping/abc/start", "/ping/abc"]);
        std::fs::remove_dir_all(bench.source()).unwrap();
        bench.run(task).await;
        bench.run(task).await;
        let failed = ["/ping/abc/start", "/ping/abc/fail"];
        assert_eq!(paths(&hook), [failed, failed].concat(), "each time: who watches counts on it");
        // While the monitor is unreachable, only the newest ping matters.
        hook.answer(Answer::Status(503));
        bench.run(task).await;
        hook.take();
        bench.run(task).await;
        hook.answer(Answer::Status(200));
        hook.take();
        bench.app.clock.advance_secs(31);
        bench.app.run_until_idle().await;
        assert_eq!(paths(&hook), ["/ping/abc/fail"]);
        bench.user.client.put(&path, json!({"heartbeat_url": null})).await.expect(200);
        bench.run(task).await;
        assert!(hook.received().is_empty());
        bench.user.client.put(&path, json!({"heartbeat_url": "ftp://x"})).await.expect(422);
    }

    async fn damage_changed_host_keys_and_lost_destinations_are_reported(app: TestApp) {
        let admin = app.admin("ada").await;
        let hook = Receiver::start().await;
        let bench = Bench::of(app, SshServer::start(), admin).await;
        let user = &bench.user;
        let stream = stream(user, &hook, false, true).await;
        std::fs::write(bench.source().join("a"), "one").unwrap();
        let task = bench.task(json!({"notification_stream_ids": [stream]})).await;
        let backup = bench.back_up(task).await;
        std::fs::write(bench.stored_file(&backup), "rubbish").unwrap();
        bench.verify(&backup).await;
        assert_eq!(titles(&hook), ["Stored backup damaged: Web files"]);
        std::fs::remove_file(bench.stored_file(&backup)).unwrap();
        bench.verify(&backup).await;
        assert_eq!(titles(&hook), ["Stored backup damaged: Web files"]);

        let check = format!("/api/remote-servers/{}/check", bench.server);
        let set = async |body: Value| {
            user.client.put(&format!("/api/remote-servers/{}", bench.server), body).await.expect(200);
        };
        let checked = async || {
            user.client.act(&check).await.expect(202);
            bench.app.run_until_idle().await;
            titles(&hook)
        };
        set(json!({"port": 1})).await;
        assert_eq!(checked().await, ["Server unreachable: web"]);
        assert!(checked().await.is_empty(), "once is enough");
        set(json!({"port": bench.ssh.port()})).await;
        assert!(checked().await.is_empty());

        let folder = bench.stored_folder();
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::write(&folder, "not a folder").unwrap();
        user.client.act(&format!("/api/backup-destinations/{}/check", bench.destination)).await.expect(202);
        bench.app.run_until_idle().await;
        assert_eq!(titles(&hook), ["Destination unreachable: disk"]);
    }

    async fn expiring_tokens_are_reported_in_advance(app: TestApp) {
        use holdfast_app::tokens::{self, TokenRequest};
        use holdfast_core::scope::ScopeSet;
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        stream(&user, &hook, false, true).await;
        for (name, days) in [("deploy", 30), ("for today", 1)] {
            let expires_at = holdfast_core::clock::from_micros(app.app.now().as_microsecond() + days * 86_400_000_000);
            let request = TokenRequest { name: name.into(), scopes: ScopeSet::all(), expires_at: Some(expires_at) };
            tokens::create(&app.app, user.id, &Default::default(), &request).await.unwrap();
        }
        let look = async || {
            app.worker().tidy().await.unwrap();
            app.worker().deliver_due().await.unwrap();
            titles(&hook)
        };
        assert!(look().await.is_empty(), "a token for a day is no news on that day");
        app.clock.advance_secs(22 * 86_400);
        assert!(look().await.is_empty());
        app.clock.advance_secs(2 * 86_400);
        assert_eq!(look().await, ["API token expires soon: deploy"]);
        assert!(look().await.is_empty());
    }

    async fn deleting_a_stream_deletes_its_notices(app: TestApp) {
        let user = app.admin("ada").await;
        let hook = Receiver::start().await;
        hook.answer(Answer::Status(503));
        let stream = stream(&user, &hook, false, true).await;
        let task = failing_task(&user, &[stream]).await;
        run(&app, &user, task).await;
        assert_eq!(notices(&user, "status=pending").await.len(), 1);
        user.client.delete(&format!("/api/notification-streams/{stream}")).await.expect(200);
        assert!(notices(&user, "").await.is_empty());
    }
}

/// The event of a Slack message: the last word of its last block.
fn event_of(message: &Value) -> String {
    let blocks = message["blocks"].as_array().unwrap();
    let text = blocks.last().unwrap()["elements"][0]["text"].as_str().unwrap();
    text.rsplit(' ').next().unwrap().to_owned()
}

/// The weekly summary is sent to the user's own address, on Monday at eight in their time zone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_weekly_summary_follows_the_users_time_zone() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let mail = MailServer::start_open();
        let mut settings = Settings::default();
        settings.notify.smtp = holdfast_notify::Smtp::parse(&format!("smtp://127.0.0.1:{}?tls=none", mail.port()));
        settings.notify.mail_from = "Holdfast <backup@example.org>".to_owned();
        let app = TestApp::start_with(engine, settings).await;
        let user = app.user_in("ada", "Pacific/Auckland").await;
        let bench = Bench::of(app, SshServer::start(), user).await;
        let (app, user) = (&bench.app, &bench.user);
        let on = user.client.put("/api/notification-settings", json!({"weekly_summary_enabled": true})).await.data(200);
        assert_eq!(on["weekly_summary_enabled"], true);
        assert_eq!(user.client.get("/api/user").await.data(200)["account_settings"]["weekly_summary_enabled"], true);
        std::fs::write(bench.source().join("a"), "one").unwrap();
        let good = bench.task(json!({"label": "Good"})).await;
        bench.task(json!({"label": "Never ran", "frequency": "monthly", "day_of_month": 1})).await;
        // Monday the 3rd at 23:00 in Auckland.
        bench.back_up(good).await;
        let path = format!("/api/backup-tasks/{good}/pause");
        user.client.act(&path).await.expect(200);
        app.clock.set("2025-03-09T18:59:59Z");
        app.run_until_idle().await;
        assert!(mail.mails().is_empty());
        app.clock.set("2025-03-09T19:00:00Z");
        app.run_until_idle().await;
        let [sent] = mail.mails().try_into().unwrap();
        assert_eq!(sent.to, std::slice::from_ref(&user.email));
        assert!(sent.text.contains("Monday, 3 March 2025 to Sunday, 9 March 2025"), "{}", sent.text);
        assert!(sent.text.contains("Mon  1 successful, 0 failed"), "{}", sent.text);
        assert!(sent.text.contains("1 run succeeded, 100.0 % of all."), "{}", sent.text);
        assert!(sent.text.contains("Never ran\n  ! Nothing can be restored."), "{}", sent.text);
        assert!(sent.text.contains("Can be restored: Monday, 3 March 2025 23:00"), "{}", sent.text);
        assert_eq!(sent.pictures.len(), 1);
        app.run_until_idle().await;
        assert_eq!(mail.mails().len(), 1, "one a week");
        // Late, but of its own week: nobody worked for ten days.
        app.clock.set("2025-03-26T12:00:00Z");
        app.run_until_idle().await;
        let mails = mail.mails();
        assert_eq!(mails.len(), 2);
        assert!(mails[1].text.contains("Monday, 10 March 2025 to Sunday, 16 March 2025"), "{}", mails[1].text);
        user.client.put("/api/notification-settings", json!({"weekly_summary_enabled": false})).await.expect(200);
        app.clock.set("2025-04-26T12:00:00Z");
        app.run_until_idle().await;
        assert_eq!(mail.mails().len(), 2);
    }
}

/// Hanging channels delay only their own notices: others arrive in the meantime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_channels_do_not_delay_others() {
    const HANGING: usize = 150;
    let mut settings = Settings::default();
    settings.notify.limit = Duration::from_secs(60);
    // Three tasks fail here, and each stream is to get one notice.
    settings.work.incident_tasks = 0;
    let app = TestApp::start_with(Engine::Sqlite, settings).await;
    let (ada, bob) = (app.admin("ada").await, app.admin("bob").await);
    let (hanging, fine) = (Receiver::start().await, Receiver::start().await);
    hanging.answer(Answer::Hang);
    let mut tasks = Vec::new();
    for _ in 0..HANGING / 50 {
        let mut streams = Vec::new();
        for _ in 0..50 {
            streams.push(stream(&ada, &hanging, false, true).await);
        }
        tasks.push(failing_task(&ada, &streams).await);
    }
    let (worker, stop) = (app.worker(), CancellationToken::new());
    let told = stop.clone();
    let working = tokio::spawn(async move { worker.run(told).await });
    for task in tasks {
        ada.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
    }
    wait_for(async || (hanging.received().len() == HANGING).then_some(())).await;
    let stream = stream(&bob, &fine, false, true).await;
    let task = failing_task(&bob, &[stream]).await;
    bob.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
    wait_for(async || (notices(&bob, "status=delivered").await.len() == 1).then_some(())).await;
    let waiting = ada.client.get("/api/notices?status=pending&per_page=100").await.expect(200);
    assert_eq!(waiting["meta"]["total"], json!(HANGING));
    assert!(waiting["data"].as_array().unwrap().iter().all(|notice| notice["tries"] == 0), "none was given up for it");
    working.abort();
    stop.cancel();
}

/// Failures of a task whose retry never runs before its next slot are reported nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_never_runs_hides_no_failure() {
    let mut settings = Settings::default();
    settings.work.retry_after = Duration::from_secs(90);
    let app = TestApp::start_with(Engine::Sqlite, settings).await;
    let user = app.admin("ada").await;
    let hook = Receiver::start().await;
    let stream = stream(&user, &hook, false, true).await;
    let task = failing_task(&user, &[stream]).await;
    run(&app, &user, task).await;
    assert!(hook.received().is_empty(), "it will be tried again");
    app.clock.advance_secs(60);
    run(&app, &user, task).await;
    assert_eq!(titles(&hook), ["Backup failed: web files"], "this was the second try");
}

/// Every end of ten thousand runs is reported, without and with workers that die.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_ended_runs_are_reported() {
    all_ends_arrive(Engine::Sqlite, 10_000, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_ended_runs_are_reported_although_workers_die() {
    all_ends_arrive(Engine::Sqlite, 10_000, 12).await;
    all_ends_arrive(Engine::Postgres, 1_000, 5).await;
}

async fn all_ends_arrive(engine: Engine, ends: usize, crashes: usize) {
    let mut settings = Settings::default();
    settings.work.runs_at_once = 64;
    // All fail for one cause, and are nevertheless to be reported one by one.
    settings.work.incident_tasks = 0;
    settings.work.at_once =
        ConcurrencyLimits { per_server: 64, per_destination: 64, per_user: 64, checks_per_user: 100 };
    let app = TestApp::start_with(engine, settings).await;
    let user = app.admin("ada").await;
    let hook = Receiver::start().await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(stream(&user, &hook, false, true).await);
    }
    make_tasks(&app, &user, &streams, ends).await;
    app.clock.set("2025-03-04T03:00:01Z");

    let delivered = async || {
        let all = user.client.get("/api/notices?status=delivered&per_page=1").await.expect(200);
        all["meta"]["total"].as_u64().unwrap() as usize
    };
    let start = || {
        let (worker, stop) = (app.worker(), CancellationToken::new());
        let told = stop.clone();
        (tokio::spawn(async move { worker.run(told).await }), stop)
    };
    for crash in 0..crashes {
        let (worker, _) = start();
        // At another point each time, always while work is in progress.
        let until = (delivered().await + 7 + crash * 13).min(ends);
        pass_until(&app, async || hook.received().len() >= until).await;
        worker.abort();
        assert!(worker.await.is_err());
        // Its claims expire.
        app.clock.advance_secs(125);
    }
    let (worker, stop) = start();
    pass_until(&app, async || delivered().await >= ends).await;
    stop.cancel();
    worker.await.unwrap();

    let mut seen: HashMap<String, usize> = HashMap::new();
    for received in hook.take() {
        *seen.entry(event_of(&received.json())).or_default() += 1;
    }
    assert_eq!(seen.len(), ends, "each arrived");
    let twice: usize = seen.values().map(|count| count - 1).sum();
    // At most the notice that each stream was being sent when its worker died.
    assert!(twice <= crashes * streams.len(), "{twice} came twice, of {crashes} crashes");
    assert!(notices(&user, "status=pending").await.is_empty() && notices(&user, "status=undelivered").await.is_empty());
    let failed = user.client.get("/api/backup-task-logs?status=failed&per_page=1").await.expect(200);
    assert_eq!(failed["meta"]["total"], json!(ends), "each run ended once");
}

/// Advances the clock faster than real time, so that runs of dead workers are detected, but not so fast that a live
/// worker seems silent.
async fn pass_until(app: &TestApp, is_so: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(400);
    while !is_so().await {
        assert!(Instant::now() < deadline, "it did not happen");
        tokio::time::sleep(Duration::from_millis(200)).await;
        app.clock.advance_secs(4);
    }
}

/// Creates tasks that are all due now, fail at once, and have one stream each.
async fn make_tasks(app: &TestApp, user: &TestUser, streams: &[i64], count: usize) {
    use holdfast_core::input::{Errors, Input};
    use holdfast_core::task::TaskDraft;
    let (server, destination) = (user.server().await, user.destination().await);
    let mut tx = app.app.store.begin().await.unwrap();
    for number in 0..count {
        let input = Input::default()
            .with("remote_server_id", server)
            .with("backup_destination_id", destination)
            .with("label", format!("task {number}"))
            .with("type", "files")
            .with("source_path", "/srv")
            .with("frequency", "daily")
            .with("time_to_run_at", "03:00")
            .with("maximum_backups_to_keep", 1)
            .with("notification_stream_ids", vec![streams[number % streams.len()]]);
        let draft = TaskDraft::check(&mut Errors::default(), &input, None, false, app.app.now()).unwrap();
        let next = draft.settings.spec.schedule.next_after(app.app.now());
        holdfast_store::tasks::insert(&mut tx, user.id, &draft, next, app.app.now()).await.unwrap();
    }
    tx.commit().await.unwrap();
}
