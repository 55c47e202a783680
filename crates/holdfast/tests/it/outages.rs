/// Faults of PostgreSQL.
mod postgres;
/// Faults of SQLite, and of its files.
mod sqlite;

use std::time::{Duration, Instant};

use holdfast_testkit::Client;
use serde_json::json;

use crate::process::Installation;

/// An orchestrator asks about this often.
const WITHIN: Duration = Duration::from_secs(10);

/// Waits until readiness names this state of the database, which must happen soon.
async fn wait_for(client: &Client, status: u16, expected: &str) {
    let deadline = Instant::now() + WITHIN;
    loop {
        let reply = client.get("/readyz").await;
        let checks = reply.body["checks"].clone();
        let told = |name: &str| checks[name].as_str().unwrap_or_default().to_owned();
        if reply.status == status && told("database").contains(expected) {
            for name in ["scheduler", "workers"] {
                let is_blamed = told(name) != "ok" && !told(name).contains(expected);
                assert!(!is_blamed, "{name} is not to blame: {checks}");
            }
            return;
        }
        assert!(Instant::now() < deadline, "{expected:?} is not named: {}", reply.text);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[track_caller]
fn assert_doctor(installation: &Installation, expected: &str) -> String {
    let output = installation.run(&["doctor", "--offline"], "");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let problem = said.lines().find(|line| line.starts_with("PROBLEM  database")).unwrap_or_default();
    assert!(problem.contains(expected), "{expected:?} is not named: {said}");
    said
}

fn token(installation: &Installation) -> String {
    let user = ["user", "create", "--email", "ada@example.org", "--name", "Ada", "--admin"];
    installation.succeed(&user, "correct horse\n");
    installation.succeed(&["token", "create", "--user", "ada@example.org", "--name", "t", "--all-scopes"], "")
}

/// Nothing can be stored, and the response says why.
async fn assert_refused(client: &Client, expected: &str) {
    let body = client.post("/api/tags", json!({"label": "new"})).await.expect(503);
    assert!(body["message"].as_str().unwrap().contains(expected), "{body}");
}
