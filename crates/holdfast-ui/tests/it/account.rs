use holdfast_app::accounts::{self, FirstStart};
use holdfast_testkit::{Engine, PASSWORD, TestApp, on_both_engines};
use reqwest::Method;
use serde_json::json;

use crate::browser::{Browser, signed_in};

on_both_engines! {
    async fn the_link_of_the_first_start_creates_the_administrator_once(app: TestApp) {
        let FirstStart::Link(link) = accounts::ensure_admin(&app.app, None).await.unwrap() else {
            panic!("nobody has signed in yet")
        };
        let path = format!("/set-up/{}", link.reveal());
        let mut browser = Browser::new(app.client());
        assert_eq!(browser.get("/").await.header("location"), Some("/sign-in"));
        assert!(browser.get(&path).await.text.contains("administrator"));
        let bad = browser.submit(&path, &[("name", "Ada"), ("email", "x"), ("password", "short"), ("timezone", "UTC")]).await;
        assert_eq!(bad.status, 422);
        assert!(bad.text.contains("Enter at least 8 characters.") && bad.text.contains("Enter an email address."), "{}", bad.text);
        let fields = [("name", "Ada"), ("email", "ada@example.org"), ("password", PASSWORD), ("timezone", "Europe/Berlin")];
        let claimed = browser.submit(&path, &fields).await;
        assert_eq!((claimed.status, claimed.header("location")), (303, Some("/")));
        assert!(browser.get("/account").await.text.contains("Signed in as Ada"));
        assert_eq!(Browser::new(app.client()).get(&path).await.status, 404);
        assert!(matches!(accounts::ensure_admin(&app.app, None).await.unwrap(), FirstStart::Ready));

        let made = browser.submit("/account/tokens", &[("token_name", "ci"), ("scopes", "manage-tags"), ("expires_in_days", "30")]).await;
        assert_eq!(made.status, 201);
        let token = made.text.split("hf_").nth(1).unwrap().split('<').next().unwrap();
        let client = app.client().with_token(&format!("hf_{token}"));
        client.get("/api/tags").await.expect(200);
        assert_eq!(client.get("/api/user").await.data(200)["account_settings"]["is_admin"], true);
        client.get("/api/backup-tasks").await.expect(403);
        let page = browser.get("/account").await;
        assert!(!page.text.contains(token), "shown once");
        let revoke = page.text.split("/account/tokens/").nth(1).unwrap().split('"').next().unwrap();
        browser.submit(&format!("/account/tokens/{revoke}"), &[]).await;
        client.get("/api/tags").await.expect(401);
        let empty = browser.submit("/account/tokens", &[("token_name", "none")]).await;
        assert_eq!(empty.status, 422);
    }

    async fn sign_in_and_out(app: TestApp) {
        app.user("ada").await;
        let mut browser = Browser::new(app.client());
        browser.get("/sign-in").await;
        let wrong = browser.submit("/sign-in", &[("email", "ada@example.org"), ("password", "wrong")]).await;
        assert!(wrong.status == 422 && wrong.text.contains("The email address or the password is wrong."));
        let right = browser.submit("/sign-in", &[("email", "ada@example.org"), ("password", PASSWORD)]).await;
        assert_eq!(right.header("location"), Some("/"));
        browser.get("/account").await;
        let old = browser.cookies.clone();
        assert_eq!(browser.submit("/sign-out", &[]).await.header("location"), Some("/sign-in"));
        browser.cookies = old;
        assert_eq!(browser.get("/account").await.header("location"), Some("/sign-in?then=%2Faccount"), "the session is gone");
    }

    async fn the_secret_of_a_session_stays_in_its_own_cookie(app: TestApp) {
        app.user("ada").await;
        let mut browser = signed_in(&app, "ada").await;
        let session = browser.cookies["holdfast_session"].clone();
        for path in ["/sign-in", "/forgotten"] {
            browser.get(path).await;
            let others = browser.cookies.iter().filter(|(name, _)| *name != "holdfast_session");
            assert!(others.clone().all(|(_, value)| *value != session), "{path}: {:?}", browser.cookies);
        }
        // Signing in works with a valid session and with an expired one.
        let fields = [("email", "ada@example.org"), ("password", PASSWORD)];
        browser.get("/sign-in").await;
        assert_eq!(browser.submit("/sign-in", &fields).await.status, 303);
        browser.cookies.clear();
        browser.cookies.insert("holdfast_session".to_owned(), "ended".to_owned());
        browser.get("/sign-in").await;
        assert_eq!(browser.submit("/sign-in", &fields).await.status, 303);
        assert_eq!(browser.get("/account").await.status, 200);
    }

    async fn undelivered_notices_are_retried_and_quiet_hours_are_set(app: TestApp) {
        let (ada, eve) = (app.user("ada").await, app.user("eve").await);
        let task = ada.task().await;
        let heard = json!({"notification_stream_ids": [ada.stream().await], "label": "<script>alert(1)</script>"});
        ada.client.put(&format!("/api/backup-tasks/{task}"), heard).await.expect(200);
        ada.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        app.run_until_idle().await;
        // Mail is not configured here: all five attempts fail.
        for seconds in [30, 120, 600, 3600] {
            app.clock.advance_secs(seconds);
            app.run_until_idle().await;
        }
        let mut browser = signed_in(&app, "ada").await;
        let page = browser.get("/notices?status=undelivered").await;
        assert!(page.text.contains("HOLDFAST_SMTP_URL") && !page.text.contains("<script>"), "{}", page.text);
        let id = page.text.split("action=\"/notices/").nth(1).unwrap().split('/').next().unwrap().to_owned();
        let mut other = signed_in(&app, "eve").await;
        assert!(!other.get("/notices").await.text.contains("HOLDFAST_SMTP_URL"));
        assert_eq!(other.submit(&format!("/notices/{id}/retry"), &[]).await.status, 403);
        let again = browser.submit(&format!("/notices/{id}/retry"), &[]).await;
        assert_eq!((again.status, again.header("location")), (303, Some("/notices?status=undelivered&said=retried")));
        let pending = ada.client.get("/api/notices?status=pending").await.expect(200);
        assert_eq!(pending["data"][0]["id"].to_string(), id);

        browser.get("/account").await;
        let quiet = [("quiet_from", "22:00"), ("quiet_until", "07:00"), ("weekly_summary", "on")];
        assert_eq!(browser.submit("/account/messages", &quiet).await.status, 303);
        let set = ada.client.get("/api/notification-settings").await.data(200);
        assert_eq!(set, json!({"weekly_summary_enabled": true, "quiet_hours": {"from": "22:00", "until": "07:00"}}));
        let bad = browser.submit("/account/messages", &[("quiet_from", "22:00")]).await;
        assert!(bad.status == 422 && bad.text.contains("Enter a time such as 22:00."), "{}", bad.text);
        assert_eq!(browser.submit("/account/messages", &[]).await.status, 303);
        let set = ada.client.get("/api/notification-settings").await.data(200);
        assert_eq!(set, json!({"weekly_summary_enabled": false, "quiet_hours": null}));
        browser.csrf = "forged".to_owned();
        assert_eq!(browser.submit("/account/messages", &quiet).await.status, 403);
        eve.client.get("/api/notices").await.expect(200);
    }

    async fn a_run_has_a_page_for_its_owner_alone(app: TestApp) {
        let ada = app.user("ada").await;
        app.user("eve").await;
        let task = ada.task().await;
        ada.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        app.run_until_idle().await;
        let run = ada.client.get(&format!("/api/backup-tasks/{task}/latest-log")).await.id(200);
        let path = format!("/runs/{run}");
        let mut visitor = Browser::new(app.client());
        let sign_in = format!("/sign-in?then=%2Fruns%2F{run}");
        assert_eq!(visitor.get(&path).await.header("location"), Some(&*sign_in));
        assert!(visitor.get(&sign_in).await.text.contains(&format!("name=\"then\" value=\"{path}\"")));
        let fields = [("email", "ada@example.org"), ("password", PASSWORD), ("then", &*path)];
        assert_eq!(visitor.submit("/sign-in", &fields).await.header("location"), Some(&*path), "back to where they came from");
        let page = signed_in(&app, "ada").await.get(&path).await;
        assert!(page.status == 200 && page.text.contains("Failed") && page.text.contains("Check that the server runs"), "{}", page.text);
        let mut other = signed_in(&app, "eve").await;
        assert_eq!(other.get(&path).await.status, 403);
        for nothing in ["/runs/999999", "/runs/x"] {
            assert_eq!(other.get(nothing).await.status, 404);
        }
    }

    async fn cross_site_forms_change_nothing(app: TestApp) {
        app.user("ada").await;
        let mut browser = Browser::new(app.client());
        browser.get("/sign-in").await;
        browser.submit("/sign-in", &[("email", "ada@example.org"), ("password", PASSWORD)]).await;
        browser.get("/account").await;
        let cookies = browser.cookie_header();
        let fields = "token_name=evil&scopes=manage-tags";
        let post = |body: String, origin: &str| {
            let request = browser.client.request(Method::POST, "/account/tokens").header("cookie", &cookies);
            browser.client.finish(request.header("origin", origin.to_owned()).body(body))
        };
        assert_eq!(post(fields.to_owned(), &app.base_url).await.status, 403, "without the token of the page");
        let with_token = format!("{fields}&csrf={}", browser.csrf);
        assert_eq!(post(with_token.clone(), "http://evil.example").await.status, 403, "from another origin");
        assert_eq!(post(with_token, &app.base_url).await.status, 201);
    }

    async fn the_api_ignores_cookies(app: TestApp) {
        app.user("ada").await;
        let mut browser = Browser::new(app.client());
        browser.get("/sign-in").await;
        browser.submit("/sign-in", &[("email", "ada@example.org"), ("password", PASSWORD)]).await;
        browser.get("/api/user").await.expect(401);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_two_factor_secret_that_was_not_issued_is_refused() {
    let app = TestApp::start(Engine::Sqlite).await;
    app.user("ada").await;
    let mut browser = signed_in(&app, "ada").await;
    for secret in ["", "A", "AAAAAAAA", "\0", "ünï", &"A".repeat(10_000)] {
        browser.get("/account/two-factor").await;
        for code in ["000000", "", "\0", "٠٠٠٠٠٠"] {
            let reply = browser.submit("/account/two-factor", &[("secret", secret), ("code", code)]).await;
            assert_eq!(reply.status, 422, "{secret:?} {code:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nul_characters_cause_no_server_error_on_either_database() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let app = TestApp::start(engine).await;
        app.admin("ada").await;
        let mut browser = signed_in(&app, "ada").await;
        let mut visitor = Browser::new(app.client());
        let pages = ["/search", "/tasks", "/runs", "/backups", "/servers", "/destinations", "/notifications", "/tags"];
        let others = ["/notices", "/audit", "/administration", "/account", "/tasks/new", "/sign-in", "/live"];
        for page in pages.into_iter().chain(others).filter(|page| *page != "/live") {
            let names =
                ["search", "text", "q", "tag", "server", "task", "status", "page", "action", "user", "from", "said"];
            for name in names {
                let reply = browser.get(&format!("{page}?{name}=a%00b")).await;
                assert!(reply.status < 500, "{page} {name}: {}", reply.status);
            }
            let reply = browser.get(&format!("{page}/%00")).await;
            assert!(reply.status < 500, "{page}/%00: {}", reply.status);
        }
        for path in ["/set-up/%00", "/sign-in/%00", "/sign-in/%00/back?state=%00&code=%00"] {
            assert!(visitor.get(path).await.status < 500, "{path}");
        }
        let zero = "a\0b";
        visitor.get("/sign-in").await;
        for path in ["/sign-in", "/forgotten", "/register"] {
            let fields = [("email", zero), ("password", zero), ("name", zero), ("otp", zero), ("timezone", zero)];
            assert!(visitor.submit(path, &fields).await.status < 500, "{path}");
        }
        browser.get("/account").await;
        let forms = [
            "/account/profile",
            "/account/tokens",
            "/account/password",
            "/account/messages",
            "/tags/new",
            "/tags",
            "/servers/new",
            "/destinations/new",
            "/notifications/new",
            "/tasks/new",
            "/tasks/bulk",
            "/administration/invite",
        ];
        for path in forms {
            let names = [
                "name",
                "label",
                "email",
                "token_name",
                "description",
                "colour",
                "timezone",
                "language",
                "host",
                "username",
                "type",
                "value",
                "current_password",
                "password",
                "source_path",
                "task",
                "quiet_from",
            ];
            let fields: Vec<(&str, &str)> = names.iter().map(|name| (*name, zero)).collect();
            let reply = browser.submit(path, &fields).await;
            assert!(reply.status < 500, "{path}: {} {}", reply.status, reply.text);
        }
    }
}
