use holdfast_core::clock::Clock as _;
use holdfast_testkit::{Engine, MailServer, PASSWORD, Settings, TestApp, on_both_engines};

use crate::browser::{Browser, signed_in};

/// The first link that contains `part`, from there on.
fn link(text: &str, part: &str) -> String {
    let at = text.find(part).unwrap_or_else(|| panic!("no {part} in {text}"));
    text[at..].split(|c: char| c.is_whitespace() || c == '<' || c == '"' || c == ')').next().unwrap().to_owned()
}

/// The code that an authenticator app shows at the time of the test clock.
fn code(app: &TestApp, secret: &str) -> String {
    let totp = totp_rs::Builder::new()
        .with_secret(totp_rs::Secret::try_from_base32(secret).unwrap())
        .with_account_name("ada@example.org")
        .with_issuer(Some("Holdfast"))
        .build()
        .unwrap();
    totp.generate(u64::try_from(app.clock.now().as_second()).unwrap()).to_string()
}

on_both_engines! {
    async fn two_factor_with_recovery_codes(app: TestApp) {
        app.user("ada").await;
        let mut browser = signed_in(&app, "ada").await;
        let page = browser.get("/account/two-factor").await.text;
        let secret = page.split("name=\"secret\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        assert!(page.contains("<svg class=\"qr\""), "{page}");
        let wrong = browser.submit("/account/two-factor", &[("secret", &secret), ("code", "000000")]).await;
        assert!(wrong.status == 422 && wrong.text.contains(&secret), "the same secret again");
        let right = browser.submit("/account/two-factor", &[("secret", &secret), ("code", &code(&app, &secret))]).await;
        assert_eq!(right.status, 201);
        let codes: Vec<&str> = right.text.split("<li>").skip(1).map(|part| part.split('<').next().unwrap()).collect();
        assert_eq!(codes.len(), 10);

        let sign_in = async |otp: &str| {
            let mut other = Browser::new(app.client());
            other.get("/sign-in").await;
            let fields = [("email", "ada@example.org"), ("password", PASSWORD), ("otp", otp)];
            other.submit("/sign-in", &fields).await
        };
        assert!(sign_in("").await.text.contains("name=\"otp\""), "asks for the code");
        assert_eq!(sign_in(&code(&app, &secret)).await.status, 422, "the code that turned it on is used up");
        app.clock.advance_secs(31);
        assert_eq!(sign_in(&code(&app, &secret)).await.status, 303);
        assert_eq!(sign_in(&codes[0].to_uppercase()).await.status, 303);
        assert_eq!(sign_in(codes[0]).await.status, 422, "once");
        assert!(browser.get("/account/security").await.text.contains("9 recovery codes are left"));
        let refused = browser.submit("/account/two-factor/change", &[("do", "disable"), ("confirm_password", "x")]).await;
        assert_eq!(refused.status, 422);
        let renewed = browser.submit("/account/two-factor/change", &[("do", "renew"), ("confirm_password", PASSWORD)]).await;
        assert_eq!(renewed.status, 201);
        assert_eq!(sign_in(codes[1]).await.status, 422, "the old ones are void");
        browser.get("/account/security").await;
        browser.submit("/account/two-factor/change", &[("do", "disable"), ("confirm_password", PASSWORD)]).await;
        assert_eq!(sign_in("").await.status, 303);
    }

    async fn sessions_are_listed_and_ended_remotely(app: TestApp) {
        app.user("ada").await;
        let (mut here, mut there) = (signed_in(&app, "ada").await, signed_in(&app, "ada").await);
        let page = here.get("/account/security").await.text;
        assert!(page.contains("this session"), "{page}");
        let revoke = page.split("action=\"/account/sessions/").nth(1).unwrap().split('"').next().unwrap().to_owned();
        assert_eq!(here.submit(&format!("/account/sessions/{revoke}"), &[]).await.status, 303);
        assert_eq!(there.get("/account").await.status, 303, "signed out");
        assert_eq!(here.get("/account").await.status, 200);
        let mut third = signed_in(&app, "ada").await;
        let new = [("current_password", PASSWORD), ("password", "another long one")];
        assert_eq!(here.submit("/account/password", &[("current_password", "x"), ("password", "another long one")]).await.status, 422);
        assert_eq!(here.submit("/account/password", &new).await.status, 303);
        assert_eq!(third.get("/account").await.status, 303, "everywhere else");
        assert_eq!(here.get("/account").await.status, 200);
    }

    async fn people_are_invited_and_let_in(app: TestApp) {
        app.admin("ada").await;
        let mut admin = signed_in(&app, "ada").await;
        admin.get("/administration").await;
        let made = admin.submit("/administration/invite", &[("name", "Eve"), ("email", "eve@example.org")]).await;
        assert_eq!(made.status, 201, "{}", made.text);
        let path = link(&made.text, "/set-up/");
        assert!(admin.get("/administration").await.text.contains("not signed up yet"));
        let mut eve = Browser::new(app.client());
        assert!(eve.get(&path).await.text.contains("eve@example.org"));
        let fields = [("name", "Eve"), ("email", "eve@example.org"), ("password", PASSWORD), ("timezone", "UTC")];
        assert_eq!(eve.submit(&path, &fields).await.header("location"), Some("/"));
        assert_eq!(eve.get("/administration").await.status, 403);
        assert_eq!(Browser::new(app.client()).get(&path).await.status, 404, "once");
        let twice = admin.submit("/administration/invite", &[("name", "Eve"), ("email", "eve@example.org")]).await;
        assert!(twice.status == 422 && twice.text.contains("already an account with this email address"));

        let register = [("name", "Bob"), ("email", "bob@example.org"), ("password", PASSWORD), ("timezone", "UTC")];
        let mut bob = Browser::new(app.client());
        assert_eq!(bob.get("/register").await.status, 404, "closed unless opened");
        bob.get("/sign-in").await;
        assert_eq!(bob.submit("/register", &register).await.status, 404);
        assert_eq!(eve.submit("/administration/registration", &[("open", "true")]).await.status, 403);
        assert!(admin.get("/administration/registration").await.text.contains("Open registration?"));
        admin.submit("/administration/registration", &[("open", "true")]).await;
        bob.get("/register").await;
        assert_eq!(bob.submit("/register", &register).await.header("location"), Some("/"));
        assert_eq!(bob.get("/administration").await.status, 403, "nobody registers as an administrator");

        // The last administrator cannot be removed; with another one it is possible.
        assert_eq!(admin.submit("/administration/people/1/make-ordinary", &[]).await.status, 409);
        assert!(admin.get("/administration/people/1/make-ordinary").await.text.contains("give you the rights back"));
        assert_eq!(admin.submit("/administration/people/2/make-administrator", &[]).await.status, 303);
        assert_eq!(eve.get("/administration").await.status, 200);
        let own = [("email", "ada@example.org"), ("password", PASSWORD)];
        admin.get("/account/delete").await;
        assert_eq!(admin.submit("/account/delete", &[("email", "x"), ("password", PASSWORD)]).await.status, 422);
        assert_eq!(admin.submit("/account/delete", &own).await.status, 303);
        assert_eq!(admin.get("/account").await.status, 303);
        eve.get("/administration").await;
        let page = eve.get("/administration/people/3/delete").await.text;
        assert!(page.contains("Delete the account bob@example.org?") && !page.contains("your tasks"), "{page}");
        let other = eve.submit("/administration/people/3/delete", &[("name", "bob")]).await;
        assert!(other.status == 422 && other.text.contains("The address does not match."), "{}", other.text);
        let gone = eve.submit("/administration/people/3/delete", &[("name", "Bob@example.org")]).await;
        assert_eq!(gone.header("location"), Some("/administration?said=person-deleted"));
        assert_eq!(bob.get("/").await.status, 303, "gone with the session");
    }

    async fn administrators_see_and_stop_what_others_have(app: TestApp) {
        app.admin("root").await;
        let ada = app.user("ada").await;
        let eve = app.user("eve").await;
        let task = ada.task().await;
        let (mut root, mut own) = (signed_in(&app, "root").await, signed_in(&app, "ada").await);
        assert!(root.get("/administration").await.text.contains("href=\"/administration/people/2\""));
        let page = root.get("/administration/people/2").await.text;
        for shown in ["web files", "backup@127.0.0.1:1", "disk", "ada@example.org"] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
        assert_eq!(root.get("/administration/people/99").await.status, 404);
        ada.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        let base = "/administration/people/2";
        for act in ["cancel", "pause"] {
            assert_eq!(root.submit(&format!("{base}/tasks/{task}/{act}"), &[]).await.status, 303, "{act}");
        }
        let log = ada.client.get(&format!("/api/backup-tasks/{task}/latest-log")).await.data(200);
        assert_eq!(log["status"], "cancelled");
        assert!(ada.client.get(&format!("/api/backup-tasks/{task}")).await.data(200)["paused_at"].is_string());
        let events = ada.client.get("/api/audit-events?per_page=100").await.data(200);
        let newest = events.as_array().unwrap().last().unwrap().clone();
        assert_eq!((&newest["action"], &newest["user_id"]), (&"backup_task.paused".into(), &2.into()));
        assert_eq!(newest["actor"], "administrator root@example.org (session)");
        assert_eq!(root.submit(&format!("{base}/tasks/{task}/resume"), &[]).await.status, 303);
        // The task of somebody else is not the third person's.
        assert_eq!(root.submit(&format!("/administration/people/3/tasks/{task}/pause"), &[]).await.status, 403);
        assert_eq!(root.submit(&format!("{base}/tasks/{task}/delete"), &[]).await.status, 404);

        assert_eq!(root.submit("/administration/people/1/suspend", &[]).await.status, 409, "not oneself");
        assert!(root.get(&format!("{base}/suspend")).await.text.contains("Suspend ada@example.org?"));
        assert_eq!(root.submit(&format!("{base}/suspend"), &[]).await.status, 303);
        assert!(root.get(base).await.text.contains("Nobody can sign in to this account"));
        assert_eq!(own.get("/").await.status, 303, "signed out");
        let mut again = Browser::new(app.client());
        again.get("/sign-in").await;
        let refused = again.submit("/sign-in", &[("email", "ada@example.org"), ("password", PASSWORD)]).await;
        assert!(refused.status == 422 && refused.text.contains("suspended"), "{}", refused.text);
        assert_eq!(root.submit(&format!("{base}/resume"), &[]).await.status, 303);
        let mut ada_again = signed_in(&app, "ada").await;
        assert_eq!(ada_again.get("/").await.status, 200);

        eve.task().await;
        let asked = root.get(&format!("{base}/transfer?to=Eve%40example.org")).await.text;
        assert!(asked.contains("Transfer everything of ada@example.org to eve@example.org?"), "{asked}");
        assert!(asked.contains("Both accounts use these names") && asked.contains("web files"), "{asked}");
        let typed = |name| [("to", "Eve@example.org"), ("name", name)];
        assert_eq!(root.submit(&format!("{base}/transfer"), &typed("eve@example.org")).await.status, 422);
        let given = root.submit(&format!("{base}/transfer"), &typed("ada@example.org")).await;
        assert_eq!(given.header("location"), Some("/administration/people/3?said=account-transferred"));
        assert!(root.get("/administration/people/3").await.text.contains("web files"));
        ada.client.get(&format!("/api/backup-tasks/{task}")).await.expect(403);
        assert_eq!(root.submit(&format!("{base}/transfer"), &[("to", "nobody@example.org"), ("name", "ada@example.org")]).await.status, 404);
        let mut eve = signed_in(&app, "eve").await;
        assert!(eve.get(&format!("/tasks/{task}")).await.text.contains("web files"));
        assert_eq!(eve.get(base).await.status, 403);
        for path in [format!("{base}/suspend"), format!("{base}/resume"), format!("{base}/tasks/{task}/pause"),
            format!("{base}/runs/1/cancel"), format!("{base}/transfer")] {
            assert_eq!(eve.submit(&path, &[]).await.status, 403, "{path}");
        }
    }

    async fn deleting_an_account_deletes_everything_in_it(app: TestApp) {
        let ada = app.user("ada").await;
        app.admin("root").await;
        let task = ada.task().await;
        ada.stream().await;
        ada.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        let mut browser = signed_in(&app, "ada").await;
        browser.get("/account/delete").await;
        let fields = [("email", "ada@example.org"), ("password", PASSWORD)];
        assert_eq!(browser.submit("/account/delete", &fields).await.status, 409, "while something runs");
        app.run_until_idle().await;
        assert_eq!(browser.submit("/account/delete", &fields).await.status, 303);
        ada.client.get("/api/user").await.expect(401);
        let mut root = signed_in(&app, "root").await;
        assert!(root.get("/audit?all=true").await.text.contains("Account deleted"));
    }

    async fn the_profile_sets_the_language_of_the_pages(app: TestApp) {
        app.user("ada").await;
        let mut browser = signed_in(&app, "ada").await;
        browser.get("/account").await;
        let fields = [("name", "Ada"), ("email", "ada@example.org"), ("timezone", "Europe/Berlin"), ("language", "de")];
        assert_eq!(browser.submit("/account/profile", &fields).await.status, 303);
        let page = browser.get("/").await.text;
        assert!(page.contains("lang=\"de\"") && page.contains("Übersicht"), "{page}");
        let wrong = browser.submit("/servers/new", &[("label", ""), ("port", "0")]).await.text;
        assert!(wrong.contains("von 1 bis 65535"), "{wrong}");
        assert!(browser.get("/nowhere").await.text.contains("Nicht gefunden"));
        let other = [("name", "Ada"), ("email", "new@example.org"), ("timezone", "UTC"), ("language", "en")];
        assert_eq!(browser.submit("/account/profile", &other).await.status, 422, "another address needs the password");
        let sure = [&other[..], &[("current_password", PASSWORD)]].concat();
        assert_eq!(browser.submit("/account/profile", &sure).await.status, 303);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_password_is_reset_by_mail() {
    let mail = MailServer::start_open();
    let mut settings = Settings::default();
    settings.notify.smtp = holdfast_notify::Smtp::parse(&format!("smtp://127.0.0.1:{}?tls=none", mail.port()));
    let app = TestApp::start_with(Engine::Sqlite, settings).await;
    let ada = app.user("ada").await;
    let mut signed = signed_in(&app, "ada").await;
    let mut browser = Browser::new(app.client());
    browser.get("/forgotten").await;
    let (known, unknown) = (
        browser.submit("/forgotten", &[("email", "ada@example.org")]).await,
        browser.submit("/forgotten", &[("email", "nobody@example.org")]).await,
    );
    assert_eq!(
        (known.status, known.header("location")),
        (unknown.status, unknown.header("location")),
        "nobody learns who is here"
    );
    let mut mails = mail.mails();
    for _ in 0..1500 {
        if !mails.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        mails = mail.mails();
    }
    assert_eq!(mails.len(), 1, "to whom there is an account for");
    let path = link(&mails[0].text, "/set-up/");
    assert!(browser.get(&path).await.text.contains("Set a new password"));
    assert_eq!(browser.submit(&path, &[("password", "short")]).await.status, 422);
    assert_eq!(browser.submit(&path, &[("password", "another long one")]).await.status, 303);
    assert_eq!(signed.get("/account").await.status, 303, "signed out everywhere");
    ada.client.get("/api/user").await.expect(401);
    assert_eq!(browser.get(&path).await.status, 404, "once");
    browser.get("/sign-in").await;
    let fields = [("email", "ada@example.org"), ("password", "another long one")];
    assert_eq!(browser.submit("/sign-in", &fields).await.status, 303);
}
