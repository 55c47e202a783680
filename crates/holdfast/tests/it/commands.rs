use std::time::{Duration, Instant};

use holdfast_testkit::Engine;

use crate::process::Installation;

#[tokio::test]
async fn accounts_and_tokens_are_managed_while_the_service_runs() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let installation = Installation::new(engine).await;
        let service = installation.serve(&[]);
        let create =
            ["user", "create", "--email", "Ada@example.org", "--name", "Ada King", "--timezone", "Europe/Berlin"];
        installation.succeed(&create, "correct horse\n");
        let again = installation.run(&create, "correct horse\n");
        assert_eq!(again.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&again.stderr).contains("already been taken"));
        let short = installation.run(&["user", "create", "--email", "b@example.org", "--name", "B"], "short\n");
        assert!(String::from_utf8_lossy(&short.stderr).contains("at least 8 characters"));
        assert!(
            installation
                .succeed(&["user", "list"], "")
                .contains("ada@example.org\tAda King\tuser\tpassword\tEurope/Berlin")
        );

        let make = [
            "token",
            "create",
            "--user",
            "ada@example.org",
            "--name",
            "ci",
            "--scope",
            "manage-tags",
            "--expires-in",
            "30d",
        ];
        let token = installation.succeed(&make, "");
        assert!(token.starts_with("hf_") && !token.contains(char::is_whitespace), "the token alone is printed");
        let client = service.client().with_token(&token);
        client.get("/api/tags").await.expect(200);
        client.get("/api/backup-tasks").await.expect(403);
        let bad =
            installation.run(&["token", "create", "--user", "ada@example.org", "--name", "x", "--scope", "all"], "");
        assert_eq!(bad.status.code(), Some(2));
        let none = installation.run(&["token", "create", "--user", "ada@example.org", "--name", "x"], "");
        assert_eq!(none.status.code(), Some(2));

        let listed = installation.succeed(&["token", "list", "--user", "ada@example.org"], "");
        let id = listed.split('\t').next().unwrap();
        installation.succeed(&["token", "revoke", "--user", "ada@example.org", "--id", id], "");
        let revoked = Instant::now();
        while client.get("/api/tags").await.status != 401 {
            assert!(revoked.elapsed() < Duration::from_secs(30), "the revoked token still works");
        }

        let other = installation.succeed(&make, "");
        let other = service.client().with_token(&other);
        let reset = ["user", "reset-password", "--email", "ada@example.org"];
        let told = installation.succeed(&[&reset[..], &["--keep-tokens", "--keep-identities"]].concat(), "new horse\n");
        assert!(told.contains("API tokens kept") && told.contains("linked accounts kept"), "{told}");
        other.get("/api/tags").await.expect(200);
        let told = installation.succeed(&reset, "another horse\n");
        assert!(told.contains("API tokens revoked: 1"), "{told}");
        let revoked = Instant::now();
        while other.get("/api/tags").await.status != 401 {
            assert!(revoked.elapsed() < Duration::from_secs(30), "a token outlives the password");
        }
        let url = installation.succeed(&["user", "enable-otp", "--email", "ada@example.org"], "");
        assert!(url.starts_with("otpauth://totp/"));
        assert!(installation.succeed(&["user", "list"], "").contains("two-factor"));
        installation.succeed(&["user", "disable-otp", "--email", "ada@example.org"], "");
        let said = String::from_utf8(installation.run(&["doctor"], "").stdout).unwrap();
        assert!(said.contains("make-admin"), "{said}");
        installation.succeed(&["user", "make-admin", "ada@example.org"], "");
        assert!(installation.succeed(&["doctor"], "").contains("answers and accepts writes"));
        let unknown = installation.run(&["user", "reset-password", "--email", "nobody@example.org"], "correct horse\n");
        assert_eq!(unknown.status.code(), Some(1));
    }
}

#[tokio::test]
async fn the_key_is_rotated_while_the_service_runs() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let installation = Installation::new(engine).await;
        let service = installation.serve(&[]);
        installation.succeed(&["user", "create", "--email", "a@example.org", "--name", "A"], "correct horse\n");
        let make = ["token", "create", "--user", "a@example.org", "--name", "t", "--all-scopes"];
        let client = service.client().with_token(&installation.succeed(&make, ""));
        let task = create_task(&client).await;
        let trigger = format!("/api/backup-tasks/{task}/trigger-url");
        let secret = client.act(&trigger).await.data(200)["secret"].as_str().unwrap().to_owned();
        assert!(installation.succeed(&["key", "rotate"], "").contains("1 secrets were re-encrypted"));
        let said = installation.succeed(&["audit", "export"], "");
        let events: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let event = events.last().unwrap();
        assert_eq!((&event["action"], &event["detail"]), (&"master_key.rotated".into(), &"1 secrets".into()));
        assert!(event["actor"].as_str().unwrap().starts_with("command line (uid "), "{event}");
        assert!(events.iter().any(|event| event["action"] == "backup_task.created" && event["user_id"] == 2), "{said}");
        assert!(events.is_sorted_by_key(|event| event["id"].as_i64()));
        let later = installation.succeed(&["audit", "export", "--since", "2999-01-01T00:00:00Z"], "");
        assert_eq!(later, "");
        assert_eq!(installation.run(&["audit", "export", "--since", "yesterday"], "").status.code(), Some(2));
        // The running service can use the re-encrypted secrets, and encrypts new ones.
        let hook = format!("/webhooks/backup-tasks/{task}/run?secret={secret}");
        client.without_token().act(&hook).await.expect(202);
        client.act(&trigger).await.data(200);
        client.get("/api/ssh-key").await.expect(200);
        drop(service);
        installation.serve(&[]);
    }
}

async fn create_task(client: &holdfast_testkit::Client) -> i64 {
    use serde_json::json;
    let server = json!({"label": "s", "ip_address": "127.0.0.1", "username": "u"});
    let server = client.post("/api/remote-servers", server).await.id(201);
    let destination = client.post("/api/backup-destinations", json!({"label": "d", "type": "local"})).await.id(201);
    let task = json!({"remote_server_id": server, "backup_destination_id": destination, "label": "t", "type": "files",
        "source_path": "/srv", "frequency": "hourly"});
    client.post("/api/backup-tasks", task).await.id(201)
}

/// Waits until the service knows what a command changed: it looks every second.
async fn wait_for_status(client: &holdfast_testkit::Client, path: &str, status: u16) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.get(path).await.status != status {
        assert!(Instant::now() < deadline, "{path} is still not {status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn an_account_is_paused_suspended_and_deleted_while_the_service_runs() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let installation = Installation::new(engine).await;
        let service = installation.serve(&[]);
        installation.succeed(&["user", "create", "--email", "a@example.org", "--name", "A"], "correct horse\n");
        let make = ["token", "create", "--user", "a@example.org", "--name", "t", "--all-scopes"];
        let client = service.client().with_token(&installation.succeed(&make, ""));
        let task = create_task(&client).await;
        let path = format!("/api/backup-tasks/{task}");
        let pause = |words: &[&str]| installation.run(&[&["task"], words].concat(), "");
        let said = installation.succeed(&["task", "pause", "--user", "a@example.org", "--all"], "");
        assert!(said.contains("t paused") && said.ends_with("were paused: 1."), "{said}");
        assert!(client.get(&path).await.data(200)["paused_at"].is_string());
        let none = pause(&["resume", "--user", "a@example.org", "nothing"]);
        assert_eq!(none.status.code(), Some(1), "{none:?}");
        assert_eq!(pause(&["pause", "--user", "a@example.org"]).status.code(), Some(2));
        assert_eq!(pause(&["pause", "--all"]).status.code(), Some(2), "of whom?");
        installation.succeed(&["task", "resume", "--user", "a@example.org", "t"], "");
        assert!(client.get(&path).await.data(200)["paused_at"].is_null());
        // What its owner has paused stays so.
        let own = client.get(&path).await.data(200);
        let own = serde_json::json!({"label": "own", "type": "files", "source_path": "/etc", "frequency": "daily",
            "time_to_run_at": "03:00", "remote_server_id": own["remote_server_id"],
            "backup_destination_id": own["backup_destination_id"], "paused": true});
        let own = format!("/api/backup-tasks/{}", client.post("/api/backup-tasks", own).await.id(201));
        let is_paused = async |path: &str| client.get(path).await.data(200)["paused_at"].is_string();
        installation.succeed(&["task", "pause", "--user", "a@example.org", "--all"], "");
        assert!(is_paused(&path).await && is_paused(&own).await);
        let said = installation.succeed(&["task", "resume", "--user", "a@example.org", "--all"], "");
        assert!(said.contains("t resumed") && said.contains("own stays paused"), "{said}");
        assert!(!is_paused(&path).await && is_paused(&own).await);
        // So does what its owner pauses while all are paused.
        installation.succeed(&["task", "pause", "--user", "a@example.org", "--all"], "");
        client.act(&format!("{path}/pause")).await.expect(200);
        installation.succeed(&["task", "resume", "--user", "a@example.org", "--all"], "");
        assert!(is_paused(&path).await);
        client.act(&format!("{path}/resume")).await.expect(200);
        client.delete(&own).await.expect(200);

        installation.succeed(&["user", "suspend", "a@example.org"], "");
        assert!(installation.succeed(&["user", "list"], "").ends_with("\tsuspended"));
        wait_for_status(&client, "/api/user", 401).await;
        installation.succeed(&["user", "resume", "a@example.org"], "");
        wait_for_status(&client, "/api/user", 200).await;

        installation.succeed(&["user", "create", "--email", "b@example.org", "--name", "B"], "correct horse\n");
        let token = ["token", "create", "--user", "b@example.org", "--name", "t", "--all-scopes"];
        let other = client.with_token(&installation.succeed(&token, ""));
        for client in [&client, &other] {
            client.post("/api/tags", serde_json::json!({"label": "shared"})).await.expect(201);
        }
        let give = |from: &str, to: &str| installation.run(&["user", "transfer", from, "--to", to, "--yes"], "");
        let unsure =
            installation.run(&["user", "transfer", "a@example.org", "--to", "b@example.org"], "a@example.org\n");
        let said = String::from_utf8(unsure.stderr).unwrap();
        assert!(unsure.status.code() == Some(2) && said.contains("--yes"), "a pipe is nobody who was asked: {said}");
        let said = give("a@example.org", "b@example.org");
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(
            said.contains("b@example.org now has 1 tasks, 1 servers and 1 destinations of a@example.org"),
            "{said}"
        );
        assert!(said.contains("has labels of its own that are the same: tag \"shared\""), "{said}");
        client.get(&path).await.expect(403);
        assert_eq!(give("a@example.org", "nobody@example.org").status.code(), Some(1));
        assert!(give("b@example.org", "a@example.org").status.success());
        client.get(&path).await.expect(200);

        let unsure = installation.run(&["user", "delete", "a@example.org"], "a@example.org\n");
        assert_eq!(unsure.status.code(), Some(2), "a pipe is nobody who was asked");
        client.act(&format!("{path}/run")).await.expect(202);
        let said = installation.succeed(&["user", "delete", "a@example.org", "--yes", "--cancel-runs"], "");
        assert!(said.contains("a@example.org was deleted"), "{said}");
        assert!(!installation.succeed(&["user", "list"], "").contains("a@example.org"));
        wait_for_status(&client, "/api/user", 401).await;
        let log = installation.succeed(&["audit", "export"], "");
        for action in ["backup_task.paused", "user.suspended", "user.resumed", "user.transferred", "user.deleted"] {
            assert!(log.lines().any(|line| line.contains(action) && line.contains("command line (uid ")), "{log}");
        }
    }
}

#[tokio::test]
async fn the_document_and_help_need_no_database() {
    let installation = Installation::new(Engine::Sqlite).await;
    let document: serde_json::Value = serde_json::from_str(&installation.succeed(&["openapi"], "")).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let help = installation.succeed(&["serve", "--help"], "");
    for setting in ["--database-url-file", "HOLDFAST_DATABASE_URL", "ENABLE_DEVICE_AUTH_ENDPOINT"] {
        assert!(help.contains(setting), "{help}");
    }
    // Other commands show their own options only.
    for command in [&["--help"][..], &["task", "list", "--help"], &["user", "create", "--help"], &["doctor", "--help"]]
    {
        let help = installation.succeed(command, "");
        assert!(help.lines().count() < 50 && !help.contains("--database-url"), "{command:?}: {help}");
    }
    assert!(!installation.data_dir().exists());
}

#[tokio::test]
async fn maintenance_is_begun_shown_and_ended() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let installation = Installation::new(engine).await;
        let service = installation.serve(&[]);
        let metric = async || {
            let text = service.client().get("/metrics").await.text;
            text.lines().find_map(|line| line.strip_prefix("holdfast_maintenance ")).unwrap().to_owned()
        };
        assert_eq!(installation.succeed(&["maintenance", "show"], ""), "There is no maintenance.");
        assert_eq!(metric().await, "0");
        assert!(installation.succeed(&["maintenance", "on", "--for", "2h"], "").starts_with("No run starts until 20"));
        assert!(installation.succeed(&["maintenance", "show"], "").starts_with("No run starts until 20"));
        assert_eq!(metric().await, "1");
        let mut ready = service.client().get("/readyz").await;
        while ready.body["checks"]["maintenance"].is_null() {
            // The last result is used again for a second.
            ready = service.client().get("/readyz").await;
        }
        let told = ready.body["checks"]["maintenance"].as_str().unwrap().to_owned();
        assert!(ready.status == 200 && told.starts_with("on: no run starts until 20"), "{}", ready.text);
        let doctor = installation.run(&["doctor", "--offline"], "");
        let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(said.contains("ok       maintenance: on: no run starts until 20"), "{said}");
        for bad in ["8d", "soon"] {
            assert_eq!(installation.run(&["maintenance", "on", "--for", bad], "").status.code(), Some(2));
        }
        installation.succeed(&["maintenance", "off"], "");
        assert_eq!(metric().await, "0");
    }
}

#[tokio::test]
async fn a_worker_is_drained_and_starts_runs_again() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let installation = Installation::new(engine).await;
        let service = installation.serve(&[]);
        let show = || -> serde_json::Value {
            serde_json::from_str(&installation.succeed(&["drain", "show", "--json"], "")).unwrap()
        };
        assert_eq!(installation.run(&["drain", "on", "nobody"], "").status.code(), Some(2));
        // The worker reports when it has started.
        let deadline = Instant::now() + Duration::from_secs(60);
        while show()["workers"].as_array().unwrap().is_empty() {
            assert!(Instant::now() < deadline, "no worker has reported");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let name = show()["workers"][0]["name"].as_str().unwrap().to_owned();
        let told = installation.succeed(&["drain", "on", &name], "");
        assert!(told.starts_with(&format!("No run starts on {name}.")), "{told}");
        assert_eq!(show()["workers"][0]["draining"], true);
        assert!(installation.succeed(&["drain", "show"], "").contains("starts no runs"));
        let metrics = service.client().get("/metrics").await.text;
        assert!(metrics.contains("\nholdfast_workers_draining 1\n"), "{metrics}");
        let doctor = String::from_utf8_lossy(&installation.run(&["doctor", "--offline"], "").stdout).into_owned();
        assert!(doctor.contains("PROBLEM  drain: no run starts: all workers were told so"), "{doctor}");
        assert!(doctor.contains("none starts runs"), "{doctor}");
        let mut ready = service.client().get("/readyz").await;
        while ready.body["checks"]["drain"].is_null() {
            // The last result is used again for a second.
            ready = service.client().get("/readyz").await;
        }
        assert_eq!(ready.status, 200, "requests are answered: {}", ready.text);
        // All workers of a host are told by its name.
        let (host, _) = name.rsplit_once('-').unwrap();
        assert_eq!(installation.succeed(&["drain", "off", host], ""), format!("Runs start again on {name}."));
        assert_eq!(show()["workers"][0]["draining"], false);
    }
}
