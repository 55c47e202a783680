use holdfast_core::queue::{ConcurrencyLimits, LongRunCapacity};
use holdfast_store::queue::Capacity;
use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::{Value, json};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

on_both_engines! {
    async fn each_type_shows_its_own_fields_and_never_a_key(app: TestApp) {
        let user = app.user("ada").await;
        let post = async |body| user.client.post("/api/backup-destinations", body).await.data(201);
        let s3 = post(json!({
            "label": "aws", "type": "s3", "s3_access_key": "AKIA", "s3_secret_key": "shh", "s3_bucket_name": "bucket",
            "custom_s3_region": "eu-west-1",
        })).await;
        assert_eq!(s3["type_human"], "S3");
        assert_eq!((&s3["s3_region"], &s3["path_style_endpoint"]), (&json!("eu-west-1"), &json!(false)));
        assert!(!keys(&s3).contains(&"s3_endpoint"));
        let custom = post(json!({
            "label": "minio", "type": "custom_s3", "s3_access_key": "AKIA", "s3_secret_key": "shh",
            "s3_bucket_name": "bucket", "custom_s3_endpoint": "http://127.0.0.1:9000",
        })).await;
        assert_eq!(custom["type_human"], "Custom S3");
        assert_eq!(custom["s3_endpoint"], "http://127.0.0.1:9000");
        assert_eq!(custom["path_style_endpoint"], true);
        assert!(!keys(&custom).contains(&"s3_region") && !keys(&s3).contains(&"custom_s3_region"));
        assert_eq!(custom["custom_s3_region"], "us-east-1");
        let local = post(json!({"label": "disk", "type": "local", "s3_bucket_name": "ignored"})).await;
        assert_eq!(local["type_human"], "Local");
        let own = ["created_at", "error_code", "id", "label", "last_checked_at", "last_error", "status", "type", "type_human",
            "updated_at", "user_id"];
        assert_eq!(keys(&local), own);
        for destination in [&s3, &custom, &local] {
            assert!(!destination.to_string().contains("shh") && !destination.to_string().contains("AKIA"));
        }
    }

    async fn another_type_needs_the_fields_of_the_new_one(app: TestApp) {
        let user = app.user("ada").await;
        let path = format!("/api/backup-destinations/{}", user.destination().await);
        let body = user.client.put(&path, json!({"type": "custom_s3"})).await.expect(422);
        for field in ["s3_access_key", "s3_secret_key", "s3_bucket_name", "custom_s3_endpoint"] {
            assert!(body["errors"][field].is_array(), "{field}");
        }
        let all = json!({"type": "s3", "s3_access_key": "k", "s3_secret_key": "s", "s3_bucket_name": "bucket"});
        let s3 = user.client.put(&path, all).await.data(200);
        assert_eq!(s3["s3_region"], "us-east-1");
        let mut tx = app.app.store.begin().await.unwrap();
        let id = holdfast_core::ids::DestinationId(s3["id"].as_i64().unwrap());
        let now = app.app.now();
        holdfast_store::destinations::update_check(&mut tx, id, None, now).await.unwrap();
        tx.commit().await.unwrap();
        let renamed = user.client.put(&path, json!({"label": "renamed"})).await.data(200);
        assert_eq!(renamed["status"], "reachable");
        let bucket = |name: &str| json!({"s3_bucket_name": name, "s3_access_key": "k", "s3_secret_key": "s"});
        let moved = user.client.put(&path, bucket("another")).await.data(200);
        assert_eq!((&moved["status"], &moved["last_checked_at"]), (&json!("unknown"), &Value::Null));
        user.client.put(&path, bucket("bucket")).await.expect(200);
        assert_eq!((&renamed["label"], &renamed["s3_bucket_name"]), (&json!("renamed"), &json!("bucket")));
        let local = user.client.put(&path, json!({"type": "local"})).await.data(200);
        assert!(!keys(&local).contains(&"s3_bucket_name"));
    }

    async fn changing_the_connection_of_a_destination_requires_its_keys_again(app: TestApp) {
        let user = app.user("ada").await;
        let old = "https://s3.example.org";
        let body = json!({"label": "minio", "type": "custom_s3", "s3_access_key": "AKIA", "s3_secret_key": "planted",
            "s3_bucket_name": "bucket", "custom_s3_endpoint": old});
        let id = user.client.post("/api/backup-destinations", body).await.id(201);
        let path = format!("/api/backup-destinations/{id}");
        let changes = [
            json!({"custom_s3_endpoint": "https://evil.example.org"}),
            json!({"custom_s3_endpoint": "http://s3.example.org"}),
            json!({"custom_s3_endpoint": "https://evil.example.org", "s3_access_key": "EVIL"}),
            json!({"s3_bucket_name": "another"}),
            json!({"s3_region": "eu-west-1"}),
            json!({"path_style_endpoint": false}),
        ];
        for change in &changes {
            for method in [reqwest::Method::PUT, reqwest::Method::PATCH] {
                let reply = user.client.send(method, &path, Some(change.to_string())).await;
                let told = reply.expect(422)["errors"]["s3_secret_key"][0].as_str().unwrap().to_owned();
                assert!(told.contains("give both keys again"), "{change} {told}");
            }
        }
        assert_eq!(user.client.get(&path).await.data(200)["s3_endpoint"], old);
        user.client.put(&path, json!({"label": "renamed", "custom_s3_endpoint": format!("{old}/")})).await.expect(200);

        let body = json!({"custom_s3_endpoint": "https://s3.example.com", "s3_access_key": "k", "s3_secret_key": "s"});
        user.client.put(&path, body).await.expect(200);
        let mut tx = app.app.store.read().await.unwrap();
        let events = holdfast_store::audit::list(&mut tx, Some(user.id), None, 100).await.unwrap();
        let moves: Vec<String> =
            events.into_iter().filter(|event| event.action == "backup_destination.moved").map(|event| event.detail).collect();
        let expected = format!("{id} bucket at {old}/ (us-east-1, bucket in the path) to bucket at https://s3.example.com ");
        assert!(moves.iter().any(|detail| detail.starts_with(&expected)), "{moves:?}");
        assert!(moves.iter().all(|detail| !detail.contains("planted") && !detail.contains("AKIA")));
    }

    async fn deleting_a_destination_in_use_is_refused(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.client.get(&format!("/api/backup-tasks/{}", user.task().await)).await.data(200);
        let path = format!("/api/backup-destinations/{}", task["backup_destination_id"]);
        let body = user.client.delete(&path).await.expect(409);
        assert_eq!(body["error"], "Conflict");
        assert!(body["message"].as_str().unwrap().contains("1 backup task"));
        user.client.get(&path).await.expect(200);
        user.client.delete(&format!("/api/backup-tasks/{}", task["id"])).await.expect(200);
        let body = user.client.delete(&path).await.expect(200);
        assert_eq!(body["message"], "Backup destination successfully deleted");
    }

    async fn a_destination_is_not_moved_while_a_run_uses_it(app: TestApp) {
        let user = app.user("ada").await;
        let sftp = json!({
            "label": "nas", "type": "sftp", "sftp_host": "192.0.2.1", "sftp_username": "backup", "sftp_path": "/one",
        });
        let id = user.client.post("/api/backup-destinations", sftp).await.id(201);
        let path = format!("/api/backup-destinations/{id}");
        user.client.act(&format!("{path}/check")).await.expect(202);
        let mut tx = app.app.store.begin().await.unwrap();
        let limits = ConcurrencyLimits { per_server: 1, per_destination: 9, per_user: 1, checks_per_user: 1 };
        let places = LongRunCapacity { free: 1, reserved: 0 };
        let (room, now) = (Capacity { long: places, short: 1 }, app.app.now());
        let claimed = holdfast_store::queue::claim(&mut tx, "worker", room, limits, now, now).await;
        assert_eq!(claimed.unwrap().len(), 1);
        tx.commit().await.unwrap();
        let body = user.client.put(&path, json!({"sftp_path": "/two"})).await.expect(409);
        assert!(body["message"].as_str().unwrap().contains("A run is using this backup destination"), "{body}");
        user.client.put(&path, json!({"label": "renamed"})).await.expect(200);
    }

    async fn a_check_reports_whether_a_folder_works(app: TestApp) {
        let user = app.user("ada").await;
        let path = format!("/api/backup-destinations/{}", user.destination().await);
        user.client.act(&format!("{path}/check")).await.expect(202);
        app.run_until_idle().await;
        let destination = user.client.get(&path).await.data(200);
        assert_eq!(destination["status"], "reachable", "{destination}");
        assert_eq!(destination["last_error"], json!(null));
        let folder = app.destinations().join(user.id.to_string()).join(destination["id"].to_string());
        let mut left: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, [".holdfast-destination", "holdfast-catalogue"], "the probe is gone");

        // An empty folder instead of the one with the marker, as when another disk is mounted.
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        user.client.act(&format!("{path}/check")).await.expect(202);
        app.run_until_idle().await;
        let destination = user.client.get(&path).await.data(200);
        assert_eq!(destination["status"], "unreachable");
        assert_eq!(destination["error_code"], "destination_unmounted");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is written to an empty mount point");
    }
}
