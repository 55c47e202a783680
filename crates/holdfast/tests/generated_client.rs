//! Tests a client generated from the OpenAPI document. Run by `cargo xtask test`, which installs the generator and sets
//! OPENAPI_PYTHON_CLIENT to its path.

#[path = "it/process.rs"]
#[expect(dead_code, reason = "shared with the other tests")]
mod process;

use std::path::Path;
use std::process::{Command, Output};

use holdfast_testkit::{Client, Engine};
use process::Installation;
use serde_json::{Value, json};

#[track_caller]
fn succeed(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// Generates the client into a package called `generated`.
fn generate(generator: &Path, into: &Path) {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let mut command = Command::new(generator);
    command.args(["generate", "--meta", "none", "--overwrite", "--path", document, "--output-path"]);
    let output = command.arg(into.join("generated")).current_dir(into).output().unwrap();
    succeed(&output);
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains("was not generated") && !told.contains("Skipping endpoint"), "{told}");
}

/// Creates one resource of each kind, with values that differ from the defaults in the document.
async fn create_everything(client: &Client) -> Vec<(&'static str, i64)> {
    let post = async |path: &str, body: Value| client.post(path, body).await.id(201);
    let tag = post("/api/tags", json!({"label": "old", "description": "d", "colour": "#ff0000"})).await;
    let stream = json!({"label": "old", "type": "email", "value": "a@example.org",
        "notifications": {"on_success": true, "on_failure": false}});
    let stream = post("/api/notification-streams", stream).await;
    let gate = post("/api/remote-servers", json!({"label": "gate", "ip_address": "192.0.2.1", "username": "u"})).await;
    let server = json!({"label": "old", "ip_address": "192.0.2.2", "username": "u", "port": 2222,
        "database_username": "dump", "database_password": "planted", "jump_server_id": gate});
    let server = post("/api/remote-servers", server).await;
    let destination = json!({"label": "old", "type": "custom_s3", "s3_access_key": "a", "s3_secret_key": "s",
        "s3_bucket_name": "bucket", "s3_region": "eu-west-1", "custom_s3_endpoint": "https://s3.example.org",
        "path_style_endpoint": false});
    let destination = post("/api/backup-destinations", destination).await;
    let task = json!({"label": "old", "description": "d", "type": "files", "source_path": "/srv",
        "excluded_paths": ["/srv/tmp"], "remote_server_id": server, "backup_destination_id": destination,
        "frequency": "weekly", "time_to_run_at": "03:30", "day_of_week": 2, "maximum_backups_to_keep": 30,
        "store_path": "/offsite", "appended_filename": "web", "encryption_password": "secret",
        "heartbeat_url": "https://watch.example.org/x", "notification_stream_ids": [stream], "tag_ids": [tag]});
    let task = post("/api/backup-tasks", task).await;
    let quiet = json!({"quiet_hours": {"from": "22:00", "until": "07:00"}});
    client.put("/api/notification-settings", quiet).await.expect(200);
    vec![
        ("/api/tags/{id}", tag),
        ("/api/notification-streams/{id}", stream),
        ("/api/remote-servers/{id}", server),
        ("/api/backup-destinations/{id}", destination),
        ("/api/backup-tasks/{id}", task),
    ]
}

/// The label of a resource, and its other fields except `updated_at`.
async fn shown(client: &Client, path: &str, id: i64) -> (Value, Value) {
    let mut data = client.get(&path.replace("{id}", &id.to_string())).await.data(200);
    let fields = data.as_object_mut().unwrap();
    fields.remove("updated_at");
    (fields.remove("label").unwrap(), data)
}

#[tokio::test]
async fn renaming_with_a_generated_client_changes_nothing_else() {
    let generator = std::env::var("OPENAPI_PYTHON_CLIENT").expect("run this with `cargo xtask test`");
    let generator = Path::new(&generator);
    let installation = Installation::new(Engine::Sqlite).await;
    installation.succeed(&["user", "create", "--email", "a@example.org", "--name", "A"], "correct horse\n");
    let make = ["token", "create", "--user", "a@example.org", "--name", "client", "--all-scopes"];
    let token = installation.succeed(&make, "");
    // Without workers: none of these servers exists.
    let service = installation.serve(&[("HOLDFAST_WORKERS", "0")]);
    let client = service.client().with_token(&token);

    let created = create_everything(&client).await;
    let mut before = Vec::new();
    let mut changes = json!({"/api/notification-settings": {"fields": {"weekly_summary_enabled": true}}});
    for (path, id) in &created {
        before.push(shown(&client, path, *id).await.1);
        changes[*path] = json!({"id": id, "fields": {"label": "new"}});
    }
    let folder = installation.folder.path();
    generate(generator, folder);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/change_one_field.py");
    let mut python = Command::new(generator.with_file_name("python"));
    python.args([script, &service.base_url, &token, &changes.to_string()]).env("PYTHONPATH", folder);
    succeed(&python.current_dir(folder).output().unwrap());

    for ((path, id), before) in created.iter().zip(before) {
        let (label, after) = shown(&client, path, *id).await;
        assert_eq!(label, "new", "{path}");
        assert_eq!(after, before, "{path}");
    }
    let settings = client.get("/api/notification-settings").await.data(200);
    let expected = json!({"weekly_summary_enabled": true, "quiet_hours": {"from": "22:00", "until": "07:00"}});
    assert_eq!(settings, expected);
}
