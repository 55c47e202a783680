use holdfast_app::Origin;
use holdfast_app::accounts::{self, Keep};
use holdfast_core::Secret;
use holdfast_core::scope::Scope;
use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::{Value, json};

on_both_engines! {
    async fn a_new_task_has_the_shape_of_the_contract(app: TestApp) {
        let user = app.user_in("ada", "Europe/Berlin").await;
        let mut body = user.task_body().await;
        body["description"] = json!("all of it");
        body["maximum_backups_to_keep"] = json!(7);
        body["store_path"] = json!("/sites");
        let task = user.client.post("/api/backup-tasks", body.clone()).await.data(201);
        let expected = json!({
            "id": task["id"], "user_id": user.id.0, "remote_server_id": body["remote_server_id"],
            "backup_destination_id": body["backup_destination_id"], "label": "web files", "description": "all of it",
            "source": {"path": "/var/www", "type": "files", "database_name": null, "database_engine": null,
                "excluded_tables": null, "excluded_paths": [], "one_file_system": false},
            "schedule": {"frequency": "daily", "scheduled_utc_time": "03:00", "scheduled_local_time": "04:00",
                "custom_cron": null, "day_of_week": null, "day_of_month": null, "time_to_run_at": "03:00", "timezone": null,
                "spread_minutes": 0, "window_start": null, "window_end": null},
            "storage": {"max_backups": 7, "appended_filename": null, "path": "/sites", "format": "archive"},
            "notification_streams_count": 0, "notification_stream_ids": [], "tag_ids": [], "status": "ready",
            "has_encryption_password": false, "has_heartbeat_url": false, "last_run_local_time": null, "last_run_utc_time": null,
            "last_run": null,
            "protection": {"last_proven_at": null, "proven_by": null, "last_drill_id": null, "retention_held": false,
                "held_reason": null},
            "paused_at": null, "created_at": task["created_at"], "updated_at": task["updated_at"],
        });
        assert_eq!(task, expected);
        assert_eq!(user.client.get(&format!("/api/backup-tasks/{}", task["id"])).await.data(200), expected);
    }

    async fn a_schedule_follows_daylight_saving_time_of_its_zone(app: TestApp) {
        let user = app.user("ada").await;
        let mut body = user.task_body().await;
        body["timezone"] = json!("America/New_York");
        let task = user.client.post("/api/backup-tasks", body).await.data(201);
        let path = format!("/api/backup-tasks/{}", task["id"]);
        // It is 3 March: standard time in New York; the clocks change on the 9th.
        let schedule = &task["schedule"];
        assert_eq!((&schedule["time_to_run_at"], &schedule["timezone"]), (&json!("03:00"), &json!("America/New_York")));
        assert_eq!(schedule["scheduled_utc_time"], "08:00");
        let next = async || user.client.get("/api/backup-tasks/upcoming").await.expect(200)["data"][0]["next_run"].clone();
        assert!(next().await.as_str().unwrap().contains("2025-03-04T08:00:00"), "{}", next().await);
        let renamed = user.client.put(&path, json!({"label": "new"})).await.data(200);
        assert_eq!(renamed["schedule"], *schedule);
        let errors = user.client.put(&path, json!({"timezone": "Mars/Olympus"})).await.error_of("timezone");
        assert_eq!(errors, "The timezone field must be a valid timezone.");
        let spread = user.client.put(&path, json!({"spread_minutes": 30, "timezone": null})).await.data(200);
        assert_eq!((&spread["schedule"]["spread_minutes"], &spread["schedule"]["scheduled_utc_time"]), (&json!(30), &json!("03:00")));
        let shifted = next().await;
        let range = "2025-03-04T02:30:00".."2025-03-04T03:30:01";
        assert!(range.contains(&shifted.as_str().unwrap()), "{shifted}");
        user.client.put(&path, json!({"frequency": "daily"})).await.expect(200);
        assert_eq!(next().await, shifted, "the shift stays");
        let errors = user.client.put(&path, json!({"spread_minutes": 720})).await.error_of("spread_minutes");
        assert_eq!(errors, "The spread minutes field must be between 0 and 719.");
        let night = user.client.put(&path, json!({"window_start": "22:00", "window_end": "06:00"})).await.data(200);
        assert_eq!(night["schedule"]["window_start"], "22:00");
        assert_eq!(night["schedule"]["window_end"], "06:00");
        let half = user.client.put(&path, json!({"window_end": null})).await.error_of("window_end");
        assert_eq!(half, "The window end field is required.");
        let none = user.client.put(&path, json!({"window_end": "22:00"})).await.error_of("window_end");
        assert_eq!(none, "The window must not end when it begins.");
        let free = user.client.put(&path, json!({"window_start": null, "window_end": null})).await.data(200);
        assert_eq!(free["schedule"]["window_start"], Value::Null);
        let utc = user.client.put(&path, json!({"timezone": null, "spread_minutes": 0})).await.data(200);
        assert_eq!((&utc["schedule"]["timezone"], &utc["schedule"]["scheduled_utc_time"]), (&json!(null), &json!("03:00")));
        assert!(next().await.as_str().unwrap().contains("2025-03-04T03:00:00"), "{}", next().await);
    }

    async fn a_database_task_takes_all_its_fields_and_spellings(app: TestApp) {
        let user = app.user("ada").await;
        let (stream, tag) = (user.stream().await, user.tag().await);
        let mut body = user.task_body().await;
        for (name, value) in json!({
            "type": "database", "source_path": null, "database_name": "shop", "database_engine": "postgresql",
            "excluded_database_tables": "logs, sessions", "frequency": "weekly", "day_of_week": 0,
            "appended_file_name": "nightly", "encryption_password": "planted", "notification_stream_ids": [stream, stream],
            "tag_ids": [tag], "format": "archive", "maximum_backups_to_keep": 0,
        }).as_object().unwrap() {
            body[name] = value.clone();
        }
        let task = user.client.post("/api/backup-tasks", body).await.data(201);
        assert_eq!(task["source"], json!({"path": "", "type": "database", "database_name": "shop",
            "database_engine": "postgresql", "excluded_tables": "logs,sessions", "excluded_paths": [], "one_file_system": false}));
        assert_eq!(task["schedule"]["day_of_week"], 0);
        assert_eq!(task["storage"]["appended_filename"], "nightly");
        assert_eq!(task["storage"]["max_backups"], 0);
        assert_eq!((&task["notification_streams_count"], &task["notification_stream_ids"]), (&json!(1), &json!([stream])));
        assert_eq!(task["tag_ids"], json!([tag]));
        assert_eq!(task["has_encryption_password"], true);
        let path = format!("/api/backup-tasks/{}", task["id"]);
        let body = json!({"encryption_password": null, "notification_stream_ids": null});
        let cleared = user.client.put(&path, body).await.data(200);
        assert_eq!(cleared["has_encryption_password"], false);
        assert_eq!(cleared["notification_streams_count"], 0);
        assert_eq!(cleared["tag_ids"], json!([tag]), "what is not mentioned stays");
    }

    async fn resources_of_other_users_cannot_be_referenced(app: TestApp) {
        let (ada, eve) = (app.user("ada").await, app.user("eve").await);
        let (stream, tag) = (ada.stream().await, ada.tag().await);
        let mut body = ada.task_body().await;
        body["notification_stream_ids"] = json!([stream]);
        body["tag_ids"] = json!([tag]);
        let errors = eve.client.post("/api/backup-tasks", body.clone()).await.expect(422)["errors"].clone();
        assert_eq!(errors["remote_server_id"], json!(["The selected remote server is invalid."]));
        assert_eq!(errors["backup_destination_id"], json!(["The selected backup destination is invalid."]));
        assert_eq!(errors["notification_stream_ids"], json!(["The selected notification stream is invalid."]));
        assert_eq!(errors["tag_ids"], json!(["The selected tag is invalid."]));
        let own = format!("/api/backup-tasks/{}", eve.task().await);
        let stolen = json!({"remote_server_id": body["remote_server_id"]});
        eve.client.put(&own, stolen).await.expect(422);
    }

    async fn all_errors_of_a_body_are_reported_together(app: TestApp) {
        let user = app.user("ada").await;
        let body = json!({
            "remote_server_id": "1", "label": "", "type": "tape", "frequency": "yearly", "time_to_run_at": "3:00",
            "maximum_backups_to_keep": 1001, "store_path": "../x", "custom_cron": "61 * * * *", "format": "zip",
            "appended_filename": "a b", "day_of_week": 7, "tag_ids": [1.5], "excluded_paths": "x",
        });
        let errors = user.client.post("/api/backup-tasks", body.clone()).await.expect(422)["errors"].clone();
        let mut expected: Vec<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
        expected.push("backup_destination_id");
        expected.sort_unstable();
        let named: Vec<&str> = errors.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(named, expected);
    }

    async fn a_repository_needs_a_password(app: TestApp) {
        let user = app.user("ada").await;
        let path = format!("/api/backup-tasks/{}", user.task().await);
        let message = "The encryption password field is required when format is repository.";
        let refused = user.client.put(&path, json!({"format": "repository"})).await.expect(422);
        assert_eq!(refused["errors"], json!({"encryption_password": [message]}));
        let body = json!({"format": "repository", "encryption_password": "correct horse"});
        let task = user.client.put(&path, body).await.data(200);
        assert_eq!((&task["storage"]["format"], &task["has_encryption_password"]), (&json!("repository"), &json!(true)));
        user.client.put(&path, json!({"encryption_password": null})).await.expect(422);
        user.client.put(&path, json!({"label": "other"})).await.expect(200);
        user.client.put(&path, json!({"format": null, "encryption_password": null})).await.expect(200);
    }

    async fn a_cron_overrides_the_frequency(app: TestApp) {
        let user = app.user("ada").await;
        let mut body = user.task_body().await;
        for gone in ["frequency", "time_to_run_at"] {
            body.as_object_mut().unwrap().remove(gone);
        }
        body["custom_cron_expression"] = json!("30 4 * * 1");
        let task = user.client.post("/api/backup-tasks", body).await.data(201);
        assert_eq!(task["schedule"]["frequency"], "custom");
        assert_eq!(task["schedule"]["custom_cron"], "30 4 * * 1");
        assert_eq!(task["schedule"]["scheduled_utc_time"], "04:30");
        let upcoming = user.client.get("/api/backup-tasks/upcoming").await.data(200);
        assert_eq!(upcoming[0]["next_run"], "2025-03-10T04:30:00.000000Z");
    }

    async fn read_only_fields_cannot_be_set(app: TestApp) {
        let user = app.user("ada").await;
        let path = format!("/api/backup-tasks/{}", user.task().await);
        let before = user.client.get(&path).await.data(200);
        let body = json!({"status": "running", "paused_at": "2025-01-01T00:00:00Z", "user_id": 99, "id": 99,
            "last_run_utc_time": "2025-01-01T00:00:00Z", "created_at": "x", "surprise": true});
        let mut after = user.client.put(&path, body).await.data(200);
        after["updated_at"] = before["updated_at"].clone();
        assert_eq!(after, before);
    }

    async fn a_requested_run_is_queued_and_its_failure_is_reported(app: TestApp) {
        let user = app.user_in("ada", "Europe/Berlin").await;
        let path = format!("/api/backup-tasks/{}", user.task().await);
        let none = user.client.get(&format!("{path}/latest-log")).await.expect(404);
        assert_eq!(none, json!({"error": "Not Found", "message": "No logs found for this backup task."}));
        let body = user.client.act(&format!("{path}/run")).await.expect(202);
        assert_eq!(body, json!({"message": "Backup task initiated successfully.", "data": {"id": body["data"]["id"]}}));
        let status = user.client.get(&format!("{path}/status")).await.data(200);
        assert_eq!(status["status"], "running");
        let again = user.client.act(&format!("{path}/run")).await.expect(409);
        assert_eq!(again["message"], "This backup task is already running.");
        assert_eq!(user.client.delete(&path).await.expect(409)["error"], "Conflict");

        app.run_until_idle().await;
        let log = user.client.get(&format!("{path}/latest-log")).await.data(200);
        assert_eq!((&log["status"], &log["trigger"]), (&json!("failed"), &json!("manual")));
        assert_eq!(log["error_code"], "connect");
        assert!(log["output"].as_str().unwrap().contains("Check that the server runs"));
        let task = user.client.get(&path).await.data(200);
        assert_eq!(task["status"], "ready");
        assert_eq!(task["last_run_utc_time"], log["finished_at"]);
        assert!(task["last_run_local_time"].as_str().unwrap().starts_with("2025-03-03 11:00:00"));
    }

    async fn a_paused_task_neither_runs_nor_is_upcoming(app: TestApp) {
        let user = app.user("ada").await;
        let path = format!("/api/backup-tasks/{}", user.task().await);
        let paused = user.client.act(&format!("{path}/pause")).await.data(200);
        assert!(paused["paused_at"].is_string());
        assert_eq!(paused["status"], "ready");
        let again = user.client.act(&format!("{path}/pause")).await.data(200);
        assert_eq!(again["paused_at"], paused["paused_at"]);
        assert!(user.client.act(&format!("{path}/run")).await.expect(409)["message"].as_str().unwrap().contains("paused"));
        assert_eq!(user.client.get("/api/backup-tasks/upcoming").await.data(200), json!([]));
        let changed = user.client.put(&path, json!({"time_to_run_at": "05:00"})).await.data(200);
        assert!(changed["paused_at"].is_string());
        app.clock.advance_secs(5 * 24 * 3600);
        app.run_until_idle().await;
        user.client.get(&format!("{path}/latest-log")).await.expect(404);
        let resumed = user.client.act(&format!("{path}/resume")).await.data(200);
        assert_eq!(resumed["paused_at"], Value::Null);
        let upcoming = user.client.get("/api/backup-tasks/upcoming").await.data(200);
        assert_eq!(upcoming[0]["next_run"], "2025-03-09T05:00:00.000000Z");
    }

    async fn a_task_is_created_paused_and_resumed_with_other_changes(app: TestApp) {
        let user = app.user("ada").await;
        let mut body = user.task_body().await;
        body["paused"] = json!(true);
        let task = user.client.post("/api/backup-tasks", body.clone()).await.data(201);
        assert_eq!((&task["paused_at"], &task["updated_at"]), (&task["created_at"], &task["created_at"]));
        assert_eq!(user.client.get("/api/backup-tasks/upcoming").await.data(200), json!([]));
        let path = format!("/api/backup-tasks/{}", task["id"]);
        app.clock.advance_secs(5 * 24 * 3600);
        app.run_until_idle().await;
        user.client.get(&format!("{path}/latest-log")).await.expect(404);
        let renamed = user.client.put(&path, json!({"label": "renamed", "paused": true})).await.data(200);
        assert_eq!(renamed["paused_at"], task["paused_at"]);
        let resumed = user.client.put(&path, json!({"time_to_run_at": "05:00", "paused": false})).await.data(200);
        assert_eq!(resumed["paused_at"], Value::Null);
        let upcoming = user.client.get("/api/backup-tasks/upcoming").await.data(200);
        assert_eq!(upcoming[0]["next_run"], "2025-03-09T05:00:00.000000Z");
        let paused = user.client.put(&path, json!({"paused": true})).await.data(200);
        assert!(paused["paused_at"].is_string());
        assert_eq!(user.client.get("/api/backup-tasks/upcoming").await.data(200), json!([]));
        assert_eq!(user.client.put(&path, json!({"paused": 1})).await.error_of("paused"),
            "The paused field must be true or false.");
    }

    async fn a_queued_run_can_be_cancelled(app: TestApp) {
        let user = app.user("ada").await;
        let path = format!("/api/backup-tasks/{}", user.task().await);
        user.client.act(&format!("{path}/cancel")).await.expect(409);
        user.client.act(&format!("{path}/run")).await.expect(202);
        user.client.act(&format!("{path}/cancel")).await.expect(200);
        let log = user.client.get(&format!("{path}/latest-log")).await.data(200);
        assert_eq!(log["status"], "cancelled");
        assert_eq!(user.client.get(&format!("{path}/status")).await.data(200)["status"], "ready");
    }

    async fn a_due_slot_becomes_one_run(app: TestApp) {
        let user = app.user("ada").await;
        let path = format!("/api/backup-tasks/{}", user.task().await);
        app.run_until_idle().await;
        app.clock.set("2025-03-04T03:00:01Z");
        app.run_until_idle().await;
        app.run_until_idle().await;
        let logs = user.client.get(&format!("{path}/logs")).await.expect(200);
        assert_eq!(logs["meta"]["total"], 1);
        assert_eq!(logs["data"][0]["trigger"], "schedule");
        // After three days without a worker, only the newest slot is caught up.
        app.clock.set("2025-03-07T09:00:00Z");
        app.run_until_idle().await;
        let logs = user.client.get(&format!("{path}/logs")).await.expect(200);
        let code = |number: usize| logs["data"][number]["error_code"].as_str().unwrap().to_owned();
        assert_eq!(logs["meta"]["total"], 4);
        assert_eq!((code(1), code(2)), ("missed".to_owned(), "missed".to_owned()));
        assert_eq!(logs["data"][3]["trigger"], "catch-up");
        let upcoming = user.client.get("/api/backup-tasks/upcoming").await.data(200);
        assert_eq!(upcoming[0]["next_run"], "2025-03-08T03:00:00.000000Z");
    }

    async fn upcoming_is_soonest_first_and_in_the_users_zone(app: TestApp) {
        let user = app.user_in("ada", "Europe/Berlin").await;
        let mut body = user.task_body().await;
        for time in ["18:00", "12:00"] {
            body["time_to_run_at"] = json!(time);
            body["label"] = json!(format!("at {time}"));
            user.client.post("/api/backup-tasks", body.clone()).await.expect(201);
        }
        let upcoming = user.client.get("/api/backup-tasks/upcoming").await.expect(200);
        assert_eq!(upcoming.as_object().unwrap().keys().collect::<Vec<_>>(), ["data"]);
        assert_eq!(upcoming["data"][0]["label"], "at 12:00");
        assert_eq!(upcoming["data"][0]["type"], "Files");
        assert!(upcoming["data"][0]["backup_task_id"].is_string());
        assert_eq!(upcoming["data"][0]["next_run_human"], "Monday, 3 March 2025 13:00");
        let one = user.client.get("/api/backup-tasks/upcoming?limit=1").await.data(200);
        assert_eq!(one.as_array().unwrap().len(), 1);
        user.client.get("/api/backup-tasks/upcoming?limit=0").await.expect(422);
    }

    async fn a_trigger_url_starts_the_task_for_whoever_has_its_secret(app: TestApp) {
        let user = app.user("ada").await;
        let id = user.task().await;
        let anyone = app.client();
        let hook = format!("/webhooks/backup-tasks/{id}/run");
        anyone.act(&hook).await.expect(404);
        let rotate = format!("/api/backup-tasks/{id}/trigger-url");
        let first = user.client.act(&rotate).await.data(200);
        assert_eq!(first["url"], format!("{}{hook}", app.base_url));
        let secret = first["secret"].as_str().unwrap();
        anyone.act(&format!("{hook}?secret=wrong")).await.expect(404);
        anyone.act(&format!("{hook}?secret={secret}")).await.expect(202);
        app.run_until_idle().await;
        let log = user.client.get(&format!("/api/backup-tasks/{id}/latest-log")).await.data(200);
        assert_eq!(log["trigger"], "webhook");
        let second = user.client.act(&rotate).await.data(200);
        anyone.act(&format!("{hook}?secret={secret}")).await.expect(404);
        let request = anyone.request(reqwest::Method::POST, &hook);
        let request = request.header("X-Holdfast-Secret", second["secret"].as_str().unwrap());
        anyone.finish(request).await.expect(202);
    }

    async fn creating_a_trigger_url_requires_the_rights_to_change_and_run_the_task(app: TestApp) {
        let user = app.user("ada").await;
        let rotate = format!("/api/backup-tasks/{}/trigger-url", user.task().await);
        for (own, lacking) in
            [(Scope::UpdateBackupTasks, Scope::RunBackupTasks), (Scope::RunBackupTasks, Scope::UpdateBackupTasks)]
        {
            let refused = app.scoped(user.id, own).await.act(&rotate).await.expect(403);
            assert!(refused["message"].as_str().unwrap().contains(lacking.as_str()), "{refused}");
        }
        let both = app.token(user.id, [Scope::UpdateBackupTasks, Scope::RunBackupTasks].into_iter().collect()).await;
        both.act(&rotate).await.data(200);
    }

    async fn a_new_password_removes_trigger_urls_unless_tokens_are_kept(app: TestApp) {
        let (ada, eve) = (app.user("ada").await, app.user("eve").await);
        let mut hooks = Vec::new();
        for user in [&ada, &ada, &eve] {
            let id = user.task().await;
            let made = user.client.act(&format!("/api/backup-tasks/{id}/trigger-url")).await.data(200);
            hooks.push(format!("/webhooks/backup-tasks/{id}/run?secret={}", made["secret"].as_str().unwrap()));
        }
        let anyone = app.client();
        let reset = async |password: &str, keep: Keep| {
            let password = Secret::new(password);
            accounts::reset_password(&app.app, &Origin::default(), ada.id, &password, keep).await.unwrap()
        };
        let kept = reset("the second password", Keep { tokens: true, ..Keep::default() }).await;
        assert_eq!(kept.triggers, None);
        anyone.act(&hooks[0]).await.expect(202);
        app.run_until_idle().await;
        let ended = reset("the third password", Keep::default()).await;
        assert_eq!(ended.triggers, Some(2));
        assert!(ended.to_string().contains("trigger URLs removed: 2"), "{ended}");
        for hook in &hooks[..2] {
            anyone.act(hook).await.expect(404);
        }
        anyone.act(&hooks[2]).await.expect(202);
    }
}
