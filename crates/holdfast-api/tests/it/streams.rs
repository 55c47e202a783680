use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::json;

on_both_engines! {
    async fn a_stream_has_the_shape_of_the_contract(app: TestApp) {
        let user = app.user("ada").await;
        let body = json!({
            "label": "ops", "type": "discord", "value": "https://hooks.example.org/secret",
            "notifications": {"on_success": true, "on_failure": false},
        });
        let stream = user.client.post("/api/notification-streams", body).await.data(201);
        let expected = json!({
            "id": stream["id"], "user_id": user.id.0, "label": "ops", "type": "discord", "type_human": "Discord",
            "notifications": {"on_success": true, "on_failure": false}, "has_pushover_token": false, "last_test": null,
            "last_delivery": null,
            "created_at": stream["created_at"], "updated_at": stream["updated_at"],
        });
        assert_eq!(stream, expected);
    }

    async fn failures_only_is_the_default_and_webhook_spellings_are_understood(app: TestApp) {
        let user = app.user("ada").await;
        for (sent, kept) in [("slack_webhook", "slack"), ("teams_webhook", "teams"), ("discord_webhook", "discord")] {
            let body = json!({"label": "x", "type": sent, "value": "http://127.0.0.1:1/hook"});
            let stream = user.client.post("/api/notification-streams", body).await.data(201);
            assert_eq!(stream["type"], kept);
            assert_eq!(stream["notifications"], json!({"on_success": false, "on_failure": true}));
        }
    }

    async fn errors_are_worded_as_in_the_contract(app: TestApp) {
        let user = app.user("ada").await;
        let post = async |body| user.client.post("/api/notification-streams", body).await;
        let bad_type = post(json!({"label": "x", "type": "fax", "value": "y"})).await;
        assert_eq!(bad_type.error_of("type"), "The selected type is invalid.");
        let body = post(json!({})).await.expect(422);
        for field in ["label", "type", "value"] {
            assert_eq!(body["errors"][field][0], format!("The {field} field is required."));
        }
        let long = post(json!({"label": "x".repeat(256), "type": "email", "value": "a@example.org"})).await;
        assert_eq!(long.error_of("label"), "The label field must not be greater than 255 characters.");
        let flags = post(json!({"label": "x", "type": "email", "value": "a@example.org", "notifications": 5})).await;
        assert_eq!(flags.error_of("notifications"), "The notifications field must be an object.");
        let flag = json!({"label": "x", "type": "email", "value": "a@example.org", "notifications": {"on_success": 1}});
        assert_eq!(
            post(flag).await.error_of("notifications.on_success"),
            "The notifications.on success field must be true or false."
        );
    }

    async fn updates_are_partial_and_a_new_type_needs_a_new_value(app: TestApp) {
        let user = app.user("ada").await;
        let path = format!("/api/notification-streams/{}", user.stream().await);
        let stream = user.client.put(&path, json!({"notifications": {"on_success": true}})).await.data(200);
        assert_eq!(stream["notifications"], json!({"on_success": true, "on_failure": true}));
        assert_eq!(stream["label"], "mail");
        let refused = user.client.put(&path, json!({"type": "slack"})).await;
        assert_eq!(refused.error_of("value"), "The value field is required.");
        let body = json!({"type": "pushover", "value": "u".repeat(30), "pushover_token": "a".repeat(30)});
        let stream = user.client.put(&path, body).await.data(200);
        assert_eq!((&stream["type_human"], &stream["has_pushover_token"]), (&json!("Pushover"), &json!(true)));
        let stream = user.client.put(&path, json!({"pushover_token": null})).await.data(200);
        assert_eq!(stream["has_pushover_token"], false);
    }

    async fn a_test_that_cannot_be_sent_says_so(app: TestApp) {
        let user = app.user("ada").await;
        let path = format!("/api/notification-streams/{}", user.stream().await);
        let body = user.client.act(&format!("{path}/test")).await.expect(202);
        assert_eq!(body["message"], "Notification stream test initiated successfully.");
        app.run_until_idle().await;
        let stream = user.client.get(&path).await.data(200);
        assert_eq!(stream["last_test"]["succeeded"], false);
        assert!(stream["last_test"]["message"].as_str().unwrap().contains("HOLDFAST_SMTP_URL"));
    }
}
