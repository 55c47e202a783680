use holdfast_store::audit::{self, EventRow};
use holdfast_testkit::{TestApp, TestUser, on_both_engines};
use serde_json::json;

/// The newest event of a user.
async fn newest(app: &TestApp, user: &TestUser) -> EventRow {
    let mut tx = app.app.store.read().await.unwrap();
    audit::list(&mut tx, Some(user.id), None, 1).await.unwrap().remove(0)
}

/// How many events a user has.
async fn count(app: &TestApp, user: &TestUser) -> usize {
    let mut tx = app.app.store.read().await.unwrap();
    audit::list(&mut tx, Some(user.id), None, 1000).await.unwrap().len()
}

on_both_engines! {
    async fn an_edit_is_recorded_with_its_old_and_new_values(app: TestApp) {
        let user = app.user("ada").await;
        let (stream, tag) = (user.stream().await, user.tag().await);
        let task = user.task().await;
        let path = format!("/api/backup-tasks/{task}");
        let edit = json!({"maximum_backups_to_keep": 2, "source_path": "/srv", "notification_stream_ids": [stream],
            "tag_ids": [tag], "heartbeat_url": "https://planted.example.org/x"});
        user.client.put(&path, edit.clone()).await.expect(200);
        let event = newest(&app, &user).await;
        assert_eq!(event.action, "backup_task.updated");
        let expected = format!("{task} \"web files\": source_path \"/var/www\" → \"/srv\", maximum_backups_to_keep 5 → 2, \
            notification_stream_ids [] → [{stream}], tag_ids [] → [{tag}], heartbeat_url changed");
        assert_eq!(event.detail, expected);
        assert!(event.actor.starts_with("token ") && event.address.is_some() && event.request_id.is_some());
        let before = count(&app, &user).await;
        user.client.put(&path, json!({"maximum_backups_to_keep": 2, "source_path": "/srv"})).await.expect(200);
        assert_eq!(count(&app, &user).await, before, "nothing changed");

        let stream_path = format!("/api/notification-streams/{stream}");
        user.client.put(&stream_path, json!({"notifications": {"on_failure": false}})).await.expect(200);
        assert_eq!(newest(&app, &user).await.detail, format!("{stream} \"mail\": notifications.on_failure true → false"));
        user.client.put(&format!("/api/tags/{tag}"), json!({"colour": "#fff"})).await.expect(200);
        assert_eq!(newest(&app, &user).await.detail, format!("{tag} \"production\": colour none → \"#fff\""));
        let server = user.server().await;
        user.client.put(&format!("/api/remote-servers/{server}"), json!({"label": "web-2"})).await.expect(200);
        assert_eq!(newest(&app, &user).await.detail, format!("{server} \"web-1\": label \"web-1\" → \"web-2\""));
        let destination = user.destination().await;
        user.client.put(&format!("/api/backup-destinations/{destination}"), json!({"label": "nas"})).await.expect(200);
        assert_eq!(newest(&app, &user).await.detail, format!("{destination} \"disk\": label \"disk\" → \"nas\""));
        let quiet = json!({"quiet_hours": {"from": "22:00", "until": "06:00"}, "weekly_summary_enabled": true});
        user.client.put("/api/notification-settings", quiet).await.expect(200);
        let event = newest(&app, &user).await;
        assert_eq!(event.action, "user.notification_settings_updated");
        let expected = "ada@example.org: weekly_summary_enabled false → true, quiet_hours none → \"22:00–06:00\"";
        assert_eq!(event.detail, expected);
    }

    async fn people_list_their_own_events_and_nobody_elses(app: TestApp) {
        let (user, other) = (app.user("ada").await, app.user("bob").await);
        user.tag().await;
        app.clock.advance_secs(60);
        let since = app.app.now();
        app.clock.advance_secs(60);
        user.client.delete("/api/tags/1").await.expect(200);
        other.tag().await;
        let all = user.client.get("/api/audit-events").await.expect(200);
        let actions: Vec<&str> = all["data"].as_array().unwrap().iter().map(|one| one["action"].as_str().unwrap()).collect();
        assert_eq!(actions, ["user.created", "token.created", "tag.created", "tag.deleted"]);
        assert_eq!(all["meta"]["total"], 4);
        assert!(all["data"].as_array().unwrap().iter().all(|one| one["user_id"] == user.id.0));
        let later = user.client.get(&format!("/api/audit-events?created_after={since}")).await.expect(200);
        assert_eq!((&later["meta"]["total"], &later["data"][0]["detail"]), (&json!(1), &json!("1 \"production\"")));
        user.client.get("/api/audit-events?created_after=yesterday").await.error_of("created_after");
    }

    async fn what_people_create_start_and_pause_is_recorded(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.task().await;
        let path = format!("/api/backup-tasks/{task}");
        for action in ["pause", "pause", "resume", "run"] {
            user.client.act(&format!("{path}/{action}")).await;
        }
        app.run_until_idle().await;
        let mut tx = app.app.store.read().await.unwrap();
        let mut events = audit::list(&mut tx, Some(user.id), None, 100).await.unwrap();
        events.reverse();
        let told: Vec<(&str, &str)> = events[2..].iter().map(|event| (&*event.action, &*event.detail)).collect();
        let (named, server, disk) = (format!("{task} \"web files\""), "1 \"web-1\"", "1 \"disk\"");
        let expected = [("remote_server.created", server), ("backup_destination.created", disk),
            ("backup_task.created", &*named), ("backup_task.paused", &*named), ("backup_task.resumed", &*named),
            ("backup_task.run_requested", &*named)];
        assert_eq!(told, expected);
    }
}
