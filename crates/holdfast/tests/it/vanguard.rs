use std::process::Command;

use holdfast_testkit::{Engine, PostgresServer};
use serde_json::json;

use crate::process::Installation;

const ENV: &str = "APP_NAME=Vanguard\nAPP_KEY=base64:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n";

/// A dump of a PostgreSQL database with Vanguard's tables.
async fn dump(options: &[&str]) -> Vec<u8> {
    let url = PostgresServer::shared().create_database().await;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/vanguard.sql");
    let psql = Command::new("psql").args(["-q", "-v", "ON_ERROR_STOP=1", "-f", file, &url]).output().unwrap();
    assert!(psql.status.success(), "{}", String::from_utf8_lossy(&psql.stderr));
    let dump = Command::new("pg_dump").args(options).arg(&url).output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    dump.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_vanguard_is_imported() {
    for options in [&["--no-owner"][..], &["--inserts"], &["--column-inserts", "--rows-per-insert=10"]] {
        let installation = Installation::new(Engine::Sqlite).await;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("dump.sql"), dump(options).await).unwrap();
        std::fs::write(path("env"), ENV).unwrap();
        let (file, key) = (path("dump.sql"), path("env"));
        let arguments = ["import", "vanguard", &file, "--app-key-file", &key];

        let told = installation.succeed(&[&arguments[..], &["--check"]].concat(), "");
        assert!(told.contains("+ task \"site\"") && told.contains("Nothing was changed."), "{told}");
        let told = installation.succeed(&arguments, "");
        assert!(told.contains("10 created, 0 already present, 2 skipped"), "{told}");
        assert!(told.contains("stream \"bot\": telegram") && told.contains("task \"of the gone\""), "{told}");
        assert!(told.contains("/set-up/"), "whoever comes chooses a password: {told}");
        let again = installation.succeed(&arguments, "");
        assert!(again.contains("0 created, 10 already present"), "once more is the same: {again}");

        let token = ["token", "create", "--user", "grace@example.org", "--name", "t", "--all-scopes"];
        let token = installation.succeed(&token, "");
        // Without workers: the buckets do not exist.
        let service = installation.serve(&[("HOLDFAST_WORKERS", "0")]);
        let client = service.client().with_token(&token);
        let server = client.get("/api/remote-servers").await.data(200)[0].clone();
        assert_eq!((&server["label"], &server["connection"]["port"]), (&json!("web's server"), &json!(2222)));
        assert_eq!(server["connection"]["is_database_password_set"], true);
        let destinations = client.get("/api/backup-destinations").await.data(200);
        assert_eq!(destinations[0]["s3_bucket_name"], "backups");
        assert_eq!(destinations[0]["s3_endpoint"], "https://s3.example.org");
        assert_eq!(destinations[2]["s3_region"], "eu-west-1");
        let tasks = client.get("/api/backup-tasks").await.data(200);
        assert_eq!(tasks.as_array().unwrap().len(), 2);
        let (site, shop) = (&tasks[0], &tasks[1]);
        assert_eq!((&site["description"], &site["source"]["path"]), (&json!("two\nlines"), &json!("/var/www")));
        assert_eq!(site["schedule"]["scheduled_utc_time"], "04:00");
        assert_eq!((&site["storage"]["max_backups"], &site["has_encryption_password"]), (&json!(14), &json!(true)));
        assert_eq!(site["notification_stream_ids"].as_array().unwrap().len(), 2, "each once: {site}");
        assert_eq!(site["tag_ids"].as_array().unwrap().len(), 1);
        assert_eq!(
            (&shop["source"]["database_name"], &shop["schedule"]["custom_cron"]),
            (&json!("shop"), &json!("*/30 * * * *"))
        );
        assert_eq!(shop["source"]["excluded_tables"], "sessions,cache");
        assert!(shop["paused_at"].is_string() && site["paused_at"].is_null());

        // With another user name or endpoint, it is not the same server or destination.
        client.put(&format!("/api/remote-servers/{}", server["id"]), json!({"username": "other"})).await.expect(200);
        let bucket = format!("/api/backup-destinations/{}", destinations[0]["id"]);
        client
            .put(
                &bucket,
                json!({"custom_s3_endpoint": "https://s3.example.net", "s3_access_key": "k", "s3_secret_key": "s"}),
            )
            .await
            .expect(200);
        drop(service);
        let told = installation.succeed(&arguments, "");
        assert!(told.contains("+ server \"web's server\"") && told.contains("+ destination"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_key_of_vanguard_incomplete_items_are_left_out() {
    let installation = Installation::new(Engine::Sqlite).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("dump.sql"), dump(&[]).await).unwrap();
    installation.succeed(&["user", "create", "--email", "ada@example.org", "--name", "Ada"], "correct horse battery\n");
    let told = installation.succeed(&["import", "vanguard", &path("dump.sql"), "--user", "ada@example.org"], "");
    assert!(told.contains("destination \"bucket\": it is encrypted; pass Vanguard's .env"), "{told}");
    assert!(told.contains("task \"site\": its server or destination was skipped"), "{told}");
    assert!(told.contains("+ task \"shop\""), "what needs no key comes: {told}");
    std::fs::write(path("custom"), dump(&["--format=custom"]).await).unwrap();
    let refused = installation.run(&["import", "vanguard", &path("custom")], "");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("pg_restore --file=dump.sql"), "{said}");
}

/// Text from a dump is untrusted: control characters are replaced before it is printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_control_characters_of_a_dump_reach_the_terminal() {
    let installation = Installation::new(Engine::Sqlite).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.sql").to_str().unwrap().to_owned();
    let dump = "INSERT INTO users (id, name, email) VALUES (1, 'a', 'a\u{1b}[2J\u{202e}@example.org');\n\
        INSERT INTO notification_streams (id, user_id, label, type) VALUES (1, 1, 'b\u{1b}', 'c\u{1b}]0;d\u{7}');\n";
    std::fs::write(&file, dump).unwrap();
    let told = installation.succeed(&["import", "vanguard", &file, "--check"], "");
    assert!(told.contains("a\u{fffd}[2J\u{fffd}@example.org:") && told.contains("c\u{fffd}]0;d\u{fffd} is"), "{told}");
    assert!(!told.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{told:?}");
}
