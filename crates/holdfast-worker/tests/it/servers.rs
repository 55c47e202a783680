use holdfast_testkit::{Engine, Settings, SshServer, TestApp, TestUser, free_port, on_both_engines};
use serde_json::{Value, json};

use crate::bench::{Bench, assert_failed};

async fn checked(bench: &Bench, server: i64) -> Value {
    let path = format!("/api/remote-servers/{server}");
    bench.user.client.act(&format!("{path}/check")).await.expect(202);
    bench.app.run_until_idle().await;
    bench.user.client.get(&path).await.data(200)
}

on_both_engines! {
    async fn a_check_reports_the_tools_of_a_server_and_pins_its_key(app: TestApp) {
        let bench = Bench::new(app).await;
        let server = checked(&bench, bench.server).await;
        let status = &server["status"];
        assert_eq!((&status["connectivity"], &status["error_code"]), (&json!("online"), &json!(null)));
        assert!(status["last_connected_at"].is_string() && status["latency_ms"].as_f64().unwrap() >= 0.0);
        let version = |name: &str| {
            let tools = status["tools"].as_array().unwrap();
            tools.iter().find(|tool| tool["name"] == name).map(|tool| tool["version"].as_str().unwrap().to_owned())
        };
        assert!(version("tar").unwrap().contains("GNU tar"), "{status}");
        assert!(version("find").unwrap().contains("GNU findutils"));
        assert!(version("pg_dump").unwrap().contains("PostgreSQL"));
        assert!(version("sftp").is_some());
        assert_eq!(server["connection"]["host_key_fingerprint"], bench.ssh.fingerprint());
    }

    async fn a_changed_host_key_stops_everything_until_it_is_accepted(app: TestApp) {
        let mut bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({})).await;
        bench.back_up(task).await;
        let old = bench.ssh.fingerprint().to_owned();
        bench.ssh.rekey_host();
        let attempts = bench.ssh.auth_attempts();
        assert_failed(&bench.run(task).await, "host_key_changed");
        let server = checked(&bench, bench.server).await;
        assert_eq!(bench.ssh.auth_attempts(), attempts, "no authentication is tried");
        assert_eq!(server["status"]["error_code"], "host_key_changed");
        assert_eq!(server["connection"]["host_key_fingerprint"], old);
        assert_eq!(server["connection"]["offered_host_key_fingerprint"], bench.ssh.fingerprint());
        bench.user.client.act(&format!("/api/remote-servers/{}/accept-host-key", bench.server)).await.expect(200);
        bench.back_up(task).await;
    }
}

async fn bench() -> Bench {
    Bench::new(TestApp::start(Engine::Sqlite).await).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_reached_through_a_jump_host() {
    let bench = bench().await;
    let behind = SshServer::start();
    let key = bench.user.client.get("/api/ssh-key").await.data(200);
    behind.authorize(key["public_key"].as_str().unwrap());
    let body = json!({"label": "behind", "ip_address": "127.0.0.1", "port": behind.port(),
        "username": behind.username(), "jump_server_id": bench.server});
    let inner = bench.user.client.post("/api/remote-servers", body).await.id(201);
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let backup = bench.back_up(bench.task(json!({"remote_server_id": inner})).await).await;
    let keys = async |server: i64| {
        let server = bench.user.client.get(&format!("/api/remote-servers/{server}")).await.data(200);
        server["connection"]["host_key_fingerprint"].clone()
    };
    assert_eq!(keys(inner).await, behind.fingerprint());
    assert_eq!(keys(bench.server).await, bench.ssh.fingerprint(), "the jump host's key is pinned too");
    let run = bench.restore(&backup, json!({"remote_server_id": inner, "path": bench.target()})).await;
    assert_eq!(run["status"], "successful", "{run}");
    assert!(bench.ssh.log().contains("direct-tcpip") || bench.ssh.auth_attempts() >= 2);
    // Chains, loops and other users' servers are refused; a jump host in use cannot be deleted.
    let path = format!("/api/remote-servers/{}", bench.server);
    bench.user.client.put(&path, json!({"jump_server_id": inner})).await.error_of("jump_server_id");
    bench.user.client.put(&path, json!({"jump_server_id": bench.server})).await.error_of("jump_server_id");
    let foreign = bench.app.user("bob").await.server().await;
    bench.user.client.put(&path, json!({"jump_server_id": foreign})).await.error_of("jump_server_id");
    let lone = bench.user.client.post(
        "/api/remote-servers",
        json!({"label": "x", "ip_address": "127.0.0.1", "username": "x", "jump_server_id": inner}),
    );
    lone.await.error_of("jump_server_id");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_failures_have_specific_error_codes() {
    let bench = bench().await;
    bench.ssh.revoke_all();
    assert_eq!(checked(&bench, bench.server).await["status"]["error_code"], "auth");
    let task = bench.task(json!({})).await;
    assert_failed(&bench.run(task).await, "auth");
    let body = json!({"label": "x", "ip_address": "no-such-host.invalid", "username": "x"});
    let server = bench.user.client.post("/api/remote-servers", body).await.id(201);
    assert_eq!(checked(&bench, server).await["status"]["error_code"], "dns");
}

/// The result of a check of this address.
async fn checked_at(app: &TestApp, user: &TestUser, host: &str, port: u16) -> Value {
    let server = json!({"label": "x", "ip_address": host, "port": port, "username": "u"});
    let id = user.client.post("/api/remote-servers", server).await.id(201);
    let path = format!("/api/remote-servers/{id}");
    user.client.act(&format!("{path}/check")).await.expect(202);
    app.run_until_idle().await;
    user.client.get(&path).await.data(200)["status"].clone()
}

/// A check must not be usable as a port scanner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_does_not_tell_closed_silent_and_other_ports_apart() {
    use std::io::Write as _;
    let mut settings = Settings::default();
    settings.engine.remote.ssh.connect = std::time::Duration::from_millis(500);
    let app = TestApp::start_with(Engine::Sqlite, settings).await;
    let user = app.user("ada").await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (web, closing) = (std::net::TcpListener::bind("127.0.0.1:0"), std::net::TcpListener::bind("127.0.0.1:0"));
    let (web, closing) = (web.unwrap(), closing.unwrap());
    let ports = [&silent, &web, &closing].map(|listener| listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in web.incoming().flatten() {
            let mut stream = stream;
            let _gone = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
        }
    });
    std::thread::spawn(move || closing.incoming().flatten().for_each(drop));
    for port in [free_port(), ports[0], ports[1], ports[2]] {
        let status = checked_at(&app, &user, "127.0.0.1", port).await;
        assert_eq!(status["error_code"], "connect", "{status}");
        let text = "Cannot connect to the server: no SSH server answers at this address and port.";
        assert_eq!(status["last_error"], text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_of_the_cloud_are_not_reached_over_ssh() {
    let app = TestApp::start(Engine::Sqlite).await;
    let (user, admin) = (app.user("ada").await, app.admin("root").await);
    for host in ["169.254.169.254", "fe80::1", "fd00:ec2::254", "::ffff:169.254.169.254"] {
        for user in [&user, &admin] {
            let status = checked_at(&app, user, host, 22).await;
            assert_eq!(status["error_code"], "connect", "{host}: {status}");
            assert!(status["last_error"].as_str().unwrap().contains("is not allowed"), "{host}: {status}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_can_close_private_networks_to_ordinary_users() {
    let ssh = SshServer::start();
    for (open, code) in [("192.0.2.0/24", "connect"), ("127.0.0.0/8", "auth")] {
        let mut settings = Settings::default();
        settings.engine.remote.guards_private = true;
        settings.engine.remote.egress_allow = vec![open.parse().unwrap()];
        let app = TestApp::start_with(Engine::Sqlite, settings).await;
        let (user, admin) = (app.user("ada").await, app.admin("root").await);
        for host in ["127.0.0.1", "localhost"] {
            let status = checked_at(&app, &user, host, ssh.port()).await;
            assert_eq!(status["error_code"], code, "{host} with {open}");
            let is_refused = status["last_error"].as_str().unwrap().contains("is not allowed");
            assert_eq!(is_refused, code == "connect", "{status}");
        }
        assert_eq!(checked_at(&app, &admin, "127.0.0.1", ssh.port()).await["error_code"], "auth");
        // With a jump host, the address of the jump host is what counts.
        let jump = json!({"label": "jump", "ip_address": "127.0.0.1", "port": ssh.port(), "username": "u"});
        let jump = user.client.post("/api/remote-servers", jump).await.id(201);
        let behind = json!({"label": "behind", "ip_address": "192.0.2.1", "username": "u", "jump_server_id": jump});
        let path = format!("/api/remote-servers/{}", user.client.post("/api/remote-servers", behind).await.id(201));
        user.client.act(&format!("{path}/check")).await.expect(202);
        app.run_until_idle().await;
        assert_eq!(user.client.get(&path).await.data(200)["status"]["error_code"], code);
    }
}
