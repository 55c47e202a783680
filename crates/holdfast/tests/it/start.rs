use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use holdfast_testkit::Engine;
use serde_json::json;
use sqlx::Connection as _;

use crate::process::{Installation, Service, run};

#[tokio::test]
async fn the_first_start_prints_a_link_and_has_no_password() {
    let installation = Installation::new(Engine::Sqlite).await;
    let service = installation.serve(&[]);
    let link =
        service.greeting.lines().find_map(|line| line.trim().strip_prefix(&service.base_url)).unwrap().to_owned();
    assert!(link.starts_with("/set-up/") && link.len() > 40, "{link}");
    assert_eq!(service.client().get(&link).await.status, 200);
    assert_eq!(service.client().get("/readyz").await.status, 200);
    let metrics = service.client().get("/metrics").await;
    assert!(
        metrics.text.contains(r#"holdfast_http_requests_total{method="GET",route="/readyz",status="200"} 1"#),
        "{}",
        metrics.text
    );
    assert!(!service.log.lock().unwrap().contains(&link), "the link is a secret");
    let mode = |name: &str| {
        let path = installation.data_dir().join(name);
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode(""), mode("master.key")), (0o700, 0o600));
    drop(service);
    let again = installation.serve(&[]);
    assert!(again.greeting.contains("/set-up/"), "still nobody has signed in");
    assert_eq!(again.client().get(&link).await.status, 404, "the link before is void");
}

#[tokio::test]
async fn database_files_are_private_in_a_folder_that_is_not() {
    let installation = Installation::new(Engine::Sqlite).await;
    let folder = installation.data_dir();
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let modes = || -> Vec<(String, u32)> {
        let entries = std::fs::read_dir(&folder).unwrap().flatten();
        let files = entries.filter(|entry| entry.path().is_file());
        let mut modes: Vec<(String, u32)> = files
            .map(|file| {
                let mode = file.metadata().unwrap().permissions().mode() & 0o777;
                (file.file_name().into_string().unwrap(), mode)
            })
            .collect();
        modes.sort();
        modes
    };
    let service = installation.serve(&[]);
    let found = modes();
    for name in ["holdfast.db", "holdfast.db-wal", "holdfast.db-shm", "master.key"] {
        assert!(found.contains(&(name.to_owned(), 0o600)), "{found:?}");
    }
    assert!(found.iter().all(|(_, mode)| *mode == 0o600), "{found:?}");
    let log = service.log.lock().unwrap().clone();
    assert!(log.contains("others can read the data folder"), "{log}");
    service.signal("KILL");
    service.wait();

    // With the permissions of an older version.
    for (name, _) in modes().iter().filter(|(name, _)| name.starts_with("holdfast.db")) {
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let said = String::from_utf8(installation.run(&["doctor", "--offline"], "").stdout).unwrap();
    assert!(said.contains("PROBLEM  database files: others can read"), "{said}");
    assert!(said.contains("PROBLEM  data folder: others can read"), "{said}");
    let service = installation.serve(&[]);
    assert!(modes().iter().all(|(_, mode)| *mode == 0o600), "{:?}", modes());
    drop(service);
}

#[tokio::test]
async fn an_administrator_can_be_made_unattended() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let installation = Installation::new(engine).await;
        let environment = [
            ("HOLDFAST_ADMIN_EMAIL", "root@example.org"),
            ("HOLDFAST_ADMIN_PASSWORD", "correct horse"),
            ("ENABLE_DEVICE_AUTH_ENDPOINT", "true"),
        ];
        let service = installation.serve(&environment);
        assert!(!service.greeting.contains("/set-up/"));
        let body = json!({"email": "root@example.org", "password": "correct horse", "device_name": "test"});
        let token = service.client().post("/api/device-auth/token", body).await.expect(200);
        let client = service.client().with_token(token["token"].as_str().unwrap());
        assert_eq!(client.get("/api/user").await.data(200)["account_settings"]["is_admin"], true);
    }
}

#[tokio::test]
async fn errors_are_reported_in_one_line_with_their_own_exit_code() {
    let installation = Installation::new(Engine::Sqlite).await;
    let service = installation.serve(&[]);
    let taken = service.base_url.trim_start_matches("http://").to_owned();
    let fail = |arguments: &[&str], environment: &[(&str, &str)]| {
        let output = run(installation.command(arguments).envs(environment.iter().copied()), "");
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.trim().lines().count(), 1, "{text}");
        (output.status.code().unwrap(), text)
    };
    let (code, text) = fail(&[], &[("HOLDFAST_COLOUR", "red")]);
    assert!(code == 2 && text.contains("HOLDFAST_COLOUR is not a setting"), "{text}");
    let (code, text) = fail(&[], &[("HOLDFAST_WORKERS", "many")]);
    assert!(code == 2 && text.contains("HOLDFAST_WORKERS must be"), "{text}");
    let (code, text) = fail(&["serve", "--listen", &taken], &[]);
    assert!(code == 5 && text.contains("cannot listen on"), "{text}");
    let (code, text) =
        fail(&["user", "list"], &[("HOLDFAST_MASTER_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")]);
    assert!(code == 3 && text.contains("not the one this database was sealed with"), "{text}");
    let (code, text) = fail(&["migrate"], &[("HOLDFAST_DATABASE_URL", "postgres://holdfast@127.0.0.1:1/none")]);
    assert!(code == 4 && text.contains("cannot reach PostgreSQL"), "{text}");
    let output = run(&mut installation.command(&["serv"]), "");
    assert_eq!(output.status.code(), Some(2));
}

#[tokio::test]
async fn sigterm_shuts_down_gracefully_and_nothing_acknowledged_is_lost() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let installation = Installation::new(engine).await;
        let token = admin_token(&installation);
        let service = installation.serve(&[]);
        let client = service.client().with_token(&token);
        let tag = client.post("/api/tags", json!({"label": "kept"})).await.id(201);
        service.signal("TERM");
        let started = Instant::now();
        assert_eq!(service.wait(), Some(0));
        assert!(started.elapsed() < Duration::from_secs(35));
        let again = installation.serve(&[]);
        let client = again.client().with_token(&token);
        assert_eq!(client.get(&format!("/api/tags/{tag}")).await.data(200)["label"], "kept");
        let used = installation.succeed(&["token", "list", "--user", "root@example.org"], "");
        assert!(!used.contains("used never"), "the last use was written at the end: {used}");
    }
}

#[tokio::test]
async fn after_a_kill_every_acknowledged_write_is_still_there() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let installation = Installation::new(engine).await;
        let token = admin_token(&installation);
        let mut acknowledged = Vec::new();
        for round in 0..3 {
            let service = installation.serve(&[]);
            let client = service.client().with_token(&token);
            for number in 0..20 {
                let label = format!("tag {round}.{number}");
                acknowledged.push((client.post("/api/tags", json!({"label": label})).await.id(201), label));
            }
            service.signal("KILL");
            assert_eq!(service.wait(), None);
        }
        let service = installation.serve(&[]);
        let client = service.client().with_token(&token);
        for (id, label) in acknowledged {
            assert_eq!(client.get(&format!("/api/tags/{id}")).await.data(200)["label"], label);
        }
    }
}

#[tokio::test]
async fn a_migration_that_was_killed_completes_on_the_next_start() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let mut interrupted = 0;
        for delay_us in (0..20).map(|step| step * 1500) {
            let installation = Installation::new(engine).await;
            let mut migrating =
                installation.command(&["migrate"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(delay_us));
            interrupted += usize::from(migrating.try_wait().unwrap().is_none());
            migrating.kill().unwrap();
            migrating.wait().unwrap();
            installation.succeed(&["migrate"], "");
            installation.succeed(&["user", "create", "--email", "a@example.org", "--name", "A"], "correct horse\n");
        }
        assert!(interrupted > 0, "at least one was killed half-way");
    }
}

#[tokio::test]
async fn an_outage_of_postgres_is_a_503_and_needs_no_restart() {
    let installation = Installation::new(Engine::Postgres).await;
    let token = admin_token(&installation);
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    client.get("/api/tags").await.expect(200);
    let mut other = sqlx::PgConnection::connect(installation.database_url.as_deref().unwrap()).await.unwrap();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for _ in 0..3 {
        sqlx::query(end).execute(&mut other).await.unwrap();
        let mut answers = Vec::new();
        while answers.last() != Some(&200) {
            let reply = client.get("/api/tags").await;
            assert!([200, 503].contains(&reply.status), "{}", reply.text);
            assert!(reply.status == 200 || reply.header("retry-after").is_some());
            answers.push(reply.status);
            assert!(answers.len() < 50, "it does not recover");
        }
        client.post("/api/tags", json!({"label": "after"})).await;
    }
    client.post("/api/tags", json!({"label": "at last"})).await.expect(201);
}

fn admin_token(installation: &Installation) -> String {
    let create = ["user", "create", "--email", "root@example.org", "--name", "Root", "--admin"];
    installation.succeed(&create, "correct horse\n");
    let token = ["token", "create", "--user", "root@example.org", "--name", "test", "--all-scopes"];
    installation.succeed(&token, "")
}

#[tokio::test]
async fn a_lost_database_is_not_replaced_by_an_empty_one() {
    let mut installation = Installation::new(Engine::Sqlite).await;
    let service = installation.serve(&[]);
    service.signal("TERM");
    assert_eq!(service.wait(), Some(0));
    let database = installation.data_dir().join("holdfast.db");
    let moved = installation.folder.path().join("moved.db");
    // Everything is in this file after an orderly stop.
    std::fs::rename(&database, &moved).unwrap();
    assert!(!std::fs::exists(format!("{}-wal", database.display())).unwrap());
    let user = ["user", "create", "--email", "a@example.org", "--name", "A"];
    for arguments in [&["serve"][..], &["worker"], &["migrate"], &user] {
        let output = installation.run(arguments, "correct horse\n");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(9), "{arguments:?}: {said}");
        assert!(said.contains("holdfast bootstrap") && said.contains("HOLDFAST_NEW_INSTALLATION"), "{said}");
        assert!(!database.exists(), "{arguments:?}");
    }
    std::fs::rename(&moved, &database).unwrap();
    drop(installation.serve(&[]));
    // The same folder with an empty database elsewhere.
    installation.database_url = Some(holdfast_testkit::PostgresServer::shared().create_database().await);
    assert_eq!(installation.run(&["migrate"], "").status.code(), Some(9));
    drop(installation.serve(&[("HOLDFAST_NEW_INSTALLATION", "true")]));
    drop(installation.serve(&[]));
}

#[tokio::test]
async fn requests_during_the_start_are_answered_with_503() {
    let installation = Installation::new(Engine::Postgres).await;
    drop(installation.serve(&[]));
    // Migrations wait for this lock.
    let mut other = sqlx::PgConnection::connect(installation.database_url.as_deref().unwrap()).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(4846202401)").execute(&mut other).await.unwrap();
    let service = Service::start_with(&installation, "info", Stdio::null(), Stdio::null()).await;
    for path in ["/healthz", "/readyz", "/api/user", "/"] {
        let reply = service.client().get(path).await;
        assert_eq!((reply.status, reply.body), (503, json!({"message": "starting"})), "{path}");
        assert_eq!(reply.headers["retry-after"], "2");
    }
    sqlx::query("SELECT pg_advisory_unlock(4846202401)").execute(&mut other).await.unwrap();
    while service.client().get("/healthz").await.status != 200 {}
    service.client().get("/api/user").await.expect(401);
}

#[tokio::test]
async fn a_worker_that_stops_answers_probes_until_its_runs_have_ended() {
    let installation = Installation::new(Engine::Sqlite).await;
    let token = admin_token(&installation);
    let service = installation.serve(&[("HOLDFAST_WORKERS", "0")]);
    let probes = format!("127.0.0.1:{}", holdfast_testkit::free_port());
    let mut command = installation.command(&["worker"]);
    let patience = [("HOLDFAST_METRICS_LISTEN", probes.as_str()), ("HOLDFAST_SHUTDOWN_SECS", "60")];
    let worker = Service::launch(command.envs(patience), holdfast_testkit::free_port());
    let probes = holdfast_testkit::Client::new(&format!("http://{probes}"), None);
    while probes.get("/readyz").await.status != 200 {}
    let client = service.client().with_token(&token);
    // A server that accepts connections and never says anything.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let server = json!({"label": "silent", "ip_address": "127.0.0.1", "port": port, "username": "nobody"});
    let server = client.post("/api/remote-servers", server).await.id(201);
    client.act(&format!("/api/remote-servers/{server}/check")).await.expect(202);
    let (connection, _) = silent.accept().await.unwrap();
    worker.signal("TERM");
    let mut ready = probes.get("/readyz").await;
    while ready.status == 200 {
        ready = probes.get("/readyz").await;
    }
    assert!(ready.body["checks"]["process"].as_str().unwrap().contains("stopping"), "{}", ready.text);
    let metrics = probes.get("/metrics").await;
    assert!(metrics.status == 200 && metrics.text.contains("\nholdfast_runs_running 1\n"), "{}", metrics.text);
    drop((connection, silent));
    assert_eq!(worker.wait(), Some(0));
}

#[tokio::test]
async fn a_service_that_stops_answers_until_its_runs_have_ended() {
    let installation = Installation::new(Engine::Sqlite).await;
    let token = admin_token(&installation);
    let service = installation.serve(&[("HOLDFAST_SHUTDOWN_SECS", "60")]);
    let client = service.client().with_token(&token);
    // A server that accepts connections and never says anything.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let server = json!({"label": "silent", "ip_address": "127.0.0.1", "port": port, "username": "nobody"});
    let server = client.post("/api/remote-servers", server).await.id(201);
    client.act(&format!("/api/remote-servers/{server}/check")).await.expect(202);
    let (connection, _) = silent.accept().await.unwrap();
    service.signal("HUP");
    service.signal("TERM");
    let mut ready = client.get("/readyz").await;
    while ready.status == 200 {
        ready = client.get("/readyz").await;
    }
    assert!(ready.body["checks"]["process"].as_str().unwrap().contains("stopping"), "{}", ready.text);
    client.get("/api/user").await.expect(200);
    drop((connection, silent));
    assert_eq!(service.wait(), Some(0));
}
