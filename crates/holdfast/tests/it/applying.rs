use holdfast_testkit::Engine;
use serde_json::{Value, json};

use crate::elsewhere::Elsewhere;
use crate::process::run;

fn write(at: &Elsewhere, text: &str) {
    std::fs::write(at.path("holdfast.yaml"), text).unwrap();
}

/// The exit code, the document on standard output and the error on standard error, which is null if there is none.
fn apply_json(at: &Elsewhere, more: &[&str]) -> (i32, Value, Value) {
    let file = at.text("holdfast.yaml");
    let arguments = [&["apply", "-f", &file, "--json"], more].concat();
    let output = run(at.command(&arguments).env("DATABASE_PASSWORD", "secret"), "");
    let read = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or(Value::Null);
    (output.status.code().unwrap(), read(&output.stdout), read(&output.stderr))
}

fn results(plan: &Value) -> Vec<(&str, &str)> {
    let steps = plan["steps"].as_array().unwrap().iter();
    steps.map(|step| (step["label"].as_str().unwrap(), step["result"].as_str().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_secrets_that_differ_are_changed() {
    let at = Elsewhere::new().await;
    at.describe(1, "");
    assert_eq!(at.apply(&["--yes"]).0, 0);
    let (code, said) = at.apply(&["--check"]);
    assert!(code == 0 && said.contains("Nothing to do: 5 unchanged."), "{said}");
    std::fs::write(at.path("password"), "another long password\n").unwrap();
    let (code, said) = at.apply(&["--check"]);
    assert!(code == 14 && said.contains("encryption_password: secret changed"), "{said}");
    assert!(said.contains("0 to create, 1 to change, 4 unchanged") && !said.contains("another long"), "{said}");
    let (_, plan, _) = apply_json(&at, &["--check"]);
    let expected = json!([{"name": "encryption_password", "from": true, "to": true, "is_secret": true,
        "is_consequence": false}]);
    assert_eq!(plan["steps"][0]["fields"], expected, "{plan:#}");
    assert_eq!(at.apply(&["--yes"]).0, 0);
    assert_eq!(at.apply(&["--check"]).0, 0, "now it is the same");
    // A server that moves is sent its password again, which stays the same.
    let text = std::fs::read_to_string(at.path("holdfast.yaml")).unwrap();
    write(&at, &text.replace("    host: 127.0.0.1", "    host: localhost"));
    let (code, said) = at.apply(&["--yes"]);
    assert!(
        code == 0 && said.contains("host: 127.0.0.1 -> localhost") && !said.contains("database_password"),
        "{said}"
    );
    assert_eq!(at.json(&["server", "show", "web-1"])["connection"]["is_database_password_set"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_be_refused_is_told_before_anything_is_changed() {
    let at = Elsewhere::new().await;
    at.describe(1, "");
    let text = std::fs::read_to_string(at.path("holdfast.yaml")).unwrap();
    // The task refers to what does not exist yet: its other fields are checked nevertheless.
    write(&at, &text.replace("    store_path: /web/", "    store_path: ../web"));
    for more in ["--check", "--yes"] {
        let (code, said) = at.apply(&[more]);
        assert!(code == 17 && said.contains("would be refused: The store path field"), "{said}");
        assert!(said.contains("holdfast: the service would refuse task \"web files\""), "{said}");
    }
    let (code, plan, error) = apply_json(&at, &["--yes"]);
    assert_eq!((code, &error["code"], &plan["not_attempted"]), (17, &json!(17), &json!(5)), "{plan:#}");
    assert!(plan["steps"][4]["refusal"].is_string() && error["errors"]["store_path"].is_array(), "{error:#}");
    for kind in ["tag", "stream", "server", "destination", "task"] {
        assert!(at.json(&[kind, "list"]).as_array().unwrap().is_empty(), "nothing was changed: {kind}");
    }
    // Two refusals at once.
    let twice = text.replace("    colour: \"#0b5cad\"", "    colour: blue").replace("type: email", "type: slack");
    write(&at, &twice);
    let (code, said) = at.apply(&["--yes"]);
    assert!(code == 17 && said.contains("tag \"important\"") && said.contains("(and 1 more)"), "{said}");
    write(&at, &text);
    assert_eq!(at.apply(&["--yes"]).0, 0);
}

/// A destination outlives its tasks for as long as it has their backups.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_that_holds_backups_stays_and_the_plan_says_why() {
    let at = Elsewhere::new().await;
    at.describe(1, "");
    assert_eq!(at.apply(&["--yes"]).0, 0);
    at.succeed(&["task", "run", "web files", "--wait"]);
    write(&at, "backup_tasks: []\nbackup_destinations: []\n");
    let (code, said) = at.apply(&["--check", "--prune"]);
    assert!(
        code == 14 && said.contains("- task \"web files\"") && said.contains("0 to create, 0 to change, 1 to delete"),
        "{said}"
    );
    let reason = "destination \"this machine\" is not in the file and cannot be deleted now, so it stays: This backup \
                  destination still holds 1 backup. Delete them first.";
    assert!(said.contains(reason), "{said}");
    let (code, plan, error) = apply_json(&at, &["--prune", "--yes"]);
    assert_eq!((code, &error, results(&plan)), (0, &Value::Null, vec![("web files", "done")]), "{plan:#}");
    assert_eq!(plan["kept"][0]["label"], "this machine");
    // Every later time, too, and it is no difference.
    let (code, plan, _) = apply_json(&at, &["--prune", "--check"]);
    assert_eq!((code, plan["kept"].as_array().unwrap().len()), (0, 1), "{plan:#}");
    let backup = at.json(&["backup", "list"])[0]["id"].to_string();
    at.succeed(&["backup", "delete", &backup, "--yes"]);
    at.client.wait_for("/api/audit-events", |_| at.apply(&["--prune", "--check"]).0 == 14).await;
    let (code, plan, _) = apply_json(&at, &["--prune", "--yes"]);
    assert_eq!((code, results(&plan)), (0, vec![("this machine", "done")]), "{plan:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_is_told_when_the_rest_is_refused() {
    let at = Elsewhere::new().await;
    let server = |label: &str, more: &str| format!("  - {{label: {label}, host: 192.0.2.1, username: u{more}}}\n");
    // A chain of jump servers is refused before anything is done.
    let chain = [server("a", ""), server("b", ", jump_server: a"), server("c", ", jump_server: b")];
    write(&at, &format!("remote_servers:\n{}", chain.concat()));
    let (code, said) = at.apply(&["--yes"]);
    assert!(code == 2 && said.contains("jump_server is \"b\", which has one itself: \"a\""), "{said}");
    write(&at, &format!("remote_servers:\n{}{}", server("b", ""), server("c", ", jump_server: b")));
    assert_eq!(at.apply(&["--yes"]).0, 0);
    // That `b` cannot be behind another one, because `c` is behind it, shows when `a` exists.
    write(&at, &format!("remote_servers:\n{}{}", server("a", ""), server("b", ", jump_server: a")));
    assert_eq!(at.apply(&["--check"]).0, 14);
    let (code, plan, _) = apply_json(&at, &["--yes"]);
    assert_eq!((code, results(&plan)), (17, vec![("a", "done"), ("b", "planned")]), "{plan:#}");
    assert_eq!((&plan["not_attempted"], &plan["is_applied"]), (&json!(1), &json!(false)));
    assert!(plan["steps"][1]["refusal"].as_str().unwrap().contains("jump server"), "{plan:#}");
    let (code, said) = at.apply(&["--yes"]);
    assert!(code == 17 && said.contains("Nothing was changed."), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_may_not_do_a_step_does_none() {
    let at = Elsewhere::new().await;
    at.describe(1, "");
    let scopes = holdfast_core::scope::Scope::ALL.iter().map(|scope| scope.as_str());
    let scopes = scopes.filter(|scope| *scope != "create-backup-tasks").flat_map(|scope| ["--scope", scope]);
    let token = ["token", "create", "--user", "ada@example.org", "--name", "most"].into_iter().chain(scopes);
    let token = at.installation.succeed(&token.collect::<Vec<_>>(), "");
    std::fs::write(at.path("token"), token).unwrap();
    let (code, plan, error) = apply_json(&at, &["--yes"]);
    assert_eq!((code, &plan["not_attempted"]), (11, &json!(5)), "{plan:#}");
    assert!(error["message"].as_str().unwrap().contains("lacks the scope create-backup-tasks"), "{error:#}");
}

/// Two pipelines that apply the same file at the same time.
async fn two_at_once(engine: Engine) {
    let at = Elsewhere::on(engine).await;
    let numbers = || 0..12;
    let tags: String = numbers().map(|number| format!("  - {{label: tag {number}, colour: '#0b5cad'}}\n")).collect();
    let destinations: String = numbers().map(|number| format!("  - {{label: disk {number}, type: local}}\n")).collect();
    write(&at, &format!("tags:\n{tags}backup_destinations:\n{destinations}"));
    let both = |expected: i32| {
        let ended: Vec<(i32, String)> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..2).map(|_| scope.spawn(|| at.apply(&["--yes"]))).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (code, said) in ended {
            assert_eq!(code, expected, "{said}");
        }
    };
    both(0);
    let labels = |kind: &str| -> Vec<String> {
        let rows = at.json(&[kind, "list"]);
        let mut labels: Vec<String> =
            rows.as_array().unwrap().iter().map(|row| row["label"].as_str().unwrap().to_owned()).collect();
        labels.sort();
        labels
    };
    let mut expected: Vec<String> = numbers().map(|number| format!("tag {number}")).collect();
    expected.sort();
    assert_eq!(labels("tag"), expected, "each once");
    assert_eq!(labels("destination").len(), 12);
    let (code, said) = at.apply(&["--check"]);
    assert!(code == 0 && said.contains("Nothing to do: 24 unchanged."), "{said}");
    // Changes of what exists.
    let text = std::fs::read_to_string(at.path("holdfast.yaml")).unwrap();
    write(&at, &text.replace("#0b5cad", "#ff8800"));
    both(0);
    assert!(at.json(&["tag", "list"]).as_array().unwrap().iter().all(|tag| tag["colour"] == "#ff8800"));
    assert_eq!(at.apply(&["--check"]).0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_apply_a_file_at_once_have_the_effect_of_one_on_sqlite() {
    two_at_once(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_apply_a_file_at_once_have_the_effect_of_one_on_postgresql() {
    two_at_once(Engine::Postgres).await;
}

/// What else changes because the service forgets what was given for another machine or type.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_service_clears_is_shown_before_and_told_afterwards() {
    let at = Elsewhere::new().await;
    let bucket = "backup_destinations: [{label: bucket, type: s3, s3_bucket_name: backups, s3_access_key: key, \
                  s3_secret_key: secret}]";
    at.describe(1, "");
    assert_eq!(at.apply(&["--yes"]).0, 0);
    at.succeed(&["server", "check", "web-1", "--wait"]);
    let text = std::fs::read_to_string(at.path("holdfast.yaml")).unwrap();
    let without = text.replace("    database_password_env: DATABASE_PASSWORD\n", "");
    write(&at, &without.replace("    host: 127.0.0.1", "    host: localhost"));
    let (code, said) = at.apply(&["--check"]);
    assert!(code == 14 && said.contains("database_password: (secret) -> none, because of the other changes"), "{said}");
    assert!(said.contains("host_key_fingerprint: SHA256:") && !said.contains("updated_at"), "{said}");
    let (_, plan, _) = apply_json(&at, &["--check"]);
    let fields = plan["steps"][0]["fields"].as_array().unwrap();
    let consequences = fields.iter().filter(|field| field["is_consequence"] == true);
    assert_eq!(
        consequences.map(|field| &field["name"]).collect::<Vec<_>>(),
        ["host_key_fingerprint", "database_password"]
    );
    let (code, said) = at.try_run(&["server", "update", "web-1", "--host", "localhost"]);
    assert!(code == 0 && said.contains("the database_password has been removed"), "{said}");
    assert!(said.contains("host_key_fingerprint has been removed; it was SHA256:"), "{said}");
    let (_, said) = at.try_run(&["server", "update", "web-1", "--label", "web-2"]);
    assert!(!said.contains("Because of this change"), "{said}");
    write(&at, bucket);
    assert_eq!(at.apply(&["--yes"]).0, 0);
    write(&at, "backup_destinations: [{label: bucket, type: local}]");
    let (_, said) = at.apply(&["--check"]);
    for gone in ["s3_bucket_name: backups -> none", "s3_secret_key: (secret) -> none"] {
        assert!(said.contains(gone), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jump_servers_that_lead_to_each_other_are_named_at_once() {
    let at = Elsewhere::new().await;
    let server = |label: &str, jump: &str| {
        let jump = if jump.is_empty() { String::new() } else { format!(", jump_server: {jump}") };
        format!("  - {{label: {label}, host: 192.0.2.1, username: u{jump}}}\n")
    };
    let file = |servers: &[String]| write(&at, &format!("remote_servers:\n{}", servers.concat()));
    file(&[server("a", "b"), server("b", "c"), server("c", "a")]);
    let (code, plan, error) = apply_json(&at, &["--yes"]);
    let told = r#"jump_server of these remote_servers is a loop: "a" -> "b" -> "c" -> "a""#;
    assert_eq!((code, plan, error["message"].as_str()), (2, Value::Null, Some(told)));
    file(&[server("a", "a")]);
    assert_eq!(apply_json(&at, &["--check"]).0, 2);
    // Half of the loop is what the service has.
    file(&[server("a", "b"), server("b", "")]);
    assert_eq!(at.apply(&["--yes"]).0, 0);
    file(&[server("b", "a")]);
    assert_eq!(apply_json(&at, &["--check"]).0, 2);
}

/// The service forgets the passwords of servers that are reached through one that moves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_behind_a_jump_server_that_moves_are_given_again() {
    let at = Elsewhere::new().await;
    let file = |host: &str, password: &str| {
        let jump = format!("  - {{label: jump, host: {host}, username: u}}\n");
        let behind = format!("  - {{label: db, host: 192.0.2.2, username: u, jump_server: jump{password}}}\n");
        write(&at, &format!("remote_servers:\n{jump}{behind}"));
    };
    let password = ", database_password_env: DATABASE_PASSWORD";
    file("192.0.2.1", password);
    assert_eq!(at.apply(&["--yes"]).0, 0);
    file("192.0.2.3", password);
    let (code, said) = at.apply(&["--check"]);
    assert!(code == 14 && said.contains("server \"db\": database_password: (secret) -> none"), "{said}");
    let (code, plan, error) = apply_json(&at, &["--yes"]);
    assert_eq!((code, results(&plan)), (0, vec![("jump", "done"), ("db", "done")]), "{error}");
    assert_eq!(at.json(&["server", "show", "db"])["connection"]["is_database_password_set"], true);
    assert_eq!(at.apply(&["--check"]).0, 0, "nothing is left");
    file("192.0.2.4", "");
    let (_, said) = at.apply(&["--yes"]);
    assert!(said.contains("server \"db\": database_password: (secret) -> none"), "{said}");
    assert_eq!(at.json(&["server", "show", "db"])["connection"]["is_database_password_set"], false);
}
