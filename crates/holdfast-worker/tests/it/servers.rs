use holdfast_testkit::{SshServer, TestApp, on_both_engines};
use serde_json::{Value, json};

use crate::bench::{Bench, assert_failed};

async fn checked(bench: &Bench, server: i64) -> Value {
    let path = format!("/api/remote-servers/{server}");
    bench.user.client.act(&format!("{path}/check")).await.expect(202);
    bench.app.run_until_idle().await;
    bench.user.client.get(&path).await.data(200)
}

on_both_engines! {
    async fn a_check_tells_what_a_server_offers_and_pins_its_key(app: TestApp) {
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
    Bench::new(TestApp::start(holdfast_testkit::Engine::Sqlite).await).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_reached_through_another() {
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
    // A chain, a loop and a stranger's server are refused; a jump host in use stays.
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
async fn what_keeps_us_out_has_its_class() {
    let bench = bench().await;
    bench.ssh.revoke_all();
    assert_eq!(checked(&bench, bench.server).await["status"]["error_code"], "auth");
    let task = bench.task(json!({})).await;
    assert_failed(&bench.run(task).await, "auth");
    let body = json!({"label": "x", "ip_address": "no-such-host.invalid", "username": "x"});
    let server = bench.user.client.post("/api/remote-servers", body).await.id(201);
    assert_eq!(checked(&bench, server).await["status"]["error_code"], "dns");
}
