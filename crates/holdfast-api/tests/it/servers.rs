use holdfast_core::ids::ServerId;
use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::json;

on_both_engines! {
    async fn a_server_shows_its_connection_and_never_its_password(app: TestApp) {
        let user = app.user("ada").await;
        let body = json!({
            "label": "web", "host": "web-1.example.org", "username": "backup", "port": 2222,
            "database_username": "dump", "database_password": "planted",
        });
        let server = user.client.post("/api/remote-servers", body).await.data(201);
        let connection = json!({
            "host": "web-1.example.org", "ip_address": "web-1.example.org", "username": "backup", "port": 2222,
            "database_username": "dump", "is_database_password_set": true, "host_key_fingerprint": null,
            "offered_host_key_fingerprint": null, "jump_server_id": null,
        });
        assert_eq!(server["connection"], connection);
        let status = json!({"connectivity": "unknown", "last_connected_at": null, "last_error": null, "error_code": null,
            "last_checked_at": null, "latency_ms": null, "tools": []});
        assert_eq!(server["status"], status);
        let path = format!("/api/remote-servers/{}", server["id"]);
        let cleared = user.client.put(&path, json!({"database_password": null})).await.data(200);
        assert_eq!(cleared["connection"]["is_database_password_set"], false);
        assert_eq!(cleared["connection"]["port"], 2222);
    }

    async fn hostile_addresses_and_ports_are_refused(app: TestApp) {
        let user = app.user("ada").await;
        let body = json!({"label": "x", "ip_address": "-oProxyCommand=id", "username": "$(id)", "port": 65536});
        let body = user.client.post("/api/remote-servers", body).await.expect(422);
        for field in ["ip_address", "username", "port"] {
            assert!(body["errors"][field].is_array(), "{body}");
        }
    }

    async fn a_changed_host_key_waits_to_be_accepted(app: TestApp) {
        let user = app.user("ada").await;
        let id = user.server().await;
        let path = format!("/api/remote-servers/{id}");
        let accept = format!("{path}/accept-host-key");
        assert_eq!(user.client.act(&accept).await.expect(409)["error"], "Conflict");
        let mut tx = app.app.store.begin().await.unwrap();
        holdfast_store::servers::update_offered_host_key(&mut tx, ServerId(id), "SHA256:new").await.unwrap();
        tx.commit().await.unwrap();
        let server = user.client.get(&path).await.data(200);
        assert_eq!(server["connection"]["offered_host_key_fingerprint"], "SHA256:new");
        let server = user.client.act(&accept).await.data(200);
        assert_eq!(server["connection"]["host_key_fingerprint"], "SHA256:new");
        let moved = user.client.put(&path, json!({"ip_address": "127.0.0.2"})).await.data(200);
        assert_eq!(moved["connection"]["host_key_fingerprint"], json!(null), "another machine has another key");
    }

    async fn deleting_a_server_in_use_is_refused(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.client.get(&format!("/api/backup-tasks/{}", user.task().await)).await.data(200);
        let path = format!("/api/remote-servers/{}", task["remote_server_id"]);
        assert!(user.client.delete(&path).await.expect(409)["message"].as_str().unwrap().contains("still used"));
        let unused = format!("/api/remote-servers/{}", user.server().await);
        assert_eq!(user.client.delete(&unused).await.expect(200)["message"], "Remote server successfully deleted");
    }

    async fn a_check_of_a_server_that_is_not_there_tells_the_class_of_reason(app: TestApp) {
        let user = app.user("ada").await;
        let path = format!("/api/remote-servers/{}", user.server().await);
        user.client.act(&format!("{path}/check")).await.expect(202);
        app.run_until_idle().await;
        let server = user.client.get(&path).await.data(200);
        assert_eq!((&server["status"]["connectivity"], &server["status"]["error_code"]), (&json!("offline"), &json!("connect")));
        assert!(server["status"]["last_error"].as_str().unwrap().starts_with("Cannot connect"));
    }

    async fn each_user_has_one_ssh_key_that_stays(app: TestApp) {
        let (ada, bob) = (app.user("ada").await, app.user("bob").await);
        let key = ada.client.get("/api/ssh-key").await.data(200);
        let public = key["public_key"].as_str().unwrap();
        assert!(public.starts_with("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"));
        assert!(key["fingerprint"].as_str().unwrap().starts_with("SHA256:"));
        assert!(key["install_command"].as_str().unwrap().contains(public));
        assert_eq!(ada.client.get("/api/ssh-key").await.data(200), key);
        assert_ne!(bob.client.get("/api/ssh-key").await.data(200), key);
    }
}
