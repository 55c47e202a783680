use holdfast_core::scope::ScopeSet;
use holdfast_testkit::{Client, Reply, TestApp, on_both_engines};
use reqwest::Method;
use serde_json::{Value, json};

async fn post_with(client: &Client, key: &str, path: &str, body: &Value) -> Reply {
    let request = client.request(Method::POST, path).bearer_auth(client.token()).header("Idempotency-Key", key);
    client.finish(request.body(body.to_string())).await
}

on_both_engines! {
    async fn whatever_is_queued_can_be_followed(app: TestApp) {
        let user = app.user("ada").await;
        let (task, server) = (user.task().await, user.server().await);
        let (destination, stream) = (user.destination().await, user.stream().await);
        let paths = [
            format!("/api/backup-tasks/{task}/run"),
            format!("/api/remote-servers/{server}/check"),
            format!("/api/backup-destinations/{destination}/check"),
            format!("/api/notification-streams/{stream}/test"),
        ];
        let mut runs = Vec::new();
        for path in &paths {
            let reply = user.client.act(path).await;
            let location = reply.header("location").unwrap().to_owned();
            assert!(reply.body["message"].is_string(), "{}", reply.text);
            let id = reply.id(202);
            assert_eq!(location, format!("/api/runs/{id}"));
            let run = user.client.get(&location).await.data(200);
            assert_eq!((&run["id"], &run["status"]), (&json!(id), &json!("queued")), "{path}");
            runs.push(run);
        }
        assert_eq!(runs[0]["backup_task_id"], task);
        assert_eq!(runs[1]["remote_server_id"], server);
        assert_eq!(runs[2]["backup_destination_id"], destination);
        assert_eq!(runs[3]["notification_stream_id"], stream);
        let other = app.user("bob").await;
        other.client.get(&format!("/api/runs/{}", runs[1]["id"])).await.expect(403);
        let trigger = user.client.act(&format!("/api/backup-tasks/{task}/trigger-url")).await.data(200);
        user.client.act(&format!("/api/backup-tasks/{task}/cancel")).await.expect(200);
        let request = user.client.absolute(Method::POST, &format!("{}/webhooks/backup-tasks/{task}/run", user.client.base_url()));
        let reply = user.client.finish(request.header("X-Holdfast-Secret", trigger["secret"].as_str().unwrap())).await;
        let location = reply.header("location").unwrap().to_owned();
        assert_eq!(user.client.get(&location).await.id(200), reply.id(202));
    }

    async fn a_request_with_a_key_is_executed_once(app: TestApp) {
        let user = app.user("ada").await;
        let body = json!({"label": "once"});
        let first = post_with(&user.client, "k1", "/api/tags", &body).await;
        assert_eq!(first.header("idempotency-replayed"), None);
        let again = post_with(&user.client, "k1", "/api/tags", &body).await;
        assert_eq!((again.status, &again.text), (201, &first.text));
        assert_eq!((first.header("etag").is_some(), again.header("etag")), (true, first.header("etag")));
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(user.client.get("/api/tags").await.expect(200)["meta"]["total"], 1);
        // Another request with the same key is a mistake.
        let other = post_with(&user.client, "k1", "/api/tags", &json!({"label": "twice"})).await;
        assert!(other.expect(409)["message"].as_str().unwrap().contains("used for another request"));
        // So is a key of another route, and of another token.
        let stream = json!({"label": "once", "type": "email", "value": "a@example.org"});
        post_with(&user.client, "k1", "/api/notification-streams", &stream).await.expect(201);
        let once = again.id(201);
        let second = app.token(user.id, ScopeSet::all()).await;
        assert_ne!(post_with(&second, "k1", "/api/tags", &body).await.id(201), once);
        // Somebody else's key is another one.
        let bob = app.user("bob").await;
        assert_ne!(post_with(&bob.client, "k1", "/api/tags", &body).await.id(201), once);
        // A refused request may be sent again, corrected or not.
        for _ in 0..2 {
            post_with(&user.client, "k2", "/api/tags", &json!({})).await.expect(422);
        }
        post_with(&user.client, "k2", "/api/tags", &json!({"label": "right"})).await.expect(201);
        for bad in ["", " ", &"x".repeat(256)] {
            post_with(&user.client, bad, "/api/tags", &body).await.expect(400);
        }
        let request = user.client.request(Method::POST, "/api/tags").bearer_auth(user.client.token());
        let request = request.header("Idempotency-Key", "k4").header("Idempotency-Key", "k5").body(body.to_string());
        user.client.finish(request).await.expect(400);

        let path = format!("/api/backup-tasks/{}/run", user.task().await);
        let run = post_with(&user.client, "k3", &path, &Value::Null).await;
        let again = post_with(&user.client, "k3", &path, &Value::Null).await;
        assert_eq!(again.header("location"), run.header("location"));
        assert_eq!(again.id(202), run.id(202), "without the key, the second one is refused: it runs already");

        // A response that holds a secret is the same, too, and is not readable in the database.
        let task = user.task().await;
        let path = format!("/api/backup-tasks/{task}/trigger-url");
        let secret = post_with(&user.client, "k4", &path, &Value::Null).await.data(200)["secret"].clone();
        assert_eq!(post_with(&user.client, "k4", &path, &Value::Null).await.data(200)["secret"], secret);
        app.clock.advance_secs(2 * 86_400);
        assert_ne!(post_with(&user.client, "k4", &path, &Value::Null).await.data(200)["secret"], secret);
    }

    async fn two_requests_with_one_key_at_once_are_executed_once(app: TestApp) {
        let user = app.user("ada").await;
        let body = json!({"label": "once"});
        let sent = (0..8).map(|_| post_with(&user.client, "same", "/api/tags", &body));
        let replies = futures_util::future::join_all(sent).await;
        assert!(replies.iter().all(|reply| [201, 409].contains(&reply.status)), "{replies:?}");
        assert!(replies.iter().any(|reply| reply.status == 201));
        assert_eq!(user.client.get("/api/tags").await.expect(200)["meta"]["total"], 1);
    }

    async fn one_token_cannot_use_up_the_keys_of_another(app: TestApp) {
        let user = app.user("ada").await;
        let actor = format!("token {}", holdfast_app::tokens::list(&app.app, user.id).await.unwrap()[0].id);
        let mut tx = app.app.store.begin().await.unwrap();
        for number in 0..10_000 {
            let key = number.to_string();
            let insert = holdfast_store::idempotency::insert(&mut tx, (user.id, &actor), &key, "r", app.app.now());
            insert.await.unwrap().unwrap();
        }
        tx.commit().await.unwrap();
        let body = json!({"label": "once"});
        post_with(&user.client, "k", "/api/tags", &body).await.expect(409);
        let other = app.token(user.id, ScopeSet::all()).await;
        post_with(&other, "k", "/api/tags", &body).await.expect(201);
    }

    /// A process that ended while it executed the request leaves the key behind: nobody knows whether it took effect.
    async fn a_request_that_never_ended_is_not_repeated(app: TestApp) {
        let user = app.user("ada").await;
        let body = json!({"label": "once"});
        let parts: [&[u8]; 3] = [b"POST", b"/api/tags", &body.to_string().into_bytes()];
        let request = holdfast_app::idempotency::request_id(&parts);
        let token = holdfast_app::tokens::list(&app.app, user.id).await.unwrap()[0].id;
        let actor = format!("token {token}");
        let key = holdfast_app::idempotency::request_id(&[actor.as_bytes(), b"/api/tags", b"lost"]);
        holdfast_app::idempotency::begin(&app.app, (user.id, &actor), &key, &request).await.unwrap();
        let reply = post_with(&user.client, "lost", "/api/tags", &body).await.expect(409);
        assert!(reply["message"].as_str().unwrap().contains("nobody knows"), "{reply}");
    }
}
