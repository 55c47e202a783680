use holdfast_testkit::{TestApp, TestUser, on_both_engines};
use serde_json::{Value, json};

/// What a value that says nothing does to a field in an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The field keeps its value.
    Kept,
    /// It has no value, or the one that it has if nobody chooses one.
    Emptied,
    /// The request is refused, and the field keeps its value.
    Refused,
}

use Outcome::{Emptied, Kept, Refused};

/// A field, where responses show it, what it is when it is empty, and what null and an empty text do.
type Row = (&'static str, &'static str, Value, Outcome, Outcome);

/// A resource with a value in every field.
async fn create(user: &TestUser, list: &str, body: &Value) -> String {
    let id = user.client.post(list, body.clone()).await.id(201);
    format!("{list}/{id}")
}

async fn check_fields(user: &TestUser, list: &str, body: Value, rows: Vec<Row>) {
    for (field, pointer, empty, null, text) in rows {
        for (sent, expected) in [(Value::Null, null), (json!(""), text)] {
            let path = create(user, list, &body).await;
            let shown = async || user.client.get(&path).await.data(200).pointer(pointer).cloned().unwrap_or_default();
            let before = shown().await;
            assert_ne!(before, empty, "{list} {field} has a value");
            let status = user.client.put(&path, json!({field: sent})).await.status;
            let after = shown().await;
            let outcome = match status {
                422 if after == before => Refused,
                200 if after == before => Kept,
                200 if after == empty => Emptied,
                _ => panic!("{list} {field}: {sent} was answered with {status}; {before} is {after}"),
            };
            assert_eq!(outcome, expected, "{list} {field}: {sent}");
            user.client.delete(&path).await.expect(200);
        }
    }
}

on_both_engines! {
    async fn null_and_empty_texts_do_to_a_task_what_the_guide_says(app: TestApp) {
        let user = app.user("ada").await;
        let mut body = user.task_body().await;
        let task = json!({"label": "l", "description": "d", "source_path": "/srv", "excluded_paths": ["*.tmp"],
            "one_file_system": true, "frequency": "weekly", "time_to_run_at": "03:00", "day_of_week": 2,
            "timezone": "Europe/Berlin", "spread_minutes": 10, "maximum_backups_to_keep": 30,
            "store_path": "/offsite", "appended_filename": "web", "encryption_password": "secret", "paused": true,
            "heartbeat_url": "https://watch.example.org/x", "notification_stream_ids": [user.stream().await],
            "tag_ids": [user.tag().await]});
        body.as_object_mut().unwrap().extend(task.as_object().unwrap().clone());
        check_fields(&user, "/api/backup-tasks", body, vec![
            ("label", "/label", Value::Null, Refused, Refused),
            ("description", "/description", Value::Null, Emptied, Emptied),
            ("remote_server_id", "/remote_server_id", Value::Null, Refused, Refused),
            ("source_path", "/source/path", json!(""), Refused, Refused),
            ("excluded_paths", "/source/excluded_paths", json!([]), Emptied, Refused),
            ("one_file_system", "/source/one_file_system", json!(false), Refused, Refused),
            ("frequency", "/schedule/frequency", Value::Null, Refused, Refused),
            ("time_to_run_at", "/schedule/time_to_run_at", Value::Null, Refused, Refused),
            ("day_of_week", "/schedule/day_of_week", Value::Null, Kept, Refused),
            ("timezone", "/schedule/timezone", Value::Null, Emptied, Emptied),
            ("spread_minutes", "/schedule/spread_minutes", json!(0), Kept, Refused),
            ("maximum_backups_to_keep", "/storage/max_backups", json!(5), Kept, Refused),
            ("store_path", "/storage/path", json!("/"), Emptied, Emptied),
            ("appended_filename", "/storage/appended_filename", Value::Null, Emptied, Emptied),
            ("encryption_password", "/has_encryption_password", json!(false), Emptied, Refused),
            ("heartbeat_url", "/has_heartbeat_url", json!(false), Emptied, Refused),
            ("notification_stream_ids", "/notification_stream_ids", json!([]), Emptied, Refused),
            ("tag_ids", "/tag_ids", json!([]), Emptied, Refused),
            ("paused", "/paused_at", Value::Null, Refused, Refused),
        ]).await;
    }

    async fn null_and_empty_texts_do_to_other_resources_what_the_guide_says(app: TestApp) {
        let user = app.user("ada").await;
        let tag = json!({"label": "l", "description": "d", "colour": "#fff"});
        check_fields(&user, "/api/tags", tag, vec![
            ("label", "/label", Value::Null, Refused, Refused),
            ("description", "/description", Value::Null, Emptied, Emptied),
            ("colour", "/colour", Value::Null, Emptied, Emptied),
        ]).await;
        let server = json!({"label": "l", "ip_address": "192.0.2.1", "username": "u", "port": 2222,
            "database_username": "d", "database_password": "secret", "jump_server_id": user.server().await});
        check_fields(&user, "/api/remote-servers", server, vec![
            ("label", "/label", Value::Null, Refused, Refused),
            ("ip_address", "/connection/host", Value::Null, Refused, Refused),
            ("port", "/connection/port", json!(22), Kept, Refused),
            ("database_username", "/connection/database_username", Value::Null, Emptied, Emptied),
            ("database_password", "/connection/is_database_password_set", json!(false), Emptied, Refused),
            ("jump_server_id", "/connection/jump_server_id", Value::Null, Emptied, Refused),
        ]).await;
        let s3 = json!({"label": "l", "type": "s3", "s3_access_key": "k", "s3_secret_key": "s",
            "s3_bucket_name": "bucket", "s3_region": "eu-west-1", "path_style_endpoint": true});
        check_fields(&user, "/api/backup-destinations", s3, vec![
            ("label", "/label", Value::Null, Refused, Refused),
            ("s3_bucket_name", "/s3_bucket_name", Value::Null, Refused, Refused),
            ("s3_region", "/s3_region", Value::Null, Refused, Refused),
            ("path_style_endpoint", "/path_style_endpoint", json!(false), Refused, Refused),
        ]).await;
        let sftp = json!({"label": "l", "type": "sftp", "sftp_host": "box.example.org", "sftp_username": "u",
            "sftp_path": "/b", "sftp_port": 2222, "sftp_password": "secret"});
        check_fields(&user, "/api/backup-destinations", sftp, vec![
            ("sftp_port", "/sftp_port", json!(22), Kept, Refused),
            ("sftp_password", "/is_sftp_password_set", json!(false), Emptied, Refused),
        ]).await;
        let stream = json!({"label": "l", "type": "pushover", "value": "uQiRzpo4DXghDmr9QzzfQu27cmVRsG",
            "pushover_token": "azGDORePK8gMaC0QOYAMyEEuzJnyUi", "notifications": {"on_success": true}});
        check_fields(&user, "/api/notification-streams", stream, vec![
            ("label", "/label", Value::Null, Refused, Refused),
            ("pushover_token", "/has_pushover_token", json!(false), Emptied, Refused),
            ("notifications", "/notifications/on_success", json!(false), Refused, Refused),
        ]).await;
    }
}
