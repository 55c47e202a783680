use std::path::Path;

use holdfast_testkit::Engine;
use serde_json::{Value, json};

use crate::process::Installation;
use crate::transfer::{EMAIL, PASSWORD, read_export, serve, sign_in, write_export};

const PASSPHRASE: &str = "a long passphrase\n";
const COSTLY_HASH: &str = "$argon2id$v=19$m=4194304,t=100,p=1$c29tZSByYW5kb20gc2FsdA$gYqzZJgiqTgyPFSLfyP1Ew";

/// An export of an account with one of each thing that needs no server.
async fn export(installation: &Installation, file: &str) {
    installation.succeed(&["user", "create", "--email", EMAIL, "--name", "Ada", "--admin"], &format!("{PASSWORD}\n"));
    let service = serve(installation);
    let client = sign_in(&service).await;
    client.get("/api/ssh-key").await.expect(200);
    let body = json!({"label": "web", "ip_address": "127.0.0.1", "port": 1, "username": "backup"});
    let server = client.post("/api/remote-servers", body).await.id(201);
    let body = json!({"label": "nas", "type": "sftp", "sftp_host": "127.0.0.1", "sftp_port": 1, "sftp_username": "backup",
        "sftp_path": "/backup"});
    let destination = client.post("/api/backup-destinations", body).await.id(201);
    let body = json!({"label": "mail", "type": "email", "value": EMAIL});
    let stream = client.post("/api/notification-streams", body).await.id(201);
    let tag = client.post("/api/tags", json!({"label": "nightly"})).await.id(201);
    let body = json!({"remote_server_id": server, "backup_destination_id": destination, "label": "files",
        "type": "files", "source_path": "/srv", "frequency": "daily", "time_to_run_at": "03:00", "tag_ids": [tag],
        "notification_stream_ids": [stream]});
    client.post("/api/backup-tasks", body).await.id(201);
    drop(service);
    installation.succeed(&["export", "--output", file], PASSPHRASE);
}

/// Values that no request could have stored, and what is said about them.
fn refused() -> Vec<(&'static str, Value, &'static str)> {
    let senseless = |place, value| (place, value, "makes no sense");
    vec![
        senseless("/users/0/password_hash", json!(COSTLY_HASH)),
        senseless(
            "/users/0/password_hash",
            json!("$argon2id$v=19$m=19456,t=4294967295,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNo"),
        ),
        senseless("/users/0/name", json!("Ada\u{1b}[2J")),
        senseless("/users/0/email", json!("ada\u{202e}@example.org")),
        senseless("/users/0/language", json!("../../etc")),
        senseless("/users/0/created_at", json!(-1)),
        senseless("/users/0/totp_last_step", json!(-1)),
        ("/users/0/id", json!(i64::MAX), "has no id that can be used"),
        ("/tags/0/id", json!(i64::MAX - 1), "has no id that can be used"),
        senseless("/api_tokens/0/scopes", json!("everything")),
        senseless("/api_tokens/0/digest", json!("00")),
        senseless("/ssh_keys/0/public_key", json!("00")),
        senseless("/ssh_keys/0/private_sealed", json!("short")),
        senseless("/remote_servers/0/label", json!("a\nb")),
        senseless("/remote_servers/0/label", json!("x".repeat(256))),
        senseless("/remote_servers/0/host", json!("-oProxyCommand=id")),
        senseless("/remote_servers/0/username", json!("-l")),
        senseless("/remote_servers/0/latency_micros", json!(-1)),
        senseless("/remote_servers/0/database_password_sealed", json!("a\nb")),
        ("/remote_servers/0/jump_server_id", json!(1), "behind a jump host"),
        senseless("/backup_destinations/0/spec/sftp_path", json!("/backup/../../etc")),
        senseless("/backup_destinations/0/spec/sftp_host", json!("a\u{1b}b")),
        senseless("/backup_destinations/0/folder_user_id", json!(-4)),
        senseless("/notification_streams/0/last_test_message", json!(7)),
        ("/notification_streams/0/value_sealed", json!("ops"), "do not fit together"),
        senseless("/tags/0/colour", json!("red")),
        senseless("/tags/0/description", json!("a\u{0}")),
        senseless("/backup_tasks/0/spec/source_path", json!("/srv\n/etc")),
        senseless("/backup_tasks/0/spec/store_path", json!("../../other")),
        senseless("/backup_tasks/0/spec/maximum_backups_to_keep", json!(-1)),
        senseless("/backup_tasks/0/losses", json!(-1)),
        senseless("/backup_tasks/0/last_error_code", json!("unheard of")),
        senseless("/backup_tasks/0/heartbeat_sealed", json!("file:///etc/passwd")),
    ]
}

fn set(contents: &mut Value, place: &str, value: Value) {
    let (parent, name) = place.rsplit_once('/').unwrap();
    contents.pointer_mut(parent).unwrap_or_else(|| panic!("{parent} is missing"))[name] = value;
}

async fn hold_off(engine: Engine) {
    let old = Installation::new(engine).await;
    let (file, forged) = (old.folder.path().join("all.age"), old.folder.path().join("forged.age"));
    export(&old, file.to_str().unwrap()).await;
    let document = read_export(&file);
    let forge = |change: &dyn Fn(&mut Value)| {
        let mut document = document.clone();
        change(&mut document["contents"]);
        write_export(&forged, &document);
    };
    let new = Installation::new(engine).await;
    for (place, value, expected) in refused() {
        forge(&|contents| set(contents, place, value.clone()));
        let output = new.run(&["import", forged.to_str().unwrap()], PASSPHRASE);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(expected), "{place} {value}: {said}");
    }
    // A table that nobody knows, with a name that would clear the screen.
    forge(&|contents| contents["\u{1b}[2J\u{202e}"] = json!([{}]));
    let output = new.run(&["import", forged.to_str().unwrap()], PASSPHRASE);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("\\u001b[2J\\u202e") && !said.contains('\u{1b}'), "{said}");

    let year_9000 = 221_845_392_000_000_000_i64;
    forge(&|contents| {
        let harmless = [
            ("/tags/0/label", json!("nightly\u{202e}txt.exe")),
            ("/tags/0/search_label", json!("something else")),
            ("/tags/0/created_at", json!(year_9000)),
            ("/backup_tasks/0/streams_count", json!(40)),
            ("/backup_tasks/0/last_success_at", json!(year_9000)),
            ("/remote_servers/0/last_error", json!("gone\u{1b}[2J")),
            ("/users/0/quiet_from", json!("22:00")),
        ];
        harmless.into_iter().for_each(|(place, value)| set(contents, place, value));
        contents["settings"] = json!([{"name": "maintenance_until", "value": year_9000.to_string()}]);
    });
    new.succeed(&["import", forged.to_str().unwrap()], PASSPHRASE);
    let service = serve(&new);
    let client = sign_in(&service).await;
    let tag = &client.get("/api/tags?search=txt").await.data(200)[0];
    assert_eq!(tag["label"], "nightly\u{fffd}txt.exe");
    assert!(tag["created_at"].as_str().unwrap() < "9000", "{tag}");
    let task = &client.get("/api/backup-tasks").await.data(200)[0];
    assert!(!task.to_string().contains("9000-"), "{task}");
    let settings = client.get("/api/notification-settings").await.data(200);
    assert_eq!(settings["quiet_hours"], Value::Null);
    let run = client.act(&format!("/api/backup-tasks/{}/run", task["id"])).await.id(202);
    client.wait_for(&format!("/api/runs/{run}"), |run| run["data"]["started_at"].is_string()).await;
    client.post("/api/tags", json!({"label": "another"})).await.id(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_brings_nothing_that_no_request_could_have_stored_on_sqlite() {
    hold_off(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_brings_nothing_that_no_request_could_have_stored_on_postgres() {
    hold_off(Engine::Postgres).await;
}

/// A file of a few kilobytes that expands to a gigabyte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_does_not_expand_without_limit() {
    let installation = Installation::new(Engine::Sqlite).await;
    let bomb = installation.folder.path().join("bomb.age");
    write_bomb(&bomb);
    assert!(std::fs::metadata(&bomb).unwrap().len() < 64 << 10);
    let output = installation.run(&["import", bomb.to_str().unwrap()], PASSPHRASE);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("expands to more"), "{said}");
}

fn write_bomb(path: &Path) {
    // A zstd frame with a window of 128 KiB, and blocks that each repeat one byte as often.
    let block = |is_last: u32| (is_last | 1 << 1 | (128 << 10) << 3).to_le_bytes();
    let mut packed = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    for number in 0..2048 {
        packed.extend_from_slice(&block(u32::from(number == 2047))[..3]);
        packed.push(b' ');
    }
    let passphrase = holdfast_core::Secret::new(PASSPHRASE.trim());
    std::fs::write(path, holdfast_engine::sealed_document::seal(&packed, &passphrase).unwrap()).unwrap();
}
