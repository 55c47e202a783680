use holdfast_api::{Access, routes};
use holdfast_app::Resource;
use holdfast_core::scope::Scope;
use holdfast_testkit::{Client, Reply, TestApp, TestUser, on_both_engines};
use serde_json::json;

const UNKNOWN_ID: &str = "987654321";

/// One resource of each kind, all owned by one user.
struct Owned {
    stream: i64,
    task: i64,
    destination: i64,
    server: i64,
    tag: i64,
    log: i64,
    backup: i64,
    run: i64,
    notice: i64,
}

impl Owned {
    async fn create(app: &TestApp, user: &TestUser) -> Self {
        let (task, stream) = (user.task().await, user.stream().await);
        let heard = json!({"notification_stream_ids": [stream]});
        user.client.put(&format!("/api/backup-tasks/{task}"), heard).await.expect(200);
        user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        app.run_until_idle().await;
        let log = user.client.get(&format!("/api/backup-tasks/{task}/latest-log")).await.id(200);
        let told = user.client.get("/api/notices").await.expect(200);
        let backup = user.backup(app, task, log).await;
        let run = user.client.act(&format!("/api/backups/{backup}/verify")).await.id(202);
        Self {
            backup,
            run,
            stream,
            notice: told["data"][0]["id"].as_i64().unwrap(),
            task,
            destination: user.destination().await,
            server: user.server().await,
            tag: user.tag().await,
            log,
        }
    }

    fn id(&self, resource: Resource) -> i64 {
        match resource {
            Resource::NotificationStream => self.stream,
            Resource::BackupTask => self.task,
            Resource::BackupDestination => self.destination,
            Resource::RemoteServer => self.server,
            Resource::Tag => self.tag,
            Resource::BackupTaskLog => self.log,
            Resource::Backup => self.backup,
            Resource::Run => self.run,
            Resource::Notice => self.notice,
            Resource::Administration => panic!("no route asks for it by id"),
        }
    }
}

/// Sends a request to a route, with a body if the route takes one.
async fn call(client: &Client, route: &holdfast_api::Route, id: &str, body: &str) -> Reply {
    let body = route.takes_body().then(|| body.to_owned());
    client.send(route.method.clone(), &route.path.replace("{id}", id), body).await
}

on_both_engines! {
    async fn every_route_wants_a_valid_token(app: TestApp) {
        let (anonymous, wrong) = (app.client(), app.client().with_token("hf_wrong"));
        for route in routes().iter().filter(|route| route.access != Access::Public) {
            for client in [&anonymous, &wrong] {
                let reply = call(client, route, "1", "{}").await;
                let name = format!("{} {}", route.method, route.path);
                assert_eq!(reply.status, 401, "{name}");
                let text = "The requested operation requires a valid authentication token.";
                assert_eq!(reply.body, json!({ "message": text }), "{name}");
            }
        }
    }

    async fn every_route_refuses_each_of_the_other_scopes(app: TestApp) {
        let user = app.user("ada").await;
        let mut by_scope = Vec::new();
        for scope in Scope::ALL {
            by_scope.push((*scope, app.scoped(user.id, *scope).await));
        }
        for route in routes() {
            let needed = route.access.scopes();
            if needed.is_empty() {
                continue;
            }
            let refused = by_scope.iter().filter(|(scope, _)| needed != [*scope]);
            assert_eq!(refused.clone().count(), if needed.len() == 1 { 17 } else { 18 });
            for (scope, client) in refused {
                let reply = call(client, &route, "1", "{}").await;
                let name = format!("{} {} with {}", route.method, route.path, scope.as_str());
                assert_eq!(reply.status, 403, "{name}");
                assert_eq!(reply.body["error"], "Forbidden", "{name}");
                let told = reply.body["message"].as_str().unwrap();
                let lacking = needed.iter().find(|needed| *needed != scope).unwrap();
                assert!(told.contains(lacking.as_str()), "{name}: {}", reply.text);
            }
            let allowed = app.token(user.id, needed.into_iter().collect()).await;
            let reply = call(&allowed, &route, UNKNOWN_ID, "{}").await;
            assert!(![401, 403].contains(&reply.status), "{} {}: {}", route.method, route.path, reply.text);
        }
    }

    async fn every_route_hides_what_belongs_to_somebody_else(app: TestApp) {
        let (owner, other) = (app.user("owner").await, app.user("other").await);
        let owned = Owned::create(&app, &owner).await;
        for route in routes() {
            let (Some(resource), true) = (route.resource, route.access != Access::Public) else { continue };
            let name = format!("{} {}", route.method, route.path);
            let id = owned.id(resource).to_string();
            let body = call(&other.client, &route, &id, r#"{"label": "stolen"}"#).await.expect(403);
            assert_eq!(body["error"], "Forbidden", "{name}");
            let text = format!("You are not authorized to access this {}", resource.name().to_lowercase());
            assert_eq!(body["message"], text, "{name}");
        }
        let labels = owner.client.get(&format!("/api/tags/{}", owned.tag)).await.data(200);
        assert_eq!(labels["label"], "production");
    }

    async fn every_route_says_when_an_id_does_not_exist(app: TestApp) {
        let user = app.user("ada").await;
        for route in routes() {
            let (Some(resource), true) = (route.resource, route.access != Access::Public) else { continue };
            let ids = [UNKNOWN_ID, "0", "-1", "abc", "1.5", "%20", "9223372036854775808", "99999999999999999999999"];
            for id in ids {
                let body = call(&user.client, &route, id, "not even JSON").await.expect(404);
                assert_eq!(body["error"], "Not Found", "{} {}", route.method, route.path);
                assert_eq!(body["message"], format!("{} not found", resource.name()));
            }
        }
    }

    async fn every_route_with_a_body_refuses_rubbish(app: TestApp) {
        let user = app.user("ada").await;
        let owned = Owned::create(&app, &user).await;
        let hostile = r#"{"label": {"a": 1}, "type": ["x"], "email": 5, "device_name": [], "password": false,
            "weekly_summary_enabled": "yes", "fingerprint": 5, "backup_id": "x"}"#;
        for route in routes().iter().filter(|route| route.takes_body()) {
            let id = route.resource.map(|resource| owned.id(resource).to_string()).unwrap_or_default();
            for rubbish in ["", "{", "[]", "null", "5", "\"text\"", "\u{0}\u{1}", "{\"a\": 1e999999}"] {
                if rubbish.is_empty() && !route.needs_body() {
                    continue;
                }
                let body = call(&user.client, route, &id, rubbish).await.expect(400);
                assert_eq!(body["error"], "Bad Request", "{} {}", route.method, route.path);
            }
            let body = call(&user.client, route, &id, hostile).await.expect(422);
            assert_eq!(body["error"], "Validation Error", "{} {}", route.method, route.path);
        }
    }
}

#[test]
fn routes_require_the_scope_of_their_verb_and_resource() {
    for route in routes() {
        let scopes = route.access.scopes();
        let [scope, ..] = scopes[..] else {
            let open = ["/api/user", "/api/device-auth/token", "/api/openapi.json", "/webhooks/backup-tasks/{id}/run"];
            assert!(open.contains(&route.path), "{} needs a scope", route.path);
            continue;
        };
        // Creating a URL that starts a task requires the rights to change and to run the task.
        if route.path.ends_with("/trigger-url") {
            assert_eq!(scopes, [Scope::RunBackupTasks, Scope::UpdateBackupTasks]);
            continue;
        }
        if route.path == "/api/audit-events" {
            let views = Scope::ALL.iter().filter(|scope| scope.as_str().starts_with("view-"));
            assert!(views.clone().all(|scope| scopes.contains(scope)) && scopes.contains(&Scope::ManageTags));
            continue;
        }
        assert_eq!(scopes.len(), 1, "{}", route.path);
        let resource = route.path.split('/').nth(2).unwrap();
        let action = route.path.rsplit('/').next().unwrap();
        let expected = match (route.method.as_str(), resource, action) {
            (_, "tags", _) => "manage-tags".to_owned(),
            (_, "ssh-key", _) => "create-remote-servers".to_owned(),
            (_, "backup-tasks", "run" | "cancel" | "prune" | "check") => "run-backup-tasks".to_owned(),
            ("POST", "backups" | "runs", _) => "run-backup-tasks".to_owned(),
            ("DELETE", "backups", _) => "delete-backup-tasks".to_owned(),
            ("GET", "backup-tasks" | "backup-task-logs" | "backups" | "runs" | "events", _) => {
                "view-backup-tasks".to_owned()
            }
            ("DELETE", "backup-task-logs", _) => "delete-backup-tasks".to_owned(),
            ("GET", "notices" | "notification-settings", _) => "view-notification-streams".to_owned(),
            (_, "notices" | "notification-settings", _) => "update-notification-streams".to_owned(),
            ("GET", resource, _) => format!("view-{resource}"),
            ("DELETE", resource, _) => format!("delete-{resource}"),
            ("POST", resource, action) if action == resource => format!("create-{resource}"),
            (_, resource, _) => format!("update-{resource}"),
        };
        assert_eq!(scope.as_str(), expected, "{} {}", route.method, route.path);
    }
}
