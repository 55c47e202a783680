//! Fuzzes the served API from its OpenAPI document, on both databases. Run by `cargo xtask test`, which installs the
//! tool and sets SCHEMATHESIS to its path.

#[path = "it/process.rs"]
#[expect(dead_code, reason = "shared with the other tests")]
mod process;

use std::process::Command;

use holdfast_testkit::Engine;
use process::Installation;
use serde_json::json;

/// Requests per operation and phase: enough to reach every rule, within two minutes for both databases.
const EXAMPLES: &str = "25";

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,ignored_auth,missing_required_header,unsupported_method";

async fn fuzz(engine: Engine) {
    let tool = std::env::var("SCHEMATHESIS").expect("run this with `cargo xtask schemathesis`");
    let installation = Installation::new(engine).await;
    let add = ["user", "create", "--email", "a@example.org", "--name", "A"];
    installation.succeed(&add, "correct horse\n");
    let make = ["token", "create", "--user", "a@example.org", "--name", "fuzz", "--all-scopes"];
    let token = installation.succeed(&make, "");
    // Without workers: the service must not connect to the addresses that the tool makes up.
    let service = installation.serve(&[
        ("HOLDFAST_WORKERS", "0"),
        ("ENABLE_DEVICE_AUTH_ENDPOINT", "true"),
        ("HOLDFAST_RATE_PER_SECOND", "100000"),
        ("HOLDFAST_RATE_BURST", "1000000"),
        ("HOLDFAST_RUNS_PER_MINUTE", "100000"),
        ("HOLDFAST_SIGN_INS_PER_MINUTE", "100000"),
    ]);
    // Resources for the small ids that the tool tends to try.
    let client = service.client().with_token(&token);
    for number in 1..=4 {
        let label = format!("number {number}");
        let post = async |path: &str, body| client.post(path, body).await.id(201);
        let server = json!({"label": label, "ip_address": "127.0.0.1", "username": "u"});
        let server = post("/api/remote-servers", server).await;
        let destination = post("/api/backup-destinations", json!({"label": label, "type": "local"})).await;
        let stream = json!({"label": label, "type": "email", "value": "a@example.org"});
        let stream = post("/api/notification-streams", stream).await;
        let tag = post("/api/tags", json!({"label": label})).await;
        let task = json!({"remote_server_id": server, "backup_destination_id": destination, "label": label,
            "type": "files", "source_path": "/srv", "frequency": "hourly", "notification_stream_ids": [stream], "tag_ids": [tag]});
        let task = post("/api/backup-tasks", task).await;
        client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
    }
    let output = Command::new(tool)
        .args(["run", "--checks", CHECKS, "--max-examples", EXAMPLES, "--seed", "20250303", "--no-color"])
        .args(["--header", &format!("Authorization: Bearer {token}"), "--generation-database", "none"])
        // A response that does not end.
        .args(["--exclude-path", "/api/events"])
        .arg(format!("{}/api/openapi.json", service.base_url))
        .current_dir(installation.folder.path())
        .output()
        .unwrap();
    let log = service.log.lock().unwrap().clone();
    assert!(!log.contains(" ERROR "), "{log}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{}", text.lines().rev().take(30).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n"));
}

#[tokio::test]
async fn the_api_matches_its_document_on_sqlite() {
    fuzz(Engine::Sqlite).await;
}

#[tokio::test]
async fn the_api_matches_its_document_on_postgres() {
    fuzz(Engine::Postgres).await;
}
