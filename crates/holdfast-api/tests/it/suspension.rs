use holdfast_app::{Origin, health, suspension};
use holdfast_store::users::{self, UserRow};
use holdfast_testkit::{PASSWORD, TestApp, TestUser, on_both_engines};
use serde_json::json;

const DAY_SECS: i64 = 86_400;

async fn account(app: &TestApp, user: &TestUser) -> UserRow {
    users::find(&mut app.app.store.read().await.unwrap(), user.id).await.unwrap().unwrap()
}

async fn suspend(app: &TestApp, user: &TestUser) -> usize {
    suspension::suspend(&app.app, &Origin::default(), &account(app, user).await).await.unwrap()
}

async fn resume(app: &TestApp, user: &TestUser) {
    suspension::resume(&app.app, &Origin::default(), &account(app, user).await).await.unwrap();
}

on_both_engines! {
    async fn nobody_signs_in_to_a_suspended_account_and_nothing_of_it_starts(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.task().await;
        let path = format!("/api/backup-tasks/{task}");
        let secret = user.client.act(&format!("{path}/trigger-url")).await.data(200)["secret"].as_str().unwrap().to_owned();
        user.client.act(&format!("{path}/run")).await.expect(202);
        assert_eq!(suspend(&app, &user).await, 1, "the queued run is cancelled");

        user.client.get("/api/user").await.expect(401);
        let body = json!({"email": user.email, "password": PASSWORD, "device_name": "phone"});
        let refused = app.client().post("/api/device-auth/token", body.clone()).await.error_of("email");
        assert!(refused.contains("suspended"), "{refused}");
        let wrong = json!({"email": user.email, "password": "not this one", "device_name": "phone"});
        let refused = app.client().post("/api/device-auth/token", wrong).await.error_of("email");
        assert!(!refused.contains("suspended"), "said only to who knows the password");
        let hook = format!("/webhooks/backup-tasks/{task}/run?secret={secret}");
        let told = app.client().act(&hook).await.expect(409);
        assert!(told["message"].as_str().unwrap().contains("suspended"), "{told}");
        app.clock.advance_secs(3 * DAY_SECS);
        app.run_until_idle().await;
        app.worker().report_overdue().await.unwrap();
        let figures = health::render_figures(&app.app).await;
        let expected = ["tasks{state=\"overdue\"} 0", "tasks{state=\"suspended\"} 1", "tasks_without_success 0",
            "scheduler_lag_seconds 0"];
        for line in expected {
            assert!(figures.contains(&format!("\nholdfast_{line}\n")), "{line}: {figures}");
        }
        let work = health::check_work(&app.app, 3).await.unwrap();
        assert_eq!(work.tasks.unwrap(), "0 in all, 0 paused, none failing, and 1 of suspended accounts");

        resume(&app, &user).await;
        app.run_until_idle().await;
        let logs = user.client.get("/api/backup-task-logs").await.expect(200);
        assert_eq!(logs["meta"]["total"], 1, "nothing is caught up: {logs}");
        assert_eq!(logs["data"][0]["status"], "cancelled");
        assert_eq!(user.client.get("/api/notices").await.expect(200)["meta"]["total"], 0);
        let upcoming = user.client.get("/api/backup-tasks/upcoming").await.data(200);
        assert_eq!(upcoming[0]["next_run"], "2025-03-07T03:00:00.000000Z");
        app.clock.advance_secs(DAY_SECS);
        app.run_until_idle().await;
        assert_eq!(user.client.get("/api/backup-task-logs").await.expect(200)["meta"]["total"], 2);
        app.client().post("/api/device-auth/token", body).await.expect(200);
    }

    async fn a_suspended_account_gets_no_summary(app: TestApp) {
        let user = app.user("ada").await;
        user.client.put("/api/notification-settings", json!({"weekly_summary_enabled": true})).await.expect(200);
        suspend(&app, &user).await;
        app.clock.advance_secs(8 * DAY_SECS);
        app.run_until_idle().await;
        resume(&app, &user).await;
        app.run_until_idle().await;
        assert_eq!(user.client.get("/api/notices").await.expect(200)["meta"]["total"], 0, "not even later");
        app.clock.advance_secs(7 * DAY_SECS);
        app.run_until_idle().await;
        let notices = user.client.get("/api/notices").await.expect(200);
        assert_eq!((&notices["meta"]["total"], &notices["data"][0]["kind"]), (&json!(1), &json!("weekly_summary")));
    }

    async fn a_task_that_is_due_when_its_account_is_suspended_does_not_run(app: TestApp) {
        let (user, other) = (app.user("ada").await, app.user("bob").await);
        let (task, others) = (user.task().await, other.task().await);
        suspend(&app, &user).await;
        // Whatever else writes a time, such as a change that was under way.
        let mut tx = app.app.store.begin().await.unwrap();
        let row = holdfast_store::tasks::find(&mut tx, task.into()).await.unwrap().unwrap();
        let now = app.app.now();
        holdfast_store::tasks::update_pause(&mut tx, &row, None, Some(now), now).await.unwrap();
        tx.commit().await.unwrap();
        app.clock.advance_secs(DAY_SECS);
        app.run_until_idle().await;
        resume(&app, &user).await;
        for (client, task, runs) in [(&user.client, task, 0), (&other.client, others, 1)] {
            let logs = client.get(&format!("/api/backup-task-logs?backup_task_id={task}")).await.expect(200);
            assert_eq!(logs["meta"]["total"], runs, "{logs}");
        }
    }

    async fn the_last_administrator_cannot_be_suspended(app: TestApp) {
        let (ada, bob) = (app.admin("ada").await, app.admin("bob").await);
        suspend(&app, &bob).await;
        let refused = suspension::suspend(&app.app, &Origin::default(), &account(&app, &ada).await).await.unwrap_err();
        assert!(refused.to_string().contains("only administrator"), "{refused}");
        let twice = suspension::suspend(&app.app, &Origin::default(), &account(&app, &bob).await).await.unwrap_err();
        assert!(twice.to_string().contains("suspended"), "{twice}");
        ada.client.get("/api/user").await.expect(200);
    }
}
