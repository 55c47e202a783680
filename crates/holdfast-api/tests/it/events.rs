use std::time::Duration;

use holdfast_app::{Origin, tokens};
use holdfast_core::scope::Scope;
use holdfast_testkit::{Client, TestApp, on_both_engines};
use reqwest::Method;
use serde_json::{Value, json};

/// An open stream of events.
struct Following {
    response: reqwest::Response,
    text: String,
}

#[derive(Debug)]
struct Event {
    id: String,
    name: String,
    data: Value,
}

impl Following {
    async fn open(client: &Client, last: Option<&str>) -> Self {
        let mut request = client.request(Method::GET, "/api/events").bearer_auth(client.token());
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next block of lines; `None` when the stream has ended.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let read = tokio::time::timeout(Duration::from_secs(30), self.response.chunk()).await;
            let piece = read.expect("nothing was sent for long").ok().flatten()?;
            self.text.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }

    async fn event(&mut self) -> Event {
        loop {
            let block = self.block().await.expect("the stream ended");
            let field = |name: &str| {
                let line = block.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
                line.unwrap_or_default().to_owned()
            };
            if !field("event").is_empty() {
                let data = serde_json::from_str(&field("data")).unwrap();
                return Event { id: field("id"), name: field("event"), data };
            }
        }
    }
}

on_both_engines! {
    async fn runs_are_followed_and_resumed_without_a_gap(app: TestApp) {
        let (user, other) = (app.user("ada").await, app.user("bob").await);
        let (task, foreign) = (user.task().await, other.task().await);
        let mut following = Following::open(&user.client, None).await;
        assert!(following.block().await.unwrap().contains("retry: "), "the beginning is known at once");
        other.client.act(&format!("/api/backup-tasks/{foreign}/run")).await.expect(202);
        let run = user.client.act(&format!("/api/backup-tasks/{task}/run")).await.id(202);
        let queued = following.event().await;
        assert_eq!((queued.name.as_str(), &queued.data["id"]), ("run", &json!(run)), "and nothing of anybody else");
        assert_eq!((&queued.data["status"], &queued.data["kind"]), (&json!("queued"), &json!("backup")));
        assert_eq!(queued.data["backup_task_id"], task);
        drop(following);
        user.client.act(&format!("/api/backup-tasks/{task}/cancel")).await.expect(200);
        let again = user.client.act(&format!("/api/backup-tasks/{task}/run")).await.id(202);
        let mut following = Following::open(&user.client, Some(&queued.id)).await;
        let (cancelled, queued) = (following.event().await, following.event().await);
        assert_eq!((&cancelled.data["id"], &cancelled.data["status"]), (&json!(run), &json!("cancelled")));
        assert_eq!((&queued.data["id"], &queued.data["status"]), (&json!(again), &json!("queued")));
    }

    async fn a_client_learns_that_events_are_missing(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.task().await;
        user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        for last in ["0-0", "9223372036854775806-1", "junk"] {
            let mut following = Following::open(&user.client, Some(last)).await;
            assert_eq!(following.event().await.name, "reset", "{last}");
        }
    }

    async fn a_token_follows_only_what_its_scopes_show(app: TestApp) {
        let user = app.user("ada").await;
        let mut body = user.task_body().await;
        body["notification_stream_ids"] = json!([user.stream().await]);
        let task = user.client.post("/api/backup-tasks", body).await.id(201);
        let narrow = app.scoped(user.id, Scope::ViewBackupTasks).await;
        let (mut all, mut some) = (Following::open(&user.client, None).await, Following::open(&narrow, None).await);
        user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        app.run_until_idle().await;
        while all.event().await.name != "notice" {}
        let again = user.client.act(&format!("/api/backup-tasks/{task}/run")).await.id(202);
        loop {
            let event = some.event().await;
            assert_eq!(event.name, "run", "{event:?}");
            if event.data["id"] == json!(again) {
                break;
            }
        }
        narrow.get("/api/notices").await.expect(403);
    }

    async fn a_revoked_token_follows_nothing_more(app: TestApp) {
        let user = app.user("ada").await;
        let mut following = Following::open(&user.client, None).await;
        following.block().await.unwrap();
        let id = tokens::list(&app.app, user.id).await.unwrap()[0].id;
        tokens::revoke(&app.app, user.id, &Origin::default(), id).await.unwrap();
        while following.block().await.is_some() {}
    }

    async fn one_user_has_a_limited_number_of_streams(app: TestApp) {
        let (user, other) = (app.user("ada").await, app.user("bob").await);
        let mut open = Vec::new();
        for _ in 0..20 {
            open.push(Following::open(&user.client, None).await);
        }
        user.client.get("/api/events").await.expect(503);
        open.push(Following::open(&other.client, None).await);
    }
}
