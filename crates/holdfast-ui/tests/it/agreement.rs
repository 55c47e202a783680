use std::time::Duration;

use holdfast_core::ids::{RunId, TaskId};
use holdfast_core::run::{RunSubject, Trigger};
use holdfast_store::runs::{self, NewRun};
use holdfast_store::tasks;
use holdfast_testkit::{PASSWORD, TestApp, TestUser, on_both_engines};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::browser::{Browser, signed_in};

/// The same input for the API and for a form, and the field that both must refuse; `None` when it is valid.
struct Case {
    api: &'static str,
    page: &'static str,
    fields: Vec<(&'static str, &'static str)>,
    refused: Option<&'static str>,
}

fn case(
    api: &'static str,
    page: &'static str,
    fields: &[(&'static str, &'static str)],
    refused: Option<&'static str>,
) -> Case {
    Case { api, page, fields: fields.to_vec(), refused }
}

/// The JSON body that corresponds to a form.
fn body(case: &Case) -> Value {
    const NUMBERS: [&str; 5] =
        ["port", "maximum_backups_to_keep", "remote_server_id", "backup_destination_id", "day_of_month"];
    let mut body = Map::new();
    for (name, value) in &case.fields {
        let value = match *name {
            name if NUMBERS.contains(&name) => value.parse::<i64>().map_or(json!(value), |number| json!(number)),
            "excluded_paths" => json!(value.lines().collect::<Vec<_>>()),
            _ => json!(value),
        };
        body.insert((*name).to_owned(), value);
    }
    Value::Object(body)
}

fn long() -> &'static str {
    Box::leak("x".repeat(256).into_boxed_str())
}

fn cases() -> Vec<Case> {
    let (servers, streams) =
        (("/api/remote-servers", "/servers/new"), ("/api/notification-streams", "/notifications/new"));
    let (destinations, tasks) =
        (("/api/backup-destinations", "/destinations/new"), ("/api/backup-tasks", "/tasks/new"));
    let task = [
        ("remote_server_id", "1"),
        ("backup_destination_id", "1"),
        ("label", "web"),
        ("type", "files"),
        ("source_path", "/srv"),
        ("frequency", "daily"),
        ("time_to_run_at", "03:00"),
    ];
    let changed = |name: &'static str, value: &'static str| -> Vec<(&'static str, &'static str)> {
        let kept = task.iter().copied().filter(|(known, _)| *known != name);
        kept.chain([(name, value)]).collect()
    };
    let database = |engine: &'static str, named: (&'static str, &'static str)| -> Vec<(&'static str, &'static str)> {
        let kept = task.iter().copied().filter(|(known, _)| !["type", "source_path"].contains(known));
        kept.chain([("type", "database"), ("database_engine", engine), named]).collect()
    };
    vec![
        case("/api/tags", "/tags/new", &[("label", "<b>production</b>")], None),
        case("/api/tags", "/tags/new", &[("label", "")], Some("label")),
        case("/api/tags", "/tags/new", &[("label", long())], Some("label")),
        case(
            servers.0,
            servers.1,
            &[("label", "a"), ("ip_address", "127.0.0.1"), ("username", "x"), ("port", "22")],
            None,
        ),
        case(
            servers.0,
            servers.1,
            &[("label", "a"), ("ip_address", "127.0.0.1"), ("username", "x"), ("port", "0")],
            Some("port"),
        ),
        case(
            servers.0,
            servers.1,
            &[("label", "a"), ("ip_address", "-oProxyCommand=x"), ("username", "x"), ("port", "22")],
            Some("ip_address"),
        ),
        case(
            servers.0,
            servers.1,
            &[("label", "a"), ("ip_address", "127.0.0.1"), ("username", "-x"), ("port", "22")],
            Some("username"),
        ),
        case(streams.0, streams.1, &[("label", "a"), ("type", "email"), ("value", "ops@example.org")], None),
        case(streams.0, streams.1, &[("label", "a"), ("type", "email"), ("value", "ops")], Some("value")),
        case(streams.0, streams.1, &[("label", "a"), ("type", "slack"), ("value", "ftp://x")], Some("value")),
        case(streams.0, streams.1, &[("label", "a"), ("type", "pigeon"), ("value", "x")], Some("type")),
        case(destinations.0, destinations.1, &[("label", "a"), ("type", "local")], None),
        case(
            destinations.0,
            destinations.1,
            &[("label", "a"), ("type", "s3"), ("s3_bucket_name", "")],
            Some("s3_bucket_name"),
        ),
        case(destinations.0, destinations.1, &[("label", "a"), ("type", "tape")], Some("type")),
        case(tasks.0, tasks.1, &task, None),
        case(tasks.0, tasks.1, &changed("label", ""), Some("label")),
        case(tasks.0, tasks.1, &changed("source_path", ""), Some("source_path")),
        case(tasks.0, tasks.1, &changed("time_to_run_at", "25:00"), Some("time_to_run_at")),
        case(tasks.0, tasks.1, &changed("remote_server_id", "999999"), Some("remote_server_id")),
        case(tasks.0, tasks.1, &changed("backup_destination_id", "999999"), Some("backup_destination_id")),
        case(tasks.0, tasks.1, &changed("store_path", "../x"), Some("store_path")),
        case(tasks.0, tasks.1, &changed("appended_filename", "a/b"), Some("appended_filename")),
        case(tasks.0, tasks.1, &changed("maximum_backups_to_keep", "1001"), Some("maximum_backups_to_keep")),
        case(tasks.0, tasks.1, &changed("excluded_paths", "*.log\n/tmp"), None),
        case(tasks.0, tasks.1, &database("postgresql", ("database_name", "shop")), None),
        case(tasks.0, tasks.1, &database("sqlite", ("source_path", "/srv/shop.db")), None),
        case(tasks.0, tasks.1, &database("sqlite", ("source_path", "")), Some("source_path")),
        case(tasks.0, tasks.1, &database("oracle", ("database_name", "shop")), Some("database_engine")),
    ]
}

/// The newest resource in the API, without the fields that always differ.
async fn newest(user: &TestUser, api: &str) -> Value {
    let page = user.client.get(&format!("{api}?per_page=100")).await.expect(200);
    let mut item = page["data"].as_array().unwrap().last().unwrap().clone();
    for name in ["id", "created_at", "updated_at"] {
        item.as_object_mut().unwrap().remove(name);
    }
    item
}

async fn count(user: &TestUser, api: &str) -> i64 {
    user.client.get(api).await.expect(200)["meta"]["total"].as_i64().unwrap()
}

async fn agree(user: &TestUser, browser: &mut Browser, case: &Case) {
    let said = format!("{} {:?}", case.page, case.fields);
    let by_api = user.client.post(case.api, body(case)).await;
    let made_by_api = if case.refused.is_none() { Some(newest(user, case.api).await) } else { None };
    let before = count(user, case.api).await;
    browser.get(case.page).await;
    let by_page = browser.submit(case.page, &case.fields).await;
    match case.refused {
        None => {
            assert_eq!((by_api.status, by_page.status), (201, 303), "{said}: {}", by_page.text);
            let mut made = newest(user, case.api).await;
            // The flags of a new stream may differ: the form does not use the default of the API.
            if case.api.ends_with("streams") {
                made["notifications"] = made_by_api.as_ref().unwrap()["notifications"].clone();
            }
            assert_eq!(Some(made), made_by_api, "{said}");
        }
        Some(field) => {
            assert_eq!((by_api.status, by_page.status), (422, 422), "{said}: {} {}", by_api.text, by_page.text);
            let texts = by_api.body["errors"][field].as_array().unwrap_or_else(|| panic!("{said}: {}", by_api.text));
            // The form shows as many errors for the field as the API, in the page's own words.
            let shown = by_page.text.split(&format!("id=\"{field}-errors\"")).nth(1).expect(&said);
            let shown = shown.split("</div>").next().unwrap();
            assert_eq!(shown.matches("field-error").count(), texts.len(), "{said}: {shown}");
            assert_eq!(count(user, case.api).await, before, "{said}");
        }
    }
}

on_both_engines! {
    async fn api_and_pages_accept_and_refuse_the_same_input(app: TestApp) {
        let ada = app.user("ada").await;
        ada.server().await;
        ada.destination().await;
        let mut browser = signed_in(&app, "ada").await;
        for case in cases() {
            agree(&ada, &mut browser, &case).await;
        }
    }

    async fn pages_change_what_the_api_shows(app: TestApp) {
        let ada = app.user("ada").await;
        let task = ada.task().await;
        let mut browser = signed_in(&app, "ada").await;
        let page = format!("/tasks/{task}");
        let shown = async || ada.client.get(&format!("/api/backup-tasks/{task}")).await.data(200);
        let zoned = json!({"frequency": "daily", "time_to_run_at": "03:00", "timezone": "Europe/Berlin"});
        ada.client.put(&format!("/api/backup-tasks/{task}"), zoned).await.expect(200);
        let form = browser.get(&format!("{page}/edit")).await.text;
        assert!(form.contains("03:00 Europe/Berlin") && !form.contains("03:00 UTC"), "{form}");
        ada.client.put(&format!("/api/backup-tasks/{task}"), json!({"timezone": null})).await.expect(200);
        browser.get(&page).await;
        browser.submit(&format!("{page}/pause"), &[]).await;
        assert!(shown().await["paused_at"].is_string());
        assert_eq!(browser.submit(&format!("{page}/run"), &[]).await.status, 409, "as the API says");
        browser.submit(&format!("{page}/resume"), &[]).await;
        assert!(shown().await["paused_at"].is_null());
        browser.submit("/tasks/bulk", &[("task", &task.to_string()), ("do", "run")]).await;
        assert_eq!(shown().await["status"], "running");
        assert!(browser.get("/tasks?state=running").await.text.contains("web files"));
        app.run_until_idle().await;
        assert!(browser.get("/tasks?state=failed").await.text.contains("web files"));
        assert!(!browser.get("/tasks?state=good").await.text.contains("web files"));
        // A form with an empty secret keeps the stored one; removing it is explicit.
        let secret = json!({"encryption_password": "open sesame"});
        ada.client.put(&format!("/api/backup-tasks/{task}"), secret).await.expect(200);
        let fields = [
            ("remote_server_id", "1"), ("backup_destination_id", "1"), ("label", "other"), ("type", "files"),
            ("source_path", "/srv"), ("frequency", "custom"), ("custom_cron", "0 3 * * *"), ("encryption_password", ""),
        ];
        browser.get(&format!("{page}/edit")).await;
        assert_eq!(browser.submit(&format!("{page}/edit"), &fields).await.status, 303);
        let after = shown().await;
        assert_eq!((&after["label"], &after["schedule"]["custom_cron"]), (&json!("other"), &json!("0 3 * * *")));
        assert_eq!((&after["schedule"]["frequency"], &after["has_encryption_password"]), (&json!("daily"), &json!(true)));
        let removed = [&fields[..], &[("remove_encryption_password", "on")]].concat();
        browser.submit(&format!("{page}/edit"), &removed).await;
        assert_eq!(shown().await["has_encryption_password"], false);
        assert_eq!(browser.submit(&format!("{page}/delete"), &[("name", "wrong")]).await.status, 422);
        assert_eq!(browser.submit(&format!("{page}/delete"), &[("name", "other")]).await.status, 303);
        ada.client.get(&format!("/api/backup-tasks/{task}")).await.expect(404);
    }

    async fn cancelling_a_run_that_has_just_ended_leaves_the_next_one_alone(app: TestApp) {
        let ada = app.user("ada").await;
        let task = ada.task().await;
        let mut browser = signed_in(&app, "ada").await;
        let old = ada.client.act(&format!("/api/backup-tasks/{task}/run")).await.id(202);
        browser.get(&format!("/runs/{old}")).await;
        // The run ends, and the next one is queued, while the request waits for the task.
        let mut tx = app.app.store.begin().await.unwrap();
        tasks::find_locked(&mut tx, TaskId(task)).await.unwrap();
        let path = format!("/runs/{old}/cancel");
        let mut request = Box::pin(browser.submit(&path, &[]));
        assert!(timeout(Duration::from_secs(1), &mut request).await.is_err(), "the request waits");
        assert!(runs::cancel_queued(&mut tx, RunId(old), app.app.now()).await.unwrap());
        let new = NewRun::new(ada.id, RunSubject::Backup(TaskId(task)), Trigger::Manual);
        let new = runs::insert(&mut tx, &new, app.app.now()).await.unwrap().unwrap();
        tx.commit().await.unwrap();
        assert_eq!(request.await.status, 409);
        let shown = async || ada.client.get(&format!("/api/runs/{new}")).await.data(200)["status"].clone();
        assert_eq!(shown().await, "queued");
        assert_eq!(browser.submit(&format!("/runs/{new}/cancel"), &[]).await.status, 303);
        assert_eq!(shown().await, "cancelled");
        let events = ada.client.get("/api/audit-events?per_page=100").await.data(200);
        let newest = events.as_array().unwrap().last().unwrap();
        assert_eq!(newest["action"], "backup_task.cancelled");
        assert_eq!(newest["detail"], format!("{task} \"web files\""));
        assert_eq!(browser.submit(&format!("/runs/{new}/cancel"), &[]).await.status, 409, "it has ended");
    }

    async fn a_hold_on_old_backups_is_shown_and_released_after_confirmation(app: TestApp) {
        let ada = app.user("ada").await;
        let task = ada.task().await;
        let mut browser = signed_in(&app, "ada").await;
        let (page, on_hold) = (format!("/tasks/{task}"), "Removal of old backups is on hold: The newest backup is empty.");
        let hold = async || {
            let mut tx = app.app.store.begin().await.unwrap();
            let why = "The newest backup looks wrong: it is empty.";
            tasks::update_hold(&mut tx, TaskId(task), "empty smaller", why, app.app.now()).await.unwrap();
            tx.commit().await.unwrap();
        };
        assert!(!browser.get(&page).await.text.contains("on hold"));
        assert_eq!(browser.get(&format!("{page}/release")).await.header("location"), Some(&*page), "nothing to release");
        hold().await;
        for address in [&*page, "/"] {
            let shown = browser.get(address).await.text;
            assert!(shown.contains(on_hold) && shown.contains(&format!("{page}/release")), "{shown}");
        }
        let asked = browser.get(&format!("{page}/release")).await;
        assert!(asked.text.contains(on_hold) && asked.text.contains("Check the newest backup and the source first"), "{}", asked.text);
        ada.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        app.run_until_idle().await;
        let run = ada.client.get(&format!("/api/backup-tasks/{task}/latest-log")).await.data(200)["id"].as_i64().unwrap();
        let seen = ada.backup(&app, task, run).await.to_string();
        let asked = browser.get(&format!("{page}/release")).await.text;
        let field = format!("name=\"backup_id\" value=\"{seen}\"");
        assert!(asked.contains(&field) && asked.contains(&format!("href=\"/backups/{seen}\"")), "{asked}");
        let refused = browser.submit(&format!("{page}/release"), &[("backup_id", "1234")]).await;
        assert_eq!((refused.status, refused.text.contains(&format!("newer backup: {seen}."))), (409, true), "{}", refused.text);
        assert_eq!(browser.submit(&format!("{page}/release"), &[("backup_id", &seen)]).await.status, 303);
        assert!(!browser.get(&page).await.text.contains("on hold"));
        assert_eq!(browser.submit(&format!("{page}/release"), &[]).await.status, 409, "as the API says");
        let shown = ada.client.get(&format!("/api/backup-tasks/{task}")).await.data(200);
        assert_eq!(shown["protection"]["retention_held"], false);
        assert!(browser.get("/audit").await.text.contains("Hold on old backups released"));
    }

    async fn the_same_things_belong_to_somebody_else(app: TestApp) {
        let ada = app.user("ada").await;
        let task = ada.task().await;
        ada.stream().await;
        ada.tag().await;
        app.user("eve").await;
        let mut eve = signed_in(&app, "eve").await;
        let paths = [
            format!("/tasks/{task}"), format!("/tasks/{task}/edit"), format!("/tasks/{task}/copy"),
            format!("/tasks/{task}/trigger"), format!("/tasks/{task}/delete"), format!("/tasks/{task}/release"), "/servers/1".into(), "/servers/1/edit".into(),
            "/servers/1/browse".into(), "/destinations/1".into(), "/notifications/1/edit".into(), "/tags/1/edit".into(),
            "/administration".into(), "/audit?all=true".into(), format!("/runs?task={task}"), format!("/backups?task={task}"),
        ];
        for path in paths {
            assert_eq!(eve.get(&path).await.status, 403, "{path}");
        }
        eve.get("/tasks").await;
        for path in ["run", "pause", "resume", "release", "cancel", "trigger", "delete", "edit"] {
            let reply = eve.submit(&format!("/tasks/{task}/{path}"), &[("name", "web files")]).await;
            assert_eq!(reply.status, 403, "{path}");
        }
        for path in ["/servers/1/check", "/servers/1/accept-key", "/destinations/1/check", "/notifications/1/test", "/tags/1/delete"] {
            assert_eq!(eve.submit(path, &[]).await.status, 403, "{path}");
        }
        let stolen = [
            ("remote_server_id", "1"), ("backup_destination_id", "1"), ("label", "x"), ("type", "files"),
            ("source_path", "/srv"), ("frequency", "hourly"),
        ];
        assert_eq!(eve.submit("/tasks/new", &stolen).await.status, 422);
        let looked = [&stolen[..], &[("do", "browse")]].concat();
        assert_eq!(eve.submit("/tasks/new", &looked).await.status, 403);
        let mut visitor = Browser::new(app.client());
        visitor.get("/sign-in").await;
        for path in ["/tasks/new", "/account/tokens", "/servers/new"] {
            assert_eq!(visitor.submit(path, &[("label", "x")]).await.header("location"), Some("/sign-in"), "{path} {PASSWORD}");
        }
    }
}
