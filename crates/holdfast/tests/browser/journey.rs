use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_testkit::FaultProxy;
use serde_json::json;

use crate::stage::{EMAIL, PASSWORD, Stage, read};

/// The code that an authenticator app shows now.
fn code(secret: &str) -> String {
    code_in(secret, 0)
}

/// The code that it will show in this many seconds; codes are accepted a little early.
fn code_in(secret: &str, seconds: i64) -> String {
    let totp = totp_rs::Builder::new()
        .with_secret(totp_rs::Secret::try_from_base32(secret).unwrap())
        .with_account_name(EMAIL)
        .with_issuer(Some("Holdfast"))
        .build()
        .unwrap();
    totp.generate(u64::try_from(SystemClock.now().as_second() + seconds).unwrap()).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_nothing_to_a_restored_file() {
    let stage = Stage::empty().await;
    let browser = &stage.browser;
    stage.open("/").await;
    assert!(browser.address().await.starts_with("/sign-in"), "nobody sees anything before they sign in");
    stage.claim().await;
    browser.wait_for_text("Nothing is backed up yet.").await;
    browser.wait_for_text("Steps to your first verified backup").await;
    stage.assert_accessible("the first steps").await;

    // A server that does not accept the key yet: the page says so, shows the command, and notices when it has been run.
    browser.press("Add a server").await;
    browser.fill("label", "web-1").await;
    browser.fill("ip_address", "127.0.0.1").await;
    browser.fill("port", &stage.ssh.port().to_string()).await;
    browser.fill("username", stage.ssh.username()).await;
    browser.press("Add and check").await;
    browser.wait_for_text("Offline").await;
    browser.wait_for_text("Install your public SSH key").await;
    stage.assert_accessible("a server that is offline").await;
    let command = browser.evaluate("document.getElementById('install-command').innerText").await;
    let key = command.as_str().unwrap().split('\'').nth(1).unwrap().to_owned();
    stage.ssh.authorize(&key);
    browser.press("Check now").await;
    browser.wait_for_text("Online").await;
    browser.wait_for_text("SHA256:").await;

    stage.open("/destinations/new").await;
    assert_eq!(browser.evaluate("document.querySelector('[name=s3_bucket_name]').offsetParent").await, json!(null));
    browser.fill("label", "disk").await;
    browser.press("Add and check").await;
    browser.wait_for_text("Reachable").await;

    // The form helps: it browses the server, describes the schedule, and estimates the size.
    stage.open("/tasks/new").await;
    browser.fill("label", "web files").await;
    browser.fill("source_path", stage.files.path().to_str().unwrap()).await;
    browser.click("button[value=browse]").await;
    browser.wait_for("document.querySelector('dialog[open]')").await;
    browser.wait_for_text("site/").await;
    browser.press("site/").await;
    browser.wait_for_text("pictures/").await;
    browser.click("dialog button[data-pick]").await;
    let site = stage.site();
    browser.wait_for(&format!("document.querySelector('[name=source_path]').value === {}", json!(site))).await;
    browser.wait_for_text("Every day at 03:00 UTC").await;
    browser.choose("frequency", "cron expression").await;
    browser.fill("custom_cron", "61 * * * *").await;
    browser.wait_for_text("Enter a cron expression with five fields.").await;
    browser.fill("custom_cron", "*/30 * * * *").await;
    browser.wait_for("document.querySelectorAll('#schedule li').length === 5").await;
    browser.evaluate("document.querySelector('[name=excluded_paths]').value = '*.log'").await;
    browser.click("button[value=size]").await;
    browser.wait_for_text("Entries: 4").await;
    browser.press("Close").await;
    browser.press("Create task").await;
    browser.wait_for_text("Not run yet").await;

    browser.click("#run").await;
    browser.wait_for_text("Backed up").await;
    browser.wait_for_text("Not verified yet").await;
    assert!(browser.address().await.starts_with("/tasks/"), "without a reload");

    // The backup is verified, browsed, searched, downloaded and restored.
    browser.click("#task-state table a").await;
    browser.press("Verify now").await;
    browser.wait_for_text("Successful").await;
    stage.open("/backups").await;
    browser.wait_for("document.querySelector('#backups td .state.good')").await;
    browser.click("#backups a.whole").await;
    browser.press("pictures/").await;
    browser.wait_for_text("cat.txt").await;
    browser.fill("search", "INDEX").await;
    browser.press("Search").await;
    browser.wait_for_text("index.html").await;
    let taken =
        browser.evaluate("fetch(document.querySelector('a[download]').href).then((answer) => answer.text())").await;
    assert_eq!(taken, json!("<h1>Hello</h1>"));
    browser.click("input[name=entry]").await;
    browser.press("Restore selected").await;
    let target = stage.files.path().join("back");
    browser.fill("path", target.to_str().unwrap()).await;
    browser.press("Review").await;
    browser.wait_for_text("What will happen").await;
    browser.wait_for_text("Nothing is replaced").await;
    assert!(!target.exists(), "nothing moves before the summary");
    browser.press("Restore now").await;
    browser.wait_for_text("Successful").await;
    assert_eq!(read(&target.join("index.html")), "<h1>Hello</h1>");
    assert!(!target.join("pictures").exists(), "only what was chosen");

    stage.open("/").await;
    browser.wait_for_text("Everything is backed up.").await;
    assert!(!browser.text().await.contains("Steps to your first"), "the first steps are done");
    assert_eq!(browser.problems().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signing_in_with_a_second_factor() {
    let stage = Stage::signed_in().await;
    let browser = &stage.browser;
    stage.open("/account/two-factor").await;
    let secret = browser.evaluate("document.getElementById('two-factor-secret').innerText").await;
    let secret = secret.as_str().unwrap().to_owned();
    browser.fill("code", &code(&secret)).await;
    browser.press("Confirm and turn on").await;
    browser.wait_for_text("Recovery codes").await;
    stage.assert_accessible("recovery codes").await;
    let recovery = browser.evaluate("document.querySelector('#codes li').innerText").await;
    let recovery = recovery.as_str().unwrap().to_owned();
    let sign_out = async || {
        browser.click("details.person summary").await;
        browser.press("Sign out").await;
        browser.wait_for("location.pathname === '/sign-in'").await;
    };
    sign_out().await;
    assert_eq!(browser.problems().await, Vec::<String>::new());
    // The next code: the one that enabled two-factor authentication cannot be used again.
    stage.sign_in(EMAIL).await;
    browser.wait_for_text("One-time code").await;
    stage.assert_accessible("the question for a code").await;
    browser.fill("password", PASSWORD).await;
    browser.fill("otp", &code_in(&secret, 30)).await;
    browser.press("Sign in").await;
    browser.wait_for_text("Nothing is backed up yet.").await;
    sign_out().await;
    for (number, code) in [recovery.clone(), recovery].iter().enumerate() {
        stage.sign_in(EMAIL).await;
        browser.wait_for_text("One-time code").await;
        browser.fill("password", PASSWORD).await;
        browser.fill("otp", code).await;
        browser.press("Sign in").await;
        if number == 0 {
            browser.wait_for_text("Nothing is backed up yet.").await;
            sign_out().await;
        } else {
            browser.wait_for_text("The code is wrong.").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_shown_once_and_revoked() {
    let stage = Stage::signed_in().await;
    let browser = &stage.browser;
    stage.open("/account").await;
    browser.fill("token_name", "ci").await;
    browser.click("input[value=manage-tags]").await;
    browser.press("Create token").await;
    browser.wait_for_text("Your new token").await;
    let token = browser.evaluate("document.getElementById('new-token').innerText").await;
    let client = stage.service.client().with_token(token.as_str().unwrap());
    client.get("/api/tags").await.expect(200);
    client.get("/api/backup-tasks").await.expect(403);
    stage.open("/account").await;
    assert!(!browser.text().await.contains(token.as_str().unwrap()), "shown once");
    browser.press("Revoke").await;
    browser.wait_for_text("Revoked.").await;
    client.get("/api/tags").await.expect(401);
    assert_eq!(browser.problems().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_server_is_reported_with_advice() {
    let mut stage = Stage::signed_in().await;
    let client = stage.client();
    let task = stage.backed_up(&client).await;
    stage.ssh.stop();
    stage.open(&format!("/tasks/{task}")).await;
    stage.browser.wait_for_text("Backed up").await;
    stage.browser.click("#run").await;
    stage.browser.wait_for_text("Failed").await;
    stage.browser.wait_for_text("Check that the server runs").await;
    stage.open("/").await;
    stage.browser.wait_for_text("1 task needs attention.").await;
    stage.open("/tasks?state=failed").await;
    stage.browser.wait_for_text("web files").await;
    assert_eq!(stage.browser.problems().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_what_is_anothers() {
    let stage = Stage::signed_in().await;
    let client = stage.client();
    let task = stage.backed_up(&client).await;
    let arguments = ["user", "create", "--email", "eve@example.org", "--name", "Eve"];
    stage.installation.succeed(&arguments, PASSWORD);
    stage.browser.click("details.person summary").await;
    stage.browser.press("Sign out").await;
    stage.sign_in("eve@example.org").await;
    stage.browser.wait_for_text("Nothing is backed up yet.").await;
    for path in [&format!("/tasks/{task}"), "/backups/1", "/runs/1", "/servers/1", "/destinations/1", "/administration"]
    {
        stage.open(path).await;
        stage.browser.wait_for_text("Not allowed").await;
        assert!(!stage.browser.text().await.contains("web"), "{path}");
    }
    let problems = stage.browser.problems().await;
    assert!(problems.iter().all(|problem| problem.contains("status of 403")), "{problems:?}");
}

/// With JavaScript disabled, links and forms are enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_script_everything_still_works() {
    let stage = Stage::signed_in().await;
    let client = stage.client();
    let first = stage.backed_up(&client).await;
    for label in ["one", "two"] {
        client.post("/api/tags", json!({"label": label})).await.id(201);
    }
    let browser = &stage.browser;
    browser.set_script(false).await;
    stage.open("/tasks/new").await;
    browser.fill("label", "no script").await;
    browser.fill("source_path", stage.files.path().to_str().unwrap()).await;
    browser.fill("encryption_password", "open sesame").await;
    browser.click("details.group summary").await;
    browser.click("input[name=tag_ids][value='1']").await;
    browser.click("input[name=tag_ids][value='2']").await;
    browser.click("button[value=browse]").await;
    browser.press("site/").await;
    let site = stage.site();
    browser.press(&format!("Select {}", site.display())).await;
    browser.wait_for(&format!("document.querySelector('[name=source_path]').value === {}", json!(site))).await;
    assert_eq!(browser.evaluate("document.querySelectorAll('[name=tag_ids]:checked').length").await, json!(2));
    browser.wait_for_text("Enter it again").await;
    browser.fill("encryption_password", "open sesame").await;
    browser.click("button[value=schedule]").await;
    browser.wait_for_text("Next runs:").await;
    browser.wait_for_text("Enter it again").await;
    browser.fill("encryption_password", "open sesame").await;
    browser.press("Create task").await;
    browser.wait_for_text("Not run yet").await;
    let task = client.get(&format!("/api/backup-tasks/{}", first + 1)).await.data(200);
    assert_eq!((&task["label"], &task["tag_ids"]), (&json!("no script"), &json!([1, 2])));
    assert_eq!((&task["source"]["path"], &task["has_encryption_password"]), (&json!(site), &json!(true)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_watched_while_it_goes_and_cancelled() {
    let stage = Stage::signed_in().await;
    let client = stage.client();
    stage.authorize(&client).await;
    // A slow connection, so that there is something to watch.
    let proxy = FaultProxy::start(stage.ssh.port());
    proxy.throttle(300_000);
    std::fs::write(stage.site().join("large"), holdfast_testkit::random(1, 8_000_000)).unwrap();
    let mut server = stage.server_body();
    server["port"] = json!(proxy.port());
    let server = client.post("/api/remote-servers", server).await.id(201);
    let destination = client.post("/api/backup-destinations", json!({"label": "disk", "type": "local"})).await.id(201);
    let body = json!({
        "remote_server_id": server, "backup_destination_id": destination, "label": "slow", "type": "files",
        "source_path": stage.site(), "frequency": "hourly",
    });
    let task = client.post("/api/backup-tasks", body).await.id(201);
    let browser = &stage.browser;
    stage.open(&format!("/tasks/{task}")).await;
    browser.click("#run").await;
    browser.wait_for("document.querySelector('progress[value]')").await;
    browser.wait_for_text("of about").await;
    browser.wait_for_text("Backing up").await;
    stage.assert_accessible("a run that goes on").await;
    let first = browser.evaluate("document.querySelector('progress').value").await.as_f64().unwrap();
    // The bar moves without a reload, and the focus stays where it is.
    browser.evaluate("document.querySelector('.live button').focus()").await;
    browser.evaluate("window.isSamePage = true").await;
    browser.wait_for(&format!("document.querySelector('progress').value > {first}")).await;
    assert_eq!(
        browser.evaluate("document.activeElement === document.querySelector('.live button')").await,
        json!(true)
    );
    assert_eq!(browser.evaluate("window.isSamePage === true").await, json!(true));
    browser.press("Cancel").await;
    browser.wait_for_text("Cancelled").await;
    assert_eq!(browser.problems().await, Vec::<String>::new());
}
