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

    async fn a_server_that_moves_loses_its_stored_password_and_pinned_key(app: TestApp) {
        let user = app.user("ada").await;
        let gates = [user.server().await, user.server().await];
        let moves = [
            json!({"ip_address": "192.0.2.9"}),
            json!({"host": "192.0.2.9"}),
            json!({"port": 2222}),
            json!({"jump_server_id": gates[1]}),
            json!({"jump_server_id": null}),
        ];
        for change in moves {
            let server = json!({"label": "db", "ip_address": "192.0.2.1", "username": "backup", "database_username": "d",
                "database_password": "planted", "jump_server_id": gates[0]});
            let id = user.client.post("/api/remote-servers", server).await.id(201);
            let path = format!("/api/remote-servers/{id}");
            let mut tx = app.app.store.begin().await.unwrap();
            holdfast_store::servers::pin_host_key(&mut tx, ServerId(id), "SHA256:old").await.unwrap();
            tx.commit().await.unwrap();
            let renamed = json!({"label": "other", "ip_address": "192.0.2.1", "port": 22, "jump_server_id": gates[0]});
            let same = user.client.put(&path, renamed).await.data(200)["connection"].clone();
            assert_eq!((&same["is_database_password_set"], &same["host_key_fingerprint"]), (&json!(true), &json!("SHA256:old")));
            let moved = user.client.put(&path, change.clone()).await.data(200)["connection"].clone();
            assert_eq!(moved["is_database_password_set"], false, "{change}");
            assert_eq!(moved["host_key_fingerprint"], json!(null), "{change}");
            assert_eq!(moved["database_username"], "d", "{change}");
            let given = user.client.put(&path, json!({"ip_address": "192.0.2.77", "database_password": "new"})).await.data(200);
            assert_eq!(given["connection"]["is_database_password_set"], true, "given in the same request");
        }
    }

    async fn a_password_is_kept_for_the_account_that_it_was_given_for(app: TestApp) {
        let user = app.user("ada").await;
        let gate = user.server().await;
        let server = json!({"label": "db", "ip_address": "192.0.2.1", "username": "backup", "database_password": "planted",
            "jump_server_id": gate});
        let id = user.client.post("/api/remote-servers", server).await.id(201);
        let path = format!("/api/remote-servers/{id}");
        let mut tx = app.app.store.begin().await.unwrap();
        holdfast_store::servers::pin_host_key(&mut tx, ServerId(id), "SHA256:old").await.unwrap();
        tx.commit().await.unwrap();
        let other = user.client.put(&path, json!({"username": "eve"})).await.data(200)["connection"].clone();
        assert_eq!(other["is_database_password_set"], false, "another account would read it");
        assert_eq!(other["host_key_fingerprint"], "SHA256:old", "on the same machine");

        user.client.put(&path, json!({"database_password": "planted"})).await.expect(200);
        user.client.put(&format!("/api/remote-servers/{gate}"), json!({"ip_address": "192.0.2.66"})).await.expect(200);
        let behind = user.client.get(&path).await.data(200)["connection"].clone();
        assert_eq!(behind["is_database_password_set"], false, "it is reached through another machine now");
        assert_eq!(behind["host_key_fingerprint"], "SHA256:old");
        let mut tx = app.app.store.read().await.unwrap();
        let events = holdfast_store::audit::list(&mut tx, Some(user.id), None, 100).await.unwrap();
        let events: Vec<String> =
            events.into_iter().filter(|event| event.action == "remote_server.moved").map(|event| event.detail).collect();
        assert!(events.iter().any(|event| event.contains("backup@192.0.2.1:22 to eve@192.0.2.1:22, database password removed")), "{events:?}");
        assert!(events.iter().any(|event| event.contains("removed from servers behind it: 1")), "{events:?}");
    }

    async fn an_accepted_host_key_is_the_one_that_was_seen(app: TestApp) {
        let user = app.user("ada").await;
        let id = user.server().await;
        let path = format!("/api/remote-servers/{id}");
        let accept = format!("{path}/accept-host-key");
        let mut tx = app.app.store.begin().await.unwrap();
        holdfast_store::servers::update_offered_host_key(&mut tx, ServerId(id), "SHA256:new").await.unwrap();
        tx.commit().await.unwrap();
        let other = user.client.post(&accept, json!({"fingerprint": "SHA256:seen"})).await.expect(409);
        assert!(other["message"].as_str().unwrap().contains("another host key"), "{other}");
        for wrong in [json!({"fingerprint": 5}), json!({"fingerprint": ""}), json!({"fingerprint": null})] {
            assert!(user.client.post(&accept, wrong).await.expect(422)["errors"]["fingerprint"].is_array());
        }
        for rubbish in ["[]", "{", "5"] {
            user.client.send(reqwest::Method::POST, &accept, Some(rubbish.to_owned())).await.expect(400);
        }
        assert_eq!(user.client.get(&path).await.data(200)["connection"]["host_key_fingerprint"], json!(null));
        let accepted = user.client.post(&accept, json!({"fingerprint": "SHA256:new"})).await.data(200);
        assert_eq!(accepted["connection"]["host_key_fingerprint"], "SHA256:new");
        user.client.post(&accept, json!({"fingerprint": "SHA256:new"})).await.expect(409);
    }

    async fn deleting_a_server_in_use_is_refused(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.client.get(&format!("/api/backup-tasks/{}", user.task().await)).await.data(200);
        let path = format!("/api/remote-servers/{}", task["remote_server_id"]);
        assert!(user.client.delete(&path).await.expect(409)["message"].as_str().unwrap().contains("still used"));
        let unused = format!("/api/remote-servers/{}", user.server().await);
        assert_eq!(user.client.delete(&unused).await.expect(200)["message"], "Remote server successfully deleted");
    }

    async fn a_check_of_an_unreachable_server_reports_an_error_code(app: TestApp) {
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
