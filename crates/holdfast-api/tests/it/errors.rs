use holdfast_app::{Limits, Origin, tokens};
use holdfast_core::rate::Quota;
use holdfast_core::scope::ScopeSet;
use holdfast_testkit::{Engine, Settings, TestApp, on_both_engines};
use reqwest::Method;
use serde_json::json;

on_both_engines! {
    async fn odd_characters_and_numbers_never_cause_a_server_error(app: TestApp) {
        let user = app.user("ada").await;
        let lists = ["backup-tasks", "remote-servers", "backup-destinations", "notification-streams", "tags", "backups",
            "backup-task-logs", "runs", "notices"];
        let values = ["%00", "a%00b", "%FF%FE", "%ED%A0%80", "%E2%80%AE", "9223372036854775807", "-9223372036854775808",
            "99999999999999999999", "1e400", "NaN"];
        for list in lists {
            for value in values {
                for name in ["search", "page", "per_page", "backup_task_id", "tag_id", "status", "type", "path", "limit"] {
                    let reply = user.client.get(&format!("/api/{list}?{name}={value}")).await;
                    assert!(reply.status < 500, "{list} {name}={value}: {}", reply.text);
                }
                let reply = user.client.get(&format!("/api/{list}/{value}")).await;
                assert!(reply.status < 500, "{list}/{value}: {}", reply.text);
            }
            for value in [json!("a\u{0}b"), json!(i64::MIN), json!(i64::MAX), json!(u64::MAX), json!(1e300)] {
                let names = ["label", "description", "colour", "type", "value", "ip_address", "username", "port",
                    "database_password", "s3_bucket_name", "s3_access_key", "custom_s3_endpoint", "source_path", "frequency",
                    "custom_cron", "time_to_run_at", "maximum_backups_to_keep", "remote_server_id", "backup_destination_id",
                    "encryption_password", "store_path", "excluded_paths"];
                let body: serde_json::Map<String, serde_json::Value> =
                    names.iter().map(|name| (name.to_string(), value.clone())).collect();
                let reply = user.client.post(&format!("/api/{list}"), json!(body)).await;
                assert!(reply.status < 500, "{list} {value}: {}", reply.text);
            }
        }
        let device = json!({"email": "a\u{0}@example.org", "password": "\u{0}", "device_name": "\u{0}", "otp": "\u{0}"});
        assert!(app.client().post("/api/device-auth/token", device).await.status < 500);
        assert!(app.client().with_token("a%00b").get("/api/user").await.status < 500);
        assert!(app.client().get("/api/backup-tasks/1/trigger?secret=%00").await.status < 500);
    }

    async fn unknown_paths_and_methods_answer_in_json_without_a_token(app: TestApp) {
        for path in ["/api", "/api/", "/api/nothing", "/api/tags/1/2/3", "/webhooks/x"] {
            let body = app.client().get(path).await.expect(404);
            assert_eq!(body["error"], "Not Found", "{path}");
        }
        let reply = app.client().send(Method::DELETE, "/api/tags", None).await;
        let allow = reply.header("allow").unwrap().to_owned();
        assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
        assert_eq!(reply.expect(405)["error"], "Method Not Allowed");
    }

    async fn bodies_are_read_as_json_whatever_they_are_declared_as(app: TestApp) {
        let user = app.user("ada").await;
        let request = user.client.request(Method::POST, "/api/tags").bearer_auth(user.client.token());
        let request = request.header("content-type", "text/plain").body(r#"{"label": "x"}"#);
        user.client.finish(request).await.expect(201);
    }

    async fn a_body_over_the_limit_is_refused(app: TestApp) {
        let user = app.user("ada").await;
        let large = json!({"label": "x".repeat(256 * 1024)}).to_string();
        let reply = user.client.send(Method::POST, "/api/tags", Some(large)).await;
        assert_eq!(reply.expect(413)["error"], "Payload Too Large");
    }

    async fn every_answer_has_its_own_request_id(app: TestApp) {
        let user = app.user("ada").await;
        let mut seen = std::collections::BTreeSet::new();
        for path in ["/api/user", "/api/user", "/api/nothing", "/healthz", "/readyz", "/"] {
            let reply = user.client.get(path).await;
            assert!(seen.insert(reply.header("x-request-id").unwrap().to_owned()), "{path}");
        }
    }

    async fn a_revoked_or_expired_token_stops_working(app: TestApp) {
        let user = app.user("ada").await;
        user.client.get("/api/user").await.expect(200);
        let id = tokens::list(&app.app, user.id).await.unwrap()[0].id;
        tokens::revoke(&app.app, user.id, &Origin::default(), id).await.unwrap();
        user.client.get("/api/user").await.expect(401);
        let expires_at = Some(app.app.now() + std::time::Duration::from_secs(60));
        let request = tokens::TokenRequest { name: "short".into(), scopes: ScopeSet::all(), expires_at };
        let token = tokens::create(&app.app, user.id, &Origin::default(), &request).await.unwrap();
        let short = app.client().with_token(token.reveal());
        short.get("/api/user").await.expect(200);
        app.clock.advance_secs(61);
        short.get("/api/user").await.expect(401);
        app.app.flush_token_use().await.unwrap();
        let rows = tokens::list(&app.app, user.id).await.unwrap();
        assert!(rows[0].last_used_at.is_some());
    }

    async fn actions_are_recorded_in_the_audit_log(app: TestApp) {
        let user = app.user("ada").await;
        let tag = user.tag().await;
        user.stream().await;
        user.client.delete(&format!("/api/tags/{tag}")).await.expect(200);
        app.scoped(user.id, holdfast_core::scope::Scope::ManageTags).await.get("/api/backup-tasks").await.expect(403);
        let mut tx = app.app.store.read().await.unwrap();
        let events = holdfast_store::audit::list(&mut tx, Some(user.id), None, 100).await.unwrap();
        let actions: Vec<&str> = events.iter().map(|event| event.action.as_str()).collect();
        let expected = ["scope.denied", "token.created", "tag.deleted", "notification_stream.credentials_set",
            "notification_stream.created", "tag.created", "token.created", "user.created"];
        assert_eq!(actions, expected);
        assert_eq!(events[2].address.as_deref(), Some("127.0.0.1"));
        assert!(events[2].request_id.is_some() && events[2].actor.starts_with("token "));
    }
}

#[tokio::test]
async fn a_token_that_asks_too_often_is_told_when_to_come_back() {
    let limits = Limits { requests: Quota::per_second(1, 3), runs: Quota::per_minute(2), ..Limits::default() };
    let app = TestApp::start_with(Engine::Sqlite, Settings { limits, ..Settings::default() }).await;
    let user = app.user("ada").await;
    for left in ["2", "1", "0"] {
        let reply = user.client.get("/api/user").await;
        assert_eq!(reply.header("x-ratelimit-limit"), Some("3"));
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(left));
        reply.expect(200);
    }
    let refused = user.client.get("/api/nothing-a-scope-could-open").await;
    refused.expect(404);
    let refused = user.client.get("/api/user").await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(refused.expect(429)["error"], "Too Many Requests");
    app.clock.advance_secs(1);
    user.client.get("/api/user").await.expect(200);
}

#[tokio::test]
async fn runs_and_checks_have_a_limit_of_their_own() {
    let limits = Limits { runs: Quota::per_minute(2), ..Limits::default() };
    let app = TestApp::start_with(Engine::Sqlite, Settings { limits, ..Settings::default() }).await;
    let user = app.user("ada").await;
    let path = format!("/api/remote-servers/{}/check", user.server().await);
    for _ in 0..2 {
        user.client.act(&path).await.expect(202);
    }
    let refused = user.client.act(&path).await;
    assert_eq!(refused.header("retry-after"), Some("30"));
    refused.expect(429);
}

#[tokio::test]
async fn every_refusal_before_a_route_is_json() {
    let app = TestApp::start(Engine::Sqlite).await;
    let user = app.user("ada").await;
    for path in ["//api/user", "///api/tags?page=1", "//api"] {
        let request = user.client.absolute(Method::GET, &format!("{}{path}", user.client.base_url()));
        let reply = user.client.finish(request).await;
        assert_eq!(reply.expect(404)["error"], "Not Found", "{path}");
    }
    let reply = user.client.get(&format!("/api/tags?search={}", "x".repeat(20_000))).await;
    assert_eq!(reply.expect(414)["error"], "URI Too Long");
    let reply = user.client.without_token().get("/api/user").await;
    assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"Holdfast\""));
    reply.expect(401);
}

/// Many clients read the response only after they have sent their whole body.
#[tokio::test]
async fn a_body_that_is_too_large_is_answered_after_it_was_sent() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let app = TestApp::start(Engine::Sqlite).await;
    let user = app.user("ada").await;
    let address = user.client.base_url().trim_start_matches("http://").to_owned();
    for is_chunked in [false, true] {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let length = if is_chunked { "Transfer-Encoding: chunked" } else { "Content-Length: 2097152" };
        let head = format!(
            "POST /api/tags HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n{length}\r\n\r\n",
            user.client.token()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..32 {
            if is_chunked {
                stream.write_all(b"10000\r\n").await.unwrap();
            }
            stream.write_all(&[b'x'; 65_536]).await.unwrap();
            if is_chunked {
                stream.write_all(b"\r\n").await.unwrap();
            }
        }
        if is_chunked {
            stream.write_all(b"0\r\n\r\n").await.unwrap();
        }
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 413", "{is_chunked}");
    }
}
