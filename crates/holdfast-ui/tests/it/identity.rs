use holdfast_core::Secret;
use holdfast_identity::{Client, GitHubSettings, OidcSettings};
use holdfast_testkit::{CLIENT_ID, CLIENT_SECRET, Engine, IdentityServer, PASSWORD, Reply, Settings, TestApp};
use reqwest::Method;

use crate::browser::{Browser, signed_in};

async fn start() -> (IdentityServer, TestApp) {
    start_with(Settings::default()).await
}

async fn start_with(settings: Settings) -> (IdentityServer, TestApp) {
    let server = IdentityServer::start().await;
    let url = server.base_url().to_owned();
    let client = || Client { id: CLIENT_ID.into(), secret: Secret::new(CLIENT_SECRET) };
    let github = Some(GitHubSettings { client: client(), url: url.clone(), api_url: url.clone() });
    let oidc = Some(OidcSettings { client: client(), issuer: url, name: "Company".into() });
    let identity = holdfast_identity::Settings { github, oidc, ..Default::default() };
    let settings = Settings { identity, ..settings };
    (server, TestApp::start_with(Engine::Sqlite, settings).await)
}

/// Signs in with the provider by following the redirects, as a browser does.
async fn visit(browser: &mut Browser, provider: &str) -> Reply {
    let left = browser.get(&format!("/sign-in/{provider}")).await;
    let there = left.header("location").unwrap().to_owned();
    let answer = browser.client.finish(browser.client.absolute(Method::GET, &there)).await;
    let back = answer.header("location").unwrap().to_owned();
    browser.get(back.strip_prefix(browser.client.base_url()).unwrap()).await
}

/// Starts to link an account of the provider.
async fn link(browser: &mut Browser, provider: &str, password: &str) -> Reply {
    browser.get("/account/security").await;
    browser.submit(&format!("/account/identities/{provider}/link"), &[("confirm_password", password)]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_linked_account_signs_in() {
    let (server, app) = start().await;
    let ada = app.user("ada").await;
    app.user("eve").await;
    for provider in ["oidc", "github"] {
        let mut stranger = Browser::new(app.client());
        let page = stranger.get("/sign-in").await.text;
        assert!(page.contains("Sign in with Company") && page.contains("Sign in with GitHub"), "{page}");
        let refused = visit(&mut stranger, provider).await;
        assert!(refused.status == 409 && refused.text.contains("No account here is linked"), "{}", refused.text);
        assert_eq!(stranger.get("/").await.status, 303, "nobody is signed in by that");

        let mut browser = signed_in(&app, "ada").await;
        assert_eq!(visit(&mut browser, provider).await.status, 409, "nobody is linked by being led there");
        assert_eq!(link(&mut browser, provider, "wrong").await.status, 422);
        assert_eq!(link(&mut browser, provider, PASSWORD).await.status, 200);
        assert_eq!(
            visit(&mut browser, provider).await.header("location"),
            Some("/account/security?said=identity-linked#identities")
        );
        let page = browser.get("/account/security").await.text;
        assert!(page.contains("octocat-7"), "{page}");
        let mut again = Browser::new(app.client());
        assert_eq!(visit(&mut again, provider).await.header("location"), Some("/"));
        assert!(again.get("/account").await.text.contains("Signed in as ada"));

        let mut eve = signed_in(&app, "eve").await;
        assert_eq!(link(&mut eve, provider, PASSWORD).await.status, 200);
        let taken = visit(&mut eve, provider).await;
        assert!(taken.status == 409 && taken.text.contains("linked to somebody else"), "{}", taken.text);
        server.become_other(8);
        assert_eq!(visit(&mut Browser::new(app.client()), provider).await.status, 409, "another person there");
        server.become_other(7);
        let settings = ada.client.get("/api/user").await.data(200)["account_settings"].clone();
        assert_eq!(settings["github_login_enabled"], provider == "github");
        browser.get("/account/security").await;
        assert_eq!(browser.submit(&format!("/account/identities/{provider}/unlink"), &[]).await.status, 303);
        assert_eq!(visit(&mut Browser::new(app.client()), provider).await.status, 409, "unlinked");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_is_valid_only_in_the_browser_that_started_it() {
    let (_server, app) = start().await;
    app.user("ada").await;
    let mut browser = signed_in(&app, "ada").await;
    assert_eq!(link(&mut browser, "oidc", PASSWORD).await.status, 200);
    visit(&mut browser, "oidc").await;
    // An attacker's callback opened in the browser of a victim, which did not start that sign-in.
    let mut attacker = Browser::new(app.client());
    let left = attacker.get("/sign-in/oidc").await;
    let there = left.header("location").unwrap().to_owned();
    let answer = attacker.client.finish(attacker.client.absolute(Method::GET, &there)).await;
    let back = answer.header("location").unwrap().to_owned();
    let back = back.strip_prefix(app.base_url.as_str()).unwrap();
    let mut victim = signed_in(&app, "ada").await;
    assert_eq!(victim.get(back).await.status, 409);
    victim.get("/sign-in/oidc").await;
    assert_eq!(victim.get(back).await.status, 409, "nor with a way of its own under way");
    for path in ["/sign-in/oidc/back", "/sign-in/nobody", "/sign-in/nobody/back?code=x&state=y"] {
        assert!(matches!(victim.get(path).await.status, 404 | 409), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_that_tries_too_often_keeps_nobody_else_from_signing_in() {
    let mut settings = Settings::default();
    settings.limits.sign_ins = holdfast_core::rate::Quota::per_minute(1);
    let (_server, app) = start_with(settings).await;
    let leave = async |from: [u8; 4]| {
        let client = reqwest::Client::builder()
            .local_address(std::net::IpAddr::from(from))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .unwrap();
        client.get(format!("{}/sign-in/github", app.base_url)).send().await.unwrap().status().as_u16()
    };
    let mut answers = Vec::new();
    while answers.last() != Some(&429) {
        assert!(answers.len() < 100, "one address may try for ever");
        answers.push(leave([127, 0, 0, 1]).await);
    }
    assert_eq!(leave([127, 0, 0, 2]).await, 303);
}

/// An intruder may have created a token or linked an account; a new password must revoke those, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_password_revokes_tokens_and_unlinks_accounts_unless_they_are_kept() {
    let (_server, app) = start().await;
    let (ada, eve) = (app.user("ada").await, app.user("eve").await);
    let mut browser = signed_in(&app, "ada").await;
    link(&mut browser, "github", PASSWORD).await;
    visit(&mut browser, "github").await;

    browser.get("/account/security").await;
    let keep = [("keep_tokens", "on"), ("keep_identities", "on")];
    let wrong = [&[("current_password", "wrong"), ("password", "the second password")], &keep[..]].concat();
    let refused = browser.submit("/account/password", &wrong).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.text.matches(" checked").count(), 2, "what was chosen stays chosen: {}", refused.text);
    let kept = [&[("current_password", PASSWORD), ("password", "the second password")], &keep[..]].concat();
    assert_eq!(browser.submit("/account/password", &kept).await.status, 303);
    ada.client.get("/api/user").await.expect(200);
    assert_eq!(visit(&mut Browser::new(app.client()), "github").await.header("location"), Some("/"));

    let mut elsewhere = Browser::new(app.client());
    visit(&mut elsewhere, "github").await;
    browser.get("/account/security").await;
    let plain = [("current_password", "the second password"), ("password", "the third password")];
    let changed = browser.submit("/account/password", &plain).await;
    assert_eq!(changed.header("location"), Some("/account/security?said=password-changed"));
    ada.client.get("/api/user").await.expect(401);
    assert_eq!(visit(&mut Browser::new(app.client()), "github").await.status, 409, "unlinked");
    assert_eq!(elsewhere.get("/account").await.status, 303, "signed out");
    let page = browser.get("/account/security?said=password-changed").await;
    assert!(page.status == 200 && page.text.contains("trigger URLs that you did not keep"), "{}", page.text);
    let audit = browser.get("/audit").await.text;
    assert!(audit.contains("linked accounts removed: 1, API tokens revoked: 1, trigger URLs removed: 0"), "{audit}");
    assert!(audit.contains("linked accounts kept, API tokens kept, trigger URLs kept"), "{audit}");
    eve.client.get("/api/user").await.expect(200);
}
