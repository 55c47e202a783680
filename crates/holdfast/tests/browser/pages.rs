use std::path::PathBuf;

use holdfast_testkit::{Client, FaultProxy};
use serde_json::json;

use crate::stage::{EMAIL, PASSWORD, Stage};

/// Difficult labels: markup, right-to-left text, and a long word.
const HOSTILE: [&str; 3] =
    ["<img src=x onerror=alert(1)>", "نسخة احتياطية", "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww"];

/// Creates data for every page, and returns the paths of all pages that a signed-in user can open.
async fn set_up(stage: &Stage) -> Vec<String> {
    let client = stage.client();
    let task = stage.backed_up(&client).await;
    for label in HOSTILE {
        let label = if label.starts_with('w') { "w".repeat(255) } else { label.to_owned() };
        client.post("/api/tags", json!({"label": label})).await.id(201);
        let stream = json!({"label": label, "type": "slack", "value": "https://127.0.0.1:1/hook"});
        client.post("/api/notification-streams", stream).await.id(201);
        client.post("/api/backup-destinations", json!({"label": label, "type": "local"})).await.id(201);
        let server = json!({"label": label, "ip_address": "127.0.0.1", "port": 1, "username": "x"});
        let server = client.post("/api/remote-servers", server).await.id(201);
        let body = json!({
            "remote_server_id": server, "backup_destination_id": 1, "label": label, "type": "files",
            "source_path": format!("/srv/{label}"), "frequency": "weekly", "time_to_run_at": "04:00",
            "tag_ids": [1], "notification_stream_ids": [1],
        });
        let task = client.post("/api/backup-tasks", body).await.id(201);
        client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        stage.wait_until_ready(&client, task).await;
    }
    let fixed = [
        "/",
        "/tasks",
        "/tasks?state=failed",
        "/tasks/new",
        "/runs",
        "/runs/1",
        "/backups",
        "/backups/1",
        "/backups/1/restore",
        "/backups/1/delete",
        "/servers",
        "/servers/1",
        "/servers/2",
        "/servers/new",
        "/servers/1/edit",
        "/servers/1/delete",
        "/destinations",
        "/destinations/1",
        "/destinations/new",
        "/notifications",
        "/notifications/new",
        "/notifications/1/edit",
        "/notices",
        "/tags",
        "/tags/new",
        "/audit",
        "/audit?all=true",
        "/account",
        "/account/security",
        "/account/two-factor",
        "/account/delete",
        "/administration",
        "/administration/people/1",
        "/administration/people/1/make-ordinary",
        "/administration/registration",
        "/search?q=w",
    ];
    let mut paths: Vec<String> = fixed.iter().map(|path| (*path).to_owned()).collect();
    for path in ["", "/edit", "/copy", "/trigger", "/delete"] {
        paths.push(format!("/tasks/{task}{path}"));
        paths.push(format!("/tasks/2{path}"));
    }
    paths
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_is_accessible_and_without_console_errors() {
    let stage = Stage::signed_in().await;
    let browser = &stage.browser;
    let mut problems = Vec::new();
    for path in set_up(&stage).await {
        browser.set_width(1280, 900).await;
        stage.open(&path).await;
        for message in browser.problems().await {
            problems.push(format!("{path}: {message}"));
        }
        if browser.evaluate("document.images.length").await != 0 {
            problems.push(format!("{path}: somebody's label became a picture"));
        }
        problems.extend(stage.look(&path).await);
        browser.set_width(320, 640).await;
        let width = browser.evaluate("document.documentElement.scrollWidth").await;
        if width.as_i64() > Some(320) {
            problems.push(format!("{path}: {width} wide on a phone"));
        }
    }
    // Pages that only signed-out visitors see, and responses to forms.
    browser.set_width(1280, 900).await;
    stage.open("/servers/new").await;
    browser.fill("label", "x").await;
    browser.fill("ip_address", "not a host!").await;
    browser.fill("username", "x").await;
    browser.press("Add and check").await;
    browser.wait_for("document.querySelector('[aria-invalid]')").await;
    problems.extend(stage.look("a form with a mistake").await);
    stage.open("/tasks/new").await;
    browser.click("button[value=browse]").await;
    browser.wait_for("document.querySelector('dialog[open] h1')").await;
    problems.extend(stage.look("a dialog").await);
    stage.open("/backups/1/restore").await;
    browser.fill("path", "/srv/back").await;
    browser.press("Review").await;
    browser.wait_for_text("What will happen").await;
    problems.extend(stage.look("the summary of a restore").await);
    stage.open("/nowhere").await;
    problems.extend(stage.look("a problem").await);
    stage.open("/account").await;
    browser.choose("language", "Deutsch").await;
    browser.press("Save").await;
    browser.wait_for("document.documentElement.lang === 'de'").await;
    stage.open("/").await;
    problems.extend(stage.look("the overview in German").await);
    browser.click("details.person summary").await;
    browser.press("Abmelden").await;
    for path in ["/sign-in", "/forgotten"] {
        stage.open(path).await;
        problems.extend(stage.look(path).await);
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_say_when_the_connection_is_lost_and_catch_up() {
    let stage = Stage::signed_in().await;
    let client = stage.client();
    let task = stage.backed_up(&client).await;
    let browser = &stage.browser;
    let port = stage.service.base_url.rsplit(':').next().unwrap().parse().unwrap();
    let proxy = FaultProxy::start(port);
    let through = format!("http://127.0.0.1:{}", proxy.port());
    browser.open(&format!("{through}/sign-in")).await;
    browser.fill("email", EMAIL).await;
    browser.fill("password", PASSWORD).await;
    browser.press("Sign in").await;
    browser.wait_for("location.pathname === '/'").await;
    browser.open(&format!("{through}/tasks/{task}")).await;
    browser.wait_for_text("Backed up").await;
    proxy.refuse();
    proxy.cut_after(0);
    browser.wait_for("!document.getElementById('connection').hidden").await;
    client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
    stage.wait_until_ready(&client, task).await;
    proxy.heal();
    browser.wait_for("document.querySelectorAll('#task-state .timeline li').length === 2").await;
    browser.wait_for("document.getElementById('connection').hidden").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keyboard_reaches_everything() {
    let stage = Stage::signed_in().await;
    let browser = &stage.browser;
    stage.open("/tasks").await;
    browser.keys("\u{e004}").await;
    browser.wait_for("document.activeElement.className === 'skip'").await;
    browser.keys("\u{e007}").await;
    browser.wait_for("location.hash === '#main'").await;
    browser.chord('\u{e009}', 'k').await;
    browser.wait_for("document.activeElement.matches('[data-search]')").await;
    browser.click("details.person summary").await;
    browser.press("Dark theme").await;
    browser.wait_for("document.documentElement.dataset.theme === 'dark'").await;
    stage.open("/account").await;
    browser.choose("language", "Deutsch").await;
    browser.press("Save").await;
    browser.wait_for("document.documentElement.lang === 'de'").await;
    assert_eq!(browser.problems().await, Vec::<String>::new());
}

/// Takes the screenshots of the README; run by `cargo xtask screenshots`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes files; run by cargo xtask screenshots"]
async fn screenshots() {
    let folder = PathBuf::from(std::env::var("SCREENSHOTS").expect("a folder to write to"));
    let stage = Stage::signed_in().await;
    let client = stage.client();
    let task = stage.backed_up(&client).await;
    furnish_nicely(&stage, &client).await;
    client.act("/api/backups/1/verify").await.expect(202);
    stage.open("/backups/1").await;
    stage.browser.wait_for_text("Verified").await;
    let shots = [
        ("overview", "/".to_owned(), 1280, 900, false),
        ("overview-dark", "/".to_owned(), 1280, 900, true),
        ("task", format!("/tasks/{task}"), 1280, 900, false),
        ("task-form", "/tasks/new".to_owned(), 1280, 1400, false),
        ("restore", "/backups/1".to_owned(), 1280, 900, true),
        ("phone", "/".to_owned(), 390, 844, false),
    ];
    let more = std::env::var("SCREENSHOTS_OF").unwrap_or_default();
    let more = more.split_whitespace().flat_map(|path| {
        let name = path.trim_matches('/').replace(['/', '?', '='], "-");
        [
            (name.clone(), path.to_owned(), 1280, 1000, false),
            (format!("{name}-phone"), path.to_owned(), 390, 1000, true),
        ]
    });
    let shots =
        shots.into_iter().map(|(name, path, width, height, is_dark)| (name.to_owned(), path, width, height, is_dark));
    for (name, path, width, height, is_dark) in shots.chain(more) {
        stage.browser.set_width(width, height).await;
        stage.browser.set_dark(is_dark).await;
        stage.open(&path).await;
        stage.browser.screenshot(&folder.join(format!("{name}.png"))).await;
    }
}

/// Creates sample tasks of a small company.
async fn furnish_nicely(stage: &Stage, client: &Client) {
    client.post("/api/tags", json!({"label": "production", "colour": "#a8201a"})).await.id(201);
    let stream = json!({"label": "team chat", "type": "slack", "value": "https://127.0.0.1:1/hook"});
    client.post("/api/notification-streams", stream).await.id(201);
    let server = json!({"label": "db-1", "ip_address": "127.0.0.1", "port": 1, "username": "backup"});
    let broken = client.post("/api/remote-servers", server).await.id(201);
    for (label, server, path, time) in
        [("customers", 1, "site/pictures", "01:15"), ("invoices", 1, "site", "02:30"), ("orders", broken, "x", "05:00")]
    {
        let path = stage.files.path().join(path);
        let body = json!({
            "remote_server_id": server, "backup_destination_id": 1, "label": label, "type": "files",
            "source_path": path, "frequency": "daily", "time_to_run_at": time, "tag_ids": [1],
        });
        let task = client.post("/api/backup-tasks", body).await.id(201);
        client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        stage.wait_until_ready(client, task).await;
    }
}
