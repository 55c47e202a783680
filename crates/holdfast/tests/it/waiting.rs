use std::process::Stdio;
use std::time::{Duration, Instant};

use holdfast_testkit::Engine;
use serde_json::{Value, json};

use crate::elsewhere::Elsewhere;
use crate::process::run;

/// The exit code, standard output and standard error.
fn ended(at: &Elsewhere, arguments: &[&str]) -> (i32, String, String) {
    let output = run(&mut at.command(arguments), "");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn applied(at: &Elsewhere) {
    at.describe(1, "");
    let (code, said) = at.apply(&["--yes"]);
    assert_eq!(code, 0, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_includes_the_second_attempt() {
    let mut at = Elsewhere::with(Engine::Sqlite, &[("HOLDFAST_RETRY_SECS", "1")]).await;
    applied(&at);
    at.ssh.stop();
    let (code, _, errors) = ended(&at, &["task", "run", "web files", "--wait"]);
    assert_eq!(code, 13, "{errors}");
    assert!(errors.contains("run 1 is failed (connect); it will be tried once more at "), "{errors}");
    assert!(errors.contains("run 2 is the second attempt"), "{errors}");
    assert!(errors.ends_with("run 2 is failed (connect)\n"), "{errors}");
    let (code, document, errors) = ended(&at, &["run", "watch", "1", "--json"]);
    let run: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(
        (code, &run["id"], &run["attempt"]),
        (13, &json!(2), &json!(2)),
        "a run that has ended is followed, too"
    );
    let lines: Vec<Value> = errors.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["warning"].is_string() && lines[1]["code"] == 13, "{errors}");
    let listed = at.succeed(&["task", "list"]);
    assert!(listed.contains("RESULT") && listed.contains("failed (connect)"), "{listed}");
    assert_eq!(at.json(&["task", "list"])[0]["last_run"]["error_code"], "connect");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_attempt_that_succeeds_ends_the_wait_well() {
    let mut at = Elsewhere::with(Engine::Sqlite, &[("HOLDFAST_RETRY_SECS", "5")]).await;
    applied(&at);
    at.ssh.stop();
    let mut command = at.command(&["task", "run", "web files", "--wait"]);
    let waiting = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while at.json(&["task", "list"])[0]["last_run"].is_null() {
        assert!(Instant::now() < deadline, "the first attempt does not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    at.ssh.start_again();
    let output = waiting.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains("run 2 is the second attempt"), "{errors}");
    assert_eq!(at.json(&["task", "list"])[0]["last_run"]["status"], "successful");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_has_a_limit_with_its_own_exit_code() {
    let mut at = Elsewhere::with(Engine::Sqlite, &[("HOLDFAST_RETRY_SECS", "3600")]).await;
    applied(&at);
    at.ssh.stop();
    let (code, _, errors) = ended(&at, &["task", "run", "web files", "--wait", "--timeout", "20s"]);
    assert!(code == 19 && errors.contains("tried once more"), "{code}: {errors}");
    let run = at.json(&["run", "show", "1"]);
    assert!(run["retry_at"].is_string() && run["retry_run_id"].is_null(), "{run:#}");
    // Without a second attempt, the first one counts.
    at.succeed(&["task", "pause", "web files"]);
    assert_eq!(ended(&at, &["run", "watch", "1"]).0, 13);
    let (code, _, errors) = ended(&at, &["task", "run", "web files", "--timeout", "20s"]);
    assert!(code == 2 && errors.contains("--wait"), "{errors}");
    let (code, _, errors) = ended(&at, &["task", "run", "web files", "--wait", "--timeout", "soon"]);
    assert!(code == 2 && errors.contains("--timeout must be a time"), "{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_is_told_that_no_worker_is_running() {
    let at = Elsewhere::with(Engine::Sqlite, &[("HOLDFAST_WORKERS", "0")]).await;
    applied(&at);
    let (code, document, errors) = ended(&at, &["task", "run", "web files", "--wait", "--timeout", "6s", "--json"]);
    assert_eq!((code, document.as_str()), (19, ""), "{errors}");
    let lines: Vec<Value> = errors.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["warning"].as_str().unwrap().contains("no worker is running"), "{errors}");
    let (code, _, errors) = ended(&at, &["server", "check", "web-1", "--wait", "--timeout", "1s"]);
    assert!(code == 19 && errors.contains("is a worker running, and no maintenance on?"), "{errors}");
    assert_eq!(at.json(&["run", "show", "1"])["waiting_for"], "worker");
    at.installation.succeed(&["maintenance", "on"], "");
    assert_eq!(at.json(&["run", "show", "1"])["waiting_for"], "maintenance");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_is_told_that_all_workers_are_drained() {
    let at = Elsewhere::new().await;
    applied(&at);
    let show =
        || -> Value { serde_json::from_str(&at.installation.succeed(&["drain", "show", "--json"], "")).unwrap() };
    let deadline = Instant::now() + Duration::from_secs(60);
    while show()["workers"][0].is_null() {
        assert!(Instant::now() < deadline, "no worker has reported");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let workers = show();
    at.installation.succeed(&["drain", "on", workers["workers"][0]["name"].as_str().unwrap()], "");
    let (code, _, errors) = ended(&at, &["task", "run", "web files", "--wait", "--timeout", "6s"]);
    assert!(code == 19 && errors.contains("all workers were told to start no runs"), "{errors}");
    assert_eq!(at.json(&["run", "show", "1"])["waiting_for"], "drain");
}
