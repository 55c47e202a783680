use holdfast_testkit::{Client, Reply, TestApp, on_both_engines};
use reqwest::Method;
use serde_json::{Value, json};

async fn send(client: &Client, method: Method, path: &str, header: (&str, &str), body: &Value) -> Reply {
    let request = client.request(method, path).bearer_auth(client.token()).header(header.0, header.1);
    client.finish(request.body(body.to_string())).await
}

on_both_engines! {
    async fn only_the_version_that_was_seen_is_changed_or_deleted(app: TestApp) {
        let user = app.user("ada").await;
        let paths = [
            format!("/api/backup-tasks/{}", user.task().await),
            format!("/api/remote-servers/{}", user.server().await),
            format!("/api/backup-destinations/{}", user.destination().await),
            format!("/api/notification-streams/{}", user.stream().await),
            format!("/api/tags/{}", user.tag().await),
        ];
        for path in &paths {
            let seen = user.client.get(path).await;
            let tag = seen.header("etag").unwrap_or_else(|| panic!("{path} has no version")).to_owned();
            let body = json!({"label": "first"});
            let changed = send(&user.client, Method::PUT, path, ("If-Match", &tag), &body).await;
            let newer = changed.header("etag").unwrap().to_owned();
            assert_ne!(newer, tag, "{path}");
            assert_eq!(changed.data(200)["label"], "first");
            for method in [Method::PUT, Method::PATCH, Method::DELETE] {
                let body = json!({"label": "second"});
                let refused = send(&user.client, method, path, ("If-Match", &tag), &body).await.expect(412);
                assert_eq!(refused["error"], "Precondition Failed");
            }
            let shown = user.client.get(path).await;
            assert_eq!(shown.header("etag"), Some(newer.as_str()), "{path}");
            assert_eq!(shown.data(200)["label"], "first", "{path}");
            // A list of versions, and any version at all.
            let list = format!("{tag}, {newer}");
            send(&user.client, Method::PATCH, path, ("If-Match", &list), &json!({"label": "third"})).await.expect(200);
            send(&user.client, Method::PATCH, path, ("If-Match", "*"), &json!({"label": "fourth"})).await.expect(200);
            // A weak version cannot be compared, and one without quotes is none.
            for wrong in [format!("W/{newer}"), newer.trim_matches('"').to_owned()] {
                let body = json!({"label": "fifth"});
                send(&user.client, Method::PUT, path, ("If-Match", &wrong), &body).await.expect(412);
            }
        }
        // Somebody else's resource stays theirs, whatever the version.
        let bob = app.user("bob").await;
        send(&bob.client, Method::DELETE, &paths[4], ("If-Match", "\"0\""), &Value::Null).await.expect(403);
        let tag = user.client.get(&paths[4]).await.header("etag").unwrap().to_owned();
        send(&user.client, Method::DELETE, &paths[4], ("If-Match", &tag), &Value::Null).await.expect(200);
    }

    async fn notification_settings_have_a_version_too(app: TestApp) {
        let user = app.user("ada").await;
        let path = "/api/notification-settings";
        let tag = user.client.get(path).await.header("etag").unwrap().to_owned();
        let quiet = json!({"quiet_hours": {"from": "22:00", "until": "07:00"}});
        send(&user.client, Method::PUT, path, ("If-Match", &tag), &quiet).await.expect(200);
        send(&user.client, Method::PUT, path, ("If-Match", &tag), &json!({"quiet_hours": null})).await.expect(412);
        assert_eq!(user.client.get(path).await.data(200)["quiet_hours"]["from"], "22:00");
    }

    async fn unknown_fields_are_refused_on_request(app: TestApp) {
        let user = app.user("ada").await;
        let strict = ("Prefer", "handling=strict");
        let body = json!({"label": "x", "color": "#fff"});
        let lenient = user.client.post("/api/tags", body.clone()).await;
        assert_eq!(lenient.header("preference-applied"), None);
        lenient.expect(201);
        let refused = send(&user.client, Method::POST, "/api/tags", strict, &body).await;
        assert_eq!(refused.header("preference-applied"), Some("handling=strict"));
        assert_eq!(refused.error_of("color"), "The color field is unknown.");
        send(&user.client, Method::POST, "/api/tags", strict, &json!({"label": "x", "colour": "#fff"})).await.expect(201);
        // Inside of an object, and read-only fields.
        let stream = format!("/api/notification-streams/{}", user.stream().await);
        let nested = json!({"notifications": {"on_succes": true}});
        let refused = send(&user.client, Method::PATCH, &stream, strict, &nested).await;
        assert_eq!(refused.error_of("notifications.on_succes"), "The notifications.on succes field is unknown.");
        let task = format!("/api/backup-tasks/{}", user.task().await);
        send(&user.client, Method::PUT, &task, strict, &json!({"status": "ready"})).await.expect(422);
        // Every spelling that is read otherwise is read then, too.
        let spelled = json!({"custom_cron_expression": "5 4 * * *", "excluded_paths": ["*.tmp"]});
        send(&user.client, Method::PUT, &task, strict, &spelled).await.expect(200);
    }

    async fn fields_of_another_type_are_refused_on_request(app: TestApp) {
        let user = app.user("ada").await;
        let strict = ("Prefer", "handling=strict");
        let text = |field: &str| format!("The {} field does not apply to this type.", field.replace('_', " "));
        let destinations = "/api/backup-destinations";
        let body = json!({"label": "x", "type": "local", "s3_bucket_name": "b", "custom_s3_region": "eu"});
        let disk = format!("{destinations}/{}", user.client.post(destinations, body.clone()).await.id(201));
        let refused = send(&user.client, Method::POST, destinations, strict, &body).await;
        for field in ["s3_bucket_name", "custom_s3_region"] {
            assert_eq!(refused.body["errors"][field][0], text(field), "under the name that was sent");
        }
        // The type of an update is the one that there is, or the new one.
        for body in [json!({"sftp_host": "nas"}), json!({"type": "sftp", "s3_bucket_name": "b"})] {
            send(&user.client, Method::PATCH, &disk, strict, &body).await.expect(422);
        }
        send(&user.client, Method::PATCH, &disk, strict, &json!({"label": "y", "sftp_host": null})).await.expect(200);
        let task = format!("/api/backup-tasks/{}", user.task().await);
        let refused = send(&user.client, Method::PUT, &task, strict, &json!({"database_name": "shop"})).await;
        assert_eq!(refused.error_of("database_name"), text("database_name"));
        let stream = json!({"label": "x", "type": "slack_webhook", "value": "https://example.org/x",
            "pushover_token": "t".repeat(30)});
        let refused = send(&user.client, Method::POST, "/api/notification-streams", strict, &stream).await;
        assert_eq!(refused.error_of("pushover_token"), text("pushover_token"));
    }
}
