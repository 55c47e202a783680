use serde_json::{Value, json};

use crate::elsewhere::Elsewhere;
use crate::process::run;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_are_created_changed_and_deleted_by_name() {
    let at = Elsewhere::new().await;
    let secret = |name: &str, text: &str| {
        std::fs::write(at.path(name), format!("{text}\n")).unwrap();
        at.text(name)
    };
    let tag = at.json(&["tag", "create", "--label", "important", "--colour", "#0b5cad"]);
    assert_eq!(tag["colour"], "#0b5cad");
    let mail = secret("mail", "ada@example.org");
    let stream = ["stream", "create", "--label", "me", "--type", "email", "--value-file", &mail];
    let stream = at.json(&[&stream[..], &["--notifications-on-success", "true"]].concat());
    assert_eq!(stream["notifications"], json!({"on_success": true, "on_failure": true}));
    let port = at.ssh.port().to_string();
    let server = ["server", "create", "--label", "web-1", "--host", "127.0.0.1", "--port", &port, "--username"];
    let server = [&server[..], &[at.ssh.username(), "--database-password-file", "-"]].concat();
    let output = run(&mut at.command(&[&server[..], &["--json"]].concat()), "from standard input\n");
    let server: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(server["connection"]["is_database_password_set"], true);
    let removed = at.json(&["server", "update", "web-1", "--no-database-password", "--database-username", "dump"]);
    assert_eq!(removed["connection"]["is_database_password_set"], false);
    assert!(
        at.succeed(&["destination", "create", "--label", "disk", "--type", "local"])
            .starts_with("Created destination 1")
    );
    let source = at.text("source");
    let password = secret("password", "correct horse battery");
    let task = at.json(&[
        "task",
        "create",
        "--label",
        "web",
        "--type",
        "files",
        "--source-path",
        &source,
        "--remote-server",
        "web-1",
        "--backup-destination",
        "disk",
        "--frequency",
        "daily",
        "--time-to-run-at",
        "03:00",
        "--excluded-paths",
        "a",
        "--excluded-paths",
        "b",
        "--tags",
        "important",
        "--notification-streams",
        "me",
        "--encryption-password-file",
        &password,
        "--paused",
        "true",
    ]);
    assert!(task["paused_at"].is_string() && task["has_encryption_password"] == true, "{task:#}");
    assert_eq!((&task["source"]["excluded_paths"], &task["tag_ids"]), (&json!(["a", "b"]), &json!([1])));
    let changed = at.json(&[
        "task",
        "update",
        "web",
        "--excluded-paths",
        "",
        "--tags",
        "",
        "--description",
        "all",
        "--paused",
        "false",
        "--maximum-backups-to-keep",
        "3",
    ]);
    assert_eq!((&changed["source"]["excluded_paths"], &changed["tag_ids"]), (&json!([]), &json!([])));
    assert_eq!((&changed["description"], &changed["paused_at"]), (&json!("all"), &Value::Null));
    assert_eq!((&changed["storage"]["max_backups"], &changed["label"]), (&json!(3), &json!("web")));

    assert!(at.succeed(&["destination", "check", "disk", "--wait"]).contains("status: reachable"));
    let (code, said) = at.try_run(&["stream", "test", "me", "--wait"]);
    assert!(code == 13 && said.contains("me: the test failed"), "there is no mail server: {said}");
    let upcoming = at.json(&["task", "upcoming"]);
    assert_eq!(upcoming[0]["label"], "web");
    at.succeed(&["task", "run", "web", "--wait"]);
    let logs = at.json(&["task", "logs", "web", "--status", "successful"]);
    assert_eq!(logs.as_array().unwrap().len(), 1);
    assert!(at.json(&["task", "logs", "web", "--status", "failed"]).as_array().unwrap().is_empty());
    let (code, said) = at.try_run(&["task", "release-retention", "web"]);
    assert!(code == 16, "nothing is held: {said}");
    let (code, said) = at.try_run(&["server", "accept-host-key", "web-1", "--fingerprint", "SHA256:x"]);
    assert!(code == 16, "there is no other key: {said}");

    // A dry run of a restore writes nothing.
    let backup = at.json(&["backup", "list"])[0]["id"].to_string();
    let back = at.text("back");
    let restore = ["backup", "restore", &backup, "--server", "web-1", "--path", &back, "--wait"];
    at.succeed(&[&restore[..], &["--dry-run", "--no-owner", "--numeric-owner"]].concat());
    assert!(!at.path("back").exists());
    assert_eq!(at.json(&["run", "list", "--backup", &backup]).as_array().unwrap().len(), 1);
    for kind in ["task", "server", "destination", "stream", "tag"] {
        assert!(at.succeed(&[kind, "list"]).starts_with("ID"), "{kind}");
        assert!(at.succeed(&[kind, "show", "1"]).contains(&format!("({kind} 1)")), "{kind}");
    }

    let (code, said) = at.try_run(&["destination", "delete", "disk", "--yes"]);
    assert!(code == 16, "it is in use: {said}");
    let (code, said) = at.try_run(&["backup", "delete", &backup]);
    assert!(code == 2 && said.contains("--yes"), "{said}");
    at.succeed(&["backup", "delete", &backup, "--yes"]);
    assert!(at.json(&["backup", "list"]).as_array().unwrap().is_empty());
    at.succeed(&["task", "delete", "web", "--delete-backups", "--yes"]);
    for (kind, name) in [("server", "web-1"), ("stream", "me"), ("tag", "important")] {
        at.succeed(&[kind, "delete", name, "--yes"]);
        assert!(at.json(&[kind, "list"]).as_array().unwrap().is_empty(), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_commands_print_json_too() {
    let at = Elsewhere::new().await;
    let local = |arguments: &[&str], input: &str| -> Value {
        let said = at.installation.succeed(&[arguments, &["--json"]].concat(), input);
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}"))
    };
    let bob = ["user", "create", "--email", "bob@example.org", "--name", "Bob"];
    let id = local(&bob, "correct horse battery\n")["id"].clone();
    let users = local(&["user", "list"], "");
    let found = users.as_array().unwrap().iter().find(|user| user["id"] == id).unwrap();
    assert_eq!((&found["email"], &found["is_admin"]), (&json!("bob@example.org"), &json!(false)));
    let token = ["token", "create", "--user", "bob@example.org", "--name", "t", "--scope", "manage-tags"];
    assert!(local(&token, "")["token"].as_str().unwrap().starts_with("hf_"));
    assert_eq!(local(&["token", "list", "--user", "bob@example.org"], "")[0]["name"], "t");
    assert!(local(&["maintenance", "on"], "")["until"].is_string());
    assert!(local(&["maintenance", "off"], "")["until"].is_null());
    assert!(local(&["key", "rotate"], "")["re_encrypted"].is_i64());
    let file = at.text("export");
    assert_eq!(local(&["export", "--output", &file], "a long passphrase\n")["rows"]["users"], 3);
    let output = at.installation.run(&["user", "reset-password", "--email", "bob@example.org", "--json"], "short\n");
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert!(error["code"] == 2 && error["errors"]["password"].is_array(), "{error}");
}
