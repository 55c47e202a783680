use holdfast_api::{Access, routes};
use holdfast_core::scope::Scope;
use holdfast_testkit::{Client, Reply, TestApp, TestUser, on_both_engines};
use reqwest::Method;
use serde_json::{Value, json};

const DRY_RUN: (&str, &str) = ("Holdfast-Dry-Run", "true");

async fn send(client: &Client, method: Method, path: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
    let request = client.request(method, path).bearer_auth(client.token());
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    client.finish(request.body(body.to_string())).await
}

async fn try_out(client: &Client, method: Method, path: &str, body: Value) -> Reply {
    let reply = send(client, method, path, &[DRY_RUN], &body).await;
    assert_eq!(reply.header("holdfast-dry-run"), Some("true"), "{path}: {}", reply.text);
    reply
}

async fn changes(client: &Client, path: &str, body: Value) -> String {
    let reply = try_out(client, Method::PATCH, path, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.header("holdfast-changes").expect("an update").to_owned()
}

/// Everything that a user can see of their settings, and what was recorded about them.
async fn everything(user: &TestUser) -> Vec<Value> {
    let mut seen = Vec::new();
    for path in [
        "tags",
        "notification-streams",
        "remote-servers",
        "backup-destinations",
        "backup-tasks",
        "backup-task-logs",
        "audit-events",
        "notices",
        "runs",
    ] {
        seen.push(user.client.get(&format!("/api/{path}?per_page=100")).await.expect(200));
    }
    seen
}

async fn server_with_password(user: &TestUser, label: &str) -> String {
    let body = json!({"label": label, "host": "192.0.2.1", "username": "u", "database_password": "hunter2"});
    let id = user.client.post("/api/remote-servers", body).await.id(201);
    format!("/api/remote-servers/{id}")
}

on_both_engines! {
    async fn every_edit_can_be_tried_out_without_effect(app: TestApp) {
        let user = app.user("ada").await;
        let (tag, stream) = (user.tag().await, user.stream().await);
        let server = server_with_password(&user, "unused").await;
        let free = user.client.post("/api/backup-destinations", json!({"label": "free", "type": "local"})).await.id(201);
        let task = user.task().await;
        let paths = [
            format!("/api/tags/{tag}"),
            format!("/api/notification-streams/{stream}"),
            server,
            format!("/api/backup-destinations/{free}"),
            format!("/api/backup-tasks/{task}"),
        ];
        let mut new_task = user.task_body().await;
        new_task["label"] = json!("new");
        let bodies = [
            json!({"label": "new"}),
            json!({"label": "new", "type": "email", "value": "a@example.org"}),
            json!({"label": "new", "host": "192.0.2.9", "username": "u"}),
            json!({"label": "new", "type": "local"}),
            new_task,
        ];
        let before = everything(&user).await;
        for (path, body) in paths.iter().zip(bodies) {
            let tag = user.client.get(path).await.header("etag").unwrap().to_owned();
            for method in [Method::PUT, Method::PATCH] {
                let tried = try_out(&user.client, method, path, json!({"label": "other"})).await;
                assert_eq!(tried.header("holdfast-changes"), Some("label"), "{path}");
                assert_eq!(tried.header("etag"), Some(tag.as_str()), "the version that would be changed");
                assert_eq!(tried.data(200)["label"], "other", "{path}");
            }
            let deleted = try_out(&user.client, Method::DELETE, path, Value::Null).await;
            assert_eq!((deleted.header("etag"), deleted.header("holdfast-changes")), (Some(tag.as_str()), None));
            let told = deleted.expect(200)["message"].as_str().unwrap().to_owned();
            assert!(told.ends_with("can be deleted; nothing was changed"), "{told}");
            let list = path.rsplit_once('/').unwrap().0;
            let made = try_out(&user.client, Method::POST, list, body).await;
            assert_eq!((made.header("etag"), made.header("holdfast-changes")), (None, None), "there is no version of it");
            assert_eq!(made.data(200)["label"], "new", "{path}");
        }
        assert_eq!(everything(&user).await, before);
    }

    async fn a_dry_run_is_refused_like_the_request_itself(app: TestApp) {
        let (user, bob) = (app.user("ada").await, app.user("bob").await);
        let tag = format!("/api/tags/{}", user.tag().await);
        let task = user.task().await;
        let used = user.client.get(&format!("/api/backup-tasks/{task}")).await.data(200)["backup_destination_id"].clone();
        let destination = format!("/api/backup-destinations/{used}");
        try_out(&user.client, Method::PATCH, &tag, json!({"colour": "red"})).await.expect(422);
        try_out(&user.client, Method::DELETE, &destination, Value::Null).await.expect(409);
        try_out(&user.client, Method::DELETE, "/api/tags/4711", Value::Null).await.expect(404);
        try_out(&bob.client, Method::PATCH, &tag, json!({"label": "stolen"})).await.expect(403);
        let viewer = app.scoped(user.id, Scope::ViewBackupTasks).await;
        let path = format!("/api/backup-tasks/{task}");
        try_out(&viewer, Method::PATCH, &path, json!({"encryption_password": "guess"})).await.expect(403);
        let outdated = [DRY_RUN, ("If-Match", "\"0\"")];
        send(&user.client, Method::PATCH, &tag, &outdated, &json!({"label": "x"})).await.expect(412);
        let strict = [DRY_RUN, ("Prefer", "handling=strict")];
        send(&user.client, Method::PATCH, &tag, &strict, &json!({"lable": "x"})).await.expect(422);
    }

    /// Whoever asks for a dry run relies on it.
    async fn a_request_without_a_dry_run_is_refused_instead_of_carried_out(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.task().await;
        let before = everything(&user).await;
        for route in routes().iter().filter(|route| route.method != Method::GET && !route.has_dry_run()) {
            let path = route.path.replace("{id}", &task.to_string());
            let reply = send(&user.client, route.method.clone(), &path, &[DRY_RUN], &json!({})).await;
            assert_eq!(reply.status, 400, "{} {}: {}", route.method, route.path, reply.text);
            assert!(reply.text.contains("Nothing was done"), "{}", reply.text);
        }
        for wrong in ["false", "yes", ""] {
            let tag = json!({"label": "x"});
            let reply = send(&user.client, Method::POST, "/api/tags", &[("Holdfast-Dry-Run", wrong)], &tag).await;
            assert_eq!(reply.status, 400, "{wrong}");
        }
        assert_eq!(everything(&user).await, before);
        for route in routes().iter().filter(|route| route.has_dry_run()) {
            assert!(matches!(route.access, Access::Scope(_)), "{} {}", route.method, route.path);
        }
        // A request that only reads tells whether the service knows the header.
        assert_eq!(try_out(&user.client, Method::GET, "/api/tags", Value::Null).await.status, 200);
        assert_eq!(user.client.get("/api/tags").await.header("holdfast-dry-run"), None);
    }

    async fn secrets_are_compared_with_the_stored_ones(app: TestApp) {
        let user = app.user("ada").await;
        let client = &user.client;
        let server = server_with_password(&user, "db").await;
        assert_eq!(changes(client, &server, json!({"database_password": "hunter2"})).await, "");
        assert_eq!(changes(client, &server, json!({"database_password": "other"})).await, "database_password");
        let both = json!({"database_password": "hunter2", "port": 2222});
        assert_eq!(changes(client, &server, both).await, "port");
        assert_eq!(changes(client, &server, json!({"port": 2222})).await, "port, database_password", "it is forgotten");
        assert_eq!(changes(client, &server, json!({"database_password": null})).await, "database_password");

        let stream = json!({"label": "s", "type": "pushover", "value": "u".repeat(30), "pushover_token": "t".repeat(30)});
        let stream = format!("/api/notification-streams/{}", client.post("/api/notification-streams", stream).await.id(201));
        let same = json!({"value": "u".repeat(30), "pushover_token": "t".repeat(30)});
        assert_eq!(changes(client, &stream, same).await, "");
        let other = json!({"value": "v".repeat(30), "pushover_token": "t".repeat(30)});
        assert_eq!(changes(client, &stream, other).await, "value");

        let s3 = json!({"label": "s3", "type": "s3", "s3_bucket_name": "bucket", "s3_access_key": "key",
            "s3_secret_key": "secret"});
        let s3 = format!("/api/backup-destinations/{}", client.post("/api/backup-destinations", s3).await.id(201));
        let same = json!({"s3_access_key": "key", "s3_secret_key": "secret"});
        assert_eq!(changes(client, &s3, same).await, "");
        let other = json!({"s3_access_key": "key", "s3_secret_key": "other"});
        assert_eq!(changes(client, &s3, other).await, "s3_secret_key");

        let task = format!("/api/backup-tasks/{}", user.task().await);
        let set = json!({"encryption_password": "a long password", "heartbeat_url": "https://example.org/x"});
        client.put(&task, set.clone()).await.expect(200);
        assert_eq!(changes(client, &task, set).await, "");
        let other = json!({"encryption_password": "another password", "heartbeat_url": null, "paused": true});
        assert_eq!(changes(client, &task, other).await, "encryption_password, heartbeat_url, paused");
        let task_tag = json!({"tag_ids": [user.tag().await]});
        assert_eq!(changes(client, &task, task_tag).await, "tag_ids");
    }

    /// A thousand guesses at once, and one a second after that.
    async fn a_secret_cannot_be_found_by_trying(app: TestApp) {
        let user = app.user("ada").await;
        let server = server_with_password(&user, "db").await;
        for guess in 0..1000 {
            let body = json!({"database_password": format!("guess {guess}")});
            try_out(&user.client, Method::PATCH, &server, body).await.expect(200);
        }
        let right = try_out(&user.client, Method::PATCH, &server, json!({"database_password": "hunter2"})).await;
        assert_eq!(right.status, 429, "a refusal does not tell whether the guess was right");
        let told = |events: &Value| {
            let actions = events["data"].as_array().unwrap().iter().map(|event| event["action"].clone());
            actions.filter(|action| action == "secrets.compared").count()
        };
        let events = user.client.get("/api/audit-events").await.expect(200);
        assert_eq!(told(&events), 1, "once, not with every guess: {events:#}");
        let refused = try_out(&user.client, Method::PATCH, &server, json!({"database_password": "guess"})).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{}", refused.text);
        app.clock.advance_secs(1);
        try_out(&user.client, Method::PATCH, &server, json!({"database_password": "guess"})).await.expect(200);
    }

    async fn an_idempotency_key_is_not_used_up(app: TestApp) {
        let user = app.user("ada").await;
        let key = ("Idempotency-Key", "one");
        send(&user.client, Method::POST, "/api/tags", &[DRY_RUN, key], &json!({"label": "x"})).await.expect(200);
        let made = send(&user.client, Method::POST, "/api/tags", &[key], &json!({"label": "y"})).await;
        assert_eq!(made.data(201)["label"], "y");
    }

    async fn a_new_label_can_be_demanded(app: TestApp) {
        let (user, bob) = (app.user("ada").await, app.user("bob").await);
        let new = ("If-None-Match", "*");
        let body = json!({"label": " x "});
        send(&user.client, Method::POST, "/api/tags", &[new], &body).await.expect(201);
        let refused = send(&user.client, Method::POST, "/api/tags", &[new], &body).await.expect(412);
        assert_eq!(refused["message"], "Something else of this kind has this label already.");
        send(&user.client, Method::POST, "/api/tags", &[new, DRY_RUN], &body).await.expect(412);
        send(&bob.client, Method::POST, "/api/tags", &[new], &body).await.expect(201);
        let server = json!({"label": "x", "host": "192.0.2.1", "username": "u"});
        let stream = json!({"label": "x", "type": "email", "value": "a@example.org"});
        let disk = json!({"label": "x", "type": "local"});
        let mut task = user.task_body().await;
        task["label"] = json!("x");
        let all = [("remote-servers", server), ("notification-streams", stream), ("backup-destinations", disk), ("backup-tasks", task)];
        for (list, body) in all {
            let path = format!("/api/{list}");
            send(&user.client, Method::POST, &path, &[new], &body).await.expect(201);
            send(&user.client, Method::POST, &path, &[new], &body).await.expect(412);
            // Without the header, labels need not be unique.
            user.client.post(&path, body).await.expect(201);
        }
    }

    async fn of_many_at_once_one_creates_the_label(app: TestApp) {
        let user = app.user("ada").await;
        let tries = (0..12).map(|_| {
            let client = user.client.clone();
            tokio::spawn(async move {
                let new = [("If-None-Match", "*")];
                send(&client, Method::POST, "/api/tags", &new, &json!({"label": "one"})).await.status
            })
        });
        let mut statuses = Vec::new();
        for tried in tries.collect::<Vec<_>>() {
            statuses.push(tried.await.unwrap());
        }
        statuses.sort_unstable();
        assert_eq!((statuses[0], &statuses[1..]), (201, &[412; 11][..]));
        assert_eq!(user.client.get("/api/tags").await.expect(200)["meta"]["total"], 1);
    }
}
