use serde_json::{Value, json};

use crate::elsewhere::Elsewhere;
use crate::process::run;

/// Every field of every kind, in the spellings that the API accepts, with values that it stores in another form.
const EVERYTHING: &str = r##"
tags:
  - {label: " important ", description: " what matters\n", colour: "#0b5cad"}
  - {label: plain, description: "", colour: null}
notification_streams:
  - {label: me, type: email, value: ada@example.org, notifications: {on_success: true, on_failure: null}}
  - {label: chat, type: slack_webhook, value: "https://hooks.example.org/x", notifications: null, pushover_token: null}
  - label: phone
    type: pushover
    value: uuuuuuuuuuuuuuuuuuuuuuuuuuuuuu
    pushover_token: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
  - {label: phone 2, type: pushover, value: uuuuuuuuuuuuuuuuuuuuuuuuuuuuuu}
remote_servers:
  - {label: behind, ip_address: 192.0.2.2, username: backup, port: 2222, jump_server: " gate "}
  - label: gate
    host: gate.example.org
    username: backup
    port: null
    database_username: ""
    database_password: secret
    jump_server: null
  - {label: other, host: 192.0.2.3, username: u, port: 22.0, database_username: " dump ", database_password: null}
backup_destinations:
  - {label: disk, type: local, s3_bucket_name: ignored}
  - label: aws
    type: s3
    s3_bucket_name: bucket
    s3_access_key: k
    s3_secret_key: s
    custom_s3_region: eu-west-1
    path_style_endpoint: null
  - label: minio
    type: custom_s3
    s3_bucket_name: bucket
    s3_access_key: k
    s3_secret_key: s
    custom_s3_endpoint: https://s3.example.org/
    s3_region: eu-2
    path_style_endpoint: false
  - {label: minio 2, type: custom_s3, s3_bucket_name: bucket, s3_access_key: k, s3_secret_key: s, s3_region: null,
     custom_s3_endpoint: "http://192.0.2.9:9000", path_style_endpoint: null}
  - label: nas
    type: sftp
    sftp_host: nas.example.org
    sftp_port: null
    sftp_username: backup
    sftp_path: /volume1//
    sftp_password: secret
    sftp_host_key_fingerprint: "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"
  - {label: nas 2, type: sftp, sftp_host: nas, sftp_port: 23, sftp_username: backup, sftp_path: backups,
     sftp_password: null, sftp_host_key_fingerprint: null}
backup_tasks:
  - label: files
    description: " two\nlines\n"
    type: files
    source_path: /var/www/
    excluded_paths: [" *.log ", "cache"]
    one_file_system: true
    remote_server: gate
    backup_destination: disk
    frequency: weekly
    day_of_week: 0
    day_of_month: null
    time_to_run_at: "03:00"
    timezone: " Europe/Berlin "
    custom_cron_expression: ""
    maximum_backups_to_keep: 7.0
    store_path: ""
    appended_file_name: tail
    format: archive
    encryption_password: correct horse
    heartbeat_url: https://ping.example.org/x
    notification_streams: [phone, me, me]
    tags: [important]
    paused: true
    database_name: ignored
    excluded_database_tables: "a,,b"
  - label: dump
    description: null
    type: database
    database_engine: postgresql
    database_name: shop
    excluded_database_tables: " logs,, cache ,"
    excluded_paths: [ignored]
    remote_server: other
    backup_destination: minio
    frequency: null
    custom_cron: "0  3 * *   1"
    maximum_backups_to_keep: null
    store_path: /dumps//
    appended_filename: null
    format: null
    timezone: null
    encryption_password: null
    heartbeat_url: null
    notification_streams: null
    tags: []
    paused: null
  - label: all databases
    type: database
    database_engine: null
    database_name: ""
    excluded_tables: ""
    remote_server: other
    backup_destination: nas
    frequency: monthly
    day_of_month: 28
    day_of_week: 3
    time_to_run_at: "23:59"
    maximum_backups_to_keep: 0
    store_path: null
    one_file_system: false
  - {label: sqlite, type: database, database_engine: sqlite, source_path: /srv/app.db, remote_server: other,
     backup_destination: aws, frequency: hourly, time_to_run_at: null, day_of_week: 4}
"##;

fn write(at: &Elsewhere, text: &str) {
    std::fs::write(at.path("holdfast.yaml"), text).unwrap();
}

fn json_of(said: &str) -> Value {
    serde_json::from_str(said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applying_everything_twice_changes_nothing_the_second_time() {
    let at = Elsewhere::new().await;
    write(&at, EVERYTHING);
    let (code, said) = at.apply(&["--yes"]);
    assert!(code == 0 && said.contains("19 to create, 0 to change"), "{said}");
    for more in [&["--check"][..], &["--yes"]] {
        let (code, said) = at.apply(more);
        assert!(code == 0 && said.contains("Nothing to do: 19 unchanged."), "{said}");
        assert!(!said.contains("not compared"), "the service has compared them: {said}");
    }
    let tasks = at.json(&["task", "list"]);
    assert!(tasks[0]["paused_at"].is_string() && tasks[1]["paused_at"].is_null(), "{tasks:#}");
    let plan = json_of(&at.apply(&["--check", "--json"]).1);
    assert_eq!((&plan["unchanged"], &plan["secrets_not_compared"]), (&json!(19), &json!(0)));

    // What is exported has the same effect as what was applied, also in an empty account.
    let exported = at.succeed(&["export", "--yaml"]);
    write(&at, &exported);
    let file = at.text("exported.yaml");
    assert_eq!(at.json(&["export", "--yaml", "--output", &file])["file"], file.as_str());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), exported);
    let (code, said) = at.try_run(&["export", "--yaml", "--output", &file]);
    assert!(code == 2 && said.contains("already exists"), "{said}");
    let (code, said) = at.apply(&["--check"]);
    assert!(code == 0 && said.contains("Nothing to do: 19 unchanged."), "{said}{exported}");
    let user = ["user", "create", "--email", "bob@example.org", "--name", "Bob"];
    at.installation.succeed(&user, "correct horse battery\n");
    let token = ["token", "create", "--user", "bob@example.org", "--name", "cli", "--all-scopes"];
    std::fs::write(at.path("token"), at.installation.succeed(&token, "")).unwrap();
    std::fs::write(at.path("key"), "u".repeat(30)).unwrap();
    std::fs::write(at.path("url"), "https://hooks.example.org/x").unwrap();
    std::fs::write(at.path("mail"), "ada@example.org").unwrap();
    let mut file_of = "mail";
    let filled: Vec<String> = exported
        .lines()
        .map(|line| {
            if let Some(kind) = line.trim_start_matches([' ', '-']).strip_prefix("type: ") {
                file_of = if kind == "email" {
                    "mail"
                } else if kind == "slack" {
                    "url"
                } else {
                    "key"
                };
            }
            let name = if line.contains("heartbeat") { "url" } else { file_of };
            line.replace("# ", "").replace("_file: PATH", &format!("_file: {name}"))
        })
        .skip(2)
        .collect();
    write(&at, &filled.join("\n"));
    let (code, said) = at.apply(&["--yes"]);
    assert!(code == 0 && said.contains("19 to create"), "{said}");
    assert_eq!(at.succeed(&["export", "--yaml"]), exported);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_are_renamed_and_those_not_in_the_file_deleted_on_request() {
    let at = Elsewhere::new().await;
    at.describe(1, "");
    assert_eq!(at.apply(&["--yes"]).0, 0);
    let before = at.json(&["task", "show", "web files"]);
    let text = std::fs::read_to_string(at.path("holdfast.yaml")).unwrap();
    let renamed = text
        .replace("  - label: important", "  - label: urgent\n    renamed_from: important")
        .replace("tags: [important]", "tags: [urgent]")
        .replace("  - label: web-1", "  - renamed_from: web-1\n    label: web-2")
        .replace("remote_server: web-1", "remote_server: web-2");
    write(&at, &renamed);
    let (code, said) = at.apply(&["--yes"]);
    assert!(code == 0 && said.contains("0 to create, 2 to change") && said.contains("label: web-1 -> web-2"), "{said}");
    assert!(!said.contains("task \"web files\""), "it refers to the same server: {said}");
    let (code, said) = at.apply(&["--check"]);
    assert!(code == 0 && said.contains("Nothing to do: 5 unchanged."), "renamed_from is ignored from then on: {said}");
    at.client.post("/api/tags", json!({"label": "important"})).await.expect(201);
    at.client
        .post("/api/notification-streams", json!({"label": "old", "type": "email", "value": "a@example.org"}))
        .await
        .expect(201);
    let (code, said) = at.apply(&["--check"]);
    assert!(code == 2 && said.contains("renamed_from is \"important\", and the service has both"), "{said}");

    // Streams are in the file, so the other stream goes; nothing else does.
    write(&at, &renamed.replace("    renamed_from: important\n", ""));
    let (code, said) = at.apply(&["--yes"]);
    assert!(code == 0 && said.contains("stream \"old\" is not in the file"), "--yes alone deletes nothing: {said}");
    let (code, said) = at.apply(&["--check", "--prune"]);
    assert!(code == 14 && said.contains("- stream \"old\"") && said.contains("2 to delete"), "{said}");
    let (code, said) = at.apply(&["--prune"]);
    assert!(code == 2 && said.contains("--yes"), "{said}");
    let (code, said) = at.apply(&["--prune", "--json"]);
    assert!(code == 2 && json_of(&said)["message"].as_str().unwrap().contains("--yes"), "{said}");
    let applied = json_of(&at.apply(&["--prune", "--yes", "--json"]).1);
    let labels: Vec<&Value> = applied["steps"].as_array().unwrap().iter().map(|step| &step["label"]).collect();
    assert_eq!((labels, &applied["is_applied"]), (vec![&json!("old"), &json!("important")], &json!(true)));
    // The server goes after the task that it belongs to, and a kind that the file does not list stays.
    write(&at, "remote_servers: []\nbackup_tasks: []\nbackup_destinations: []\n");
    let (code, said) = at.apply(&["--prune", "--yes"]);
    assert!(code == 0 && said.contains("deleted task") && said.contains("deleted server"), "{said}");
    let left = ["task", "server", "destination"].map(|kind| at.json(&[kind, "list"]).as_array().unwrap().len());
    assert_eq!(left, [0, 0, 0]);
    assert_eq!(at.json(&["tag", "list"]).as_array().unwrap().len(), 1);
    assert_eq!(before["label"], "web files");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profiles_name_services_and_their_tokens_must_be_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let at = Elsewhere::new().await;
    let folder = at.path("config/holdfast");
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!("profiles:\n  home: {{url: '{}', token_file: home.token}}\n", at.service.base_url);
    std::fs::write(folder.join("config.yaml"), text).unwrap();
    std::fs::copy(at.path("token"), folder.join("home.token")).unwrap();
    let with_profile = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = at.command(arguments);
        command.env_remove("HOLDFAST_URL").env_remove("HOLDFAST_TOKEN_FILE");
        let output = run(command.env("XDG_CONFIG_HOME", at.path("config")).envs(variables.iter().copied()), "");
        (output.status.code().unwrap(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let mode = |mode: u32| {
        std::fs::set_permissions(folder.join("home.token"), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let list = ["--profile", "home", "tag", "list"];
    mode(0o644);
    let (code, said) = with_profile(&list, &[]);
    assert!(code == 2 && said.contains("others can read this token"), "{said}");
    mode(0o600);
    let (code, said) = with_profile(&list, &[]);
    assert!(code == 0 && said.starts_with("ID"), "{said}");
    assert_eq!(with_profile(&["tag", "list"], &[("HOLDFAST_PROFILE", "home")]).0, 0);
    let (code, said) = with_profile(&["tag", "list"], &[("HOLDFAST_PROFILE", "work")]);
    assert!(code == 2 && said.contains("there is no profile \"work\"; it has home"), "{said}");
    // The environment wins, and another service is not sent the token.
    let (code, said) = with_profile(&list, &[("HOLDFAST_TOKEN", "wrong")]);
    assert!(code == 11 && said.contains("not accepted"), "{said}");
    let (code, said) = with_profile(&list, &[("HOLDFAST_URL", "http://127.0.0.1:1")]);
    assert!(code == 2 && said.contains("HOLDFAST_TOKEN"), "{said}");
}
