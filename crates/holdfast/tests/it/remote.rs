use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use holdfast_testkit::{Engine, Fingerprint, assert_same, free_port};
use serde_json::{Value, json};

use crate::elsewhere::Elsewhere;
use crate::process::{Installation, run};

/// From a file to a restored tree, with only the command line on another machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_applied_from_a_file_backed_up_and_restored() {
    let at = Elsewhere::new().await;
    at.describe(3, "");
    let (code, said) = at.apply(&["--check"]);
    assert!(code == 14 && said.contains("+ task \"web files\"") && !said.contains("correct horse"), "{said}");
    assert!(at.json(&["task", "list"]).as_array().unwrap().is_empty(), "only looked");
    let (code, said) = at.apply(&[]);
    assert!(code == 2 && said.contains("--yes"), "nobody confirms what nobody sees: {said}");
    let (code, said) = at.apply(&["--yes"]);
    assert!(code == 0 && said.contains("5 to create, 0 to change") && said.contains("created task"), "{said}");
    let (code, said) = at.apply(&["--yes"]);
    assert!(code == 0 && said.contains("Nothing to do: 5 unchanged."), "once more is the same: {said}");
    let (code, said) = at.apply(&["--check"]);
    assert_eq!(code, 0, "{said}");

    let said = at.succeed(&["server", "check", "web-1", "--wait"]);
    assert!(said.contains("online") && said.contains("tar"), "{said}");
    let said = at.succeed(&["task", "run", "web files", "--wait"]);
    assert!(said.contains("The destination confirmed it."), "{said}");
    let backups = at.json(&["backup", "list", "--task", "web files"]);
    let id = backups[0]["id"].to_string();
    assert!(backups[0]["is_encrypted"] == true && backups[0]["key"].as_str().unwrap().starts_with("web/"));
    at.succeed(&["backup", "verify", &id, "--wait"]);
    assert_eq!(at.json(&["backup", "show", &id])["verification"]["status"], "verified");
    let back = at.text("back");
    at.succeed(&["backup", "restore", &id, "--server", "web-1", "--path", &back, "--wait"]);
    assert_same(&Fingerprint::of(&at.path("source")), &Fingerprint::of(&at.path("back")));
    let whole = at.text("whole");
    at.succeed(&["backup", "download", &id, "--output", &whole]);
    let out = at.text("out");
    let output = run(&mut at.command(&["backup", "extract", &whole, "--to", &out]), "correct horse battery\n");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut expected = Fingerprint::of(&at.path("source"));
    assert!(expected.0.remove(&b"fifo"[..]).is_some(), "neither file, folder nor link: left out by name");
    assert_same(&expected, &Fingerprint::of(&at.path("out")));
    let other = at.text("other");
    let more = ["backup", "extract", &whole, "--to", &other, "--entry", "many", "--entry", "nosuch"];
    let output = run(&mut at.command(&more), "correct horse battery\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("There is no nosuch in this backup"), "{said}");
    assert!(!at.path("other").exists(), "nothing was written");
    let cut = std::fs::read(&whole).unwrap();
    std::fs::write(at.path("cut"), &cut[..cut.len() - 100]).unwrap();
    let output =
        run(&mut at.command(&["backup", "extract", &at.text("cut"), "--to", &other]), "correct horse battery\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("cannot be read to its end") && !said.contains("SSH"), "{said}");
    for words in ["task list", "task show 1", "task log 1", "backup list", "run list", "run show 2", "server list"] {
        let arguments: Vec<&str> = words.split(' ').collect();
        assert!(!at.succeed(&arguments).trim().is_empty(), "{words}");
        at.json(&arguments);
    }
    let entries = at.succeed(&["backup", "entries", &id]);
    assert!(entries.starts_with("TYPE"), "{entries}");
    // What a server calls its files neither controls the terminal nor looks like something else.
    assert!(entries.contains("\\x1b[2Jinvoice\\u202efdp.sh\\x0afile 1\n"), "{entries}");
    assert!(!entries.contains(['\u{1b}', '\u{202e}']), "{entries}");
    let named = at.json(&["backup", "entries", &id]);
    let is_named = |entry: &Value| entry["name"].as_str().unwrap().contains("invoice\u{202e}fdp.sh");
    assert!(named.as_array().unwrap().iter().any(is_named), "JSON stays the same document");
    let many = at.json(&["backup", "entries", &id, "--path", "many"]);
    assert_eq!(many.as_array().unwrap().len(), 130, "all pages of it");
    let (code, said) = at.try_run(&["backup", "download", &id, "--output", &whole]);
    assert!(code == 2 && said.contains("already exists"), "nothing is overwritten: {said}");

    // Manual changes are detected and reverted; resources that are not in the file stay.
    at.client.post("/api/tags", json!({"label": "by hand"})).await.expect(201);
    at.client.put("/api/backup-tasks/1", json!({"maximum_backups_to_keep": 9, "tag_ids": []})).await.expect(200);
    at.succeed(&["task", "pause", "web files"]);
    at.describe(3, "    paused: false");
    let (code, said) = at.apply(&["--check"]);
    assert_eq!(code, 14, "{said}");
    for expected in [
        "maximum_backups_to_keep: 9 -> 3",
        "tags: none -> important",
        "paused: true -> false",
        "\"by hand\" is not in the file",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let (code, said) = at.apply(&["-y"]);
    assert!(code == 0 && said.contains("changed task"), "{said}");
    let task = at.json(&["task", "show", "1"]);
    assert!(task["paused_at"].is_null() && task["storage"]["max_backups"] == 3 && task["tag_ids"] == json!([1]));
    // A cron expression that is not in the file is removed.
    at.client
        .put("/api/backup-tasks/1", json!({"frequency": "custom", "custom_cron": "*/5 * * * *"}))
        .await
        .expect(200);
    let (code, said) = at.apply(&["-y"]);
    assert!(code == 0 && said.contains("custom_cron: */5 * * * * -> none"), "{said}");
    assert!(at.json(&["task", "show", "1"])["schedule"]["custom_cron"].is_null());
    let (code, said) = at.apply(&["--secrets", "-y"]);
    assert!(code == 0 && said.contains("encryption_password: (secret) -> (secret)"), "{said}");
}

/// Scripts check the exit code, people read the message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_have_their_own_exit_code_and_one_line() {
    let at = Elsewhere::new().await;
    at.describe(1, "");
    at.apply(&["-y"]);
    let one_line = |arguments: &[&str], code: i32, expected: &str| {
        let (found, said) = at.try_run(arguments);
        assert_eq!((found, said.lines().count()), (code, 1), "{arguments:?}: {said}");
        assert!(said.starts_with("holdfast: ") && said.contains(expected), "{arguments:?}: {said}");
    };
    one_line(&["task", "show", "no such task"], 15, "there is no task called");
    one_line(&["task", "show", "4711"], 15, "Backup task not found");
    one_line(&["task", "cancel", "1"], 16, "");
    one_line(&["task", "update", "1", "--store-path", "../x"], 17, "store path");
    one_line(&["task", "update", "1"], 2, "nothing to change");
    one_line(&["tag", "delete", "important"], 2, "--yes");
    one_line(&["task", "srt"], 2, "unrecognized subcommand");
    one_line(&["srve"], 2, "'serve'");
    one_line(&["task", "run"], 2, "<NAME>");
    one_line(&["task", "list", "--url", &format!("http://127.0.0.1:{}", free_port())], 10, "cannot reach");
    one_line(&["task", "list", "--url", "nonsense"], 2, "not a URL");
    one_line(&["backup", "restore", "1", "--server", "web-1", "--path", "/x"], 15, "");
    // With --json, the error is one JSON object on standard error.
    let json_error = |arguments: &[&str], code: i32, field: &str| {
        let (found, said) = at.try_run(&[arguments, &["--json"]].concat());
        let error: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}"));
        assert_eq!((found, &error["code"]), (code, &json!(code)), "{arguments:?}: {said}");
        assert!(error["message"].is_string() && (field.is_empty() || error["errors"][field][0].is_string()), "{said}");
    };
    json_error(&["task", "show", "4711"], 15, "");
    json_error(&["task", "update", "1", "--store-path", "../x"], 17, "store_path");
    json_error(&["task", "srt"], 2, "");
    json_error(&["apply", "-f", "/nonexistent"], 2, "");
    std::fs::write(at.path("broken.yaml"), "tags:\n  - label: a: b\n").unwrap();
    one_line(&["apply", "-f", &at.text("broken.yaml")], 2, "broken.yaml: line 2: this is not valid YAML");
    // A command that waits for a run fails if the run fails.
    std::fs::remove_dir_all(at.path("source")).unwrap();
    let (code, said) = at.try_run(&["task", "run", "web files", "--wait"]);
    assert!(code == 13 && said.lines().last().unwrap().contains("is failed (source_missing)"), "{code} {said}");
    std::fs::write(at.path("token"), "wrong\n").unwrap();
    one_line(&["task", "list"], 11, "token is not accepted");
    let output = run(at.command(&["task", "list"]).env_remove("HOLDFAST_URL"), "");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("HOLDFAST_URL"));
}

/// Permissions, disk space, port and version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_start_reports_why_in_one_line_with_its_own_exit_code() {
    let mut codes = Vec::new();
    let mut check = |what: &str, mut command: Command, code: i32, expected: &str| {
        let output = run(command.env("HOLDFAST_LOG", "off"), "");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{what}: {said}");
        assert!(said.contains(expected), "{what}: {said}");
        assert!(!codes.contains(&code), "{what} has the code of another");
        codes.push(code);
    };
    let installation = Installation::new(Engine::Sqlite).await;
    let service = installation.serve(&[]);
    let address = service.base_url.trim_start_matches("http://").to_owned();
    check("a taken port", installation.command(&["--listen", &address]), 5, "choose another address with --listen");
    drop(service);
    check("a typo", installation.command(&["sevre"]), 2, "serve");

    // As another user, because root may write everywhere.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = as_nobody(&["serve"]);
    command.env("HOLDFAST_DATA_DIR", folder.path().join("data"));
    check("no permission", command, 6, "no permission");

    let small = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(small.path()).output();
    if mounted.is_ok_and(|output| output.status.success()) {
        let mut command = installation.command(&["serve"]);
        command.env("HOLDFAST_DATA_DIR", small.path().join("data")).env("HOLDFAST_LISTEN", "127.0.0.1:0");
        check("a full disk", command, 7, "full");
        let unmounted = Command::new("umount").arg(small.path()).status().unwrap();
        assert!(unmounted.success());
    } else {
        eprintln!("no file system may be mounted here, so nobody looked at a full disk");
    }

    let database = installation.data_dir().join("holdfast.db");
    newer(&database).await;
    check("a newer database", installation.command(&["serve"]), 8, "newer Holdfast");
    std::fs::write(installation.data_dir().join("master.key"), "nonsense").unwrap();
    check("a master key that is none", installation.command(&["serve"]), 3, "no valid master key");
}

/// Runs the binary as an unprivileged user.
fn as_nobody(arguments: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    command.arg(env!("CARGO_BIN_EXE_holdfast")).args(arguments).env_clear().env("PATH", "/usr/bin:/bin");
    command
}

async fn newer(database: &Path) {
    use sqlx::Connection as _;
    let url = format!("sqlite://{}", database.display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let insert = "INSERT INTO schema_migrations (version, applied_at) VALUES (9999, 0)";
    sqlx::query(insert).execute(&mut connection).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_use_pipes_and_tokens_that_may_only_run() {
    let at = Elsewhere::new().await;
    let yaml = "tags:\n  - label: piped\n";
    let output = run(&mut at.command(&["apply", "-f", "-", "--yes"]), yaml);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(at.client.get("/api/tags").await.expect(200)["data"][0]["label"], "piped");
    let output = run(&mut at.command(&["apply", "-f", "-", "--yes"]), "tags: 5\n");
    assert!(String::from_utf8(output.stderr).unwrap().contains("standard input: tags must be a list"));

    at.describe(1, "");
    assert_eq!(at.apply(&["--yes"]).0, 0);
    at.succeed(&["task", "run", "1", "--wait"]);
    let backup = at.json(&["backup", "list"])[0]["id"].to_string();
    let said = run(&mut at.command(&["backup", "download", &backup, "--entry", "hello", "--output", "-"]), "");
    assert_eq!((said.status.code(), said.stdout), (Some(0), b"hello".to_vec()));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = at.command(&["backup", "download", &backup, "--output", "-"]);
    let lost = command.stdout(full).stderr(std::process::Stdio::piped()).output().unwrap();
    assert_eq!(lost.status.code(), Some(7), "{}", String::from_utf8_lossy(&lost.stderr));

    // By its number, a task is run without looking anything up.
    let token = ["token", "create", "--user", "ada@example.org", "--name", "run", "--scope", "run-backup-tasks"];
    let token = at.installation.succeed(&token, "");
    std::fs::write(at.path("token"), format!("\n {token}\r\n")).unwrap();
    let run = at.json(&["task", "run", "1"])["id"].clone();
    assert!(run.is_i64(), "{run}");
    let (code, said) = at.try_run(&["task", "run", " web files"]);
    assert!(code == 11 && said.contains("view-backup-tasks"), "{code} {said}");
    // Settings of a service on the same machine are not in the way.
    let mut command = at.command(&["task", "run", "1"]);
    let output = crate::process::run(command.env("HOLDFAST_WORKERS", "many").env("HOLDFAST_OLD_SETTING", "x"), "");
    assert_ne!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
